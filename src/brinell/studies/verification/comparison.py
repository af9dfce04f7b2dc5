"""Compares recorded rows with those of a replay.

On one machine a replay repeats every row, but for the last digits of its margins. Other processors and libraries round otherwise,
and an attack whose path splits by rounding may end elsewhere. So a row that comes out differently is a deviation, which counts
against the run. It is a contradiction where rounding cannot explain it, or where the run states this very machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import Array, Records

EXACT = (
    "attacked",
    "broken",
    "outcome",
    "adv_pred",
    "quantised_pred",
    "quantised_within",
    "forwards",
    "backwards",
    "judge_forwards",
    "surrogate_passes",
)
"""Columns that a replay repeats exactly."""
FIRST_SUCCESS = "queries_to_success"
MARGINS = ("adv_margin", "margin")
SIZES = ("linf", "l2", "l1", "l0")
TOLERANCE = 1e-3
"""Differences that count as equal: of margins as a share of the clean margin, of sizes as a share of size or budget."""
CLEAR_MARGIN, CLEAR_COST = 0.25, 0.2
"""Differences beyond rounding: of margins as a share of the clean margin, of costs as a share of the larger one."""
NEAR = 0.05
"""A sample is near the boundary if its margin is at most this share of its clean margin."""
MOST_DEVIATIONS = 0.05
"""Share of the attacked rows that may deviate on another machine (an allowance; `benchmarks/verify.py` measures the share)."""
CHANCE = 1e-3
"""A random model is refused if its robust samples break this improbably more often in replays than others hold."""
SUSPICIOUS, REPEATS, DRAWS = 2, 11, 20_000
"""Excess of samples that break earlier after which a random model is replayed again, how often, and draws of the test."""
UNNOTICED = 2
"""Forged samples of a random model that are taken for chance: with 11 more replays, 3 of them are as probable as 12^-3."""


@dataclass(frozen=True)
class Comparison:
    """Rows of attacked samples in a stage beside those of its replay; arrays (rows,) are aligned."""

    samples: Array
    """Ids of the samples."""
    deviating: Mapping[str, Array]
    """By column: true where the replay came out differently."""
    contradicting: Array
    """True where rounding does not explain the difference."""

    @property
    def deviates(self) -> Array:
        """(rows,) bool: rows with a difference in any column."""
        return np.asarray(np.logical_or.reduce([*self.deviating.values()]))


def compare_rows(recorded: Records, replayed: Records, clean_margin: Array) -> Comparison:
    """Compare the rows of a stage with those of its replay.

    Args:
        recorded: the rows of the run.
        replayed: those of the replay, aligned.
        clean_margin: (rows,) lead of the true class on the clean input of each row's sample.
    """
    scale = np.maximum(np.abs(clean_margin), np.finfo(np.float32).tiny)
    deviating = {name: _differs(getattr(recorded, name), getattr(replayed, name)) for name in (*EXACT, FIRST_SUCCESS)}
    apart = {name: _distance(getattr(recorded, name), getattr(replayed, name)) for name in (*MARGINS, *SIZES, "adv_confidence")}
    deviating |= {name: apart[name] > TOLERANCE * scale for name in MARGINS}
    radius = _filled(recorded.broken) * recorded.unit
    deviating |= {name: apart[name] > TOLERANCE * np.maximum(_filled(getattr(recorded, name)), radius) for name in SIZES}
    deviating["adv_confidence"] = apart["adv_confidence"] > TOLERANCE
    lead = np.maximum(np.abs(_filled(replayed.adv_margin)), np.abs(_filled(replayed.margin)))
    contradicting = deviating["broken"] & (lead > NEAR * scale)
    equal_outcome = ~(deviating["broken"] | deviating["outcome"])
    contradicting |= equal_outcome & np.any([apart[name] > CLEAR_MARGIN * scale for name in MARGINS], axis=0)
    for name in ("forwards", "backwards"):
        costs = [np.asarray(getattr(records, name), dtype=float) for records in (recorded, replayed)]
        contradicting |= equal_outcome & (np.abs(costs[0] - costs[1]) > CLEAR_COST * np.maximum(*costs))
    return Comparison(recorded.sample_id, deviating, contradicting)


def is_suspicious(levels: Array) -> bool:
    """True if more samples of a random model broke at smaller budgets in a first replay than at larger ones, by two or more.

    Args:
        levels: (2, n) index of the smallest budget that broke each sample, according to the run and to the replay.
    """
    return int((levels[1] < levels[0]).sum()) - int((levels[1] > levels[0]).sum()) >= SUSPICIOUS


def rank_chance(levels: Array) -> float:
    """The probability that the first row ranks as high as it does if all rows were made alike.

    Rows that were made alike can be exchanged in each column. So the sum over the columns of how many rows the first one exceeds
    is compared with that of rows which are drawn at random in each column.

    Args:
        levels: (rows, n) index of the smallest budget that broke each sample, of the run and of its replays.
    """
    scores = np.sign(levels[:, None] - levels[None]).sum(1)
    rows = np.random.default_rng(0).integers(0, len(levels), (DRAWS, levels.shape[1]))
    sums = scores[rows, np.arange(levels.shape[1])].sum(1)
    return float(((sums >= scores[0].sum()).sum() + 1) / (DRAWS + 1))


def _differs(recorded: Any, replayed: Any) -> Array:
    """(rows,) bool: values that differ, or that only one of both has."""
    missing, missing_again = np.ma.getmaskarray(recorded), np.ma.getmaskarray(replayed)
    unequal = np.ma.getdata(recorded) != np.ma.getdata(replayed)
    return np.asarray((missing != missing_again) | (~missing & unequal))


def _distance(recorded: Any, replayed: Any) -> Array:
    """(rows,) absolute differences; infinite where only one of both has a value, 0 where none has."""
    missing, missing_again = np.ma.getmaskarray(recorded), np.ma.getmaskarray(replayed)
    apart = np.abs(_filled(recorded) - _filled(replayed))
    return np.where(missing & missing_again, 0.0, np.where(missing != missing_again, np.inf, apart))


def _filled(column: Any) -> Array:
    """A column with 0 where it has no value."""
    return np.asarray(np.ma.filled(column, 0), dtype=float)
