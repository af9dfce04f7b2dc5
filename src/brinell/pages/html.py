"""The report: one HTML file that opens anywhere, and the tables behind it."""

import base64
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from markupsafe import Markup, escape

from brinell.analysis.compare import Side, compare
from brinell.analysis.proofs import audit_with_proofs
from brinell.analysis.results import AuditResult, CompareResult
from brinell.analysis.robust_accuracy import summarise
from brinell.core.outward import markdown
from brinell.core.record import Records
from brinell.pages import figures, page
from brinell.pages import format as words
from brinell.pages.tables import tables
from brinell.reports.html import script
from brinell.store.files import write_text
from brinell.store.folder import PAGE
from brinell.store.run import Run, threshold_of


def render(run: Path) -> str:
    """The report of a run, finished or not, as one self-contained HTML document.

    Raises:
        RequestError: no run there, or a damaged file in it.
    """
    return render_all(run)[0]


def write(run: Path) -> Path:
    """Write `tables/*.csv` and `report.html` into the run folder, each at once or not at all.

    Returns:
        The path of the report.

    Raises:
        RequestError: no run there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    write_pages(Run.open(run, thresholds=True))
    return run / PAGE


def write_pages(run: Run) -> AuditResult:
    """Write the tables and the page of an open run into its folder; returns the figures that the page shows."""
    result, html, csv = _render(run)
    save_page(run.path, html, csv)
    return result


def save_page(folder: Path, page: str, tables: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Write `tables/*.csv` and `report.html`, each at once or not at all; returns the path of the page.

    Raises:
        StoppedError: the folder cannot be written.
    """
    for name, text in tables.items():
        write_text(folder / "tables" / name, text)
    write_text(folder / PAGE, page)
    return folder / PAGE


def compare_all(run: Run, records: Records) -> list[CompareResult]:
    """Every pair of the run's models that share a sample and a budget above 0."""
    names = [str(model["name"]) for model in run.manifest["models"]]
    if not len(records) or max(run.manifest["eps"]) <= 0 or not all((records.model == name).any() for name in names):
        return []
    sides = [Side(run=str(run.path), manifest=run.manifest, records=records, model=name) for name in names]
    return [compare(a, b) for a, b in combinations(sides, 2)]


def render_all(folder: Path) -> tuple[str, dict[str, str]]:
    """The page and, by file name, the tables, as `write` writes them."""
    return _render(Run.open(folder, thresholds=True))[1:]


def _render(run: Run) -> tuple[AuditResult, str, dict[str, str]]:
    """The figures of a run, its page and, by file name, its tables."""
    records = run.records()
    result = audit_with_proofs(summarise(run.manifest, records, str(run.path)), run.path)
    comparisons = compare_all(run, records) if threshold_of(run.manifest) is None else []
    context = page.context(run, records, result, comparisons)
    return result, fill("brinell.pages", "report.html", {"heat": page.heat}, **context), tables(result, comparisons)


CARDS = 4
"""A table with so many columns or more is shown as cards, one a row, where the screen is too narrow for it."""


def fill(package: str, name: str, filters: Mapping[str, Callable[..., object]], **context: Any) -> str:
    """A page as one self-contained HTML document, or another text if the template does not end with `.html`.

    Args:
        package: the package whose folder holds the template; the shared frame and style come from this room.
        name: file name of the template.
        filters: functions that the template uses by name, in addition to those of `pages.format`.
        context: values of the template by name.

    Raises:
        LookupError: a value lacks what the template shows, as in a manifest that somebody changed.
    """
    code = script()
    digest = f"sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}"
    template = _template(package, name, tuple(filters.items()))
    try:
        return template.render(context | {"script": Markup(code), "script_digest": digest})
    except jinja2.UndefinedError as error:
        raise LookupError(str(error)) from None


@functools.lru_cache(maxsize=32)
def _template(package: str, name: str, filters: tuple[tuple[str, Callable[..., object]], ...]) -> jinja2.Template:
    """The compiled template, which takes longer to compile than to fill: a process that writes several pages compiles it once."""
    shared = jinja2.ChoiceLoader([jinja2.PackageLoader("brinell.pages"), jinja2.PackageLoader("brinell.reports")])
    environment = jinja2.Environment(
        loader=shared if package == "brinell.pages" else jinja2.ChoiceLoader([jinja2.PackageLoader(package, ""), shared]),
        autoescape=jinja2.select_autoescape(),
        finalize=None if name.endswith(".html") else _in_markdown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {key: value for key, value in vars(words).items() if inspect.isfunction(value)} | dict(filters)
    environment.filters |= {"labelled": labelled, "rows": count_rows, "key": figures.key}
    return environment.get_template(name)


def labelled(table: str) -> Markup:
    """A table whose cells carry the headings of their columns, which a narrow screen shows beside them in place of the head.

    Heat maps and tables of few columns stay as they are: they fit.
    """
    head, end, body = str(table).partition("</thead>")  # of a Markup, parts joined with text would be escaped
    names = [re.sub(r"<[^>]*>", "", text) for text in re.findall(r"<th\b[^>]*>(.*?)</th>", head, flags=re.DOTALL)]
    if not end or len(names) < CARDS or 'class="heat' in head:
        return Markup(table)

    def row(match: re.Match[str]) -> str:
        """A table row whose cells carry the headings of their columns."""
        labels = iter(names)
        return re.sub(r"<t[dh]\b", lambda cell: f'{cell[0]} data-label="{escape(Markup(next(labels, "")))}"', match[0])

    head = re.sub(r'<table(?: class="([^"]*)")?', lambda match: f'<table class="{match[1] or ""} stack"', head, count=1)
    return Markup(head + end + re.sub(r"<tr\b.*?</tr>", row, body, flags=re.DOTALL))


def count_rows(table: str) -> int:
    """Number of rows of a table, its head included."""
    return str(table).count("<tr")


def _in_markdown(value: Any) -> Any:
    """Text in templates other than HTML, escaped so that it has no effect on a terminal or a rendered page."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else markdown(value)
