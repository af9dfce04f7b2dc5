"""Checks the manifest and the files of a run against its request."""

import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from brinell.core.errors import RequestError
from brinell.core.record import CLEAN
from brinell.engine import toml
from brinell.engine.audit import plan_facts
from brinell.engine.plan import Plan
from brinell.store.folder import MANIFEST, REQUEST
from brinell.store.run import LAYOUT, Run
from brinell.store.standing import RUN_KEYS
from brinell.studies.verification.result import Notes

GROWING_KEYS = frozenset({"warnings"})
"""Keys of the manifest that grow while a run is active."""
MACHINE_KEYS = frozenset({"served"})
"""Nested keys that follow from the machine: what a server says of itself. They may differ, but not be added."""
OF_MODELS = ("answers", "checks", "probes", "remarks", "extras", "failed", "repairs", "traffic", "seconds")
"""Keys of the manifest with an entry for each model."""
OF_SURROGATES = frozenset({"answers", "probes"})
"""Those with an entry for each surrogate, too."""
OF_STAGES = ("remarks", "extras", "failed")
"""Those whose entries have an entry for each stage."""
PHASES = frozenset({CLEAN, "model", "memory", "checks"})
"""The subjects of remarks and failures besides stages."""


def check_manifest(run: Run, plan: Plan, notes: Notes) -> None:
    """Check that the run is finished, follows its request, and was made with this data and these models."""
    manifest = run.manifest
    if manifest["state"] != "finished":
        notes.note(MANIFEST, "the run is not finished: finish it with --resume first")
    check_request(run, notes)
    if manifest["data"]["digest"] != plan.data_digest:
        notes.note("data", f"{plan.dataset.name} is not the data of the run: its digest differs")
    digests = {model["name"]: model["digest"] for model in manifest["models"]}
    for source in plan.models:
        if digests.get(source.name) != source.facts["digest"]:
            notes.note(source.name, "the model is not the one of the run: its digest differs")
    facts = json.loads(json.dumps(plan_facts(plan)))
    for path in differences(facts, manifest):
        notes.note(MANIFEST, f"{path} is not the value that the request implies")
    for path in foreign_entries(manifest, [f"surrogate {surrogate.name}" for surrogate in plan.surrogates]):
        notes.note(MANIFEST, f"{path} belongs to nothing in the run, or is there twice")
    if [warning for warning in manifest.get("warnings", []) if warning["model"] is None] != facts["warnings"]:
        notes.note(MANIFEST, "the warnings about the data are not those that come out")


def foreign_entries(manifest: Mapping[str, Any], surrogates: Collection[str] = ()) -> list[str]:
    """Paths of entries about nothing in the run, which nothing compares: other keys, models and stages, and codes twice.

    Args:
        manifest: the manifest of a run.
        surrogates: the names of its surrogates in it.
    """
    names, stages = ({str(entry["name"]) for entry in manifest[key]} for key in ("models", "stages"))
    paths = sorted(manifest.keys() - RUN_KEYS.keys())
    for key in OF_MODELS:
        entries = manifest.get(key) or {}
        paths += [
            f"{key}.{name}" for name in sorted(entries.keys() - names - (set(surrogates) if key in OF_SURROGATES else set()))
        ]
        if key in OF_STAGES:
            paths += [f"{key}.{name}.{stage}" for name in entries for stage in sorted(entries[name].keys() - stages - PHASES)]
    warnings = Counter((warning["model"], warning["code"]) for warning in manifest.get("warnings", []))
    paths += [f"warnings of {model}" for model, _ in warnings if model is not None and model not in names]
    checks = Counter((name, check["code"]) for name, findings in manifest.get("checks", {}).items() for check in findings)
    repeated = [("warnings", entry) for entry, count in warnings.items() if count > 1 and entry[0] is not None]
    repeated += [("checks", entry) for entry, count in checks.items() if count > 1]
    return paths + [f"{key}.{name}.{code}" for key, (name, code) in repeated]


def differences(expected: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """Paths such as `stages.0.settings` at which a manifest differs from the one that its request implies.

    Digests of data and models are compared with separate messages.
    """
    paths = []
    for key in sorted(expected.keys() - GROWING_KEYS):
        paths += _differences(key, expected[key], recorded.get(key))
    return paths


def _differences(path: str, expected: Any, recorded: Any) -> list[str]:
    """Paths below `path` at which two JSON values differ; a key that only one of them has is a difference."""
    key = path.rpartition(".")[2]
    if key in MACHINE_KEYS or (key == "digest" and path.startswith(("data.", "models."))):
        return []
    if isinstance(expected, dict) and isinstance(recorded, dict):
        foreign = [f"{path}.{name}" for name in sorted(expected.keys() ^ recorded.keys())]
        return foreign + [
            difference
            for name in sorted(expected.keys() & recorded.keys())
            for difference in _differences(f"{path}.{name}", expected[name], recorded[name])
        ]
    if (
        isinstance(expected, list)
        and isinstance(recorded, list)
        and len(expected) == len(recorded)
        and key in ("stages", "models")
    ):
        return [
            difference
            for index, part in enumerate(expected)
            for difference in _differences(f"{path}.{index}", part, recorded[index])
        ]
    return [] if expected == recorded else [path]


def check_files(run: Run, notes: Notes) -> None:
    """Note files that are missing, changed or foreign, and rows that break a rule which every reader checks."""
    faults = LAYOUT.find_faults(run.path, run.manifest)
    for name, problem in faults:
        notes.note(name, f"the file {problem}")
    if run.manifest["state"] == "finished" and not faults:
        for location, violation in run.violations():
            notes.note(location, violation.description, violation.samples if len(violation.samples) else None)


def check_request(run: Run, notes: Notes) -> None:
    """Note settings in the file of the request that are not those in the manifest."""
    try:
        request = toml.load(run.path / REQUEST)
    except RequestError as error:
        notes.note(REQUEST, str(error))
        return
    recorded = {key: value for key, value in run.manifest["request"].items() if value is not None}
    for key in sorted(key for key in request.keys() | recorded.keys() if request.get(key) != recorded.get(key)):
        notes.note(REQUEST, f"{key} is {request.get(key)!r}, but the manifest records {recorded.get(key)!r}")
