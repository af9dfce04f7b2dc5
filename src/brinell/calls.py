"""How a record of the register becomes a Python call: models and data in memory or as specs,
settings as keywords.
"""

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, get_origin

import torch
from rich.console import Console

from brinell.core.contracts import Dataset
from brinell.core.errors import (
    BrinellWarning,
    RequestError,
    in_python,
    one_line_errors,
    short,
)
from brinell.core.model import Model
from brinell.core.settings import is_text
from brinell.core.torch_settings import float32_tensors
from brinell.core.user_files import expand_home, user_path
from brinell.engine.progress import Progress, SilentProgress
from brinell.engine.texts import settings_texts
from brinell.engine.toml import check_keys, parse_request
from brinell.inputs import models_of, name_of, open_dataset, preparation_text, spec_of, specs_of
from brinell.reports.live_progress import LiveProgress
from brinell.studies import register
from brinell.studies.attempts import carry_out
from brinell.studies.kit import Call, Output, Study

MOST_NAMED = 14
"""Parameters that a signature names at most; the others are settings by keyword."""
PREPARATION = ("preprocessing", "mean", "std", "answers", "output")
"""Keywords that say how models in memory take their inputs and what they answer."""


@functools.cache
def call_of(study: Study) -> Callable[..., Any]:
    """The Python call of a study, with its signature and its docstring."""
    signature = signature_of(study)
    keywords = parameters_of(study)

    def call(*args: Any, **kwargs: Any) -> Any:
        # A caller's own settings of torch, such as inference mode, would forbid gradients.
        with (
            one_line_errors(),
            torch.inference_mode(False),
            float32_tensors(),
            ExitStack() as contexts,
        ):
            check_keys(kwargs, keywords)
            arguments = signature.bind(*args, **kwargs).arguments
            settings = arguments.pop("settings", {})
            result = carry_out(_prepare(study, arguments | settings, contexts))

        lines = result.cautions() if hasattr(result, "cautions") else ()
        for line in (*lines, *getattr(result, "misfits", ())):
            warnings.warn(line, BrinellWarning, stacklevel=2)
        return result

    call.__name__ = call.__qualname__ = study.name
    call.__doc__ = _docstring(study)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


@in_python
def open_folder(folder: Any) -> Any:
    """The result that a folder holds, from its records alone: what the call that made it returned.

    Args:
        folder: the folder of an audit or of any other study, as a path or a result.

    Returns:
        An `Audit`, or the result of the study that made the folder.

    Raises:
        BrinellError: no folder of ours, or damaged files.
    """
    path = Path(folder_of(folder))
    # The verb in the folder's manifest says which study reads it.
    study = register.study_of(path)

    return study.open(path)


def signature_of(study: Study) -> inspect.Signature:
    """Signature of a call: its most important parameters by name.

    The others are settings where there are many.
    """
    parameters = parameters_of(study)
    # A signature of fifty names helps nobody: the rest goes by name as settings.
    if len(parameters) > MOST_NAMED:
        by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
        first = [name for name, parameter in parameters.items() if parameter.kind is by_place]
        last = [name for name in ("out", "progress") if name in parameters]
        others = [name for name in study.fields() if name not in first]
        middle = others[: MOST_NAMED - len(first) - len(last)]
        parameters = {name: parameters[name] for name in (*first, *middle, *last)}
        parameters["settings"] = inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)

    return inspect.Signature(
        list(parameters.values()), return_annotation=study.resolve(study.result)
    )


def parameters_of(study: Study) -> dict[str, inspect.Parameter]:
    """All parameters of a call: those by place, those that calls share, then settings."""
    by_place = _names_by_place(study)
    memory = study.in_memory()
    leaves = study.output is not Output.ANSWER_ONLY
    kinds_of_names = {getattr(study.names_of(name), "kind", "") for name in study.fields()}
    shared = {
        "model": "model" in memory,
        **dict.fromkeys(PREPARATION, "model" in memory),
        "out": leaves,
        "resume": study.resume,
        "on": study.workers,
        "trust": "folder" in kinds_of_names,
        "progress": leaves,
    }

    # In the order in which a reader of the signature needs them.
    names = dict.fromkeys([*by_place, *filter(shared.get, shared), *study.fields()])
    parameters = {}
    for name in names:
        kind = (
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if name in by_place
            else inspect.Parameter.KEYWORD_ONLY
        )
        parameters[name] = inspect.Parameter(name, kind, default=_default(study, name))
    return parameters


def _names_by_place(study: Study) -> list[str]:
    """The parameters that may be given by place: what must be given, then inputs and labels."""
    memory = study.in_memory()
    fields = study.request.model_fields
    optional = [
        name for name in study.positional if fields[name].default is None and name not in memory
    ]
    required = [
        name
        for name in dict.fromkeys((*study.positional, *fields))
        if name not in optional and (name in study.positional or fields[name].is_required())
    ]

    inputs = [name for name in ("model", "data") if name in memory and name not in study.positional]
    # A study of data alone has its inputs as the first argument already.
    if "data" in required:
        inputs = []
    labels = ["y"] if "data" in memory else []
    return [*required, *inputs, *labels, *optional]


def _default(study: Study, name: str) -> Any:
    """The default of a parameter; empty for one that must be given."""
    field = study.fields().get(name)
    is_needed = name in ("model", "data") and study.needs_inputs
    names_file = name == "out" and study.output is Output.FILE
    if is_needed or names_file or (field is not None and field.is_required()):
        return inspect.Parameter.empty
    if field is None or name in study.in_memory() or name in study.positional:
        return False if name == "resume" else None
    return field.default


def folder_of(value: Any) -> str:
    """The folder that a path, a text or a result names."""
    folder = getattr(value, "folder", value)
    if not isinstance(folder, str | os.PathLike):
        # `epsilon`, which names a study, is what some libraries call a budget.
        hint = "; a budget is given by eps" if isinstance(value, float | int) else ""
        raise RequestError(
            f"an object of type {type(value).__name__} is no run: give the "
            f"folder, or what brinell.audit returned{hint}"
        )
    return expand_home(_path_text("the folder of a run", folder))


def _path_text(name: str, value: Any) -> str:
    """The text of a path; refuses anything else, and a text that no file can have as its name."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not is_text(text):
        raise RequestError(
            f"{name} is {short(value)}: give a path, as a text without NUL or as a pathlib.Path"
        )
    return text


def _pop_path(settings: dict[str, Any], name: str) -> Path | None:
    """Take a path out of the settings; None if it is not among them."""
    value = settings.pop(name, None)
    return None if value is None else user_path(_path_text(name, value))


def _check_texts(settings: Mapping[str, Any]) -> None:
    """Refuse texts with characters that no file name can hold, before anything is opened."""
    for name, value in settings.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str | Path) and not is_text(str(text)):
                raise RequestError(
                    f"{name} is {short(value)}: a text holds neither NUL nor half a character"
                )


def _prepare(study: Study, arguments: Mapping[str, Any], contexts: ExitStack) -> Call:
    """The call of a study with the arguments of a Python call, which may be carried out until the
    contexts end.
    """
    # A parameter that is None is one that the caller did not give.
    settings = {name: value for name, value in arguments.items() if value is not None}
    if "y" in settings:
        if "data" not in settings:
            raise RequestError("y holds labels, and no data are given: give the inputs as data")
        settings["data"] = (settings["data"], settings.pop("y"))
    study = register.of_data(study, settings.get("data"))
    _check_texts(settings)
    settings = study.request.with_paths(settings)

    out = _pop_path(settings, "out")
    trust = _pop_path(settings, "trust")
    progress = settings.pop("progress", None)
    resume = settings.pop("resume", False)
    if not isinstance(resume, bool):
        raise RequestError(f"resume is {short(resume)}: it is True or False")
    on = settings.pop("on", None)
    # Preparation is for models in memory; the texts of a spec say their own.
    prepares = [name for name in PREPARATION if name in settings and "model" in study.in_memory()]
    preparation = {name: settings.pop(name) for name in prepares}
    settings |= _folders_of(study, settings)

    # The text of the call names objects, so it is made before texts replace them.
    command = _call_text(study, settings | preparation)
    datasets = _open_data(study, settings)
    objects = _open_models(study, settings, preparation, datasets.get("data"), trust)
    command += ", with the same objects," if datasets or objects else ""
    own = [name for name in settings if name not in study.request.model_fields]
    texts = settings_texts({name: settings.pop(name) for name in own})
    request = parse_request(study.request, settings_texts(settings))
    options = None if study.options is None else parse_request(study.options, texts)

    # A caller's autocast would change figures.
    for device in ("cpu", "cuda"):
        contexts.enter_context(torch.autocast(device, enabled=False))
    return Call(
        study=study,
        request=request,
        options=options,
        command=command,
        progress=contexts.enter_context(_progress(progress, study)),
        out=out,
        resume=resume,
        on=on,
        trust=trust,
        datasets=datasets,
        objects=objects,
    )


def _folders_of(study: Study, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that name folders, which may be given as results, as texts."""
    texts: dict[str, Any] = {}
    for name, value in settings.items():
        if getattr(study.names_of(name), "kind", "") == "folder":
            is_sequence = isinstance(value, list | tuple)
            texts[name] = tuple(map(folder_of, value)) if is_sequence else folder_of(value)
    return texts


def _names_of_kind(study: Study, kind: str, settings: Mapping[str, Any]) -> list[str]:
    """The given settings in whose place Python may give an object of this kind."""
    names = [name for name in study.in_memory() if name in settings]
    return [name for name in names if getattr(study.names_of(name), "kind", "") == kind]


def _open_data(study: Study, settings: dict[str, Any]) -> dict[str, Dataset]:
    """Data in memory by setting; `settings` then holds their texts for the request."""
    datasets: dict[str, Dataset] = {}
    for name in _names_of_kind(study, "dataset", settings):
        dataset = open_dataset(settings[name])
        settings[name] = spec_of(settings[name], dataset)
        if dataset is not None:
            datasets[name] = dataset
    return datasets


def _open_models(
    study: Study,
    settings: dict[str, Any],
    preparation: Mapping[str, Any],
    dataset: Dataset | None,
    trust: Path | None,
) -> dict[str, tuple[Model, ...]]:
    """Models in memory by setting; `settings` then holds their texts for the request."""
    objects: dict[str, tuple[Model, ...]] = {}
    for name in _names_of_kind(study, "model", settings):
        # Models are made over the domain of the data, which the study may know by other settings.
        spec = settings.get("data")
        if not spec and (data_of := study.function("data_of")):
            spec = data_of(settings, trust)
        elif not spec:
            spec = study.request.model_fields["data"].default or "digits"
        models = models_of(settings[name], dataset, spec, **preparation)

        is_sequence = get_origin(study.fields()[name].annotation) is tuple
        if len(models) > 1 and not is_sequence:
            raise RequestError(
                f"this takes one model, and {len(models)} are given: call it once for each"
            )
        specs = specs_of(settings[name], models)
        settings[name] = specs if is_sequence else specs[0]
        if models:
            objects[name] = models
    return objects


def _progress(progress: Progress | bool | None, study: Study) -> AbstractContextManager[Progress]:
    """Progress of a call: the given object, live progress, or a silent one.

    Live progress is shown if requested, and by default in a terminal or notebook.
    """
    if not isinstance(progress, bool | None):
        if isinstance(progress, type) or not isinstance(progress, Progress):
            raise RequestError(
                f"progress is {short(progress)}: it is True, False, or an object "
                "with the methods of Progress"
            )
        return nullcontext(progress)

    console = Console(stderr=True)
    # Live progress is for people: a log file would be filled by it.
    if progress or (progress is None and (console.is_terminal or console.is_jupyter)):
        return LiveProgress(warnings=not hasattr(study.resolve(study.result), "cautions"))
    return nullcontext(SilentProgress())


def _call_text(study: Study, settings: Mapping[str, Any]) -> str:
    """The call that repeats this one: objects in memory by their names, numbers in full."""
    words = []
    fields = study.fields()
    # In the order of the signature, so that equal calls have equal texts.
    for name in parameters_of(study):
        if name not in settings:
            continue
        value = settings[name]
        match getattr(study.names_of(name), "kind", ""):
            case "model":
                text = _models_text(value)
            case "dataset":
                text = repr(str(value)) if isinstance(value, str | Path) else name
            case _:
                text = preparation_text(
                    settings_texts({name: value})[name] if name in fields else value
                )
        words.append(f"{name}={text}")

    return f"brinell.{study.name}({', '.join(words)}) in Python"


def _models_text(value: Any) -> str:
    """Models as a user types them, those in memory by their names."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{name!r}: {_models_text(model)}" for name, model in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_models_text, value)) + "]"
    return repr(str(value)) if isinstance(value, str | Path) else name_of(value)


def _docstring(study: Study) -> str:
    """The docstring of a call, from the help of its verb and the descriptions of its fields."""
    fields = study.fields()
    entry = register.entry_of(study.verb)
    lines = [entry.help if entry else "", "", "Args:"]
    for name in parameters_of(study):
        # Arguments that all calls share are described once.
        text = ARGUMENTS.get(name) or " ".join(str(fields[name].description).split())
        lines.append(f"    {name}: {text}")

    returns = study.resolve(study.result)
    lines += [
        "",
        "Returns:",
        f"    {returns.__name__}: what `brinell {study.verb} --json` prints, as `payload()`.",
        "",
        "Raises:",
        "    BrinellError: one line that says what is wrong, why, and what to do.",
    ]
    return "\n".join(lines)


ARGUMENTS = {
    "model": "an `nn.Module`, which takes inputs within the bounds of the data and "
    "answers logits; a function of numpy or "
    "torch arrays that answers scores or labels; a fitted classifier of "
    "scikit-learn; a classifier or "
    "pipeline of transformers; a model by MAITE's protocol; a `Model`; or a spec "
    "such as `digits-cnn`. Several in a list, or in "
    "a dict with their names.",
    "data": "inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels "
    "(n,) as `y` or in a pair `(x, y)`; "
    "a dict of these; a torch Dataset or DataLoader; a data set of Hugging Face "
    "or by MAITE's protocol; what `brinell.data` "
    "makes; or a spec such as `npz:FILE`.",
    "y": "the labels (n,), where `data` are the inputs alone.",
    "preprocessing": "`{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a "
    "processor of transformers.",
    "mean": "subtracted before the model: a number, or one for each channel.",
    "std": "divided by before the model, like `mean`.",
    "answers": "what a model in memory answers: logits, probabilities, log-probabilities, "
    "sigmoids (one score per class), "
    "labels, or for two classes one logit or probability. Default: by what it "
    "answers to clean samples.",
    "output": "the part of a model's answer that holds the logits, if it has several: a "
    "name or a place, such as `logits` or 0. "
    "Default: the only part that fits.",
    "out": "where the results go. Default: a fresh folder under runs/.",
    "resume": "whether to go on with a folder that holds part of this.",
    "on": "where workers do the work: `ray` on this machine, `ray:ADDRESS` on a "
    "cluster. Default: this process does.",
    "trust": "a folder from elsewhere whose models, data and code may be used as it names them.",
    "progress": "True shows progress, False hides it, an object receives it. Default: shown "
    "at a terminal and in a notebook.",
}
"""Descriptions of the parameters that calls share."""
