"""The folder of `brinell dense`.

run.toml        the request
manifest.json   request, model, data
rows.parquet    a row for each picture, attack and budget, and for each picture without an attack
inputs/*.safetensors  of each picture the strongest input at each budget (`SAMPLE-LEVEL`), and as bytes what the page shows: the
                picture, its mask and the predicted classes before and after (`picture-SAMPLE`, `mask-`, `before-`, `after-`)
report.html     the page; made from the files above
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, FolderManifest, Listing
from brinell.store.folder import Layout
from brinell.store.table import Table

CLEAN, CERTIFIED = "clean", "certified"
"""Values of `attack` in rows of no attack: the untouched picture, and the worst that a proof allows."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position of the picture in the data")
    attack: Array = column("string", "the attack; `clean` for the untouched picture, `certified` for a proof")
    eps: Array = column("float64", "the budget; 0 for the untouched picture")
    outcome: Array = column(
        "string",
        "met: the criterion is met; open: it is not; below: an input within a smaller budget, or of an attack before, met it, so "
        "that this attack did not run",
    )
    margin: Array = column("float64", "largest margin of the criterion within eps: positive where it is met", null=True)
    distance: Array = column("float64", "size of the change of that input, in the norm of the study", null=True)
    forwards: Array = column("int64", "forward evaluations that this row cost", zero=True)
    backwards: Array = column("int64", "backward evaluations that this row cost", zero=True)
    first_success: Array = column("int64", "the forward at which the criterion was first met", null=True)
    valid: Array = column("int64", "pixels or objects that have a true class", zero=True)
    wrong: Array = column("int64", "pixels or objects among them that are wrong, or that a proof does not cover", zero=True)
    answer: Array = column(
        "string",
        "the answer to that input, as JSON: for masks [true class, predicted class, pixels] of each pair that occurs, for "
        "boxes the "
        "final ones as [x0, y0, x1, y1, class, score], and without an attack the objects; empty where there is none",
    )
    seconds: Array = column("float64", "wall time, shared among the pictures that were attacked together", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


class DenseSettings(Content):
    """Settings that the figures depend on."""

    norm: str
    """The distance."""
    criterion: str | None
    """The criterion, as it was written; null for the default."""
    least_score: float
    """Score above which boxes are shown."""
    lipschitz: float | None
    """The Lipschitz constant of the model, by the word of whoever asked; null without one."""


class CheckFacts(Content):
    """A check of the model."""

    code: str
    """Its name."""
    passed: bool
    """True if the check found nothing."""
    text: str
    """A sentence on it."""


class DenseManifest(FolderManifest):
    """The manifest of a study of dense outputs."""

    request: DenseSettings  # type: ignore[assignment]  # those that figures need
    """Settings of the request."""
    task: Literal["segmentation", "detection"]
    """Kind of the answers of the model."""
    levels: Listing[Amount]
    """The budgets above 0, ascending."""
    attacks: Listing[str]
    """The attacks, in the order in which they ran."""
    names: Listing[str]
    """The names of the pictures, by position in the study."""
    group: Annotated[int, Field(ge=1)]
    """Pictures of a group, which share a file of inputs."""
    checks: Listing[CheckFacts] = []
    """Checks of the model."""


TABLE = Table(Layout(verb="dense", noun="study of dense outputs", version=1, manifest=DenseManifest), Answers)


def inputs_path(number: int) -> str:
    """Path of the inputs of a piece, relative to the folder."""
    return f"inputs/{number:04d}.safetensors"
