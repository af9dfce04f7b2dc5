"""What `brinell claim` is asked for."""

from typing import Literal

from brinell.engine.request import BaseRequest, Budgets, Folder


class ClaimRequest(BaseRequest):
    """What `brinell claim` is asked for."""

    run: Folder
    """The run, made by brinell audit."""
    eps: Budgets | None = None
    """The one budget of the claim, one of the run's. Default: that of the published entries with --against, else the largest."""
    model: str | None = None
    """The name of the model, where the run has several."""
    proofs: Folder | None = None
    """A folder of brinell certify for the same model and data: its proofs bound the figure from below. Default: those of
    an audit with --certify, if there are any."""
    against: Literal["robustbench"] | None = None
    """Published entries among which the figure is ranked, if the protocols agree."""
    level: Literal["rows", "replay"] = "replay"
    """How far the run is verified first: its files and rows alone, or also a replay with its model and data."""
