"""Benefit of learning: random search, greedy, the shipped prior and trained agents, on seen and unseen networks.

    python benchmarks/rlab --study worth [--data seen unseen plain ...] [--samples 100] [--seeds 0 1 2] [--policies FILE ...]

    seen     CIFAR-10 ResNet-20, on training images of which the shipped prior was fitted; L2 1, patches of 2 x 2, noise
    unseen   CIFAR-10 ResNet-44, the same otherwise
    plain    CIFAR-10, the network of PyTorch's tutorial (captum_cnn), the same otherwise
    digits   MNIST lenet5_clean, L2 3, patches of 2 x 2, signed-patch(factor=4)
    beats    heartbeats of MIT-BIH (benchmarks/ecg.py), L2 1 mV, the six distortions for signals
    clips    ASL gestures (benchmarks/video.py), L2 25, blocks of 4 x 16 x 16, noise

On test samples behind the first --skip that the network gets right (of beats and clips, which are few, the first). A query is
one input shown to the network, the check of the clean input included, without clean-up; a sample counts with its mean over the
seeds, one that was not fooled with the whole budget. Ratios of means are paired by sample, with the 95 % bootstrap interval over
samples.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import ecg
import measure
import torch
import video
from black_box import Bench, spread

from brinell.core.intervals import ratio, ratio_text
from brinell.rlab.agent import find_agent
from rlab.common import Outcome, fight

POLICIES = ("random-search", "greedy", "prior")


class Case(NamedTuple):
    """One network with its samples, and what may be placed on them."""

    open: Callable[[argparse.Namespace], Bench]
    eps: float
    budget: int
    spec: str


def images(name: str) -> Callable[[argparse.Namespace], Bench]:
    """Test images that a network gets right, without the first ones."""

    def open_bench(options: argparse.Namespace) -> Bench:
        subject = measure.subject(name)
        module = subject.module()
        x, y = subject.samples(options.skip + options.samples, module)
        return Bench(subject, module, x[options.skip :], y[options.skip :])

    return open_bench


CASES = {
    "seen": Case(images("resnet20"), 1.0, 1000, "rlab?patch=2"),
    "unseen": Case(images("resnet44"), 1.0, 1000, "rlab?patch=2"),
    "plain": Case(images("captum_cnn"), 1.0, 1000, "rlab?patch=2"),
    "digits": Case(images("lenet5_clean"), 3.0, 1000, "rlab?patch=2&distortions=signed-patch(factor=4)"),
    "beats": Case(ecg.bench_of, ecg.CAP, 1000, f"rlab?distortions={ecg.ALL_SIGNALS}"),
    "clips": Case(lambda options: video.bench_of("gestures", options.samples), 25.0, 200, "rlab?patch=4x16x16&draws=4&slots=32"),
}


def trained(policy: str) -> str:
    """Queries that a policy was trained with."""
    return f"{sum((find_agent(policy).about or {}).get('training_queries', {}).values()):,}"


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--skip", type=int, default=300, help="images to leave out first: those on which settings were chosen")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--controls", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--policies", nargs="+", default=[], help="files of trained agents")
    parser.add_argument("--weights", default="runs/ecg/rhythmnet.safetensors", help="where the network of beats is kept")
    parser.set_defaults(beats=None)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    words = ["python benchmarks/rlab --study worth --data", *options.data, "--samples", str(options.samples), "--seeds"]
    words += [
        *map(str, options.seeds),
        "--controls",
        *options.controls,
        *(["--policies", *options.policies] if options.policies else []),
    ]
    columns = ["data", "samples", "policy", "training queries", "@100", "@250", "mean queries", "over greedy", "over prior"]
    out = measure.Table("What learning is worth", " ".join(words), columns)
    for data in options.data:
        case = CASES[data]
        bench = case.open(options)
        outcomes: dict[str, list[Outcome]] = {}
        for policy in (*options.controls, *options.policies):
            spec = f"{case.spec}&clean_up=false&policy={policy}"
            outcomes[policy] = [fight(bench, spec, case.eps, case.budget, seed) for seed in options.seeds]
        means = {
            name: torch.stack([outcome.queries.clamp_max(case.budget) for outcome in ends]).mean(0)
            for name, ends in outcomes.items()
        }
        for name, ends in outcomes.items():
            cells = []
            for control in ("greedy", "prior"):
                if name == control or control not in means:
                    cells.append("")
                    continue
                cells.append(ratio_text(*ratio(means[name].numpy(), means[control].numpy())))
            rates = [spread([outcome.rate(budget) for outcome in ends], 2) for budget in (100, 250)]
            mean = f"{float(means[name].mean()):.0f}"
            out.add(data, len(bench.y), Path(name).stem, trained(name), *rates, mean, *cells)
