"""Shared parts of the studies of benchmarks/rlab: attacks and searches on the same images, agents, and tables."""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import measure
import torch
from black_box import Bench, spread
from torch import Tensor

from brinell import plugins
from brinell.core import norms
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.rlab.train import DUELING_DQN
from brinell.studies.agent.request import TrainAgentRequest
from brinell.studies.agent.run import train_agent
from rlab.policy_gradient import LEARNERS
from rlab.search import TreeSearch, search


class Outcome(NamedTuple):
    """Result of an attack on all samples; (n,) each."""

    queries: Tensor
    """Until the first success, infinite for none."""
    total_queries: Tensor
    """All queries, clean-up included."""
    l2: Tensor
    """Of the closest success, infinite for none."""
    pixels: Tensor
    """Share of the places that the closest success changed; of use for the fooled only."""
    seconds: float
    """Processor time, that of the network included."""
    surrogate_passes: Tensor
    """Of surrogates, forward and backward together."""

    def rate(self, budget: float = math.inf) -> float:
        """Success within so many queries."""
        return float((self.queries.isfinite() & (self.queries <= budget)).float().mean())

    def median(self) -> float:
        """Of the queries, failures as infinity."""
        return statistics.median(self.queries.tolist())

    def of_fooled(self, column: Tensor) -> float:
        """Median over the fooled samples, NaN for none."""
        fooled = self.queries.isfinite()
        return statistics.median(column[fooled].tolist()) if fooled.any() else math.nan


def outcome(ledger: Ledger, x: Tensor, seconds: float) -> Outcome:
    """Result of an attack, read from its ledger."""
    queries = torch.where(ledger.fooled, 1.0 + ledger.best.first_success, torch.inf)
    pixels = (ledger.best.closest != x).flatten(2).any(1).float().mean(1)
    l2 = torch.where(ledger.fooled, norms.l2(ledger.best.closest - x), torch.inf)
    return Outcome(queries, 1 + ledger.costs.forwards, l2, pixels, seconds, ledger.costs.surrogate_passes)


def bench_of(name: str, samples: int) -> Bench:
    """A network with the first test images that it gets right."""
    subject = measure.subject(name)
    module = subject.module()
    return Bench(subject, module, *subject.samples(samples, module))


def fight(bench: Bench, spec: str, eps: float, queries: int, seed: int) -> Outcome:
    """One RLAB in L2, greedy and up to the first success unless the settings say otherwise."""
    spec = spec if "policy=" in spec else f"{spec}&policy=greedy"
    spec = spec if "refine=" in spec else f"{spec}&refine=0"
    began = time.process_time()
    ledger, _ = bench.fight(spec, "l2", eps, queries - 1, seed)
    return outcome(ledger, bench.x, time.process_time() - began)


def hunt(bench: Bench, settings: TreeSearch, spec: str, eps: float, queries: int, seed: int) -> Outcome:
    """A search with the patches and variants of the RLAB that `spec` names."""
    attack = plugins.build("attack", "rlab", plugins.parse(spec).options)
    domain = bench.subject.domain
    ledger, batch, threat = bench.open("l2", eps, queries - 1)
    began = time.process_time()
    search(
        ledger.oracle(),
        batch,
        threat,
        Streams.of(seed, batch.ids),
        grid=attack.grid(domain),
        variants=attack.variants(domain),
        settings=settings,
    )
    return outcome(ledger, bench.x, time.process_time() - began)


def over_seeds(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float], digits: int) -> str:
    """One figure, spread over the seeds."""
    return spread([figure(outcome) for outcome in outcomes], digits)


def table(options: argparse.Namespace, title: str, columns: str, note: str = "") -> measure.Table:
    """A table that says how it is made again."""
    words = ["python benchmarks/rlab --study", options.study, "--samples", str(options.samples), "--seeds"]
    words += [str(seed) for seed in options.seeds]
    if options.study in ("agents", "distortions", "map", "spend"):
        words += ["--minutes", f"{options.minutes:g}", "--inputs", str(options.inputs)]
    return measure.Table(title, " ".join(words), columns.split(", "), note)


def trained(
    options: argparse.Namespace,
    name: str,
    algorithm: str,
    reward: str = "margin",
    attack: str = "rlab?patch=2",
    network: str = "resnet20",
    eps: float = 1.0,
) -> str:
    """The file of an agent that learned on a network's training images, trained where it is missing."""
    path = Path(options.agents) / f"{name}.safetensors"
    if not path.exists():
        subject = measure.subject(network)
        images = "cifar10/cifar10_train_a.npz" if subject.data.startswith("cifar10") else "mnist/mnist_train.npz"
        request = TrainAgentRequest(
            data=f"npz:{measure.SHARED / images}",
            model=subject.model_spec,
            attack=attack,
            eps=f"{eps:g}",
            samples=options.inputs,
            algorithm="none" if algorithm == "none" else "dqn",
            minutes=options.minutes,
            reward=reward,  # type: ignore[arg-type]
            device="cpu",
        )
        train_agent(request, path, lambda report: None, learner=LEARNERS.get(algorithm, DUELING_DQN))
    return str(path)
