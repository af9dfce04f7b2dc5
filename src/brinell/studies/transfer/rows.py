"""The rows of a transfer and the facts that its request leaves open.

examples/SOURCE-*.safetensors   x: (n, *shape) the examples of a source, and what they cost; of the
                                first source that is made here also clean: (n, *shape)
"""

from dataclasses import dataclass

from brinell.core.record import Array, Columns, column
from brinell.manifest import Amount, Content, Count, Facts, Listing, Number

SLICE = 512
"""Samples of a file of examples, which limits the memory of the ledger that makes them."""


def example_file(number: int, start: int) -> str:
    """The file of the examples of a source, by its number, from a sample on."""
    return f"examples/{number:03d}-{start:08d}.safetensors"


class SourceFacts(Content):
    """A source of adversarial examples."""

    name: str
    """The name of the source in the rows."""
    members: Listing[str]
    """The names of the models that the examples were made on."""
    white_box: Listing[str]
    """The names of the evaluated models that the examples were made on."""
    samples: Count
    """The number of samples, those without an example included."""
    folder: str | None = None
    """The folder of a benchmark set; null for examples that are made in this transfer."""
    level: Number | None = None


class TransferFacts(Facts):
    """Facts that the request leaves open."""

    eps: Amount
    eps_text: str
    """The budget as it is written."""
    attack: str | None
    """The attack that made examples; null if none were made."""
    sources: Listing[SourceFacts]
    hardened: Listing[str] = []
    """The models whose weights are of a folder of brinell harden."""


@dataclass(frozen=True, kw_only=True)
class ExampleRows(Columns):
    """The rows of a transfer as columns, each a (rows,) array."""

    source: Array = column("string", "name of the source")
    model: Array = column("string", "name of the model on which the example is evaluated")
    sample_id: Array = column("int64", "position of the sample in its data")
    label: Array = column("int32", "true class")
    linf: Array = column("float32", "largest change of a value, in the units of the data")
    l2: Array = column("float32", "Euclidean length of the change")
    clean_pred: Array = column("int32", "class that the model predicts for the clean input")
    pred: Array = column("int32", "class that the model predicts for the example")
    forwards: Array = column(
        "int64", "forward evaluations that making the example cost; 0 for a set"
    )
    backwards: Array = column("int64", "backward evaluations")
