"""`bench:FOLDER`: the inputs of one level of a set that `brinell benchmark` made, for the
evaluation of other models.

The inputs are exactly those that the set's source model received; of pictures they are in 8 bits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open

from brinell.core import bounded
from brinell.core.boxes import Objects
from brinell.core.data import DataInfo, Dataset, DenseTask, Truth
from brinell.core.domain import Domain, Sampling
from brinell.core.errors import RequestError
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, LazyRows, StoredArrays
from brinell.datasets._boxes import check_objects, object_truth
from brinell.datasets._masks import check_masks, mask_truth
from brinell.manifest import Amount, Facts, FolderManifest, Listing, Manifest, SamplingFacts, fault

NAMES = {"clean": 0.0, "adversarial": 1.0}
OBJECT = 6
"""Numbers of an object: corners, class, and 1 for a crowd."""
MANIFEST, VERB, VERSION = "manifest.json", "benchmark", 1
"""File, verb and version that identify the folder of a set."""


class SetFacts(Facts):
    """Facts of a set that are read here."""

    levels: Listing[Amount]
    """Multiples of the L2 distance of the adversarial example."""
    task: DenseTask | None = None
    """Kind of the truth, masks or boxes; null for one class for each input."""


class SetManifest(FolderManifest):
    """The manifest of a set."""

    facts: SetFacts
    """Facts of the set."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One level of an adversarial benchmark set."""

    path: str = ""
    """The folder that `brinell benchmark` wrote."""
    level: str = "adversarial"
    """adversarial, clean, or a multiple of the adversarial example's L2 distance that the set
    holds, such as 4."""

    @property
    def holds_truth(self) -> bool:
        """True if its inputs have masks or boxes, by its manifest."""
        folder = existing_path(self.path, "folder", "bench:FOLDER")
        return task_of(manifest_of(folder)) is not None

    def __call__(self) -> Dataset:
        """Open the folder."""
        folder = existing_path(self.path, "folder", "bench:FOLDER")
        manifest = manifest_of(folder)
        _check_files(folder, manifest)
        level = _level(self.level, manifest["facts"]["levels"])
        task = task_of(manifest)
        # A row is (part, sample, level, reached, label), the last one without a task.
        rows = [
            row
            for row in _rows(folder, _KEYS if task else [*_KEYS, "label"])
            if row[2] == level and row[3]
        ]
        inputs = [
            (folder / "arrays" / f"{part}.safetensors", f"{sample}/{level:g}/input")
            for part, sample, *_ in rows
        ]
        if not inputs:
            raise RequestError(f"{folder} holds no input at level {self.level}: choose another")

        data = manifest["data"]
        # The inputs are stored as they were attacked: no rounding to levels may undo that.
        domain = Domain.from_json(data["domain"] | {"levels": None})
        sampling = data.get("sampling")
        return StoredArrays(
            name=f"{data['name']}-{'adversarial' if level == 1 else 'clean' if level == 0 else f'{level:g}x'}",
            x=_Level(inputs, domain),
            y=np.array([0 if task else row[4] for row in rows], dtype=np.int64),
            domain=domain,
            classes=tuple(data["classes"]),
            divisor=None,
            info=DataInfo(
                sampling=Sampling(
                    **{key: sampling[key] for key in SamplingFacts.model_fields}
                    | {"leads": tuple(sampling["leads"])}
                )
                if sampling
                else None,
                published=True,
                distorted=level > 0,
                names=tuple(f"sample {sample}" for _, sample, *_ in rows),
                truth=None
                if task is None
                else _truth(task, inputs, domain, tuple(data["classes"])),
            ),
        )


_KEYS = ["sample_id", "level", "reached"]


def _truth(
    task: DenseTask, inputs: list[tuple[Path, str]], domain: Domain, classes: tuple[str, ...]
) -> Truth:
    """The masks or the objects of the inputs, which are stored beside them."""
    # The truth of a picture is stored once, whichever level its input is of.
    arrays = [_tensor(file, f"{name.partition('/')[0]}/truth") for file, name in inputs]
    size = (domain.shape[1], domain.shape[2])
    if task == "segmentation":
        masks = [array.numpy() for array in arrays]
        if wrong := [mask.shape for mask in masks if mask.shape != size]:
            raise RequestError(
                f"a mask of the set has shape {wrong[0]}, and its picture {size}: "
                "fetch the set again"
            )
        check_masks(masks, classes, "the set")
        return mask_truth(np.stack(masks))

    objects = []
    for array, (_, name) in zip(arrays, inputs, strict=True):
        if array.ndim != 2 or array.shape[1] != OBJECT:
            raise RequestError(
                f"the objects of the set have shape {tuple(array.shape)}: fetch the set again"
            )
        table = array.double().numpy()
        picture = Objects(
            boxes=table[:, :4], labels=table[:, 4].astype(np.int64), crowd=table[:, 5] > 0
        )
        objects.append(
            check_objects(picture, size, len(classes), f"sample {name.partition('/')[0]}")
        )
    return object_truth(objects, "the set")


def _tensor(file: Path, name: str) -> Any:
    """A tensor of a file of the set, by its name."""
    try:
        with safe_open(file, "pt") as tensors:
            return tensors.get_tensor(name)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise RequestError(f"{file} is damaged or missing ({error}): fetch the set again") from None


class _Level(LazyRows):
    """(n, *shape) float32: the inputs of one level, each read on demand."""

    def __init__(self, inputs: list[tuple[Path, str]], domain: Domain) -> None:
        super().__init__(len(inputs), domain.shape, np.dtype(np.float32))
        self._inputs, self._domain = inputs, domain

    def row(self, index: int) -> Array:
        """The input at `index`, within the bounds."""
        file, name = self._inputs[index]
        x = _tensor(file, name)[None]
        rounded: Array = self._domain.round(self._domain.clamp(x))[0].numpy()
        return rounded


def _check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a set whose tables and arrays are not those that its manifest lists."""
    remedy = "fetch the set again, or have brinell benchmark make it anew"
    entries = {
        name: value
        for name, value in manifest["files"].items()
        if name.startswith(("data/", "arrays/"))
    }
    files = [*folder.glob("data/*.parquet"), *folder.glob("arrays/*.safetensors")]
    present = {file.relative_to(folder).as_posix(): file for file in files}

    # The digests are compared before anything is decoded.
    if missing := sorted(entries.keys() - present.keys()):
        raise RequestError(f"{folder / missing[0]} is missing, which its manifest lists: {remedy}")
    for name, file in sorted(present.items()):
        if bounded.digest(file) != entries.get(name):
            raise RequestError(f"{file} is not what the manifest of its set says: {remedy}")


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a finished set of this version; refuses any other folder."""
    file = folder / MANIFEST
    try:
        manifest: dict[str, Any] = bounded.json_of(file)
    except FileNotFoundError:
        raise RequestError(
            f"{folder} is no finished benchmark set: it has no {MANIFEST}; "
            "brinell benchmark makes one"
        ) from None

    # First what every manifest has: a folder of another verb has other facts.
    for kind in (Manifest, SetManifest):
        if problem := fault(manifest, kind):
            raise RequestError(f"{file} is damaged: {problem}; fetch the set again")
        if manifest["verb"] != VERB:
            raise RequestError(f"{folder} is no benchmark set: brinell benchmark makes one")
        if manifest["schema"] != VERSION:
            raise RequestError(f"{file} is of another version of brinell")
    return manifest


def task_of(manifest: Mapping[str, Any]) -> DenseTask | None:
    """Kind of the truth of a set."""
    task: DenseTask | None = manifest["facts"].get("task")
    return task


def _level(text: str, levels: list[float]) -> float:
    """The level of this name, or multiple of the adversarial example's distance."""
    try:
        level = NAMES[text] if text in NAMES else float(text)
    except ValueError:
        level = -1.0  # no level of any set
    if level not in (0.0, *levels):
        names = [*NAMES, *(f"{level:g}" for level in levels if level > 1)]
        raise RequestError(f"the set has no level {text!r}; it holds {', '.join(names)}")
    return level


def _rows(folder: Path, columns: list[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a set: the part that holds each, then its values in these columns."""
    for part in sorted((folder / "data").glob("*.parquet")):
        try:
            table = pq.read_table(part, columns=columns, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise RequestError(f"{part} is damaged ({reason}): fetch the set again") from None
        for row in zip(*(table[name].to_pylist() for name in columns), strict=True):
            yield part.stem, *row


def pairs_of(folder: Path, level: float) -> list[tuple[int, int]]:
    """Pairs of a clean input and its counterpart in a level.

    Args:
        level: one of its levels above 0.

    Returns:
        For each pair the position of the clean input within level 0, and that of its counterpart
            within its level, both as `Bench` counts them.
    """
    # A level that was not reached has a row, and no input.
    rows = [row for row in _rows(folder, _KEYS) if row[3]]
    clean = {
        sample: place for place, (_, sample, *_) in enumerate(row for row in rows if row[2] == 0)
    }

    return [
        (clean[sample], place)
        for place, (_, sample, *_) in enumerate(row for row in rows if row[2] == level)
        if sample in clean
    ]
