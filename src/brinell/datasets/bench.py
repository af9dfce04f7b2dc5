"""`bench:FOLDER`: the inputs of one level of a set that `brinell benchmark` made, to score other models on.

The exact inputs are read, as the model that the set was made against saw them; `form=quantised` rounds them to 8 bits, as the
pictures in the set's Parquet files are.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from brinell.core import bounded
from brinell.core.contracts import DataInfo, Dataset, Domain
from brinell.core.domain import Sampling
from brinell.core.errors import RequestError, one_line
from brinell.datasets._arrays import Array, Rows, StoredArrays
from brinell.datasets._files import existing
from brinell.manifest import Amount, DataFacts, Listing, Manifest, SamplingFacts, State, fault

__all__ = ["Bench"]

NAMES = {"clean": 0.0, "adversarial": 1.0}
SUMS = "SHA256SUMS"
MANIFEST, VERB, VERSION = "manifest.json", "benchmark", 2
"""What tells the folder of a set, and which version is read."""


class SetManifest(Manifest):
    """What is read of the manifest of a set."""

    state: State
    """Whether the set is finished."""
    levels: Listing[Amount]
    """Multiples of the L2 distance of the adversarial example."""
    data: DataFacts
    """The source data."""


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
        folder = existing(self.path, "folder", "bench:FOLDER")
        manifest = manifest_of(folder)
        _check_sums(folder)
        level = _level(self.level, manifest["levels"])
        inputs: list[tuple[Path, str]] = []
        labels: list[int] = []
        names: list[str] = []
        for part in sorted((folder / "data").glob("*.parquet")):
            table = _table(part)
            for sample, at, reached, label in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
                if at == level and reached:
                    inputs.append((folder / "arrays" / f"{part.stem}.safetensors", f"{sample}/{level:g}/input"))
                    labels.append(label)
                    names.append(f"sample {sample}")
        if not inputs:
            raise RequestError(f"{folder} holds no input at level {self.level}: choose another")
        data = manifest["data"]
        domain = Domain.from_json(data["domain"] | {"levels": 256 if self.form == "quantised" else None})
        told = data.get("sampling")
        return StoredArrays(
            name=f"{data['name']}-{'adversarial' if level == 1 else 'clean' if level == 0 else f'{level:g}x'}",
            x=_Level(inputs, domain),
            y=np.asarray(labels, dtype=np.int64),
            domain=domain,
            classes=tuple(data["classes"]),
            divisor=None,
            info=DataInfo(
                sampling=Sampling(**{key: told[key] for key in SamplingFacts.model_fields} | {"leads": tuple(told["leads"])})
                if told
                else None,
                published=True,
                names=tuple(names),
            ),
        )


_COLUMNS = ["sample_id", "level", "reached", "label"]


class _Level(Rows):
    """(n, *shape) float32: the inputs of one level, each a tensor of a file by its name, read on demand."""

    def __init__(self, inputs: list[tuple[Path, str]], domain: Domain) -> None:
        super().__init__(len(inputs), domain.shape, np.dtype(np.float32))
        self._inputs, self._domain = inputs, domain

    def row(self, index: int) -> Array:
        """(*shape): one input."""
        file, name = self._inputs[index]
        try:
            with safe_open(file, "pt") as tensors:
                x = tensors.get_tensor(name)[None]
        except (OSError, SafetensorError, RuntimeError) as error:
            raise RequestError(f"{file} is damaged or missing ({error}): compare the folder with its SHA256SUMS") from None
        rounded: Array = self._domain.round(self._domain.clamp(x))[0].numpy()
        return rounded


def _check_sums(folder: Path) -> None:
    """Hold the files that are read against the checksums of the set, which must list them."""
    again = "fetch the set again, or have brinell benchmark make it anew"
    try:
        lines = bounded.text(folder / SUMS).splitlines()
        listed = {name: value for value, _, name in (line.partition("  ") for line in lines)}
        files = [folder / MANIFEST, *folder.glob("data/*.parquet"), *folder.glob("arrays/*.safetensors")]
        found = {file.relative_to(folder).as_posix(): file for file in files}
        needed = {name for name in listed if name.startswith(("data/", "arrays/"))}
        if gone := sorted(needed - found.keys()):
            raise RequestError(f"{folder / gone[0]} is missing, which {SUMS} lists: {again}")
        for name, file in sorted(found.items()):
            with bounded.opened(file) as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != listed.get(name):
                    raise RequestError(f"{file} is not what {SUMS} says: {again}")
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{folder} has no {SUMS} that can be read ({one_line(error)}): {again}") from None


def manifest_of(folder: Path) -> dict[str, Any]:
    """What a finished set of this version says of itself."""
    file = folder / MANIFEST
    try:
        found: dict[str, Any] = json.loads(bounded.text(file))
    except FileNotFoundError:
        raise RequestError(f"{folder} is no benchmark set: it has no {MANIFEST}; brinell benchmark makes one") from None
    except (ValueError, RecursionError, OSError) as error:
        raise RequestError(f"{file} is damaged: {one_line(error)}") from None
    if why := fault(found, Manifest):
        raise RequestError(f"{file} is damaged: {why}; fetch the set again")
    if found["verb"] != VERB:
        raise RequestError(f"{folder} is no benchmark set: brinell benchmark makes one")
    if found["schema"] != VERSION:
        raise RequestError(f"{file} is of another version of brinell")
    if why := fault(found, SetManifest):
        raise RequestError(f"{file} is damaged: {why}; fetch the set again")
    if found["state"] != "finished":
        raise RequestError(f"{folder} is not finished: go on with brinell benchmark --resume --out {folder}")
    return found


def _level(text: str, levels: list[float]) -> float:
    known = [*NAMES, *(f"{level:g}" for level in levels if level > 1)]
    try:
        level = NAMES[text] if text in NAMES else float(text)
    except ValueError:
        level = -1.0
    if level not in (0.0, *levels):
        raise RequestError(f"the set has no level {text!r}; it holds {', '.join(known)}")
    return level


def _table(part: Path, columns: list[str] | None = None) -> Any:
    try:
        return pq.read_table(part, columns=columns or _COLUMNS, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"{part} is damaged ({reason}): compare the folder with its SHA256SUMS") from None


def pairs_of(folder: Path, level: float) -> list[tuple[int, int, str]]:
    """Which inputs of a level have a clean counterpart in a set, and what was placed on them.

    Args:
        folder: the set's folder, which `Bench` has opened.
        level: one of its levels above 0.

    Returns:
        For each pair the position of the clean input within level 0, that of the input within its level, each as `Bench` counts
        them, and the names of the distortions on it, joined by +.

    Raises:
        RequestError: a damaged file.
    """
    at: dict[float, dict[int, int]] = {0.0: {}, level: {}}
    placed: dict[int, str] = {}
    for part in sorted((folder / "data").glob("*.parquet")):
        table = _table(part, [*_COLUMNS, "patches"])
        for sample, own, reached, patches in zip(*(table[name].to_pylist() for name in (*_COLUMNS[:3], "patches")), strict=True):
            if own in at and reached:
                at[own][sample] = len(at[own])
                if own == level:
                    placed[sample] = "+".join(sorted({patch["distortion"] for patch in patches or ()}))
    return [(at[0.0][sample], place, placed[sample]) for sample, place in at[level].items() if sample in at[0.0]]
