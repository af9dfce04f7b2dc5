"""The settings of `brinell certify`."""

from typing import Annotated, Literal

from brinell.core.settings import Names
from brinell.engine.request import (
    JOINED,
    AttackSpec,
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    InProcess,
    ModelSpec,
    SampleCount,
    Seed,
)


class CertifyRequest(BaseRequest):
    """The settings of `brinell certify`."""

    data: DataSpec = "digits"
    """The data, as for brinell audit."""
    model: ModelSpec = "digits-cnn"
    """The model, as for brinell audit. Its layers must be known to the bounds: convolutions, linear layers, ReLU and the like."""
    norm: Literal["linf", "l2"] = "linf"
    """The distance in which eps is measured."""
    eps: Annotated[Budgets | None, JOINED] = None
    """Budgets, such as 0:8/255:9. Default: 0:0.04:5."""
    method: tuple[Annotated[str, Names("bound")], ...] = ("crown", "alpha-crown")
    """A method of proof: interval, crown-ibp, crown, alpha-crown or beta-crown?parts=200. They run in the order given, each on
    the samples that are still open."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """The attacks, as for brinell audit."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 100, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """How samples are selected: first, stratified or random."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"
    in_process: InProcess = False
