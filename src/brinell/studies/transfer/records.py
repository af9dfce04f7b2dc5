"""A transfer folder: the predictions of every model on every source's examples (design/0023-across-models.md).

run.toml                 the request
manifest.json            the request, the sources and models, costs
rows.parquet             one row per source, sample and model
examples/*.safetensors   the examples that were made here, a file for each source, by sample
report.html              the page, made from the files above
.parts/                  while the transfer runs: finished parts (`engine.parts`)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from brinell.core.record import Array, column
from brinell.core.settings import MOST_COUNT
from brinell.manifest import Amount, Content, Count, Listing, Manifest, ModelFacts, Number
from brinell.store.files import write_arrays
from brinell.store.folder import Layout
from brinell.store.table import Table


class SourceFacts(Content):
    """A source of adversarial examples."""

    name: str
    """The name of the source in the rows."""
    kind: str
    """The kind of source: made (in this transfer), run or set."""
    members: Listing[str]
    """The names of the models that the examples were made on."""
    white_box: Listing[str]
    """The names of the evaluated models that the examples were made on."""
    level: Number | None = None
    """The level of a benchmark set."""
    n: Annotated[int, Field(ge=0, le=MOST_COUNT)]
    """The number of examples."""
    missing: Count
    """The number of samples without an example."""
    folder: str | None
    """The folder of the run or the set."""
    forwards: Count
    """Forward evaluations that the examples cost."""
    backwards: Count
    """Backward evaluations."""
    seconds: Amount
    """Wall time."""


class DataNames(Content):
    """The data of a transfer."""

    name: str
    """The name of the data."""
    classes: Listing[str]
    """The names of the classes."""


class TransferManifest(Manifest):
    """The manifest of a transfer."""

    cell: str = ""
    """The hash of everything that the rows depend on."""
    data: DataNames
    """The data."""
    criterion: str | None = None
    """The criterion of probability, such as true<0.1; null where misclassification is success."""
    distance: str
    """The distance in which eps is measured."""
    eps: Amount
    """The budget."""
    eps_text: str
    """The budget as the user wrote it."""
    attack: str | None
    """The attack that made examples; null if none were made."""
    title: str | None = None
    """The human name of the attack."""
    sources: Listing[SourceFacts]
    """The sources of adversarial examples."""
    models: Listing[ModelFacts]
    """The models on which the examples are evaluated."""
    passes: Count
    """Forward evaluations on all examples."""
    seconds: Amount
    """Wall time."""


LAYOUT = Layout(verb="transfer", noun="transfer", version=1, manifest=TransferManifest)


def save_examples(path: Path, number: int, arrays: Mapping[str, Array]) -> None:
    """Save the examples that the transfer made on a source.

    Args:
        path: the folder of the transfer.
        number: position of the source in the transfer.
        arrays: examples by sample id.

    Raises:
        StoppedError: the file cannot be written.
    """
    write_arrays(path / "examples" / f"{number:03d}.safetensors", arrays)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The rows of a transfer as columns, each a (rows,) array."""

    source: Array = column("string", "name of the source")
    model: Array = column("string", "name of the model on which the example is evaluated")
    sample_id: Array = column("int64", "position of the sample in its data")
    label: Array = column("int32", "true class")
    distortion: Array = column("string", "distortions placed on it, names joined by +; empty for other attacks")
    linf: Array = column("float32", "largest change of a value, in the units of the data")
    l2: Array = column("float32", "Euclidean length of the change")
    clean_pred: Array = column("int32", "class that the model predicts for the clean input")
    pred: Array = column("int32", "class that the model predicts for the example")
    clean_margin: Array = column(
        "float32", "margin of the clean input to a criterion of probability, positive where it meets it; else null", null=True
    )
    margin: Array = column("float32", "the same of the example", null=True)

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(LAYOUT, Answers)
