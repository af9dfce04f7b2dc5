"""What `brinell transfer` is asked for."""

from typing import Literal

from pydantic import Field

from brinell.engine.request import (
    AttackSpec,
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    DistanceSpec,
    Folder,
    ModelSpec,
    Seed,
)

DIGITS = ("digits-cnn", "digits-cnn?seed=1", "digits-cnn?width=8", "digits-cnn?width=32")
"""The models where nobody names one and the data are digits: one network, the same retrained, a narrower and a wider one."""


class TransferRequest(BaseRequest):
    """What `brinell transfer` is asked for."""

    source: tuple[Folder, ...] = ()
    """Where adversarial examples come from: the folder of a benchmark set, the folder of a run, or the name of a model among
    those of --model, on which they are made; names joined by + are attacked as one model, by the mean of their logits. Default:
    each model."""
    data: DataSpec | None = None
    """The data, as for brinell audit. Default: the clean inputs of the first benchmark set, or digits."""
    model: tuple[ModelSpec, ...] = ()
    """A model that is shown the examples, as for brinell audit. Default: for digits, the built-in network, the same retrained, a
    narrower and a wider one."""
    norm: DistanceSpec = "linf"
    """The distance in which eps is measured: linf, l2, l1 or l0."""
    eps: Budgets | None = None
    """The budget of the examples that are made, and of those that are taken from runs. Default: the largest of the field's usual
    ones."""
    attack: AttackSpec = "mi-fgsm"
    """The attack that makes examples, such as mi-fgsm?diverse=0.5&kernel=3 or apgd-ce; it spends all its steps on each sample."""
    samples: int | None = Field(default=None, ge=1)
    """The number of samples. Default: 1000, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test
    sets, and stratified of all else."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"
    draws: int = Field(default=2000, ge=100, le=100_000)
    """The resamplings behind the intervals of the sources' places."""
