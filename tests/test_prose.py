"""The prose of the documentation keeps to a width and to one word per idea."""

from collections.abc import Iterator
from pathlib import Path

import pytest

WIDTH = 100
GENERATED = {f"docs/reference/{name}.md" for name in ("benchmark-sets", "cli", "json", "plugins", "records", "settings")}
"""Pages whose lines are written in the code."""


def pages(root: Path) -> list[Path]:
    """Every page that people write."""
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("design/*.md")]
    return [page for page in pages if page.relative_to(root).as_posix() not in GENERATED]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page, with their numbers, that are neither table nor code nor a comment."""
    fenced = code = commented = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        # An indented block is code where it follows an empty line; otherwise it continues an item of a list.
        code = line.startswith("    ") and (code or not before.strip())
        commented = commented or line.startswith("<!--")
        if not (fenced or code or commented or line.startswith(("|", "```"))):
            yield number, line
        commented = commented and "-->" not in line
        before = line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\n    code\n    more\n\nb", ["a", "", "", "b"]),
        ("- item\n    continued", ["- item", "    continued"]),
        ("| table |\n```text\ncode\n```\nend", ["end"]),
        ("<!-- one\ntwo -->\nthree", ["three"]),
    ],
)
def test_prose_is_told_from_tables_and_code(text: str, expected: list[str]) -> None:
    assert [line for _, line in prose(text)] == expected


def test_lines_of_prose_keep_to_the_width(root: Path) -> None:
    wide = [
        f"{page.relative_to(root)}:{number}: {len(line)} characters"
        for page in pages(root)
        for number, line in prose(page.read_text(encoding="utf-8"))
        # A line that is one long link or name cannot be broken.
        if len(line) > WIDTH and " " in line.strip()
    ]
    assert not wide
