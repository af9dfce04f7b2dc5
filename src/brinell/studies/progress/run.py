"""What can be seen of a run from outside while it goes on: how far it is, who works on it, and how long it will take.

Nothing is asked of the processes. Those that meet in a store leave there what is done, what each has claimed, and what each says
of itself a few times a minute (`runners.shared_progress`); a single process leaves parts and shards in its folder.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brinell.core.errors import RequestError, option
from brinell.core.record import CLEAN
from brinell.runners.shard_worker import PLAN
from brinell.runners.shared_progress import FOLDER, ProcessStatus
from brinell.store.claims import LEASE
from brinell.store.folder import LOCAL_PLAN, MANIFEST, SHARDS
from brinell.store.run import Run
from brinell.store.shared import Store, address_of, open_store
from brinell.studies.kit import Call
from brinell.studies.progress.result import RunProgress, StageProgress, WorkerProgress

COMPLETE, CLAIMS = f"{SHARDS}/done", f"{SHARDS}/claims"


def carry_out(call: Call) -> RunProgress:
    """How far the run is that a call names.

    Raises:
        RequestError: no run there.
        StoppedError: the store does not answer.
    """
    return look(call.request.run)


def look(out: Path | str) -> RunProgress:
    """Progress of the run in a folder or at an address.

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
    if store.read(LOCAL_PLAN) is not None:
        return _parts_alone(store, name)
    manifest = store.read(MANIFEST)
    if manifest is None:
        raise RequestError(f"{name} holds no run, or one that has not begun yet: name the {option('out')} of an audit")
    if address_of(out) is not None or json.loads(manifest).get("state") == "finished":
        return _of_finished(name, json.loads(manifest))
    return _by_one_process(Run.open(Path(out), thresholds=True), name)


# In shards


def _in_shards(store: Store, name: str, plan: Mapping[str, Any]) -> RunProgress:
    """Progress of a run that several processes share."""
    standings = _standings(store)
    workers = _workers(store, standings)
    stages = _in_order([(model, stage, *_shards_of(store, cell, workers)) for model, stage, cell in _cells(plan["cells"])])
    live = [standings[worker.by] for worker in workers if worker.alive and worker.by in standings]
    furthest = _furthest(live, stages)
    rate = sum(status.rate for status in live if status.rate is not None) or None
    passes_left = [status.passes_left for status in live if status.passes_left is not None]
    return RunProgress(
        run=name,
        state="in shards",
        shards=int(plan["of"]),
        samples=plan.get("samples"),
        stages=stages,
        workers=workers,
        position=_title(furthest)
        if furthest is not None
        else next((f"{entry.model} {entry.stage}" for entry in stages if entry.state == "under way"), None),
        open_samples=None if furthest is None else furthest.open_samples,
        robust=None if furthest is None else furthest.robust,
        rate=rate,
        seconds_left=max(passes_left) / rate if passes_left and rate else None,
    )


def _cells(cells: Any) -> list[tuple[str | None, str, str]]:
    """Model, stage and where what is done of it is kept, model after model; of a study one kind of parts."""
    if isinstance(cells, str):
        return [(None, "part", "part")]
    models = [name for name, cells_of_name in cells if set(cells_of_name) == {CLEAN}]
    stages = [(name, cells_of_name) for name, cells_of_name in cells if set(cells_of_name) != {CLEAN}]
    clean = dict(cells[: len(models)])
    return [
        (model, stage, cell)
        for model in models
        for stage, cell in [
            (CLEAN, clean[model][CLEAN]),
            *((name, cells_of_name[model]) for name, cells_of_name in stages if model in cells_of_name),
        ]
    ]


def _shards_of(store: Store, cell: str, workers: Sequence[WorkerProgress]) -> tuple[int, int]:
    claimed = sum(task.startswith(f"{cell}-") for worker in workers for task in worker.claims)
    return len(store.names(f"{COMPLETE}/{cell}")), claimed


def _in_order(shards: Sequence[tuple[str | None, str, int, int]]) -> tuple[StageProgress, ...]:
    """The stages, each with whether it has ended: every process goes through them in one order."""
    started_stages = [index for index, (_, _, complete, claimed) in enumerate(shards) if complete or claimed]
    last = started_stages[-1] if started_stages else 0
    return tuple(
        StageProgress(
            model=model,
            stage=stage,
            complete=complete,
            claimed=claimed,
            state="ahead" if index > last else "ended" if index < last else "under way",
        )
        for index, (model, stage, complete, claimed) in enumerate(shards)
    )


def _standings(store: Store) -> dict[str, ProcessStatus]:
    """Reported status of each process."""
    contents = [store.read(f"{FOLDER}/{name}") for name in store.names(FOLDER)]
    return {status.by: status for status in (ProcessStatus(**json.loads(content)) for content in contents if content is not None)}


def _workers(store: Store, standings: Mapping[str, ProcessStatus]) -> tuple[WorkerProgress, ...]:
    """Processes that hold a claim or reported their status, the last sign of life first."""
    claims: dict[str, list[str]] = {}
    signs: dict[str, list[float]] = {by: [] for by in standings}
    leases: dict[str, float] = {}
    for name in store.names(CLAIMS):
        if (content := store.read(f"{CLAIMS}/{name}")) is not None:  # or it was given back this moment
            claim = json.loads(content)
            claims.setdefault(claim["by"], []).append(name.rpartition(".")[0])
            leases[claim["by"]] = float(claim["lease"])
            signs.setdefault(claim["by"], []).extend(_changed(store, f"{CLAIMS}/{name}"))
    for by in standings:
        signs[by] += _changed(store, f"{FOLDER}/{by}.json")
    current_time, workers = time.time(), []
    for by, times in signs.items():
        age = max(0.0, current_time - max(times)) if times else None
        standing = standings.get(by)
        alive = age is None or age < leases.get(by, LEASE)
        workers.append(
            WorkerProgress(
                by=by,
                host=None if standing is None else standing.host,
                position=None if standing is None or not standing.stage else _title(standing),
                claims=tuple(sorted(claims.get(by, ()))),
                age=age,
                alive=alive,
                rate=None if standing is None else standing.rate,
            )
        )
    return tuple(sorted(workers, key=lambda worker: (worker.age is None, worker.age or 0.0, worker.by)))


def _changed(store: Store, key: str) -> list[float]:
    changed = store.changed(key)
    return [] if changed is None else [changed]


def _furthest(live: Sequence[ProcessStatus], stages: Sequence[StageProgress]) -> ProcessStatus | None:
    """The most advanced process: in the last model and stage that any process has reached, with the fewest open samples."""
    models = [stage.model for stage in stages]
    reporting = [status for status in live if status.stage and status.model in models]
    if not reporting:
        return None
    last = max(models.index(status.model) for status in reporting)
    reporting = [status for status in reporting if models.index(status.model) == last]
    robust = [status for status in reporting if status.robust is not None]
    return min(robust or reporting, key=lambda status: (status.robust or 0, status.open_samples))


def _title(status: ProcessStatus) -> str:
    """Model and stage."""
    return f"{status.model} {status.stage}"


# By one process, or ended


def _by_one_process(run: Run, name: str) -> RunProgress:
    manifest = run.manifest
    cells = _cells([[entry["name"], entry["cells"]] for key in ("models", "stages") for entry in manifest[key]])
    stages = _in_order(
        [(model, stage, 1 if run.has_part(cell) else len(run.shard_files(cell)), 0) for model, stage, cell in cells]
    )
    current = next((entry for entry in stages if entry.state == "under way"), None)
    return RunProgress(
        run=name,
        state="by one process",
        samples=int(manifest["data"]["n"]),
        stages=stages,
        position=None if current is None else f"{current.model} {current.stage}",
    )


def _parts_alone(store: Store, name: str) -> RunProgress:
    """Progress of a process that computes independent parts alone (`runners.parts`)."""
    files = store.names(str(Path(LOCAL_PLAN).parent))
    complete = sum(file.endswith(".json") and not file.startswith(("plan.", "once-")) for file in files)
    return RunProgress(
        run=name,
        state="by one process",
        stages=(StageProgress(model=None, stage="part", complete=complete, claimed=0, state="under way"),),
    )


def _of_finished(name: str, manifest: Mapping[str, Any]) -> RunProgress:
    """Progress of a finished run."""
    cells = _cells([[entry["name"], entry.get("cells", {})] for key in ("models", "stages") for entry in manifest.get(key, [])])
    stages = [StageProgress(model=model, stage=stage, complete=1, claimed=0, state="ended") for model, stage, _ in cells]
    return RunProgress(
        run=name,
        state="ended",
        samples=manifest.get("data", {}).get("n"),
        stages=tuple(stages),
        seconds_left=0.0,
    )
