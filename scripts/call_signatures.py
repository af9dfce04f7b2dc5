"""Calls of the package as text: the signatures of the reference, and the stub `src/brinell/__init__.pyi`.

`python scripts/call_signatures.py` writes the stub, which a wheel and an editable installation hold and git does not.
"""

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from brinell import calls, parameters
from brinell.studies import register

STUB_HEAD = '''"""What `brinell` offers, with the type of every keyword. Written by scripts/call_signatures.py."""

# ruff: noqa: D, E501
from collections.abc import Sequence
from typing import Any, Literal

from brinell.batch_attack import attack as attack
from brinell.core.errors import BrinellError as BrinellError
from brinell.core.errors import BrinellWarning as BrinellWarning
from brinell.inputs import data as data
from brinell.parameters import AnyModel, Data, Device, Eps, File, Folder, Labels, Models, Norm, ProgressOption
'''


def stub_text() -> str:
    """The text of `__init__.pyi`."""
    studies = [study for study in register.studies().values() if study.call]
    results = sorted({study.resolve(study.result) for study in studies}, key=lambda result: (result.__module__, result.__name__))
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
        name, *words, ending = signature_lines(study.name, inspect.signature(call), body=":")
        text = " ".join(word.strip().replace(" ", "\0") for word in words)  # a line ends after a parameter
        filled = textwrap.fill(
            text, 120, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
        )
        lines += ["", name, filled.replace("\0", " "), ending, *first_line(call)]
    return "\n".join(lines) + "\n"


def first_line(call: Any) -> list[str]:
    """The first line of a docstring, as the body of a function; `help` and the reference have all of it."""
    return [f'    """{(inspect.getdoc(call) or "").partition(chr(10))[0]}"""']


def signature_lines(name: str, signature: inspect.Signature, *, body: str = "") -> list[str]:
    """A signature as one writes it, a parameter a line."""
    words, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            words, starred = [*words, "*"], True
        default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
        stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        words.append(f"{stars}{parameter.name}: {annotation_text(parameter.annotation)}{default}")
    return [f"def {name}(", *(f"    {word}," for word in words), f") -> {annotation_text(signature.return_annotation)}{body}"]


def annotation_text(hint: Any) -> str:
    """A type by the name that signatures use, without its module."""
    if isinstance(hint, str):
        return hint
    for name in parameters.__all__:
        if hint in (getattr(parameters, name), getattr(parameters, name) | None):
            return name if hint == getattr(parameters, name) else f"{name} | None"
    text = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(hint))
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)


if __name__ == "__main__":
    (Path(__file__).resolve().parent.parent / "src" / "brinell" / "__init__.pyi").write_text(stub_text(), encoding="utf-8")
