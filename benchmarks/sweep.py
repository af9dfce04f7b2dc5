"""A sweep over nine budgets in one run, against nine separate runs of our own with the same stages and seed.

    python benchmarks/sweep.py [--attack standard] [--subjects ...] [--samples 200]

Cost is what the records say: forwards (those that judge adversarial examples again included) and backwards of single inputs,
and processor time of the whole call, report included. `one run` is the separate run at the largest budget. `cells that
differ`: pairs of sample and budget on which the sweep and the separate run disagree about whether the worst attack broke the
sample; first those that only the sweep broke, then those that only the separate run broke. Attacks are random, so separate
runs with another seed disagree as
well: `seed to seed` counts that.
"""

import functools
import itertools
import operator
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
from measure import Subject

import brinell
from brinell.core.record import BROKEN
from brinell.engine.eps_grid import parse_eps
from brinell.store.run import Run

Cells = dict[tuple[int, float], bool]
"""(sample, eps) to whether any attack broke it."""


@dataclass
class Outcome:
    """Cost and result of a run."""

    forwards: int
    backwards: int
    seconds: float
    cells: Cells

    def __add__(self, addend: "Outcome") -> "Outcome":
        return Outcome(
            self.forwards + addend.forwards,
            self.backwards + addend.backwards,
            self.seconds + addend.seconds,
            self.cells | addend.cells,
        )


def audit(subject: Subject, eps: str, seed: int, options, folder: Path) -> Outcome:
    """One audit."""
    begin = time.process_time()
    brinell.audit(
        subject.model_spec,
        subject.data_spec,
        eps=eps,
        norm=options.norm,
        seed=seed,
        samples=options.samples,
        select="first",
        out=folder,
        device="cpu",
        attack=tuple(options.attack.split(",")),
    )
    seconds = time.process_time() - begin
    rows = Run.open(folder).records()
    attacked = rows.attack != "clean"
    broken = np.isin(rows.outcome, [outcome.value for outcome in BROKEN])
    cells: Cells = {}
    for sample, budget, fell in zip(rows.sample_id[attacked], rows.eps[attacked], broken[attacked], strict=True):
        key = (int(sample), float(budget))
        cells[key] = cells.get(key, False) or bool(fell)
    forwards = int(rows.forwards.sum() + rows.judge_forwards.sum())
    return Outcome(forwards, int(rows.backwards.sum()), seconds, cells)


def separate(subject: Subject, budgets: tuple[str, ...], seed: int, options, folder: Path) -> list[Outcome]:
    """One run for each budget."""
    return [audit(subject, text, seed, options, folder / str(number)) for number, text in enumerate(budgets)]


def disagreement(first: Cells, second: Cells) -> str:
    """Cells that only the first run broke, and cells that only the second run broke."""
    if first.keys() != second.keys():
        raise SystemExit("the runs judged different cells")
    only_first = sum(first[key] and not second[key] for key in first)
    only_second = sum(second[key] and not first[key] for key in first)
    return f"{only_first} + {only_second} of {len(first)}"


def compare(table: measure.Table, subject: Subject, options, folder: Path) -> None:
    """The lines of one model."""
    text = f"0:{options.eps or subject.eps_text}:{options.points}"
    budgets = parse_eps(text).texts
    sweeps, runs = [], []
    for repetition in range(options.repetitions):
        out = folder / str(repetition)
        works = [
            lambda out=out, seed=repetition: sweeps.append(audit(subject, text, seed, options, out / "sweep")),
            lambda out=out, seed=repetition: runs.append(separate(subject, budgets, seed, options, out)),
        ]
        for work in works if repetition % 2 == 0 else reversed(works):
            work()
    singles, largest = [functools.reduce(operator.add, run) for run in runs], [run[-1] for run in runs]
    figures = [
        measure.spread([getattr(sweep, column) / getattr(peer, column) for sweep, peer in zip(sweeps, peers, strict=True)])
        for peers in (singles, largest)
        for column in ("forwards", "backwards", "seconds")
    ]
    seconds = measure.spread([sweep.seconds for sweep in sweeps], 1)
    differ = ", ".join(disagreement(a.cells, b.cells) for a, b in zip(sweeps, singles, strict=True))
    seeds = ", ".join(disagreement(a.cells, b.cells) for a, b in itertools.pairwise(singles)) or "one repetition"
    table.add(subject.name, text, options.samples, *figures, seconds, differ, seeds, options.repetitions)


def main() -> None:
    """The comparison on every model."""
    subjects = list(measure.SUBJECTS)
    options = measure.arguments(
        __doc__ or "", subjects=subjects, attack="apgd-ce,apgd-dlr", norm="linf", eps="", samples=200, points=9, repetitions=2
    )
    varied = ["attack", *(["eps"] if options.eps else [])]
    command = measure.command(options, "subjects", *varied, "norm", "samples", "points", "repetitions")
    columns = (
        "model, eps, samples, forwards / separate, backwards / separate, cpu / separate, forwards / one run, "
        "backwards / one run, cpu / one run, sweep s, cells that differ, seed to seed, repetitions"
    )
    note = (
        "Ratios are of the sweep (of the two APGD stages: 0.45 of the separate runs at most). Each repetition has its own seed."
    )
    table = measure.Table("A sweep beside separate runs", command, columns.split(", "), note)
    with tempfile.TemporaryDirectory(prefix="brinell-sweep-") as temporary:
        for name in options.subjects:
            compare(table, measure.SUBJECTS[name], options, Path(temporary) / name)


if __name__ == "__main__":
    main()
