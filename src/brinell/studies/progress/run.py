"""What can be seen of a run from outside while it goes on: how far it is, who works on it, and how long it will take.

Nothing is asked of the processes. Those that meet in a store leave there what is done, what each has claimed, and what each says
of itself a few times a minute (`runners.meeting`, `runners.shared_progress`); one alone leaves parts and shards in its folder.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, option
from brinell.core.record import CLEAN
from brinell.runners.meeting import ALONE, PLAN
from brinell.runners.shared_progress import FOLDER, Standing
from brinell.store.claims import LEASE
from brinell.store.folder import MANIFEST, SHARDS
from brinell.store.run import Run
from brinell.store.shared import Store, address_of, open_store
from brinell.studies.kit import Call
from brinell.studies.progress.result import RunProgress, StageProgress, WorkerProgress

DONE, CLAIMS = f"{SHARDS}/done", f"{SHARDS}/claims"


def carry_out(call: Call) -> RunProgress:
    """How far the run is that a call names.

    Raises:
        RequestError: no run there.
        StoppedError: the store does not answer.
    """
    return look(call.request.run)


def look(out: Path | str) -> RunProgress:
    """How far a run is.

    Args:
        out: the run folder, or the address of the store.

    Raises:
        RequestError: no run there.
        StoppedError: the store does not answer.
    """
    store, name = open_store(out), address_of(out) or str(out)
    plan = store.read(PLAN)
    if plan is not None:
        return _in_shards(store, name, json.loads(plan))
    if store.read(ALONE) is not None:
        return _parts_alone(store, name)
    manifest = store.read(MANIFEST)
    if manifest is None:
        raise RequestError(f"{name} holds no run, or one that has not begun yet: name the {option('out')} of an audit")
    if address_of(out) is not None or json.loads(manifest).get("state") == "finished":
        return _ended(name, json.loads(manifest))
    return _alone(Run.open(Path(out)), name)


# In shards


def _in_shards(store: Store, name: str, plan: Mapping[str, Any]) -> RunProgress:
    standings = _standings(store)
    workers = _workers(store, standings)
    stages = _in_order([(model, stage, *_shards_of(store, cell, workers)) for model, stage, cell in _cells(plan["cells"])])
    live = [standings[one.by] for one in workers if one.alive and one.by in standings]
    now = _furthest(live, stages)
    rate = sum(one.rate for one in live if one.rate is not None) or None
    ahead = [one.passes_left for one in live if one.passes_left is not None]
    return RunProgress(
        run=name,
        state="in shards",
        shards=int(plan["of"]),
        samples=plan.get("samples"),
        stages=stages,
        workers=workers,
        at=_title(now)
        if now is not None
        else next((f"{one.model} {one.stage}" for one in stages if one.state == "under way"), None),
        left=None if now is None else now.left,
        robust=None if now is None else now.robust,
        rate=rate,
        seconds_left=max(ahead) / rate if ahead and rate else None,
    )


def _cells(cells: Any) -> list[tuple[str | None, str, str]]:
    """Model, stage and where what is done of it is kept, model after model; of a study one kind of parts."""
    if isinstance(cells, str):
        return [(None, "part", "part")]
    models = [name for name, own in cells if set(own) == {CLEAN}]
    stages = [(name, own) for name, own in cells if set(own) != {CLEAN}]
    clean = dict(cells[: len(models)])
    return [
        (model, stage, cell)
        for model in models
        for stage, cell in [(CLEAN, clean[model][CLEAN]), *((name, own[model]) for name, own in stages if model in own)]
    ]


def _shards_of(store: Store, cell: str, workers: Sequence[WorkerProgress]) -> tuple[int, int]:
    claimed = sum(task.startswith(f"{cell}-") for one in workers for task in one.claims)
    return len(store.names(f"{DONE}/{cell}")), claimed


def _in_order(found: Sequence[tuple[str | None, str, int, int]]) -> tuple[StageProgress, ...]:
    """The stages, each with whether it has ended: every process goes through them in one order."""
    begun = [at for at, (_, _, done, claimed) in enumerate(found) if done or claimed]
    last = begun[-1] if begun else 0
    return tuple(
        StageProgress(
            model=model,
            stage=stage,
            done=done,
            claimed=claimed,
            state="ahead" if at > last else "ended" if at < last else "under way",
        )
        for at, (model, stage, done, claimed) in enumerate(found)
    )


def _standings(store: Store) -> dict[str, Standing]:
    contents = [store.read(f"{FOLDER}/{name}") for name in store.names(FOLDER)]
    return {one.by: one for one in (Standing(**json.loads(content)) for content in contents if content is not None)}


def _workers(store: Store, standings: Mapping[str, Standing]) -> tuple[WorkerProgress, ...]:
    """Whoever has claimed something or said something of itself, the last sign of life first."""
    claims: dict[str, list[str]] = {}
    signs: dict[str, list[float]] = {by: [] for by in standings}
    leases: dict[str, float] = {}
    for name in store.names(CLAIMS):
        if (content := store.read(f"{CLAIMS}/{name}")) is not None:  # or it was given back this moment
            told = json.loads(content)
            claims.setdefault(told["by"], []).append(name.rpartition(".")[0])
            leases[told["by"]] = float(told["lease"])
            signs.setdefault(told["by"], []).extend(_changed(store, f"{CLAIMS}/{name}"))
    for by in standings:
        signs[by] += _changed(store, f"{FOLDER}/{by}.json")
    now, found = time.time(), []
    for by, times in signs.items():
        age = max(0.0, now - max(times)) if times else None
        standing = standings.get(by)
        alive = age is None or age < leases.get(by, LEASE)
        found.append(
            WorkerProgress(
                by=by,
                host=None if standing is None else standing.host,
                at=None if standing is None or not standing.stage else _title(standing),
                claims=tuple(sorted(claims.get(by, ()))),
                age=age,
                alive=alive,
                rate=None if standing is None else standing.rate,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.age is None, one.age or 0.0, one.by)))


def _changed(store: Store, key: str) -> list[float]:
    changed = store.changed(key)
    return [] if changed is None else [changed]


def _furthest(live: Sequence[Standing], stages: Sequence[StageProgress]) -> Standing | None:
    """The process that is told most of: in the last model and stage that any has come to, with the fewest samples left."""
    models = [one.model for one in stages]
    known = [one for one in live if one.stage and one.model in models]
    if not known:
        return None
    last = max(models.index(one.model) for one in known)
    known = [one for one in known if models.index(one.model) == last]
    robust = [one for one in known if one.robust is not None]
    return min(robust or known, key=lambda one: (one.robust or 0, one.left))


def _title(one: Standing) -> str:
    return f"{one.model} {one.stage}"


# By one process, or ended


def _alone(run: Run, name: str) -> RunProgress:
    manifest = run.manifest
    cells = _cells([[one["name"], one["cells"]] for key in ("models", "stages") for one in manifest[key]])
    stages = _in_order(
        [(model, stage, 1 if run.has_part(cell) else len(run.shard_files(cell)), 0) for model, stage, cell in cells]
    )
    now = next((one for one in stages if one.state == "under way"), None)
    return RunProgress(
        run=name,
        state="by one process",
        samples=int(manifest["data"]["n"]),
        stages=stages,
        at=None if now is None else f"{now.model} {now.stage}",
    )


def _parts_alone(store: Store, name: str) -> RunProgress:
    """What one process makes of independent parts (`runners.parts`)."""
    files = store.names(str(Path(ALONE).parent))
    done = sum(one.endswith(".json") and not one.startswith(("plan.", "once-")) for one in files)
    return RunProgress(
        run=name,
        state="by one process",
        stages=(StageProgress(model=None, stage="part", done=done, claimed=0, state="under way"),),
    )


def _ended(name: str, manifest: Mapping[str, Any]) -> RunProgress:
    cells = _cells([[one["name"], one["cells"]] for key in ("models", "stages") for one in manifest.get(key, [])])
    stages = [StageProgress(model=model, stage=stage, done=1, claimed=0, state="ended") for model, stage, _ in cells]
    return RunProgress(
        run=name,
        state="ended",
        samples=manifest.get("data", {}).get("n"),
        stages=tuple(stages),
        seconds_left=0.0,
    )
