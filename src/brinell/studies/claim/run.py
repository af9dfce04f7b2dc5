"""Writes a claim about a run, and reads it again from the run that it names by digest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.analysis.proofs import with_proofs
from brinell.analysis.results import ModelResult
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.bounded import digest
from brinell.core.errors import RequestError, option
from brinell.core.user_files import user_path
from brinell.engine.eps_grid import parse_eps
from brinell.engine.toml import parse_request
from brinell.manifest import Command, Content, Manifest
from brinell.store.folder import MANIFEST, Layout
from brinell.store.run import Run
from brinell.studies import register
from brinell.studies.claim import ClaimRequest
from brinell.studies.claim.result import BADGE, CARD, JSON, ClaimResult, summarise
from brinell.studies.kit import Call, command_of


class ClaimedRun(Content, extra="forbid"):
    """The run that a claim is made from."""

    path: str
    """The folder, as it was named."""
    manifest: str
    """The digest of its manifest, which lists the digests of all its files."""


class ClaimManifest(Manifest, extra="forbid"):
    """The manifest of a claim: all else follows from the run."""

    command: Command
    """The command line that repeats it."""
    request: dict[str, Any]
    """All settings of the request."""
    source: ClaimedRun
    """The run."""


@dataclass(frozen=True, kw_only=True)
class ClaimLayout(Layout):
    """The folder of a claim, which may be written again at any time, since nothing in it is its
    own.
    """

    def begin(self, path: Path, *, resume: bool = False) -> dict[str, Any]:
        """The manifest of the claim that is there; empty if there is none."""
        return self.read(path) if self.has(path) else super().begin(path, resume=resume)


LAYOUT = ClaimLayout(
    verb="claim",
    noun="claim",
    version=1,
    manifest=ClaimManifest,
    resumable=False,
    derived=(JSON, CARD, BADGE),
)


def carry_out(call: Call) -> ClaimResult:
    """Write the claim about a run.

    Raises:
        RequestError: no finished run, a budget or a model that it has not, or a folder with another
            claim.
        StoppedError: the folder cannot be written.
    """
    request: ClaimRequest = call.request
    path = user_path(request.run)
    _figures(request, path)  # what has no claim is refused before a folder is made

    folder = call.within(request.run).folder(request.run)
    settings = {
        "request": request.model_dump(mode="json"),
        "source": {"path": request.run, "manifest": digest(path / MANIFEST)},
    }
    with LAYOUT.lock(folder):
        previous = LAYOUT.begin(folder)
        # A new folder has no settings, and contradicts none.
        if any(previous.get(key, value) != value for key, value in settings.items()):
            raise RequestError(
                f"{folder} holds a claim about another run, budget or comparison: "
                f"choose another {option('out')}"
            )
        LAYOUT.save(folder, settings | {"command": call.command})
        result = open_result(folder)
        result.write()
    return result


def open_result(folder: Path, place: Path | None = None) -> ClaimResult:
    """The claim of a folder, from the run that it names; `place` is where the folder lay before it
    was copied.
    """
    manifest = LAYOUT.read(folder)
    request = parse_request(ClaimRequest, dict(manifest["request"]))
    (source,) = sources(place or folder, manifest)
    run, result, position = _figures(request, source)
    settings = parse_request(register.load("audit").request, dict(run.manifest["request"]))
    repeat = command_of(settings, register.load("audit"))
    return summarise(
        str(folder), request, run.manifest, result, position, manifest["source"]["manifest"], repeat
    )


def sources(folder: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """The run of a claim: the folder around it or the one that it names, whose manifest has the
    digest that the claim holds.
    """
    origin = manifest["source"]
    if origin["path"] != manifest["request"]["run"]:
        raise RequestError(
            f"{folder} is asked for one run and names another as its source: one of both was changed"
        )

    # A claim that lies in its run finds it there, wherever both were moved.
    for place in (folder.absolute().parent, user_path(origin["path"])):
        if (place / MANIFEST).is_file() and digest(place / MANIFEST) == origin["manifest"]:
            return [place]
    raise RequestError(
        f"{folder} is a claim about {origin['path']}, and no run there or around "
        "the claim has that manifest: put it back"
    )


def _figures(request: ClaimRequest, path: Path) -> tuple[Run, ModelResult, int]:
    """A run, the figures of the model, and the position of the budget of the claim."""
    run = Run.open(path)
    names = [str(entry["name"]) for entry in run.manifest["models"]]
    if request.model not in (None, *names) or (request.model is None and len(names) > 1):
        raise RequestError(f"{path} holds {', '.join(names)}: name one by {option('model')}")
    result = summarise_model(run.manifest, run.rows, str(path), request.model or names[0])
    # Proofs in the folder of a run are about its only model.
    result = result if len(names) > 1 else with_proofs(result, path)

    positions = [k for k, eps in enumerate(result.eps) if eps > 0]
    if not positions:
        raise RequestError(
            f"{path} has no budget above 0, and a claim is about one: audit the "
            f"model with {option('eps')}"
        )
    if request.eps is None:
        return run, result, positions[-1]

    values = parse_eps(request.eps).values
    matches = [
        k
        for k in positions
        if len(values) == 1 and math.isclose(result.eps[k], values[0], rel_tol=1e-6)
    ]
    if not matches:
        texts = ", ".join(result.eps_text[k] for k in positions)
        raise RequestError(
            f"a claim is about one budget of the run, and eps {request.eps} is "
            f"none: {path} has {texts}"
        )
    return run, result, matches[0]
