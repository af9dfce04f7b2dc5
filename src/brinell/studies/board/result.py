"""The result of a board, and the reports of which its pages are made: all tasks, one task, one
model.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from brinell.analysis.folder_result import Result
from brinell.reports.numbers import counted, distance, percent
from brinell.reports.statements import leader_count, sentence
from brinell.reports.values import (
    Cell,
    Claimed,
    Code,
    Detail,
    Link,
    Note,
    Report,
    Span,
    Step,
    Table,
)
from brinell.studies.board.arrangement import BoardEntry, BoardFigures, BoardTask, slug
from brinell.studies.result import ReportedResult

MOST_LINKS = 12
"""Most tasks to which a page links at its head."""
TRUST = (
    "A mark such as «repeated 60 of 400» means: the board asked the model itself. Clean accuracy"
    " and checks came out again on all samples, and each sample that counts as broken is broken,"
    " so that no figure under attack is below the truth. It may be above: of 400 samples that "
    "were attacked the board drew 60 and attacked them again from the start, so many that it "
    "sees a change by the width of the interval in 19 of 20 cases. Repeated, without numbers: a "
    "certificate, which was proven again, whole. Nothing here proves that no stronger attack "
    "exists, that the data are fair, or that these weights are in use. Claimed †: the files "
    "agree with each other, and the figures, which stand by "
    "themselves, are the word of whoever made the folder."
)


class Refusal(Result):
    """A folder that is not shown."""

    run: str
    why: str


class BoardResult(ReportedResult):
    """What `brinell board --json` prints."""

    folder: str
    """The folder of the site."""
    title: str
    """The title of the site."""
    model_count: int
    """Models that are shown."""
    task_count: int
    """Tasks that are shown."""
    folder_count: int
    """Folders that are shown."""
    verified: int
    """Folders among them that were repeated with their model and data."""
    refused: list[Refusal]
    """Folders that are not shown, each with its reason."""

    def places(self) -> Iterator[str]:
        """The path of the page."""
        yield from super().places()
        yield f"page: {self.folder}/index.html"

    def report(self) -> Report:
        """The verified and the refused folders: the terminal, and the frame of the first page."""
        claims = self.folder_count - self.verified

        return Report(
            verb="board",
            title=self.title,
            subject=f"{counted(self.model_count, 'model')} in {counted(self.task_count, 'task')} "
            f"from {counted(self.folder_count, 'folder')}",
            sentences=[
                f"Folders: {self.verified} repeated with model and data, {claims} "
                f"claimed, {len(self.refused)} refused.",
                TRUST,
            ],
            blocks=[
                Table(
                    title="Refused folders",
                    columns=("folder", "why"),
                    rows=[(refusal.run, refusal.why) for refusal in self.refused],
                    name="refused",
                    terminal=True,
                )
            ]
            if self.refused
            else [],
            steps=[
                Step(
                    "Repeat what is claimed: say whose models and data may be used.",
                    "brinell --trust FOLDER board ...",
                )
            ]
            if claims
            else [],
        )


def index_report(
    result: BoardResult,
    tasks: Sequence[BoardTask],
    models: Mapping[tuple[str, ...], Sequence[BoardFigures]],
) -> Report:
    """The first page: all tasks with the first of their verified models, and all models."""
    report = result.report()

    return replace(
        report,
        blocks=[
            Table(
                title="Tasks",
                columns=(
                    "task",
                    "models",
                    "first",
                    "rank",
                    "attacked",
                    "weakest class",
                    "proven at best",
                ),
                rows=[_task_row(task) for task in tasks],
                text="A task is data, distance and budget. Attacked: the share of "
                "samples that no attack broke. Proven: the "
                "share that holds against every attack. Only models that the "
                "board has verified are named.",
                name="tasks",
                filter=True,
            ),
            Table(
                title="Models",
                columns=("model", "digest", "folders", "verified"),
                rows=[
                    (
                        Link(first.model, model_address(identity)),
                        Code(first.digest[:8]),
                        len(folders),
                        _verified(first),
                    )
                    for identity, folders in models.items()
                    for first in folders[:1]  # which speaks for all folders of the model
                ],
                name="models",
                filter=True,
                folded=len(models) > MOST_LINKS,
            ),
            *report.blocks,
        ],
    )


def _verified(folder: BoardFigures) -> Cell:
    """How much of a folder the board repeated, and which samples it has."""
    text = "repeated" if folder.verified else "claimed †"
    if folder.verified and folder.attacked:
        text = f"repeated {folder.repeated:,} of {folder.attacked:,}"
    return Detail(text, folder.drawn) if folder.drawn else text


def _task_row(task: BoardTask) -> tuple[Any, ...]:
    verified = [entry for entry in task.entries if entry.figures.verified]
    first = next((entry for entry in verified if entry.rank is not None), None)
    proofs = [entry.proven for entry in verified if entry.proven is not None]
    leader = (
        (None,) * 4
        if first is None
        else (first.figures.model, first.rank, first.robust, first.weakest and first.weakest.text)
    )
    best = max(proofs, key=lambda rate: rate.value or 0.0, default=None)
    return (Link(task.name, f"tasks/{task.slug}.html"), task.models, *leader, best)


def model_address(identity: tuple[str, ...]) -> str:
    """The page of a model, by its path in the site; that of a claim is its folder's alone."""
    name, digest, *run = identity
    return f"models/{slug(name, digest[:8] + hashlib.blake2b(repr(run).encode(), digest_size=4).hexdigest() * bool(run))}.html"


def task_report(task: BoardTask, siblings: Sequence[BoardTask]) -> Report:
    """The page of a task."""
    if task.standing is None:
        answer = [
            "No folder of this task was verified by a replay: its figures are "
            "claims, and have no order."
        ]
    elif len(task.standing.names) == 1:
        rate = task.entries[0].robust
        value = percent(None if rate is None else rate.value)
        answer = [
            f"{task.standing.names[0]} is the only verified model here: no attack "
            f"broke {value} of its samples."
        ]
    else:
        answer = list(map(sentence, task.statements))

    return Report(
        verb="board",
        title=task.name,
        subject=f"{counted(task.models, 'model')}, data digest "
        f"{task.entries[0].figures.data_digest[:12]}",
        sentences=[*answer, TRUST],
        blocks=[
            table
            for table in (
                _entry_table(task, "Models", task.slug, is_verified=True),
                _entry_table(task, "Claimed †", f"{task.slug}-claimed", is_verified=False),
            )
            if table.rows
        ],
        notes=[Note("task", "note", note) for note in task.notes],
        links=[
            Link("all tasks", "../index.html"),
            *(
                Link(sibling.name, f"{sibling.slug}.html")
                for sibling in siblings[:MOST_LINKS]
                if sibling is not task
            ),
        ],
    )


def _entry_table(task: BoardTask, title: str, name: str, *, is_verified: bool) -> Table:
    """The entries of a task that the board repeated, or those that are claimed."""
    return Table(
        title=title,
        columns=(
            "model",
            "rank",
            "clean",
            "attacked",
            "proven",
            "bounds",
            "weakest class",
            "checks",
            "verified",
            "attacks",
        ),
        rows=[_entry_row(entry) for entry in task.entries if entry.figures.verified == is_verified],
        text="Attacked: the share of samples that no attack broke, never "
        "below the truth for them. Proven: the "
        "share that holds against every attack, never above it; the "
        "truth lies between these bounds. Intervals of ranks "
        "hold together with 95 %. Checks: passed / failed / not made." * is_verified,
        name=name,
        filter=True,
    )


def _entry_row(entry: BoardEntry) -> tuple[Any, ...]:
    folder, robust, proven = entry.figures, entry.robust, entry.proven
    return (
        Link(folder.model, f"../{model_address(folder.identity)}"),
        entry.rank,
        folder.clean,
        robust,
        proven,
        Span(0.0 if proven is None else proven.value, 1.0 if robust is None else robust.value),
        entry.weakest,
        folder.checks,
        _verified(folder),
        folder.attacks,
    )


def model_report(
    folders: Sequence[BoardFigures], tasks: Sequence[tuple[BoardTask, BoardEntry]]
) -> Report:
    """The page of a model."""
    first = folders[0]
    # The folder that says most of its classes.
    best = max(folders, key=lambda f: (len(f.per_class), len(f.eps)))
    # Who is alone in a task leads nobody there.
    ranks = sum(
        entry.rank is not None
        and entry.rank.high == 1
        and any(s.supported for s in task.statements)
        for task, entry in tasks
    )
    leadership = leader_count(ranks) if first.verified else "has no rank: its figures are claims"

    return Report(
        verb="board",
        title=first.model if first.verified else f"{first.model} (claimed)",
        subject=f"digest {first.digest}",
        sentences=[
            f"{first.model} is in {counted(len(tasks), 'task')} of this board, and {leadership}."
        ],
        blocks=[
            Table(
                title="Tasks",
                columns=("task", "rank", "clean", "attacked", "weakest class", "proven", "samples"),
                rows=[
                    (
                        Link(task.name, f"../tasks/{task.slug}.html"),
                        entry.rank,
                        entry.figures.clean,
                        entry.robust,
                        entry.weakest,
                        entry.proven,
                        max(rate.n for rate in (entry.robust, entry.proven) if rate is not None),
                    )
                    for task, entry in tasks
                ],
                filter=True,
            ),
            Table(
                title="Class by class",
                columns=("class", "samples", "clean", *best.eps_text),
                rows=[(c.name, c.n, c.clean, *c.robust) for c in best.per_class],
                text=f"{best.data}, {distance(best.distance)}: the share of the "
                "samples of each class that no attack broke.",
                heat=first.verified,
            ),
            Table(
                title="Folders",
                columns=("folder", "made by", "attacks", "checks", "verified", "date"),
                rows=[
                    (f.run, f"brinell {f.verb}", f.attacks, f.checks, _verified(f), Claimed(f.date))
                    for f in folders
                ],
            ),
        ],
        links=[Link("all tasks", "../index.html")],
    )


def site_reports(
    result: BoardResult,
    tasks: Sequence[BoardTask],
    models: Mapping[tuple[str, ...], Sequence[BoardFigures]],
) -> dict[str, Report]:
    """The pages of a site, by their paths without the ending."""
    places: dict[tuple[str, ...], list[tuple[BoardTask, BoardEntry]]] = {}
    for task in tasks:
        for entry in task.entries:
            places.setdefault(entry.figures.identity, []).append((task, entry))

    pages = {"index": index_report(result, tasks, models)}
    pages |= {f"tasks/{task.slug}": task_report(task, tasks) for task in tasks}
    for identity, folders in models.items():
        pages[model_address(identity).removesuffix(".html")] = model_report(
            folders, places[identity]
        )
    return pages
