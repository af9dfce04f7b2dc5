"""What can be said of a run from its folder alone: no data are opened, no model is asked, nothing that it names is imported.

A folder that passes agrees with itself. Whether its labels are those of the data, its classes those of the model and its
successes successes is for `run.verify_run`.
"""

from collections.abc import Sequence

import numpy as np

from brinell.core.contracts import Domain
from brinell.core.errors import RequestError, Spelling, spell
from brinell.core.record import CLEAN, Array, Outcome, Records, columns_of
from brinell.engine import toml
from brinell.store.folder import REQUEST, fitting
from brinell.store.run import Run
from brinell.studies.verification import against_request, pages
from brinell.studies.verification.result import Notes, VerifyResult
from brinell.studies.verification.rows import said


def verify_unrun(run: Run, refused: str, signed: Sequence[str] = ()) -> VerifyResult:
    """Hold a run's folder against itself. It has not passed, whatever comes out.

    Args:
        run: the run.
        refused: why nothing that it names was used; its options are spelled as at a terminal.
        signed: whose signature it carries, in a sentence.
    """
    notes = Notes()
    with fitting(run.path):
        rows = alone(run, notes)
    proved = [
        *signed,
        "no file is missing, changed or foreign by the manifest's own word",
        f"{rows:,} rows agree with the request's file, with each other and with which inputs are stored",
        "the tables and the page are what the records make, unless another version wrote them",
    ]
    return VerifyResult(
        run=str(run.path),
        passed=False,
        successes=0,
        predictions=0,
        boundary=0,
        rows=rows,
        rerun=0,
        proved=[] if notes.problems else proved,
        trusted=["every figure: neither the model nor the data was used"],
        problems=notes.problems,
        refused=spell(refused, Spelling.TERMINAL),
    )


def alone(run: Run, notes: Notes) -> int:
    """Hold the folder against itself: request and manifest, files, rows, stored inputs, tables and page.

    Returns:
        The rows that were looked at.
    """
    try:
        asked = toml.load(run.path / REQUEST)
    except RequestError as error:
        notes.note(REQUEST, str(error))
    else:
        then = {key: value for key, value in run.manifest["request"].items() if value is not None}
        for key in sorted(key for key in asked.keys() | then.keys() if asked.get(key) != then.get(key)):
            notes.note(REQUEST, f"{key} is {asked.get(key)!r}, and the manifest says {then.get(key)!r}")
    against_request.files(run, notes)
    rows = sum(_model(run, model, notes) for model in run.manifest["models"])
    if not notes.problems:
        pages.derived(run, notes)
    return rows


def _model(run: Run, model: dict[str, object], notes: Notes) -> int:
    name = str(model["name"])
    cells = model.get("cells")
    clean = _part(run, cells.get(CLEAN) if isinstance(cells, dict) else None, f"{name} {CLEAN}", notes)
    if clean is None:
        return 0
    right = clean.clean_pred == clean.label
    expected = np.where(right, str(Outcome.CORRECT), str(Outcome.MISCLASSIFIED))
    wrong = (clean.outcome != Outcome.FAILED) & (clean.outcome != expected)
    notes.note(f"{name} {CLEAN}", "the row's outcome is not what its class and label make", clean.sample_id[wrong])
    rows = len(clean)
    for stage in run.manifest["stages"]:
        where = f"{name} {stage['name']}"
        records = _part(run, stage["cells"].get(name), where, notes)
        if records is not None:
            rows += len(records)
            _stage(run, name, stage, clean, records, notes)
    return rows


def _part(run: Run, cell: object, where: str, notes: Notes) -> Records | None:
    if not isinstance(cell, str) or not run.has_part(cell):
        notes.note(where, "its records are missing")
        return None
    try:
        return run.part(cell)
    except RequestError as error:
        notes.note(where, str(error))
        return None


def _stage(run: Run, name: str, stage: dict[str, object], clean: Records, records: Records, notes: Notes) -> None:
    where, levels = f"{name} {stage['name']}", [eps for eps in run.manifest["eps"] if eps > 0]
    wanted = sorted((sample, eps) for sample in clean.sample_id.tolist() for eps in levels)
    if sorted(zip(records.sample_id.tolist(), records.eps.tolist(), strict=True)) != wanted:
        notes.note(where, f"{len(records)} rows, not one for each of {len(clean)} samples x {len(levels)} budgets")
        return

    def note(what: str, chosen: Array) -> None:
        notes.note(where, what, np.unique(records.sample_id[chosen]))

    at = np.searchsorted(clean.sample_id, records.sample_id)
    other = (records.model != name) | (records.attack != stage["name"]) | (records.distance != run.manifest["distance"])
    note("the row belongs to another model, attack or distance", other)
    for column in ("label", "clean_pred", "clean_confidence"):
        note(f"the row has another {column} than the first check", getattr(records, column) != getattr(clean, column)[at])
    columns = {column: getattr(records, column) for column in columns_of(records)}
    targeted = run.manifest.get("criterion", {}).get("name") == "targeted"
    eot = stage.get("eot", 1)
    said(note, run.manifest["distance"], eot if isinstance(eot, int) else 1, targeted, records.outcome.astype(str), columns)
    broken = clean.outcome[at] == Outcome.MISCLASSIFIED
    note("the row says otherwise than the first check", broken != (records.outcome == Outcome.MISCLASSIFIED))
    _arrays(run, name, str(stage["name"]), records, notes)


def _arrays(run: Run, name: str, stage: str, records: Records, notes: Notes) -> None:
    """An input is stored exactly where a row says that one was found, of the shape and within the bounds of the data."""
    where, fooled = f"{name} {stage}", np.unique(records.sample_id[records.outcome == Outcome.FOOLED])
    try:
        domain = Domain.from_json(run.manifest["data"]["domain"])
        found = run.adversarial(name, stage, fooled.tolist())
        stored = run.stored(name, stage)
    except RequestError as error:
        notes.note(where, str(error))
        return
    mine = set(fooled.tolist())
    notes.note(where, "the adversarial input is not stored", sorted(mine - stored))
    notes.note(where, "an adversarial input is stored, and no row says that one was found", sorted(stored - mine))
    shaped = {sample: array for sample, array in found.items() if array.shape == tuple(domain.shape)}
    notes.note(where, f"the stored input is not of shape {tuple(domain.shape)}", sorted(found.keys() - shaped.keys()))
    low, high = np.min(domain.low) - domain.slack, np.max(domain.high) + domain.slack
    outside = [sample for sample, array in shaped.items() if not ((array >= low) & (array <= high)).all()]
    notes.note(where, "the stored input leaves the bounds of the data", sorted(outside))
