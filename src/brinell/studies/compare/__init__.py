"""Compare models on the same samples: ranks with intervals, paired differences, and robustness
class by class.

The models are those of finished runs, or are audited first. The first one is the baseline of the
differences.
"""

from typing import Annotated

from pydantic import Field

from brinell.engine.request import (
    JOINED,
    AttackSpec,
    BaseRequest,
    Budgets,
    DataSpec,
    Device,
    DistanceSpec,
    Folder,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study


class CompareRequest(BaseRequest):
    """The settings of `brinell compare`."""

    run: tuple[Folder, ...] = Field(min_length=1)
    """A run of brinell audit, all of whose models are compared; or a model, as for brinell
    audit, which is audited first."""
    at: Budgets | None = None
    """The budget at which models and classes are compared; all runs have it. Default: the
    largest common budget at which the models keep a tenth of their clean accuracy on average."""
    data: DataSpec = "digits"
    """The data on which models are audited, as for brinell audit."""
    norm: DistanceSpec = "linf"
    """The distance of these audits."""
    eps: Annotated[Budgets | None, JOINED] = None
    """The budgets of these audits."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """The attacks of these audits."""
    samples: SampleCount = None
    """The number of samples of these audits, or all. Default: 1000, or all where there are
    fewer."""
    seed: Seed = 0
    device: Device = "auto"


STUDY = Study(
    verb="compare",
    request=CompareRequest,
    result="result:Comparison",
    positional=("run",),
    memory=("data",),
    claimed_keys=(
        (
            ("runs", "FOLDER/audit"),
            "the digest of the audit in the folder, which is repeated with it",
        ),
    ),
    resume=True,
    examples=(
        "brinell compare RUN_A RUN_B",
        "brinell compare RUN_A RUN_B RUN_C --at 4/255",
        "brinell compare 'digits-cnn?width=8' digits-cnn --samples 200",
    ),
)
