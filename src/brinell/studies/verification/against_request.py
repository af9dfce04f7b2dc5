"""A run's manifest and folder against its request: the manifest says what the request makes, and there is no file more."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError
from brinell.engine import toml
from brinell.engine.plan import Plan
from brinell.runners.local import about
from brinell.store.folder import MANIFEST, PAGE, REQUEST
from brinell.store.run import Run
from brinell.store.signature import SIGNATURE
from brinell.studies.verification.result import Notes

LOOSE = frozenset({"warnings"})
"""Keys that are added to while a run goes on."""
UNFIXED = frozenset({"cells", "served", "notes"})
"""Keys within them that follow from others, or that another machine says."""
KNOWN = (MANIFEST, REQUEST, PAGE, ".lock", SIGNATURE)
"""Files of a run folder beside records, arrays and tables."""


def manifest(run: Run, plan: Plan, notes: Notes) -> None:
    """Whether the run is finished, is what its request asks for, and was made with this data and these models."""
    said = run.manifest
    if said["state"] != "finished":
        notes.note(MANIFEST, "the run is not finished: go on with --resume first")
    try:
        asked = toml.make_request(toml.load(run.path / REQUEST)).model_dump(mode="json")
    except RequestError as error:
        notes.note(REQUEST, str(error))
    else:
        for key in sorted(key for key in asked if asked[key] != said["request"].get(key)):
            notes.note(REQUEST, f"{key} is {asked[key]!r}, and the manifest says that {said['request'].get(key)!r} was asked for")
    if said["data"]["digest"] != plan.data_digest:
        notes.note("data", f"{plan.dataset.name} is not the data of the run: its digest differs")
    digests = {model["name"]: model["digest"] for model in said["models"]}
    for source in plan.models:
        if digests.get(source.name) != source.facts["digest"]:
            notes.note(source.name, "the model is not the one of the run: its digest differs")
    for path in differences(json.loads(json.dumps(about(plan))), said):
        notes.note(MANIFEST, f"{path} is not what the request makes of it")


def differences(made: Mapping[str, Any], said: Mapping[str, Any]) -> list[str]:
    """Where a manifest says otherwise than what is made of its request, as paths such as `stages.0.settings`; digests aside."""
    found = []
    for key in sorted(made.keys() - LOOSE):
        found += _differences(key, made[key], said.get(key))
    return found


def _differences(path: str, made: Any, said: Any) -> list[str]:
    key = path.rpartition(".")[2]
    if key in UNFIXED or key == "digest":
        return []
    if isinstance(made, dict) and isinstance(said, dict):
        return [one for name in sorted(made) for one in _differences(f"{path}.{name}", made[name], said.get(name))]
    if isinstance(made, list) and isinstance(said, list) and len(made) == len(said) and key in ("stages", "models"):
        return [one for at, part in enumerate(made) for one in _differences(f"{path}.{at}", part, said[at])]
    return [] if made == said else [path]


def files(run: Run, notes: Notes) -> None:
    """Hashes of all records and arrays, and no file that does not belong to the run."""
    now, then = run.digests(), run.manifest.get("files", {})
    for name in sorted(now.keys() | then.keys()):
        if name not in now:
            notes.note(name, "the file is gone")
        elif name not in then:
            notes.note(name, "the file was not there when the run ended")
        elif now[name] != then[name]:
            notes.note(name, "the file was changed after the run ended")
    for name in strangers(run):
        notes.note(name, "the file does not belong to the run")


def strangers(run: Run) -> list[str]:
    """Files of the folder that no model and stage of the manifest accounts for; hidden ones aside, which no verb reads."""
    cells = {cell for one in (*run.manifest["models"], *run.manifest["stages"]) for cell in one.get("cells", {}).values()}
    found = []
    for path in sorted(run.path.rglob("*")):
        inside = path.relative_to(run.path)
        if path.is_dir() and not path.is_symlink():
            continue
        if path.name.startswith(".") and str(inside) != ".lock":
            continue
        if not _belongs(inside, cells) or path.is_symlink():
            found.append(inside.as_posix())
    return found


def _belongs(inside: Path, cells: set[str]) -> bool:
    if len(inside.parts) == 1:
        return inside.name in KNOWN
    folder, kind, words = inside.parts[0], inside.suffix, inside.stem.split("-")
    if folder == "tables" and kind == ".csv":
        return len(inside.parts) == 2
    endings = {"records": ".parquet", "arrays": ".safetensors"}
    if len(inside.parts) != 2 or endings.get(folder) != kind or len(words) < 2:
        return False
    return words[1] in cells and words[0] in ("part", "clean")
