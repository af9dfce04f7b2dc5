"""Ablations of RLAB: each study removes or replaces one part.

    python benchmarks/rlab --study NAME [--samples 40] [--seeds 0 1 2]

    patch    patch size and overlap
    dual     the dual action compared with add-only and with tree search, and its cost in time and memory
    agents   random, greedy, the prior, and agents trained by DQN, PPO and A2C with each reward
    distortions  policies trained on one distortion, used with another
    map      the sensitivity map beside every single-patch distortion there is
    probes   compared with the published loop, which probes every patch, one image at a time
    fill     how full the batches are that the network is shown
    free     each distortion alone without a limit on the distance
    equal    the same patches and distorted values placed by RLAB, greedily, at random, as Square and as Sparse-RS do
    spend    the same, all queries spent: after a success each goes on within a smaller distance
    reach    what a distortion on patches can reach at all, searched with gradients, beside RLAB without

All attack test images that the network gets right, with the greedy policy by default. A query is one image
shown to the network, the first check and clean-up included; an image that was not fooled counts as infinitely many for a
median, and as the whole budget for a mean. L2 is the median over the fooled images, after clean-up unless said otherwise.
With several seeds, a figure is the mean over them with the smallest and the largest in brackets. Seconds are the
processor's. Agents are kept in --agents, and trained there (for --minutes each, on training images) where they are missing.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import measure
import memory
import numpy as np
import torch
from black_box import Bench
from torch import Tensor

from brinell.core import intervals
from brinell.core.patches import PatchGrid
from brinell.rlab.agent import find_agent
from rlab.common import Outcome, bench_of, fight, hunt, over_seeds, table, trained
from rlab.controls import Restricted, Sparse, restricted
from rlab.reach import reach
from rlab.search import TreeSearch
from rlab.truth import fill, free, map_, probes

MOST = 1000
"""Queries of most studies."""
OVER = (
    "`over`: the mean queries over those of {} on the same images, with the 95 % bootstrap interval over images; each "
    f"image counts with its mean over the seeds, one that was not fooled with {MOST}."
)


def over(ends: Sequence[Outcome], base: Sequence[Outcome], most: int = MOST) -> str:
    """Mean queries over those of another attack on the same images, with the interval."""
    above, below = (torch.stack([outcome.queries.clamp_max(most) for outcome in outcomes]).mean(0) for outcomes in (ends, base))
    return ratio(above, below, np.mean)


# --- patches ---------------------------------------------------------------------------------------------------------


def patch(options: argparse.Namespace) -> None:
    """Sides and overlaps."""
    for name, eps in (("resnet20", 1.0), ("lenet5_clean", 4.0)):
        if name not in (options.networks or [name]):
            continue
        bench = bench_of(name, options.samples)
        title = f"Patch size and overlap: {bench.subject.name}, L2 {eps:g}, {options.samples} images"
        columns = "side, stride, patches, @250, @1000, median queries, over 2 x 2, L2, pixels changed, s per image"
        out = table(options, title, columns, OVER.format("patches of 2 x 2 that do not overlap"))
        base = [fight(bench, "rlab?patch=2&stride=2", eps, MOST, seed) for seed in options.seeds]
        for side in (1, 2, 4, 8):
            for stride in sorted({side, (side + 1) // 2}, reverse=True):
                ends = [fight(bench, f"rlab?patch={side}&stride={stride}", eps, MOST, seed) for seed in options.seeds]
                out.add(
                    side,
                    stride,
                    len(PatchGrid.over(bench.subject.domain, side, stride)),
                    over_seeds(ends, lambda outcome: outcome.rate(250), 2),
                    over_seeds(ends, Outcome.rate, 2),
                    over_seeds(ends, Outcome.median, 0),
                    over(ends, base),
                    over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.l2), 2),
                    over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.pixels), 2),
                    over_seeds(ends, lambda outcome: outcome.seconds / options.samples, 2),
                )


# --- the dual action -------------------------------------------------------------------------------------------------

COARSE = "rlab?patch=8&draws=2&severities=4&clean_up=false"
"""Sixteen patches and two variants: 32 moves at most, small enough for a tree."""


def dual(options: argparse.Namespace) -> None:
    """Adding and removing in one step, adding alone, and looking ahead by probes."""
    bench = bench_of("resnet20", options.samples)
    parts = {"trees": _trees, "removals": _removals, "overhead": _overhead}
    for name in options.parts or parts:
        parts[name](options, bench)


def _trees(options: argparse.Namespace, bench: Bench) -> None:
    eps, most = 2.0, 10_000
    title = f"Dual action, add-only, tree search: {bench.subject.name}, 16 patches of 8 x 8, one severity, L2 {eps:g}"
    note = (
        f"No clean-up. {options.samples} images; mean queries over the images that all rows fooled, and their median L2. "
        + OVER.format("the dual action")
    )
    rows: dict[str, Callable[[int], Outcome]] = {
        "dual": lambda seed: fight(bench, COARSE, eps, most, seed),
        "add only": lambda seed: fight(bench, f"{COARSE}&removals=0", eps, most, seed),
        "tree, depth 1": lambda seed: hunt(bench, TreeSearch(depth=1), COARSE, eps, most, seed),
        "tree, depth 2": lambda seed: hunt(bench, TreeSearch(depth=2), COARSE, eps, most, seed),
    }
    ends = {name: [run(seed) for seed in options.seeds] for name, run in rows.items()}
    common = torch.stack([outcome.queries.isfinite() for outcomes in ends.values() for outcome in outcomes]).all(0)
    columns = (
        f"search, @250, @1000, @{most}, median queries, over dual, mean queries of {int(common.sum())}, L2 of them, s per image"
    )
    out = table(options, title, columns, note)
    for name, outcomes in ends.items():
        out.add(
            name,
            over_seeds(outcomes, lambda outcome: outcome.rate(250), 2),
            over_seeds(outcomes, lambda outcome: outcome.rate(1000), 2),
            over_seeds(outcomes, Outcome.rate, 2),
            over_seeds(outcomes, Outcome.median, 0),
            over(outcomes, ends["dual"]),
            over_seeds(outcomes, lambda outcome: float(outcome.queries[common].mean()), 0),
            over_seeds(outcomes, lambda outcome: float(outcome.l2[common].median()), 2),
            over_seeds(outcomes, lambda outcome: outcome.seconds / options.samples, 2),
        )


def _removals(options: argparse.Namespace, bench: Bench) -> None:
    title = f"Removing: {bench.subject.name}, patches of 2 x 2, L2 1, 1000 queries"
    columns = "removals, clean-up, @250, @1000, median queries, over adding alone, L2, pixels changed"
    out = table(options, title, columns, OVER.format("adding alone"))
    base: list[Outcome] = []
    for removals in (0.0, 0.5, 1.0):
        for clean in ("false", "true"):
            spec = f"rlab?patch=2&removals={removals}&clean_up={clean}"
            ends = [fight(bench, spec, 1.0, MOST, seed) for seed in options.seeds]
            base = base or ends
            out.add(
                removals,
                clean,
                over_seeds(ends, lambda outcome: outcome.rate(250), 2),
                over_seeds(ends, Outcome.rate, 2),
                over_seeds(ends, Outcome.median, 0),
                over(ends, base),
                over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.l2), 2),
                over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.pixels), 2),
            )


def _overhead(options: argparse.Namespace, bench: Bench) -> None:
    """Steps that all fail, so that every row makes as many of them."""
    title = f"What removing costs: {bench.subject.name}, patches of 2 x 2, 64 slots, L2 0.1, 200 queries"
    out = table(options, title, "removals, queries, s outside the network per 1000 queries, peak MiB")
    works: dict[float, list[float]] = {0.0: [], 0.5: [], 1.0: []}
    counts: dict[float, int] = {}
    for _ in range(3):
        for removals, seconds in works.items():
            began = time.process_time()
            ledger, over = bench.fight(_loaded(removals), "l2", 0.1, 199, 0)
            cpu_seconds = time.process_time() - began
            counts[removals] = int(ledger.costs.forwards.sum())
            seconds.append((cpu_seconds - cpu_seconds / over) / counts[removals] * 1000)
    for removals, seconds in works.items():
        line = [
            sys.executable,
            str(Path(__file__).parent),
            "--study",
            "load",
            "--removals",
            str(removals),
            "--samples",
            str(options.samples),
        ]
        peak = memory.run(line, options.threads).peak
        out.add(removals, counts[removals], measure.spread(seconds, 2), f"{peak:.0f}")


def _loaded(removals: float) -> str:
    return f"rlab?patch=2&removals={removals}&clean_up=false&slots=64&policy=greedy&refine=0"


def load(options: argparse.Namespace) -> None:
    """Workload of the memory measurement of `dual`, in a separate process."""
    bench_of("resnet20", options.samples).fight(_loaded(options.removals), "l2", 0.1, 199, 0)


# --- agents ----------------------------------------------------------------------------------------------------------


AGENTS = {
    "greedy": "",
    "random-search": "",
    "prior, greedy": "none-margin",
    "DQN, margin": "dqn-margin",
    "A2C, margin": "a2c-margin",
    "PPO, margin": "ppo-margin",
    "PPO, dilution": "ppo-dilution",
    "PPO, projected": "ppo-projected",
}
"""By what they are called, the files of those that learn."""


def agents(options: argparse.Namespace) -> None:
    """Who places: what is learned, by which algorithm and for which reward."""
    bench = bench_of("resnet20", options.samples)
    budget = 1000
    title = f"Agents: {bench.subject.name}, patches of 2 x 2, L2 1, {options.samples} images that no agent has seen"
    note = (
        "Ratios are to greedy on the same images, in brackets the 95 % bootstrap interval over images; below 1 is better. "
        "Each image counts with its mean over the seeds, one that was not fooled with the whole budget."
    )
    columns = (
        "agent, training queries, trained s, @250, @1000, median queries, mean queries, ratio of means, ratio of medians, L2"
    )
    out = table(options, title, columns, note)
    base = torch.zeros(0)
    for name, file in AGENTS.items():
        algorithm, _, reward = file.partition("-")
        policy = trained(options, file, algorithm, reward) if file else name
        metadata = find_agent(policy).about or {}
        ends = [fight(bench, f"rlab?patch=2&policy={policy}", 1.0, budget, seed) for seed in options.seeds]
        capped = torch.stack([outcome.queries.clamp_max(budget) for outcome in ends]).mean(0)
        base = capped if name == "greedy" else base
        out.add(
            name,
            f"{sum(metadata.get('training_queries', {}).values()):,}",
            round(metadata["curve"][-1]["seconds"]) if metadata.get("curve") else 0,
            over_seeds(ends, lambda outcome: outcome.rate(250), 2),
            over_seeds(ends, Outcome.rate, 2),
            over_seeds(ends, Outcome.median, 0),
            f"{float(capped.mean()):.0f}",
            ratio(capped, base, np.mean),
            ratio(capped, base, np.median),
            over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.l2), 2),
        )


def ratio(above: Tensor, below: Tensor, centre: Callable[..., np.ndarray]) -> str:
    """Of the means or medians over the same images, with its interval."""
    return intervals.ratio_text(*intervals.ratio(above.numpy(), below.numpy(), centre))


# --- distortions ---------------------------------------------------------------------------------------------------------

CROSSED = ("gaussian-noise", "gaussian-blur", "dead-pixel", "brightness")


def distortions(options: argparse.Namespace) -> None:
    """Comparison of policies trained on one distortion and used with another."""
    bench = bench_of("resnet20", options.samples)
    eps, budget = 1.0, 400
    title = f"Policies across distortions: {bench.subject.name}, patches of 2 x 2, L2 {eps:g}, {options.samples} images"
    note = (
        f"Mean queries to the first success, {budget} for none, and over those of the policy that was trained on the column's "
        "own distortion, with the 95 % bootstrap interval over images; success. PPO, each trained on one distortion."
    )
    out = table(options, title, ", ".join(["policy trained on", *(f"used with {name}" for name in CROSSED)]), note)
    policies = {"nothing (greedy)": "greedy"}
    for name in CROSSED:
        policies[name] = trained(options, f"distortion-{name}", "ppo", attack=f"rlab?patch=2&distortions={name}")
    ends = {
        (name, setting): [
            fight(bench, f"rlab?patch=2&distortions={setting}&policy={policy}", eps, budget, seed) for seed in options.seeds
        ]
        for name, policy in policies.items()
        for setting in CROSSED
    }
    for name in policies:
        cells = []
        for setting in CROSSED:
            outcomes = ends[name, setting]
            mean = statistics.fmean(float(outcome.queries.clamp_max(budget).mean()) for outcome in outcomes)
            rate = statistics.fmean(outcome.rate() for outcome in outcomes)
            cells.append(f"{mean:.0f}, {over(outcomes, ends[setting, setting], budget)}; {rate:.2f}")
        out.add(name, *cells)


# --- equal distortion, equal budget --------------------------------------------------------------------------------------


VALUES = (
    ("resnet20", 1.0, "distortions=gaussian-noise&patch=2"),
    ("lenet5_clean", 3.0, "distortions=signed-patch(factor=4)&patch=2"),
)
"""Network, L2, and which values stand on which patches."""


def equal(options: argparse.Namespace) -> None:
    """Who places the same values best."""
    for name, eps, settings in VALUES:
        bench, spec = bench_of(name, options.samples), f"rlab?{settings}&clean_up=false"
        ways: dict[str, Callable[[int], Outcome]] = {
            policy: lambda seed, policy=policy: fight(bench, f"{spec}&policy={policy}", eps, 1000, seed)  # noqa: B023
            for policy in ("prior", "greedy", "random-search")
        }
        ways["Square's search"] = lambda seed: restricted(bench, spec, eps, 1000, seed)  # noqa: B023
        ways["Sparse-RS's search"] = lambda seed: restricted(bench, spec, eps, 1000, seed, Sparse)  # noqa: B023
        title = f"The same values placed by others: {bench.subject.name}, {settings}, L2 {eps:g}, {options.samples} images"
        out = table(options, title, "way, @100, @250, @500, @1000, median queries, L2 of the fooled, s per image")
        for way, run in ways.items():
            ends = [run(seed) for seed in options.seeds]
            out.add(
                way,
                *(over_seeds(ends, lambda outcome, budget=limit: outcome.rate(budget), 2) for limit in (100, 250, 500, 1000)),
                over_seeds(ends, Outcome.median, 0),
                over_seeds(ends, lambda outcome: outcome.of_fooled(outcome.l2), 2),
                over_seeds(ends, lambda outcome: outcome.seconds / len(bench.y), 2),  # noqa: B023
            )


def spend(options: argparse.Namespace) -> None:
    """Who comes closest with the same values and queries."""
    budgets = (250, 500, 1000)
    for name, eps, settings in VALUES:
        bench, spec = bench_of(name, options.samples), f"rlab?{settings}&clean_up=false"
        policies = {policy: policy for policy in ("prior", "greedy", "random-search")}
        if name == "lenet5_clean":
            agent = trained(options, "mnist-ppo", "ppo", attack=f"rlab?{settings}", network=name, eps=eps)
            policies = {"agent of its own": agent} | policies
        ways: dict[str, Callable[[int, int], Outcome]] = {
            way: lambda refine, seed, policy=policy: fight(bench, f"{spec}&refine={refine}&policy={policy}", eps, refine, seed)  # noqa: B023
            for way, policy in policies.items()
        }
        for way, control in (("Square's search", Restricted), ("Sparse-RS's search", Sparse)):
            ways[way] = lambda refine, seed, control=control: restricted(bench, spec, eps, refine, seed, control, closer=True)  # noqa: B023
        title = f"All queries spent: {bench.subject.name}, {settings}, L2 {eps:g}, {options.samples} images"
        columns = ", ".join(f"success with {budget}, median L2" for budget in budgets)
        out = table(options, title, f"way, {columns}", "Medians are over all images, those that were not fooled at infinity.")
        for way, run in ways.items():
            cells = []
            for budget in budgets:
                ends = [run(budget, seed) for seed in options.seeds]
                cells += [
                    over_seeds(ends, Outcome.rate, 2),
                    over_seeds(ends, lambda outcome: statistics.median(outcome.l2.tolist()), 2),
                ]
            out.add(way, *cells)


# ---------------------------------------------------------------------------------------------------------------------


class Study(NamedTuple):
    """A study with the numbers of samples and seeds that fit into ten minutes on one core."""

    run: Callable[[argparse.Namespace], None]
    samples: int
    seeds: tuple[int, ...]


STUDIES = {
    "patch": Study(patch, 40, (0,)),
    "dual": Study(dual, 24, (0,)),
    "agents": Study(agents, 60, (0, 1, 2)),
    "distortions": Study(distortions, 32, (0,)),
    "map": Study(map_, 40, (0,)),
    "probes": Study(probes, 120, (0,)),
    "fill": Study(fill, 120, (0,)),
    "free": Study(free, 50, (0,)),
    "equal": Study(equal, 40, (0, 1, 2)),
    "spend": Study(spend, 40, (0, 1, 2)),
    "reach": Study(reach, 30, (0,)),
    "load": Study(load, 40, (0,)),
}


def main() -> None:
    """One study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, required=True)
    parser.add_argument("--samples", type=int, help="test images")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--networks", nargs="+", choices=("resnet20", "lenet5_clean"), help="of `patch`; both by default")
    parser.add_argument("--parts", nargs="+", choices=("trees", "removals", "overhead"), help="of `dual`; all by default")
    parser.add_argument("--agents", default="runs/agents", help="folder of trained policies")
    parser.add_argument("--minutes", type=float, default=2.0, help="that an agent learns for, if it must be trained")
    parser.add_argument("--inputs", type=int, default=1500, help="training images of an agent")
    parser.add_argument("--published", type=int, default=20, help="images for the published loop")
    parser.add_argument("--removals", type=float, default=0.5, help="of `load`, the process whose memory `dual` measures")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    study = STUDIES[options.study]
    options.samples = options.samples or study.samples
    options.seeds = options.seeds or list(study.seeds)
    study.run(options)
