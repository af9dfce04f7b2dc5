"""The signatures of the Python calls, as a stub of the package: what type checkers and editors know of `brinell`."""

import inspect
import textwrap

from brinell import calls, inputs
from brinell.batch_attack import attack
from brinell.studies import register
from brinell.studies.kit import Study

HEAD = '''"""What `brinell` offers, with the type of every keyword. Written by `make docs`; do not edit by hand."""

# ruff: noqa: D, E501
from collections.abc import Sequence
from typing import Any, Literal

from brinell.batch_attack import attack as attack
from brinell.core.errors import BrinellError as BrinellError
from brinell.core.errors import BrinellWarning as BrinellWarning
from brinell.inputs import data as data
from brinell.types import AnyModel, Data, Device, Eps, File, Folder, Labels, Models, Norm, Told
'''


def stub() -> str:
    """The text of `__init__.pyi`."""
    studies = [study for study in register.studies().values() if study.call]
    results = sorted({study.resolve(study.result) for study in studies}, key=lambda result: (result.__module__, result.__name__))
    lines = [HEAD.rstrip()]
    lines += [f"from {result.__module__} import {result.__name__}" for result in results]
    lines += ["", "__version__: str", "", "def open(folder: Folder) -> Any:", _doc(inspect.getdoc(calls.open_folder) or "")]
    for study in studies:
        lines += ["", *_call(study)]
    return "\n".join(lines) + "\n"


def _call(study: Study) -> list[str]:
    signature = calls.signature_of(study)
    words, named = [], False
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not named:
            words, named = [*words, "*"], True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        words.append(f"{name}: {parameter.annotation}{default}")
    result, doc = study.resolve(study.result).__name__, calls.call_of(study).__doc__ or ""
    return [
        f"def {study.name}(",
        *(f"    {word}," for word in words),
        f") -> {result}:",
        _doc(doc),
    ]


def _doc(text: str) -> str:
    return textwrap.indent(f'"""{text}\n"""', "    ")


assert attack and inputs.data  # what the head imports by name is there
