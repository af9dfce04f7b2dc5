"""The check of names and prose counts what it should, and nothing else."""

import importlib.util
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
