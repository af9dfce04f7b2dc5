"""Write a page of pairs of clean and changed pictures, and measure from people's answers which
changes are noticed; or of pairs of maps, and measure which method's maps people choose.

Open the page in a browser. It saves the answers as a file, which the same command reads with
--answers.
"""

from typing import Literal

from pydantic import Field

from brinell.engine.request import BaseRequest, Budgets, DataSpec, File, Folder, Seed
from brinell.studies.kit import Study


class ReviewRequest(BaseRequest):
    """The settings of `brinell review`."""

    data: DataSpec
    """The data: pictures with one or three channels."""
    norm: Literal["linf", "l2"] = "linf"
    """The norm in which the changes are measured: linf or l2."""
    eps: Budgets = "0.01,0.02,0.04,0.08,0.16,0.32"
    """The sizes of the changes, in the units of the data's bounds."""
    run: Folder | None = None
    """The folder of an audit, whose adversarial inputs are the changes. Default: changes towards
    another class."""
    maps: Folder | None = None
    """The folder of brinell explain, whose maps of the same input by two methods are the pairs, in
    place of changes."""
    trials: int = Field(default=120, ge=2, le=100_000)
    """The number of pairs, a fifth of them without a change; of maps as many as there are at
    most."""
    seed: Seed = 0


class ReviewOptions(BaseRequest):
    """Answers of people."""

    answers: tuple[File, ...] = ()
    """A file of answers that the page saved, for the review in --out. Several are named by
    repeating it."""


STUDY = Study(
    verb="review",
    request=ReviewRequest,
    options=ReviewOptions,
    rows="result:Trials",
    run="run:carry_out",
    result="result:ReviewResult",
    claimed=(("answers.jsonl", "the answers of people"),),
    positional=("data",),
    examples=(
        "brinell review FILE.npz --out REVIEW",
        "brinell review FILE.npz --out REVIEW --resume --answers answers.json",
        "brinell review FILE.npz --maps EXPLAINED --out REVIEW",
    ),
)
