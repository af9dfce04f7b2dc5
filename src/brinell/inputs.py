"""Converts user objects to the input of an audit: settings as texts, models of any library, data of
any form.

The conversions are next to the plugins of their kind: `models._objects`, `datasets._memory`.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.contracts import Dataset
from brinell.core.domain import Kind
from brinell.core.errors import RequestError, in_python, short
from brinell.core.maite import metadata_of
from brinell.core.model import Model
from brinell.datasets._arrays import BoundsError, Layout
from brinell.datasets._memory import Bounds, Missing, from_arrays
from brinell.datasets._region import restrict
from brinell.engine.mistakes import explain
from brinell.engine.request import IN_MEMORY
from brinell.engine.sources import open_data
from brinell.models._answers import KINDS, LogitModel
from brinell.models._class_order import in_order_of
from brinell.models._objects import maite_metadata, preparation, wrap
from brinell.models._outputs import Output
from brinell.models._transformers import is_pipeline, is_processor

Data = Dataset | tuple[Any, Any] | str


# Data


@in_python
def data(
    x: Any,
    y: Any = None,
    *,
    classes: Sequence[str] | None = None,
    kind: Kind | None = None,
    layout: Layout | None = None,
    bounds: Bounds | None = None,
    divide: float | None = None,
    masks: Any = None,
    boxes: Any = None,
    missing: Missing = "refuse",
    region: Any = None,
    name: str = "arrays",
) -> Dataset:
    """Inputs and labels as data for any call of Brinell, with the settings that arrays do not show.

    `brinell.audit(model, (x, y))` does this by itself wherever nothing has to be said.

    Args:
        x: (n, *shape) arrays or tensors, a data frame of numbers; or with `y` left out a dict, a
            torch Dataset or DataLoader, a Hugging Face dataset. Bytes are divided by 255, other
            values lie in [0, 1] unless there are bounds.
        y: (n,) labels: whole numbers from 0 on, or texts.
        classes: names of the classes, in the order of the model's answers.
        kind: image, signal, video or vector.
        layout: where the channels are, first or last.
        bounds: (low, high) in the units of `x`, after the division; for vectors also one for each
            column, or "columns" for their own ranges.
        divide: number by which the inputs are divided; the model gets the quotients.
        masks: (n, h, w) whole numbers, the class of each pixel in place of `y`; 255 where a pixel
            has none.
        boxes: for each picture a dict of boxes (k, 4) as x0, y0, x1, y1 in its pixels, labels (k,)
            and optionally crowd (k,), in place of `y`.
        missing: keep gives the model NaN where a column of a frame has no value, and no attack
            changes it; skip leaves such rows out.
        region: what attacks may change: (left, top, right, bottom) in pixels, (start, stop) in
            values of a signal, or a mask of the shape of an input; by default everything.
        name: how reports call it.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    if isinstance(x, str | Path):
        raise RequestError(
            f"{str(x)!r} is a spec, which names data by itself: give it to the call, as in "
            f"brinell.audit(model, {str(x)!r})"
        )
    # One truth for each picture: two of them could contradict each other.
    if sum(truth is not None for truth in (y, masks, boxes)) > 1:
        raise RequestError(
            "y holds a class for each picture, masks one for each pixel, and "
            "boxes the objects: give one of the three"
        )

    settings = {
        "kind": kind,
        "layout": layout,
        "bounds": bounds,
        "divide": divide,
        "masks": masks,
        "boxes": boxes,
    }
    try:
        dataset = from_arrays(x, y, classes, name=name, missing=missing, **settings)
    # Bounds that do not fit are the most frequent mistake, so the whole call to write is said.
    except BoundsError as error:
        source = "x, y" if y is not None or isinstance(x, tuple) else "data"
        raise explain(error, partial(_call_of_data, source)) from None
    return dataset if region is None else restrict(dataset, region)


def _call_of_data(source: str, options: Mapping[str, Any]) -> str:
    """The call of `brinell.data` with further options, for a remedy."""
    texts = {
        name: repr(value) if name in ("kind", "layout") else value
        for name, value in options.items()
    }
    if {"low", "high"} <= texts.keys():
        texts["bounds"] = f"({texts.pop('low')}, {texts.pop('high')})"
    return f"brinell.data({source}, {', '.join(f'{name}={text}' for name, text in texts.items())})"


def open_dataset(value: Any) -> Dataset | None:
    """Data given in Python as a data set; None for a spec, which the plan opens."""
    if isinstance(value, str | Path):
        return None
    if isinstance(value, Dataset):
        return value
    metadata = metadata_of(value)
    return data(value) if metadata is None else data(value, name=metadata.name)


def spec_of(value: Any, dataset: Dataset | None) -> str:
    """Text for the data in a request: their spec, or a note that they were given in memory."""
    return (
        str(value)
        if isinstance(value, str | Path)
        else f"{IN_MEMORY}:{dataset.name if dataset else ''}"
    )


# Models


def models_of(
    model: Any,
    dataset: Dataset | None,
    spec: str,
    *,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: Output = None,
    in_order: bool = True,
) -> tuple[Model, ...]:
    """Convert models given in Python, each over the domain of the data; no models for specs."""
    # An exported program is no module, but holds one.
    models_by_name = {
        name: entry.module() if isinstance(entry, torch.export.ExportedProgram) else entry
        for name, entry in _models_by_name(model).items()
    }
    if not models_by_name:
        settings = {"preprocessing": preprocessing, "mean": mean, "std": std}
        _check_specs(settings, answers, output)
        return ()
    if not isinstance(output, str | int | None):
        raise RequestError(
            f"output is {short(output)}: give a name or a place in the answer, "
            "such as 'logits' or 0"
        )
    if not isinstance(answers, str | None) or answers not in (None, "labels", *KINDS):
        raise RequestError(f"answers is {short(answers)}; it is one of labels, {', '.join(KINDS)}")

    dataset = dataset or open_data(spec, truth=True)
    prepared = preparation(preprocessing, mean, std, dataset.domain)
    models = [
        wrap(model, dataset, name, prepared, answers, output)
        for name, model in models_by_name.items()
    ]
    models = [
        model if answers in (None, "labels") else LogitModel(model, str(answers))
        for model in models
    ]
    return tuple(in_order_of(model, dataset) if in_order else model for model in models)


def _check_specs(settings: Mapping[str, Any], answers: Any, output: Any) -> None:
    """Refuse keywords about models in memory where specs are given."""
    if unsupported := [key for key, value in settings.items() if value is not None]:
        raise RequestError(
            f"{unsupported[0]} is for models in memory; a spec says it "
            "itself, such as onnx:FILE?mean=0.5&std=0.25"
        )
    if answers is not None:
        raise RequestError(
            "answers says what a model in memory answers; a spec says it "
            "itself, ...?answers=probabilities"
        )
    if output is not None:
        raise RequestError(
            "output is for models in memory; a spec says it itself, such as "
            "torch:FILE.py:net?output=0"
        )


def _models_by_name(model: Any) -> dict[str, Any]:
    """The models in memory by their names; none where specs are given."""
    if isinstance(model, str | Path):
        return {}
    if isinstance(model, dict | list | tuple) and not model:
        is_dict = isinstance(model, dict)
        remedy = "give {'name': model}" if is_dict else "give at least one"
        raise RequestError(f"the {'dict' if is_dict else 'list'} of models is empty: {remedy}")

    if isinstance(model, list | tuple):
        if all(isinstance(entry, str | Path) for entry in model):
            return {}
        pairs = _named(model)
    elif isinstance(model, dict):
        pairs = {str(name): entry for name, entry in model.items()}
    else:
        pairs = {name_of(model): model}
    if specs := [str(entry) for entry in pairs.values() if isinstance(entry, str | Path)]:
        raise RequestError(
            f"{specs[0]!r} is a spec among models in memory: give all as specs in "
            "a list, or all as objects"
        )
    return pairs


def _named(models: Sequence[Any]) -> dict[str, Any]:
    """Models by their names; of several with one name the later ones have numbers."""
    pairs: dict[str, Any] = {}
    for model in models:
        name = name_of(model)
        numbered = (f"{name}-{number}" if number > 1 else name for number in count(1))
        pairs[next(free for free in numbered if free not in pairs)] = model
    return pairs


def name_of(model: Any) -> str:
    """Name in reports of a model without a name."""
    # A torch module may have an attribute `name` that is a layer or a method.
    if (
        isinstance(name_attribute := getattr(model, "name", None), str)
        and not isinstance(model, nn.Module)
        and name_attribute
    ):
        return name_attribute
    if is_pipeline(model):
        return type(model.model).__name__
    if (metadata := maite_metadata(model)) is not None:
        return metadata.name
    # A partial is known by its function, and a lambda has brackets around its name.
    name = getattr(getattr(model, "func", model), "__name__", None) or type(model).__name__
    return str(name).strip("<>")


# What a request and a manifest say


def specs_of(model: Any, models: tuple[Model, ...]) -> tuple[str, ...]:
    """Texts for the models in a request: their specs, or notes that they were given in memory."""
    if models:
        return tuple(f"{IN_MEMORY}:{model_in_memory.name}" for model_in_memory in models)
    return tuple(str(spec) for spec in model) if isinstance(model, list | tuple) else (str(model),)


def preparation_text(value: Any) -> str:
    """A setting as a user types it; a processor by its `repr`, others without a text by type."""
    try:
        return _setting_text(value)
    except Exception:
        # The text of a foreign object is foreign code.
        return short(value)


def _setting_text(value: Any) -> str:
    """A setting as text: a mapping, an array, an enumeration, or anything with a `repr`."""
    if is_processor(value):
        settings = ", ".join(
            f"{key}={preparation_text(setting)}" for key, setting in value.to_dict().items()
        )
        return f"{type(value).__name__}({settings})"
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{key!r}: {preparation_text(setting)}" for key, setting in value.items())
            + "}"
        )

    # A tensor prints cut short; a list shows every number.
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    value = value.value if isinstance(value, Enum) else value
    return repr(str(value) if isinstance(value, Path | torch.device) else value)
