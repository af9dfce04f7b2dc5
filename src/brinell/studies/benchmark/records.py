"""The folder of an adversarial benchmark set: one row and one exact input per sample and level, written part by part.

    data/test-00000-of-00005.parquet      a row per sample and level (COLUMNS), pictures in 8 bits
    samples/test-00000-of-00005.parquet   a row per sample, those without an adversarial example too (SAMPLES)
    arrays/test-00000-of-00005.safetensors   "<sample_id>/<level>/input" float32 and "<sample_id>/<level>/mask" bool
    .blocks/*.safetensors                    while a part is made: the samples that are done
    run.toml  manifest.json               the request; what was made, of what, with what
    README.md  croissant.json  SHA256SUMS

A part is there when its file in samples/ is, which is written last; the others are written whole before it.
"""

import hashlib
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image

from brinell.core import bounded
from brinell.core.record import Array, Column
from brinell.manifest import (
    Amount,
    Content,
    Count,
    DataFacts,
    GrowingManifest,
    Listing,
    ModelFacts,
    Named,
    Number,
    Parts,
    Size,
)
from brinell.store import parquet
from brinell.store.files import read_arrays, write_arrays, write_text
from brinell.store.folder import SHARDS, Layout


class CriterionFacts(Content):
    """What counts as adversarial."""

    true_below: Number | None
    """The probability below which that of the true class must be."""
    wrong_class: Count | None
    """The class that is to be seen where it is not."""
    wrong_above: Number | None
    """The probability above which that of a wrong class must be."""


class GridFacts(Content):
    """The patches that distortions are placed on."""

    patch: Listing[Size]
    """Values of a patch along each axis."""
    stride: Listing[Size]
    """Values from one patch to the next."""
    lattice: Listing[Size]
    """Patches along each axis."""


class PolicyFacts(Content):
    """The policy of the agent."""

    name: str
    """Its name."""
    why: str
    """Why it was chosen."""


class BenchmarkManifest(GrowingManifest):
    """What the manifest of a benchmark set says."""

    cell: str
    """The hash of all that the rows depend on."""
    parts: Parts
    """How many parts it has."""
    levels: Listing[Amount]
    """Multiples of the L2 distance of the adversarial example."""
    criterion: CriterionFacts
    """What counts as adversarial."""
    eps: Amount | None
    """The largest L2 distance; null for none."""
    data: DataFacts
    """The source data."""
    model: ModelFacts
    """The model that it was made against."""
    grid: GridFacts
    """The patches that distortions are placed on."""
    policy: PolicyFacts | None = None
    """The policy of the agent."""
    training_queries: Count | None
    """Forward evaluations that the policy was trained with; null where unknown."""
    counts: Named[Count] = {}
    """How many samples there are of each outcome."""
    seconds: Amount = 0.0
    """Wall time."""
    block: Count = 0
    """Samples that are written at once."""


LAYOUT = Layout(
    verb="benchmark",
    what="benchmark set",
    version=2,
    manifest=BenchmarkManifest,
    folders=("data", "samples", "arrays"),
    alone=True,
)
SPLIT = "test"
BLOCKS = ".blocks"
"""The folder of blocks of unfinished parts."""
TOLD = "told"
"""The array of a block that holds its rows, as JSON."""


class Outcome(StrEnum):
    """What became of a sample."""

    REACHED = "reached"
    """An adversarial example was found: its levels are in data/."""
    NOT_REACHED = "not_reached"
    """None was found within the steps and the cap."""
    MISCLASSIFIED = "misclassified"
    """The model is wrong on the clean input, so nothing was tried."""
    ALREADY = "already"
    """The clean input meets the criterion, so there is nothing to distort."""
    OWN_CLASS = "own_class"
    """The sample is of the class that is to be seen where it is not."""


PATCH = {
    "patch": ("int32", "number of the patch on the grid, counted flat, the last axis running fastest"),
    "distortion": ("string", "name of the distortion"),
    "severity": ("int32", "1 to 5"),
    "draw": ("int32", "which version of the distortion"),
    "strength": ("float32", "share of the distortion's change that is there; above 1 where it was made to grow"),
}
"""What is said of each patch that has something on it."""

COLUMNS = {
    "sample_id": Column("int64", "position in the source data"),
    "level": Column("float64", "multiple of the L2 distance of the adversarial example, which is 1; 0 is the clean input"),
    "reached": Column("bool", "whether the bounds of the data allow this multiple; where not, nothing is stored"),
    "input": Column("input", "the input; pictures in 8 bits, the exact floats are in arrays/", null=True),
    "mask": Column("mask", "the values that differ from the clean input; of a picture the pixels, white", null=True),
    "label": Column("label", "the true class"),
    "prediction": Column("int64", "the model's answer to the exact input", null=True),
    "confidence": Column("float64", "its probability", null=True),
    "true_probability": Column("float64", "probability of the true class", null=True),
    "adversarial": Column("bool", "whether this input meets the criterion", null=True),
    "prediction_quantised": Column(
        "int64",
        "its answer to the picture in 8 bits; an adversarial example stays one if one was found within 1.5 times its distance",
        null=True,
    ),
    "l2": Column("float64", "L2 distance from the clean input, in the units of the data", null=True),
    "linf": Column("float64", "largest change of a value", null=True),
    "l1": Column("float64", "sum of the changes", null=True),
    "l0": Column("int64", "values that changed, each channel counted", null=True),
    "farthest": Column("float64", "the largest multiple that the bounds allow to what the agent would place"),
    "patch_count": Column("int64", "patches that have something on them", null=True),
    "patches": Column("patches", "what stands on which patch"),
    "queries": Column("int64", "forwards until the adversarial example was settled, first check and clean-up included"),
}
"""A row of data/."""

SAMPLES = {
    "sample_id": Column("int64", "position in the source data"),
    "label": Column("label", "the true class"),
    "outcome": Column("string", "reached, not_reached, misclassified, already, own_class"),
    "clean_prediction": Column("int64", "the model's answer to the clean input"),
    "clean_confidence": Column("float64", "its probability"),
    "queries": Column("int64", "every forward of the model on this sample: first check, search, clean-up, levels"),
    "queries_to_success": Column("int64", "forwards until the first adversarial example", null=True),
    "queries_to_refined": Column("int64", "forwards until the adversarial example was settled, clean-up included", null=True),
    "queries_levels": Column("int64", "forwards that the levels were judged by", null=True),
    "training_queries": Column(
        "int64", "forwards that the policy was trained with, once for all samples; null where unknown", null=True
    ),
    "l2": Column("float64", "L2 distance of the adversarial example", null=True),
    "patch_count": Column("int64", "patches that have something on them in the adversarial example", null=True),
}
"""A row of samples/."""

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_PATCHES = pa.list_(pa.struct([(name, parquet.TYPES[kind]) for name, (kind, _) in PATCH.items()]))


class Form(NamedTuple):
    """How inputs are written: what the columns need to know of the data."""

    kind: str
    shape: tuple[int, ...]
    low: Any
    high: Any
    classes: tuple[str, ...]

    @property
    def pictures(self) -> bool:
        """Whether inputs are pictures that PNG can hold: one or three channels."""
        return self.kind == "image" and self.shape[0] in (1, 3)

    def bytes8(self, x: Array) -> Array:
        """(*shape) floats as (*shape) bytes, the lower bound 0 and the upper one 255."""
        low, high = (np.reshape(np.asarray(bound, np.float64), (-1, *[1] * (x.ndim - 1))) for bound in (self.low, self.high))
        return np.asarray(np.rint((x.astype(np.float64) - low) / (high - low) * 255).clip(0, 255), dtype=np.uint8)

    def shown(self, x: Array) -> Any:
        """An input (*shape) as a cell of the table."""
        return _png(self.bytes8(x)) if self.pictures else x.astype(np.float32).ravel()

    def mask(self, mask: Array) -> Any:
        """A mask (*shape) bool as a cell of the table."""
        return _png(np.where(mask.any(0, keepdims=True), np.uint8(255), np.uint8(0))) if self.pictures else mask.ravel()

    def names(self) -> list[str]:
        """The names of the classes, each once: those that several classes share carry their number."""
        shared = Counter(self.classes)
        return [f"{name} ({number})" if shared[name] > 1 else name for number, name in enumerate(self.classes)]


class Block(NamedTuple):
    """Some samples of a part, as `BenchmarkSet.save_part` takes them."""

    rows: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    arrays: dict[str, Array]


class BenchmarkSet:
    """The folder of a benchmark set, finished or not."""

    def __init__(self, path: Path, parts: int, form: Form, manifest: Mapping[str, Any]) -> None:
        self.path, self.parts, self.form, self.manifest = path, parts, form, manifest

    @classmethod
    def open(cls, path: Path | str) -> "BenchmarkSet":
        """The finished set in a folder.

        Raises:
            RequestError: none there, or a damaged manifest.
        """
        path = Path(path)
        manifest = LAYOUT.open(path)
        data = manifest["data"]
        domain = data["domain"]
        form = Form(domain["kind"], tuple(domain["shape"]), domain["low"], domain["high"], tuple(data["classes"]))
        return cls(path, len(list((path / "samples").glob("*.parquet"))), form, manifest)

    def file(self, folder: str, number: int) -> Path:
        """The file of a part: data, samples or arrays."""
        suffix = "safetensors" if folder == "arrays" else "parquet"
        return self.path / folder / f"{SPLIT}-{number:05d}-of-{self.parts:05d}.{suffix}"

    def has_part(self, number: int) -> bool:
        """Whether this part is complete."""
        return self.file("samples", number).exists()

    def save_part(
        self, number: int, rows: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]], arrays: Mapping[str, Array]
    ) -> None:
        """Write a part, what it is known by last.

        Args:
            number: from 0.
            rows: COLUMNS of each input; `input` (*shape) float32 and `mask` (*shape) bool, or None.
            samples: SAMPLES of each sample.
            arrays: exact inputs and masks by name.
        """
        form = self.form
        write_arrays(self.file("arrays", number), arrays)
        shown = [
            row | {"input": form.shown(row["input"]), "mask": form.mask(row["mask"])} if row["reached"] else row for row in rows
        ]
        _write(self.file("data", number), COLUMNS, shown, form)
        _write(self.file("samples", number), SAMPLES, samples, form)

    def block(self, at: slice) -> Block | None:
        """What is kept of a block of samples of an unfinished part; None where it is not made yet.

        Raises:
            RequestError: its file is damaged.
        """
        file = self.block_file(at)
        if not file.exists():
            return None
        arrays = read_arrays(file)
        rows, samples = json.loads(arrays.pop(TOLD).tobytes())
        for row in rows:
            name = f"{row['sample_id']}/{row['level']:g}"
            row |= {key: arrays[f"{name}/{key}"] if row["reached"] else None for key in ("input", "mask")}
        return Block(rows, samples, arrays)

    def save_block(self, at: slice, made: Block) -> None:
        """Keep a block of samples of an unfinished part."""
        rows = [{key: value for key, value in row.items() if key not in ("input", "mask")} for row in made.rows]
        told = np.frombuffer(json.dumps([rows, made.samples]).encode(), np.uint8)
        write_arrays(self.block_file(at), {**made.arrays, TOLD: told})

    def drop_blocks(self, at: slice) -> None:
        """Forget the blocks of a part that is complete, by the places of its samples."""
        for file in self.block_file(at).parent.glob("*"):
            if at.start <= int(file.name.partition("-")[0]) < at.stop:
                file.unlink()
        with suppress(OSError):  # others are still in it, or there never was any
            self.block_file(at).parent.rmdir()

    def block_file(self, at: slice) -> Path:
        """Where a block of samples of an unfinished part is kept."""
        return self.path / BLOCKS / f"{at.start:08d}-{at.stop:08d}.safetensors"

    def samples(self) -> dict[str, list[Any]]:
        """SAMPLES of all parts, column by column."""
        return self._read("samples", list(SAMPLES))

    def rows(self, columns: Sequence[str]) -> dict[str, list[Any]]:
        """Columns of all parts."""
        return self._read("data", list(columns))

    def _read(self, folder: str, columns: list[str]) -> dict[str, list[Any]]:
        found = [parquet.read_table(self.file(folder, number), columns) for number in range(self.parts)]
        return {name: [value for table in found for value in table[name].to_pylist()] for name in columns}

    def sums(self) -> dict[str, str]:
        """SHA-256 of every file but SHA256SUMS itself, by its path in the folder; not of what several processes meet in."""
        files = [path for path in self.path.rglob("*") if path.is_file() and not path.name.startswith(".")]
        names = {name: path for path in files if not (name := path.relative_to(self.path).as_posix()).startswith(f"{SHARDS}/")}
        return {name: _sha256(path) for name, path in sorted(names.items()) if name != "SHA256SUMS"}

    def save_sums(self) -> None:
        """Write SHA256SUMS, as `sha256sum -c` reads it."""
        write_text(self.path / "SHA256SUMS", "".join(f"{value}  {name}\n" for name, value in self.sums().items()))


def _sha256(path: Path) -> str:
    with bounded.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _png(pixels: Array) -> dict[str, Any]:
    """(C, H, W) bytes as the struct that the datasets library calls an Image."""
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    held = io.BytesIO()
    picture.save(held, format="PNG")
    return {"bytes": held.getvalue(), "path": None}


def feature(column: Column, form: Form) -> dict[str, Any]:
    """A column as the datasets library writes its type down."""

    def value(dtype: str) -> dict[str, Any]:
        return {"dtype": dtype, "_type": "Value"}

    if column.kind == "patches":
        return {"feature": {name: value(kind) for name, (kind, _) in PATCH.items()}, "_type": "List"}
    if column.kind == "label":
        return {"names": form.names(), "_type": "ClassLabel"}
    if column.kind in ("input", "mask"):
        if form.pictures:
            return {"_type": "Image"}
        return {"feature": value("float32" if column.kind == "input" else "bool"), "_type": "List"}
    return value(column.kind)


def _write(path: Path, columns: Mapping[str, Column], rows: Sequence[dict[str, Any]], form: Form) -> None:
    pictures = form.pictures
    kinds = {
        "label": pa.int64(),
        "patches": _PATCHES,
        "input": _IMAGE if pictures else pa.list_(pa.float32()),
        "mask": _IMAGE if pictures else pa.list_(pa.bool_()),
    }
    features = {name: feature(column, form) for name, column in columns.items()}
    # The datasets library writes every column as one that may be null.
    schema = parquet.schema_of({name: column._replace(null=True) for name, column in columns.items()}, kinds)
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    parquet.write_table(path, pa.Table.from_arrays(arrays, schema=schema), row_group_size=256)
