"""A detection folder: the score of every detector on every clean and adversarial input (design/0016-detection.md).

detection.json         the request, the run it is about, thresholds, costs
scores.parquet         one row per model, detector, input
evading.safetensors    inputs of the attack that knows the detector: MODEL/DETECTOR/FORM/SAMPLE
detection.html         the page; made from the files above
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save

from brinell.core.errors import RequestError
from brinell.store.files import write_atomically, write_text

SCHEMA = 1
CLEAN = "clean"
EVADING = ("evading", "evading, background kept")
"""Names of the attacks that know the detector, in the column `attack`."""

Array = np.ndarray[Any, Any]
TYPES = {
    "model": pa.string(),
    "detector": pa.string(),
    "attack": pa.string(),
    "sample_id": pa.int64(),
    "label": pa.int32(),
    "score": pa.float64(),
    "fooled": pa.bool_(),
    "backwards": pa.int64(),
}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Rows as columns, each a (rows,) array."""

    model: Array
    detector: Array
    attack: Array
    """A stage of the run, `clean`, or one of `EVADING`."""
    sample_id: Array
    label: Array
    score: Array
    """Higher is more suspicious."""
    fooled: Array
    """Whether the classifier errs on this input."""
    backwards: Array
    """Gradient steps that this input cost; 0 for what the run had stored."""

    def __len__(self) -> int:
        return len(self.sample_id)

    def select(self, rows: Array) -> "Scores":
        """The chosen rows."""
        return Scores(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class Detection:
    """A detection folder."""

    path: Path
    facts: Mapping[str, Any]
    scores: Scores

    @classmethod
    def make(cls, path: Path, facts: Mapping[str, Any], scores: Scores, arrays: Mapping[str, Array]) -> "Detection":
        """Write everything; the facts last, so that a folder with facts is whole.

        Raises:
            RequestError: the folder holds a detection already.
            StoppedError: it cannot be written.
        """
        if (path / "detection.json").exists():
            raise RequestError(f"{path} holds a detection already: name another folder with --out")
        table = pa.table({name: pa.array(getattr(scores, name).tolist(), kind) for name, kind in TYPES.items()})
        write_atomically(path / "scores.parquet", lambda file: pq.write_table(table, file))
        write_atomically(path / "evading.safetensors", lambda file: file.write_bytes(save(dict(arrays))))
        told = {"schema": SCHEMA} | dict(facts)
        write_text(path / "detection.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return cls(path=path, facts=told, scores=scores)

    @classmethod
    def open(cls, path: Path | str) -> "Detection":
        """The detection in a folder.

        Raises:
            RequestError: none there, or a damaged file.
        """
        path = Path(path)
        try:
            facts = json.loads((path / "detection.json").read_text(encoding="utf-8"))
            table = pq.read_table(path / "scores.parquet")
            columns = {name: np.asarray(table.column(name).to_pylist()) for name in TYPES}
        except FileNotFoundError as error:
            raise RequestError(
                f"{path} holds no detection ({Path(error.filename).name} is not there): brinell detect makes one"
            ) from None
        except (ValueError, KeyError, OSError, pa.ArrowException) as error:
            raise RequestError(f"{path} is damaged: {error}") from None
        if facts.get("schema") != SCHEMA:
            raise RequestError(f"{path} was written by another version of brinell (schema {facts.get('schema')})")
        return cls(path=path, facts=facts, scores=Scores(**columns))
