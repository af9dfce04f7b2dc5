"""Gradients in bf16 compared with gradients in float32: time and verdict of the same cascade on the same samples.

    python benchmarks/precision.py [--subjects resnet20 resnet4b cnn4_pgd] [--cascades apgd fast] [--samples 200]

A subject may name a budget: `resnet20@8/255`. Both runs go in turns, model call by model call, and each is timed by the processor
time of its thread, records and report included. `apgd` is APGD-CE, then APGD-DLR. `robust in ... alone` lists the samples that
the other of the two broke; verdicts are those of the last repetition, and all repetitions agree. The first repetition makes the
processor's kernels; medians are of warm ones.
"""

from argparse import Namespace
from functools import partial

import measure
import numpy as np
from autoattack import Verdict, run_cascade
from measure import Table, Work, ratios, repeated, spread
from torch import nn

GROUP = "passes"
RUNS = {"": "--subjects cnn4_pgd --samples 40 --repetitions 1"}
CASCADES = {"apgd": ("apgd-ce", "apgd-dlr")}
PRECISIONS = ("float32", "bf16")


def compare(table: Table, name: str, cascade: str, options: Namespace) -> None:
    """One line: a network, a budget, a cascade."""
    short, _, eps = name.partition("@")
    network = measure.subject(short)
    x, y = network.first(options.samples)
    settings = {name: getattr(options, name) for name in ("norm", "seed", "batch_size")} | {"eps": eps or network.eps_text}
    verdicts: dict[str, list[Verdict]] = {precision: [] for precision in PRECISIONS}

    def run(precision: str, module: nn.Module) -> None:
        attack = CASCADES.get(cascade, cascade)
        verdicts[precision].append(run_cascade(module, x, y, attack, precision=precision, **settings))

    modules = {precision: network.module() for precision in PRECISIONS}
    works = {precision: Work(module, partial(run, precision, module)) for precision, module in modules.items()}
    times = repeated(works, options.repetitions, options.threads)
    for precision, repetitions in verdicts.items():
        if any((verdict.robust != repetitions[0].robust).any() for verdict in repetitions):
            raise SystemExit(f"{name} {cascade} in {precision}: the repetitions do not agree")
    full, low = (verdicts[precision][-1] for precision in PRECISIONS)
    alone = [np.flatnonzero(a.robust & ~b.robust).tolist() for a, b in ((full, low), (low, full))]
    passes = (f"{full.forwards} / {low.forwards}", f"{full.backwards} / {low.backwards}")
    seconds = spread([timing.cpu for timing in times["float32"]], 1), spread(ratios(times["bf16"], times["float32"], "cpu"))
    counts = int(full.robust.sum()), int(low.robust.sum())
    table.add(network.name, settings["eps"], cascade, *counts, *alone, *passes, *seconds)


def main() -> None:
    """Every network with every cascade."""
    lists = {"subjects": ["resnet20@8/255", "resnet20", "resnet4b", "cnn4_pgd"], "cascades": ["apgd", "fast"]}
    options = measure.arguments(__doc__, **lists, samples=200, batch_size=128, repetitions=3, seed=0, norm="linf")
    columns = "network,eps,cascade,robust in float32,robust in bf16,robust in float32 alone,robust in bf16 alone"
    columns += ",forwards float32 / bf16,backwards float32 / bf16,float32 cpu s,bf16 / float32 cpu"
    table = Table("Gradients in bf16", columns, "Below 1: bf16 is faster.")
    for name in options.subjects:
        for cascade in options.cascades:
            compare(table, name, cascade, options)


if __name__ == "__main__":
    main()
