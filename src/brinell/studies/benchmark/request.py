"""What `brinell benchmark` is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names, Plain
from brinell.engine.request import BaseRequest, BatchSize, Budgets, DataSpec, Device, ModelSpec, Seed


class BenchmarkRequest(BaseRequest):
    """What `brinell benchmark` is asked for."""

    data: DataSpec = "digits"
    """The data: digits, npz:FILE, mnist:DIR, cifar10:DIR, image-folder:DIR."""
    model: ModelSpec = "digits-cnn"
    """The model: digits-cnn, torch:FILE.py:FACTORY?weights=FILE."""
    distortions: Annotated[str, Names("distortion")] = "gaussian-noise"
    """What may be placed: names joined by +, or file.py:Class for one of your own."""
    policy: Annotated[str, Names("file", ("default", "prior", "greedy", "random-placement", "random-search"))] = "default"
    """Who places it: default (prior for images, greedy for other data), prior, greedy, random-placement, random-search, or a file
    of brinell train-agent."""
    patch: int | Plain = 0
    """The side of a patch in values, or one for each axis (4x16x16). 0 lets the size of the input decide: 8 to 64 patches along
    an axis."""
    stride: int | Plain = 0
    """The distance from one patch to the next, written like patch. 0 is the side of a patch."""
    eps: Budgets | None = None
    """The largest L2 distance of an adversarial example. Default: no limit."""
    steps: int = Field(default=1000, ge=1)
    """The queries after which a sample is given up."""
    refine: int = Field(default=200, ge=0)
    """The queries after the first adversarial example that look for one at a smaller distance."""
    levels: Plain = "1,2,4,6,8,10"
    """Multiples of the L2 distance of the adversarial example, which is always among them."""
    true_below: float | None = None
    """The criterion: the probability of the true class falls below this value."""
    wrong_class: Plain | None = None
    """The criterion: this class, by name or number, is predicted where it is not the true one."""
    wrong_above: float | None = None
    """The criterion: the wrong class has more than this probability."""
    samples: int | None = Field(default=None, ge=1)
    """The number of samples. Default: 1000, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test
    sets, and stratified of all else."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"
    licence: Plain = "unknown"
    """The licence that the data card names, in the words of the Hugging Face hub. That of the source data counts."""
