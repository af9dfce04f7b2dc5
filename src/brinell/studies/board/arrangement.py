"""The tasks of a board from the figures of its folders: entries, the standing of what was verified,
and claims by themselves.

A task is data, distance, criterion and budget. An entry is a model in a task: the lowest figure
that attacks left and the highest share that proofs reach, over all of its folders that the board
has verified with the same opened model and data. A folder that it has not verified is a separate
entry.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from brinell.analysis.curve import UNJUDGED
from brinell.analysis.folder_result import Result
from brinell.analysis.inference import Rank
from brinell.analysis.judgements import extreme_classes
from brinell.analysis.results import ClassResult, Rate
from brinell.analysis.standing import Standing, leading, standing
from brinell.analysis.statements import Statement
from brinell.reports.numbers import counted, distance
from brinell.reports.statements import lowest_mark
from brinell.reports.values import Detail

LOOKS = str.maketrans("01i|5-", "ollls_")
"""Characters that look alike."""


class BoardFigures(Result):
    """One model in one folder, in the folder's own words."""

    run: str
    """The folder."""
    verb: str
    """The command that made it."""
    verified: bool
    """True if the board repeated it with its model and data."""
    repeated: int
    """Samples that it attacked again from the start; 0 for proofs, which it made again for all."""
    attacked: int = 0
    """Of so many samples that the folder attacked."""
    drawn: str = ""
    """The samples, where a seed drew them; empty otherwise."""
    model: str
    digest: str
    """Digest of the model."""
    data: str
    data_digest: str
    distance: str
    criterion: str
    unit: str = ""
    """Digest of the recommended budgets of the samples; empty if budgets are numbers."""
    eps: list[float]
    """Budgets above 0."""
    eps_text: list[str]
    """The same as they were asked."""
    clean: Rate | None
    robust: list[Rate]
    """At each budget; empty for a folder without attacks."""
    certified: list[Rate] = []
    """At each budget; empty for a folder without proofs."""
    per_class: list[ClassResult] = []
    """At the same budgets."""
    attacks: str
    checks: str = ""
    """Numbers of checks that passed, failed and were not made."""
    date: str
    ids: list[int] = []
    """Samples, ascending; empty where no sample can be paired."""
    states: list[list[int]] = []
    """The state of each on clean inputs and at each budget, as in `analysis.curve`."""

    @property
    def identity(self) -> tuple[str, ...]:
        """The model; what was not verified is a separate model."""
        return (self.model, self.digest) if self.verified else (self.model, self.digest, self.run)


@dataclass(frozen=True)
class BoardEntry:
    """A model in a task."""

    attacked: BoardFigures | None
    """The folder with the lowest figure, among those with the most samples."""
    position: int
    """Position of the budget in it."""
    certified: BoardFigures | None
    """The folder with the highest share of proofs, likewise."""
    certified_position: int
    rank: Rank | None = None
    """Only for what was verified."""

    @property
    def figures(self) -> BoardFigures:
        """The folder of the attacks, or that of the proofs without one."""
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
    def weakest(self) -> Detail | None:
        """The lowest robust accuracy of a class, with the names of all that have it."""
        if self.attacked is None:
            return None
        text = self.attacked.eps_text[self.position]
        return lowest_mark(extreme_classes(self.attacked.per_class, self.position, text))


@dataclass(frozen=True)
class BoardTask:
    """Models that were measured by one protocol."""

    slug: str
    name: str
    eps: float
    entries: list[BoardEntry]
    """Those with a rank first, the most robust first; then the others by folder."""
    standing: Standing | None
    """Of the verified entries with attacks; None without any."""
    statements: list[Statement] = field(default_factory=list)
    """Who leads among them."""
    notes: list[str] = field(default_factory=list)

    @property
    def models(self) -> int:
        """Number of models, by digest."""
        return len({entry.figures.digest for entry in self.entries})


def told_apart(figures: Sequence[BoardFigures]) -> list[BoardFigures]:
    """The figures with a part of its digest in the name of each model that looks like another one,
    or that has letters of other scripts or odd blanks.
    """
    models: dict[str, set[tuple[str, str]]] = {}
    for folder in figures:
        models.setdefault(_look(folder.model), set()).add((folder.model, folder.digest))
    return [
        folder
        if len(models[_look(folder.model)]) == 1 and _is_plain(folder.model)
        else folder.model_copy(update={"model": f"{folder.model} ({folder.digest[:8]})"})
        for folder in figures
    ]


def _look(name: str) -> str:
    """A name without the differences that a reader overlooks."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(plain.split()).translate(LOOKS)


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isprintable() and name == " ".join(name.split())


def arrange(figures: Sequence[BoardFigures]) -> list[BoardTask]:
    """The tasks of a board."""
    groups: dict[
        tuple[str, str, str, str, float], dict[tuple[str, ...], list[tuple[BoardFigures, int]]]
    ] = {}

    for folder in figures:
        for position, eps in enumerate(folder.eps):
            key = (
                folder.data_digest,
                folder.distance,
                folder.criterion,
                folder.unit,
                # Budgets that differ by rounding alone are one.
                float(f"{eps:.9g}"),
            )
            groups.setdefault(key, {}).setdefault(folder.identity, []).append((folder, position))

    tasks = [
        _task(repr(key), [_entry(members) for members in by_model.values()])
        for key, by_model in groups.items()
    ]
    return sorted(
        tasks,
        key=lambda task: (
            task.name.partition(",")[0],
            task.entries[0].figures.distance,
            task.eps,
            task.slug,
        ),
    )


def _entry(members: Sequence[tuple[BoardFigures, int]]) -> BoardEntry:
    """A model in a task, from all of its folders: those with rows first, then the most samples,
    since few may be lucky ones.
    """
    attacked = [
        (bool(f.ids), f.robust[i].n, -(f.robust[i].value or 0.0), f.run, i, f)
        for f, i in members
        if f.robust
    ]
    proven = [
        (f.certified[i].n, f.certified[i].value or 0.0, f.run, i, f)
        for f, i in members
        if f.certified
    ]

    # Folders themselves have no order, so the last entry is not compared. Without attacks or proofs
    # the folder is None, and its position means nothing.
    *_, position, folder = max(attacked, key=lambda entry: entry[:-1], default=(0, None))
    *_, place, proofs = max(proven, key=lambda entry: entry[:-1], default=(0, None))
    return BoardEntry(folder, position, proofs, place)


def _task(key: str, entries: list[BoardEntry]) -> BoardTask:
    """A task with its entries in order; its words are those of a verified folder where there is
    one.
    """
    ranked = [
        entry
        for entry in entries
        if entry.figures.verified and entry.figures.ids and entry.robust and entry.robust.n
    ]
    unranked = sorted(
        (entry for entry in entries if entry not in ranked),
        key=lambda e: (not e.figures.verified, e.figures.run),
    )
    first = (ranked or unranked)[0]
    position = first.position if first.attacked is not None else first.certified_position
    folder = first.figures
    text = first.figures.eps_text[position]
    order = _standing(ranked, text) if ranked else None
    if order is not None:
        ranked = [replace(entry, rank=order.rank(index)) for index, entry in enumerate(ranked)]
        ranked.sort(
            key=lambda entry: (entry.rank.value if entry.rank else 0.0, entry.figures.identity)
        )
    aimed = "" if folder.criterion == "misclassified" else f", {folder.criterion}"

    return BoardTask(
        slug=slug(
            f"{folder.data}-{folder.distance}-{text}",
            hashlib.blake2b(key.encode(), digest_size=4).hexdigest(),
        ),
        name=f"{folder.data}, {distance(folder.distance)} "
        f"{text}{aimed}{'' if folder.verified else ' (claimed)'}",
        eps=folder.eps[position],
        entries=[*ranked, *unranked],
        standing=order,
        statements=leading(order) if order else [],
        notes=list(_notes([*ranked, *unranked])),
    )


def _standing(entries: Sequence[BoardEntry], text: str) -> Standing:
    """The standing of entries, each on the samples that it has."""
    ids = np.unique(np.concatenate([entry.figures.ids for entry in entries]))
    states = np.full((len(entries), len(ids), 2), UNJUDGED, np.int8)
    for index, entry in enumerate(entries):
        # The states of a folder begin with those of the clean inputs.
        columns = np.array(entry.figures.states, dtype=np.int8)[:, [0, 1 + entry.position]]
        states[index, np.searchsorted(ids, entry.figures.ids)] = columns
    names = [entry.figures.model for entry in entries]
    unique = [
        f"{name} ({entry.figures.digest[:8]})" if names.count(name) > 1 else name
        for name, entry in zip(names, entries, strict=True)
    ]
    return standing(unique, states[:, :, 0], states[:, :, 1:], [text])


def _notes(entries: Sequence[BoardEntry]) -> Iterator[str]:
    """Notes that a reader of the table of a task needs."""
    claims = sum(not entry.figures.verified for entry in entries)
    if claims:
        yield (
            f"{counted(claims, 'row is a claim', 'rows are claims')}: without a "
            "repetition by the board there is no rank."
        )

    if len({entry.attacked.attacks for entry in entries if entry.attacked is not None}) > 1:
        yield (
            "The models were attacked differently, so that a difference may be one of the attacks."
        )
    sizes = {entry.robust.n for entry in entries if entry.robust is not None}
    if len(sizes) > 1:
        yield (
            f"The models were tested on different numbers of samples ({min(sizes)} to "
            f"{max(sizes)})."
        )


def slug(name: str, digest: str) -> str:
    """A name for an address: letters, digits and hyphens, and a part of a digest that keeps it
    apart from others.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "x"
    return f"{plain}-{re.sub(r'[^a-zA-Z0-9]+', '', digest) or 'x'}"
