"""The scripts of `make check` notice planted faults, and every import contract fails on a planted
violation."""

import ast
import importlib
import random
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from brinell.core.user_files import import_file

LINT = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
)
VIOLATIONS = (
    (
        "Upper rooms import lower ones, never the reverse, and every room has its place",
        "engine/plan.py",
        "brinell.studies.epsilon",
    ),
    ("No circle, within a room either", "engine/plan.py", "brinell.engine.model_audit"),
    ("A plug-in imports no other of its kind", "attacks/fgsm.py", "brinell.attacks.pgd"),
    ("A study imports no other study", "studies/review/run.py", "brinell.studies.smooth.result"),
    (
        "The agent knows core and how distortions are called, and no plug-in by name",
        "rlab/agent.py",
        "brinell.models.digits_cnn",
    ),
    (
        "What reads records knows neither torch nor an attack, not even through others",
        "store/run.py",
        "brinell.core.patches",
    ),
    (
        "The result of a study is made from its rows alone",
        "studies/review/result.py",
        "brinell.studies.work",
    ),
    ("core is torch, numpy and the standard library", "core/record.py", "pyarrow"),
    ("The checkers know core and plug-ins alone", "testing/linear.py", "brinell.store.run"),
)
"""A contract, a file that breaks it, and what that file imports: within a function, which counts
as any other import."""


def script(root: Path, name: str) -> ModuleType:
    """A script of `make check`."""
    return import_file(root / "scripts" / f"{name}.py")


def test_names_and_prose_are_counted(root, tmp_path):
    words = script(root, "check_words")
    for source, names in (
        ("found = 1", ["found"]),
        ("def _told(at, *, row): pass", ["_told", "at"]),
        ("class Asked:\n    left: int", ["Asked", "left"]),
        ("records = [model for model in models]; print(found)", []),
    ):
        (tmp_path / "module.py").write_text(source)
        assert sorted(place.text for place in words.count_names(tmp_path).places) == sorted(
            names
        ), source
    for text, headless, turns in (
        ("What was stopped goes on with a command. What is it?", 1, 0),
        ("The user is told about a file of its own.", 0, 2),
        (
            "```\nWhat was cut goes on.\n```\n| Where it lies |\n    What stays "
            "stays.\n<!-- What ends -->\nEnd.",
            0,
            0,
        ),
    ):
        (tmp_path / "page.md").write_text(text)
        (tmp_path / "module.py").write_text("" if "`" in text else f'"""{text}"""')
        copies = 1 if "`" in text else 2
        assert len(words.count_prose(tmp_path, words.HEADLESS).places) == copies * headless, text
        assert len(words.count_prose(tmp_path, words.TURNS).places) == copies * turns, text


COMPARING = (
    "weakest",
    "strongest",
    "leads at",
    "more than chance",
    "most robust",
    "worse",
    "better",
)
FORMS = (
    "text = 'the net is {word} here'",
    "text = f'{{net}} {word} {{rate}}'",
    "text = ('the net is ' f'{word} with {{rate}}')",
    "notes.append(f'At {{eps}} the {word} of all')",
    "table = Table(text='X. {word} is Y.')",
)
"""Sentences that compare."""
HARMLESS = (
    '"""The net is {word} than all others."""',
    "# The net is {word} than all others.",
    "kind = '{word}'",
    "name = 'not-{word}-than the other net'",
    "text = f'in {{net}} less is better, and more is better in {{rate}}'",
    "text = f'the file leads {{net}} to a place and has all leads of it'",
)
"""Docstrings, comments, labels, names, directions and motion, which compare nothing."""


def test_a_sentence_that_compares_is_built_by_statements_alone(root, tmp_path):
    """Whatever the word, the form and the room; elsewhere, and in other forms, nothing is found."""
    words = script(root, "check_words")
    rng = random.Random(0)
    failure = 0
    for number in range(60):
        package = tmp_path / f"{number}"
        word = rng.choice(COMPARING)
        room = rng.choice(("analysis", "attacks", "cli", "core", "engine", "reports", "studies"))
        name = rng.choice(("words.py", "deep/words.py", "statements.py"))
        file = package / room / name
        file.parent.mkdir(parents=True)
        is_sentence = rng.random() < 0.6
        line = rng.choice(FORMS if is_sentence else HARMLESS).format(
            word=word if is_sentence else word.split()[-1]
        )
        file.write_text(f"net = rate = eps = 1\n{line}\n")
        is_place = is_sentence and f"{room}/{name}" not in words.SPEAKERS
        places = words.compared_texts(package)
        assert [place.line for place in places] == [2] * is_place, (room, name, line)
        failure += is_place
    assert 10 < failure < 50
    assert not words.compared_texts(root / "src" / "brinell")


def test_rooms_above_their_ceiling_and_unreadable_code_are_found(
    root, tmp_path, monkeypatch, capsys
):
    rooms = script(root, "check_rooms")
    monkeypatch.setattr(rooms, "SOURCE", tmp_path)
    monkeypatch.setattr(rooms, "CEILINGS", {(".",): 2, ("core", "store"): 5})
    (tmp_path / "core").mkdir()
    plain = '"""A docstring is no statement."""\n\n# A comment.\nx = 1\ny = x\n'
    (tmp_path / "top.py").write_text(plain)
    long = "def f(x):\n" + "".join(f"    x{k} = x\n" for k in range(14))
    dense = "a, b = f(1), g(2)\n"
    nested = "a = f(g(h(i(j(x)))))\n"
    branches = "def f(x):\n    return " + " or ".join(["x"] * 17) + "\n"
    unpacked = "a, b = (f(x) for x in y)\n"
    wide = f"x = {'1' * 100}\n"
    cases = (
        ("", None),
        ("x = 1\n" * 6, "core store"),
        (wide, "above 100 columns"),
        (dense, "several computed values"),
        (nested, "nested five"),
        (branches * 11, "complexity above 15"),
        (unpacked * 11, "unpacked from a generator"),
        (long.replace("= x", "= 1"), "without a blank line"),
        ("Ledger()\n" * 4, "build a Ledger"),
    )
    goals = tuple(rooms.Limit(limit.name, limit.goal, least=limit.least) for limit in rooms.LIMITS)
    monkeypatch.setattr(rooms, "LIMITS", goals)
    for text, word in cases:
        (tmp_path / "core" / "module.py").write_text(plain + text)
        rooms.main()
        over = [line for line in capsys.readouterr().out.splitlines() if line.startswith("over")]
        assert bool(over) is (word is not None), text
        assert word is None or any(word in line for line in over), (word, over)


def test_what_a_text_of_the_package_names_can_be_loaded(root):
    """A class that moves or is renamed takes the texts that name it along."""
    count = 0
    for path in (root / "src" / "brinell").rglob("*.py"):
        for module, name in re.findall(r'"(brinell(?:\.\w+)+):(\w+)"', path.read_text()):
            assert hasattr(importlib.import_module(module), name), (path, module, name)
            count += 1
    assert count > 3


def test_dead_links_are_faults(root, tmp_path):
    check = script(root, "check_docs")
    (tmp_path / "other.md").write_text("# A heading\n", encoding="utf-8")
    page = tmp_path / "page.md"
    for link in ("nowhere.md", "other.md#no-heading", "#no-heading", "../other.md"):
        page.write_text(
            f"# Here\n\n[x]({link}) [y](other.md#a-heading) [z](#here) "
            "[w](https://example.org/#no)\n"
        )
        assert len(check.dead_links(page)) == 1, link


def test_messages_are_listed_with_what_is_filled_in(root):
    script_of_messages = script(root, "list_messages")
    tree = ast.parse(
        "class OwnError(BrinellError): pass\n"
        "def check(n):\n"
        "    text = 'too many'\n"
        "    if n: text = f'{n} of ' + unit\n"
        "    raise OwnError('wrong', text, option='n')\n"
    )
    assert script_of_messages.subclasses([tree]) == {"BrinellError", "Finding", "OwnError"}
    functions = dict(script_of_messages.functions(tree, "module"))
    texts = script_of_messages.messages(functions["module.check"], {"OwnError"})
    assert sorted(texts) == ["wrong | too many", "wrong | {n} of {unit}"]


@pytest.mark.nightly
def test_every_contract_notices_a_violation(root, tmp_path):
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    assert [contract["name"] for contract in contracts] == [name for name, _, _ in VIOLATIONS]
    shutil.copytree(
        root / "src" / "brinell", tmp_path / "brinell", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(root / "pyproject.toml", tmp_path)
    for name, file, module in VIOLATIONS:
        path = tmp_path / "brinell" / file
        source = path.read_text()
        path.write_text(f"{source}\n\ndef planted():\n    import {module}\n")
        process = subprocess.run(
            [sys.executable, "-c", LINT],
            cwd=tmp_path,
            env={"PYTHONPATH": "."},
            capture_output=True,
            text=True,
        )
        path.write_text(source)
        broken = re.findall(r"^(.*) BROKEN", process.stdout, flags=re.MULTILINE)
        assert name in broken and process.returncode, f"{name}: {process.stdout}{process.stderr}"
