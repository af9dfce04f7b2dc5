"""Gradients in bf16 compared with gradients in float32: time and verdict of the same cascade on the same samples.

    python benchmarks/precision.py [--subjects resnet20 resnet4b cnn4_pgd] [--cascades apgd fast] [--samples 200]

A subject may name a budget: `resnet20@8/255`. Both runs go in turns, model call by model call, and each is timed by the processor
time of its thread, records and report included. `apgd` is APGD-CE, then APGD-DLR. `robust in ... alone` lists
the samples that the other of the two broke; verdicts are those of the last repetition, and all repetitions agree. The first
repetition makes the processor's kernels; medians are of warm ones. The first table is what could be gained: passes forward and
back to the input with nothing around them (`--cascades none` stops there).
"""

from argparse import Namespace
from functools import partial

import measure
import numpy as np
import torch
from autoattack import Verdict, first_images, run_cascade
from measure import Table, Work, ratios, repeated, spread, subject
from torch import Tensor, nn

CASCADES = {"apgd": ("apgd-ce", "apgd-dlr")}
PRECISIONS = ("float32", "bf16")


def passes(module: nn.Module, x: Tensor, y: Tensor, precision: str, count: int) -> None:
    """As many input gradients of the cross-entropy."""
    for _ in range(count):
        leaf = x.detach().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits = module(leaf)
        torch.autograd.grad(nn.functional.cross_entropy(logits.float(), y, reduction="sum"), leaf)


def bare(table: Table, name: str, options: Namespace) -> None:
    """The passes of one network alone, in full batches and in small ones."""
    network = subject(name)
    x, y = first_images(network, options.batch_size)
    for size in (options.batch_size, options.batch_size // 8):
        works = {}
        for precision in PRECISIONS:
            module = network.module()
            count = max(4, options.batch_size // size * 4)
            works[precision] = Work(module, partial(passes, module, x[:size], y[:size], precision, count))
        times = repeated(works, options.repetitions, options.threads)
        milliseconds = spread([1e3 * timing.cpu / count for timing in times["float32"]], 1)
        table.add(network.name, size, milliseconds, spread(ratios(times["bf16"], times["float32"], "cpu")))


def compare(table: Table, name: str, cascade: str, options: Namespace) -> None:
    """One line: a network, a budget, a cascade."""
    short, _, eps = name.partition("@")
    network = subject(short)
    x, y = first_images(network, options.samples)
    verdicts_by_precision: dict[str, list[Verdict]] = {precision: [] for precision in PRECISIONS}

    def run(precision: str, module: nn.Module) -> None:
        attack = CASCADES.get(cascade, cascade)
        settings = {"precision": precision}
        verdicts_by_precision[precision].append(
            run_cascade(module, x, y, options.norm, eps or network.eps_text, attack, options.seed, options, **settings)
        )

    modules = {precision: network.module() for precision in PRECISIONS}
    works = {precision: Work(module, partial(run, precision, module)) for precision, module in modules.items()}
    times = repeated(works, options.repetitions, options.threads)
    for precision, verdicts in verdicts_by_precision.items():
        if any((verdict.robust != verdicts[0].robust).any() for verdict in verdicts):
            raise SystemExit(f"{name} {cascade} in {precision}: the repetitions do not agree")
    full, low = (verdicts_by_precision[precision][-1] for precision in PRECISIONS)
    table.add(
        network.name,
        eps or network.eps_text,
        cascade,
        int(full.robust.sum()),
        int(low.robust.sum()),
        np.flatnonzero(full.robust & ~low.robust).tolist(),
        np.flatnonzero(low.robust & ~full.robust).tolist(),
        f"{full.forwards} / {low.forwards}",
        f"{full.backwards} / {low.backwards}",
        spread([timing.cpu for timing in times["float32"]], 1),
        spread(ratios(times["bf16"], times["float32"], "cpu")),
    )


def main() -> None:
    """Every network with every cascade."""
    options = measure.arguments(
        __doc__ or "",
        subjects=["resnet20@8/255", "resnet20", "resnet4b", "cnn4_pgd"],
        cascades=["apgd", "fast"],
        samples=200,
        batch_size=128,
        repetitions=3,
        seed=0,
        norm="linf",
    )
    command = measure.command(options, "subjects", "cascades", "samples", "batch_size", "repetitions", "seed", "norm")
    table = Table("Passes in bf16", command, ("network", "batch", "float32 cpu ms", "bf16 / float32 cpu"))
    for name in dict.fromkeys(name.partition("@")[0] for name in options.subjects):
        bare(table, name, options)
    if options.cascades == ["none"]:
        return
    columns = "network,eps,cascade,robust in float32,robust in bf16,robust in float32 alone,robust in bf16 alone"
    columns += ",forwards float32 / bf16,backwards float32 / bf16,float32 cpu s,bf16 / float32 cpu"
    table = Table("Gradients in bf16", command, columns.split(","), "Below 1: bf16 is faster.")
    for name in options.subjects:
        for cascade in options.cascades:
            compare(table, name, cascade, options)


if __name__ == "__main__":
    main()
