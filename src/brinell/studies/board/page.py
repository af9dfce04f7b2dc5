"""The pages of a board, each with its table as CSV and JSON. A page whose content is that of before is not written again."""

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from brinell.analysis.results import Rate
from brinell.core.bounded import digest
from brinell.core.errors import BrinellError
from brinell.core.version import VERSION
from brinell.pages.figures import Series, curve
from brinell.pages.format import count, counted, norm, percent, samples
from brinell.pages.gallery import Example, gallery
from brinell.pages.html import fill
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.store.run import Run
from brinell.studies.board.analysis import (
    BoardResult,
    Entry,
    Figures,
    ModelPage,
    PairPage,
    Refusal,
    Site,
    Task,
    arrange,
    compare_entries,
    content_of,
    key_of,
    rate_row,
    task_notes,
)

TITLE = "Robustness board"
PAGES = "pages"
"""Name of the file in the cache that says what each page was made from."""
CURVE_NAMES = ("attacked", "proven")
CURVES = 4
"""Curves of a model that are shown at once."""
EXAMPLES = 3
"""Adversarial examples of a model."""
RATE = ("value", "low", "high", "k", "n")
SHOWN_PAIRS = 40
"""Pairs in the table of a task; all pairs have a page."""


@dataclass(frozen=True)
class Sheet:
    """A page with its table: where it lies, what it depends on, and how it is made."""

    stem: str
    """Its path without the ending."""
    key: str
    """The hash of all that it depends on."""
    html: Callable[[], str] | None
    """None for a table that stands on another page."""
    head: Sequence[str]
    rows: Callable[[], Sequence[Sequence[object]]]

    @property
    def names(self) -> tuple[str, ...]:
        """The files of the page."""
        page = () if self.html is None else (f"{self.stem}.html",)
        return f"{self.stem}.csv", f"{self.stem}.json", *page

    def texts(self) -> Mapping[str, str]:
        """The files of the page with their content."""
        rows = self.rows()
        objects = [dict(zip(self.head, row, strict=True)) for row in rows]
        csv = csv_text(self.head, rows)
        page = () if self.html is None else (self.html(),)
        return dict(zip(self.names, (csv, json.dumps(objects, ensure_ascii=False, indent=1) + "\n", *page), strict=True))


def write(folder: Path, figures: Sequence[Figures], rejections: Sequence[Refusal], title: str, command: str) -> BoardResult:
    """Bring a site up to date.

    Args:
        folder: the site.
        figures: of all folders that hold.
        rejections: the folders that do not.
        title: title of the site.
        command: the command line that repeats it.
    """
    site = arrange(figures)
    state = folder / ".cache" / f"{PAGES}.json"
    before = _read_state(state)
    after: dict[str, str] = {}
    written = 0
    for sheet in _sheets(site, rejections, title, len({f.run for f in figures}), Counter(f.level for f in figures)):
        after |= dict.fromkeys(sheet.names, sheet.key)
        if all(before.get(name) == sheet.key and (folder / name).is_file() for name in sheet.names):
            continue
        written += sum(_write_changed(folder / name, text) for name, text in sheet.texts().items())
    for name in sorted(before.keys() - after.keys()):
        with suppress(OSError):
            (folder / name).unlink()
    written += _write_changed(folder / ".nojekyll", "")
    _write_changed(state, json.dumps(after, indent=0, sort_keys=True))
    return BoardResult(
        folder=str(folder),
        models=len(site.models),
        tasks=len(site.tasks),
        runs=len({f.run for f in figures}),
        refused=list(rejections),
        notes=site.notes,
        written=written,
    )


def _read_state(file: Path) -> dict[str, str]:
    """The sources of each page; empty if nobody knows."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}


def _write_changed(path: Path, text: str) -> bool:
    """Write a file unless it has this content already; True if it was written."""
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == text:
            return False
    write_text(path, text)
    return True


@functools.cache
def _version() -> str:
    """The hash of the templates and the code of the pages: a page that another version made is made again."""
    folder, shared = Path(__file__).parent, Path(__file__).parents[2] / "pages"
    files = sorted([*folder.glob("*.html"), *folder.glob("*.py"), *shared.rglob("*.*")])
    return key_of([VERSION, [digest(file) for file in files if file.suffix in (".py", ".html", ".js", ".css")]])


def _sheets(site: Site, rejections: Sequence[Refusal], title: str, runs: int, levels: Mapping[str, int]) -> Iterator[Sheet]:
    """All pages."""
    slugs = {(model.name, model.digest): model.slug for model in site.models}
    yield from _first_pages(site, rejections, title, runs, levels)
    pairs_of_task: dict[str, list[tuple[PairPage, Entry, Entry]]] = {}
    pairs_of_model: dict[str, list[PairPage]] = {}
    for pair in site.pairs:
        for task, a, b in pair.tasks:
            pairs_of_task.setdefault(task.slug, []).append((pair, a, b))
        for model in (pair.a, pair.b):
            pairs_of_model.setdefault(model.slug, []).append(pair)
        yield _pair_sheet(pair)
    for task in site.tasks:
        yield _task_sheet(task, slugs, pairs_of_task.get(task.slug, []))
    for model in site.models:
        yield _model_sheet(model, pairs_of_model.get(model.slug, []))


def _first_pages(site: Site, rejections: Sequence[Refusal], title: str, runs: int, levels: Mapping[str, int]) -> Iterator[Sheet]:
    facts: list[Any] = [_version(), title, site.notes, sorted(levels.items()), [refusal.model_dump() for refusal in rejections]]
    facts += [[task.slug, [content_of(entry) for entry in task.entries]] for task in site.tasks]
    sentence = (
        f"{counted(len(site.models), 'model')} in {counted(len(site.tasks), 'task')}, from {counted(runs, 'folder')}; "
        f"{counted(len(rejections), 'folder')} refused."
    )

    def index() -> str:
        """The first page."""
        filters = {"best_proof": best_proof}
        context = {
            "site": site,
            "title": title,
            "meta": f"Brinell {VERSION}",
            "sentence": sentence,
            "levels": sorted(levels.items()),
        }
        return fill(__package__, "index.html", filters, runs=runs, refused=len(rejections), **context)

    head = (
        "task",
        "address",
        "models",
        "most robust",
        *(f"{name} {part}" for name in ("clean", "attacked", "weakest class") for part in RATE),
    )
    yield Sheet("index", key_of(facts), index, head, lambda: [_task_row(task) for task in site.tasks])
    models = [
        (model.name, model.digest, f"models/{model.slug}.html", len(model.tasks), len(model.figures)) for model in site.models
    ]
    yield Sheet(
        "models",
        key_of([facts, "models"]),
        None,
        ("model", "digest", "address", "tasks", "folders"),
        lambda: models,
    )
    reasons = [(refusal.run, refusal.why) for refusal in rejections]
    refused_sentence = f"{counted(len(rejections), 'folder')} refused. A folder that is refused gives no figure to this board."

    def refusals() -> str:
        """The page of refusals."""
        return fill(__package__, "refused.html", {}, refused=rejections, title=title, sentence=refused_sentence)

    yield Sheet("refused", key_of([_version(), title, reasons]), refusals, ("folder", "why"), lambda: reasons)


def best_proof(entries: Sequence[Entry]) -> Rate | None:
    """The highest proven share among entries."""
    rates = [entry.proven for entry in entries if entry.proven is not None]
    return max(rates, key=lambda rate: rate.value or 0.0, default=None)


def _task_row(task: Task) -> tuple[object, ...]:
    first = task.entries[0]
    worst = first.worst[1] if first.worst else None
    rates = (*rate_row(first.figures.clean), *rate_row(first.robust), *rate_row(worst))
    return (task.name, f"tasks/{task.slug}.html", len(task.entries), first.figures.model, *rates)


def cost(entry: Entry) -> str:
    """Forward and backward passes of the attacks, by sample."""
    f, rate = entry.attacked, entry.robust
    return (
        "–" if f is None or rate is None or not rate.n or f.verb != "audit" else count(round((f.forwards + f.backwards) / rate.n))
    )


def _task_sheet(task: Task, slugs: Mapping[tuple[str, str], str], pairs: Sequence[tuple[PairPage, Entry, Entry]]) -> Sheet:
    facts = [_version(), task.slug, task.name, [content_of(entry) for entry in task.entries], [pair.slug for pair, _, _ in pairs]]
    order = {entry.figures.identity: position for position, entry in enumerate(task.entries)}
    # those beside each other first: whether they differ is what a reader asks
    neighbours = sorted(
        pairs, key=lambda comparison: abs(order[comparison[1].figures.identity] - order[comparison[2].figures.identity])
    )

    def html() -> str:
        """The page."""
        first = task.entries[0]
        value = "no attacked share is known" if first.robust is None else f"no attack broke {percent(first.robust.value)}"
        sentence = f"Of {counted(len(task.entries), 'model')}, {first.figures.model} is the most robust: {value} of its samples."
        compared = [(pair, compare_entries(task, a, b)) for pair, a, b in neighbours[:SHOWN_PAIRS]]
        notes = [("note", f"{note[:1].upper()}{note[1:]}") for note in task_notes(task)]
        return fill(
            __package__, "task.html", {"cost": cost}, task=task, slugs=slugs, pairs=compared, notes=notes, sentence=sentence
        )

    rates = tuple(f"{name} {part}" for name in ("clean", "attacked", "weakest class", "proven") for part in RATE)
    head = (
        "model",
        "digest",
        "eps",
        *rates,
        "weakest",
        "attacks",
        "checks",
        "forwards",
        "backwards",
        "seconds",
        "verified",
        "folder",
        "date",
    )
    return Sheet(f"tasks/{task.slug}", key_of(facts), html, head, lambda: [_entry_row(task, entry) for entry in task.entries])


def _entry_row(task: Task, entry: Entry) -> tuple[object, ...]:
    f, worst = entry.figures, entry.worst
    rates = (f.clean, entry.robust, worst[1] if worst else None, entry.proven)
    details = (f.attacks, f.checks, f.forwards, f.backwards, f.seconds, f.level, f.run, f.date)
    return (
        f.model,
        f.digest,
        task.eps,
        *(value for rate in rates for value in rate_row(rate)),
        worst[0] if worst else None,
        *details,
    )


def _model_sheet(model: ModelPage, pairs: Sequence[PairPage]) -> Sheet:
    places = [
        [task.slug, task.name, task.entries.index(entry), len(task.entries), content_of(entry)] for task, entry in model.tasks
    ]
    folders = [[f.run, f.key, f.level] for f in model.figures]
    facts = [_version(), model.slug, model.name, model.digest, places, folders, [pair.slug for pair in pairs]]

    def html() -> str:
        """The page."""
        curves = list(draw_curves(model))
        best = max(model.figures, key=lambda f: (len(f.per_class) > 0, len(f.eps), f.run))
        first = sum(task.entries[0] is entry for task, entry in model.tasks)
        sentence = (
            f"{model.name} is in {counted(len(model.tasks), 'task')} of this board, and the most robust model in {count(first)}."
        )
        return fill(
            __package__,
            "model.html",
            {},
            model=model,
            sentence=sentence,
            legend=[(0, CURVE_NAMES[0])] * any(f.robust for f in model.figures)
            + [(1, CURVE_NAMES[1])] * any(f.certified for f in model.figures),
            curves=curves[:CURVES],
            more_curves=curves[CURVES:],
            classes=best if best.per_class else None,
            examples=find_examples(model),
            pairs=pairs,
        )

    head = (
        "task",
        "address",
        "eps",
        "place",
        "of",
        *(f"{name} {part}" for name in ("clean", "attacked", "proven") for part in RATE),
        "folder",
    )
    return Sheet(
        f"models/{model.slug}", key_of(facts), html, head, lambda: [_place_row(task, entry) for task, entry in model.tasks]
    )


def _place_row(task: Task, entry: Entry) -> tuple[object, ...]:
    """A task in the table of a model."""
    rates = [value for rate in (entry.figures.clean, entry.robust, entry.proven) for value in rate_row(rate)]
    place = task.entries.index(entry) + 1
    return (task.name, f"tasks/{task.slug}.html", task.eps, place, len(task.entries), *rates, entry.figures.run)


def draw_curves(model: ModelPage) -> Iterator[tuple[str, Markup]]:
    """A curve for each data and distance: attacked and proven, of the folder with the most budgets."""
    groups: dict[tuple[str, str, str, str], list[Figures]] = {}
    for f in model.figures:
        groups.setdefault((f.data, f.data_digest, f.distance, f.criterion), []).append(f)
    for (data, _, distance, aim), members in groups.items():
        attacked = max((f for f in members if f.robust), key=lambda f: len(f.eps), default=None)
        proven = max((f for f in members if f.certified), key=lambda f: len(f.eps), default=None)
        sources = [
            (f, rates) for f, rates in ((attacked, attacked and attacked.robust), (proven, proven and proven.certified)) if f
        ]
        lines, ticks = [], {0.0: "0"}
        for f, rates in sources:
            clean = [f.clean] if f.clean is not None and rates is f.robust else []
            style = int(rates is f.certified)
            lines.append(Series(name=CURVE_NAMES[style], rates=[*clean, *(rates or [])], style=style))
            ticks |= dict(zip(f.eps, f.eps_text, strict=True))
        caption = f"{data}, {norm(distance)}{'' if aim == 'misclassified' else f', {aim}'}: {samples(sources[0][1][0].n)}"  # type: ignore[index]
        title = f"robust accuracy of {model.name} on {data} over eps in {norm(distance)}"
        yield caption, curve(lines, sorted(ticks.items()), title=title, distance=norm(distance))


def find_examples(model: ModelPage) -> list[Example]:
    """A few adversarial examples of a model, from the first of its runs that has some."""
    for f in model.figures:
        if f.verb == "audit":
            with suppress(BrinellError, OSError):
                run = Run.open(f.run)
                if run.manifest["data"]["domain"]["kind"] == "image" and (
                    examples := gallery(run, run.records(), f.model, models=99)
                ):
                    return examples[:EXAMPLES]
    return []


def _pair_sheet(pair: PairPage) -> Sheet:
    """The page of two models."""
    facts: list[Any] = [_version(), pair.slug, pair.a.name, pair.b.name]
    facts += [[task.slug, task.name, content_of(a), content_of(b)] for task, a, b in pair.tasks]
    results = functools.cache(lambda: [(task, compare_entries(task, a, b)) for task, a, b in pair.tasks])

    def html() -> str:
        """The page."""
        decided = [
            (task, comparison)
            for task, comparison in results()
            if comparison.p is not None and comparison.p < 0.05 and comparison.difference
        ]
        wins = sum((comparison.difference or 0.0) > 0 for _, comparison in decided)
        sentence = (
            f"Of {counted(len(pair.tasks), 'common task')}, {pair.a.name} is robust on more samples in {count(wins)} and "
            f"{pair.b.name} in {count(len(decided) - wins)}; chance may explain the difference in "
            f"{count(len(pair.tasks) - len(decided))} (p < 0.05)."
        )
        return fill(__package__, "pair.html", {}, pair=pair, rows=results(), sentence=sentence)

    parts = ("value_a", "value_b", "difference", "low", "high", "only_a", "only_b", "both_robust", "neither", "n", "p")
    head = ("task", "eps", "a", "b", *parts)

    def rows() -> Sequence[Sequence[object]]:
        """The table."""
        return [
            (task.name, task.eps, pair.a.name, pair.b.name, *(getattr(comparison, part) for part in parts))
            for task, comparison in results()
        ]

    return Sheet(f"compare/{pair.slug}", key_of(facts), html, head, rows)
