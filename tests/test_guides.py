"""Every command and every Python block of the guides runs, or the guide says why a test cannot run it.

A block after the comment `<!-- not run: REASON -->` is left out. Names that a reader replaces (FILE.npz, model.py:factory) stand
for small files that a test writes. Commands on the real networks are planned (`--dry-run`) and not carried out.
"""

import contextlib
import re
import shlex
import shutil
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
MODEL = """
import torch

def factory():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
"""
DEAR = frozenset(("certify", "dense", "generated-inputs", "hardening"))
"""Guides that take the longest, and whose commands other tests run too."""
FAILURES = {"gate": (0, 1), "verify": (0, 1)}
"""Exit codes of commands that may say no; of all others 0 alone is right."""


class Block(NamedTuple):
    """A block of code in a guide: its language, its text, and the reason why no test runs it, if there is one."""

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
            end = next((row for row in range(index, len(lines)) if not lines[row].startswith("    ")), len(lines))
            yield Block("", "\n".join(row[4:] for row in lines[index:end]), reason)
            index, reason = end - 1, ""
        elif line.strip():
            reason = ""
        index += 1


def commands(block: Block) -> list[list[str]]:
    """The commands of a block as words; a backslash continues a line, and a comment is left out."""
    return [shlex.split(line, comments=True) for line in block.text.replace("\\\n", " ").splitlines()]


def fill(folder: Path, root: Path) -> None:
    """Put what the names in the guides stand for into a folder."""
    inputs, labels = load_digits(return_X_y=True)
    inputs = (inputs.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    for name, rows in (("FILE", slice(0, 24)), ("TEST", slice(0, 24)), ("TRAIN", slice(24, 224))):
        np.savez(folder / f"{name}.npz", x=inputs[rows], y=labels[rows])
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    model: dict[str, Any] = {}
    exec(MODEL, model)
    from safetensors.torch import save_file

    save_file(model["factory"]().state_dict(), folder / "FILE.safetensors")
    write_pictures(folder / "FOLDER")
    (folder / "FOLDER" / "network.py").rename(folder / "segmentation.py")
    write_spots(folder)
    module, *_ = re.findall(
        r"^```python\n(.*?)^```", (root / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    (folder / "sign_walk.py").write_text(module, encoding="utf-8")
    shutil.copytree(root / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))


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
            assert re.search(rf"^{target}:", (root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        case _:  # `make smoke` installs the wheel
            assert words in (["pip", "install", "."], ["uv", "pip", "install", "."]), words


def run_guide(guide: Path, folder: Path, root: Path) -> None:
    """Run every block of a guide in a folder of its own."""
    folder.mkdir()
    fill(folder, root)
    names = namespace()
    with contextlib.chdir(folder):
        for block in blocks(guide.read_text(encoding="utf-8")):
            if block.reason:
                continue
            if block.language == "python":
                exec(compile(block.text, guide.name, "exec"), names)
            else:
                for words in commands(block):
                    carry_out(words, root)


SHARES = 12
"""Tests among which the guides are dealt out."""


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_the_guides_run(share: int, root: Path, tmp_path: Path) -> None:
    guides = [guide for guide in GUIDES if guide.stem not in DEAR | {"real-networks"}]
    for guide in guides[share::SHARES]:
        run_guide(guide, tmp_path / guide.stem, root)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(DEAR))
def test_the_dear_guides_run(name: str, root: Path, tmp_path: Path) -> None:
    (guide,) = (guide for guide in GUIDES if guide.stem == name)
    run_guide(guide, tmp_path / name, root)


@pytest.mark.nightly
def test_commands_on_real_networks_can_be_planned(root: Path, shared: Path, tmp_path: Path) -> None:
    fill(tmp_path, root)
    text = (root / "docs" / "guides" / "real-networks.md").read_text(encoding="utf-8").replace("$D", str(shared))
    with contextlib.chdir(tmp_path):
        for block in blocks(text):
            for words in commands(block):
                assert run([*words[1:], "--dry-run"]) == 0


def test_reasons_stand_before_blocks() -> None:
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        reasons = [block.reason for block in blocks(text) if block.reason]
        assert reasons == NOT_RUN.findall(text), guide.name


def test_options_in_the_guides_exist() -> None:
    verbs: Any = get_command(command_line())
    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8").replace("\\\n", " ")
        for verb, arguments in re.findall(r"\bbrinell ([a-z][a-z-]*)([^`\n]*)", text):
            if verb in verbs.commands:
                command = verbs.commands[verb]
                command = command.commands[arguments.split()[0]] if verb in GROUPS else command
                options = {name for parameter in command.params for name in parameter.opts}
                assert set(re.findall(r"(?<!\S)--[a-z-]+", arguments)) <= options, (guide.name, verb, arguments)


def test_blocks_and_commands_are_read() -> None:
    for text, expected in (
        ("a\n\n    one \\\n      two # comment\n    three\n\nb", [[["one", "two"], ["three"]]]),
        ("```bash\none\n```\n\n    two", [[["one"]], [["two"]]]),
        ("- item\n    text", []),
    ):
        assert [commands(block) for block in blocks(text)] == expected
