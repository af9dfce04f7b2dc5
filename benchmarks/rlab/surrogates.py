"""Surrogates: queries with them over queries without.

    python benchmarks/rlab --study surrogates [--cases NAME ...] [--samples 60] [--skip 3000]
    [--seeds 0]

CIFAR-10, L2 1, 1,000 queries, patches of 2 x 2, noise, the shipped prior; test images behind the
first --skip, on which the trust was chosen, that the network under test gets right. A query is one
image shown to the network under test, the check of the clean image included; a sample counts with
its mean over the seeds, one that was not fooled with the whole budget. Ratios of means are paired
by sample, with the 95 % bootstrap interval over samples. `learned content` follows the gradients
value by value beside the noise. Passes are those of the surrogates,
forward and backward together, a sample.
"""

from dataclasses import replace

import measure
import torch
from black_box import Bench

from rlab.common import Outcome, fight, over

SPEC, BUDGET = "rlab?patch=2&clean_up=false&policy=prior", 1000
KIND, FOREIGN = ("resnet20", "resnet32"), ("resnet2b", "cnn_wide_kw")
"""Networks of one kind with ResNet-44, and of another."""
CASES = {
    "kind": ("resnet44", KIND),
    "other-2b": ("resnet44", ("resnet2b",)),
    "other-kw": ("resnet44", ("cnn_wide_kw",)),
    "both": ("resnet44", (*KIND, *FOREIGN)),
    "unseen": ("resnet32", ("resnet20", "resnet44")),
    "plain": ("captum_cnn", ("resnet20", "resnet32", "resnet44")),
}
"""A network under test and its surrogates."""


def main() -> None:
    """One table."""
    options = measure.arguments(
        __doc__, study=("surrogates",), cases=list(CASES), samples=60, skip=3000, seeds=[0]
    )
    columns = "network, surrogates, @10, @100, mean queries, median, passes, over none"
    table = measure.Table(f"Surrogates, {options.samples} images", columns)
    baselines: dict[str, list[Outcome]] = {}
    for network, names in (CASES[case] for case in options.cases):
        bench = Bench.of(network, options.samples, surrogates=names, start=options.skip)
        runs = {} if network in baselines else {"none": (replace(bench, surrogates=()), SPEC)}
        runs[", ".join(names)] = bench, SPEC
        runs[f"{', '.join(names)}, learned content"] = bench, f"{SPEC}&learned=true"
        for surrogates, (part, spec) in runs.items():
            outcomes = [fight(part, spec, 1.0, BUDGET, seed) for seed in options.seeds]
            base = baselines.setdefault(network, outcomes)
            queries = torch.stack([outcome.queries.clamp_max(BUDGET) for outcome in outcomes])
            rates = [f"{float((queries <= budget).float().mean()):.2f}" for budget in (10, 100)]
            passes = float(
                torch.stack([outcome.surrogate_passes for outcome in outcomes]).float().mean()
            )
            middle = f"{float(queries.mean()):.0f}", f"{float(queries.median()):.0f}"
            table.add(
                network, surrogates, *rates, *middle, f"{passes:.0f}", over(outcomes, base, BUDGET)
            )
