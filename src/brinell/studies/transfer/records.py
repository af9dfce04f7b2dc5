"""A transfer folder: what every model makes of every source's examples (design/0023-across-models.md).

run.toml                 the request
manifest.json            the same, the sources and models, costs
rows.parquet             one row per source, sample and model
examples/*.safetensors   the examples that were made here, a file for each source, by sample
report.html              the page; made from the files above
.parts/                  while it is made: what is done (`runners.parts`)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from brinell.core.record import Array, column
from brinell.core.settings import MOST_COUNT
from brinell.manifest import Amount, Content, Count, Draws, Listing, Manifest, ModelFacts, Number
from brinell.store.files import write_arrays
from brinell.store.folder import Layout
from brinell.store.table import Table


class SourceFacts(Content):
    """Where examples come from."""

    name: str
    """The name of the source in the rows."""
    kind: str
    """How the examples were made: made, run or set."""
    members: Listing[str]
    """The names of the models that they were made on."""
    white_box: Listing[str]
    """The names of the models that are shown examples made on themselves."""
    level: Number | None = None
    """The level of a benchmark set."""
    n: Annotated[int, Field(ge=0, le=MOST_COUNT)]
    """How many examples there are."""
    missing: Count
    """Samples without an example."""
    folder: str | None
    """The folder of the run or the set."""
    forwards: Count
    """Forward evaluations that the examples cost."""
    backwards: Count
    """Backward evaluations."""
    seconds: Amount
    """Wall time."""


class TransferSettings(Content):
    """What the figures need of the request."""

    draws: Draws
    """Bootstrap draws behind an interval."""
    seed: Count
    """The seed of every random number."""


class DataNames(Content):
    """What data it was."""

    name: str
    """The name of the data."""
    classes: Listing[str]
    """The names of the classes."""


class TransferManifest(Manifest):
    """What the manifest of a transfer says."""

    request: TransferSettings
    """Every setting that was asked for."""
    cell: str = ""
    """The hash of all that the rows depend on."""
    data: DataNames
    """The data."""
    distance: str
    """The distance in which eps is measured."""
    eps: Amount
    """The budget."""
    eps_text: str
    """The budget as it was written."""
    attack: str | None
    """The attack that made examples; null where none were made."""
    title: str | None = None
    """Its name for people."""
    sources: Listing[SourceFacts]
    """Where examples come from."""
    models: Listing[ModelFacts]
    """The models that are shown them."""
    passes: Count
    """Forward evaluations on all examples."""
    seconds: Amount
    """Wall time."""


LAYOUT = Layout(verb="transfer", what="transfer", version=1, manifest=TransferManifest)


def save_examples(path: Path, number: int, arrays: Mapping[str, Array]) -> None:
    """Keep the examples of a made source, the `number`-th of the transfer, by the numbers of their samples.

    Raises:
        StoppedError: the file cannot be written.
    """
    write_arrays(path / "examples" / f"{number:03d}.safetensors", arrays)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Rows as columns, each a (rows,) array."""

    source: Array = column("string", "name of the source")
    model: Array = column("string", "name of the model that is shown the example")
    sample_id: Array = column("int64", "position of the sample in its data")
    label: Array = column("int32", "true class")
    distortion: Array = column("string", "what was placed on it, names joined by +; empty for other attacks")
    linf: Array = column("float32", "largest change of a value, in the units of the data")
    l2: Array = column("float32", "Euclidean length of the change")
    clean_pred: Array = column("int32", "the model's answer to the clean input")
    pred: Array = column("int32", "its answer to the example")

    def __len__(self) -> int:
        return len(self.sample_id)


TABLE = Table(LAYOUT, Answers)
