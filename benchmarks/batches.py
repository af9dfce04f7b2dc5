"""The effect of the batch size on results: the same audit with small and with large batches, cell by cell.

A cell is a sample at a budget under an attack. Kernels round differently in batches of another size, and a search that climbs
for a hundred steps carries such a difference on; so the outcome of a cell may differ where the model is nearly undecided.
If another attack breaks a sample, its cells under all later attacks differ too; `samples` counts each once, and
`verdicts` are pairs of sample and budget that one run broke, by whatever attack, and the other did not. `largest margin` is
how far a sample was from being broken, at most, in the run that did not break it, under the first attack on which the runs
part; the last column is the median margin of clean inputs.
"""

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import measure
import numpy as np
import torch

import brinell
from brinell.core.losses import margin
from brinell.core.record import BROKEN
from brinell.store.run import Run

CASCADES = {
    "fast": ["fast"],
    "standard, fewer steps": [
        "apgd-ce?steps=25",
        "apgd-t?steps=10",
        "fab-t?steps=10&stop_at_eps=true",
        "square?steps=250&rescale_schedule=false",
    ],
}


class Cell(NamedTuple):
    """Result of one sample at one budget under one attack."""

    outcome: str
    broken: bool
    lead: float
    """Of a wrong class, in the find or at best; NaN where the attack had no turn."""


Cells = dict[tuple[int, float], list[Cell]]
"""By sample and budget, the attacks in their order."""


def audit(subject: measure.Subject, attack: list[str], size: int, options: Namespace) -> Cells:
    """One audit in batches of this size."""
    with tempfile.TemporaryDirectory(prefix="brinell-batches-") as folder:
        brinell.audit(
            subject.model_spec, subject.data_spec, eps=f"0:{subject.eps_text}:{options.points}", attack=tuple(attack),
            samples=options.samples, select="first", seed=options.seed, batch_size=size, device="cpu", out=Path(folder) / "run",
        )  # fmt: skip
        run = Run.open(Path(folder) / "run")
        rows = run.records()
    broken = np.isin(rows.outcome.astype(str), [str(outcome) for outcome in BROKEN])
    leads = np.where(broken, np.ma.filled(rows.adv_margin, np.nan), np.ma.filled(rows.best_margin, np.nan))
    stages = {stage["name"]: index for index, stage in enumerate(run.manifest["stages"])}
    cells: Cells = {}
    for row in np.argsort([stages.get(str(name), -1) for name in rows.attack], kind="stable"):
        if str(rows.attack[row]) in stages:
            key = int(rows.sample_id[row]), round(float(rows.eps[row]), 9)
            cells.setdefault(key, []).append(Cell(str(rows.outcome[row]), bool(broken[row]), float(leads[row])))
    return cells


def differences(first: Cells, second: Cells) -> tuple[int, int, int, float]:
    """Cells, samples and verdicts that differ, and the largest margin of what held in one of them."""
    if first.keys() != second.keys():
        raise SystemExit("the runs judged different cells")
    cells = verdicts = 0
    samples: dict[int, float] = {}
    for key in sorted(first):
        pairs = [(a, b) for a, b in zip(first[key], second[key], strict=True) if a.outcome != b.outcome]
        cells += len(pairs)
        verdicts += any(a.broken for a in first[key]) != any(b.broken for b in second[key])
        if pairs:
            leads = [abs(cell.lead) for cell in pairs[0] if not cell.broken and not np.isnan(cell.lead)]
            samples[key[0]] = max([samples.get(key[0], 0.0), *leads])
    return cells, len(samples), verdicts, max(samples.values(), default=0.0)


def clean_lead(subject: measure.Subject, n: int) -> float:
    """The median lead of the true class on the samples that the network gets right."""
    module = subject.module()
    x, y = subject.samples(n, module)
    with torch.no_grad():
        return float(-margin(module(x), y).median())


def main() -> None:
    """Each network and cascade, every size against the middle one."""
    options = measure.arguments(
        __doc__ or "", subjects=["cnn4_pgd", "resnet4b"], samples=100, points=4, seed=0, sizes=["128", "32", "500"]
    )
    command = measure.command(options, "subjects", "samples", "points", "seed", "sizes")
    columns = "network,attacks,batch sizes,cells,cells that differ,samples,verdicts,largest margin,clean margin".split(",")
    table = measure.Table("Batch size and results", command, columns)
    first, *sizes = map(int, options.sizes)
    for key in options.subjects:
        subject = measure.subject(key)
        usual = clean_lead(subject, options.samples)
        for name, attack in CASCADES.items():
            baseline = audit(subject, attack, first, options)
            for size in sizes:
                cells, samples, verdicts, lead = differences(baseline, audit(subject, attack, size, options))
                total = sum(map(len, baseline.values()))
                table.add(subject.name, name, f"{size} / {first}", total, cells, samples, verdicts, f"{lead:.2g}", f"{usual:.2g}")


if __name__ == "__main__":
    main()
