"""A detection folder: the score of every detector on every clean and adversarial input (design/0016-detection.md).

detection.json         the request, the run it is about, thresholds, costs
scores.parquet         one row per model, detector, input
evading.safetensors    inputs of the attack that knows the detector: MODEL/DETECTOR/FORM/SAMPLE
detection.html         the page; made from the files above
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.core.form import Count, Number
from brinell.core.record import Array, column
from brinell.store import one_table
from brinell.store.files import write_arrays
from brinell.store.folder import Layout

FORM: dict[str, Any] = {
    "request": {"fpr": Number(0, 1)},
    "run": str,
    "data": str,
    "train": str,
    "distance": str,
    "eps": Number(0),
    "models": [
        {
            "name": str,
            "digest": str,
            "samples": Count(),
            "right": Count(),
            "robust": Count(),
            "forwards": Count(),
            "detectors": [{"name": str, "threshold": float}],
        }
    ],
    "attacks": [str],
    "titles?": {str: str},
}
"""What the manifest says."""


def _misfit(manifest: Mapping[str, Any]) -> str | None:
    many = next((one for one in manifest["models"] if not one["robust"] <= one["right"] <= one["samples"]), None)
    return many and f"of model {many['name']!r} more samples are robust or right than there are"


LAYOUT = Layout(
    what="detection",
    verb="brinell detect",
    version=2,
    manifest="detection.json",
    form=FORM,
    misfit=_misfit,
    resumable=False,
)
CLEAN = "clean"
EVADING = ("evading", "evading, background kept")
"""Names of the attacks that know the detector, in the column `attack`."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Rows as columns, each a (rows,) array."""

    model: Array = column("string", "name of the model in the run")
    detector: Array = column("string", "the detector, as it was asked for")
    attack: Array = column("string", "a stage of the run, `clean`, or one of `EVADING`")
    sample_id: Array = column("int64", "position of the sample in the data")
    label: Array = column("int32", "true class")
    score: Array = column("float64", "what the detector says; higher is more suspicious")
    fooled: Array = column("bool", "whether the classifier errs on this input")
    backwards: Array = column("int64", "gradient steps that this input cost; 0 for what the run had stored", zero=True)

    def __len__(self) -> int:
        return len(self.sample_id)


@dataclass(frozen=True, kw_only=True)
class Detection:
    """A detection folder."""

    path: Path
    manifest: Mapping[str, Any]
    scores: Scores

    @classmethod
    def make(cls, path: Path, about: Mapping[str, Any], scores: Scores, arrays: Mapping[str, Array]) -> "Detection":
        """Write everything; the manifest last, so that a folder with a manifest is whole.

        Raises:
            StoppedError: it cannot be written.
        """
        write_arrays(path / "evading.safetensors", arrays)
        manifest = one_table.write(LAYOUT, path, about, scores, file="scores.parquet")
        return cls(path=path, manifest=manifest, scores=scores)

    @classmethod
    def open(cls, path: Path | str) -> "Detection":
        """The detection in a folder.

        Raises:
            RequestError: none there, or a damaged file.
        """
        path = Path(path)
        manifest, scores = one_table.read(LAYOUT, path, Scores, file="scores.parquet")
        return cls(path=path, manifest=manifest, scores=scores)
