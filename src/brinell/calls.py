"""How a record of the register becomes a Python call: models and data in memory or as specs, settings as keywords."""

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import torch
from rich.console import Console

from brinell.core.contracts import Dataset
from brinell.core.errors import BrinellWarning, RequestError, in_python
from brinell.core.model import Model
from brinell.engine.progress import Progress, Silent
from brinell.engine.texts import texts
from brinell.engine.toml import check_known, checked
from brinell.inputs import models_of, name_of, open_dataset, preparation_text, spec_of, specs_of
from brinell.runners.meeting import Shard
from brinell.runners.progress import LiveProgress
from brinell.studies import register
from brinell.studies.kit import Call, Output, Study

PREPARATION = ("preprocessing", "mean", "std", "answers")
"""Keywords that say how models in memory take their inputs and what they answer."""


@functools.cache
def call_of(study: Study) -> Callable[..., Any]:
    """The Python call of a study, with its signature and its docstring."""
    signature = signature_of(study)

    @in_python
    def call(*args: Any, **kwargs: Any) -> Any:
        check_known(kwargs, signature.parameters)
        return _carry_out(study, signature.bind(*args, **kwargs).arguments)

    call.__name__ = call.__qualname__ = study.name
    call.__doc__ = _docstring(study)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


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
    study = register.study_of(path)
    if study.open is None:
        raise RequestError(f"{path} is the folder of brinell {study.verb}, whose result is not kept: call it again")
    return study.resolve(study.open)(path)


def signature_of(study: Study) -> inspect.Signature:
    """What a call takes: what comes first, models and data, what all calls share, then settings and options by name."""
    memory, leaves = study.in_memory(), study.output is not Output.NOTHING
    inputs = [name for name in ("model", "data") if name in memory and name not in study.positional]
    given = (*study.positional, *(name for name, field in study.request.model_fields.items() if field.is_required()))
    first = [*given, *(inputs if "data" not in given else ()), *(["y"] if "data" in memory else [])]
    shared = {
        "model": "model" in memory,
        **dict.fromkeys(PREPARATION, "model" in memory),
        "out": leaves,
        "resume": bool(study.resume),
        "shard": study.shards,
        "trust": study.foreign,
        "progress": leaves,
    }
    names = dict.fromkeys([*first, *(name for name, has in shared.items() if has), *study.fields()])
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD if name in first else inspect.Parameter.KEYWORD_ONLY for name in names]
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=_default(study, name), annotation=annotation_of(study, name))
            for name, kind in zip(names, kinds, strict=True)
        ],
        return_annotation=study.resolve(study.result),
    )


def annotation_of(study: Study, name: str) -> str:
    """The type of a parameter, as a signature writes it: by the names of `brinell.types`."""
    fields, none = study.fields(), _default(study, name) is None
    if name in SHARED:
        text = SHARED[name]
    else:
        mark = study.names_of(name)
        only_specs = mark is not None and mark.kind in ("model", "dataset") and name not in study.in_memory()
        named = None if mark is None or only_specs else TYPES.get(mark.kind)
        many = "tuple" in str(fields[name].annotation)
        if name == "device":
            text = "Device"
        elif named is None:
            text = _type_text(fields[name].annotation)
        elif many:
            text = MANY.get(named, f"{named} | Sequence[{named}]")
        else:
            text = named
    return text + (" | None" if none and not {"None", "Any"} & set(text.split(" | ")) else "")


SHARED = {
    "y": "Labels",
    "preprocessing": "Any",
    "mean": "Any",
    "std": "Any",
    "answers": "str",
    "out": "File",
    "resume": "bool",
    "shard": "str",
    "trust": "File",
    "progress": "Told",
}
"""The types of the parameters that calls share."""
TYPES = {"model": "AnyModel", "dataset": "Data", "budgets": "Eps", "distance": "Norm", "folder": "Folder", "file": "File"}
"""What a setting takes from Python, by what it names."""
MANY = {"AnyModel": "Models", "Norm": "Norm", "Eps": "Eps"}
"""Types that stand for several as well."""


def _type_text(hint: Any) -> str:
    """The type of a field, as one writes it; several as one or a sequence."""
    origin, parts = get_origin(hint), [one for one in get_args(hint) if one is not Ellipsis]
    if origin is Annotated:
        return _type_text(parts[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is tuple:
        return f"{_type_text(parts[0])} | Sequence[{_type_text(parts[0])}]"
    if parts:
        return " | ".join(map(_type_text, parts))
    return "None" if hint is NoneType else str(hint.__name__)


def _default(study: Study, name: str) -> Any:
    """The default of a parameter; empty where it must be given."""
    field = study.fields().get(name)
    if name in ("model", "data") and study.needs_inputs or (name == "out" and study.output is Output.FILE):
        return inspect.Parameter.empty
    if name in study.in_memory() or name in study.positional:
        return inspect.Parameter.empty if field is not None and field.is_required() else None
    if field is not None:
        return inspect.Parameter.empty if field.is_required() else field.default
    return False if name == "resume" else None


def folder_of(value: Any) -> str:
    """The folder that a path, a text or a result names.

    Raises:
        RequestError: something else.
    """
    folder = getattr(value, "folder", value)
    if not isinstance(folder, str | os.PathLike):
        raise RequestError(f"an object of type {type(value).__name__} is no run: give the folder, or what brinell.audit returned")
    return os.fspath(folder)


def _carry_out(study: Study, arguments: dict[str, Any]) -> Any:
    """Carry out a call whose arguments have their names."""
    given = {name: value for name, value in arguments.items() if value is not None}
    if (y := given.pop("y", None)) is not None:
        if "data" not in given:
            raise RequestError("y holds labels, and no data are given: give the inputs as data")
        given["data"] = (given["data"], y)
    text = _call_text(study, given)
    out, resume, shard = given.pop("out", None), given.pop("resume", False), given.pop("shard", None)
    trust, progress = given.pop("trust", None), given.pop("progress", None)
    how = {name: given.pop(name) for name in PREPARATION if name in given and "model" in study.in_memory()}
    for name, value in given.items():
        mark = study.request.names_of(name)
        if mark is not None and mark.kind == "folder":
            many = isinstance(value, list | tuple)
            given[name] = tuple(map(folder_of, value)) if many else folder_of(value)
    datasets, objects = _in_memory(study, given, how)
    options = {name: given.pop(name) for name in list(given) if name not in study.request.model_fields}
    request = checked(study.request, texts(given))
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):  # a caller's autocast would change figures
            stack.enter_context(torch.autocast(device, enabled=False))
        result = study.resolve(study.run)(
            Call(
                study=study,
                request=request,
                options=None if study.options is None else checked(study.options, texts(options)),
                command=text,
                progress=stack.enter_context(_progress(progress, study)),
                out=None if out is None else Path(out),
                resume=resume,
                shard=Shard.asked(shard, out),
                trust=None if trust is None else Path(trust),
                datasets=datasets,
                objects=objects,
            )
        )
    for line in study.resolve(study.warnings)(result) if study.warnings is not None else ():
        warnings.warn(line, BrinellWarning, stacklevel=4)
    return result


def _in_memory(
    study: Study, given: dict[str, Any], how: Mapping[str, Any]
) -> tuple[dict[str, Dataset], dict[str, tuple[Model, ...]]]:
    """What is in memory, opened; in `given` it is replaced by what a request says of it."""
    datasets: dict[str, Dataset] = {}
    objects: dict[str, tuple[Model, ...]] = {}
    kinds = {name: mark.kind for name in study.in_memory() if (mark := study.request.names_of(name)) is not None}
    for name in (name for name, kind in kinds.items() if kind == "dataset" and name in given):
        dataset = open_dataset(given[name])
        given[name] = spec_of(given[name], dataset)
        datasets |= {} if dataset is None else {name: dataset}
    for name in (name for name, kind in kinds.items() if kind == "model" and name in given):
        spec = given.get("data") or _data_of(study, given)
        models = models_of(given[name], datasets.get("data"), spec, **how)
        many = isinstance(study.request.model_fields[name].default, tuple)
        if len(models) > 1 and not many:
            raise RequestError(f"this takes one model, and {len(models)} are given: call it once for each")
        given[name] = specs_of(given[name], models) if many else specs_of(given[name], models)[0]
        objects |= {name: models} if models else {}
    return datasets, objects


def _data_of(study: Study, given: Mapping[str, Any]) -> str:
    """The spec of the data, where nobody names them."""
    if study.data_of is not None:
        return str(study.resolve(study.data_of)(given))
    return str(study.request.model_fields["data"].default or "digits")


def _progress(progress: Progress | bool | None, study: Study) -> AbstractContextManager[Progress]:
    """What is told how a call goes on: a given one; live progress where it is asked for, or somebody looks; else nothing."""
    if not isinstance(progress, bool | None):
        return nullcontext(progress)
    console = Console(stderr=True)
    if progress or study.live or (progress is None and (console.is_terminal or console.is_jupyter)):
        return _Told(warns=study.warnings is None)
    return nullcontext(Silent())


class _Told(LiveProgress):
    """Live progress, without the warnings of a call that gives them as Python's own."""

    def __init__(self, *, warns: bool) -> None:
        super().__init__()
        self._warns = warns

    def warn(self, text: str) -> None:
        """A warning."""
        if self._warns:
            super().warn(text)


def _call_text(study: Study, given: Mapping[str, Any]) -> str:
    """The call that repeats this one: objects in memory by their names, numbers in full."""
    words, memory, open_ = [], False, True
    for name, parameter in signature_of(study).parameters.items():
        if name not in given or name in ("out", "resume", "shard", "trust", "progress"):
            open_ = open_ and name not in ("model", "data")
            continue
        text, is_object = _value_text(study, name, given[name])
        memory = memory or is_object
        open_ = open_ and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        words.append(text if open_ else f"{name}={text}")
    return f"brinell.{study.name}({', '.join(words)}) in Python{', with the same objects,' if memory else ''}"


def _value_text(study: Study, name: str, value: Any) -> tuple[str, bool]:
    """A value as one types it, and whether it is an object in memory."""
    mark = study.request.names_of(name)
    if mark is not None and mark.kind == "dataset":
        return (repr(str(value)), False) if isinstance(value, str | Path) else (name, True)
    if mark is not None and mark.kind == "model":
        many = list(value.items()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        if many is None:
            return (repr(str(value)), False) if isinstance(value, str | Path) else (name_of(value), True)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {name_of(one)}" for key, one in many) + "}", True
        if all(isinstance(one, str | Path) for one in many):
            return repr([str(one) for one in many]), False
        return "[" + ", ".join(name_of(one) for one in many) + "]", True
    if mark is not None and mark.kind == "folder":
        return repr([folder_of(one) for one in value] if isinstance(value, list | tuple) else folder_of(value)), False
    return preparation_text(texts({name: value})[name] if name in study.fields() else value), False


def _docstring(study: Study) -> str:
    """What the help of the command says, with every parameter."""
    fields = study.fields()
    lines = [register.entries()[study.verb].help, "", "Args:"]
    for name in signature_of(study).parameters:
        text = ARGUMENTS.get(name) or " ".join(str(fields[name].description).split())
        lines.append(f"    {name}: {text}")
    returns = study.resolve(study.result)
    lines += ["", "Returns:", f"    {returns.__name__}: what `brinell {study.verb} --json` prints, as `payload()`."]
    lines += ["", "Raises:", "    BrinellError: one line that says what is wrong, why, and what to do."]
    return "\n".join(lines)


ARGUMENTS = {
    "model": "an `nn.Module`, which takes inputs within the bounds of the data and answers logits; a function of numpy or "
    "torch arrays that answers scores or labels; a fitted classifier of scikit-learn; a session of onnxruntime; a classifier or "
    "pipeline of transformers; a `Model`; or a spec such as `digits-cnn`. Several in a list, or in a dict with their names.",
    "data": "inputs (n, *shape), channels first or last, bytes or in [0, 1], with labels (n,) as `y` or in a pair `(x, y)`; "
    "a dict of these; a torch Dataset or DataLoader; a Hugging Face dataset; what `brinell.data` makes; or a spec such as "
    "`npz:FILE`.",
    "y": "the labels (n,), where `data` are the inputs alone.",
    "preprocessing": "`{'mean': ..., 'std': ..., 'axis': -3}`, applied inside the model, or a processor of transformers.",
    "mean": "subtracted before the model: a number, or one for each channel.",
    "std": "divided by before the model, like `mean`.",
    "answers": "what a model in memory answers: logits, probabilities, log-probabilities, sigmoids (one score per class), "
    "labels, or for two classes one logit or probability. Default: by what it answers to clean samples.",
    "out": "where the results go. Default: a fresh folder under runs/.",
    "resume": "whether to go on with a folder that holds part of this.",
    "shard": "`K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.",
    "trust": "a folder from elsewhere whose models, data and code may be used as it names them.",
    "progress": "whether to tell what goes on, or what is told. Default: at a terminal and in a notebook.",
}
"""What the parameters that calls share mean."""
