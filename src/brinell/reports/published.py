"""A figure among published entries, as a sentence and a table."""

from brinell.analysis.published import DATE, PublishedEntry, PublishedPlace
from brinell.analysis.results import Rate
from brinell.reports.numbers import percent
from brinell.reports.values import Percent, Table


def place_sentence(published: PublishedPlace, figure: Rate) -> str:
    """The place of a figure, or the reasons against one, in a sentence or two."""
    differences = "; ".join(published.differences)
    if published.place is None:
        return f"Not comparable with RobustBench's entries: {differences}."
    exact = published.best == published.worst
    span = "" if exact else f" ({published.best} to {published.worst} by its interval)"
    caution = f" Keep in mind: {differences}." if differences else ""
    return (
        f"With {percent(figure.value)} the model would stand at place {published.place}{span} among "
        f"the {published.entries} entries of RobustBench of {DATE}, and at "
        f"{published.place_by_lowest} by the lowest figures known of them.{caution}"
    )


def place_table(published: PublishedPlace, name: str, clean: Rate, figure: Rate) -> Table:
    """A figure between its neighbours, or what differs where it has no place.

    Args:
        published: the place.
        name: of the model.
        clean: its accuracy on clean inputs.
        figure: its robust accuracy.
    """
    if published.place is None or published.entries is None:
        return Table(
            title="Why there is no place among the entries of RobustBench",
            columns=("difference",),
            rows=[(text,) for text in published.differences],
            name="published",
        )

    place, above, below = published.place, published.above, published.below
    return Table(
        title=f"Among the entries of RobustBench, {DATE}",
        columns=("place", "model", "clean", "robust", "lowest known"),
        rows=[
            *(_row(entry, place - len(above) + k) for k, entry in enumerate(above)),
            (f"{place} of {published.entries + 1}", f"{name} (this)", clean, figure, None),
            *(_row(entry, place + k) for k, entry in enumerate(below, 1)),
        ],
        text="Robust accuracy of the entries is AutoAttack's, as published; the lowest known "
        "figure is what anybody found later.",
        name="published",
        terminal=True,
    )


def _row(entry: PublishedEntry, place: int) -> tuple[object, ...]:
    """The row of an entry: its place, its name and its three figures."""
    shares = (entry.clean, entry.autoattack, entry.lowest)
    return (str(place), entry.model, *map(Percent, shares))
