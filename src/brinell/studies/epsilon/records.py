"""The folder of `brinell epsilon`: epsilon.json (what was asked, and what was found of the whole) and arrays by sample.

`arrays/samples.safetensors` holds (n,) arrays: `labels`, and for each norm `NORM.same`, `NORM.same_at`, `NORM.other` and
`NORM.other_at` (distances, and positions in the data), `NORM.unnoticed`, and with training data `NORM.train_same` and
`NORM.train_other`. `means` holds for each norm the mean distance between classes; `crafted` the counter-examples.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core import facts
from brinell.core.errors import RequestError, option
from brinell.core.form import Count, Number, Word
from brinell.core.record import Array
from brinell.store import run
from brinell.store.files import read_arrays, write_arrays
from brinell.store.folder import Layout
from brinell.studies.epsilon import conditions

_NORM = Word("linf", "l2", "l1", "l0")
_USUAL = {"eps": Number(0), "text": str, "ssim": float, "psnr": float, "background_changed?": (float, None)}
_CRAFTED = {
    "label": Count(),
    "sample": Count(),
    "class_eps": float,
    "kind": Word("between", "within"),
    "other": Count(),
    "other_label": Count(),
    "eps": Number(0),
    "pred?": Count(),
    "clean_pred?": Count(),
}
FORM: dict[str, Any] = {
    "data": facts.DATA,
    "train": ({"name": str, "n": Count(), "spec?": str}, None),
    "norms": [_NORM],
    "conditions": [Word(*conditions.CONDITIONS)],
    "fraction": Number(0),
    "allow": Number(0, 1),
    "perception?": {str: {"by": Word("people", "attacks", "noise"), "n": Count(), "folder": (str, None)}},
    "ssim": Number(),
    "psnr": Number(),
    "pairs": Count(),
    "drawn": Count(),
    "seed": Count(),
    "usual": {str: [_USUAL]},
    "background": (Number(), None),
    "background_share": (Number(0, 1), None),
    "notes": [{"code": str, "text": str}],
    "seconds": Number(0),
    "request?": dict,
    "stored?": [{"sample": Count(), "label": Count(), "size": float}],
    "crafted": {
        "norm": _NORM,
        "eps": [Number(0)],
        "recommended": (Number(0), None),
        "model?": (str, None),
        "pictures": [_CRAFTED],
    },
}
"""What epsilon.json says."""


def _misfit(found: Mapping[str, Any]) -> str | None:
    if not found["norms"] or not found["conditions"]:
        return "no norm or no condition is listed"
    return facts.misfit(found["data"])


LAYOUT = Layout(
    what="recommendation",
    verb="brinell epsilon",
    version=1,
    manifest="epsilon.json",
    form=FORM,
    misfit=_misfit,
    resumable=False,
)
ARRAYS = ("samples", "means", "crafted")


def save_folder(folder: Path, facts: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Array]]) -> None:
    """Write arrays, then the facts: a folder with facts is whole.

    Raises:
        StoppedError: it cannot be written.
    """
    for name, tensors in arrays.items():
        write_arrays(folder / "arrays" / f"{name}.safetensors", tensors)
    LAYOUT.save(folder, {LAYOUT.version_key: LAYOUT.version, **facts})


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run or another recommendation, whose page would be overwritten.

    Raises:
        RequestError: it does.
    """
    LAYOUT.begin(folder)
    run.LAYOUT.begin(folder)


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
        raise RequestError(f"arrays/samples.safetensors holds no distances in {norm}, which epsilon.json lists: make it anew")

    def nearest(side: str) -> Array:
        own, train = samples[f"{norm}.{side}"], samples.get(f"{norm}.train_{side}")
        return own if train is None else np.minimum(own, train)

    found = conditions.limits(
        other=nearest("other"), same=nearest("same"), unnoticed=samples.get(f"{norm}.unnoticed"), fraction=facts["fraction"]
    )
    return conditions.chosen(found, facts["conditions"])
