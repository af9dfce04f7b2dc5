"""A corruption folder: what every model makes of every corruption (design/0023-across-models.md).

corrupt.json      the request, the kinds and models
rows.parquet      one row per corruption, severity, sample and model
set/KIND/*.npz    the corrupted inputs, a file for each severity, where they are kept
corrupt.html      the page; made from the files above
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.core import facts
from brinell.core.form import Count
from brinell.core.record import Array, column
from brinell.core.settings import MOST_COUNT
from brinell.store import one_table
from brinell.store.folder import Layout

FORM: dict[str, Any] = {
    "request": {"draws": Count(1, MOST_COUNT), "seed": Count(), "reference": (str, None)},
    "data": {"name": str, "classes": [str], "n": Count()},
    "kinds": [str],
    "severities": [Count(1, 5)],
    "models": [facts.MODEL],
}
"""What corrupt.json says."""


def _misfit(manifest: Mapping[str, Any]) -> str | None:
    reference = manifest["request"]["reference"]
    known = [one["name"] for one in manifest["models"]]
    if reference is not None and reference not in known:
        return f"the reference {reference!r} is none of its models"
    return None if known and manifest["severities"] else "it holds no model or no severity"


LAYOUT = Layout(
    what="corruption",
    verb="brinell corrupt",
    version=1,
    manifest="corrupt.json",
    form=FORM,
    misfit=_misfit,
    resumable=False,
)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model")
    kind: Array = column("string", "name of the corruption; `clean` for the clean input")
    severity: Array = column("int32", "1 to 5; 0 for the clean input")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    pred: Array = column("int32", "the model's answer")
    l2: Array = column("float32", "Euclidean length of the change, in the units of the data", zero=True)
    placed: Array = column("bool", "whether RLAB, within that length, found patches on which the model errs", null=True)
    queries: Array = column("int64", "forwards that RLAB spent on it", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A corruption folder."""

    path: Path
    manifest: Mapping[str, Any]
    answers: Answers

    @classmethod
    def make(cls, path: Path, about: Mapping[str, Any], answers: Answers) -> "Corruption":
        """Write everything; the manifest last, so that a folder with a manifest is whole.

        Raises:
            StoppedError: it cannot be written.
        """
        manifest = one_table.write(LAYOUT, path, about, answers)
        return cls(path=path, manifest=manifest, answers=answers)

    @classmethod
    def open(cls, path: Path | str) -> "Corruption":
        """The corruptions in a folder.

        Raises:
            RequestError: none there, or a damaged file.
        """
        path = Path(path)
        manifest, answers = one_table.read(LAYOUT, path, Answers)
        return cls(path=path, manifest=manifest, answers=answers)
