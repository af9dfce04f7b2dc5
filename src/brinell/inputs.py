"""Converts user objects to the input of an audit: settings as texts, models of any library, data of any form.

The type of an object decides, never a trial: an object that fits no type, or two, is refused in one line. The conversions are
next to the plugins of their kind (`models._function`, `models._transformers`, `datasets._memory`).
"""

import copy
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core import bounded
from brinell.core.contracts import Dataset
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, in_python, one_line, short
from brinell.core.maite import Metadata, metadata_of
from brinell.core.model import Model
from brinell.core.values import as_array
from brinell.datasets._arrays import BoundsError, Layout
from brinell.datasets._memory import ArrayDataset, Bounds, Missing, from_arrays
from brinell.engine.mistakes import explain
from brinell.engine.request import IN_MEMORY
from brinell.engine.sources import open_data
from brinell.models._answers import KINDS, LogitModel
from brinell.models._class_order import in_order_of
from brinell.models._content import digest_of
from brinell.models._function import FunctionModel
from brinell.models._maite import MaiteFunction
from brinell.models._outputs import Output
from brinell.models._torch_model import TorchModel
from brinell.models._transformers import is_pipeline, is_processor, unpack_pipeline, with_processor, without_processor

Data = Dataset | tuple[Any, Any] | str
FORMS = (
    "a torch module, a function of arrays, a fitted scikit-learn classifier, an onnxruntime session, a pipeline of transformers, "
    "a model of MAITE, a spec such as torch:FILE.py:FACTORY, or a list or dict of these"
)


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
    name: str = "arrays",
) -> Dataset:
    """Inputs and labels as data for any call of Brinell, with the settings that arrays do not show.

    `brinell.audit(model, (x, y))` does this by itself wherever nothing has to be said.

    Args:
        x: (n, *shape) arrays or tensors, a data frame of numbers; or with `y` left out a dict, a torch Dataset or DataLoader, a
            Hugging Face dataset. Bytes are divided by 255, other values lie in [0, 1] unless there are bounds.
        y: (n,) labels: whole numbers from 0 on, or texts.
        classes: names of the classes, in the order of the model's answers.
        kind: image, signal, video or vector.
        layout: where the channels are, first or last.
        bounds: (low, high) in the units of `x`, after the division; for vectors also one for each column, or "columns" for their
            own ranges.
        divide: number by which the inputs are divided; the model gets the quotients.
        masks: (n, h, w) whole numbers, the class of each pixel in place of `y`; 255 where a pixel has none.
        boxes: for each picture a dict of boxes (k, 4) as x0, y0, x1, y1 in its pixels, labels (k,) and optionally crowd (k,), in
            place of `y`.
        missing: keep gives the model NaN where a column of a frame has no value, and no attack changes it; skip leaves such rows
            out.
        name: how reports call it.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    if sum(truth is not None for truth in (y, masks, boxes)) > 1:
        raise RequestError(
            "y holds a class for each picture, masks one for each pixel, and boxes the objects: give one of the three"
        )
    settings = {"kind": kind, "layout": layout, "bounds": bounds, "divide": divide, "masks": masks, "boxes": boxes}
    try:
        return from_arrays(x, y, classes, name=name, missing=missing, **settings)
    except BoundsError as error:
        source = "x, y" if y is not None or isinstance(x, tuple) else "data"
        raise explain(error, partial(_call_of_data, source)) from None


def _call_of_data(source: str, options: Mapping[str, Any]) -> str:
    texts = {name: repr(value) if name in ("kind", "layout") else value for name, value in options.items()}
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
    """Text for the data in a request: their spec, or a note that they were given in memory, with their name."""
    return str(value) if isinstance(value, str | Path) else f"{IN_MEMORY}:{dataset.name if dataset else ''}"


# Models


def _numbers(key: str, value: Any) -> np.ndarray[Any, Any]:
    numbers = as_array(value, f"numbers of {key}") if not isinstance(value, str) else np.array(value)
    if numbers.dtype.kind not in "iuf" or not numbers.size or not np.isfinite(numbers).all():
        raise RequestError(f"{key} is {short(value)}: it is a number, or one number for each channel")
    return numbers


def preparation(preprocessing: Any, mean: Any, std: Any, domain: Domain) -> Any:
    """Preprocessing of the model as one value: a processor, or foolbox's mapping with numbers as lists."""
    if mean is None and std is None:
        return preprocessing
    if preprocessing is not None:
        raise RequestError("mean and std are given twice: by themselves, and by preprocessing; leave one of the two out")
    settings: dict[str, Any] = {}
    for key, value in (("mean", mean), ("std", std)):
        if value is None:
            continue
        numbers = _numbers(key, value)
        settings[key] = float(numbers.item()) if numbers.size == 1 else numbers.ravel().astype(float).tolist()
        if numbers.size > 1:
            settings["axis"] = -len(domain.shape)
    return settings


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
    """Convert models given in Python, each over the domain of the data; returns an empty tuple for specs."""
    models_by_name = {
        name: entry.module() if isinstance(entry, torch.export.ExportedProgram) else entry
        for name, entry in _models_by_name(model).items()
    }
    if not models_by_name:
        settings = {"preprocessing": preprocessing, "mean": mean, "std": std}
        if unsupported := [key for key, value in settings.items() if value is not None]:
            raise RequestError(
                f"{unsupported[0]} is for models in memory; a spec says it itself, such as onnx:FILE?mean=0.5&std=0.25"
            )
        if answers is not None:
            raise RequestError("answers says what a model in memory answers; a spec says it itself, ...?answers=probabilities")
        if output is not None:
            raise RequestError("output is for models in memory; a spec says it itself, such as torch:FILE.py:net?output=0")
        return ()
    if not isinstance(output, str | int | None):
        raise RequestError(f"output is {short(output)}: give a name or a place in the answer, such as 'logits' or 0")
    if not isinstance(answers, str | None) or answers not in (None, "labels", *KINDS):
        raise RequestError(f"answers is {short(answers)}; it is one of labels, {', '.join(KINDS)}")
    dataset = dataset or open_data(spec, truth=True)
    prepared = preparation(preprocessing, mean, std, dataset.domain)
    models = [_wrap(model, dataset, name, prepared, answers, output) for name, model in models_by_name.items()]
    models = [model if answers in (None, "labels") else LogitModel(model, str(answers)) for model in models]
    return tuple(in_order_of(model, dataset) if in_order else model for model in models)


def _models_by_name(model: Any) -> dict[str, Any]:
    if isinstance(model, str | Path):
        return {}
    if isinstance(model, dict | list | tuple) and not model:
        kind, remedy = ("dict", "give {'name': model}") if isinstance(model, dict) else ("list", "give at least one")
        raise RequestError(f"the {kind} of models is empty: {remedy}")
    if isinstance(model, list | tuple):
        if all(isinstance(entry, str | Path) for entry in model):
            return {}
        pairs: dict[str, Any] = {}
        for entry in model:
            name = name_of(entry)
            numbered = (f"{name}-{number}" if number > 1 else name for number in count(1))
            pairs[next(free for free in numbered if free not in pairs)] = entry
    else:
        pairs = {str(name): entry for name, entry in model.items()} if isinstance(model, dict) else {name_of(model): model}
    if specs := [str(entry) for entry in pairs.values() if isinstance(entry, str | Path)]:
        raise RequestError(f"{specs[0]!r} is a spec among models in memory: give all as specs in a list, or all as objects")
    return pairs


def name_of(model: Any) -> str:
    """Name in reports of a model without a name."""
    if isinstance(name_attribute := getattr(model, "name", None), str) and not isinstance(model, nn.Module) and name_attribute:
        return name_attribute
    if is_pipeline(model):
        return type(model.model).__name__
    if (metadata := maite_metadata(model)) is not None:
        return metadata.name
    name = getattr(getattr(model, "func", model), "__name__", None) or type(model).__name__
    return str(name).strip("<>")


def _wrap(model: Any, dataset: Dataset, name: str, preparation: Any, answers: str | None, output: Output) -> Model:
    """Wrap a model in memory by its type; the first case that fits decides."""
    domain = dataset.domain
    if is_pipeline(model):
        return _pipeline(model, domain, name, preparation)
    if (metadata := maite_metadata(model)) is not None:
        return _maite(model, metadata, dataset, name, {"preprocessing": preparation, "output": output, "answers": answers})
    if output is not None and not (isinstance(model, nn.Module) or is_function(model)):
        raise RequestError(
            f"output is for modules and functions, whose answers may have several parts; {name} is neither: leave it out"
        )
    if isinstance(model, nn.Module):
        return _module(model, dataset, name, preparation, answers, output)
    if hasattr(model, "get_inputs") and hasattr(model, "run"):
        return _onnx(model, domain, name, _mapping(preparation))
    estimator = hasattr(model, "predict") and hasattr(model, "get_params")
    if isinstance(model, Model) or estimator:
        if preparation is not None:
            raise RequestError(f"preprocessing, mean and std are for modules and functions; {name} does that by itself")
        return _estimator(model, domain, name, answers) if estimator else model
    if isinstance(model, type):
        raise RequestError(f"{model.__name__} is a class and no model: give an instance, {model.__name__}(...)")
    if callable(model):
        return FunctionModel(
            model,
            domain,
            classes=len(dataset.classes),
            name=name,
            user_layout=dataset.user_layout if isinstance(dataset, ArrayDataset) else lambda x: x,
            preprocessing=_mapping(preparation),
            labels=None if answers is None else answers == "labels",
            output=output,
        )
    raise RequestError(f"an object of type {type(model).__name__} is no model: give {FORMS}")


def maite_metadata(model: Any) -> Metadata | None:
    """The metadata of a model by MAITE's protocol; None for any other model."""
    return metadata_of(model) if callable(model) and not isinstance(model, Model) else None


def is_function(model: Any) -> bool:
    """True for a function, or for an object that is called like one and is not another kind of model."""
    return callable(model) and not isinstance(model, Model | type) and not {"predict", "get_inputs"} & set(dir(model))


def _pipeline(pipeline: Any, domain: Domain, name: str, preparation: Any) -> Model:
    if preparation is not None:
        raise RequestError(f"{name} brings its own processor: leave preprocessing, mean and std out, or give its .model alone")
    network, processor = unpack_pipeline(pipeline)
    return without_processor(network, domain, name) if processor is None else with_processor(network, processor, domain, name)


def _maite(model: Any, metadata: Metadata, dataset: Dataset, name: str, settings: Mapping[str, Any]) -> Model:
    for setting in ("preprocessing", "output"):
        if settings[setting] is not None:
            raise RequestError(f"{name} is a model by MAITE's protocol, which takes the data as they are: leave {setting} out")
    if settings["answers"] == "labels":
        raise RequestError(f"{name} is a model by MAITE's protocol, which answers scores: leave answers='labels' out")
    scale = dataset.byte_scale if isinstance(dataset, ArrayDataset) else None
    function = MaiteFunction(model, name, byte_scale=scale)
    return FunctionModel(
        function, dataset.domain, classes=len(dataset.classes), name=name, class_names=metadata.classes, labels=False
    )


def _module(module: nn.Module, dataset: Dataset, name: str, preparation: Any, answers: str | None, output: Output) -> Model:
    domain = dataset.domain
    parts: dict[str, Any] = {"output": output, "data_classes": len(dataset.classes) or None}
    if answers == "labels":
        raise RequestError(f"{name} is a torch module, which answers scores: for labels give a function that returns them")
    if is_processor(preparation):
        return with_processor(module, preparation, domain, name)
    if hasattr(module, "main_input_name"):
        return without_processor(module, domain, name, preprocessing=_mapping(preparation), **parts)
    return TorchModel(module, domain=domain, name=name, preprocessing=_mapping(preparation), **parts)


def _mapping(preparation: Any) -> Mapping[str, Any] | None:
    if preparation is None:
        return None
    if isinstance(preparation, Mapping):
        for key in ("axis", "flip_axis"):
            if not isinstance(preparation.get(key), int | None):
                raise RequestError(
                    f"{key} of preprocessing is {short(preparation[key])}: give a negative whole number, such as -3"
                )
        settings = {str(key): value for key, value in preparation.items()}
        for key in ("mean", "std"):
            if settings.get(key) is not None:
                numbers = _numbers(key, settings[key]).astype(float)
                has_axis = settings.get("axis") is not None
                settings[key] = (
                    numbers.ravel().tolist() if has_axis else numbers.item() if numbers.size == 1 else numbers.tolist()
                )
        return settings
    raise RequestError(
        f"preprocessing is of type {type(preparation).__name__}: give {{'mean': ..., 'std': ..., 'axis': -3}}, or for a module "
        "of transformers its processor"
    )


def _estimator(estimator: Any, domain: Domain, name: str, answers: str | None) -> Model:
    from brinell.models.sklearn import of_estimator, process_settings

    scores_of = {"probabilities": "probabilities", "labels": "labels", "logits": "decision", None: None}
    if answers not in scores_of:
        raise RequestError(
            f"answers is {short(answers)}, and a classifier of scikit-learn answers probabilities, logits or labels"
        )
    if process_settings(estimator):  # which the model turns off
        estimator = copy.deepcopy(estimator)
    return of_estimator(estimator, domain, scores_of[answers], name=name, digest=digest_of(estimator))  # type: ignore[arg-type]


def _onnx(session: Any, domain: Domain, name: str, preprocessing: Mapping[str, Any] | None) -> Model:
    from brinell.models.onnx import Network, Onnx, model_of

    preprocessing = preprocessing or {}
    settings = {key: tuple(map(float, np.asarray(preprocessing[key]).ravel())) for key in ("mean", "std") if key in preprocessing}
    path = getattr(session, "_model_path", None)
    content = (
        bounded.read(Path(path), bounded.ON_DISK) if path and Path(path).is_file() else getattr(session, "_model_bytes", None)
    )
    try:
        options = Onnx(**settings, bgr="flip_axis" in preprocessing)  # type: ignore[arg-type]
    except ValueError as error:
        raise RequestError(one_line(error)) from None
    name = Path(path).stem if path and name == type(session).__name__ else name
    digest = digest_of(content or "a session whose file is not known")
    return model_of(Network(session, domain, options, name), domain, options, digest)


# What a request and a manifest say


def specs_of(model: Any, models: tuple[Model, ...]) -> tuple[str, ...]:
    """Texts for the models in a request: their specs, or notes that they were given in memory, with their names."""
    if models:
        return tuple(f"{IN_MEMORY}:{model_in_memory.name}" for model_in_memory in models)
    return tuple(str(spec) for spec in model) if isinstance(model, list | tuple) else (str(model),)


def preparation_text(value: Any) -> str:
    """A setting as a user types it; a processor by its `repr`, an object without a text by its type."""
    try:
        return _setting_text(value)
    except Exception:  # the text of an object is code of others
        return short(value)


def _setting_text(value: Any) -> str:
    if is_processor(value):
        settings = ", ".join(f"{key}={preparation_text(setting)}" for key, setting in value.to_dict().items())
        return f"{type(value).__name__}({settings})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {preparation_text(setting)}" for key, setting in value.items()) + "}"
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    value = value.value if isinstance(value, Enum) else value
    return repr(str(value) if isinstance(value, Path | torch.device) else value)
