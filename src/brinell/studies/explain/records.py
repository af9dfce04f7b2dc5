"""A folder of explanations: one row per sample and method, and the maps behind them (design/0022-explain.md).

run.toml               the request
manifest.json          the same, the data, the model, the methods and what was left out
rows.parquet           one row per sample and method
maps.safetensors       METHOD/SAMPLE: the map (*places), float32
cascade.safetensors    METHOD/SAMPLE: (stages,) float64, rank correlation with the map at each stage of the cascade; if asked for
inputs.safetensors     SAMPLE: the input (*shape), float32; SAMPLE/truth: the ground truth (*places), uint8
report.html            the page; made from the files above
.parts/                while it is made: what is done (`runners.parts`)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.record import Array, column
from brinell.manifest import Content, Count, DataFacts, Listing, Manifest, ModelFacts, Named
from brinell.store.files import read_arrays
from brinell.store.folder import Layout
from brinell.store.table import Table


class ExplainSettings(Content):
    """What the figures need of the request."""

    truth: str | None
    """Where the ground truth comes from."""
    steps: Count
    """Steps in which places are hidden and shown."""


class MethodFacts(Content):
    """A method of explanation."""

    name: str
    """The name of the method in the rows."""
    title: str
    """Its name for people."""
    settings: dict[str, Any] = {}
    """Its settings."""


class ExplainManifest(Manifest):
    """What the manifest of explanations says."""

    request: ExplainSettings
    """Every setting that was asked for."""
    data: DataFacts
    """The data."""
    model: ModelFacts
    """The model."""
    methods: Listing[MethodFacts]
    """The methods."""
    cascade: Listing[Listing[str]] = []
    """The layers that are shuffled at each stage of the cascade."""
    unfit: Named[str]
    """Methods that do not fit model or data, and why."""
    left_out: Named[Count]
    """Samples that are left out, by reason."""
    judge_forwards: Count
    """Forward evaluations that judging cost."""
    cell: str = ""
    """The hash of all that the rows depend on."""


LAYOUT = Layout(verb="explain", what="explanation", version=1, manifest=ExplainManifest, folders=())
BLURRED, INVERSE = ", blurred", ", inverse"
"""What follows the name of a method in rows about its map blurred, and about the opposite of its map."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows as columns, each a (rows,) array."""

    method: Array = column("string", "the method, as it was asked for; or its control")
    sample_id: Array = column("int64", "position of the sample in the data")
    group: Array = column("string", "what the sample belongs together with, such as a video; empty for itself alone")
    label: Array = column("int32", "true class")
    prediction: Array = column("int32", "class that the model predicts")
    explained: Array = column("int32", "class that the map explains")
    forwards: Array = column("int64", "inputs shown to the model for the map", zero=True)
    backwards: Array = column("int64", "gradients taken for it", zero=True)
    seconds: Array = column("float64", "wall time, shared evenly by the samples of a batch", zero=True)
    blank: Array = column("bool", "whether the map is the same everywhere, so that nothing can be judged", zero=True)
    dice: Array = column("float64", "Dice with the ground truth, at its area", null=True)
    iou: Array = column("float64", "intersection over union with it, at its area", null=True)
    best_iou: Array = column("float64", "the same at the best threshold", null=True)
    pointing: Array = column("float64", "1 where the largest value lies on the object, else 0", null=True)
    energy: Array = column("float64", "share of the map's mass on the object", null=True)
    deletion: Array = column(
        "float64", "area under the class's probability while places are hidden, the most important first", null=True
    )
    insertion: Array = column("float64", "area under it while places are shown in that order", null=True)
    carries: Array = column("float64", "smallest share of the places that, shown alone, leads to the class", null=True)
    breaks: Array = column("float64", "smallest share of the places without which another class leads", null=True)
    infidelity: Array = column(
        "float64", "how badly the map predicts what hiding patches does: 0 perfectly, 1 not at all", null=True
    )
    sensitivity: Array = column("float64", "largest change of the map under a little noise, over its length", null=True)
    stability: Array = column("float64", "rank correlation with the map of the input with a little noise", null=True)
    similarity: Array = column("float64", "rank correlation with the map on the model with shuffled weights (sMPRT)", null=True)
    complexity: Array = column("float64", "rise of the map's entropy on that model, in shares of its own (eMPRT)", null=True)

    def __len__(self) -> int:
        return len(self.sample_id)


LOCAL = ("dice", "iou", "best_iou", "pointing", "energy")
FAITHFUL = ("deletion", "insertion", "carries", "breaks", "infidelity", "sensitivity", "stability", "similarity", "complexity")
MEASURES = (*LOCAL, *FAITHFUL)
"""The columns that judge a map: where it lies, and whether the model follows it."""


TABLE = Table(LAYOUT, Rows)
MAPS, INPUTS, CASCADE = "maps.safetensors", "inputs.safetensors", "cascade.safetensors"


def load_maps(path: Path, samples: Sequence[int]) -> dict[tuple[str, int], Array]:
    """(*places) float32 by method and sample: all maps of these samples, read in one go."""
    wanted = {str(sample) for sample in samples}
    found = read_arrays(path / MAPS, lambda name: name.rpartition("/")[2] in wanted)
    return {(name.rpartition("/")[0], int(name.rpartition("/")[2])): one for name, one in found.items()}


def load_cascade(path: Path, method: str, samples: Sequence[int]) -> Array:
    """(n, stages) float64: the rank correlation of the maps of a method with those at each stage of the cascade."""
    found = read_arrays(path / CASCADE, lambda name: name.rpartition("/")[0] == method)
    return np.stack([found[f"{method}/{sample}"] for sample in samples])


def load_inputs(path: Path, samples: Sequence[int]) -> dict[int, Array]:
    """(*shape) float32: the inputs of these samples."""
    names = {str(sample) for sample in samples}
    return {int(name): array for name, array in read_arrays(path / INPUTS, names.__contains__).items()}


def load_truths(path: Path, samples: Sequence[int]) -> dict[int, Array]:
    """(*places) uint8: 1 on the object, 0 off it, 255 ignored; nothing of samples without ground truth."""
    names = {f"{sample}/truth" for sample in samples}
    found = read_arrays(path / INPUTS, names.__contains__)
    return {int(name.partition("/")[0]): one for name, one in found.items()}
