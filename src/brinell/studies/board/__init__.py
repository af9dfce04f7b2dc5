"""Make a static site of any number of runs: a table for each task, and a page for each model.

Nothing is shown that verification refuses. Models have ranks where the board repeated their
attacks; all other figures are claims of whoever made the folder, and say so. Made again, a site
changes only where something is new.
"""

from typing import Literal

from pydantic import Field

from brinell.engine.request import BaseRequest, Folder
from brinell.studies.kit import Study


class BoardRequest(BaseRequest):
    """The settings of `brinell board`."""

    folder: tuple[Folder, ...] = Field(min_length=1)
    """Runs and certificates, or folders that hold some at any depth."""
    level: Literal["replay", "rows"] = "replay"
    """How far each folder is verified: by a replay with its model and data, or from its files
    alone, which leaves claims."""
    title: str = "Robustness board"
    """The title of the site."""


STUDY = Study(
    verb="board",
    request=BoardRequest,
    result="result:BoardResult",
    positional=("folder",),
    examples=("brinell board runs --out site", "brinell board RUN_A RUN_B CERTIFICATE --out site"),
)
