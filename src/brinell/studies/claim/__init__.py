"""State what a run shows and what it does not, for a model card, a paper or a technical file.

A claim is a page, a card in Markdown, a badge and one JSON, all made from the run: it holds the
digest of the run's manifest and no other figure. `brinell verify CLAIM` verifies the run, and
makes the claim again.
"""

from typing import Literal

from brinell.engine.request import BaseRequest, Budgets, Folder
from brinell.studies.kit import Study


class ClaimRequest(BaseRequest):
    """The settings of `brinell claim`."""

    run: Folder
    """The run, made by brinell audit; with --certify its proofs bound the figure from below."""
    eps: Budgets | None = None
    """The one budget of the claim, one of the run's. Default: the largest."""
    model: str | None = None
    """The name of the model, where the run has several."""
    against: Literal["robustbench"] | None = None
    """robustbench: say whether the figure is comparable with the entries of RobustBench (as of
    2025-03-31), and its place among them where it is."""


STUDY = Study(
    verb="claim",
    request=ClaimRequest,
    result="result:ClaimResult",
    positional=("run",),
    memory=(),
    examples=(
        "brinell claim RUN",
        "brinell claim RUN --eps 8/255 --out claim",
        "brinell claim RUN --against robustbench",
    ),
)
