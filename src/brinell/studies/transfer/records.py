"""A transfer folder: what every model makes of every source's examples (design/0023-across-models.md).

transfer.toml            the request
transfer.json            the same, the sources and models, costs
rows.parquet             one row per source, sample and model
examples/*.safetensors   the examples that were made here, a file for each source, by sample
transfer.html            the page; made from the files above
.parts/                  while it is made: what is done (`runners.parts`)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.core import facts
from brinell.core.form import Count, Number
from brinell.core.record import Array, column
from brinell.core.settings import MOST_COUNT
from brinell.store import one_table
from brinell.store.files import write_arrays
from brinell.store.folder import Layout

_SOURCE = {
    "name": str,
    "kind": str,
    "members": [str],
    "white_box": [str],
    "level?": (Number(), None),
    "n": Count(0, MOST_COUNT),
    "missing": Count(),
    "folder": (str, None),
    "forwards": Count(),
    "backwards": Count(),
    "seconds": Number(0),
}
FORM: dict[str, Any] = {
    "request": {"draws": Count(1, MOST_COUNT), "seed": Count()},
    "cell?": str,
    "data": {"name": str, "classes": [str]},
    "distance": str,
    "eps": Number(0),
    "eps_text": str,
    "attack": (str, None),
    "title?": (str, None),
    "sources": [_SOURCE],
    "models": [facts.MODEL],
    "passes": Count(),
    "seconds": Number(0),
}
"""What transfer.json says."""
LAYOUT = Layout(
    what="transfer",
    verb="brinell transfer",
    version=1,
    manifest="transfer.json",
    form=FORM,
    request="transfer.toml",
)


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


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A transfer folder."""

    path: Path
    manifest: Mapping[str, Any]
    answers: Answers

    @classmethod
    def make(cls, path: Path, about: Mapping[str, Any], answers: Answers) -> "Transfer":
        """Write everything; the manifest last, so that a folder with a manifest is whole.

        Raises:
            StoppedError: it cannot be written.
        """
        manifest = one_table.write(LAYOUT, path, about, answers)
        return cls(path=path, manifest=manifest, answers=answers)

    @classmethod
    def open(cls, path: Path | str) -> "Transfer":
        """The transfer in a folder.

        Raises:
            RequestError: none there, or a damaged file.
        """
        path = Path(path)
        manifest, answers = one_table.read(LAYOUT, path, Answers)
        return cls(path=path, manifest=manifest, answers=answers)
