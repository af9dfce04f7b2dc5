"""Test the lower end of each interval against thresholds, or a run against a baseline.

A missing figure fails, and so does a check that counts and was not made; a check that does not
apply to the run is left out. Intervals are exact here, and begin lower than those of an audit.
With data and a model in place of a run it audits first. The exit code is 0 if the gate passes, 1 if
it fails, and with --until-decided 4 if the samples or the minutes leave it open.
"""

from typing import Annotated

from pydantic import Field

from brinell.core.settings import NamesOfRun
from brinell.engine.request import (
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
from brinell.studies.kit import Output, Study

Share = Annotated[float, Field(ge=0, le=1)]


class GateRequest(BaseRequest):
    """What `brinell gate` is asked for."""

    run: Folder = ""
    """The folder, made by brinell audit or certify. Leave it out to audit --data and --model."""
    robust: Share | None = None
    """Least robust accuracy, 0 to 1, for the lower end of its interval."""
    worst_class: Share | None = None
    """The same for the weakest class."""
    clean: Share | None = None
    """The same for clean accuracy."""
    certified: Share | None = None
    """The same for the share of samples that is proven robust, in a folder of brinell certify."""
    unmet: Share | None = None
    """The same for the share of inputs that do not meet a criterion of probability, in a run
    with --criterion."""
    eps: Budgets | None = None
    """The one budget that is judged, one of the run's. Default: its largest for thresholds, and
    each for a baseline."""
    data: DataSpec | None = None
    """The data of the audit, named as for brinell audit, whose other settings are the
    usual ones.
    """
    model: Annotated[str, NamesOfRun("model")] | None = None
    """The model of the audit; of a run with several models, the name of one."""
    until_decided: bool = False
    """Audit in waves, and end once it is decided whether robust accuracy reaches --robust. What
    all samples leave open is neither passed nor failed: exit code 4."""
    samples: SampleCount = None
    """The samples of the audit at most, as for brinell audit."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """The minutes of the audit at most. Default: no limit."""
    attack: tuple[AttackSpec, ...] = ()
    """The attacks of the audit. Default: fast."""
    baseline: Folder | None = None
    """A run that this one must not be worse than."""
    max_drop: Share | None = None
    """The most that a rate may fall below the baseline's, chance or not."""
    allow: tuple[str, ...] = ()
    """The code of a check or a warning that does not fail the gate."""
    without_checks: bool = False
    """Pass too where checks that count were not made."""
    norm: DistanceSpec = "linf"
    """The distance of the audit."""
    seed: Seed = 0
    device: Device = "auto"


STUDY = Study(
    verb="gate",
    request=GateRequest,
    result="brinell.analysis.gate:GateResult",
    positional=("run",),
    output=Output.FOLDER,
    resume=False,
    keeps_region=True,
    examples=(
        "brinell gate RUN --robust 0.4 --worst-class 0.2 --eps 8/255",
        "brinell gate --data FILE.npz --model model.py:factory --robust 0.4 --eps 8/255 "
        "--until-decided",
        "brinell gate RUN --baseline EARLIER --max-drop 0.02",
        "brinell gate PROOFS --certified 0.3 --eps 2/255",
    ),
)
