"""The folder of `brinell certify`.

manifest.json          request, model, data
rows.parquet           a row for each sample and budget
counterexamples-*.safetensors   the nearest adversarial input of each broken sample, by its id
report.html            the page; made from the rows
"""

from dataclasses import dataclass

from brinell.core.record import Array, column
from brinell.manifest import FolderManifest
from brinell.store.folder import Layout
from brinell.store.table import Table

WRONG, BROKEN, OPEN, CERTIFIED, FAILED = "wrong", "broken", "open", "certified", "failed"
"""Outcomes: wrong without a change; a counterexample is stored; neither proof nor counterexample; proven; not judged."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    eps: Array = column("float64", "the budget, in the units of the data")
    outcome: Array = column("string", "wrong, broken, open, certified or failed")
    method: Array = column("string", "the method of the proof; empty without one")
    proven_at: Array = column("float64", "the budget at which the proof was made, at least eps; NaN without a proof")
    margin: Array = column("float64", "lower bound of the margin at proven_at; NaN without a proof")

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(Layout(verb="certify", noun="certificate", version=1, manifest=FolderManifest), Outcomes)
