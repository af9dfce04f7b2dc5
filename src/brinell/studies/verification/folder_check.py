"""Checks a run from its folder alone: it opens no data, queries no model and imports nothing that the run names.

A folder that passes is consistent in itself. Only `run.verify_run` checks the labels against the data, and the rows against the
model.
"""

from collections.abc import Sequence

import numpy as np

from brinell.core.contracts import Domain
from brinell.core.errors import RequestError
from brinell.core.record import CLEAN, Records, has_broken
from brinell.store.folder import fitting
from brinell.store.row_rules import make_cells
from brinell.store.run import Run
from brinell.store.standing import RUN_COLUMNS, RUN_KEYS, claimed_names
from brinell.studies.verification import manifest_check, pages
from brinell.studies.verification.premises import list_unopened
from brinell.studies.verification.result import Notes, Status, VerifyResult


def verify_folder(run: Run, refusal: str, signatures: Sequence[str] = ()) -> VerifyResult:
    """Check the files of a run for consistency. The result never counts as passed, since no model and no data were used.

    Args:
        run: the run.
        refusal: why its models and data are not used; options are spelled as on the command line.
        signatures: a sentence about each signature that the run carries.
    """
    notes = Notes()
    with fitting(run.path):
        rows = check_folder(run, notes)
    sentences = [
        *signatures,
        "the files are those that the manifest lists, with its hashes",
        f"{rows:,} rows agree with the request file, with each other and with the stored inputs",
        "the tables and the page are those that the records produce, unless another version wrote them",
    ]
    return VerifyResult(
        run=str(run.path),
        status=Status.REFUSED if notes.problems else Status.CONSISTENT,
        passed=False,
        premises=list_unopened(run.manifest),
        rows=rows,
        verified_claims=[] if notes.problems else sentences,
        unverified_claims=["every figure, since neither the model nor the data was used"],
        claimed=claimed_names(RUN_COLUMNS, RUN_KEYS),
        problems=notes.problems,
        refusal=refusal,
    )


def check_folder(run: Run, notes: Notes) -> int:
    """Check that request and manifest, files, rows, stored inputs, tables and page agree.

    Returns:
        The number of rows that were checked.
    """
    manifest_check.check_request(run, notes)
    manifest_check.check_files(run, notes)
    if notes.problems:
        return 0
    rows = 0
    for hashed, cell in make_cells(run.manifest):
        try:
            records = run.part(hashed)
        except RequestError as error:
            notes.note(cell.location, str(error))
            continue
        rows += len(records)
        if cell.stage == CLEAN and len(records) != run.manifest["data"]["n"]:
            notes.note(cell.location, f"{len(records)} rows, but the manifest states {run.manifest['data']['n']} samples")
        _check_arrays(run, cell.model, cell.stage, records, notes)
    if not notes.problems:
        pages.check_pages(run, notes)
    return rows


def _check_arrays(run: Run, name: str, stage: str, records: Records, notes: Notes) -> None:
    """Check that an input is stored for exactly the fooled samples, and that its shape and bounds are those of the data."""
    location, fooled = f"{name} {stage}", records.sample_id[has_broken(records)]
    try:
        domain = Domain.from_json(run.manifest["data"]["domain"])
        arrays = run.adversarial(name, stage, fooled.tolist())
        stored = run.stored(name, stage)
    except RequestError as error:
        notes.note(location, str(error))
        return
    fooled_ids = set(fooled.tolist())
    notes.note(location, "the adversarial input is not stored", sorted(fooled_ids - stored))
    notes.note(location, "an adversarial input is stored, but no row says that the sample is broken", sorted(stored - fooled_ids))
    shaped = {sample: array for sample, array in arrays.items() if array.shape == tuple(domain.shape)}
    notes.note(location, f"the stored input is not of shape {tuple(domain.shape)}", sorted(arrays.keys() - shaped.keys()))
    low, high = np.min(domain.low) - domain.slack, np.max(domain.high) + domain.slack
    outside = [sample for sample, array in shaped.items() if not ((array >= low) & (array <= high)).all()]
    notes.note(location, "the stored input leaves the bounds of the data", sorted(outside))
