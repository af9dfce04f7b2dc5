"""Surrogates: queries with them over queries without, and the trust in them before the first query.

    python benchmarks/rlab --study surrogates [--cases NAME ...] [--samples 60] [--skip 3000] [--seeds 0]
    python benchmarks/rlab --study surrogates --fit [--samples 30]

CIFAR-10, L2 1, 1,000 queries, patches of 2 x 2, noise, the shipped prior; test images from --skip on that the network under test
gets right. A query is one image shown to the network under test, the check of the clean image included; a sample counts with its
mean over the seeds, one that was not fooled with the whole budget. Ratios of means are paired by sample, with the 95 % bootstrap
interval over samples. Passes are those of the surrogates, forward and backward together, a sample.

--fit shows the likelihood of the answers of episodes on the first test images, of each answer given all before it, over
`Trust.mean` and `Trust.spike`. ResNet-44, which the table judges, takes no part in it. The likelihood prefers less trust than the
shipped one, which needs fewer queries (design/0011-rlab.md).
"""

import argparse
import itertools
from dataclasses import replace
from typing import NamedTuple

import measure
import numpy as np
import torch
from black_box import Bench
from torch import Tensor

from brinell.core.intervals import ratio, ratio_text
from brinell.models._torch_model import TorchModel
from brinell.rlab.env import PatchEnv
from brinell.rlab.posterior import TRUST, Posterior, Trust
from rlab.common import Outcome, fight

SPEC, EPS, BUDGET = "rlab?patch=2&clean_up=false&policy=prior", 1.0, 1000
ANSWERS = 40
"""Answers of an episode that count for the likelihood."""


class Case(NamedTuple):
    """A network under test and its surrogates."""

    network: str
    surrogates: tuple[str, ...]


KIND, OTHER = ("resnet20", "resnet32"), ("resnet2b", "cnn_wide_kw")
"""Networks of one kind with ResNet-44, and of another."""
CASES = {
    "kind": Case("resnet44", KIND),
    "other-2b": Case("resnet44", ("resnet2b",)),
    "other-kw": Case("resnet44", ("cnn_wide_kw",)),
    "both": Case("resnet44", (*KIND, *OTHER)),
    "unseen": Case("resnet32", ("resnet20", "resnet44")),
    "plain": Case("captum_cnn", ("resnet20", "resnet32", "resnet44")),
}
FITTED = (
    Case("resnet20", ("resnet32",)),
    Case("resnet32", ("resnet20",)),
    Case("resnet2b", ("cnn_wide_kw",)),
    Case("cnn_wide_kw", ("resnet2b", "resnet4b")),
    Case("resnet20", OTHER),
    Case("resnet32", ("resnet20", *OTHER)),
    Case("captum_cnn", ("resnet20", "resnet2b")),
)


def open_bench(case: Case, first: int, samples: int) -> Bench:
    """The network with images from `first` on that it gets right, and its surrogates."""
    subject = measure.subject(case.network)
    module = subject.module()
    with np.load(measure.SHARED / subject.data) as arrays:
        part = slice(first, first + 2 * samples + 100)
        images, labels = arrays["images"][part], arrays["labels"][part]
    x = torch.from_numpy(images).reshape(len(images), *images.shape[1:3], -1).movedim(-1, 1).float().div(255).contiguous()
    y = torch.from_numpy(labels.astype(np.int64))
    with torch.no_grad():
        right = module(x).argmax(1) == y
    surrogates = tuple(TorchModel(measure.subject(name).module(), subject.domain, name=name) for name in case.surrogates)
    return Bench(subject, module, x[right][:samples], y[right][:samples], surrogates)


def judge(options: argparse.Namespace) -> None:
    """Queries with surrogates and without."""
    words = ["python benchmarks/rlab --study surrogates --cases", *options.cases, "--samples", str(options.samples)]
    words += ["--seeds", *map(str, options.seeds)]
    columns = ["network", "surrogates", "@10", "@100", "mean queries", "median", "passes", "over none"]
    table = measure.Table(f"Surrogates, {options.samples} images from {options.skip} on", " ".join(words), columns)
    alone: dict[str, list[Outcome]] = {}
    for case in (CASES[name] for name in options.cases):
        bench = open_bench(case, options.skip, options.samples)
        if case.network not in alone:
            without = replace(bench, surrogates=())
            alone[case.network] = [fight(without, SPEC, EPS, BUDGET, seed) for seed in options.seeds]
            add(table, case.network, "none", alone[case.network], alone[case.network])
        outcomes = [fight(bench, SPEC, EPS, BUDGET, seed) for seed in options.seeds]
        add(table, case.network, ", ".join(case.surrogates), outcomes, alone[case.network])


def add(table: measure.Table, network: str, surrogates: str, outcomes: list[Outcome], alone: list[Outcome]) -> None:
    """A row of the table."""
    queries, without = (torch.stack([one.queries.clamp_max(BUDGET) for one in part]) for part in (outcomes, alone))
    rates = [f"{float((queries <= budget).float().mean()):.2f}" for budget in (10, 100)]
    passes = torch.stack([one.surrogate_passes for one in outcomes]).float().mean()
    over = "" if outcomes is alone else ratio_text(*ratio(queries.mean(0).numpy(), without.mean(0).numpy()))
    mean, median = f"{float(queries.mean()):.0f}", f"{float(queries.median()):.0f}"
    table.add(network, surrogates, *rates, mean, median, f"{float(passes):.0f}", over)


class Answer(NamedTuple):
    """One answer to m rows of an episode's posterior, as `Posterior.update` gets it."""

    rows: Tensor
    slopes: Tensor
    change: Tensor
    effect: Tensor


def record(case: Case, samples: int, seed: int) -> tuple[Posterior, Tensor, list[Answer]]:
    """The posterior of a case at its beginning: its covariance and energies; and the first answers of each episode."""
    answers: list[Answer] = []
    environments: list[PatchEnv] = []

    class Recorder(Posterior):
        """Keeps what it is told."""

        def update(self, rows: Tensor, change: Tensor, effect: Tensor) -> None:
            """Keep an answer, and learn it."""
            answers.append(Answer(rows.clone(), self.slopes[rows].clone(), change.clone(), effect.clone()))
            super().update(rows, change, effect)

    class Watched(PatchEnv):
        """Keeps itself."""

        def __init__(self, *arguments: object, **settings: object) -> None:
            super().__init__(*arguments, **settings)  # type: ignore[arg-type]
            self.posterior.__class__ = Recorder
            environments.append(self)

    import brinell.rlab.episodes as episodes

    original, episodes.PatchEnv = episodes.PatchEnv, Watched  # type: ignore[misc]
    try:
        fight(open_bench(case, 0, samples), f"{SPEC}&steps={ANSWERS}", EPS, ANSWERS + 1, seed)
    finally:
        episodes.PatchEnv = original  # type: ignore[misc]
    posterior = environments[0].posterior
    return posterior, posterior.energy.clone(), answers


def likelihood(posterior: Posterior, energy: Tensor, answers: list[Answer], trust: Trust) -> float:
    """The mean log-likelihood of an answer, given those before it; the first two of each episode fix the unit."""
    n, surrogates, channels, places = posterior.slopes.shape
    fresh = Posterior(n, channels, places, covariance=posterior.covariance, surrogates=surrogates, trust=trust)
    fresh.forget(torch.arange(n), energy)
    total, count, age = 0.0, 0, torch.zeros(n)
    for rows, slopes, change, effect in answers:
        fresh.follow(rows, slopes)
        mean, variance = fresh.predict(rows, change)
        value = -0.5 * (variance.clamp_min(1e-12).log() + (effect - mean).square() / variance.clamp_min(1e-12))
        counts = age[rows] >= 2
        total, count = total + float(value[counts].sum()), count + int(counts.sum())
        age[rows] += 1
        fresh.update(rows, change, effect)
    return total / count


def fit(options: argparse.Namespace) -> None:
    """The likelihood of each pair of mean and spike, its mean over the cases."""
    recorded = [record(case, options.samples, options.seeds[0]) for case in FITTED]
    means, spikes = options.means, options.spikes
    columns = ["mean", "spike", *(f"{case.network} by {'+'.join(case.surrogates)}" for case in FITTED), "all"]
    words = f"python benchmarks/rlab --study surrogates --fit --samples {options.samples}"
    table = measure.Table("Log-likelihood of an answer over that without surrogates", words, columns)
    nothing = [likelihood(*parts, Trust(mean=1e-6, spike=1e-6)) for parts in recorded]
    for mean, spike in itertools.product(means, spikes):
        trust = replace(TRUST, mean=mean, spike=spike)
        values = [likelihood(*parts, trust) - base for parts, base in zip(recorded, nothing, strict=True)]
        table.add(mean, spike, *(f"{value:.4f}" for value in values), f"{sum(values) / len(values):.4f}")


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--skip", type=int, default=3000, help="test images to leave out first: those on which trust was chosen")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--fit", action="store_true", help="the likelihood of trust in place of its queries")
    parser.add_argument("--means", nargs="+", type=float, default=[0.05, 0.1, 0.15, 0.2, 0.3])
    parser.add_argument("--spikes", nargs="+", type=float, default=[0.05, 0.1, 0.2])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    (fit if options.fit else judge)(options)
