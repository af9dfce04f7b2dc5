"""The rules that every attack keeps. `check_attack` names the first one that is broken."""

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.attack import attack
from brinell.core.contracts import (
    KINDS,
    Access,
    Attack,
    Batch,
    Distance,
    Kind,
    Streams,
    Threat,
)
from brinell.core.errors import BrinellError, ContractError
from brinell.core.ledger import Ledger
from brinell.core.norms import per_sample
from brinell.core.threat import COUNTS
from brinell.testing.form import check_form, check_settings, demand, generator_states
from brinell.testing.linear import LinearProblem, linear_problem

SYNONYMS = {
    "epsilon": "the threat",
    "eps": "the threat",
    "norm": "the threat",
    "seed": "the streams",
    "iterations": "steps",
    "iters": "steps",
    "n_iter": "steps",
    "num_steps": "steps",
    "max_iter": "steps",
    "alpha": "step_size",
    "lr": "step_size",
    "num_restarts": "restarts",
    "n_restarts": "restarts",
    "max_queries": "the ledger",
    "batch_size": "the ledger",
}
"""Names that a setting may not have, and the word or the place that the idea has here."""
FACTORS = (1.05, 0.0, 1.05, 0.95, 1.05, 1.02, 1.05, 0.95, 1.05, 1.02, 1.05, 1.02)
"""Budgets of a run in exact margins, each for two samples in turn, which belong to two classes:
no success is below the margin, none is missed at the largest, and between them a verdict may go
either way but depends on nothing else."""
SURE, WIDE = 1.05, 20.0
"""Factor at which gradients must find every sample, and one at which noise fools about every
fourth sample at each try."""


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run of an attack over a problem made for it."""

    ledger: Ledger
    problem: LinearProblem
    factor: Tensor


def check_attack(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over an attack, on linear models in each of its domains and distances.

    One run in each domain and distance serves the rules of budgets, costs and success. The rules
    that compare runs look at every domain and every distance, and not at every pair of them.

    Args:
        plugin: the attack's class.
        settings: settings to check it with, where its defaults would take too long.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("access", "distances", "domains", "family", "targeted", "cost"), SYNONYMS)
    name = f"{plugin.__name__}:"
    known = plugins.names("distance")
    is_family = plugin.family in ("minimal", "budgeted")
    demand(name, is_family, f"family is {plugin.family!r}, not minimal or budgeted")
    rule = f"no distance of that name in {', '.join(sorted(plugin.distances))}"
    demand(name, bool(plugin.distances & set(known)), rule)
    attack: Attack = plugin(**settings)
    check_settings(attack)

    kinds = [kind for kind in KINDS if kind in attack.domains]
    distances = [distance for distance in known if distance in attack.distances]
    # Both lists in turn: each kind and each distance occurs in a compared pair.
    rounds = range(max(len(kinds), len(distances)))
    compared = {(kinds[index % len(kinds)], distances[index % len(distances)]) for index in rounds}
    for kind, name in itertools.product(kinds, distances):
        distance = plugins.build("distance", name)
        _check(attack, kind, distance, compares=(kind, name) in compared)


def _check(attack: Attack, kind: Kind, distance: Distance, *, compares: bool) -> None:
    """Run the rules in one domain and distance."""
    before = generator_states()
    original = linear_problem(kind, distance.name)
    weights = original.model.digest()
    run = _attack(attack, kind, distance)
    batch = run.problem.batch
    model = run.problem.model
    ledger = run.ledger

    # What is not the attack's stays as it was.
    _demand(
        attack,
        generator_states() == before,
        "drew from a global random generator; draw from the streams it is given",
    )
    equal = torch.equal(batch.x, original.batch.x) and torch.equal(batch.y, original.batch.y)
    _demand(attack, equal, "wrote into the clean inputs or labels")
    _demand(attack, model.digest() == weights, "changed the weights of the model")
    # The model counts its inputs itself, so what the ledger did not see shows.
    count = int(ledger.costs.forwards.sum() + ledger.confirmations.sum())
    _demand(attack, model.inputs_seen == count, "called the model around the ledger")

    # It costs what it says.
    declared = attack.cost(model.classes)
    costs = (int(ledger.costs.forwards.max()), int(ledger.costs.backwards.max()))
    rule = (
        "spent {} forwards and {} backwards on a sample and says that it costs {} and {} at most"
    ).format(*costs, *declared)
    _demand(attack, costs[0] <= declared[0] and costs[1] <= declared[1], rule)
    # No success is credited below the exact margin, and those that are sure are found.
    for factor in (0.0, 0.95):
        rule = f"was credited with a success at {factor} times the exact margin in {distance.name}"
        _demand(attack, not ledger.fooled[run.factor == factor].any(), rule)
    _finds_what_it_must(attack, run, distance)
    if compares:
        _check_repetition(attack, kind, distance, run)


def _check_repetition(attack: Attack, kind: Kind, distance: Distance, run: _Run) -> None:
    """Run the rules that compare a run with others: repeated, split, with few queries."""
    ledger = run.ledger
    repetition = _attack(attack, kind, distance).ledger
    closest = torch.equal(ledger.best.closest, repetition.best.closest)
    forwards = torch.equal(ledger.costs.forwards, repetition.costs.forwards)
    rule = "gave two results for the same samples and streams"
    _demand(attack, closest and forwards, rule)

    for rows in torch.arange(len(run.problem.batch)).flip(0).chunk(2):
        # Another order, another split, and batches of another size.
        part = _attack(attack, kind, distance, rows=rows, size=5).ledger
        verdicts = torch.equal(part.fooled, ledger.fooled[rows])
        _demand(attack, verdicts, "gave other verdicts when the batch was split or reordered")
        inputs = torch.allclose(part.best.closest, ledger.best.closest[rows], atol=1e-4)
        _demand(attack, inputs, "found other inputs when the batch was split or reordered")

    for queries in (1, 3):
        limited = _attack(attack, kind, distance, queries=queries).ledger
        is_kept = int(limited.costs.forwards.max()) <= queries
        _demand(attack, is_kept, "spent more queries than its budget")


def _demand(attack: Attack, holds: bool, rule: str) -> None:
    """Demand a rule of an attack."""
    demand(type(attack).__name__, holds, rule)


def _attack(
    method: Attack,
    kind: Kind,
    distance: Distance,
    *,
    factor: float | None = None,
    rows: Tensor | None = None,
    queries: int | None = None,
    size: int = 64,
) -> _Run:
    """Run on a fresh problem with eps at `factor` times each exact margin, or at `FACTORS`."""
    problem = linear_problem(kind, distance.name)
    rows = torch.arange(len(problem.batch)) if rows is None else rows
    batch = Batch.of(problem.batch.x[rows].clone(), problem.batch.y[rows])
    factors = torch.tensor(FACTORS)[rows // 2 % len(FACTORS)]
    if factor is not None:
        factors = torch.full((len(rows),), factor)
    eps = factors * problem.margin[rows]
    threat = Threat(distance=distance, eps=eps, domain=problem.model.domain)

    rng = Streams.of(0, rows).fold("check")
    try:
        ledger, _ = attack(
            problem.model, batch, threat, method, rng, queries=queries, batch_size=size
        )
    except Exception as error:
        place = f"on {kind} inputs in {distance.name}"
        failure = f"failed {place} with {type(error).__name__}"
        if isinstance(error, BrinellError):
            failure = f"broke its contract {place}"
        raise ContractError(f"{type(method).__name__} {failure}: {error}") from error
    problem = dataclasses.replace(problem, batch=batch, margin=problem.margin[rows])
    return _Run(ledger, problem, factors)


def _finds_what_it_must(attack: Attack, run: _Run, distance: Distance) -> None:
    """Check that the attack succeeds above the exact margin."""
    if attack.access == Access.GRADIENTS:
        fooled = run.ledger.fooled[run.factor == SURE]
        rule = (
            f"missed {int((~fooled).sum())} of {len(fooled)} at {SURE} times the "
            f"exact margin in {distance.name}"
        )
        _demand(attack, bool(fooled.all()), rule)
        return

    # A tenth of the tries leaves no room for bad luck.
    wide = _attack(attack, run.problem.model.domain.kind, distance, factor=WIDE)
    tries = max(1, int(wide.ledger.costs.forwards.max()) // 10)
    noise = _noise(wide.problem, distance, factor=WIDE, tries=tries)
    rule = f"is weaker than random noise with a tenth of its queries in {distance.name}"
    _demand(attack, int(wide.ledger.fooled.sum()) >= noise, rule)


def _noise(problem: LinearProblem, distance: Distance, *, factor: float, tries: int) -> int:
    """How many samples uniform noise fools within as many tries."""
    threat = Threat(distance=distance, eps=factor * problem.margin, domain=problem.model.domain)
    fooled = torch.zeros(len(problem.batch), dtype=torch.bool)
    streams = Streams.of(1, problem.batch.ids)

    # Fifty tries bound the time; more noise would only be a harder rival.
    for trial in range(min(tries, 50)):
        shape = tuple(problem.batch.x.shape[1:])
        stream = streams.fold(trial)
        # A budget of a count cannot be sampled by scaling: it says how many values change.
        if distance.name in COUNTS:
            # As many random values as the budget allows, each moved by up to half the range.
            delta = stream.uniform(*shape).sub_(0.5)
        else:
            delta = distance.sample(stream, shape) * per_sample(threat.eps, problem.batch.x)

        x = threat.project(problem.batch.x + delta, problem.batch.x)
        fooled |= problem.model.predict(x).argmax(1) != problem.batch.y
    return int(fooled.sum())
