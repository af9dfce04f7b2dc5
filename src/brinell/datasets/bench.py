"""`bench:FOLDER`: the inputs of one level of a set that `brinell benchmark` made, to score other models on.

The exact inputs are read, as the model that the set was made against saw them; `form=quantised` rounds them to 8 bits, as the
pictures in the set's Parquet files are.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from brinell.core.contracts import DataInfo, Dataset, Domain
from brinell.core.domain import Sampling
from brinell.core.errors import RequestError
from brinell.core.renamed import renamed
from brinell.datasets._arrays import Labels, little
from brinell.datasets._files import existing_folder

__all__ = ["Bench"]

NAMES = {"clean": 0.0, "adversarial": 1.0}
FORMATS = (1, 2)
"""Versions of the folder that are read: what the second one renamed is not read here."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One level of an adversarial benchmark set."""

    path: str = ""
    """The folder that `brinell benchmark` wrote."""
    level: str = "adversarial"
    """adversarial, clean, or a multiple of the adversarial example's L2 that the set holds, such as 4."""
    form: Literal["exact", "quantised"] = "exact"
    """exact, or quantised: rounded to 8 bits between the bounds of the data."""

    def __call__(self) -> Dataset:
        """Open the folder.

        Raises:
            RequestError: no finished set, a level that it does not hold, damaged files.
        """
        folder = existing_folder(self.path, "bench:FOLDER")
        manifest = _manifest(folder)
        level = _level(self.level, manifest["levels"])
        samples: list[int] = []
        labels: list[int] = []
        files: list[Path] = []
        for part in sorted((folder / "data").glob("*.parquet")):
            table = _table(part)
            for sample, at, reached, label in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
                if at == level and reached:
                    samples.append(sample)
                    labels.append(label)
                    files.append(folder / "arrays" / f"{part.stem}.safetensors")
        if not samples:
            raise RequestError(f"{folder} holds no input at level {self.level}: choose another")
        return Level(manifest, level, samples, np.asarray(labels, dtype=np.int64), files, rounded=self.form == "quantised")


_COLUMNS = ["sample_id", "level", "reached", "label"]


class Level:
    """The inputs of one level as a data set, read on demand."""

    def __init__(
        self, manifest: dict[str, Any], level: float, samples: list[int], labels: Labels, files: list[Path], *, rounded: bool
    ) -> None:
        data = manifest["data"]
        self.name = f"{data['name']}-{'adversarial' if level == 1 else 'clean' if level == 0 else f'{level:g}x'}"
        self.classes: tuple[str, ...] = tuple(data["classes"])
        self.domain = Domain.from_json(data["domain"] | {"levels": 256 if rounded else None})
        told = data.get("sampling")
        self.info = DataInfo(sampling=Sampling(**told | {"leads": tuple(told["leads"])}) if told else None)
        self._level, self._samples, self._labels, self._files, self._digest = level, samples, labels, files, ""

    def __len__(self) -> int:
        return len(self._samples)

    def labels(self) -> Labels:
        """(n,) int64: all labels."""
        return self._labels.copy()

    def load(self, indices: Sequence[int]) -> Tensor:
        """(len(indices), *shape) float32 within the bounds.

        Raises:
            RequestError: a file that is damaged or missing.
        """
        x = torch.empty(len(indices), *self.domain.shape)
        wanted: dict[Path, list[tuple[int, int]]] = {}
        for row, index in enumerate(indices):
            wanted.setdefault(self._files[index], []).append((row, self._samples[index]))
        for file, rows in wanted.items():
            try:
                with safe_open(file, "pt") as tensors:
                    for row, sample in rows:
                        x[row] = tensors.get_tensor(f"{sample}/{self._level:g}/input")
            except (OSError, SafetensorError, RuntimeError) as error:
                raise RequestError(f"{file} is damaged or missing ({error}): compare the folder with its SHA256SUMS") from None
        return self.domain.round(self.domain.clamp(x))

    def digest(self) -> str:
        """Hash of domain, inputs, labels and their order."""
        if not self._digest:
            hashed = hashlib.blake2b(self.domain.text().encode(), digest_size=16)
            for index in range(len(self)):
                hashed.update(little(self.load([index]).numpy()))
            hashed.update(little(self._labels))
            self._digest = hashed.hexdigest()
        return self._digest


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "benchmark.json"
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RequestError(f"{folder} is no benchmark set: it has no benchmark.json; brinell benchmark makes one") from None
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise RequestError(f"{file} is damaged: {error}") from None
    if not isinstance(found, dict) or found.get("format") not in FORMATS:
        raise RequestError(f"{file} is damaged or of another version of brinell")
    if found.get("state") != "finished":
        raise RequestError(f"{folder} is not finished: go on with brinell benchmark --resume --out {folder}")
    return found


def _level(text: str, levels: list[float]) -> float:
    known = [*NAMES, *(f"{level:g}" for level in levels if level > 1)]
    try:
        level = NAMES[text] if text in NAMES else float(text)
    except ValueError:
        level = -1.0
    if level not in (0.0, *levels):
        new = renamed(text, NAMES)
        now = f", which is now called {new!r}" if new else ""
        raise RequestError(f"the set has no level {text!r}{now}; it holds {', '.join(known)}")
    return level


def _table(part: Path) -> Any:
    try:
        return pq.read_table(part, columns=_COLUMNS, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"{part} is damaged ({reason}): compare the folder with its SHA256SUMS") from None
