"""The content of a board, from the figures and the states of verified runs: tasks, models and pairs.

A task is data, distance, criterion and budget. An entry is a model in a task: the lowest figure that attacks left and the highest
share that proofs reach, over all runs of the model.
"""

import base64
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brinell.analysis.compare import paired
from brinell.analysis.curve import RIGHT
from brinell.analysis.folder_result import Result
from brinell.analysis.results import OfClass, PairedRate, Rate
from brinell.core.record import Array

MOST_PAIRS = 20
"""Up to this many models every pair of a task has a page; of more, each with the next and with the first."""


class ClassFigures(OfClass):
    """One class of one model in one run."""

    n: int
    clean: Rate
    robust: list[Rate]
    """At each budget."""


class Figures(Result):
    """One model in one folder that was verified."""

    run: str
    """The folder."""
    verb: str
    """The command that made it."""
    key: str
    """The hash of its manifest."""
    model: str
    digest: str
    """Digest of the model."""
    data: str
    data_digest: str
    distance: str
    criterion: str
    unit: str
    """Digest of the recommended budgets of the samples; empty if budgets are numbers."""
    eps: list[float]
    """Budgets above 0."""
    eps_text: list[str]
    clean: Rate | None
    robust: list[Rate]
    """At each budget; empty for a folder without attacks."""
    certified: list[Rate]
    """At each budget; empty for a folder without proofs."""
    per_class: list[ClassFigures]
    attacks: str
    weak: bool
    """True if the attacks are weaker than `fast`."""
    checks: str
    """The verdict of the checks."""
    failed: int
    """Number of checks that failed."""
    forwards: int
    backwards: int
    seconds: float | None
    date: str
    brinell: str
    level: str
    """How far it was verified."""
    ids: str
    """Samples, int64 in base64, ascending; empty where no sample can be paired."""
    states: str
    """(samples, 1 + budgets) int8 in base64: broken, robust or not judged, clean first."""

    @property
    def identity(self) -> tuple[str, str]:
        """The model, which is the same in other runs if name and digest are."""
        return self.model, self.digest


class Refusal(Result):
    """A folder that is not shown."""

    run: str
    why: str


class BoardResult(Result):
    """What `brinell board --json` prints."""

    folder: str
    """The folder of the site."""
    models: int
    """Models that are shown."""
    tasks: int
    """Tasks that are shown."""
    runs: int
    """Folders that are shown."""
    refused: list[Refusal]
    """Folders that are not shown, each with its reason."""
    notes: list[str]
    """The notes that a reader of the tables needs."""
    written: int
    """Files that were written; those that say the same as before stay as they are."""


@dataclass(frozen=True)
class Entry:
    """A model in a task."""

    attacked: Figures | None
    """The run with the lowest figure, among those with the most samples."""
    certified: Figures | None
    """The folder with the highest share of proofs, likewise."""
    position: int
    """Position of the budget in `attacked`."""
    certified_position: int
    runs: int
    """Number of folders."""

    @property
    def figures(self) -> Figures:
        """The run, or the folder of the proofs without one."""
        folder = self.attacked or self.certified
        assert folder is not None, "an entry has a folder"
        return folder

    @property
    def robust(self) -> Rate | None:
        """Share that no attack broke."""
        return None if self.attacked is None else self.attacked.robust[self.position]

    @property
    def proven(self) -> Rate | None:
        """Share that is proven robust."""
        return None if self.certified is None else self.certified.certified[self.certified_position]

    @property
    def worst(self) -> tuple[str, Rate] | None:
        """The class with the lowest robust accuracy, and its rate."""
        classes = self.figures.per_class if self.attacked is not None else []
        rates = [(c.name, c.robust[self.position]) for c in classes if c.robust[self.position].value is not None]
        return min(rates, key=lambda pair: pair[1].value or 0.0, default=None)


@dataclass(frozen=True)
class Task:
    """Models that were measured by one protocol."""

    slug: str
    data: str
    data_digest: str
    distance: str
    criterion: str
    unit: str
    eps: float
    eps_text: str
    entries: list[Entry]
    """The most robust first."""

    @property
    def name(self) -> str:
        """The task in words."""
        aimed = "" if self.criterion == "misclassified" else f", {self.criterion}"
        return f"{self.data}, {self.distance} {self.eps_text}{aimed}"


@dataclass(frozen=True)
class ModelPage:
    """A model in all its tasks."""

    slug: str
    name: str
    digest: str
    figures: list[Figures]
    tasks: list[tuple[Task, Entry]]


@dataclass(frozen=True)
class PairPage:
    """Two models in the tasks that both have."""

    slug: str
    a: ModelPage
    b: ModelPage
    tasks: list[tuple[Task, Entry, Entry]]


@dataclass(frozen=True)
class Site:
    """Everything on a board."""

    tasks: list[Task]
    models: list[ModelPage]
    pairs: list[PairPage]
    notes: list[str] = field(default_factory=list)


def arrange(figures: Sequence[Figures]) -> Site:
    """Tasks, models and pairs of verified folders."""
    tasks = sorted(_tasks(figures), key=lambda task: (task.data, task.distance, task.criterion, task.eps, task.slug))
    models = _models(figures, tasks)
    return Site(tasks=tasks, models=models, pairs=list(_pairs(tasks, models)), notes=list(_notes(tasks, models)))


def _tasks(figures: Sequence[Figures]) -> Iterator[Task]:
    cells: dict[tuple[str, str, str, str, float], dict[tuple[str, str], list[tuple[Figures, int]]]] = {}
    for entry in figures:
        for position, eps in enumerate(entry.eps):
            key = (entry.data_digest, entry.distance, entry.criterion, entry.unit, _rounded(eps))
            cells.setdefault(key, {}).setdefault(entry.identity, []).append((entry, position))
    for key, by_model in cells.items():
        first, position = next(iter(by_model.values()))[0]
        entries = sorted((_entry(members) for members in by_model.values()), key=_order)
        digest = hashlib.blake2b(repr(key).encode(), digest_size=4).hexdigest()
        yield Task(
            slug=slug(f"{first.data}-{first.distance}-{first.eps_text[position]}", digest),
            data=first.data,
            data_digest=key[0],
            distance=first.distance,
            criterion=first.criterion,
            unit=first.unit,
            eps=first.eps[position],
            eps_text=first.eps_text[position],
            entries=entries,
        )


def _rounded(eps: float) -> float:
    """A budget to nine digits, so that 8/255 and 0.03137254902 are the same."""
    return float(f"{eps:.9g}")


def _entry(members: Sequence[tuple[Figures, int]]) -> Entry:
    """A model in a task, from all of its folders."""
    attacked = [(f, i) for f, i in members if f.robust and f.robust[i].value is not None]
    proven = [(f, i) for f, i in members if f.certified and f.certified[i].value is not None]
    lowest = min(attacked, key=lambda pair: (*_preference(pair[0].robust[pair[1]], 1), pair[0].run), default=(None, 0))
    highest = min(proven, key=lambda pair: (*_preference(pair[0].certified[pair[1]], -1), pair[0].run), default=(None, 0))
    if lowest[0] is None and highest[0] is None:
        lowest = members[0]
    return Entry(lowest[0], highest[0], lowest[1], highest[1], len(members))


def _preference(rate: Rate, sign: int) -> tuple[int, float]:
    """Sort key of a figure: the most samples first, since few may be lucky ones; then the lowest, or the highest for -1."""
    return -rate.n, sign * (rate.value or 0.0)


def _order(entry: Entry) -> tuple[float, float, str, str]:
    """The most robust first; of equal figures, the one with more proofs."""
    robust, proven = (-math.inf if rate is None or rate.value is None else rate.value for rate in (entry.robust, entry.proven))
    return -robust, -proven, *entry.figures.identity


def _models(figures: Sequence[Figures], tasks: Sequence[Task]) -> list[ModelPage]:
    by_model: dict[tuple[str, str], list[Figures]] = {}
    for entry in figures:
        by_model.setdefault(entry.identity, []).append(entry)
    in_tasks: dict[tuple[str, str], list[tuple[Task, Entry]]] = {}
    for task in tasks:
        for cell in task.entries:
            in_tasks.setdefault(cell.figures.identity, []).append((task, cell))
    return [
        ModelPage(slug(name, digest[:8]), name, digest, sorted(members, key=lambda f: f.run), in_tasks.get((name, digest), []))
        for (name, digest), members in sorted(by_model.items())
    ]


def _pairs(tasks: Sequence[Task], models: Sequence[ModelPage]) -> Iterator[PairPage]:
    pages = {(model.name, model.digest): model for model in models}
    shared: dict[tuple[tuple[str, str], tuple[str, str]], list[tuple[Task, Entry, Entry]]] = {}
    for task in tasks:
        entries = [entry for entry in task.entries if entry.attacked is not None and entry.attacked.ids]
        for first, second in _choose_pairs(entries):
            columns = _common_states(first, second)
            if not ((columns[0] <= RIGHT) & (columns[1] <= RIGHT)).any():
                continue
            a, b = sorted((first, second), key=lambda entry: entry.figures.identity)
            shared.setdefault((a.figures.identity, b.figures.identity), []).append((task, a, b))
    for (name_a, name_b), members in sorted(shared.items()):
        a_page, b_page = pages[name_a], pages[name_b]
        yield PairPage(f"{a_page.slug}--{b_page.slug}", a_page, b_page, members)


def _choose_pairs(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """The pairs of a task that have a page."""
    if len(entries) <= MOST_PAIRS:
        yield from itertools.combinations(entries, 2)
        return
    yield from itertools.pairwise(entries)
    yield from ((entries[0], entry) for entry in entries[2:])


def _notes(tasks: Sequence[Task], models: Sequence[ModelPage]) -> Iterator[str]:
    """The notes that a reader of the tables needs."""
    for name, group in itertools.groupby(models, key=lambda model: model.name):
        digests = [model.digest[:8] for model in group]
        if len(digests) > 1:
            yield f"{len(digests)} models have the name {name} and other digests ({', '.join(digests)}): each has its own page."
    yield from (f"{task.name}: {note}" for task in tasks for note in task_notes(task))


def task_notes(task: Task) -> Iterator[str]:
    """The notes that a reader of the table of a task needs."""
    attacks = {entry.attacked.attacks for entry in task.entries if entry.attacked is not None}
    if len(attacks) > 1:
        yield "the models were attacked differently, so that a difference may be one of the attacks."
    sizes = {entry.robust.n for entry in task.entries if entry.robust is not None}
    if len(sizes) > 1:
        yield f"the models were tested on different numbers of samples ({min(sizes)} to {max(sizes)})."


def compare_entries(task: Task, a: Entry, b: Entry) -> PairedRate:
    """Two models in a task, paired by sample."""
    return paired(*_common_states(a, b), task.eps)


def _common_states(a: Entry, b: Entry) -> tuple[Array, Array]:
    """States of both on their common samples."""
    (ids_a, states_a), (ids_b, states_b) = (unpack(entry.figures) for entry in (a, b))
    _, rows_a, rows_b = np.intersect1d(ids_a, ids_b, return_indices=True)
    return states_a[rows_a, 1 + a.position], states_b[rows_b, 1 + b.position]


def pack(array: Array) -> str:
    """An array as text."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def unpack(figures: Figures) -> tuple[Array, Array]:
    """(n,) samples and (n, 1 + budgets) states."""
    ids = np.frombuffer(base64.b64decode(figures.ids), np.int64)
    states = np.frombuffer(base64.b64decode(figures.states), np.int8)
    return ids, states.reshape(len(ids), 1 + len(figures.eps))


def slug(name: str, digest: str) -> str:
    """A name for an address: letters, digits and hyphens, and a part of a digest that keeps it apart from others."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "x"
    return f"{plain}-{re.sub(r'[^a-zA-Z0-9]+', '', digest) or 'x'}"


def key_of(value: Any) -> str:
    """A hash of JSON values."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def rate_row(rate: Rate | None) -> tuple[object, ...]:
    """Value, ends and counts of a rate, for a table."""
    return (None,) * 5 if rate is None else (rate.value, rate.low, rate.high, rate.k, rate.n)


def content_of(entry: Entry) -> Mapping[str, Any]:
    """The parts of an entry on which a page depends."""
    parts = [figures and (figures.run, figures.key, figures.level) for figures in (entry.attacked, entry.certified)]
    return {"parts": parts, "runs": entry.runs}
