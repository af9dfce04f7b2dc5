"""Outcomes of verifications, kept in the cache folder of the user: a folder that was verified and
is as it was is not repeated.

An outcome is known by the digest of everything that decided it. Nothing of it is read from a folder
that is verified, and the code of its models cannot write here (`core.confinement`).
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from brinell.core import bounded
from brinell.core.errors import RequestError, StoppedError
from brinell.core.user_files import cache_folder, modules_beside
from brinell.store.files import write_text
from brinell.store.trust import SEPARATORS
from brinell.studies.kit import Call

Outcome = TypeVar("Outcome", bound=BaseModel)


def recall(
    call: Call,
    folder: Path,
    settings: Mapping[str, Any],
    of: type[Outcome],
    repeat: Callable[[], Outcome],
    *,
    keeps: Callable[[Outcome], bool],
) -> Outcome:
    """The outcome of an earlier repetition, where nothing has changed that decided it; else that of
    one now.

    Models and data that the person names are always asked again, as are servers.

    Args:
        call: the verification.
        folder: the folder.
        settings: its request, whose names are relative to the current directory.
        of: the class of the outcome.
        repeat: carries the request out again, and compares.
        keeps: whether an outcome is kept.
    """
    request, named = call.request, json.dumps([*settings.values()], ensure_ascii=False)
    if request.model or request.data or call.objects or call.datasets or "://" in named:
        return repeat()

    # A name may be that of a folder around everything, such as ".".
    names = sorted({name for name in SEPARATORS.split(named) if os.path.exists(name)})
    places = [place for place in map(Path, names) if not Path.cwd().is_relative_to(place.resolve())]
    question = {
        "request": request.model_dump(mode="json", include={"run", "replay"}),
        "from": [str(folder), str(Path.cwd()), str(call.trust)],
        "files": [_digests(place) for place in (folder, *places)],
        "verifier": _verifier(),
    }
    digest = hashlib.blake2b(json.dumps(question).encode(), digest_size=16).hexdigest()
    file = cache_folder() / "verdicts" / f"{digest}.json"

    with suppress(OSError, RequestError, ValueError):  # it is not there, or was damaged
        outcome = of.model_validate(bounded.json_of(file))
        call.progress.note(f"{folder} is as it was when it was verified; {file} holds the outcome")
        return outcome
    outcome = repeat()
    if keeps(outcome):
        with suppress(StoppedError):  # without room for it, the next one takes as long
            write_text(file, outcome.model_dump_json(exclude={*of.model_computed_fields}))
    return outcome


def _digests(place: Path) -> dict[str, str]:
    """The digest of each file at or below a place; of a Python file, with the modules of its folder
    that it imports.
    """
    modules = modules_beside(place) if place.suffix == ".py" and place.is_file() else ()
    files = [place, *modules, *sorted(place.rglob("*"))]
    return {str(file): bounded.digest(file) for file in files if file.is_file()}


@cache
def _verifier() -> list[str]:
    """Digests of the code of this package, the installed packages, and the system."""
    code = sorted(Path(bounded.__file__).parents[1].rglob("*.py"))
    installed = sorted(f"{package.name} {package.version}" for package in distributions())
    return [*map(bounded.digest, code), *installed, platform.platform()]
