"""Benchmarks, examples and scripts, most of which no test runs, use names of the package that exist
and call them with arguments that they accept.
"""

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [
    path
    for folder in ("benchmarks", "examples", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported(tree):
    """Objects of the package by the name under which a file imports them, also inside functions.

    Raises where one is missing.
    """
    objects = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "brinell":
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                objects[alias.asname or alias.name] = getattr(module, alias.name)
        elif isinstance(node, ast.Import) and any(alias.name == "brinell" for alias in node.names):
            objects["brinell"] = importlib.import_module("brinell")
    return objects


def faults(source):
    """Attributes of modules that are missing, and calls whose arguments a function of the package
    does not accept."""
    tree = ast.parse(source)
    objects = imported(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if isinstance(
                objects.get(name), ModuleType
            ):
                if not hasattr(objects[name], attribute):
                    yield f"line {node.lineno}: {name}.{attribute} is missing"
            case ast.Call(func=ast.Name(id=name)) if name in objects:
                yield from wrong_call(node, objects[name])
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if (
                isinstance(objects.get(name), ModuleType)
            ):
                yield from wrong_call(node, getattr(objects[name], attribute, print))


def wrong_call(node, function):
    """The reason why a call cannot be bound to the parameters of a function; one with unpacked
    arguments is checked by name.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # an extension type, which has no signature
        return
    unpacked = any(isinstance(argument, ast.Starred) for argument in node.args) or any(
        not word.arg for word in node.keywords
    )
    words = {word.arg: None for word in node.keywords if word.arg}
    try:
        signature.bind_partial(**words) if unpacked else signature.bind(*node.args, **words)
    except TypeError as error:
        yield f"line {node.lineno}: {ast.unparse(node.func)}: {error}"


@pytest.mark.slow
def test_every_call_fits():
    wrong = {
        str(path.relative_to(ROOT)): list(faults(path.read_text(encoding="utf-8")))
        for path in FILES
    }
    assert len(FILES) > 50 and not {path: lines for path, lines in wrong.items() if lines}


def test_wrong_calls_and_missing_names_are_found():
    lines = [
        "import brinell; brinell.audits()",
        "import brinell; brinell.attack_and_run()",
        "from brinell.core.errors import RequestError; RequestError(reason='x', wrong=3)",
        "from brinell.engine.sources import open_data; open_data()",
        "from brinell.engine.sources import open_data; open_data('digits', *[], wrongly=1)",
    ]
    assert [len(list(faults(line))) for line in lines] == [1] * len(lines)
    with pytest.raises(ModuleNotFoundError):
        list(faults("from brinell.core.errors import Nothing"))
