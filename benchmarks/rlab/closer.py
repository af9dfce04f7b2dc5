"""How close attacks come with so many queries: the median L2 of the closest adversarial example
over the queries that were spent.

    python benchmarks/rlab --study closer [--samples 60] [--skip 0] [--seeds 0]
                                          [--ways prior greedy square sparse-rs hop-skip-jump]

prior and greedy are RLAB with that policy, which spends all queries on coming closer (`refine`).
square and sparse-rs place the same patches and values by those searches
(benchmarks/rlab/controls.py) and go on within 0.92 of each success. hop-skip-jump sees labels alone
and may change every value. CIFAR-10 ResNet-20, test images that it gets right, without the first
--skip; L2 at most 1 (hop-skip-jump: any). A query is one image shown to the network, the check of
the clean image included; a sample without a success counts as infinity.
"""

import statistics
from collections.abc import Callable, Sequence

import measure
import torch
from black_box import Bench
from torch import Tensor

from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from rlab.controls import CONTROLS

SPEC = "rlab?patch=2&clean_up=false"
BUDGETS = (100, 250, 500, 1000)


def spend(
    bench: Bench,
    spec: str,
    eps: float,
    budgets: Sequence[int],
    seed: int,
    on_query: Callable[[Ledger], None] = lambda _: None,
) -> tuple[Ledger, dict[int, Tensor]]:
    """The ledger after an attack, or `NAME of SPEC` for a control, and by budget, (n,): the
    smallest distance known then.
    """
    control, _, values = spec.partition(" of ")
    attack = measure.build_attack(values or spec)
    ledger = bench.open("l2", eps, max(budgets) - 1, minimal=attack.family == "minimal")
    distances = {budget: torch.full((len(bench.y),), torch.inf) for budget in budgets}

    def note(*_: object) -> None:
        for budget, distance in distances.items():
            distance[:] = torch.where(
                1 + ledger.costs.forwards <= budget, ledger.best.distance, distance
            )
        on_query(ledger)

    rng = Streams.of(seed, ledger.batch.ids).fold(spec)
    handle = bench.module.register_forward_pre_hook(note)
    if values:
        CONTROLS[control](ledger, rng, attack, max(budgets) - 1, closer=True)()
    else:
        measure.run_attack(attack, ledger, rng)
    handle.remove()
    note()
    return ledger, distances


def main() -> None:
    """One table."""
    ways = ["prior", "greedy", *CONTROLS, "hop-skip-jump"]
    options = measure.arguments(
        __doc__, study=("closer",), samples=60, skip=0, seeds=[0], ways=ways
    )
    bench = Bench.of("resnet20", options.samples, options.skip)
    title = f"Median L2 after so many queries: {bench.subject.name}, {len(bench.y)} images"
    out = measure.Table(title, ["way", *(f"L2 @{budget}" for budget in BUDGETS)])
    for way in options.ways:
        spec = (
            f"{way} of {SPEC}" if way in CONTROLS else f"{SPEC}&refine={max(BUDGETS)}&policy={way}"
        )
        spec, eps = (way, 1e3) if way == "hop-skip-jump" else (spec, 1.0)
        curves = [spend(bench, spec, eps, BUDGETS, seed)[1] for seed in options.seeds]
        medians = (
            [statistics.median(distances[budget].tolist()) for distances in curves]
            for budget in BUDGETS
        )
        out.add(way, *(measure.mean_spread(values, 2) for values in medians))
