"""Benefit of learning: greedy, the shipped prior and trained agents, on seen and unseen networks.

    python benchmarks/rlab --study worth [--data seen unseen plain ...] [--samples 100] [--seeds 0 1
    2] [--policies FILE ...]

    seen     CIFAR-10 ResNet-20, on training images of which the shipped prior was fitted; L2 1,
             patches of 2 x 2, noise
    unseen   CIFAR-10 ResNet-44, the same otherwise
    plain    CIFAR-10, the network of PyTorch's tutorial (captum_cnn), the same otherwise
    digits   MNIST lenet5_clean, L2 3, patches of 2 x 2, signed-patch(factor=4)
    beats    heartbeats of MIT-BIH (benchmarks/ecg.py), L2 1 mV, the six distortions for signals
    clips    ASL gestures (benchmarks/video.py), L2 25, blocks of 4 x 16 x 16, noise

On test samples behind the first --skip that the network gets right (of beats and clips, which are
few, the first). A query is one input shown to the network, the check of the clean input included,
without clean-up; a sample counts with its mean over the seeds, one that was not fooled with the
whole budget. Ratios of means are paired by sample, with the 95 % bootstrap interval over samples.
`--policies` names files of trained agents.
"""

from pathlib import Path
from typing import NamedTuple

import ecg
import measure
import video
from black_box import Bench

from brinell.rlab.agent import find_agent
from rlab.common import Outcome, capped, cells, fight, over


class Case(NamedTuple):
    """One network with its samples, and what may be placed on them."""

    network: str
    eps: float
    budget: int
    spec: str


CASES = {
    "seen": Case("resnet20", 1.0, 1000, "rlab?patch=2"),
    "unseen": Case("resnet44", 1.0, 1000, "rlab?patch=2"),
    "plain": Case("captum_cnn", 1.0, 1000, "rlab?patch=2"),
    "digits": Case("lenet5_clean", 3.0, 1000, "rlab?patch=2&distortions=signed-patch(factor=4)"),
    "beats": Case("", ecg.CAP, 1000, f"rlab?distortions={ecg.ALL_SIGNALS}"),
    "clips": Case("", 25.0, 200, "rlab?patch=4x16x16&draws=4&slots=32"),
}


def main() -> None:
    """One table."""
    lists = {
        "data": list(CASES),
        "seeds": [0, 1, 2],
        "controls": ["greedy", "prior"],
        "policies": [],
    }
    options = measure.arguments(__doc__, study=("worth",), **lists, samples=100, skip=300)
    columns = (
        "data, samples, policy, training queries, @100, @250, mean queries, over greedy, over prior"
    )
    table = measure.Table("What learning is worth", columns)
    special = {
        "beats": ecg.open_bench,
        "clips": lambda samples: video.open_bench("gestures", samples),
    }
    for data in options.data:
        case = CASES[data]
        bench = (
            special[data](options.samples)
            if data in special
            else Bench.of(case.network, options.samples, options.skip)
        )
        outcomes: dict[str, list[Outcome]] = {}
        for policy in (*options.controls, *options.policies):
            spec = f"{case.spec}&clean_up=false&policy={policy}"
            outcomes[policy] = [
                fight(bench, spec, case.eps, case.budget, seed) for seed in options.seeds
            ]
        for policy, ends in outcomes.items():
            queries = (
                f"{sum((find_agent(policy).about or {}).get('training_queries', {}).values()):,}"
            )
            ratios = [
                over(ends, outcomes.get(control, ends), case.budget)
                for control in ("greedy", "prior")
            ]
            mean = f"{float(capped(ends, case.budget).mean()):.0f}"
            table.add(
                data,
                len(bench.y),
                Path(policy).stem,
                queries,
                *cells(ends, "@100 @250"),
                mean,
                *ratios,
            )
