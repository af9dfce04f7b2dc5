"""How close attacks come with so many queries: the median L2 of the closest adversarial example over the queries that were spent.

    python benchmarks/rlab --study closer [--samples 60] [--skip 0] [--seeds 0]
                                                 [--ways prior greedy square sparse-rs hop-skip-jump]

prior and greedy are RLAB with that policy, which spends all queries on coming closer (`refine`). square and sparse-rs place the
same patches and values by those searches (benchmarks/rlab/controls.py) and go on within 0.92 of each success. hop-skip-jump sees
labels alone and may change every value. CIFAR-10 ResNet-20, test images that it gets right, L2 at most 1 (hop-skip-jump: any). A
query is one image shown to the network, the check of the clean image included; a sample without a success counts as infinity.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import measure
import torch
from black_box import Bench, spread
from torch import Tensor

from brinell import plugins
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from rlab.controls import Restricted, Sparse

SPEC = "rlab?patch=2&clean_up=false"
EPS = 1.0
BUDGETS = (100, 250, 500, 1000)


@contextmanager
def distances_by_budget(bench: Bench, ledger: Ledger, budgets: Sequence[int] = BUDGETS) -> Iterator[dict[int, Tensor]]:
    """By budget, (n,): the smallest distance known when a sample had spent so many queries; filled as the network is asked."""
    distances = {budget: torch.full((len(bench.y),), torch.inf) for budget in budgets}

    def note(*_: object) -> None:
        for budget, distance in distances.items():
            distance[:] = torch.where(1 + ledger.costs.forwards <= budget, ledger.best.distance, distance)

    handle = bench.module.register_forward_pre_hook(note)
    try:
        yield distances
        note()
    finally:
        handle.remove()


def curve(bench: Bench, way: str, seed: int) -> dict[int, Tensor]:
    """The distances of one way."""
    most = max(BUDGETS)
    labels = way == "hop-skip-jump"
    ledger, batch, threat = bench.open("l2", 1e3 if labels else EPS, most - 1, minimal=labels)
    rng, oracle = Streams.of(seed, batch.ids).fold(way), ledger.oracle()
    run: Callable[[], object]
    if way in CONTROLS:
        run = CONTROLS[way](
            oracle, batch, threat, rng, plugins.build("attack", "rlab", plugins.parse(SPEC).options), most - 1, closer=True
        )
    else:
        spec = "hop-skip-jump" if labels else f"{SPEC}&refine={most}&policy={way}"
        attack = plugins.build("attack", *plugins.parse(spec)[::2])
        run = lambda: attack(oracle, batch, threat, rng)  # noqa: E731
    with distances_by_budget(bench, ledger) as distances:
        run()
    return distances


CONTROLS = {"square": Restricted, "sparse-rs": Sparse}


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="images to leave out first")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--ways", nargs="+", default=["prior", "greedy", *CONTROLS, "hop-skip-jump"])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    subject = measure.subject("resnet20")
    module = subject.module()
    x, y = (part[options.skip :] for part in subject.samples(options.skip + options.samples, module))
    bench = Bench(subject, module, x, y)
    words = [
        "python benchmarks/rlab --study closer --samples",
        str(options.samples),
        *(["--skip", str(options.skip)] * bool(options.skip)),
    ]
    words += ["--seeds", *map(str, options.seeds), "--ways", *options.ways]
    title = f"Median L2 after so many queries: {subject.name}, {len(y)} images"
    out = measure.Table(title, " ".join(words), ["way", *(f"L2 @{budget}" for budget in BUDGETS)])
    for way in options.ways:
        curves = [curve(bench, way, seed) for seed in options.seeds]
        out.add(way, *(spread([statistics.median(by_budget[budget].tolist()) for by_budget in curves], 2) for budget in BUDGETS))
