"""A folder of explanations: one row per sample and method, and the maps behind them (design/0022-explain.md).

run.toml               the request
manifest.json          the request, the data, the model, the methods and the excluded samples
rows.parquet           one row per sample and method
maps.safetensors       METHOD/SAMPLE: the map (*places), float32
cascade.safetensors    METHOD/SAMPLE: (stages,) float64, rank correlation with the map at each stage; only with a cascade
inputs.safetensors     SAMPLE: the input (*shape), float32; SAMPLE/truth: the ground truth (*places), uint8
report.html            the page, rendered from the files above
.parts/                finished parts of an unfinished study (`engine.parts`)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.record import Array, column
from brinell.manifest import Content, Count, DataFacts, Listing, Manifest, ModelFacts, TableOf
from brinell.store.files import read_arrays
from brinell.store.folder import Layout
from brinell.store.table import Table


class ExplainSettings(Content):
    """Settings of the request on which the figures depend."""

    truth: str | None
    """Spec of the ground truth."""
    region: str | None = None
    """The region that is explained, which then is the ground truth."""
    steps: Count
    """Number of steps that hide and show places."""


class MethodFacts(Content):
    """A method of explanation."""

    name: str
    """The name of the method in the rows."""
    title: str
    """Its name for people."""
    settings: dict[str, Any] = {}
    """Its settings."""


class ExplainManifest(Manifest):
    """Manifest of a folder of explanations."""

    request: ExplainSettings
    """All settings of the request."""
    data: DataFacts
    """The data."""
    model: ModelFacts
    """The model."""
    methods: Listing[MethodFacts]
    """The methods."""
    cascade: Listing[Listing[str]] = []
    """The layers that are shuffled at each stage of the cascade."""
    unfit: TableOf[str]
    """Methods that do not fit the model or the data, with the reason."""
    left_out: TableOf[Count]
    """Number of excluded samples, by reason."""
    judge_forwards: Count
    """Forward and backward passes that judged the maps."""
    cell: str = ""
    """Hash of everything that determines the rows."""


LAYOUT = Layout(verb="explain", noun="explanation", version=1, manifest=ExplainManifest, folders=())
BLURRED, INVERSE = ", blurred", ", inverse"
"""Suffixes of the name of a method in the rows of its blurred map and its negated map."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows as columns, each a (rows,) array."""

    method: Array = column("string", "the method as the request names it, or its control")
    sample_id: Array = column("int64", "position of the sample in the data")
    group: Array = column("string", "group of related samples, such as a video; empty without a group")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "class that the model predicts")
    explained: Array = column("int32", "class that the map explains")
    forwards: Array = column("int64", "inputs shown to the model for the map", zero=True)
    backwards: Array = column("int64", "gradients computed for the map", zero=True)
    seconds: Array = column("float64", "wall time, shared evenly by the samples of a batch", zero=True)
    blank: Array = column("bool", "true if the map is constant, which leaves nothing to measure", zero=True)
    dice: Array = column("float64", "Dice with the ground truth, at its area", null=True)
    iou: Array = column("float64", "intersection over union with the ground truth, at its area", null=True)
    best_iou: Array = column("float64", "intersection over union at the best threshold", null=True)
    pointing: Array = column("float64", "1 if the largest value lies on the object, else 0", null=True)
    energy: Array = column("float64", "share of the map's mass on the object", null=True)
    deletion: Array = column(
        "float64", "area under the probability of the class while places are hidden, the most important first", null=True
    )
    insertion: Array = column("float64", "area under that probability while places are shown in that order", null=True)
    carries: Array = column("float64", "smallest share of the places that, shown alone, leads to the class", null=True)
    breaks: Array = column("float64", "smallest share of the places without which another class leads", null=True)
    infidelity: Array = column(
        "float64", "error with which the map predicts the effect of hiding patches: 0 is perfect, 1 predicts nothing", null=True
    )
    sensitivity: Array = column("float64", "largest change of the map under a little noise, divided by its norm", null=True)
    stability: Array = column("float64", "rank correlation with the map of a slightly noisy input", null=True)
    similarity: Array = column("float64", "rank correlation with the map on the model with shuffled weights (sMPRT)", null=True)
    complexity: Array = column("float64", "relative rise of the entropy of the map on that model (eMPRT)", null=True)

    def __len__(self) -> int:
        return len(self.sample_id)


LOCAL = ("dice", "iou", "best_iou", "pointing", "energy")
FAITHFUL = ("deletion", "insertion", "carries", "breaks", "infidelity", "sensitivity", "stability", "similarity", "complexity")
MEASURES = (*LOCAL, *FAITHFUL)
"""Columns that measure a map: its position on the object, and its faithfulness to the model."""


TABLE = Table(LAYOUT, Rows)
MAPS, INPUTS, CASCADE = "maps.safetensors", "inputs.safetensors", "cascade.safetensors"


def load_maps(path: Path, samples: Sequence[int]) -> dict[tuple[str, int], Array]:
    """Load all maps of samples: (*places) float32 by method and sample."""
    names = {str(sample) for sample in samples}
    arrays = read_arrays(path / MAPS, lambda name: name.rpartition("/")[2] in names)
    return {(name.rpartition("/")[0], int(name.rpartition("/")[2])): array for name, array in arrays.items()}


def load_cascade(path: Path, method: str, samples: Sequence[int]) -> Array:
    """Load the rank correlations (n, stages) float64 of the maps of a method with those at each stage of the cascade."""
    arrays = read_arrays(path / CASCADE, lambda name: name.rpartition("/")[0] == method)
    return np.stack([arrays[f"{method}/{sample}"] for sample in samples])


def load_inputs(path: Path, samples: Sequence[int]) -> dict[int, Array]:
    """Load the inputs of samples: (*shape) float32 by sample."""
    names = {str(sample) for sample in samples}
    return {int(name): array for name, array in read_arrays(path / INPUTS, names.__contains__).items()}


def load_truths(path: Path, samples: Sequence[int]) -> dict[int, Array]:
    """Load ground truth by sample: (*places) uint8, 1 on the object, 0 off it, 255 ignored. Samples without it are absent."""
    names = {f"{sample}/truth" for sample in samples}
    arrays = read_arrays(path / INPUTS, names.__contains__)
    return {int(name.partition("/")[0]): array for name, array in arrays.items()}
