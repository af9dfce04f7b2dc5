"""The folder of `brinell epsilon`: manifest.json (what was asked, and what was found of the whole) and arrays by sample.

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
from brinell.manifest import Amount, Content, Count, DataFacts, Listing, Manifest, Named, Number, Share, misfit
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout
from brinell.studies.epsilon import conditions

Norm = Literal["linf", "l2", "l1", "l0"]


class UsualBudget(Content):
    """What a usual budget does to pictures."""

    eps: Amount
    """The budget."""
    text: str
    """The budget as people write it."""
    ssim: float
    """The median structural similarity to the clean picture."""
    psnr: float
    """The median signal-to-noise ratio in dB."""
    background_changed: float | None = None
    """The share of the background that changes."""


class CraftedPicture(Content):
    """An input at the budget of its class, made without a model."""

    label: Count
    """The class of the clean input."""
    sample: Count
    """The position of the clean input in the data."""
    class_eps: float
    """The budget of the class."""
    kind: Literal["between", "within"]
    """Whether it goes towards another class, or within its own."""
    other: Count
    """The position of the input that it goes towards."""
    other_label: Count
    """The class of that input."""
    eps: Amount
    """How far it goes."""
    pred: Count = 0
    """The model's answer."""
    clean_pred: Count = 0
    """Its answer to the clean input."""


class CraftedFacts(Content):
    """Inputs that show what a budget allows."""

    norm: Norm
    """The distance in which they are made."""
    eps: Listing[Amount]
    """The budgets."""
    recommended: Amount | None
    """The recommended one."""
    model: str | None = None
    """The model that classified them."""
    pictures: Listing[CraftedPicture]
    """The inputs."""


class TrainNames(Content):
    """The training data among which neighbours were searched too."""

    name: str
    """The name of the data."""
    n: Count
    """How many samples it holds."""
    spec: str = ""
    """How the data is named, as on the command line."""


class PerceptionFacts(Content):
    """What perceptibility was judged on."""

    by: Literal["people", "attacks", "noise"]
    """What it was judged on."""
    n: Count
    """How many people or examples."""
    folder: str | None
    """The folder of the review or the run."""


class Note(Content):
    """What a reader must know of the data."""

    code: str
    """The code of the note."""
    text: str
    """The sentence."""


class StoredExample(Content):
    """An adversarial example that an audit stored."""

    sample: Count
    """The position of the sample in the data."""
    label: Count
    """The true class."""
    size: float
    """The size of the change."""


class EpsilonManifest(Manifest):
    """What the manifest of a recommendation says."""

    data: DataFacts
    """The data."""
    train: TrainNames | None
    """The training data; null where none was given."""
    norms: Listing[Norm]
    """The distances in which budgets are recommended."""
    conditions: Listing[Literal["label", "interpolation", "perception"]]
    """The conditions under which a budget is sound."""
    fraction: Amount
    """The share of the distance to the nearest sample of another class that a budget may be."""
    allow: Share
    """The share of the samples of a class that its budget may be too large for."""
    perception: Named[PerceptionFacts] = {}
    """What perceptibility was judged on, by distance."""
    ssim: Number
    """The structural similarity from which a change goes unnoticed."""
    psnr: Number
    """The signal-to-noise ratio in dB from which it does."""
    pairs: Count
    """Samples of each class that are drawn; 0 for all."""
    drawn: Count
    """Samples that were drawn."""
    seed: Count
    """The seed of every random number."""
    usual: Named[Listing[UsualBudget]]
    """What usual budgets do to pictures, by distance."""
    background: Number | None
    """The value of the background of pictures."""
    background_share: Share | None
    """The share of values that are background."""
    notes: Listing[Note]
    """What a reader must know of the data."""
    seconds: Amount
    """Wall time."""
    request: dict[str, Any] = {}
    """Every setting that was asked for."""
    stored: Listing[StoredExample] = []
    """Adversarial examples of an audit that are shown."""
    crafted: CraftedFacts
    """Inputs that show what a budget allows."""

    @model_validator(mode="after")
    def _fits(self) -> "EpsilonManifest":
        if not self.norms or not self.conditions:
            raise misfit("lists no norm or no condition")
        return self


LAYOUT = Layout(verb="epsilon", what="recommendation", version=1, manifest=EpsilonManifest, resumable=False)
ARRAYS = ("samples", "means", "crafted")


def save_folder(folder: Path, facts: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Array]]) -> None:
    """Write arrays, then the facts: a folder with facts is whole.

    Raises:
        StoppedError: it cannot be written.
    """
    for name, tensors in arrays.items():
        write_arrays(folder / "arrays" / f"{name}.safetensors", tensors)
    LAYOUT.save(folder, facts)


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run or another recommendation, whose page would be overwritten.

    Raises:
        RequestError: it does.
    """
    LAYOUT.begin(folder)


def load_folder(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Facts and arrays.

    Raises:
        RequestError: no such folder, or a damaged one.
    """
    return LAYOUT.open(folder), {name: read_arrays(folder / "arrays" / f"{name}.safetensors") for name in ARRAYS}


def limits_of(facts: Mapping[str, Any], samples: Mapping[str, Array], norm: str) -> dict[str, Array]:
    """The limits of every condition that was looked at, for each sample.

    Raises:
        RequestError: a norm whose neighbours were not searched.
    """
    if norm not in facts["norms"]:
        raise RequestError(
            f"nothing is recommended for {norm}, only for {', '.join(facts['norms'])}: make it with {option('norm', norm)}"
        )

    if f"{norm}.other" not in samples or f"{norm}.same" not in samples:
        raise RequestError(f"arrays/samples.safetensors holds no distances in {norm}, which manifest.json lists: make it anew")

    def nearest(side: str) -> Array:
        own, train = samples[f"{norm}.{side}"], samples.get(f"{norm}.train_{side}")
        return own if train is None else np.minimum(own, train)

    found = conditions.limits(
        other=nearest("other"), same=nearest("same"), unnoticed=samples.get(f"{norm}.unnoticed"), fraction=facts["fraction"]
    )
    return conditions.chosen(found, facts["conditions"])
