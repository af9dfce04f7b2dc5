"""The settings of `brinell certify`."""

from typing import Annotated, Literal

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import (
    JOINED,
    AttackSpec,
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    File,
    Folder,
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
    solver: tuple[File, ...] = ()
    """The command of an outside verifier of VNN-LIB 2.0, which is asked about what the methods leave open in linf, as TOOL verify
    QUERY.vnnlib --network N=MODEL.onnx --timeout S. Its proofs carry its name; its counterexamples are checked by the model."""
    solver_timeout: float = Field(default=60.0, gt=0, le=1e6)
    """The seconds that an outside verifier may take for one question."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 100, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """How samples are selected: first, stratified or random."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    device: Device = "auto"


class CertifyOptions(BaseRequest):
    """The files that a certification writes beside its folder."""

    export: Folder | None = None
    """Write a query in VNN-LIB for each sample and budget that stays open, in versions 1.0 and 2.0, and the network in ONNX into
    this folder."""
