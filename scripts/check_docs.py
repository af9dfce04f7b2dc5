"""Checks pages and lists that people write (CONTRIBUTING.md): `python scripts/check_docs.py`.

It imports nothing of Brinell.

Links lead somewhere, pages are short, and every page is found: in the navigation of the site, on
the first page, among the files of the site. The citation is of this version, constraints are exact,
`make` lists every target.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES = {"docs/guides": 150, "docs/results": 240}
README_BYTES = 5120
GENERATED = (
    "reference/commands/",
    "reference/plugins/",
    "reference/classes/",
    "reference/records.md",
    "reference/json.md",
    "reference/benchmark-sets.md",
)
"""Pages that `make docs` writes whole."""
PAGES, WORDS, DESIGN_WORDS, CHANGELOG_WORDS = 44, 56_700, 12_700, 1_250
"""At most: pages in docs that people write, words in them and beside them, in design notes, and
in the changelog."""
CONSTRAINTS = (
    "constraints.txt",
    *(
        f"benchmarks/{name}.txt"
        for name in ("constraints", "server-constraints", "extras-constraints")
    ),
)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links: small letters, dashes for spaces, no other
    punctuation.
    """
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def dead_links(page: Path) -> list[str]:
    """The relative links of a page to a file or heading that is not there."""
    links = re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8"))
    return [
        f"{link}#{anchor} leads nowhere"
        for link, anchor in links
        if not (page.parent / link).exists()
        or (anchor and anchor not in anchors(page.parent / link if link else page))
    ]


def page_faults() -> Iterator[str]:
    """What is wrong with a page by itself."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("design/*.md")]
    for page in pages:
        name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        yield from (f"{name}: {fault}" for fault in dead_links(page))
        most = LINES.get(page.parent.relative_to(ROOT).as_posix(), len(text))
        if len(text.splitlines()) > most:
            yield f"{name}: more than {most} lines"
    if (ROOT / "README.md").stat().st_size > README_BYTES:
        yield f"README.md: more than {README_BYTES} bytes"


def size_faults() -> Iterator[str]:
    """Ceilings that pages exceed together."""
    written = [
        page
        for page in ROOT.glob("docs/**/*.md")
        if not page.relative_to(ROOT / "docs").as_posix().startswith(GENERATED)
    ]
    folders = (
        ("hand-written pages", [*written, *ROOT.glob("*.md")], WORDS),
        ("design notes", ROOT.glob("design/*.md"), DESIGN_WORDS),
        ("CHANGELOG.md", [ROOT / "CHANGELOG.md"], CHANGELOG_WORDS),
    )
    if len(written) > PAGES:
        yield f"docs: {len(written)} pages are written by hand, more than {PAGES}"
    for name, pages, most in folders:
        words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
        if words > most:
            yield f"{name}: {words} words, more than {most}"


def list_faults() -> Iterator[str]:
    """Pages that a list lacks."""
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    pages = {
        page for page in pages if not page.startswith(GENERATED[:2]) or page.endswith("index.md")
    }
    targets = re.findall(
        r"^ +- .*: (\S+\.md)$",
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    navigation = pages | {"CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md"}
    yield from (
        f"mkdocs.yml: {page} is missing, stale or twice" for page in navigation ^ set(targets)
    )
    if len(targets) != len(set(targets)):
        yield "mkdocs.yml names a page twice"
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    entries = [page for page in pages if page.startswith(("guides/", "results/"))]
    yield from (
        f"docs/index.md has no link to {page}" for page in entries if f"]({page})" not in index
    )
    yield from site_faults()


def site_faults() -> Iterator[str]:
    """Links of the site's pages to files beside `docs` that the site does not have (`BESIDE` in
    site_files.py).
    """
    tree = ast.parse((ROOT / "scripts" / "site_files.py").read_text(encoding="utf-8"))
    values = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    files = {path for pattern in ast.literal_eval(values["BESIDE"]) for path in ROOT.glob(pattern)}
    for page in [*(ROOT / "docs").rglob("*.md"), *(path for path in files if path.suffix == ".md")]:
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            path = (page.parent / link).resolve()
            if (
                "://" not in link
                and path.is_file()
                and ROOT / "docs" not in path.parents
                and path not in files
            ):
                yield (
                    f"{page.relative_to(ROOT)}: {link} is no file of the site (BESIDE "
                    "in scripts/site_files.py)"
                )


def other_faults() -> Iterator[str]:
    """What is wrong with the citation, the constraints and the targets of make."""
    (version,) = re.findall(
        r'VERSION = "([^"]+)"', (ROOT / "src/brinell/core/version.py").read_text(encoding="utf-8")
    )
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    keys = dict(re.findall(r"^([a-z-]+): (\S.*)$", citation, flags=re.MULTILINE))
    if (keys.get("version"), keys.get("license")) != (version, "Apache-2.0") or not {
        "cff-version",
        "message",
        "title",
    } <= keys.keys():
        yield f"CITATION.cff is not of version {version}"
    for name in CONSTRAINTS:
        comment, *lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        loose = [
            line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)
        ]
        yield from (f"{name}: {line} is not exact" for line in loose)
        if not comment.startswith("# "):
            yield f"{name}: the first line does not say how it is made"
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, flags=re.MULTILINE)[0].split())
    yield from (
        f"Makefile: {name} has no help or is not phony"
        for name in phony ^ set(re.findall(r"^([a-z-]+):.*## ", text, re.M))
    )


def main() -> int:
    """Print every fault; returns the exit code."""
    faults = [*page_faults(), *size_faults(), *list_faults(), *other_faults()]
    print(*faults, f"{len(faults)} faults of pages", sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
