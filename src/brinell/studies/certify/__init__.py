"""Bound robust accuracy from both sides: proofs from below, attacks from above, class by class
over a range of budgets.

With a query in VNN-LIB and --network, answer that query alone. With --method smoothing, prove the
smoothed model, which answers the class that is most frequent under Gaussian noise.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from brinell.core.settings import Names
from brinell.engine.request import (
    CASCADES_OF_COUNTS,
    JOINED,
    AttackSpec,
    BaseRequest,
    BatchSize,
    Budgets,
    DataSpec,
    Device,
    File,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study

SMOOTHING = "smoothing"
"""The method that proves the smoothed model."""
QUERY_ATTACKS = (
    "apgd?loss=margin&steps=30",
    "apgd?loss=margin&steps=100",
    "square?steps=300&loss=margin",
)
"""Attacks on a query if nobody names any."""


class CertifyRequest(BaseRequest):
    """The settings of `brinell certify`."""

    query: File | None = None
    """A query in VNN-LIB 1.0 or 2.0 about one network: bounds of each input, and linear
    constraints of the outputs."""
    data: DataSpec = "digits"
    """The data, as for brinell audit."""
    model: ModelSpec = "digits-cnn"
    """The model, as for brinell audit. The bounds must know its layers; for smoothing its
    predicted class is enough."""
    norm: Literal["linf", "l2"] = "linf"
    """The distance in which eps is measured. Smoothing takes l2."""
    eps: Annotated[Budgets | None, JOINED] = None
    """Budgets, such as 0:8/255:9. Default: 0:0.04:5, and for smoothing five up to the largest
    that the draws allow."""
    method: tuple[Annotated[str, Names("bound")], ...] = ("crown", "alpha-crown")
    """A method of proof: interval, crown-ibp, crown, alpha-crown or beta-crown?parts=200, each
    on what is still open; or, by itself, smoothing?sigma=0.25&draws=10000&first=100&alpha=0.001.
    With &early=true draws end once the radii of --eps are decided."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """The attacks, as for brinell audit. For a query by default APGD on its slack, then Square."""
    solver: tuple[File, ...] = ()
    """The command of an outside verifier of VNN-LIB 2.0, which is asked about what the methods
    leave open in linf, as TOOL verify QUERY.vnnlib --network N=MODEL.onnx --timeout S; or
    abcrown, where the package of alpha-beta-CROWN is installed, which takes the module in memory.
    Its proofs carry its name; its counterexamples are checked by the model."""
    timeout: float = Field(default=60.0, gt=0, le=1e6)
    """The seconds that an outside verifier may take for one question, and brinell itself for a
    query."""
    network: File | None = None
    """The network of a query: MODEL.onnx, or NAME=MODEL.onnx with its name in the query."""
    samples: SampleCount = None
    """The number of samples, or all. Default: 100, or all where there are fewer."""
    seed: Seed = 0
    batch_size: BatchSize = 1000
    device: Device = "auto"

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: Any) -> Any:
        """The distance of smoothing, and the attacks on a query."""
        methods = values.get("method", ())
        listed = methods if isinstance(methods, list | tuple) else (methods,)
        smooths = any(str(method).startswith(SMOOTHING) for method in listed)
        norm = {"norm": "l2"} if smooths else {}
        attack = {"attack": QUERY_ATTACKS} if values.get("query") is not None else {}
        return {**norm, **attack, **values}

    @field_validator("norm", mode="before")
    @classmethod
    def _refuse_counts(cls, norm: Any) -> Any:
        """Refuse the distances that count what changes: no method proves anything in them."""
        if str(norm).partition(":")[0] in CASCADES_OF_COUNTS:
            raise PydanticCustomError(
                "norm",
                "proofs cover changes in linf and l2 alone: brinell audit --norm {norm} attacks, "
                "and proves nothing",
                {"norm": str(norm)},
            )
        return norm

    @property
    def is_smoothing(self) -> bool:
        """True if the smoothed model is proven."""
        return any(method.partition("?")[0] == SMOOTHING for method in self.method)


STUDY = Study(
    verb="certify",
    request=CertifyRequest,
    run="run:carry_out",
    claimed=(("verdicts-N.jsonl", "the answers of outside verifiers, where --solver names any"),),
    rows="brinell.store.proofs:Outcomes",
    result="result:CertifyResult",
    positional=("query",),
    examples=(
        "brinell certify",
        "brinell certify --data npz:TEST.npz --model "
        "torch:model.py:make?weights=W.safetensors --eps 0:8/255:9",
        "brinell certify --method 'smoothing?sigma=0.25&draws=100000'",
        "brinell certify --method crown --solver TOOL --timeout 30",
        "brinell certify QUERY.vnnlib --network MODEL.onnx",
    ),
)
