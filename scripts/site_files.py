"""Hook of MkDocs: pages and files beside docs/ that its pages link to belong to the site, at the
places that they have here.

`docs/results/epsilon.md` links to `../../design/0013-epsilon.md`, which is right in the repository.
On the site, whose root is docs/, the page is `results/epsilon.md` and the note
`design/0013-epsilon.md`; links are changed accordingly, and MkDocs checks each.
"""

import csv
import io
import itertools
import posixpath
import re
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
BESIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "Dockerfile",
    "SECURITY.md",
    "action.yml",
    "design/*.md",
    "examples/**/*.ipynb",
    "examples/**/*.py",
    "examples/papers/*.toml",
    "examples/clusters/*",
    "examples/publish/*.yml",
    "benchmarks/**/*.py",
)
"""Files of the site outside docs/."""
HAS_DATA = "as CSV]("
"""Pages of results that name files of their tables; for the others the site makes them."""
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[)#])")
"""The path in a relative link of Markdown."""


def on_config(config: Any) -> Any:
    """Complete the navigation by what is generated: commands and plug-ins in the order of their
    lists, then the design notes.
    """
    for tab in config.nav:
        for name in ("commands", "plugins"):
            if tab.get(name.capitalize()) == f"reference/{name}/index.md":
                index = (ROOT / "docs" / "reference" / name / "index.md").read_text(
                    encoding="utf-8"
                )
                pages = dict.fromkeys(re.findall(r"\]\(([a-z-]+\.md)\)", index))
                tab[name.capitalize()] = [
                    f"reference/{name}/{page}" for page in ("index.md", *pages)
                ]
    notes = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("design/*.md"))]
    config.nav[-1]["Project"].append({"Design notes": notes})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what lies beside docs/."""
    for path in (path for pattern in BESIDE for path in sorted(ROOT.glob(pattern))):
        files.append(
            File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        )
    for path in sorted((ROOT / "docs" / "results").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for number, table in enumerate(TABLE.findall(text) if HAS_DATA not in text else (), 1):
            lines = [
                [cell.strip(" `") for cell in line.strip("|").split("|")]
                for line in table.splitlines()
            ]
            output = io.StringIO()
            csv.writer(output).writerows([lines[0], *lines[2:]])
            files.append(
                File.generated(
                    config, f"results/data/{path.stem}-{number}.csv", content=output.getvalue()
                )
            )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Relative links of the repository as those of the site.

    Results fill the width, show their first section and fold the rest. The search puts guides first
    and design notes last.
    """
    source = page.file.src_uri
    page.meta["search"] = {
        "boost": 4.0
        if source.startswith("guides/")
        else 0.3
        if source.startswith("design/")
        else 1.0
    }
    if source.startswith("results/"):
        page.meta["hide"] = ["toc"]
        if HAS_DATA not in markdown:
            numbers = itertools.count(1)
            stem = Path(source).stem
            markdown = TABLE.sub(
                lambda table: f"{table[0]}\n[as CSV](data/{stem}-{next(numbers)}.csv)\n",
                f"{markdown}\n",
            )
            start, *sections = re.split(r"^## ", markdown, flags=re.MULTILINE)
            parts = [section.partition("\n") for section in sections[1:]]
            folded = [
                f'<details markdown="1" id="{slugify(name, "-")}"><summary>{name}</summary>\n'
                f"{text}\n</details>\n"
                for name, _, text in parts
            ]
            markdown = "\n".join([start, *(f"## {section}" for section in sections[:1]), *folded])

    def rewrite_link(link: re.Match[str]) -> str:
        return site_link(link[1], source)

    return LINK.sub(rewrite_link, markdown)


def site_link(link: str, page: str) -> str:
    """Target on the site of a relative link of the repository, relative to the given page."""
    home = page if (ROOT / page).exists() else f"docs/{page}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(home), link)).removeprefix("docs/")
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
