"""Checks rules of the source that no linter knows (CONTRIBUTING.md): `python scripts/check_source.py`.

- Docstrings of functions name parameters as they are called.
- No module of `src` decides by how a sentence begins or ends: a separate field states what a line says.
"""

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts")
CLASS = re.compile(r"[A-Z][a-z]")
"""Beginning of a name of a class, which may be that of another file."""
FOREIGN_NAMES = frozenset(
    "FOLDER HASH LABEL_7 NAME a auto brightness brinell classes_ concurrency h0 h10 id2label label2id lenet5_advtrained "
    "lenet5_clean local logits plain session test".split()
)
"""Words in backticks that are names elsewhere: in libraries, files, pages or specs."""
METHODS = frozenset(("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"))
FOREIGN_TEXTS = {
    "datasets/bench.py": "  ",  # the columns of a file of checksums
    "models/hf.py": ". ",  # what the library says of a processor
    "models/_channel.py": "] ",  # what the system says of a failed connection
    "engine/provenance.py": "model name",  # a line of /proc/cpuinfo
}
"""Texts of other programs, by the file that reads them."""


def names_of_file(tree: ast.Module) -> set[str]:
    """Names that every docstring of a file may use: imports, definitions outside functions, attributes."""
    names = set(dir(builtins)) | set(keyword.kwlist)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=alias):
                names |= {*name.split("."), alias or name}
            case ast.Constant(value=str(text)) if not re.search(r"\s", text):
                names |= set(re.findall(r"\w+", text))
        for statement in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            names |= {part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


def unknown_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and names in backticks in docstrings of functions that are neither parameters nor names of the file."""
    outside = names_of_file(tree) | FOREIGN_NAMES

    def visit(node: ast.AST, parameters: set[str]) -> Iterator[tuple[int, str]]:
        """Those within a node, which may name the parameters of the functions around it."""
        for child in ast.iter_child_nodes(node):
            known_names = set(parameters)
            if isinstance(child, ast.FunctionDef):
                known_names |= {part.arg for part in ast.walk(child.args) if isinstance(part, ast.arg)}
                words = re.findall(r"(?<!`)`([A-Za-z_]\w*)`(?!`)", ast.get_docstring(child) or "")
                yield from ((child.lineno, word) for word in words if word not in outside | known_names and not CLASS.match(word))
            yield from visit(child, known_names)

    return visit(tree, set())


def decisions(tree: ast.Module) -> list[tuple[int, str]]:
    """Lines and literals with a space by which a module takes texts apart."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    literals = (
        node
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
        for argument in call.args
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant)
    )
    return [(node.lineno, node.value) for node in literals if isinstance(node.value, str) and " " in node.value]


def faults_of(name: str, source: str) -> Iterator[str]:
    """What is wrong with a file, by its path from the root."""
    tree = ast.parse(source)
    yield from (f"{name}:{line}: `{word}` is no parameter and no name of the file" for line, word in unknown_names(tree))
    if name.startswith("src/brinell/"):
        foreign = FOREIGN_TEXTS.get(name.removeprefix("src/brinell/"))
        yield from (f"{name}:{line}: takes a text apart by {text!r}" for line, text in decisions(tree) if text != foreign)


def main() -> int:
    """Print every fault; returns the exit code."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    faults = [fault for path in paths for fault in faults_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))]
    print(*faults, f"{len(paths)} files, {len(faults)} faults", sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
