"""Every command and every Python block of the guides runs, or the guide says why a test cannot run
it.

A block after the comment `<!-- not run: REASON -->` is left out. A block of `text` is what the
commands before it print. Names that a reader replaces (FILE.npz, model.py:factory) stand for small
files that a test writes. Commands on the real networks are planned (`--dry-run`) and not carried
out.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.main import get_command

import brinell
from _pictures import write_pictures
from _spots import write_spots
from brinell.cli import command_line, run
from brinell.studies.kit import GROUPS

GUIDES = sorted((Path(__file__).resolve().parent.parent / "docs" / "guides").glob("*.md"))
NOT_RUN = re.compile(r"<!-- not run: (\S.*) -->")
DEAR = frozenset(("certify", "dense", "detectors", "hardening"))
"""Guides that take the longest, and whose commands other tests run too."""
FAILURES = {"doctor": (0, 1), "gate": (0, 1), "verify": (0, 1)}
"""Exit codes of commands that may say no; of all others 0 alone is right."""


class Block(NamedTuple):
    """A block of code in a guide: its language, its text, and the reason why no test runs it, if
    there is one.
    """

    language: str
    text: str
    reason: str


def blocks(text: str) -> Iterator[Block]:
    """The code blocks of a page, fenced ones and indented ones, in order."""
    lines, index, reason = text.splitlines(), 0, ""
    while index < len(lines):
        line = lines[index]
        if mark := NOT_RUN.fullmatch(line):
            reason = mark[1]
        elif line.startswith("```"):
            end = lines.index("```", index + 1)
            yield Block(line.removeprefix("```"), "\n".join(lines[index + 1 : end]), reason)
            index, reason = end, ""
        elif line.startswith("    ") and not lines[index - 1].strip():
            end = next(
                (row for row in range(index, len(lines)) if not lines[row].startswith("    ")),
                len(lines),
            )
            yield Block("", "\n".join(row[4:] for row in lines[index:end]), reason)
            index, reason = end - 1, ""
        elif line.strip():
            reason = ""
        index += 1


def lines_of(text: str) -> list[list[str]]:
    """The lines of an output, without what differs between machines: figures, and how far apart
    columns are.
    """
    return [
        re.sub(r"[\d.,]+|\s+", " ", re.sub(r"─+", "─", line)).split()
        for line in text.splitlines()
        if line.strip()
    ]


def commands(block: Block) -> list[list[str]]:
    """The commands of a block as words; a backslash continues a line, and a comment is left out."""
    return [
        shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()
    ]


def python_blocks(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def fill(folder: Path, root: Path) -> None:
    """Put what the names in the guides stand for into a folder."""
    inputs, labels = load_digits(return_X_y=True)
    inputs = (inputs.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    for name, rows in (("FILE", slice(0, 24)), ("TEST", slice(0, 24)), ("TRAIN", slice(24, 224))):
        np.savez(folder / f"{name}.npz", x=inputs[rows], y=labels[rows])
    source, *_ = python_blocks(root / "README.md")
    (folder / "model.py").write_text(source, encoding="utf-8")
    model: dict[str, Any] = {}
    exec(source, model)
    from safetensors.torch import save_file

    save_file(
        {name: value.contiguous() for name, value in model["factory"]().state_dict().items()},
        folder / "FILE.safetensors",
    )
    write_pictures(folder / "FOLDER")
    (folder / "FOLDER" / "network.py").rename(folder / "segmentation.py")
    write_spots(folder)
    module, *_ = python_blocks(root / "CONTRIBUTING.md")
    (folder / "sign_walk.py").write_text(module, encoding="utf-8")
    shutil.copytree(
        root / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )


def namespace() -> dict[str, Any]:
    """The names that Python blocks take for granted."""
    inputs, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    inputs = inputs.float().reshape(-1, 1, 8, 8) / 16
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    return {
        "__name__": "guide",
        "brinell": brinell,
        "F": torch.nn.functional,
        "model": model,
        "x": inputs[:12],
        "y": labels[:12],
        "photos": inputs[:12].permute(0, 2, 3, 1),
        "signals": inputs[:12, 0],
        "pixels": 255 * inputs[:12],
        "table": 3 * inputs[:12].flatten(1),
        "loader": [(inputs[:8], labels[:8])],
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def carry_out(words: list[str], root: Path) -> None:
    """Run one command of a guide."""
    match words:
        case ["brinell", "--version"]:
            pass
        case ["brinell", verb, *rest]:
            assert run([verb, *rest]) in FAILURES.get(verb, (0,)), words
        case ["make", target]:
            assert re.search(
                rf"^{target}:", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE
            )
        case _:  # `make smoke` installs the wheel
            assert words[:2] == ["pip", "install"], words


def run_guide(guide: Path, folder: Path, root: Path) -> None:
    """Run every block of a guide in a folder of its own, with the files that it shows under a name."""
    folder.mkdir()
    fill(folder, root)
    text = guide.read_text(encoding="utf-8")
    for name, source in re.findall(
        r"`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL
    ):
        (folder / name).write_text(source, encoding="utf-8")
    with contextlib.chdir(folder):
        run_blocks(guide.name, text, root, namespace())


def run_blocks(name: str, text: str, root: Path, names: dict[str, Any]) -> None:
    """Run the blocks of a page in the working folder, and compare what they print with what the
    page says."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks(text):
            if block.reason:
                continue
            if block.language == "text":
                lines = iter(lines_of(printed.getvalue()))
                missing = [
                    line for line in lines_of(block.text) if line not in lines
                ]  # in this order
                assert not missing, (
                    f"{name} shows {missing}, but this is printed:\n{printed.getvalue()}"
                )
                continue
            printed.seek(0)
            printed.truncate()
            if block.language == "python":
                exec(compile(block.text, name, "exec"), names)
            else:
                for words in commands(block):
                    carry_out(words, root)


SHARES = 12
"""Tests among which the guides are dealt out."""


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_the_guides_run(share: int, root: Path, tmp_path: Path) -> None:
    guides = [guide for guide in GUIDES if guide.stem not in DEAR]
    for guide in guides[share::SHARES]:
        run_guide(guide, tmp_path / guide.stem, root)


@pytest.mark.slow
def test_the_readme_runs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks are the files that the text names, and what its commands print."""
    monkeypatch.syspath_prepend(tmp_path)
    model, call, shade = python_blocks(root / "README.md")
    assert model in (root / "docs" / "guides" / "first-audit.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, text in (("model.py", model), ("shade.py", shade)):
        Path(name).write_text(text, encoding="utf-8")
    run_blocks(
        "README.md",
        (root / "README.md").read_text(encoding="utf-8").replace(call, "").replace(shade, ""),
        root,
        {},
    )
    exec(compile(call, "README.md", "exec"), {"__name__": "readme"})
    for command in re.findall(
        r"\| `(brinell [^`]*)`", (root / "README.md").read_text(encoding="utf-8")
    ):
        if "harden" not in command and "certify" not in command:  # other guides run these
            assert run(shlex.split(command)[1:]) == 0, command
    sys.modules.pop("model")


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(DEAR))
def test_the_dear_guides_run(name: str, root: Path, tmp_path: Path) -> None:
    (guide,) = (guide for guide in GUIDES if guide.stem == name)
    run_guide(guide, tmp_path / name, root)


@pytest.mark.nightly
def test_commands_on_real_networks_can_be_planned(root: Path, shared: Path, tmp_path: Path) -> None:
    fill(tmp_path, root)
    text = (
        (root / "docs" / "guides" / "models-and-data.md")
        .read_text(encoding="utf-8")
        .replace("$D", str(shared))
    )
    real = [
        block for block in blocks(text) if block.reason == "needs the networks of the shared data"
    ]
    assert real
    with contextlib.chdir(tmp_path):
        for words in (words for block in real for words in commands(block)):
            assert run([*words[1:], "--dry-run"]) == 0


def test_reasons_stand_before_blocks() -> None:
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        reasons = [block.reason for block in blocks(text) if block.reason]
        assert reasons == NOT_RUN.findall(text), guide.name


def test_options_in_the_guides_exist(root: Path) -> None:
    verbs: Any = get_command(command_line())
    for guide in [*GUIDES, root / "README.md"]:
        text = guide.read_text(encoding="utf-8").replace("\\\n", " ")
        for verb, arguments in re.findall(r"\bbrinell ([a-z][a-z-]*)([^`\n]*)", text):
            if verb in verbs.commands:
                command = verbs.commands[verb]
                command = command.commands[arguments.split()[0]] if verb in GROUPS else command
                options = {name for parameter in command.params for name in parameter.opts}
                assert set(re.findall(r"(?<!\S)--[a-z-]+", arguments)) <= options, (
                    guide.name,
                    verb,
                    arguments,
                )


def test_blocks_and_commands_are_read() -> None:
    for text, expected in (
        ("a\n\n    one \\\n      two # comment\n    three\n\nb", [[["one", "two"], ["three"]]]),
        ("```bash\none\n```\n\n    two", [[["one"]], [["two"]]]),
        ("- item\n    text", []),
    ):
        assert [commands(block) for block in blocks(text)] == expected
