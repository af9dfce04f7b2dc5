"""The folder of `brinell epsilon`: epsilon.json (what was asked, and what was found of the whole) and arrays by sample.

`arrays/samples.safetensors` holds (n,) arrays: `labels`, and for each norm `NORM.same`, `NORM.same_at`, `NORM.other` and
`NORM.other_at` (distances, and positions in the data), `NORM.unnoticed`, and with training data `NORM.train_same` and
`NORM.train_other`. `means` holds for each norm the mean distance between classes; `crafted` the counter-examples.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import load_file, save

from brinell.core.errors import RequestError
from brinell.store.files import write_atomically, write_text
from brinell.studies.epsilon import conditions

Array = np.ndarray[Any, Any]
SCHEMA_VERSION = 1
FACTS = "epsilon.json"
ARRAYS = ("samples", "means", "crafted")


def save_folder(folder: Path, facts: Mapping[str, Any], arrays: Mapping[str, Mapping[str, Array]]) -> None:
    """Write arrays, then the facts: a folder with facts is whole.

    Raises:
        RequestError: the folder holds a run or another analysis.
        StoppedError: it cannot be written.
    """
    check_free(folder)
    for name, tensors in arrays.items():
        content = save({key: np.ascontiguousarray(value) for key, value in tensors.items()})
        write_atomically(folder / "arrays" / f"{name}.safetensors", functools.partial(Path.write_bytes, data=content))
    write_text(folder / FACTS, json.dumps({"schema": SCHEMA_VERSION, **facts}, indent=1, ensure_ascii=False) + "\n")


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run or another analysis.

    Raises:
        RequestError: it does.
    """
    for name in (FACTS, "manifest.json"):
        if (folder / name).exists():
            raise RequestError(f"{folder} holds {name} already: choose another --out")


def load_folder(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Facts and arrays.

    Raises:
        RequestError: no such folder, or a damaged one.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA_VERSION:
            raise RequestError(f"{folder} was written by another version of brinell: make it anew with brinell epsilon")
        return facts, {name: load_file(folder / "arrays" / f"{name}.safetensors") for name in ARRAYS}
    except FileNotFoundError as error:
        raise RequestError(
            f"{folder} is no folder of brinell epsilon ({Path(error.filename or FACTS).name} is missing)"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, OSError, safetensors.SafetensorError) as error:
        raise RequestError(f"{folder} is damaged ({error}): make it anew with brinell epsilon") from None


def limits_of(facts: Mapping[str, Any], samples: Mapping[str, Array], norm: str) -> dict[str, Array]:
    """The limits of every condition that was looked at, for each sample.

    Raises:
        RequestError: a norm whose neighbours were not searched.
    """
    if norm not in facts["norms"]:
        raise RequestError(f"nothing is recommended for {norm}, only for {', '.join(facts['norms'])}: make it with --norm {norm}")

    def nearest(side: str) -> Array:
        own, train = samples[f"{norm}.{side}"], samples.get(f"{norm}.train_{side}")
        return own if train is None else np.minimum(own, train)

    found = conditions.limits(
        other=nearest("other"), same=nearest("same"), unnoticed=samples.get(f"{norm}.unnoticed"), fraction=facts["fraction"]
    )
    return conditions.chosen(found, facts["conditions"])
