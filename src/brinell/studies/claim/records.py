"""The folder of a claim.

manifest.json   what was tested, and what the verification of the run found
rows.parquet    a row for each sample and budget; every figure is counted from them
claim.json, card.md, badge.svg, report.html   made from these two
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, Count, DataFacts, Listing, Manifest, ModelFacts
from brinell.store.folder import Layout
from brinell.store.table import Table

PROVEN, OPEN, BROKEN, WRONG, FAILED = "proven", "open", "broken", "wrong", "failed"
"""Outcomes: proven robust; no attack succeeded; an attack succeeded; wrong without a change; not judged."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    eps: Array = column("float64", "the budget, in the units of the data; 0 without a change")
    outcome: Array = column("string", "proven, open, broken, wrong or failed")

    def __len__(self) -> int:
        return len(self.sample_id)


class SourceFacts(Content):
    """The folder that a claim is made from."""

    path: str
    """The folder, as it was named."""
    manifest: str
    """The hash of its manifest, which lists the hashes of all its files."""


class CheckFacts(Content):
    """A check of whether attacks fail for another reason than robustness."""

    code: str
    """Short name."""
    passed: bool | None
    """Null where the check could not be made."""
    text: str
    """Observation, or the reason why it was not made."""


class VerificationFacts(Content):
    """What the verification of the run found."""

    status: str
    """proved or consistent."""
    level: str
    """rows or replay."""
    rows: Count
    """Rows that were compared."""
    replayed: Count
    """Rows that were computed again from the start."""
    premises: Listing[str]
    """What the verdict presupposes."""
    verified: Listing[str]
    """Sentences about what holds."""
    unverified: Listing[str]
    """Sentences about what was not recomputed."""
    refusal: str = ""
    """Why the model and the data were not used; empty if they were."""


class ClaimManifest(Manifest):
    """The manifest of a claim."""

    brinell: str
    """The version of Brinell."""
    command: str
    """The command line that repeats it."""
    request: dict[str, Any]
    """All settings of the request."""
    source: SourceFacts
    """The run."""
    proofs: SourceFacts | None
    """The folder of the proofs."""
    finished: str | None
    """When the run was finished."""
    data: DataFacts
    """The data."""
    model: ModelFacts
    """The model."""
    distance: str
    """Norm in which budgets are measured."""
    criterion: str
    """Criterion of success of an attack."""
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The budget of the claim."""
    budgets: Listing[Amount]
    """All budgets of the run above 0, ascending."""
    texts: Listing[str]
    """The same as they were written."""
    attacks: str
    """The attacks as they were asked for."""
    stages: Listing[str]
    """The attacks that ran, in order, with their exact settings."""
    titles: Listing[str]
    """Their names for people."""
    weak: str | None
    """The attacks, where they are weaker than `fast`."""
    caveat: str | None
    """Checks that failed or were not made; null if all that count passed."""
    checks: Listing[CheckFacts]
    """Every check."""
    verdict: str
    """The verdict of the run on its largest budget."""
    per_sample: bool
    """True if the budgets are multiples of a recommended eps of each sample."""
    repeat: str
    """The command line that repeats the run."""
    verification: VerificationFacts
    """What the verification of the run found."""


JSON, CARD, BADGE = "claim.json", "card.md", "badge.svg"
"""Files that follow from the rows and the manifest."""
LAYOUT = Layout(
    verb="claim",
    noun="claim",
    version=1,
    manifest=ClaimManifest,
    resumable=False,
    derived=(JSON, CARD, BADGE),
)
TABLE = Table(LAYOUT, Outcomes)
