"""Pieces that depend on answers, and those of a list that need each other, are made once each,
whatever interrupts them.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import brinell
from brinell.core.errors import StoppedError
from brinell.core.record import Columns, column
from brinell.engine.piece import Piece
from brinell.store import rows
from brinell.store.folder import PAGE
from brinell.studies.pieces import Driver, as_cut
from brinell.studies.result import FolderResult


@dataclass(frozen=True, kw_only=True)
class Guess(Columns):
    """A number and whether it is too low."""

    number: np.ndarray = column("int64", "the number")
    low: np.ndarray = column("bool", "whether the hidden number is larger")


class Hider:
    """Answers guesses of a hidden number; stops at the guess `stop`."""

    def __init__(self, hidden, stop=None):
        self.hidden, self.stop = hidden, stop
        self.guesses = []

    def answer(self, number):
        if len(self.guesses) == self.stop:
            raise KeyboardInterrupt
        self.guesses.append(number)
        return rows.build(Guess, 1, number=number, low=self.hidden > number)


def bisect(hider, low=0, high=64):
    """Pieces that narrow the range of a hidden number, each by the answer before."""
    while high - low > 1:
        middle = (low + high) // 2
        piece = Piece(name=f"is it {middle}", make=partial(hider.answer, middle - 1))
        _, answer = yield [piece]
        low, high = (middle, high) if answer.rows.low[0] else (low, middle)


def carried_out(folder, hider):
    driver = Driver(folder)
    return driver.carry_out(as_cut(bisect(hider), Guess, lambda text: None))


def test_pieces_depend_on_answers_and_are_made_once(tmp_path):
    """Bisection finds each number in six questions, and an interrupted one asks none twice."""
    for hidden in (0, 21, 63):
        expected = Hider(hidden)
        answers = carried_out(tmp_path / f"{hidden}", expected)
        assert len(answers) == 6 and expected.guesses[0] == 31
        below = [guess for guess in expected.guesses if guess < hidden]
        assert max(below, default=-1) == hidden - 1

        stopped, resumed = Hider(hidden, stop=4), Hider(hidden)
        with pytest.raises(KeyboardInterrupt):
            carried_out(tmp_path / f"{hidden}-stopped", stopped)
        answers = carried_out(tmp_path / f"{hidden}-stopped", resumed)
        assert stopped.guesses + resumed.guesses == expected.guesses
        assert [int(answer.rows.number[0]) for answer in answers] == expected.guesses


def test_pieces_of_a_list_wait_for_what_they_need(tmp_path):
    order = []

    def make(name):
        order.append(name)
        return rows.build(Guess, 1, number=len(order), low=False)

    needs = {"sum": ("b", "a"), "a": (), "b": ("a",)}
    pieces = [
        Piece(name=name, make=partial(make, name), needs=needed) for name, needed in needs.items()
    ]
    answers = Driver(tmp_path).carry_out(as_cut(pieces, Guess, lambda text: None))
    assert order == ["a", "b", "sum"]
    assert [int(answer.rows.number[0]) for answer in answers] == [3, 1, 2]


def test_a_page_that_was_not_written_is_written_by_the_resumed_call(
    patterns, tmp_path, monkeypatch
):
    """A full disk may leave a complete folder without its page, and success is told of none."""

    def fail(result):
        raise StoppedError(f"{result.folder} cannot be written: the disk is full")

    calls = {
        brinell.corrupt: {"kind": "contrast", "severity": 1},
        brinell.explain: {"method": "random", "samples": 4},
        brinell.certify: {"eps": 0.1, "method": "interval", "attack": "fgsm", "samples": 4},
    }
    for call, settings in calls.items():
        out = tmp_path / call.__name__
        work = partial(call, patterns.model, patterns.data, out=out, **settings)
        with monkeypatch.context() as context:
            context.setattr(FolderResult, "write", fail)
            with pytest.raises(StoppedError):
                work()
        assert not (out / PAGE).exists()
        work(resume=True)
        assert (out / PAGE).read_text()
