"""The folder of `brinell certify`.

manifest.json          request, model, data
rows.parquet           a row for each sample and budget
counterexamples-*.safetensors   the nearest adversarial input of each broken sample, by its id
verdicts-*.jsonl       with --solver: a line for each answer of an outside verifier
report.html            the page; made from the rows
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from brinell.bounds._verifiers import Word
from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.core.record import Array, Columns, column
from brinell.manifest import Content, FolderManifest, Listing, Number
from brinell.store.folder import Layout
from brinell.store.table import FolderTable

WRONG, BROKEN, OPEN, CERTIFIED, FAILED = "wrong", "broken", "open", "certified", "failed"
"""Outcomes: wrong without a change; a counterexample is stored; neither proof nor
counterexample; proven; not judged."""


@dataclass(frozen=True, kw_only=True)
class Outcomes(Columns):
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    eps: Array = column("float64", "the budget, in the units of the data")
    outcome: Array = column("string", "wrong, broken, open, certified or failed")
    method: Array = column("string", "method of the proof, or solver:TOOL; empty without")
    proven_at: Array = column("float64", "budget of the proof, at least eps; NaN without")
    margin: Array = column(
        "float64", "lower bound of the margin there, or of the probability of the class under noise"
    )


TOOL = "solver:"
"""Begins the method of a proof of an outside verifier."""
REFUSED: Final = "refused"
"""The verdict of a false proof."""
VERDICTS = "verdicts-{}.jsonl"
"""Name of the file of the verdicts of a piece."""


class Verdict(Content):
    """The part of an outside verifier's answer that counts."""

    sample_id: int
    eps: Number
    tool: str
    verdict: Word | Literal["refused"]
    """A proof, a counterexample that the model confirms, no answer that counts, or a false
    proof."""
    reason: str
    """Why an answer does not count; empty where it does."""
    seconds: Number
    x: Listing[Number]
    """The counterexample, flattened; empty without one."""


def read_verdicts(file: Path) -> list[Verdict]:
    """The verdicts in a file."""
    try:
        return [Verdict.model_validate_json(line) for line in bounded.text(file).splitlines()]
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{file} is damaged ({type(error).__name__}): restore it from a copy of the folder"
        ) from None


def fault_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each tool and each reason why answers of it do not count."""
    faults = Counter((verdict.tool, verdict.reason) for verdict in verdicts if verdict.reason)
    return [
        f"{tool}: {reason} ({count} question{'s' * (count > 1)}); what it leaves open stays open"
        for (tool, reason), count in faults.items()
    ]


PROOFS = "certify"
"""Name of the folder of proofs within that of the audit that they belong to."""
TABLE = FolderTable(
    Layout(verb="certify", noun="certificate", version=1, manifest=FolderManifest), Outcomes
)
