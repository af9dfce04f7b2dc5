"""RLAB beside other searches that place the same values on the same patches.

    python benchmarks/rlab --study NAME [--samples 40] [--seeds 0 1 2]

    probes   compared with the published loop, which probes every patch, one image at a time
    equal    the same patches and distorted values placed by RLAB, greedily, at random, as Square
             and as Sparse-RS do

All attack test images that the network gets right, with the greedy policy by default. A query is
one image shown to the network, the first check and clean-up included; an image that was not fooled
counts as infinitely many for a median, and as the whole budget for a mean. L2 is the median over
the fooled images, after clean-up unless said otherwise. With several seeds, a figure is the mean
over them with the smallest and the largest in brackets. Seconds are the processor's.
"""

import math
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace

import measure
from black_box import Bench

from rlab.common import Outcome, cells, fight, hunt
from rlab.controls import Sparse, restricted
from rlab.search import published

MOST = 1000
"""Queries of most studies."""


def equal(options: Namespace) -> None:
    """Who places the same values best."""
    for name, eps, settings in (
        ("resnet20", 1.0, "distortions=gaussian-noise&patch=2"),
        ("lenet5_clean", 3.0, "distortions=signed-patch(factor=4)&patch=2"),
    ):
        bench, spec = Bench.of(name, options.samples), f"rlab?{settings}&clean_up=false"
        title = (
            f"The same values placed by others: {bench.subject.name}, {settings}, L2 "
            f"{eps:g}, {options.samples} images"
        )
        out = measure.Table(
            title, "way, @100, @250, @500, @1000, median queries, L2 of the fooled, s per image"
        )
        for policy in ("prior", "greedy"):
            ends = [
                fight(bench, f"{spec}&policy={policy}", eps, MOST, seed) for seed in options.seeds
            ]
            out.add(policy, *cells(ends, "@100 @250 @500 rate median l2 seconds", len(bench.y)))
        for way, control in (("Square's search", {}), ("Sparse-RS's search", {"control": Sparse})):
            ends = [restricted(bench, spec, eps, MOST, seed, **control) for seed in options.seeds]
            out.add(way, *cells(ends, "@100 @250 @500 rate median l2 seconds", len(bench.y)))


def probes(options: Namespace) -> None:
    """Full probes before each step, one image at a time, and none, many images at a time."""
    bench, eps, most, seed = Bench.of("resnet20", options.samples), 2.0, 12_000, options.seeds[0]
    spec, variants = "rlab?patch=2&draws=1&severities=5&clean_up=false", "rlab?patch=2"
    hunts: dict[str, Callable[[], Outcome]] = {
        "published loop, probe by probe": lambda: hunt(bench, published(), spec, eps, most, seed),
        "published loop, a step's probes together": lambda: hunt(
            bench, replace(published(), batch_size=128), spec, eps, most, seed
        ),
        "RLAB, the same one variant": lambda: fight(bench, spec, eps, most, seed),
        "RLAB, its own variants": lambda: fight(
            bench, f"{variants}&clean_up=false", eps, most, seed
        ),
        "RLAB, its own variants, L2 1.3 at most": lambda: fight(
            bench, f"{variants}&clean_up=false", 1.3, most, seed
        ),
        "RLAB, its own variants, then clean-up": lambda: fight(bench, variants, eps, most, seed),
    }
    ends = {name: run() for name, run in hunts.items()}
    base = next(iter(ends.values()))
    share = base.rate()
    title = (
        f"Beside the published loop: {bench.subject.name}, patches of 2 x 2, L2 "
        f"{eps:g}, {options.samples} images"
    )
    note = (
        f"{most} queries at most. Ratios are those of the published loop over the "
        "row: higher is better."
    )
    columns = (
        f"attack, success, queries per image, queries until {share:.2f} are fooled, "
        "ratio, s per success, ratio, L2"
    )
    out = measure.Table(title, columns, note)
    for name, outcome in ends.items():
        until, seconds = (
            _until(outcome, share),
            outcome.seconds / max(1, int(outcome.queries.isfinite().sum())),
        )
        out.add(
            name,
            f"{outcome.rate():.2f}",
            f"{float(outcome.total_queries.float().mean()):.0f}",
            f"{until:.0f}",
            f"{_until(base, share) / until:.1f}",
            f"{seconds:.2f}",
            f"{base.seconds / max(1, int(base.queries.isfinite().sum())) / seconds:.1f}",
            f"{outcome.of_fooled(outcome.l2):.2f}",
        )


def _until(outcome: Outcome, share: float) -> float:
    """Queries for each image until such a share of them is fooled."""
    return float(
        outcome.queries.sort().values[max(0, math.ceil(share * len(outcome.queries) - 1e-6) - 1)]
    )


STUDIES: dict[str, tuple[Callable[[Namespace], None], int, list[int]]] = {
    "probes": (probes, 20, [0]),
    "equal": (equal, 40, [0, 1, 2]),
}
"""Studies with the numbers of samples and the seeds that fit into ten minutes on one core."""


def main() -> None:
    """One study."""
    options = measure.arguments(__doc__, study=tuple(STUDIES), samples=0, seeds=[-1])
    run, samples, seeds = STUDIES[options.study]
    options.samples, options.seeds = (
        options.samples or samples,
        seeds if options.seeds == [-1] else options.seeds,
    )
    run(options)
