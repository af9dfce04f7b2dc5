"""Calls of the package as text: the signatures of the reference, and the stub
`src/brinell/__init__.pyi`, which `make docs` writes and git holds, so that any way of installing
has it.
"""

import inspect
import re
import textwrap
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from brinell import calls, parameters
from brinell.studies import register
from brinell.studies.kit import Study

STUB_HEAD = '''"""What `brinell` offers, with the type of every keyword. Written by `make docs`."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

from brinell import plugins as plugins
from brinell import testing as testing
from brinell.batch_attack import attack as attack
from brinell.core.errors import BrinellError as BrinellError
from brinell.core.errors import BrinellWarning as BrinellWarning
from brinell.inputs import data as data
from brinell.parameters import AnyModel, Data, Device, Eps, File, Folder, Labels, Models, Norm, ProgressOption
'''


def typed(study: Study) -> inspect.Signature:
    """The signature of a call, with the type of each parameter."""
    signature = inspect.signature(calls.call_of(study))
    parameters = [
        parameter.replace(
            annotation="Any"
            if parameter.kind is inspect.Parameter.VAR_KEYWORD
            else annotation_of(study, parameter.name, parameter.default)
        )
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def settings_name(study: Study) -> str:
    """The name of the stub's class for the keywords that a signature does not name."""
    words = study.name.split("_")
    return f"_{''.join(word.capitalize() for word in words)}Settings"


def settings_class(study: Study) -> list[str]:
    """The lines of the stub's class for the keywords that a signature does not name; empty if it
    names all of them.
    """
    named = inspect.signature(calls.call_of(study)).parameters
    others = {
        name: parameter
        for name, parameter in calls.parameters_of(study).items()
        if name not in named
    }
    if not others:
        return []

    fields = [
        f"    {name}: {annotation_of(study, name, parameter.default)}"
        for name, parameter in others.items()
    ]
    return ["", f"class {settings_name(study)}(TypedDict, total=False):", *fields]


def annotation_of(study: Study, name: str, default: Any) -> str:
    """The type of a parameter, as a signature writes it: by the names of `brinell.parameters`."""
    fields, none = study.fields(), default is None
    if name in SHARED and name not in fields:
        text = SHARED[name]
    else:
        mark = study.names_of(name)
        only_specs = (
            mark is not None and mark.kind in ("model", "dataset") and name not in study.in_memory()
        )
        type_name = None if mark is None or only_specs else TYPES.get(mark.kind)
        is_sequence = "tuple" in str(fields[name].annotation)
        if name == "device":
            text = "Device"
        elif type_name is None:
            text = _type_text(fields[name].annotation)
        elif is_sequence:
            text = SEQUENCE_TYPES.get(type_name, f"{type_name} | Sequence[{type_name}]")
        else:
            text = type_name
    return text + (" | None" if none and not {"None", "Any"} & set(text.split(" | ")) else "")


SHARED = {
    "y": "Labels",
    "preprocessing": "Any",
    "mean": "Any",
    "std": "Any",
    "answers": "str",
    "output": "str | int",
    "out": "File",
    "resume": "bool",
    "on": "str",
    "trust": "File",
    "progress": "ProgressOption",
}
"""The types of the parameters that calls share."""
TYPES = {
    "model": "AnyModel",
    "dataset": "Data",
    "budgets": "Eps",
    "distance": "Norm",
    "folder": "Folder",
    "file": "File",
}
"""Python type of a setting, by the mark on its field."""
SEQUENCE_TYPES = {"AnyModel": "Models", "Norm": "Norm", "Eps": "Eps"}
"""Types that stand for several as well."""


def _type_text(hint: Any) -> str:
    """The type of a field, as one writes it; several as one or a sequence."""
    origin, parts = (
        get_origin(hint),
        [argument for argument in get_args(hint) if argument is not Ellipsis],
    )
    if origin is Annotated:
        return _type_text(parts[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is tuple:
        return f"{_type_text(parts[0])} | Sequence[{_type_text(parts[0])}]"
    if parts:
        return " | ".join(map(_type_text, parts))
    return "None" if hint is NoneType else str(hint.__name__)


def stub_text() -> str:
    """The text of `__init__.pyi`."""
    studies = [study for study in register.studies().values() if study.call]
    results = sorted(
        {study.resolve(study.result) for study in studies},
        key=lambda result: (result.__module__, result.__name__),
    )
    lines = [STUB_HEAD.rstrip()]
    lines += [f"from {result.__module__} import {result.__name__}" for result in results]
    lines += [
        "",
        "__version__: str",
        "",
        "def open(folder: Folder) -> Any:",
        *first_line(calls.open_folder),
    ]
    for study in studies:
        call = calls.call_of(study)
        signature = typed(study)
        if further := settings_class(study):
            keywords = signature.parameters["settings"]
            keywords = keywords.replace(annotation=f"Unpack[{settings_name(study)}]")
            others = [part for part in signature.parameters.values() if part.name != "settings"]
            signature = signature.replace(parameters=[*others, keywords])
        name, *words, ending = signature_lines(study.name, signature, body=":")
        text = " ".join(
            word.strip().replace(" ", "\0") for word in words
        )  # a line ends after a parameter
        filled = textwrap.fill(
            text,
            120,
            initial_indent="    ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += [*further, "", name, filled.replace("\0", " "), ending, *first_line(call)]
    return "\n".join(lines) + "\n"


def first_line(call: Any) -> list[str]:
    """The first paragraph of a docstring, as the body of a function.

    `help` and the reference have all of it.
    """
    summary = (inspect.getdoc(call) or "").partition("\n\n")[0]
    return [f'    """{" ".join(summary.split())}"""']


def signature_lines(name: str, signature: inspect.Signature, *, body: str = "") -> list[str]:
    """A signature as one writes it, a parameter a line."""
    words, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            words, starred = [*words, "*"], True
        default = (
            "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        )
        stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        words.append(f"{stars}{parameter.name}: {annotation_text(parameter.annotation)}{default}")
    return [
        f"def {name}(",
        *(f"    {word}," for word in words),
        f") -> {annotation_text(signature.return_annotation)}{body}",
    ]


def annotation_text(hint: Any) -> str:
    """A type by the name that signatures use, without its module."""
    if isinstance(hint, str):
        return hint
    for name in parameters.__all__:
        if hint in (getattr(parameters, name), getattr(parameters, name) | None):
            return name if hint == getattr(parameters, name) else f"{name} | None"
    text = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(hint))
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)
