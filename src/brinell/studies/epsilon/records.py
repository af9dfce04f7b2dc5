"""The folder of `brinell epsilon`: manifest.json (request and results for the data set) and arrays by sample.

`arrays/samples.safetensors` holds (n,) arrays: `labels`, and for each norm `NORM.same`, `NORM.same_at`, `NORM.other` and
`NORM.other_at` (distances, and positions in the data), `NORM.unnoticed`, and with training data `NORM.train_same` and
`NORM.train_other`. `means` holds for each norm the mean distance between classes; `crafted` the counter-examples.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.manifest import Amount, Content, Count, DataFacts, Listing, Manifest, Number, Share, TableOf, misfit
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout
from brinell.studies.epsilon import EpsilonRequest, conditions

Norm = Literal["linf", "l2", "l1", "l0"]
NORMS = ("linf", "l2", "l1", "l0")


class UsualBudget(Content):
    """Effect of a usual budget on pictures."""

    eps: Amount
    """The budget."""
    text: str
    """The budget as text."""
    ssim: float
    """The median structural similarity to the clean picture."""
    psnr: float
    """The median signal-to-noise ratio in dB."""
    background_changed: float | None = None
    """The median share of the background that changes; null without background."""


class CraftedPicture(Content):
    """A counter-example that is crafted without a model."""

    label: Count
    """The class of the clean input."""
    sample: Count
    """The position of the clean input in the data."""
    class_eps: float
    """The budget of the class."""
    kind: Literal["between", "within"]
    """Direction of the change: `between` towards another class, `within` towards a sample of the same class."""
    second: Count
    """The position of the input towards which it changes."""
    second_label: Count
    """The class of that input."""
    eps: Amount
    """The size of the change."""
    pred: Count = 0
    """The predicted class of the counter-example."""
    clean_pred: Count = 0
    """The predicted class of the clean input."""


class CraftedFacts(Content):
    """Counter-examples that show which changes a budget allows."""

    norm: Norm
    """The norm of their budgets."""
    eps: Listing[Amount]
    """The budgets."""
    recommended: Amount | None
    """The recommended budget; null without a limit."""
    model: str | None = None
    """The model that classified them."""
    pictures: Listing[CraftedPicture]
    """The counter-examples."""


class TrainNames(Content):
    """The training data that also provide neighbours."""

    name: str
    """The name of the data."""
    n: Count
    """The number of samples."""
    spec: str = ""
    """The spec of the data, as on the command line."""


class PerceptionFacts(Content):
    """Evidence for perceptibility in one norm."""

    by: Literal["people", "attacks", "noise"]
    """The kind of evidence."""
    n: Count
    """The number of answers or samples."""
    folder: str | None
    """The folder of the review or the run; null for noise."""


class Note(Content):
    """A note on the data."""

    code: str
    """The code of the note."""
    text: str
    """The note as one sentence."""


class StoredExample(Content):
    """A stored adversarial example of an audit."""

    sample: Count
    """The position of the sample in the data."""
    label: Count
    """The true class."""
    size: float
    """The size of the change."""


class EpsilonManifest(Manifest):
    """Manifest of a recommendation."""

    data: DataFacts
    """The data."""
    train: TrainNames | None
    """The training data; null without training data."""
    norms: Listing[Norm]
    """The norms of the recommended budgets."""
    conditions: Listing[Literal["label", "interpolation", "perception"]]
    """The conditions of a recommended budget."""
    perception: TableOf[PerceptionFacts] = {}
    """Evidence for perceptibility, by norm."""
    subset_size: Count
    """The number of samples in the subset that measures means and perceptibility."""
    usual: TableOf[Listing[UsualBudget]]
    """Effects of usual budgets on pictures, by norm."""
    background: Number | None
    """The background value of pictures; null without background."""
    background_share: Share | None
    """The share of values that are background."""
    notes: Listing[Note]
    """Notes on the data."""
    seconds: Amount
    """Wall time."""
    request: EpsilonRequest
    """All settings."""
    stored: Listing[StoredExample] = []
    """Stored adversarial examples of an audit on the page."""
    crafted: CraftedFacts
    """Counter-examples that show which changes a budget allows."""

    @model_validator(mode="after")
    def _fits(self) -> "EpsilonManifest":
        """Check that norms and conditions are listed."""
        if not self.norms or not self.conditions:
            raise misfit("lists no norm or no condition")
        return self


LAYOUT = Layout(verb="epsilon", noun="recommendation", version=1, manifest=EpsilonManifest, resumable=False)
ARRAYS = ("samples", "means", "crafted")


def save_folder(folder: Path, facts: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Array]]) -> None:
    """Write the arrays, then the facts. A folder with facts is therefore complete.

    Raises:
        StoppedError: the folder cannot be written.
    """
    for name, tensors in arrays.items():
        write_arrays(folder / "arrays" / f"{name}.safetensors", tensors)
    LAYOUT.save(folder, facts)


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run or another recommendation, whose page would be overwritten.

    Raises:
        RequestError: the folder contains a run or a recommendation.
    """
    LAYOUT.begin(folder)


def load_folder(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Load the facts and arrays of a folder.

    Raises:
        RequestError: the folder does not exist or is damaged.
    """
    return LAYOUT.open(folder), {name: read_arrays(folder / "arrays" / f"{name}.safetensors") for name in ARRAYS}


def sample_limits(facts: Mapping[str, Any], samples: Mapping[str, Array], norm: str) -> dict[str, Array]:
    """Limits (n,) of eps by condition, for each sample.

    Args:
        facts: facts of the manifest.
        samples: arrays by sample.
        norm: the norm.

    Raises:
        RequestError: the folder contains no neighbours in this norm.
    """
    if norm not in facts["norms"]:
        raise RequestError(
            f"nothing is recommended for {norm}, only for {', '.join(facts['norms'])}: "
            f"run brinell epsilon with {option('norm', norm)}"
        )

    if f"{norm}.other" not in samples or f"{norm}.same" not in samples:
        raise RequestError(
            f"arrays/samples.safetensors has no distances in {norm}, which manifest.json lists: run brinell epsilon again"
        )

    def nearest(side: str) -> Array:
        """(n,): distance to the nearest sample, training data included."""
        distances, train = samples[f"{norm}.{side}"], samples.get(f"{norm}.train_{side}")
        return distances if train is None else np.minimum(distances, train)

    limits = conditions.limits(
        other_class=nearest("other"),
        same_class=nearest("same"),
        unnoticed=samples.get(f"{norm}.unnoticed"),
        fraction=facts["request"]["fraction"],
    )
    return conditions.select_limits(limits, facts["conditions"])
