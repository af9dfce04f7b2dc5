"""A sweep over nine budgets in one run, against nine separate runs of our own with the same stages
and seed.

    python benchmarks/sweep.py [--attack standard] [--subjects ...] [--samples 200]

Cost is what the records say: forwards (those that judge adversarial examples again included) and
backwards of single inputs, and processor time of the whole call, report included. `one run` is the
separate run at the largest budget. `cells that differ`: pairs of sample and budget on which the
sweep and the separate run disagree about whether the worst attack broke the sample; first those
that only the sweep broke, then those that only the separate run broke. Attacks are random, so
separate runs with another seed disagree as well: `seed to seed` counts that.
"""

import functools
import itertools
import operator
import tempfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import measure
from measure import Subject

import brinell
from brinell.analysis.curve import WRONG, grid, worst_case
from brinell.engine.eps_grid import parse_eps
from brinell.store.run import Run

GROUP = "sweeps"
RUNS = {
    "": "--subjects cnn4_pgd --samples 20 --points 3 --repetitions 1",
    "--attack fast": "--subjects cnn4_pgd --samples 10 --points 3 --repetitions 1",
}
Cells = dict[tuple[int, float], bool]
"""(sample, eps) to whether any attack broke it."""


@dataclass
class Outcome:
    """Cost and result of a run."""

    forwards: int
    backwards: int
    seconds: float
    cells: Cells

    def __add__(self, other: "Outcome") -> "Outcome":
        costs = (
            getattr(self, name) + getattr(other, name)
            for name in ("forwards", "backwards", "seconds")
        )
        return Outcome(*costs, self.cells | other.cells)


def audit(subject: Subject, eps: str, seed: int, options: Namespace, folder: Path) -> Outcome:
    """One audit."""
    settings = {
        "norm": options.norm,
        "samples": f"first:{options.samples}",
        "device": "cpu",
        "eps": eps,
        "seed": seed,
    }
    settings |= {"attack": tuple(options.attack.split(",")), "out": folder}
    _, seconds = measure.timed(
        lambda: brinell.audit(subject.model_spec, subject.data_spec, **settings)
    )
    run = Run.open(folder)
    rows = run.rows
    table = grid(rows, run.manifest, str(run.manifest["models"][0]["name"]))
    worst = worst_case(table, range(len(table.stages))) == WRONG
    cells: Cells = {
        (sample, budget): bool(worst[row, column])
        for row, sample in enumerate(table.ids.tolist())
        for column, budget in enumerate(table.eps.tolist())
    }
    return Outcome(
        int(rows.forwards.sum() + rows.judge_forwards.sum()),
        int(rows.backwards.sum()),
        seconds,
        cells,
    )


def disagreement(first: Cells, second: Cells) -> str:
    """Cells that only the first run broke, and cells that only the second run broke."""
    if first.keys() != second.keys():
        raise SystemExit("the runs judged different cells")
    only_first = sum(first[key] and not second[key] for key in first)
    return f"{only_first} + {sum(second[key] and not first[key] for key in first)} of {len(first)}"


def compare(table: measure.Table, subject: Subject, options: Namespace, folder: Path) -> None:
    """The line of one model; the sweep and the separate runs take turns in being first."""
    text = f"0:{options.eps or subject.eps_text}:{options.points}"
    budgets = parse_eps(text).texts
    sweeps, runs = [], []
    for seed in range(options.repetitions):
        out = folder / str(seed)
        for is_sweep in (seed % 2 == 0, seed % 2 == 1):
            if is_sweep:
                sweeps.append(audit(subject, text, seed, options, out / "sweep"))
            else:
                runs.append(
                    [
                        audit(subject, budget, seed, options, out / str(k))
                        for k, budget in enumerate(budgets)
                    ]
                )
    singles, largest = (
        [functools.reduce(operator.add, run) for run in runs],
        [run[-1] for run in runs],
    )
    figures = [
        measure.spread(
            [
                getattr(sweep, column) / getattr(peer, column)
                for sweep, peer in zip(sweeps, peers, strict=True)
            ]
        )
        for peers in (singles, largest)
        for column in ("forwards", "backwards", "seconds")
    ]
    seconds = measure.spread([sweep.seconds for sweep in sweeps], 1)
    differ = ", ".join(disagreement(a.cells, b.cells) for a, b in zip(sweeps, singles, strict=True))
    seeds = (
        ", ".join(disagreement(a.cells, b.cells) for a, b in itertools.pairwise(singles))
        or "one repetition"
    )
    table.add(
        subject.name, text, options.samples, *figures, seconds, differ, seeds, options.repetitions
    )


def main() -> None:
    """The comparison on every model."""
    texts = {"attack": "apgd-ce,apgd-dlr", "norm": "linf", "eps": ""}
    options = measure.arguments(
        __doc__, subjects=list(measure.SUBJECTS), **texts, samples=200, points=9, repetitions=2
    )
    columns = (
        "model, eps, samples, forwards / separate, backwards / separate, cpu / "
        "separate, forwards / one run, "
        "backwards / one run, cpu / one run, sweep s, cells that differ, seed to seed, repetitions"
    )
    note = (
        "Ratios are of the sweep (of two APGD stages: 0.45 of the separate runs at "
        "most). Each repetition has its own seed."
    )
    table = measure.Table("A sweep beside separate runs", columns, note)
    with tempfile.TemporaryDirectory(prefix="brinell-sweep-") as temporary:
        for name in options.subjects:
            compare(table, measure.subject(name), options, Path(temporary) / name)


if __name__ == "__main__":
    main()
