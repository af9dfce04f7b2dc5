"""The check of names and prose counts what it should, and nothing else; docstrings call parameters by their names."""

import ast
import builtins
import importlib.util
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def words(root: Path) -> ModuleType:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("check_words", root / "scripts" / "check_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("found = 1", ["found"]),
        ("def _told(at, *, row): pass", ["_told", "at"]),
        ("[one for one in rows]", ["one"]),
        ("class Asked:\n    left: int", ["Asked", "left"]),
        ("records = [model for model in models]", []),
        ("print(found)", []),
    ],
)
def test_names_that_are_not_nouns_are_counted(words: ModuleType, tmp_path: Path, source: str, names: list[str]) -> None:
    (tmp_path / "module.py").write_text(source)
    assert sorted(place.text for place in words.count_names(tmp_path).places) == sorted(names)


@pytest.mark.parametrize(
    ("text", "headless", "turns"),
    [
        ("What was stopped goes on with a command.", 1, 0),
        ("The run ended. Whether it passed is unknown.", 1, 0),
        ("What is robust accuracy?", 0, 0),
        ("The user is told about a file of its own.", 0, 2),
        ("The model answers. It is robust.", 0, 0),
    ],
)
def test_sentences_are_counted_in_docstrings_and_pages(
    words: ModuleType, tmp_path: Path, text: str, headless: int, turns: int
) -> None:
    for name, content in (("page.md", text), ("module.py", f'"""{text}"""')):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text(content)
        assert len(words.count_prose(folder, words.HEADLESS).places) == headless
        assert len(words.count_prose(folder, words.TURNS).places) == turns


def test_code_tables_and_comments_are_left_out(words: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "```\nWhat was cut goes on.\n```\n| Where it lies |\n    What stays stays.\n<!-- What ends -->\nEnd."
    )
    assert not words.count_prose(tmp_path, words.HEADLESS).places


def test_a_figure_above_its_limit_fails_and_names_its_places(
    words: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = words.Place(root / "src" / "module.py", 3, "found")
    assert words.report("names", words.Count([place], 100), 100, 1.0, False)
    assert not words.report("names", words.Count([place, place], 100), 100, 1.0, False)
    assert "src/module.py:3: found" in capsys.readouterr().out


CLASS = re.compile(r"[A-Z][a-z]")
OF_OTHERS = frozenset(
    "FOLDER HASH LABEL_7 NAME a auto brightness brinell classes_ concurrency h0 h10 id2label label2id lenet5_advtrained "
    "lenet5_clean local logits plain session test".split()
)
"""Words in backticks that are names elsewhere: in libraries, files, pages or specs. Classes of other files are allowed too."""


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


def unknown_names(source: str) -> Iterator[tuple[int, str]]:
    """Lines and names in backticks in docstrings of functions that are neither parameters nor names of the file."""
    tree = ast.parse(source)
    outside = names_of_file(tree) | OF_OTHERS

    def visit(node: ast.AST, parameters: set[str]) -> Iterator[tuple[int, str]]:
        for child in ast.iter_child_nodes(node):
            within = set(parameters)
            if isinstance(child, ast.FunctionDef):
                within |= {part.arg for part in ast.walk(child.args) if isinstance(part, ast.arg)}
                words = re.findall(r"(?<!`)`([A-Za-z_]\w*)`(?!`)", ast.get_docstring(child) or "")
                yield from ((child.lineno, word) for word in words if word not in outside | within and not CLASS.match(word))
            yield from visit(child, within)

    return visit(tree, set())


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "scripts"])
def test_docstrings_name_parameters_as_they_are_called(root: Path, folder: str) -> None:
    """A parameter that gets another name gets it in the docstring too."""
    files = sorted((root / folder).rglob("*.py"))
    unknown = [
        f"{path.relative_to(root)}:{line}: `{name}`" for path in files for line, name in unknown_names(path.read_text("utf-8"))
    ]
    assert files and not unknown


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('def load(path):\n    """Load `file`."""', ["file"]),
        ('def load(path):\n    """Load `path`."""', []),
        ('def load(path):\n    """Load `file`."""\n    file = path', ["file"]),
        ('def load(path):\n    def inner():\n        """Load `path`."""', []),
        ('LIMIT = 3\ndef load(path):\n    """Load at most `LIMIT`; see `Store.read`, ``x``, `brinell audit`."""', []),
    ],
)
def test_names_that_docstrings_use_are_checked(source: str, expected: list[str]) -> None:
    assert [name for _, name in unknown_names(source)] == expected
