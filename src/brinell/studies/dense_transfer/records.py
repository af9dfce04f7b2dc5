"""The folder of `brinell dense-transfer`.

run.toml        the request
manifest.json   request, models, data, sources
rows.parquet    a row for each picture, model and source, and for each picture and model without an attack
inputs/*.safetensors  the strongest input of each picture on each source, as `brinell dense` stores it
report.html     the page; made from the files above
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from brinell.core.record import Array, column
from brinell.manifest import Amount, Content, FolderManifest, Listing
from brinell.store.folder import Layout
from brinell.store.table import Table


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Rows as columns, each a (rows,) array."""

    source: Array = column("string", "model on which the input was found; empty for the untouched picture")
    aim: Array = column("string", "aim of the attack: pixels, another criterion, or a kind of error; empty without one")
    model: Array = column("string", "model that is shown the input")
    sample_id: Array = column("int64", "position of the picture in the data")
    distance: Array = column("float64", "size of the change, in the norm of the study")
    valid: Array = column("int64", "pixels or objects that have a true class", zero=True)
    wrong: Array = column("int64", "pixels or objects among them that are wrong", zero=True)
    answer: Array = column(
        "string",
        "the answer of the model, as JSON: for masks [true class, predicted class, pixels] of each pair that occurs, for boxes "
        "the final ones as [x0, y0, x1, y1, class, score], and for the untouched picture the objects",
    )
    forwards: Array = column("int64", "forward evaluations that the input cost, in the row of its source", zero=True)
    backwards: Array = column("int64", "backward evaluations, likewise", zero=True)
    seconds: Array = column("float64", "wall time, likewise", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


class TransferSettings(Content):
    """Settings that the figures depend on."""

    norm: str
    """The distance."""
    least_score: Annotated[float, Field(ge=0, lt=1)]
    """Score above which boxes are shown."""


class SourceFacts(Content):
    """A model that was attacked."""

    name: str
    """Its name."""
    attacks: Listing[str]
    """The attacks, in the order in which they ran."""


class DenseTransferManifest(FolderManifest):
    """The manifest of a transfer between models with dense outputs."""

    request: TransferSettings  # type: ignore[assignment]  # those that figures need
    """Settings of the request."""
    task: Literal["segmentation", "detection"]
    """Kind of the answers of the models."""
    eps: Amount
    """The budget."""
    eps_text: str
    """The budget as it was written."""
    sources: Listing[SourceFacts]
    """The models that were attacked."""


TABLE = Table(Layout(verb="dense-transfer", noun="dense transfer", version=1, manifest=DenseTransferManifest), Answers)


def inputs_path(source: int, group: int) -> str:
    """Path of the inputs of a group of pictures that were found on a source, relative to the folder."""
    return f"inputs/{source:03d}-{group:04d}.safetensors"
