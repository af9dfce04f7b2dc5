"""The rules that every attack keeps. `check_attack` names the first one that is broken."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import KINDS, Access, Attack, Batch, Distance, Kind, Streams, Threat, reach_of
from brinell.core.errors import BrinellError, ContractError
from brinell.core.ledger import Ledger
from brinell.core.norms import per_sample
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


@dataclasses.dataclass(frozen=True)
class _Run:
    ledger: Ledger
    problem: LinearProblem


def check_attack(plugin: type[Any], **settings: Any) -> None:
    """Run every rule over an attack, on linear models in each of its domains and distances.

    Args:
        plugin: the attack's class.
        settings: settings to check it with, where its defaults would take too long.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    check_form(plugin, ("access", "distances", "domains", "family", "targeted", "cost"), SYNONYMS)
    name, distances = f"{plugin.__name__}:", plugins.names("distance")
    demand(name, plugin.family in ("minimal", "budgeted"), f"family is {plugin.family!r}, not minimal or budgeted")
    demand(name, bool(plugin.distances & set(distances)), f"no distance of that name in {', '.join(sorted(plugin.distances))}")
    attack: Attack = plugin(**settings)
    check_settings(attack)
    for kind in (kind for kind in KINDS if kind in attack.domains):
        for name in (name for name in distances if name in attack.distances):
            distance = plugins.build("distance", name, {})
            for rule in _RULES:
                rule(attack, kind, distance)


def _demand(attack: Attack, holds: bool, rule: str) -> None:
    """Raise unless a rule holds."""
    demand(type(attack).__name__, holds, rule)


def _attack(
    attack: Attack,
    kind: Kind,
    distance: Distance,
    *,
    factor: float,
    rows: Tensor | None = None,
    queries: int | None = None,
    size: int = 7,
) -> _Run:
    """Run on a fresh problem with eps at `factor` times each sample's exact margin."""
    problem = linear_problem(kind, distance.name)
    rows = torch.arange(len(problem.batch)) if rows is None else rows
    batch = Batch(ids=torch.arange(len(rows)), x=problem.batch.x[rows].clone(), y=problem.batch.y[rows])
    threat = Threat(distance=distance, eps=factor * problem.margin[rows], domain=problem.model.domain)
    ledger = Ledger(
        problem.model,
        batch,
        threat,
        access=attack.access,
        queries=queries,
        batch_size=size,
        minimal=attack.family == "minimal",
        reach=reach_of(attack, distance.name),
    )
    try:
        attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, rows).fold("check"))
    except Exception as error:
        place, name = f"on {kind} inputs in {distance.name}", type(attack).__name__
        failure = (
            f"broke its contract {place}" if isinstance(error, BrinellError) else f"failed {place} with {type(error).__name__}"
        )
        raise ContractError(f"{name} {failure}: {error}") from error
    return _Run(ledger, dataclasses.replace(problem, batch=batch, margin=problem.margin[rows]))


def _leaves_all_as_it_was(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that inputs, weights and generators are unchanged."""
    problem = linear_problem(kind, distance.name)
    weights = problem.model.digest()
    before = generator_states()
    run = _attack(attack, kind, distance, factor=1.05)
    batch, used = problem.batch, run.problem.batch
    _demand(attack, generator_states() == before, "drew from a global random generator; draw from the streams it is given")
    _demand(attack, torch.equal(used.x, batch.x) and torch.equal(used.y, batch.y), "wrote into the clean inputs or labels")
    _demand(attack, run.problem.model.digest() == weights, "changed the weights of the model")
    _demand(attack, run.problem.model.inputs_seen == int(run.ledger.costs.forwards.sum()), "called the model around the ledger")


def _costs_what_it_says(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that costs stay within the declared ones."""
    run = _attack(attack, kind, distance, factor=0.5)
    forwards, backwards = attack.cost(run.problem.model.classes)
    forwards_used, backwards_used = int(run.ledger.costs.forwards.max()), int(run.ledger.costs.backwards.max())
    rule = (
        f"spent {forwards_used} forwards and {backwards_used} backwards on a sample "
        f"and says that it costs {forwards} and {backwards} at most"
    )
    _demand(attack, forwards_used <= forwards and backwards_used <= backwards, rule)


def _finds_nothing_below_the_margin(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that no success is below the exact margin."""
    for factor in (0.0, 0.95):
        run = _attack(attack, kind, distance, factor=factor)
        rule = f"was credited with a success at {factor} times the exact margin in {distance.name}"
        _demand(attack, not run.ledger.fooled.any(), rule)


def _finds_what_it_must(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that the attack succeeds above the exact margin."""
    run = _attack(attack, kind, distance, factor=1.05)
    if attack.access == Access.GRADIENTS:
        missed, of = int((~run.ledger.fooled).sum()), len(run.problem.batch)
        _demand(attack, not missed, f"missed {missed} of {of} at 1.05 times the exact margin in {distance.name}")
        return
    # Wide enough that noise fools about every fourth sample at each try; a tenth of the tries leaves no room for bad luck.
    wide = _attack(attack, kind, distance, factor=20.0)
    noise = _noise(wide.problem, distance, factor=20.0, tries=max(1, int(wide.ledger.costs.forwards.max()) // 10))
    rule = f"is weaker than random noise with a tenth of its queries in {distance.name}"
    _demand(attack, int(wide.ledger.fooled.sum()) >= noise, rule)


def _noise(problem: LinearProblem, distance: Distance, *, factor: float, tries: int) -> int:
    """How many samples uniform noise fools within as many tries."""
    threat = Threat(distance=distance, eps=factor * problem.margin, domain=problem.model.domain)
    fooled = torch.zeros(len(problem.batch), dtype=torch.bool)
    streams = Streams.of(1, problem.batch.ids)
    for trial in range(min(tries, 50)):
        shape, stream = tuple(problem.batch.x.shape[1:]), streams.fold(trial)
        if distance.name == "l0":  # as many random values as the budget allows, each moved by up to half the range
            delta = stream.uniform(*shape).sub_(0.5)
        else:
            delta = distance.sample(stream, shape) * per_sample(threat.eps, problem.batch.x)
        x = threat.project(problem.batch.x + delta, problem.batch.x)
        fooled |= problem.model.predict(x).argmax(1) != problem.batch.y
    return int(fooled.sum())


def _repeats_itself(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that two runs are equal."""
    first, two = (_attack(attack, kind, distance, factor=1.02) for _ in range(2))
    equal = torch.equal(first.ledger.best.closest, two.ledger.best.closest) and torch.equal(
        first.ledger.costs.forwards, two.ledger.costs.forwards
    )
    _demand(attack, equal, "gave two results for the same samples and streams")


def _does_not_mind_its_company(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that results do not depend on the batch."""
    full = _attack(attack, kind, distance, factor=1.02)
    n = len(full.problem.batch)
    order = torch.arange(n).flip(0)
    for rows in (order, order[: n // 2], order[n // 2 :]):
        part = _attack(attack, kind, distance, factor=1.02, rows=rows, size=3)
        verdicts = torch.equal(part.ledger.fooled, full.ledger.fooled[rows])
        _demand(attack, verdicts, "gave other verdicts when the batch was split or reordered")
        inputs = torch.allclose(part.ledger.best.closest, full.ledger.best.closest[rows], atol=1e-4)
        _demand(attack, inputs, "found other inputs when the batch was split or reordered")


def _keeps_the_query_budget(attack: Attack, kind: Kind, distance: Distance) -> None:
    """Check that the query limit holds."""
    for queries in (1, 3):
        run = _attack(attack, kind, distance, factor=0.5, queries=queries)
        _demand(attack, int(run.ledger.costs.forwards.max()) <= queries, "spent more queries than its budget")


_RULES: tuple[Callable[[Attack, Kind, Distance], None], ...] = (
    _leaves_all_as_it_was,
    _costs_what_it_says,
    _finds_nothing_below_the_margin,
    _finds_what_it_must,
    _repeats_itself,
    _does_not_mind_its_company,
    _keeps_the_query_budget,
)
