"""Models that Python gives as objects: a module, a function, an estimator, a pipeline, a model by
MAITE's protocol.

The type of an object decides, never a trial: an object that fits no type is refused in one line.
"""

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, short
from brinell.core.maite import Metadata, metadata_of
from brinell.core.model import Model
from brinell.core.values import as_array
from brinell.models._content import digest_of
from brinell.models._function import FunctionModel
from brinell.models._maite import MaiteFunction
from brinell.models._outputs import Output
from brinell.models._torch_model import TorchModel
from brinell.models._transformers import (
    is_pipeline,
    is_processor,
    unpack_pipeline,
    with_processor,
    without_processor,
)

FORMS = (
    "a torch module, a function of arrays, a fitted scikit-learn classifier, a "
    "pipeline of transformers, a model of MAITE, a "
    "spec such as onnx:FILE or torch:FILE.py:FACTORY, or a list or dict of these"
)


def maite_metadata(model: Any) -> Metadata | None:
    """The metadata of a model by MAITE's protocol; None for any other model."""
    return metadata_of(model) if callable(model) and not isinstance(model, Model) else None


def preparation(preprocessing: Any, mean: Any, std: Any, domain: Domain) -> Any:
    """Preprocessing of a model as one value: None, a processor, or foolbox's mapping.

    The mapping holds numbers as lists.
    """
    values = {key: value for key, value in (("mean", mean), ("std", std)) if value is not None}
    if values and preprocessing is not None:
        raise RequestError(
            "mean and std are given twice: by themselves, and by preprocessing; "
            "leave one of the two out"
        )
    # A processor of transformers knows its own numbers.
    if preprocessing is None and not values or is_processor(preprocessing):
        return preprocessing
    if not isinstance(preprocessing, Mapping | None):
        raise RequestError(
            f"preprocessing is of type {type(preprocessing).__name__}: give "
            f"{{'mean': ..., 'std': ..., 'axis': -3}}, or for a "
            "module of transformers its processor"
        )

    settings = (
        values
        if preprocessing is None
        else {str(key): value for key, value in preprocessing.items()}
    )
    return _as_lists(settings, domain, per_channel=bool(values))


def _as_lists(settings: dict[str, Any], domain: Domain, *, per_channel: bool) -> dict[str, Any]:
    """The settings of foolbox's mapping with numbers as lists, or as one number without an axis."""
    numbers = {
        key: _numbers(key, settings[key])
        for key in ("mean", "std")
        if settings.get(key) is not None
    }
    # Several numbers given by themselves are those of the channels, which come first.
    if per_channel and any(value.size > 1 for value in numbers.values()):
        settings["axis"] = -len(domain.shape)
    for key in ("axis", "flip_axis"):
        if not isinstance(settings.get(key), int | None):
            raise RequestError(
                f"{key} of preprocessing is {short(settings[key])}: give a "
                "negative whole number, such as -3"
            )

    if settings.get("axis") is not None:
        return settings | {key: value.ravel().tolist() for key, value in numbers.items()}
    return settings | {
        key: value.item() if value.size == 1 else value.tolist() for key, value in numbers.items()
    }


def _numbers(key: str, value: Any) -> np.ndarray[Any, Any]:
    """The numbers of mean or std as an array; refuses anything else."""
    numbers = (
        as_array(value, f"numbers of {key}") if not isinstance(value, str) else np.array(value)
    )
    if numbers.dtype.kind not in "iuf" or not numbers.size or not np.isfinite(numbers).all():
        raise RequestError(
            f"{key} is {short(value)}: it is a number, or one number for each channel"
        )
    return numbers.astype(float)


def wrap(
    model: Any, dataset: Dataset, name: str, preparation: Any, answers: str | None, output: Output
) -> Model:
    """A model in memory over the domain of the data."""
    kind = _kind(model)
    domain = dataset.domain
    classes = len(dataset.classes)
    _check_fit(name, kind, preparation, answers, output)

    match kind:
        case "pipeline":
            network, processor = unpack_pipeline(model)
            return (
                without_processor(network, domain, name)
                if processor is None
                else with_processor(network, processor, domain, name)
            )
        case "model by MAITE's protocol":
            function = MaiteFunction(model, name, byte_scale=getattr(dataset, "byte_scale", None))
            metadata = maite_metadata(model)
            assert metadata is not None, "by its kind"
            return FunctionModel(
                function,
                domain,
                classes=classes,
                name=name,
                class_names=metadata.classes,
                labels=False,
            )
        case "torch module" if is_processor(preparation):
            return with_processor(model, preparation, domain, name)
        case "torch module":
            build = without_processor if hasattr(model, "main_input_name") else TorchModel
            return build(
                model,
                domain,
                name=name,
                preprocessing=preparation,
                output=output,
                data_classes=classes or None,
            )
        case "estimator":
            return _estimator(model, domain, name, answers)
        case "function":
            return FunctionModel(
                model,
                domain,
                classes=classes,
                name=name,
                user_layout=getattr(dataset, "user_layout", lambda x: x),
                preprocessing=preparation,
                labels=None if answers is None else answers == "labels",
                output=output,
            )
    # A model of Brinell needs nothing.
    wrapped: Model = model
    return wrapped


def _check_fit(name: str, kind: str, preparation: Any, answers: str | None, output: Output) -> None:
    """Refuse settings that a kind of model does not take."""
    is_own = kind in ("torch module", "function")
    if output is not None and not is_own:
        raise RequestError(
            f"{name} is a {kind}, and output is for modules and functions, whose "
            "answers may have several parts: leave it out"
        )
    if preparation is not None and not is_own:
        raise RequestError(
            f"{name} is a {kind}, which takes inputs as they are: leave "
            "preprocessing, mean and std out"
        )
    if is_processor(preparation) and kind != "torch module":
        raise RequestError(
            f"a processor prepares a module of transformers, and {name} is none: give mean and std"
        )
    if answers == "labels" and kind in ("torch module", "model by MAITE's protocol"):
        raise RequestError(
            f"{name} is a {kind}, which answers scores: for labels give a "
            "function that returns them"
        )


def _kind(model: Any) -> str:
    """The kind of an object; the first case that fits decides."""
    for kind, fits in {
        "pipeline": is_pipeline(model),
        "model by MAITE's protocol": maite_metadata(model) is not None,
        "torch module": isinstance(model, nn.Module),
        "estimator": hasattr(model, "predict") and hasattr(model, "get_params"),
        "model": isinstance(model, Model),
        "function": callable(model) and not isinstance(model, type),
    }.items():
        if fits:
            return kind

    # A class is callable, but a call of it makes a model and gives no answer.
    if isinstance(model, type):
        raise RequestError(
            f"{model.__name__} is a class and no model: give an instance, {model.__name__}(...)"
        )
    raise RequestError(f"an object of type {type(model).__name__} is no model: give {FORMS}")


def _estimator(estimator: Any, domain: Domain, name: str, answers: str | None) -> Model:
    """A model around a fitted classifier of scikit-learn."""
    from brinell.models.sklearn import of_estimator, process_settings

    scores_of = {
        "probabilities": "probabilities",
        "labels": "labels",
        "logits": "decision",
        None: None,
    }
    if answers not in scores_of:
        raise RequestError(
            f"answers is {short(answers)}, and a classifier of scikit-learn "
            "answers probabilities, logits or labels"
        )

    # The model turns these settings off, and the user's estimator keeps them.
    if process_settings(estimator):
        estimator = copy.deepcopy(estimator)
    scores = scores_of[answers]
    digest = digest_of(estimator)
    return of_estimator(estimator, domain, scores, name=name, digest=digest)  # type: ignore[arg-type]
