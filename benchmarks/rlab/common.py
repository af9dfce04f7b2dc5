"""Shared parts of the studies of benchmarks/rlab: attacks and searches on the same images, agents,
and tables.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import measure
import torch
from black_box import Bench
from measure import mean_spread
from torch import Tensor

from brinell.core import norms
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
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
    return Outcome(
        queries, 1 + ledger.costs.forwards, l2, pixels, seconds, ledger.costs.surrogate_passes
    )


def fight(bench: Bench, spec: str, eps: float, queries: int, seed: int) -> Outcome:
    """One attack in L2; RLAB is greedy and ends with its first success unless the settings say
    otherwise.
    """
    if spec.startswith("rlab"):
        spec += "" if "policy=" in spec else "&policy=greedy"
        spec += "" if "refine=" in spec else "&refine=0"
    (ledger, _), seconds = measure.timed(lambda: bench.fight(spec, "l2", eps, queries - 1, seed))
    return outcome(ledger, bench.x, seconds)


def hunt(
    bench: Bench, settings: TreeSearch, spec: str, eps: float, queries: int, seed: int
) -> Outcome:
    """A search with the patches and variants of the RLAB that `spec` names."""
    attack, domain, ledger = (
        measure.build_attack(spec),
        bench.subject.domain,
        bench.open("l2", eps, queries - 1),
    )
    places = {
        "grid": attack.grid(domain),
        "variants": attack.variants(domain),
        "settings": settings,
    }
    began = time.process_time()
    search(
        ledger.oracle(), ledger.batch, ledger.threat, Streams.of(seed, ledger.batch.ids), **places
    )
    return outcome(ledger, bench.x, time.process_time() - began)


def capped(outcomes: Sequence[Outcome], budget: int) -> Tensor:
    """(n,): mean over the seeds of the queries of each sample, of which a failure costs the whole
    budget.
    """
    return torch.stack([outcome.queries.clamp_max(budget) for outcome in outcomes]).mean(0)


def over(outcomes: Sequence[Outcome], base: Sequence[Outcome], budget: int) -> str:
    """Mean queries over those of another attack on the same samples, with the interval; nothing
    beside itself.
    """
    return "" if outcomes is base else measure.ratio(capped(outcomes, budget), capped(base, budget))


def over_seeds(outcomes: Sequence[Outcome], figure: Callable[[Outcome], float], digits: int) -> str:
    """One figure, spread over the seeds."""
    return mean_spread([figure(outcome) for outcome in outcomes], digits)


def cells(outcomes: Sequence[Outcome], figures: str, samples: int = 1) -> list[str]:
    """Cells by the names of figures: `@N`, `rate`, `median`, `l2` and `pixels` (of the fooled),
    `seconds` (a sample).
    """
    makers: dict[str, tuple[Callable[[Outcome], float], int]] = {
        "rate": (Outcome.rate, 2),
        "median": (Outcome.median, 0),
        "l2": (lambda outcome: outcome.of_fooled(outcome.l2), 2),
        "pixels": (lambda outcome: outcome.of_fooled(outcome.pixels), 2),
        "seconds": (lambda outcome: outcome.seconds / samples, 2),
    }
    return [
        over_seeds(outcomes, lambda outcome, name=name: outcome.rate(int(name[1:])), 2)
        if name.startswith("@")
        else over_seeds(outcomes, *makers[name])
        for name in figures.split()
    ]
