"""The rows of a benchmark set: one for each sample; and in data/ one for each level of it, as the
datasets library reads them.

Columns about classes are null in sets of masks and boxes, and those about masks and boxes are null
in sets of classes.
"""

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image

from brinell.core.data import DenseTask
from brinell.core.domain import Domain
from brinell.core.record import Array, Columns, RecordColumn, column
from brinell.store import parquet

COLUMNS = {
    "sample_id": RecordColumn("int64", "position in the source data"),
    "level": RecordColumn(
        "float64",
        "multiple of the L2 distance of the adversarial example, which is 1; 0 is the clean input",
    ),
    "reached": RecordColumn(
        "bool", "true if the bounds of the data allow this multiple; otherwise the row has no input"
    ),
    "input": RecordColumn("input", "the input; a picture holds the values of arrays/ in 8 bits"),
    "mask": RecordColumn(
        "mask", "the values that differ from the clean input; white pixels for a picture"
    ),
    "label": RecordColumn("label", "the true class"),
    "truth": RecordColumn(
        "truth",
        "the mask as a picture: the class of each pixel, 255 where it has none; "
        "or the objects as JSON: "
        "[x0, y0, x1, y1, class, 1 for a crowd] each, in pixels",
    ),
    "prediction": RecordColumn("int64", "predicted class"),
    "confidence": RecordColumn("float64", "its probability"),
    "true_probability": RecordColumn("float64", "probability of the true class"),
    "answer": RecordColumn(
        "string",
        "the answer as JSON: for masks [true class, predicted class, pixels] of "
        "each pair that occurs, for boxes the final ones "
        "as [x0, y0, x1, y1, class, score]",
    ),
    "valid": RecordColumn("int64", "1, or the pixels or objects that have a true class"),
    "wrong": RecordColumn("int64", "how many of these the model gets wrong"),
    "adversarial": RecordColumn("bool", "true if the input meets the criterion"),
    "l2": RecordColumn("float64", "L2 distance from the clean input, in the units of the data"),
    "linf": RecordColumn("float64", "largest change of a value"),
    "l1": RecordColumn("float64", "sum of the changes"),
    "l0": RecordColumn("int64", "number of changed values over all channels"),
    "patches": RecordColumn("patches", "the distorted patches"),
}
"""A row of data/. All but sample, level and reached may be null."""
PATCH = {
    "patch": ("int32", "index of the patch on the flattened grid, last axis fastest"),
    "distortion": ("string", "name of the distortion"),
    "severity": ("int32", "1 to 5"),
    "draw": ("int32", "number of the random version of the distortion"),
    "strength": ("float32", "share of the full distortion; above 1 if it was amplified"),
    "energy": ("float64", "squared L2 distance within the patch"),
}
"""Fields of a distorted patch."""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_PATCHES = pa.list_(pa.struct([(name, parquet.TYPES[kind]) for name, (kind, _) in PATCH.items()]))


class SearchOutcome(StrEnum):
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


@dataclass(frozen=True, kw_only=True)
class BenchmarkRows(Columns):
    """Rows as columns, each a (rows,) array."""

    sample_id: Array = column("int64", "position in the source data")
    label: Array = column("int64", "the true class; null for masks and boxes", null=True)
    outcome: Array = column("string", "reached, not_reached, misclassified, already, own_class")
    clean_prediction: Array = column(
        "int64", "predicted class of the clean input; null for masks and boxes", null=True
    )
    valid: Array = column("int64", "1, or the pixels or objects that have a true class")
    clean_wrong: Array = column(
        "int64", "how many of these the model gets wrong without a distortion"
    )
    queries: Array = column(
        "int64", "all forwards of the model for this sample: first check, search, clean-up, levels"
    )
    queries_to_success: Array = column(
        "int64", "forwards until the first adversarial example", null=True
    )
    l2: Array = column("float64", "L2 distance of the adversarial example", null=True)
    patch_count: Array = column(
        "int64", "number of distorted patches of the adversarial example", null=True
    )


class Form(NamedTuple):
    """Format of the inputs, which depends on the data."""

    domain: Domain
    classes: Sequence[str]
    task: DenseTask | None

    @property
    def pictures(self) -> bool:
        """True if PNG can hold the inputs: pictures with one or three channels."""
        return self.domain.kind == "image" and self.domain.shape[0] in (1, 3)

    def to_uint8(self, x: Array) -> Array:
        """Convert floats (*shape) to bytes; the lower bound becomes 0 and the upper bound 255."""
        # Bounds by channel are those of a batch, so that x needs its axis for a moment.
        low, high = (bound.double().numpy() for bound in self.domain.bounds())
        return np.asarray(
            np.rint((x[None] - low) / (high - low) * 255).clip(0, 255)[0], dtype=np.uint8
        )

    def encode(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row with its arrays `input` (*shape) float32, `mask` (*shape) bool and `truth` as cells
        of the table.
        """
        cells = {name: row.get(name) for name in COLUMNS}
        if (x := row.get("input")) is not None:
            mask = row["mask"]
            white = np.where(mask.any(0, keepdims=True), np.uint8(255), np.uint8(0))
            cells["input"] = (
                _png(self.to_uint8(x)) if self.pictures else x.astype(np.float32).ravel()
            )
            cells["mask"] = _png(white) if self.pictures else mask.ravel()

        if (truth := row.get("truth")) is not None:
            # Corners stay fractions; class and crowd are whole numbers, which JSON shows without a
            # point.
            objects = (
                [[*line[:4], int(line[4]), int(line[5])] for line in truth.tolist()]
                if self.task == "detection"
                else None
            )
            cells["truth"] = (
                _png(truth[None]) if objects is None else json.dumps(objects, separators=(",", ":"))
            )

        return cells

    def write(self, path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows as a Parquet file, with the features by which the datasets library reads it in
        the header.
        """
        image = _IMAGE if self.pictures else None
        kinds = {
            "label": pa.int64(),
            "patches": _PATCHES,
            "input": image or pa.list_(pa.float32()),
            "mask": image or pa.list_(pa.bool_()),
            "truth": _IMAGE if self.task == "segmentation" else pa.string(),
        }

        # Every column may be empty: a level that was not reached has no input.
        features = {name: self._feature(column) for name, column in COLUMNS.items()}
        schema = parquet.schema_of(
            {name: column._replace(null=True) for name, column in COLUMNS.items()}, kinds
        )
        schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})

        # Small groups of rows, so that a viewer of the set needs to fetch few bytes for a picture.
        cells = [self.encode(row) for row in rows]
        arrays = [pa.array([row[field.name] for row in cells], field.type) for field in schema]
        parquet.write_table(path, pa.Table.from_arrays(arrays, schema=schema), row_group_size=256)

    def _feature(self, column: RecordColumn) -> dict[str, Any]:
        """Type of a column in the notation of the datasets library."""
        match column.kind:
            case "patches":
                fields = {
                    name: {"dtype": kind, "_type": "Value"} for name, (kind, _) in PATCH.items()
                }
                return {"feature": fields, "_type": "List"}
            # The datasets library refuses two classes of one name.
            case "label":
                shared = Counter(self.classes)
                names = [
                    f"{name} ({index})" if shared[name] > 1 else name
                    for index, name in enumerate(self.classes)
                ]
                return {"names": names, "_type": "ClassLabel"}

            case "input" | "mask" if not self.pictures:
                dtype = "float32" if column.kind == "input" else "bool"
                return {"feature": {"dtype": dtype, "_type": "Value"}, "_type": "List"}
            case "input" | "mask":
                return {"_type": "Image"}

            case "truth":
                return (
                    {"_type": "Image"}
                    if self.task == "segmentation"
                    else {"dtype": "string", "_type": "Value"}
                )
        return {"dtype": column.kind, "_type": "Value"}


def data_file(number: int, total: int) -> str:
    """The table of a piece, by its path in the folder."""
    return f"data/test-{number:05d}-of-{total:05d}.parquet"


def arrays_file(number: int, total: int) -> str:
    """The exact inputs and masks of a piece, by their path in the folder."""
    return f"arrays/test-{number:05d}-of-{total:05d}.safetensors"


def _png(pixels: Array) -> dict[str, Any]:
    """Encode bytes (C, H, W) as the struct that the datasets library calls an Image."""
    picture = Image.fromarray(
        pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    )
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": None}
