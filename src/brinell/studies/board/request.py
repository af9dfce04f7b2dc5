"""What `brinell board` is asked for."""

from typing import Literal

from pydantic import Field

from brinell.engine.request import BaseRequest, Folder


class BoardRequest(BaseRequest):
    """What `brinell board` is asked for."""

    folder: tuple[Folder, ...] = Field(min_length=1)
    """Runs, certificates and claims, or folders that hold some at any depth."""
    level: Literal["rows", "replay"] = "rows"
    """How far each is verified: files, digests, rows and labels, or also by a replay with its model and data."""
    title: str | None = None
    """The title of the site. Default: Robustness board."""
    workers: int | None = Field(default=None, ge=1, le=256)
    """Processes that verify side by side. Default: one a core."""
