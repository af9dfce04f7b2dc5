"""Whether a folder holds what is asked for, so that going on there mixes nothing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from brinell.core.errors import RequestError


def check_same(
    out: Path,
    what: str,
    before: Mapping[str, Any] | None,
    cell: str,
    request: BaseModel,
    *,
    cursory: tuple[str, ...],
    otherwise: str,
) -> None:
    """Refuse to mix two different requests in one folder.

    Args:
        out: the folder.
        what: what such folders hold, as the line says it.
        before: its manifest, with `cell` and `request`; None where there is none yet.
        cell: hash of everything that determines what is asked for now.
        request: what is asked for now.
        cursory: settings that change nothing in the rows.
        otherwise: what must have changed where no setting did.

    Raises:
        RequestError: the folder holds something else.
    """
    if before is None or before["cell"] == cell:
        return
    then, now = before["request"], request.model_dump(mode="json")
    changed = [key for key in now if then.get(key) != now[key] and key not in cursory]
    words = ", ".join(f"{key} was {then.get(key)!r} and is {now[key]!r}" for key in changed)
    raise RequestError(f"{out} holds another {what} ({words or otherwise}): choose another --out")
