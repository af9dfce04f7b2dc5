"""Ablations of RLAB: each study removes or replaces one part.

    python benchmarks/rlab --study NAME [--samples 40] [--seeds 0 1 2]

    patch    patch size and overlap
    dual     the dual action compared with add-only and with tree search
    agents   random, greedy, the prior, and an agent
    probes   compared with the published loop, which probes every patch, one image at a time
    free     each distortion alone without a limit on the distance
    equal    the same patches and distorted values placed by RLAB, greedily, at random, as Square
             and as Sparse-RS do

All attack test images that the network gets right, with the greedy policy by default. A query is
one image shown to the network, the first check and clean-up included; an image that was not fooled
counts as infinitely many for a median, and as the whole budget for a mean. L2 is the median over
the fooled images, after clean-up unless said otherwise. With several seeds, a figure is the mean
over them with the smallest and the largest in brackets. Seconds are the processor's. Agents are
kept in --agents, and trained there (for --minutes each, on training images) where they are missing.
"""

import math
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace

import measure
import numpy as np
import torch
from black_box import Bench

from brinell import plugins
from brinell.core.contracts import Distortion
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions._published import Published
from brinell.rlab.agent import find_agent
from brinell.rlab.distort import SEVERITIES, distorted
from rlab.common import Outcome, capped, cells, fight, hunt, over, over_seeds, trained
from rlab.controls import Sparse, restricted
from rlab.search import TreeSearch, published

MOST = 1000
"""Queries of most studies."""
OVER = (
    "`over`: the mean queries over those of {} on the same images, with the 95 % "
    "bootstrap interval over images; each "
    f"image counts with its mean over the seeds, one that was not fooled with {MOST}."
)


def patch(options: Namespace) -> None:
    """Sides and overlaps."""
    for name, eps in (("resnet20", 1.0), ("lenet5_clean", 4.0)):
        if name not in (options.networks or [name]):
            continue
        bench = Bench.of(name, options.samples)
        title = (
            f"Patch size and overlap: {bench.subject.name}, L2 {eps:g}, {options.samples} images"
        )
        columns = (
            "side, stride, patches, @250, @1000, median queries, over 2 x 2, L2, "
            "pixels changed, s per image"
        )
        out = measure.Table(title, columns, OVER.format("patches of 2 x 2 that do not overlap"))
        base = [fight(bench, "rlab?patch=2&stride=2", eps, MOST, seed) for seed in options.seeds]
        for side in (1, 2, 4, 8):
            for stride in sorted({side, (side + 1) // 2}, reverse=True):
                ends = [
                    fight(bench, f"rlab?patch={side}&stride={stride}", eps, MOST, seed)
                    for seed in options.seeds
                ]
                head = side, stride, len(PatchGrid.over(bench.subject.domain, side, stride))
                figures = cells(ends, "l2 pixels seconds", options.samples)
                out.add(*head, *cells(ends, "@250 rate median"), over(ends, base, MOST), *figures)


COARSE = "rlab?patch=8&draws=2&severities=4&clean_up=false"
"""Sixteen patches and two variants: 32 moves at most, small enough for a tree."""


def dual(options: Namespace) -> None:
    """Adding and removing in one step, adding alone, and looking ahead by probes."""
    bench = Bench.of("resnet20", options.samples)
    eps, most = 2.0, 10_000
    title = (
        f"Dual action, add-only, tree search: {bench.subject.name}, 16 patches of 8 x "
        f"8, one severity, L2 {eps:g}"
    )
    note = (
        f"No clean-up. {options.samples} images; mean queries over the images "
        "that all rows fooled, and their median L2. " + OVER.format("the dual action")
    )
    rows: dict[str, Callable[[int], Outcome]] = {
        "dual": lambda seed: fight(bench, COARSE, eps, most, seed),
        "add only": lambda seed: fight(bench, f"{COARSE}&removals=0", eps, most, seed),
        "tree, depth 1": lambda seed: hunt(bench, TreeSearch(depth=1), COARSE, eps, most, seed),
        "tree, depth 2": lambda seed: hunt(bench, TreeSearch(depth=2), COARSE, eps, most, seed),
    }
    ends = {name: [run(seed) for seed in options.seeds] for name, run in rows.items()}
    common = torch.stack(
        [outcome.queries.isfinite() for outcomes in ends.values() for outcome in outcomes]
    ).all(0)
    of_common = f"mean queries of {int(common.sum())}, L2 of them, s per image"
    out = measure.Table(
        title, f"search, @250, @1000, @{most}, median queries, over dual, {of_common}", note
    )
    for name, outcomes in ends.items():
        mean = over_seeds(outcomes, lambda outcome: float(outcome.queries[common].mean()), 0)
        l2 = over_seeds(
            outcomes,
            lambda outcome: float(outcome.l2[common].median()) if common.any() else np.nan,
            2,
        )
        first = cells(outcomes, "@250 @1000 rate median")
        out.add(
            name,
            *first,
            over(outcomes, ends["dual"], MOST),
            mean,
            l2,
            *cells(outcomes, "seconds", options.samples),
        )
    title = f"Removing: {bench.subject.name}, patches of 2 x 2, L2 1, 1000 queries"
    columns = (
        "removals, clean-up, @250, @1000, median queries, over adding alone, L2, pixels changed"
    )
    out = measure.Table(title, columns, OVER.format("adding alone"))
    base: list[Outcome] = []
    for removals in (0.0, 0.5, 1.0):
        for clean in ("false", "true"):
            spec = f"rlab?patch=2&removals={removals}&clean_up={clean}"
            outcomes = [fight(bench, spec, 1.0, MOST, seed) for seed in options.seeds]
            base = base or outcomes
            figures = cells(outcomes, "l2 pixels")
            out.add(
                removals,
                clean,
                *cells(outcomes, "@250 rate median"),
                over(outcomes, base, MOST),
                *figures,
            )


def agents(options: Namespace) -> None:
    """Who places: what is learned, and by which algorithm."""
    bench = Bench.of("resnet20", options.samples)
    title = (
        f"Agents: {bench.subject.name}, patches of 2 x 2, L2 1, {options.samples} "
        "images that no agent has seen"
    )
    columns = (
        "agent, training queries, trained s, @250, @1000, median queries, mean "
        "queries, ratio of means, L2"
    )
    out = measure.Table(title, columns, "Ratios are to greedy. " + OVER.format("greedy"))
    base = torch.zeros(0)
    for name, algorithm in {"greedy": "", "prior, greedy": "prior", "DQN, margin": "dqn"}.items():
        policy = trained(options, algorithm) if algorithm else name
        description = find_agent(policy).about or {}
        ends = [
            fight(bench, f"rlab?patch=2&policy={policy}", 1.0, MOST, seed) for seed in options.seeds
        ]
        queries = capped(ends, MOST)
        base = queries if name == "greedy" else base
        ratio = measure.ratio(queries, base) if name != "greedy" else ""
        training = f"{sum(description.get('training_queries', {}).values()):,}"
        seconds = round(description["curve"][-1]["seconds"]) if description.get("curve") else 0
        figures = cells(ends, "@250 rate median")
        out.add(
            name,
            training,
            seconds,
            *figures,
            f"{float(queries.mean()):.0f}",
            ratio,
            *cells(ends, "l2"),
        )


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


def free(options: Namespace) -> None:
    """Each distortion alone, as far as it takes."""
    sizes = {"lenet5_clean": (options.samples, 300), "resnet20": (options.samples, 300)}
    sizes["squeezenet1_0"] = (max(1, options.samples // 5), 100)
    benches = [(Bench.of(name, samples), budget) for name, (samples, budget) in sizes.items()]
    title = "Each distortion alone, without a limit on the distance"
    note = (
        "Success (median queries; median L2 of the fooled after clean-up) / "
        "success of the distortion laid over the whole image "
        "at each of its five severities. 4 draws."
    )
    heads = [
        f"{bench.subject.name} ({len(bench.y)} images, {budget} queries)"
        for bench, budget in benches
    ]
    out = measure.Table(
        title, ", ".join(["distortion", *heads]).replace(" images, ", " images; "), note
    )
    for name in plugins.names("distortion"):
        distortion = plugins.build("distortion", name, {})
        if (
            isinstance(distortion, Published)
            or distortion.access > Access.SCORES
            or "image" not in distortion.domains
        ):
            continue
        cells = []
        for bench, budget in benches:
            outcome = fight(
                bench, f"rlab?distortions={name}&draws=4&slots=32", 1e3, budget, options.seeds[0]
            )
            details = f"{outcome.median():.0f}; {outcome.of_fooled(outcome.l2):.2g}"
            cells.append(
                f"{outcome.rate():.2f} ({details}) / {_full_image_success(bench, distortion):.2f}"
            )
        out.add(name, *cells)


@torch.no_grad()
def _full_image_success(bench: Bench, distortion: Distortion) -> float:
    """Success of a distortion that covers the whole image, at any severity, in its first draw."""
    fooled = torch.zeros(len(bench.y), dtype=torch.bool)
    for severity in SEVERITIES:
        rng = Streams.of(0, torch.arange(len(bench.y)))
        x = distorted(distortion, bench.x, severity, rng, domain=bench.subject.domain)
        fooled |= torch.cat([bench.module(part).argmax(1) for part in x.split(64)]) != bench.y
    return float(fooled.float().mean())


STUDIES: dict[str, tuple[Callable[[Namespace], None], int, list[int]]] = {
    "patch": (patch, 40, [0]),
    "dual": (dual, 24, [0]),
    "agents": (agents, 60, [0, 1, 2]),
    "probes": (probes, 20, [0]),
    "free": (free, 50, [0]),
    "equal": (equal, 40, [0, 1, 2]),
}
"""Studies with the numbers of samples and the seeds that fit into ten minutes on one core."""


def main() -> None:
    """One study."""
    settings = {"agents": "runs/agents", "minutes": 2.0, "inputs": 1500}
    options = measure.arguments(
        __doc__, study=tuple(STUDIES), samples=0, seeds=[-1], networks=[], **settings
    )
    run, samples, seeds = STUDIES[options.study]
    options.samples, options.seeds = (
        options.samples or samples,
        seeds if options.seeds == [-1] else options.seeds,
    )
    run(options)
