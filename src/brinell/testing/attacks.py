"""The rules that every attack keeps. `check_attack` names the first one that is broken."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import KINDS, Access, Attack, Batch, Distance, Kind, Streams, Threat
from brinell.core.errors import BrinellError, ContractError
from brinell.core.ledger import Ledger
from brinell.core.norms import per_sample
from brinell.testing.form import check_form, check_settings, generator_states
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
    _form(plugin)
    attack: Attack = plugin(**settings)
    check_settings(attack)
    kinds = [kind for kind in KINDS if kind in attack.domains]
    distances = [name for name in plugins.names("distance") if name in attack.distances]
    for kind in kinds:
        for name in distances:
            distance = plugins.build("distance", name, {})
            for rule in _RULES:
                rule(attack, kind, distance)


def _broken(attack: Attack, rule: str) -> ContractError:
    return ContractError(f"{type(attack).__name__} {rule}")


def _form(plugin: Any) -> None:
    check_form(plugin, ("access", "distances", "domains", "family", "targeted", "cost"), SYNONYMS)
    name = plugin.__name__
    if plugin.family not in ("minimal", "budgeted"):
        raise ContractError(f"{name}: family is {plugin.family!r}, not minimal or budgeted")
    if not plugin.distances & set(plugins.names("distance")):
        raise ContractError(f"{name}: no distance of that name in {', '.join(sorted(plugin.distances))}")


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
    )
    try:
        attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, rows).fold("check"))
    except BrinellError as error:
        raise _broken(attack, f"broke its contract on {kind} inputs in {distance.name}: {error}") from error
    except Exception as error:
        raise _broken(attack, f"failed on {kind} inputs in {distance.name} with {type(error).__name__}: {error}") from error
    return _Run(ledger, dataclasses.replace(problem, batch=batch, margin=problem.margin[rows]))


def _leaves_all_as_it_was(attack: Attack, kind: Kind, distance: Distance) -> None:
    problem = linear_problem(kind, distance.name)
    weights = problem.model.digest()
    before = generator_states()
    run = _attack(attack, kind, distance, factor=1.05)
    if generator_states() != before:
        raise _broken(attack, "drew from a global random generator; draw from the streams it is given")
    if not torch.equal(run.problem.batch.x, problem.batch.x) or not torch.equal(run.problem.batch.y, problem.batch.y):
        raise _broken(attack, "wrote into the clean inputs or labels")
    if run.problem.model.digest() != weights:
        raise _broken(attack, "changed the weights of the model")
    if run.problem.model.seen != int(run.ledger.forwards.sum()):
        raise _broken(attack, "called the model around the ledger")


def _costs_what_it_says(attack: Attack, kind: Kind, distance: Distance) -> None:
    run = _attack(attack, kind, distance, factor=0.5)
    forwards, backwards = attack.cost(run.problem.model.classes)
    if int(run.ledger.forwards.max()) > forwards or int(run.ledger.backwards.max()) > backwards:
        spent = f"{int(run.ledger.forwards.max())} forwards and {int(run.ledger.backwards.max())} backwards"
        raise _broken(attack, f"spent {spent} on a sample and says that it costs {forwards} and {backwards} at most")


def _finds_nothing_below_the_margin(attack: Attack, kind: Kind, distance: Distance) -> None:
    for factor in (0.0, 0.95):
        run = _attack(attack, kind, distance, factor=factor)
        if run.ledger.fooled.any():
            raise _broken(attack, f"was credited with a success at {factor} times the exact margin in {distance.name}")


def _finds_what_it_must(attack: Attack, kind: Kind, distance: Distance) -> None:
    run = _attack(attack, kind, distance, factor=1.05)
    if attack.access == Access.GRADIENTS:
        missed = int((~run.ledger.fooled).sum())
        if missed:
            raise _broken(
                attack, f"missed {missed} of {len(run.problem.batch)} at 1.05 times the exact margin in {distance.name}"
            )
        return
    # Wide enough that noise fools about every fourth sample at each try; a tenth of the tries leaves no room for bad luck.
    wide = _attack(attack, kind, distance, factor=20.0)
    noise = _noise(wide.problem, distance, factor=20.0, tries=max(1, int(wide.ledger.forwards.max()) // 10))
    if int(wide.ledger.fooled.sum()) < noise:
        raise _broken(attack, f"is weaker than random noise with a tenth of its queries in {distance.name}")


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
    one, two = (_attack(attack, kind, distance, factor=1.02) for _ in range(2))
    same = torch.equal(one.ledger.closest, two.ledger.closest) and torch.equal(one.ledger.forwards, two.ledger.forwards)
    if not same:
        raise _broken(attack, "gave two results for the same samples and streams")


def _does_not_mind_its_company(attack: Attack, kind: Kind, distance: Distance) -> None:
    whole = _attack(attack, kind, distance, factor=1.02)
    n = len(whole.problem.batch)
    order = torch.arange(n).flip(0)
    for rows in (order, order[: n // 2], order[n // 2 :]):
        part = _attack(attack, kind, distance, factor=1.02, rows=rows, size=3)
        if not torch.equal(part.ledger.fooled, whole.ledger.fooled[rows]):
            raise _broken(attack, "gave other verdicts when the batch was split or reordered")
        if not torch.allclose(part.ledger.closest, whole.ledger.closest[rows], atol=1e-4):
            raise _broken(attack, "found other inputs when the batch was split or reordered")


def _keeps_the_query_budget(attack: Attack, kind: Kind, distance: Distance) -> None:
    for queries in (1, 3):
        run = _attack(attack, kind, distance, factor=0.5, queries=queries)
        if int(run.ledger.forwards.max()) > queries:
            raise _broken(attack, "spent more queries than its budget")


_RULES: tuple[Callable[[Attack, Kind, Distance], None], ...] = (
    _leaves_all_as_it_was,
    _costs_what_it_says,
    _finds_nothing_below_the_margin,
    _finds_what_it_must,
    _repeats_itself,
    _does_not_mind_its_company,
    _keeps_the_query_budget,
)
