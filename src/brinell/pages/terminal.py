"""Parts of results as a terminal shows them, in plain characters."""

from collections.abc import Iterable, Iterator

from brinell.core.outward import JOINER


def percent(value: float | None) -> str:
    """A rate in percent; a dash if there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def reading(sentences: Iterable[str], notes: Iterable[str] = ()) -> Iterator[str]:
    """The sentences of the page followed by notes, as lines."""
    yield from (f"  {sentence.replace(JOINER, '')}" for sentence in sentences)
    yield from (f"  note: {note}" for note in notes)
