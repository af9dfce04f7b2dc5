"""Checks that names are nouns and that prose is plain English (CONTRIBUTING.md): `python
scripts/check_words.py [--list]`.

It refuses sentences that compare but are built outside of `reports.statements`, where each stands
on a test (`docs/reference/statements.md`). It counts three things and compares each with a limit:

- names: variables, parameters, fields, functions and classes that are a participle, a pronoun, a
  particle or an adverb;
- headless sentences, which begin with a clause in place of a subject («What was stopped goes on»);
- turns of phrase that read as translated («is told», «of its own»).

Names are counted in Python files, as a share of all names bound there. Prose is counted in
docstrings and Markdown, for each 10,000 words; code blocks, tables and generated pages are left
out. The exit code is 1 if a folder is above a limit.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts")
"""Folders whose names are counted."""
WRITTEN = ("src", "docs", "design")
"""Folders whose prose is counted."""
MOST_NAMES = 0.01
MOST_HEADLESS = 5.0
MOST_TURNS = 3.0

PARTICIPLES = """
asked begun built caught chosen done drawn ended foretold found freed given gone got held judged kept known left listed
looked lost made meant met moved named offered opened paid placed put reached refused risen said seen settled shown
spared spent started taken told touched tried unmade wanted watched won
"""
PRONOUNS = """
both each every everything few many mine more nothing one ones other others ours own rest same several some such theirs
these those what which who whole whose
"""
PARTICLES = """
about again ahead alone along apart asks at back better between far here how inside like makes near now once says shows
still tells there together twice where why within
"""
DIALECT = frozenset((PARTICIPLES + PRONOUNS + PARTICLES).split())

AUXILIARIES = "is are does do to if can should you"
HEADLESS = re.compile(
    r"(?:\A|[.!?:]\s+)((?:What|Whoever|Whose|Where|Whether|Which) (?!(?:"
    + "|".join(AUXILIARIES.split())
    + r")\b)[a-z][^.!?\n]{0,60})"
)
TURNS = re.compile(
    r"\bof (?:its|their|one's|a user's|your) own\b|\bas of `|\b(?:is|are|was|be) "
    r"told\b|\bheld against\b|\botherwise than\b"
    r"|\b(?:is|are) no [a-z]+\b|\bbeside (?:it|the|other|others)\b|\bfor the time "
    r"of\b|\bcannot be told\b"
    r"|\bcomes? to the same\b|\bin their hands\b",
    re.IGNORECASE,
)

COMPARED = re.compile(
    r"(?<![\w-])(?:weakest|strongest|more than chance|most robust|worse"
    r"|leads(?= (?:at|by|everywhere|here|in|over|the|with)\b)"
    r"|(?<!less is )(?<!more is )better)(?![\w-])",
    re.IGNORECASE,
)
"""Words of sentences that compare. A name with hyphens compares nothing, nor does what leads to a
place, or a measure of which «less is better»."""
SPEAKERS = ("reports/statements.py", "analysis/statements.py")
"""Where such sentences are built."""


class Place(NamedTuple):
    """A word or phrase of a file that breaks a rule."""

    path: Path
    line: int
    text: str


class Count(NamedTuple):
    """Violations in a folder, and the number of names or words checked."""

    places: list[Place]
    total: int


def python_files(folder: Path) -> list[Path]:
    """Python files of a folder, without those of virtual environments and hidden folders."""
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Variables, parameters, fields, functions and classes that a module binds, with their lines."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno


def count_names(folder: Path) -> Count:
    """Names of a folder that are not nouns."""
    places, total = [], 0
    for path in python_files(folder):
        for name, line in bound_names(ast.parse(path.read_text(encoding="utf-8"))):
            total += 1
            if name.strip("_").lower() in DIALECT:
                places.append(Place(path, line, name))
    return Count(places, total)


def docstrings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Texts that stand as statements of a module, its classes and functions, with their lines."""
    for node in ast.walk(tree):
        for child in (
            getattr(node, "body", None) or ()
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            else ()
        ):
            match child:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text, child.lineno


def prose_of_markdown(text: str) -> str:
    """The prose of a page: no code blocks, tables, comments or indented blocks.

    Line numbers stay.
    """
    blanked = re.sub(
        r"```.*?```|<!--.*?-->", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL
    )
    return "\n".join("" if line.startswith(("|", "    ")) else line for line in blanked.split("\n"))


def passages(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Docstrings and pages of a folder, with their first lines."""
    for path in python_files(folder):
        for text, line in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, line, text
    for path in sorted(folder.rglob("*.md")):
        yield path, 1, prose_of_markdown(path.read_text(encoding="utf-8"))


def count_prose(folder: Path, pattern: re.Pattern[str]) -> Count:
    """Matches of a pattern in the prose of a folder, and its number of words."""
    places, total = [], 0
    for path, first, text in passages(folder):
        total += len(text.split())
        for match in pattern.finditer(text):
            places.append(
                Place(path, first + text.count("\n", 0, match.start()), match[match.lastindex or 0])
            )
    return Count(places, total)


def compared_texts(folder: Path) -> list[Place]:
    """Texts of three words or more, other than docstrings, that compare outside of `SPEAKERS`.

    A value within an f-string counts as a word.
    """
    places = []
    for path in python_files(folder):
        name = path.relative_to(folder)
        if name.as_posix() in SPEAKERS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in skipped:
                continue
            match node:
                case ast.JoinedStr(values=parts):
                    skipped |= {id(part) for part in parts}
                    text = "".join(
                        part.value if isinstance(part, ast.Constant) else "{}" for part in parts
                    )
                case ast.Constant(value=str(text)):
                    pass
                case _:
                    continue
            if COMPARED.search(text) and len(text.split()) > 2:
                places.append(Place(path, node.lineno, text))
    return places


def report(label: str, count: Count, scale: float, limit: float, listing: bool) -> bool:
    """Print a figure, with its places if it is above its limit or `listing`; returns True if it is
    within the limit.
    """
    figure = scale * len(count.places) / max(1, count.total)
    within_limit = figure <= limit
    print(
        f"{label}: {len(count.places)} of {count.total}, {figure:.2f} (at most "
        f"{limit:g}){'' if within_limit else ': TOO MANY'}"
    )
    if listing or not within_limit:
        for place in count.places:
            print(f"  {place.path.relative_to(ROOT)}:{place.line}: {' '.join(place.text.split())}")
    return within_limit


def main() -> int:
    """Check all folders; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Checks that names are nouns and that prose is plain English."
    )
    parser.add_argument(
        "--list", action="store_true", help="list the places of figures within their limits too"
    )
    listing = parser.parse_args().list
    verdicts = [
        report(
            f"{name}: names that are not nouns, percent",
            count_names(ROOT / name),
            100,
            100 * MOST_NAMES,
            listing,
        )
        for name in FOLDERS
    ]
    for name in WRITTEN:
        for label, pattern, limit in (
            ("headless sentences", HEADLESS, MOST_HEADLESS),
            ("translated turns", TURNS, MOST_TURNS),
        ):
            verdicts.append(
                report(
                    f"{name}: {label} in 10,000 words",
                    count_prose(ROOT / name, pattern),
                    10_000,
                    limit,
                    listing,
                )
            )
    texts = compared_texts(ROOT / "src" / "brinell")
    for place in texts:
        print(
            f"  {place.path.relative_to(ROOT)}:{place.line}: say it by a statement: {place.text!r}"
        )
    verdicts.append(not texts)
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
