"""Pieces of work, and how they depend on each other's answers (`studies.pieces` has them made)."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brinell.store.parts import PieceResult


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of the work that can be done by itself."""

    name: str
    """Progress message of the piece."""
    make: Callable[[], Any]
    """Computes its rows, or None, or a `store.parts.PieceResult`; writes its files into the folder of
    the plan."""
    files: tuple[str, ...] = ()
    """Its files besides the rows, by their paths in the folder."""
    needs: tuple[str, ...] = ()
    """In a fixed list the names of the pieces, earlier in the order, whose files it reads."""
    reads: tuple[str, ...] = ()
    """Files of other pieces that it reads; in a fixed list they follow from `needs`."""
    key: str = ""
    """The key of its answer in an unfinished folder; in a fixed list its number."""
    rows: type[Any] | None = None
    """The dataclass of its rows; in a fixed list that of the study."""
    task: Any = None
    """Data by which a worker makes it; None for a piece of the driver's process."""


PieceAnswer = tuple[Piece, "PieceResult"]
"""A piece that is done, with its answer but for the arrays, which are in its file."""
Pieces = Generator[Sequence[Piece], PieceAnswer, Any]
"""Yields pieces that can be done now, and is sent one that is done, in any order."""


def make_alone(piece: Piece) -> "Generator[Sequence[Piece], PieceAnswer, PieceResult]":
    """Have one piece made while no other is under way; returns its answer."""
    _, answer = yield [piece]
    return answer
