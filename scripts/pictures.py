"""Makes the pictures of README.md by its own commands; with --check, tells whether they show the
pages of today.

The commands run in a fresh folder with the files that README.md shows. A picture is a screen of a
page in chromium. Beside it is the text of that page, without dates and times: `--check` makes the
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

from brinell.cli import run

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ("audit", "benchmark")
"""Pictures, each named like its command in README.md."""
SIZE = {"width": 1280, "height": 860}
CHROMIUM = "/usr/bin/chromium"
LINES = 60
"""Lines of a page's text that are kept."""


def make_page(name: str, readme: str) -> Path:
    """Run the command of a picture in the working folder; returns its page."""
    blocks = re.findall(r"^```python\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)
    for file, word in (("model.py", "def factory"), ("shade.py", "class Shade")):
        Path(file).write_text(next(block for block in blocks if word in block), encoding="utf-8")
    (line,) = re.findall(rf"^    brinell ({name} .*)$", readme, flags=re.MULTILINE)
    words = shlex.split(line)
    with contextlib.redirect_stdout(sys.stderr):
        if run(words):
            raise SystemExit(f"brinell {line} failed")
    return Path(words[words.index("--out") + 1], "report.html").resolve()


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
    """Write the first screen of each page as a PNG."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        for name, page in pages.items():
            view = browser.new_page(viewport=SIZE, color_scheme="light")
            view.goto(page.as_uri())
            view.screenshot(path=folder / f"{name}.png")
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
    check = parser.parse_args().check
    readme, folder, stale = (
        (ROOT / "README.md").read_text(encoding="utf-8"),
        ROOT / "docs" / "pictures",
        False,
    )
    os.environ.pop("COLUMNS", None)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        pages = {name: make_page(name, readme) for name in PICTURES}
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
