"""Lists what refusals and findings say in `tests/messages.txt`, written by `make docs`: a diff
shows each change of wording.

A line holds the module, the function and the text, with what is filled in between braces. Refusals
are calls of the subclasses of `BrinellError`, findings those of `Finding`; a text in a variable is
each text that the function assigns to it.
"""

import ast
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "brinell"
ROOTS = frozenset(("BrinellError", "Finding"))
TEXTS = frozenset(("problem", "reason", "remedy", "text", "cause"))
"""Keywords that hold a text."""


def message_page() -> str:
    """The texts of all refusals and findings, a line each."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))
    }
    classes = subclasses(trees.values())
    lines = set[str]()
    for path, tree in trees.items():
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for name, function in functions(tree, module):
            lines.update(f"{name}: {text}" for text in messages(function, classes))
    return "".join(f"{line}\n" for line in sorted(lines))


def subclasses(trees: Iterable[ast.Module]) -> set[str]:
    """Names of the classes that a message is made by."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    names = set(ROOTS)
    while derived := {name for name, parents in bases.items() if parents & names} - names:
        names |= derived
    return names


def functions(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """The functions of a module with their full names; what stands outside of them belongs to the
    module.
    """
    yield name, node
    stack = list(ast.iter_child_nodes(node))
    while stack:
        child = stack.pop()
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from functions(child, f"{name}.{child.name}")
        else:
            stack += ast.iter_child_nodes(child)


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions within."""
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
            stack += ast.iter_child_nodes(node)


def messages(function: ast.AST, classes: set[str]) -> Iterator[str]:
    """The texts of the messages that a function makes."""
    nodes = list(own_nodes(function))
    variables: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            variables.setdefault(node.targets[0].id, []).append(node.value)
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in classes
        ):
            parts = [
                *node.args,
                *(keyword.value for keyword in node.keywords if keyword.arg in TEXTS),
            ]
            values = [
                variables.get(part.id, [part]) if isinstance(part, ast.Name) else [part]
                for part in parts
            ]
            for choice in itertools.product(*values):
                text = " | ".join(map(written, choice))
                if any(letter.isalpha() for letter in text):
                    yield " ".join(text.split())


def written(node: ast.expr) -> str:
    """A text with what is filled in between braces."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(written, values))
        case ast.FormattedValue(value=value):
            return f"{{{ast.unparse(value)}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return written(left) + written(right)
    return f"{{{ast.unparse(node)}}}"
