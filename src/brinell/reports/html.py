"""A report as one self-contained HTML page: answer, next steps and figure first, then the blocks,
the rest folded.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from brinell.reports import figures
from brinell.reports.csv import csv_files
from brinell.reports.numbers import NBSP, detail_text, full_text, is_proportion, main_text, share_of
from brinell.reports.samples import EMBEDDED, FOLDER, data_of, take_out
from brinell.reports.values import (
    Claimed,
    Code,
    Curve,
    Detail,
    Framed,
    Link,
    Report,
    Samples,
    Seconds,
    Span,
    Table,
)
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST, PAGE, verb_of

SHADES = 10
"""Number of the darkest shade of a heat map; 0 is the lightest."""


def write(folder: Path, report: Report) -> Path:
    """Write `tables/*.csv` and `report.html`, which links to its neighbours, and where pictures of
    samples are large, a folder of them; returns the path of the page.
    """
    for name, text in csv_files(report).items():
        write_text(folder / "tables" / name, text)

    views = draw_views(report)
    files: dict[str, bytes] = {}
    if sum(map(len, views.values())) > EMBEDDED:
        views, files = take_out(views)
    # Pictures of an earlier page would stay behind.
    for old in (folder / FOLDER).glob("*.*"):
        old.unlink()
    for path, picture in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(picture)

    linked = replace(report, links=[*report.links, *neighbours(folder)])
    write_text(folder / PAGE, page(linked, views))
    return folder / PAGE


def draw_views(report: Report) -> dict[str, str]:
    """The pictures of the samples of a report as HTML."""
    example = getattr(environment().get_template("blocks.html").module, "example")  # noqa: B009  the name is the template's
    blocks = [block for block in report.blocks if isinstance(block, Samples)]
    return {key: str(example(view)) for block in blocks for key, view in block.draw().items()}


def neighbours(folder: Path) -> list[Link]:
    """Links to the pages of the results that a folder lies in and that lie in it."""
    folder = folder.resolve()
    above, folders = (
        verb_of(folder.parent),
        sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}")),
    )
    up = [] if above is None else [Link(f"{above} (this is a part of it)", f"../{PAGE}")]
    return [*up, *(Link(name, f"{name}/{PAGE}") for name in folders)]


def page(report: Report, views: Mapping[str, str] | None = None) -> str:
    """The page of a report, whose samples have these pictures; by default all in the page."""
    views = draw_views(report) if views is None else views
    figure = next((block for block in report.blocks if isinstance(block, Curve)), None)
    blocks = [
        block
        for block in report.blocks
        if block is not figure and not (isinstance(block, Table) and not block.page)
    ]
    return render("page.html", report=report, figure=figure, blocks=blocks, views=views)


def render(template: str | Path, **values: Any) -> str:
    """A page from a template of this room, which holds style, script and policy, or from a file
    that extends such a template.
    """
    # The page's policy names the digest of its script, so that no other one runs.
    code = (Path(__file__).parent / "templates" / "page.js").read_text(encoding="utf-8")
    digest = f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"

    shared = environment()
    try:
        source = (
            shared.get_template(template)
            if isinstance(template, str)
            else shared.from_string(template.read_text("utf-8"))
        )
        return source.render(values | {"script": Markup(code), "script_digest": digest})
    except jinja2.UndefinedError as error:
        raise LookupError(str(error)) from None


@functools.cache
def environment() -> jinja2.Environment:
    """Templates of this room, with what cells and figures look like."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("brinell.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_join_units,
    )

    environment.globals |= {
        "content": content,
        "data_of": lambda block, views: Markup(data_of(block, views)),
        "detail_text": detail_text,
        "draw": figures.draw,
        "full_text": full_text,
        "heat_class": heat_class,
        "is_proportion": is_proportion,
        "is_text": lambda value: _is_words(value) or isinstance(value, list | tuple),
        "kind_of": lambda block: type(block).__name__,
        "left": lambda table, column: column > 0 and _is_text(table, column),
        "legend": figures.legend,
        "shade_text": shade_text,
        "setting": lambda value: (
            ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        ),
        "slug": slug,
    }
    return environment


def _join_units(value: Any) -> Any:
    """A text in which no line ends between a number and its unit; anything else as it is."""
    if type(value) is not str:  # HTML of our own is a subclass
        return value
    return re.sub(r"(?<=\d) (?=%|×|dB\b|of \d)", NBSP, value)


def content(value: Any) -> Markup:
    """A cell without what stands small below it."""
    if isinstance(value, Detail):
        return content(value.value)
    if isinstance(value, Framed):
        return Markup('<span class="framed">{}</span>').format(content(value.value))
    if isinstance(value, Link):
        return Markup('<a href="{}">{}</a>').format(value.address, value.text)
    if isinstance(value, Span):
        # A span that runs backwards has another colour.
        low = 100 * (value.low or 0.0)
        high = 100 * (value.high or 0.0)
        kind = "span" if low <= high else "span back"
        rect = Markup('<rect x="{:.1f}" width="{:.1f}" height="8"/>').format(
            min(low, high), max(abs(high - low), 1)
        )
        return Markup(
            '<svg class="{}" viewBox="0 0 100 8" role="img" aria-label="{}">{}</svg>'
        ).format(kind, main_text(value), rect)
    if isinstance(value, Code):
        return Markup("<code>{}</code>").format(value.text)

    return escape(
        f"{main_text(value)}{NBSP}†"
        if isinstance(value, Seconds) and value.value is not None
        else main_text(value)
    )


def shade_text(value: Any, table: Table) -> tuple[str, str]:
    """A shaded share in whole percent with its interval, for a narrow cell; or with what the table
    has beside it.
    """
    if table.beside:
        share = 100 * (share_of(value) or 0.0)
        return f"{share:.1f}".removesuffix(".0"), value.text if isinstance(value, Detail) else ""
    if isinstance(value, Detail):
        text, interval = shade_text(value.value, table)
        return text, "; ".join(filter(None, (interval, value.text)))
    low, high = getattr(value, "low", None), getattr(value, "high", None)
    interval = "" if low is None or high is None else f"{100 * low:.0f}–{100 * high:.0f}"
    # One digit where whole percent would read as 0 or 100, and is not.
    share = 100 * (share_of(value) or 0.0)
    return f"{share:.{int(0 < share < 0.5 or 99.5 <= share < 100)}f}", interval


def heat_class(value: Any, table: Table) -> str:
    """The class of a shaded cell: h0 for all samples right, h10 for none; empty for other cells."""
    share = share_of(value)
    if not table.heat or share is None:
        return "none" if table.heat and value is None else ""
    return f"h{round(SHADES * (share if table.reverse else 1 - share))}"


def _is_text(table: Table, column: int) -> bool:
    """True for a column that holds words alone, which stand on the left."""
    values = [row[column] for row in table.rows if row[column] is not None]
    return bool(values) and all(map(_is_words, values))


def _is_words(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, Detail) else value, str | Link | Claimed)


def slug(title: str) -> str:
    """The id of a block, by which links lead to it."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
