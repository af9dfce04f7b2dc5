"""Mean distances of class to class: a table, and a sentence on classes that are nearer to another
class than to themselves.
"""

from collections.abc import Sequence

import numpy as np

from brinell.reports.numbers import capital, counted, listed
from brinell.reports.values import Cell, Framed, Table

MOST_CLASSES = 20
"""Largest number of classes whose distances a page and a terminal show; the CSV file has all."""
MOST_NAMED = 6
"""Classes that a sentence names at most."""

Means = Sequence[Sequence[float | None]]
"""Mean distance of each class to each, and within a class of different samples; None without a
pair."""


def nearer_classes(means: Means) -> list[list[int]]:
    """For each class those whose samples are nearer on average than the own ones."""
    distances = np.array(means, dtype=np.float64).reshape(len(means), -1)
    is_nearer = distances < np.diagonal(distances)[:, None]
    return [np.flatnonzero(row).tolist() for row in is_nearer]


def nearness_sentence(space: str, names: Sequence[str], means: Means) -> str:
    """The classes that are nearer to another class than to themselves in a distance, in words;
    empty without two classes.
    """
    nearer = nearer_classes(means)
    texts = [
        f"{name} (to {listed([names[k] for k in others])})"
        for name, others in zip(names, nearer, strict=True)
        if others
    ]

    if len(names) < 2:
        return ""
    if not texts:
        return (
            f"{capital(space)}: by mean distance of these samples each class is nearest to itself."
        )
    verb = "is" if len(texts) == 1 else "are"
    return (
        f"{capital(space)}: by mean distance of these samples {counted(len(texts), 'class', 'classes')} of "
        f"{len(names)} {verb} nearer to another class than to "
        f"{'itself' if len(texts) == 1 else 'themselves'}: {listed(texts, MOST_NAMED)}."
    )


def class_distances(
    space: str, names: Sequence[str], means: Means, *, text: str, name: str, folded: bool = False
) -> Table:
    """The mean distance of class to class; in frames what is nearer to a class than itself.

    Args:
        space: name of the distance.
        names: of the classes.
        means: mean distances by class of the row and class of the column.
        text: by which samples they are measured.
        name: of the CSV file.
        folded: True if the page opens with the table folded.
    """
    nearer = nearer_classes(means)
    few = len(names) <= MOST_CLASSES
    rows: list[tuple[Cell, ...]] = []

    for label, row in enumerate(means):
        framed = {*nearer[label]}
        cells = [Framed(mean) if k in framed else mean for k, mean in enumerate(row)]
        rows.append((names[label], *cells, [names[k] for k in nearer[label]] or None))

    return Table(
        title=f"Mean distance of class to class, {space}",
        columns=("class", *names, "nearer than itself"),
        rows=rows,
        text=f"{text} In a frame: another class is nearer to the class of the row than its own "
        "samples are to each other.",
        name=name,
        folded=folded,
        terminal=few,
        page=few,
    )
