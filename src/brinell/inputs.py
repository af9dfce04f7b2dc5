"""What people hold in their hands, as what an audit takes: settings as texts, models of any library, data of any form.

Each is recognised by what it is and never by trying: what fits nothing, or fits in two ways, is refused in one line. The
conversions themselves lie beside the plug-ins of their kind (`models._callable`, `models._transformers`, `datasets._memory`).
"""

import copy
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.core import bounded
from brinell.core.contracts import Dataset
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, in_python, one_line
from brinell.core.model import Model
from brinell.datasets._arrays import Bounds, Layout
from brinell.datasets._memory import ArrayDataset
from brinell.engine.plan import open_data
from brinell.engine.request import IN_MEMORY
from brinell.engine.texts import short
from brinell.models._answers import KINDS, Answered
from brinell.models._callable import CallableModel
from brinell.models._content import digest_of
from brinell.models._torch_model import TorchModel
from brinell.models._transformers import bare, is_pipeline, is_processor, parts_of, with_processor

Data = Dataset | tuple[Any, Any] | str
FORMS = (
    "a torch module, a function of arrays, a fitted scikit-learn classifier, an onnxruntime session, a pipeline of transformers, "
    "a spec such as torch:FILE.py:FACTORY, or a list or dict of these"
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
    name: str = "arrays",
) -> Dataset:
    """Inputs and labels as data for any call of Brinell, with what cannot be read off them said.

    `brinell.audit(model, (x, y))` does this by itself wherever nothing has to be said.

    Args:
        x: (n, *shape) arrays or tensors, a data frame of numbers; or with `y` left out a dict, a torch Dataset or DataLoader, a
            Hugging Face dataset. Bytes are divided by 255, other values lie in [0, 1] unless there are bounds.
        y: (n,) labels: whole numbers from 0 on, or texts.
        classes: names of the classes, in the order of the model's answers.
        kind: image, signal, video or vector.
        layout: where the channels are, first or last.
        bounds: (low, high) in the units of `x`; for vectors also one for each column, or "columns" for their own ranges.
        name: how reports call it.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    return ArrayDataset(x, y, classes, name=name, kind=kind, layout=layout, bounds=bounds)


def open_dataset(given: Any) -> Dataset | None:
    """Data given in Python as a data set; None for a spec, which the plan opens."""
    if isinstance(given, str | Path):
        return None
    return given if isinstance(given, Dataset) else ArrayDataset(given)


def spec_of(given: Any, dataset: Dataset | None) -> str:
    """What a request says of data: its spec, or that it was given in memory and under which name."""
    return str(given) if isinstance(given, str | Path) else f"{IN_MEMORY}:{dataset.name if dataset else ''}"


# Models


def preparation(preprocessing: Any, mean: Any, std: Any, domain: Domain) -> Any:
    """What is done to inputs before the model, in one value: a processor, or foolbox's mapping with numbers as lists."""
    if mean is None and std is None:
        return preprocessing
    if preprocessing is not None:
        raise RequestError("mean and std are given twice: by themselves, and by preprocessing; leave one of the two out")
    settings: dict[str, Any] = {}
    for key, value in (("mean", mean), ("std", std)):
        if value is None:
            continue
        numbers = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        if numbers.dtype.kind not in "iuf":
            raise RequestError(f"{key} is {short(value)}: it is a number, or one number for each channel")
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
) -> tuple[Model, ...]:
    """Models given in Python, each over the domain of the data; nothing for specs.

    Args:
        model: one model, or a list or dict of them (names from the dict).
        dataset: the data, where they are in memory.
        spec: the data's spec, where they are not.
        preprocessing: as that of `brinell.audit`.
        mean: subtracted before the model.
        std: divided by before the model.
        answers: what the models answer.

    Raises:
        RequestError: what is no model, or cannot be asked about the data.
    """
    named = _named(model)
    if not named:
        given = {"preprocessing": preprocessing, "mean": mean, "std": std}
        if said := [key for key, value in given.items() if value is not None]:
            raise RequestError(f"{said[0]} is for models in memory; a spec says it itself, such as onnx:FILE?mean=0.5&std=0.25")
        if answers is not None:
            raise RequestError("answers says what a model in memory answers; a spec says it itself, ...?answers=probabilities")
        return ()
    if answers not in (None, "labels", *KINDS):
        raise RequestError(f"answers is {answers!r}; it is one of labels, {', '.join(KINDS)}")
    dataset = dataset or open_data(spec)
    before = preparation(preprocessing, mean, std, dataset.domain)
    models = [_wrapped(model, dataset, name, before, answers) for name, model in named.items()]
    return tuple(model if answers in (None, "labels") else Answered(model, str(answers)) for model in models)


def _named(model: Any) -> dict[str, Any]:
    """The models in memory by name; empty for specs."""
    if isinstance(model, str | Path):
        return {}
    if isinstance(model, dict | list | tuple) and not model:
        kind, remedy = ("dict", "give {'name': model}") if isinstance(model, dict) else ("list", "give at least one")
        raise RequestError(f"the {kind} of models is empty: {remedy}")
    if isinstance(model, list | tuple):
        if all(isinstance(one, str | Path) for one in model):
            return {}
        pairs: dict[str, Any] = {}
        for one in model:
            name = name_of(one)
            numbered = (f"{name}-{number}" if number > 1 else name for number in count(1))
            pairs[next(free for free in numbered if free not in pairs)] = one
    else:
        pairs = {str(name): one for name, one in model.items()} if isinstance(model, dict) else {name_of(model): model}
    if specs := [str(one) for one in pairs.values() if isinstance(one, str | Path)]:
        raise RequestError(f"{specs[0]!r} is a spec among models in memory: give all as specs in a list, or all as objects")
    return pairs


def name_of(model: Any) -> str:
    """How reports call a model that nobody named."""
    if isinstance(own := getattr(model, "name", None), str) and not isinstance(model, nn.Module) and own:
        return own
    if is_pipeline(model):
        return type(model.model).__name__
    name = getattr(getattr(model, "func", model), "__name__", None) or type(model).__name__
    return str(name).strip("<>")


def _wrapped(model: Any, dataset: Dataset, name: str, before: Any, answers: str | None) -> Model:
    """A model in memory by what it is; the first line that fits decides."""
    domain = dataset.domain
    if is_pipeline(model):
        return _pipeline(model, domain, name, before)
    if isinstance(model, nn.Module):
        return _module(model, domain, name, before, answers)
    if hasattr(model, "get_inputs") and hasattr(model, "run"):
        return _onnx(model, domain, name, _mapping(before))
    estimator = hasattr(model, "predict") and hasattr(model, "get_params")
    if isinstance(model, Model) or estimator:
        if before is not None:
            raise RequestError(f"preprocessing, mean and std are for modules and functions; {name} does that by itself")
        return _estimator(model, domain, name, answers) if estimator else model
    if isinstance(model, type):
        raise RequestError(f"{model.__name__} is a class and no model: give an instance, {model.__name__}(...)")
    if callable(model):
        return CallableModel(
            model,
            domain,
            classes=len(dataset.classes),
            name=name,
            as_given=dataset.as_given if isinstance(dataset, ArrayDataset) else lambda x: x,
            preprocessing=_mapping(before),
            labels=None if answers is None else answers == "labels",
        )
    raise RequestError(f"an object of type {type(model).__name__} is no model: give {FORMS}")


def _pipeline(pipeline: Any, domain: Domain, name: str, before: Any) -> Model:
    if before is not None:
        raise RequestError(f"{name} brings its own processor: leave preprocessing, mean and std out, or give its .model alone")
    network, processor = parts_of(pipeline)
    return bare(network, domain, name) if processor is None else with_processor(network, processor, domain, name)


def _module(module: nn.Module, domain: Domain, name: str, before: Any, answers: str | None) -> Model:
    if answers == "labels":
        raise RequestError(f"{name} is a torch module, which answers scores: for labels give a function that returns them")
    if is_processor(before):
        return with_processor(module, before, domain, name)
    if hasattr(module, "main_input_name"):
        return bare(module, domain, name, preprocessing=_mapping(before))
    return TorchModel(module, domain=domain, name=name, preprocessing=_mapping(before))


def _mapping(before: Any) -> Mapping[str, Any] | None:
    if before is None or isinstance(before, Mapping):
        return before
    raise RequestError(
        f"preprocessing is of type {type(before).__name__}: give {{'mean': ..., 'std': ..., 'axis': -3}}, or for a module of "
        "transformers its processor"
    )


def _estimator(estimator: Any, domain: Domain, name: str, answers: str | None) -> Model:
    from brinell.models.sklearn import many_processes, of_estimator

    wanted = {"probabilities": "probabilities", "labels": "labels", "logits": "decision", None: None}
    if answers not in wanted:
        raise RequestError(f"answers is {answers!r}, and a classifier of scikit-learn answers probabilities, logits or labels")
    if many_processes(estimator):  # which the model turns off
        estimator = copy.deepcopy(estimator)
    return of_estimator(estimator, domain, wanted[answers], name=name, digest=digest_of(estimator))  # type: ignore[arg-type]


def _onnx(session: Any, domain: Domain, name: str, before: Mapping[str, Any] | None) -> Model:
    from brinell.models.onnx import Onnx, OnnxModel

    before = before or {}
    if "flip_axis" in before:
        raise RequestError("flip_axis is for modules: reverse the channels inside the network")
    settings = {key: tuple(map(float, np.asarray(before[key]).ravel())) for key in ("mean", "std") if key in before}
    path = getattr(session, "_model_path", None)
    held = bounded.read(Path(path), bounded.ON_DISK) if path and Path(path).is_file() else getattr(session, "_model_bytes", None)
    try:
        options = Onnx(**settings)  # type: ignore[arg-type]
    except ValueError as error:
        raise RequestError(one_line(error)) from None
    name = Path(path).stem if path and name == type(session).__name__ else name
    return OnnxModel(session, domain, options, digest_of(held or "a session whose file is not known"), name)


# What a request and a manifest say


def specs_of(model: Any, models: tuple[Model, ...]) -> tuple[str, ...]:
    """What a request says of models: their specs, or that they were given in memory and under which names."""
    if models:
        return tuple(f"{IN_MEMORY}:{one.name}" for one in models)
    return tuple(str(one) for one in model) if isinstance(model, list | tuple) else (str(model),)


def preparation_text(value: Any) -> str:
    """A setting as one types it; processors by what they say of themselves."""
    if is_processor(value):
        return f"{type(value).__name__}({', '.join(f'{key}={preparation_text(one)}' for key, one in value.to_dict().items())})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {preparation_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    value = value.value if isinstance(value, Enum) else value
    return repr(str(value) if isinstance(value, Path | torch.device) else value)
