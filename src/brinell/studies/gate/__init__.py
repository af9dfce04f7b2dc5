"""Test the lower end of each interval against thresholds, or a run against a baseline.

A missing figure fails, and so does a check that was not made.
"""

from typing import Annotated

from pydantic import Field

from brinell.engine.request import BaseRequest, Budgets, Folder
from brinell.studies.kit import Output, Study

Share = Annotated[float, Field(ge=0, le=1)]


class GateRequest(BaseRequest):
    """What `brinell gate` is asked for."""

    run: Folder
    """The folder, made by brinell audit or certify."""
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
    baseline: Folder | None = None
    """A run that this one must not be worse than."""
    max_drop: Share | None = None
    """The most that a rate may fall below the baseline's, chance or not."""
    model: str | None = None
    """The name of the model, where the run has several."""
    allow: tuple[str, ...] = ()
    """The code of a check or a warning that does not fail the gate."""
    without_checks: bool = False
    """Pass too where checks that count were not made."""


STUDY = Study(
    verb="gate",
    request=GateRequest,
    result="brinell.analysis.gate:GateResult",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=(
        "brinell gate RUN --robust 0.4 --worst-class 0.2 --eps 8/255",
        "brinell gate RUN --baseline EARLIER --max-drop 0.02",
        "brinell gate PROOFS --certified 0.3 --eps 2/255",
    ),
)
