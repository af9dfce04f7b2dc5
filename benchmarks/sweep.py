"""A sweep over nine budgets in one run, against nine separate runs of our own with the same stages and seed.

Cost is counted as the records tell it: forwards (the re-checks of finds included) and backwards of single inputs, and wall
time of the whole call, report included. `cells that differ`: pairs of sample and budget on which the sweep and the separate
run disagree about whether the worst attack broke the sample; first those that only the sweep broke, then those that only the
separate run broke. Attacks are random, so separate runs with another seed disagree as well: `seed to seed` counts that.
"""

import itertools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
from measure import Subject

from brinell import api
from brinell.auditing.spacing import parse_eps
from brinell.core.record import BROKEN
from brinell.store.run import Run

Cells = dict[tuple[int, float], bool]
"""(sample, eps) to whether any attack broke it."""


@dataclass
class Outcome:
    """What a run cost and what it found."""

    forwards: int
    backwards: int
    seconds: float
    cells: Cells

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.forwards + other.forwards,
            self.backwards + other.backwards,
            self.seconds + other.seconds,
            self.cells | other.cells,
        )


def audit(subject: Subject, eps: str, seed: int, samples: int, folder: Path) -> Outcome:
    """One audit with the default stages."""
    begin = time.perf_counter()
    api.audit(subject.model_spec, subject.data_spec, eps=eps, seed=seed, samples=samples, out=folder, device="cpu")
    seconds = time.perf_counter() - begin
    rows = Run.open(folder).records()
    attacked = rows.attack != "clean"
    broken = np.isin(rows.outcome, [outcome.value for outcome in BROKEN])
    cells: Cells = {}
    for sample, budget, fell in zip(rows.sample_id[attacked], rows.eps[attacked], broken[attacked], strict=True):
        key = (int(sample), float(budget))
        cells[key] = cells.get(key, False) or bool(fell)
    forwards = int(rows.forwards.sum() + rows.judge_forwards.sum())
    return Outcome(forwards, int(rows.backwards.sum()), seconds, cells)


def separate(subject: Subject, budgets: tuple[str, ...], seed: int, samples: int, folder: Path) -> Outcome:
    """One run for each budget."""
    runs = [audit(subject, text, seed, samples, folder / str(number)) for number, text in enumerate(budgets)]
    total = runs[0]
    for run in runs[1:]:
        total = total + run
    return total


def disagreement(left: Cells, right: Cells) -> str:
    """How many cells only the left one broke, and how many only the right one."""
    if left.keys() != right.keys():
        raise SystemExit("the runs judged different cells")
    only_left = sum(left[key] and not right[key] for key in left)
    only_right = sum(right[key] and not left[key] for key in left)
    return f"{only_left} + {only_right} of {len(left)}"


def compare(table: measure.Table, subject: Subject, options, folder: Path) -> None:
    """The lines of one model."""
    text = f"0:{subject.eps_text}:{options.points}"
    budgets = parse_eps(text).texts
    sweeps, singles = [], []
    for repetition in range(options.repetitions):
        here = folder / str(repetition)
        works = [
            lambda here=here, seed=repetition: sweeps.append(audit(subject, text, seed, options.samples, here / "sweep")),
            lambda here=here, seed=repetition: singles.append(separate(subject, budgets, seed, options.samples, here)),
        ]
        for work in works if repetition % 2 == 0 else reversed(works):
            work()
    pairs = list(zip(sweeps, singles, strict=True))
    figures = [
        measure.spread([getattr(sweep, what) / getattr(single, what) for sweep, single in pairs])
        for what in ("forwards", "backwards", "seconds")
    ]
    seconds = measure.spread([sweep.seconds for sweep in sweeps], 1)
    differ = ", ".join(disagreement(sweep.cells, single.cells) for sweep, single in pairs)
    seeds = ", ".join(disagreement(a.cells, b.cells) for a, b in itertools.pairwise(singles)) or "one repetition"
    table.add(subject.name, text, options.samples, *figures, seconds, differ, seeds, options.repetitions)


def main() -> None:
    """The comparison on every model."""
    options = measure.arguments(__doc__ or "", subjects=list(measure.SUBJECTS), samples=200, points=9, repetitions=2)
    told = measure.command(options, "subjects", "samples", "points", "repetitions")
    columns = "model, eps, samples, forwards, backwards, wall, sweep s, cells that differ, seed to seed, repetitions"
    note = "Ratios are sweep / separate runs; target: at most 0.45. Each repetition has a seed of its own."
    table = measure.Table("A sweep beside separate runs", told, columns.split(", "), note)
    with tempfile.TemporaryDirectory(prefix="brinell-sweep-") as temporary:
        for name in options.subjects:
            compare(table, measure.SUBJECTS[name], options, Path(temporary) / name)


if __name__ == "__main__":
    main()
