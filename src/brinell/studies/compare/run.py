"""Audits the models of a comparison if there are any, opens all runs, and writes the folder."""

import os
from collections.abc import Mapping
from pathlib import Path

from brinell.analysis.compare import Side
from brinell.core.bounded import digest
from brinell.core.errors import RequestError, option
from brinell.core.user_files import user_path
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import Plan
from brinell.engine.request import Request
from brinell.engine.toml import parse_request
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, REQUEST
from brinell.store.run import Run
from brinell.studies.audit.result import summarise as summarise_audit
from brinell.studies.audit.run import note_models
from brinell.studies.audits import plan_audit, run_audit
from brinell.studies.compare import CompareRequest
from brinell.studies.compare.result import LAYOUT, Comparison, summarise
from brinell.studies.job import settings_text
from brinell.studies.kit import Call

AUDIT = "FOLDER/audit"
"""The audit of the models that have no run, in the folder of the comparison."""
SETTINGS = ("data", "norm", "eps", "attack", "samples", "seed", "device")
"""Settings of this audit."""


def carry_out(call: Call) -> Comparison:
    """Audit the models of a call that have no run, compare all, and write the folder.

    Raises:
        RequestError: the request cannot be carried out, or the runs cannot be compared.
        StoppedError: the folder cannot be written.
    """
    request: CompareRequest = call.request
    _budget(request)  # a wrong one is refused before anything is audited
    runs = _runs(request)
    plan = _plan(call)
    runs_by_name = {run: Run.open(user_path(run)) for run in runs if run != AUDIT}
    manifests = [run.manifest for run in runs_by_name.values()]
    names = [
        *(plan.request.model if plan else ()),
        *(model["name"] for manifest in manifests for model in manifest["models"]),
    ]
    if len(names) < 2:
        raise RequestError(
            f"a comparison needs two models or more, and {request.run[0]} has "
            f"one, {names[0]}: name another"
        )

    folder = call.folder(request.data if plan else str(manifests[0]["data"]["spec"]))
    LAYOUT.begin(folder, resume=call.resume)
    # The stored request of a resumed comparison stays, so that another request is rejected.
    if not (folder / REQUEST).exists():
        write_text(folder / REQUEST, settings_text(LAYOUT, request, call.command, folder))
    if plan is not None:
        place = _path(AUDIT, folder)
        note_models(plan, call.progress)
        runs_by_name[AUDIT] = run_audit(
            plan, place, call.progress, command=call.command, resume=call.resume, pool=call.pool()
        )
        summarise_audit(runs_by_name[AUDIT]).write()

    result = _compare(request, folder, runs_by_name)
    facts = {
        "request": request.model_dump(mode="json"),
        "command": call.command,
        "runs": _digests(request, folder),
    }
    LAYOUT.save(folder, facts)
    result.write()
    return result


def open_result(folder: Path) -> Comparison:
    """The result of a folder, from the records of its runs."""
    manifest = LAYOUT.open(folder)
    request = parse_request(CompareRequest, dict(manifest["request"]))
    for run, value in _digests(request, folder).items():
        if manifest["runs"].get(run) != value:
            raise RequestError(f"{run} has changed since {folder} was made: compare the runs again")
    return _compare(request, folder, {})


def _runs(request: CompareRequest) -> list[str]:
    """The folders of the runs; `AUDIT` in the place of the first model that has none."""
    runs = [name if os.path.isdir(user_path(name)) else AUDIT for name in request.run]
    paths = [user_path(name).resolve() for name in runs if name != AUDIT]
    if len(set(paths)) < len(paths):
        raise RequestError(f"a run is given twice among {', '.join(request.run)}: remove one")
    return list(dict.fromkeys(runs))


def _plan(call: Call) -> Plan | None:
    """The audit of the models that have no run."""
    request: CompareRequest = call.request
    settings = {name: getattr(request, name) for name in SETTINGS}
    if specs := tuple(name for name in request.run if not os.path.isdir(user_path(name))):
        return plan_audit(
            parse_request(Request, {"model": specs, **settings}), dataset=call.dataset()
        )

    if changed := [
        name
        for name, value in settings.items()
        if value != CompareRequest.model_fields[name].default
    ]:
        raise RequestError(
            f"{option(changed[0])} is for models that are audited first, and only "
            "runs are compared: leave it out"
        )
    return None


def _budget(request: CompareRequest) -> float | None:
    """The budget at which models are compared; None for the default."""
    if request.at is None:
        return None
    values = parse_eps(request.at).values
    if len(values) != 1 or not values[0]:
        raise RequestError(
            f"{option('at')} is {request.at}, and models are compared at one "
            "budget above 0: write it as 8/255"
        )
    return float(values[0])


def _path(name: str, folder: Path) -> Path:
    """The folder of a run by its name: as it was given, or within that of the comparison."""
    return folder / "audit" if name == AUDIT else user_path(name)


def _digests(request: CompareRequest, folder: Path) -> dict[str, str]:
    """The digest of the manifest of each run."""
    return {name: digest(_path(name, folder) / MANIFEST) for name in _runs(request)}


def _compare(request: CompareRequest, folder: Path, runs_by_name: Mapping[str, Run]) -> Comparison:
    """Compare all models of all runs; those of `runs_by_name` are open already."""
    sides: list[Side] = []
    for name in _runs(request):
        run = runs_by_name.get(name) or Run.open(_path(name, folder))
        sides += [
            Side(run=name, manifest=run.manifest, records=run.rows, model=model["name"])
            for model in run.manifest["models"]
        ]
    return summarise(sides, str(folder), eps=_budget(request))
