"""The folder of an adversarial benchmark set, with a row and an exact input for each sample and level.

    data/test-00000-of-00005.parquet         a row for each sample and level (COLUMNS), pictures in 8 bits
    samples/test-00000-of-00005.parquet      a row for each sample, also without an adversarial example (SAMPLES)
    arrays/test-00000-of-00005.safetensors   "<sample_id>/<level>/input" float32, "<sample_id>/<level>/mask" bool, and for masks
                                             and boxes "<sample_id>/truth": uint8 classes, 255 for none, or float64 rows of
                                             x0, y0, x1, y1, class, 1 for a crowd
    .blocks/*.safetensors                    finished samples of an unfinished part
    run.toml  manifest.json                  the request; data, model, method and versions
    README.md  croissant.json  SHA256SUMS

A part is complete once its file in samples/ exists, which is written last.
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
from brinell.core.data import Task
from brinell.core.errors import one_line
from brinell.core.record import Array, Column
from brinell.core.user_files import user_path
from brinell.manifest import (
    Amount,
    Content,
    Count,
    DataFacts,
    GrowingManifest,
    Listing,
    ModelFacts,
    Number,
    Parts,
    Size,
    TableOf,
)
from brinell.store import parquet
from brinell.store.files import damaged, read_arrays, write_arrays, write_text
from brinell.store.folder import Layout
from brinell.studies.benchmark.columns import PATCH, columns_of_task, samples_of_task


class CriterionFacts(Content):
    """The criterion of an adversarial input."""

    true_below: Number | None
    """The upper limit of the probability of the true class."""
    wrong_class: Count | None
    """The wrong class of which an input needs a probability."""
    wrong_above: Number | None
    """The lower limit of the probability of the wrong class."""
    text: str | None = None
    """The criterion as a user writes it; null for misclassification."""


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
    """The name of the policy."""
    reason: str
    """The reason for choosing it."""


class BenchmarkManifest(GrowingManifest):
    """The manifest of a benchmark set."""

    cell: str
    """The hash of all that the rows depend on."""
    parts: Parts
    """The number of parts."""
    levels: Listing[Amount]
    """Multiples of the L2 distance of the adversarial example."""
    criterion: CriterionFacts
    """The criterion of an adversarial input."""
    task: Task | None = None
    """Kind of the truth, masks or boxes; null for one class for each input."""
    eps: Amount | None
    """The largest L2 distance; null for none."""
    data: DataFacts
    """The source data."""
    model: ModelFacts
    """The model that the inputs fool."""
    grid: GridFacts
    """The patches that distortions are placed on."""
    policy: PolicyFacts | None = None
    """The policy of the agent."""
    training_queries: Count | None
    """Forwards of the policy's training; null if unknown."""
    counts: TableOf[Count] = {}
    """The number of samples of each outcome."""
    seconds: Amount = 0.0
    """Wall time in seconds."""
    block: Count = 0
    """The number of samples that are written at once."""


LAYOUT = Layout(
    verb="benchmark",
    noun="benchmark set",
    version=2,
    manifest=BenchmarkManifest,
    folders=("data", "samples", "arrays"),
    derived=("README.md", "croissant.json", "SHA256SUMS"),
)
SPLIT = "test"
BLOCKS = ".blocks"
"""The folder of blocks of unfinished parts."""
ROWS = "told"
"""The array of a block that holds its rows as JSON."""


class Outcome(StrEnum):
    """The outcome of a sample."""

    REACHED = "reached"
    """The sample has an adversarial example, whose levels are in data/."""
    NOT_REACHED = "not_reached"
    """The search found none within the steps and the cap."""
    MISCLASSIFIED = "misclassified"
    """The model misclassifies the clean input, so the agent did not run."""
    ALREADY = "already"
    """The clean input meets the criterion, so the agent did not run."""
    OWN_CLASS = "own_class"
    """The true class is the wrong class of the criterion, so the agent did not run."""


_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_PATCHES = pa.list_(pa.struct([(name, parquet.TYPES[kind]) for name, (kind, _) in PATCH.items()]))


class Form(NamedTuple):
    """Format of the inputs, which depends on the data."""

    kind: str
    shape: tuple[int, ...]
    low: Any
    high: Any
    classes: tuple[str, ...]
    task: Task | None = None

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of data/."""
        return columns_of_task(self.task)

    @property
    def sample_columns(self) -> dict[str, Column]:
        """The columns of samples/."""
        return samples_of_task(self.task)

    @property
    def pictures(self) -> bool:
        """True if PNG can hold the inputs: pictures with one or three channels."""
        return self.kind == "image" and self.shape[0] in (1, 3)

    def to_uint8(self, x: Array) -> Array:
        """Convert floats (*shape) to bytes; the lower bound becomes 0 and the upper bound 255."""
        low, high = (np.reshape(np.asarray(bound, np.float64), (-1, *[1] * (x.ndim - 1))) for bound in (self.low, self.high))
        return np.asarray(np.rint((x.astype(np.float64) - low) / (high - low) * 255).clip(0, 255), dtype=np.uint8)

    def encode_input(self, x: Array) -> Any:
        """Convert an input (*shape) to a cell of the table."""
        return _png(self.to_uint8(x)) if self.pictures else x.astype(np.float32).ravel()

    def encode_mask(self, mask: Array) -> Any:
        """Convert a mask (*shape) bool to a cell of the table."""
        return _png(np.where(mask.any(0, keepdims=True), np.uint8(255), np.uint8(0))) if self.pictures else mask.ravel()

    def encode_truth(self, truth: Array) -> Any:
        """Convert a truth, as arrays/ holds it, to a cell of the table."""
        if self.task == "segmentation":
            return _png(truth[None])
        return json.dumps([[*row[:4], int(row[4]), int(row[5])] for row in truth.tolist()], separators=(",", ":"))

    def class_names(self) -> list[str]:
        """Unique names of the classes: a name that several classes share gets the class number."""
        shared = Counter(self.classes)
        return [f"{name} ({number})" if shared[name] > 1 else name for number, name in enumerate(self.classes)]


class Block(NamedTuple):
    """Rows, samples and arrays of some samples of a part."""

    rows: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    arrays: dict[str, Array]


class BenchmarkSet:
    """The folder of a benchmark set, complete or not."""

    def __init__(self, path: Path, parts: int, form: Form, manifest: Mapping[str, Any]) -> None:
        self.path, self.parts, self.form, self.manifest = path, parts, form, manifest

    @classmethod
    def open(cls, path: Path | str) -> "BenchmarkSet":
        """Open a complete set.

        Raises:
            RequestError: the folder holds none, or a damaged manifest.
        """
        path = user_path(path)
        manifest = LAYOUT.open(path)
        data = manifest["data"]
        domain = data["domain"]
        bounds, classes = (domain["low"], domain["high"]), tuple(data["classes"])
        form = Form(domain["kind"], tuple(domain["shape"]), *bounds, classes, manifest.get("task"))
        return cls(path, len(list((path / "samples").glob("*.parquet"))), form, manifest)

    def part_file(self, folder: str, number: int) -> Path:
        """Path of a part's file in data, samples or arrays."""
        suffix = "safetensors" if folder == "arrays" else "parquet"
        return self.path / folder / f"{SPLIT}-{number:05d}-of-{self.parts:05d}.{suffix}"

    def has_part(self, number: int) -> bool:
        """True if this part is complete."""
        return self.part_file("samples", number).exists()

    def save_part(
        self, number: int, rows: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]], arrays: Mapping[str, Array]
    ) -> None:
        """Write a part; its file in samples/ is written last.

        Args:
            number: number of the part, from 0.
            rows: COLUMNS of each input; `input` (*shape) float32 and `mask` (*shape) bool, or None.
            samples: SAMPLES of each sample.
            arrays: exact inputs and masks by name.
        """
        form = self.form
        write_arrays(self.part_file("arrays", number), arrays)
        encoded = [
            row | {"input": form.encode_input(row["input"]), "mask": form.encode_mask(row["mask"])} if row["reached"] else row
            for row in rows
        ]
        if form.task is not None:
            encoded = [row | {"truth": form.encode_truth(arrays[f"{row['sample_id']}/truth"])} for row in encoded]
        _write(self.part_file("data", number), form.columns, encoded, form)
        _write(self.part_file("samples", number), form.sample_columns, samples, form)

    def load_block(self, span: slice) -> Block | None:
        """Load a block of samples of an unfinished part; None if it does not exist.

        Args:
            span: the samples, as a slice of those of the set.

        Raises:
            RequestError: its file is damaged.
        """
        file = self.block_file(span)
        if not file.exists():
            return None
        arrays = read_arrays(file)
        try:
            rows, samples = json.loads(arrays.pop(ROWS).tobytes())
            for row in rows:
                name = f"{row['sample_id']}/{row['level']:g}"
                row |= {key: arrays[f"{name}/{key}"] if row["reached"] else None for key in ("input", "mask")}
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(file, one_line(error)) from None
        return Block(rows, samples, arrays)

    def save_block(self, span: slice, block: Block) -> None:
        """Write a block of samples of an unfinished part."""
        rows = [{key: value for key, value in row.items() if key not in ("input", "mask")} for row in block.rows]
        content = np.frombuffer(json.dumps([rows, block.samples]).encode(), np.uint8)
        write_arrays(self.block_file(span), {**block.arrays, ROWS: content})

    def drop_blocks(self, span: slice) -> None:
        """Delete the blocks of a complete part, given as the slice of its samples."""
        for file in self.block_file(span).parent.glob("*"):
            if span.start <= int(file.name.partition("-")[0]) < span.stop:
                file.unlink()
        with suppress(OSError):  # blocks of other parts are in it, or it does not exist
            self.block_file(span).parent.rmdir()

    def block_file(self, span: slice) -> Path:
        """Path of a block of samples of an unfinished part."""
        return self.path / BLOCKS / f"{span.start:08d}-{span.stop:08d}.safetensors"

    def samples(self) -> dict[str, list[Any]]:
        """SAMPLES of all parts, by column."""
        return self._read("samples", list(self.form.sample_columns))

    def rows(self, columns: Sequence[str]) -> dict[str, list[Any]]:
        """Some COLUMNS of all parts."""
        return self._read("data", list(columns))

    def _read(self, folder: str, columns: list[str]) -> dict[str, list[Any]]:
        """Values of columns over all parts."""
        tables = [parquet.read_table(self.part_file(folder, number), columns) for number in range(self.parts)]
        return {name: [value for table in tables for value in table[name].to_pylist()] for name in columns}

    def checksums(self) -> dict[str, str]:
        """SHA-256 of every file by its path in the folder, without SHA256SUMS itself and hidden files."""
        files = [path for path in self.path.rglob("*") if path.is_file() and not path.name.startswith(".")]
        names = {path.relative_to(self.path).as_posix(): path for path in files}
        return {name: _sha256(path) for name, path in sorted(names.items()) if name != "SHA256SUMS"}

    def save_checksums(self) -> None:
        """Write SHA256SUMS for `sha256sum -c`."""
        write_text(self.path / "SHA256SUMS", "".join(f"{value}  {name}\n" for name, value in self.checksums().items()))


def _sha256(path: Path) -> str:
    """Hash of a file."""
    with bounded.open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _png(pixels: Array) -> dict[str, Any]:
    """Encode bytes (C, H, W) as the struct that the datasets library calls an Image."""
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def feature(column: Column, form: Form) -> dict[str, Any]:
    """Type of a column in the notation of the datasets library."""

    def value(dtype: str) -> dict[str, Any]:
        """A field of this type, as the datasets library describes it."""
        return {"dtype": dtype, "_type": "Value"}

    if column.kind == "patches":
        return {"feature": {name: value(kind) for name, (kind, _) in PATCH.items()}, "_type": "List"}
    if column.kind == "label":
        return {"names": form.class_names(), "_type": "ClassLabel"}
    if column.kind in ("input", "mask", "truth"):
        if form.pictures or column.kind == "truth":
            return {"_type": "Image"}
        return {"feature": value("float32" if column.kind == "input" else "bool"), "_type": "List"}
    return value(column.kind)


def _write(path: Path, columns: Mapping[str, Column], rows: Sequence[dict[str, Any]], form: Form) -> None:
    """Write rows as a Parquet file that the datasets library reads."""
    pictures = form.pictures
    kinds = {
        "label": pa.int64(),
        "patches": _PATCHES,
        "input": _IMAGE if pictures else pa.list_(pa.float32()),
        "mask": _IMAGE if pictures else pa.list_(pa.bool_()),
        "truth": _IMAGE,
    }
    features = {name: feature(column, form) for name, column in columns.items()}
    # The datasets library writes every column as nullable.
    schema = parquet.schema_of({name: column._replace(null=True) for name, column in columns.items()}, kinds)
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    parquet.write_table(path, pa.Table.from_arrays(arrays, schema=schema), row_group_size=256)
