"""Makes the pictures of README.md and of the guides by their own commands; with --check, tells
whether they show the pages of today.

The commands run in a fresh folder with the files that README.md shows. A picture is a part of a page
in chromium. Its text file holds the text of that page, without dates and times: `--check` makes the
runs again and compares it, which needs no browser.
"""

import argparse
import contextlib
import difflib
import html
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from brinell.cli import run

ROOT = Path(__file__).resolve().parent.parent


class Picture(NamedTuple):
    """A page, or a part of it."""

    document: str
    """The document that shows it, from the root."""
    command: str
    """The beginning of the command that makes the page, as the document has it."""
    part: str = ""
    """The selector of the part; empty for the first screen."""
    address: str = ""
    """What is opened on the page."""


GUIDES = "docs/guides"
HERO, CARD = "#verdict", "section >> nth=0"
PICTURES = {
    "audit": Picture("README.md", "audit"),
    "benchmark": Picture("README.md", "benchmark"),
    "samples": Picture(f"{GUIDES}/first-audit.md", "audit", "#sample-by-sample", "#eps=0.1"),
    "attacks": Picture(f"{GUIDES}/attacks.md", "audit", "#class-by-class"),
    "compare": Picture(f"{GUIDES}/across-models.md", "compare", HERO),
    "certify": Picture(f"{GUIDES}/certify.md", "certify", HERO),
    "claim": Picture(f"{GUIDES}/claims.md", "claim", HERO),
    "explain": Picture(f"{GUIDES}/explanations.md", "explain", "figure.example"),
    "epsilon": Picture(f"{GUIDES}/which-eps.md", "epsilon", CARD),
    "detectors": Picture(f"{GUIDES}/detectors.md", "audit", HERO),
    "hardening": Picture(f"{GUIDES}/hardening.md", "harden", HERO),
    "gate": Picture(f"{GUIDES}/ci-gate.md", "audit", "#class-by-class-over-the-budgets"),
    "region": Picture(
        f"{GUIDES}/models-and-data.md", 'audit --data "digits?region', ".opened .views"
    ),
}
"""Pictures by name."""
SIZE = {"width": 1280, "height": 860}
CHROMIUM = "/usr/bin/chromium"
LINES = 60
"""Lines of a page's text that are kept."""


def make_page(name: str, picture: Picture) -> Path:
    """Run the commands up to that of a picture in a folder of its own; returns its page."""
    folder = Path(name)
    folder.mkdir()
    with contextlib.chdir(folder):
        write_files()
        document = (ROOT / picture.document).read_text(encoding="utf-8")
        text = re.sub(r" \\\n +", " ", document)  # commands of several lines
        blocks = re.findall(r"(?:^    brinell .*\n)+", text, flags=re.MULTILINE)
        start = f"    brinell {picture.command}"
        block = next(block for block in blocks if start in block)
        for line in block.splitlines():
            words = shlex.split(line, comments=True)[1:]
            is_last = line.startswith(start)
            if is_last and "--out" not in words:
                words += ["--out", "page"]
            with contextlib.redirect_stdout(sys.stderr):
                if run(words):
                    raise SystemExit(f"{line} failed")
            if is_last:
                return Path(words[words.index("--out") + 1], "report.html").resolve()
    raise AssertionError("the loop ends with the command")


def write_files() -> None:
    """Write the files that commands name: a model, a distortion and data."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    sources = re.findall(r"^```python\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    for file, word in (("model.py", "def factory"), ("shade.py", "class Shade")):
        source = next(source for source in sources if word in source)
        Path(file).write_text(source, encoding="utf-8")
    inputs, labels = load_digits(return_X_y=True)
    x = (inputs[:48].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    np.savez("FILE.npz", x=x, y=labels[:48])


def text_of(page: Path) -> str:
    """The visible text of a page up to its first lines, without what differs from run to run."""
    source = re.sub(
        r"<(script|style|svg|head)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    text = html.unescape(re.sub(r"<[^>]+>", "\n", source))
    text = re.sub(r"\d{4}-\d\d-\d\d|\d[\d.,]*\s(?:s|min|ms)\b", "-", text)
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return "\n".join(lines[:LINES]) + "\n"


def take_pictures(pages: dict[str, Path], folder: Path) -> None:
    """Write each picture as a PNG of 256 colours."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        for name, page in pages.items():
            view = browser.new_page(viewport=SIZE, color_scheme="light")
            picture = PICTURES[name]
            view.goto(page.as_uri() + picture.address)
            shown = view.locator(picture.part).first if picture.part else view
            file = folder / f"{name}.png"
            file.write_bytes(shown.screenshot())
            Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)
        browser.close()


def main() -> int:
    """Make the pictures, or with --check print how the pages of today differ; returns the exit
    code.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit 1 if a page differs from its picture",
    )
    parser.add_argument("names", nargs="*", help="pictures to make; by default all")
    arguments = parser.parse_args()
    check = arguments.check
    chosen = {name: PICTURES[name] for name in arguments.names or PICTURES}
    folder = ROOT / "docs" / "pictures"
    stale = False
    os.environ.pop("COLUMNS", None)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        pages = {name: make_page(name, picture) for name, picture in chosen.items()}
        texts = {name: text_of(page) for name, page in pages.items()}
        for name, text in texts.items():
            path = folder / f"{name}.txt"
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            if text != before:
                stale = True
                lines = difflib.unified_diff(
                    before.splitlines(), text.splitlines(), "the picture", "today", lineterm="", n=0
                )
                print(
                    f"docs/pictures/{name}.png is out of date: run `make docs`"
                    if check
                    else f"wrote {name}",
                    *lines,
                    sep="\n",
                )
        if stale and not check:
            folder.mkdir(exist_ok=True)
            take_pictures(pages, folder)
            for name, text in texts.items():
                (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
