"""Pictures under attack: at each budget in rising order, each attack from the strongest input so far, for each aim by itself.

An input within a budget is within every larger one. So the strongest input of a smaller budget is where the attacks of the next
one begin, and it counts where they find nothing better: no curve rises.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Attack, reach_of
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.record import CLEAN, Array
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, size
from brinell.engine.attack_names import ALIASES, CASCADES
from brinell.engine.cascade import Stage
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import open_distance, skip_reason
from brinell.engine.request import Request
from brinell.engine.tasks import SEA, Task, open_task
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies.audit.request import AuditOptions
from brinell.studies.audit_pictures.result import PIECE, Answers, PicturesFacts, inputs_path
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.work import open_plan

SAMPLES = 50
"""Pictures if nobody says how many."""
BUDGETS = {"linf": "1/255,2/255,4/255,8/255", "l2": "0.25,0.5,1"}
"""Budgets if nobody names any."""
FAST = ("fast",)
"""The attack of an audit if nobody names one: here the usual one of the task."""
LOSSES, SEA_STEPS = ("masked-ce", "balanced-ce", "jensen-shannon", "masked-spherical"), "25"
"""The losses of `sea`, and the steps of each if it names no number."""
OF_CLASSES = ("surrogate", "targeted", "reject_class", "precision")
"""Settings that only an audit of classes has."""


@dataclass(frozen=True, kw_only=True)
class PicturesPlan(Plan):
    """The plan of an audit of pictures."""

    task: Task
    distance: Distance
    attacks: Mapping[str, Attack]
    """By spec, in order."""
    levels: tuple[float, ...]
    """Budgets above 0, ascending."""
    seed: int
    batch_size: int
    queries: int | None = None
    """Forward evaluations that each attack may spend on a picture at each budget."""


def make_plan(call: Call) -> PicturesPlan:
    """Open the data and the model, and refuse what cannot be carried out."""
    request: Request = call.request
    for given, names in ((request, OF_CLASSES), (call.options, tuple(AuditOptions.model_fields))):
        for name in names if given is not None else ():
            if getattr(given, name) != type(given).model_fields[name].default:
                raise RequestError(f"data with masks or boxes have no {option(name)}: leave it out")
    check_norm(request.norm)
    levels, texts = budgets_of(request.eps or BUDGETS[request.norm])
    plan: Plan = open_plan(call, usual_samples=SAMPLES)
    call.say_samples(plan)
    if len(plan.models) != 1:
        raise RequestError(f"models of masks or boxes are audited one by one, and {len(plan.models)} are named: call it for each")
    (model,) = plan.models.values()
    first = plan.ids[:1].tolist()
    task = open_task(plan.dataset, model, request.criterion, first, plan.device, single=False)
    attacks = attacks_of(request.attack, task, request.norm)
    names = plan.dataset.info.names or tuple(map(str, range(len(plan.dataset))))
    facts = PicturesFacts(
        task=task.kind,
        criterion=task.text,
        aims=list(task.aims),
        attacks=list(attacks),
        eps=list(levels),
        eps_text=list(texts),
        least_score=task.shown,
        names=[names[sample] for sample in plan.ids.tolist()],
    )
    opened = {name: getattr(plan, name) for name in ("dataset", "selection", "ids", "labels", "device")}
    return PicturesPlan(
        **opened,
        models={task.model.name: task.model},
        about={"checks": task.checks(first)},
        facts=facts,
        task=task,
        distance=open_distance(request.norm),
        attacks=attacks,
        levels=levels,
        seed=request.seed,
        batch_size=request.batch_size,
        queries=request.queries,
    )


def check_norm(norm: str) -> None:
    """Refuse distances in which no attack on pictures is known."""
    if norm not in BUDGETS:
        raise RequestError(f"pictures with masks or boxes are attacked in {' or '.join(BUDGETS)}, and norm is {norm}")


def budgets_of(text: str) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Budgets above 0, and as they were written."""
    budgets = parse_eps(text)
    levels = tuple(value for value in budgets.values if value > 0)
    if not levels:
        raise RequestError(f"{option('eps')} {text} names no budget above 0: write some, such as 4/255,8/255")
    return levels, budgets.texts[-len(levels) :]


def attacks_of(specs: tuple[str, ...], task: Task, norm: str) -> dict[str, Attack]:
    """Attacks by the specs that name them, the usual ones of the task for `fast`."""
    attacks: dict[str, Attack] = {}
    for spec in (task.usual_attack if spec in FAST else spec for spec in specs):
        name, _, options = plugins.parse(spec)
        if name != SEA:
            attacks[spec] = _attack(spec, task, norm)
            continue
        if unknown := set(options) - {"steps"}:
            raise RequestError(f"{spec!r} has the option {min(unknown)}: {SEA} has steps alone, those of each of its four losses")
        of_losses = [f"apgd-map?loss={loss}&steps={options.get('steps', SEA_STEPS)}" for loss in LOSSES]
        attacks |= {of_loss: _attack(of_loss, task, norm) for of_loss in of_losses}
    return attacks


def _attack(spec: str, task: Task, norm: str) -> Attack:
    name, _, options = plugins.parse(spec)
    if ALIASES.get(name, name) in CASCADES:
        raise RequestError(f"{name} is a cascade for models that answer one class: take {SEA}, or attacks such as pgd or square")
    attack: Attack = plugins.build("attack", name, options)
    if reason := skip_reason(Stage(name=spec, plugin=name, attack=attack), task.model, open_distance(norm)):
        raise RequestError(f"{name} cannot attack {task.model.name}: {reason}; take {SEA}, pgd, square (by scores) or rlab")
    return attack


def pieces(plan: PicturesPlan, call: Call) -> list[Piece]:
    """Groups of pictures."""
    return [
        Piece(
            name=f"pictures {start + 1} to {min(start + PIECE, len(plan.ids))} of {len(plan.ids)}",
            make=partial(attack_pictures, plan, plan.ids[start : start + PIECE], inputs_path(start)),
            files=(inputs_path(start),),
        )
        for start in range(0, len(plan.ids), PIECE)
    ]


def attack_pictures(plan: PicturesPlan, ids: Array, file: str) -> Answers:
    """Attack a group of pictures for each aim by itself, and write their strongest inputs and what a page shows."""
    (model,) = plan.models.values()
    task, samples = replace(plan.task, model=model), ids.tolist()
    x = plan.dataset.load(samples).to(plan.device)
    searches = [_Search(plan, task, ids, x, aim) for aim in task.aims]
    met = torch.stack([search.met for search in searches]).any(0)
    columns = task.columns(searches[0].answers, samples, truth=True)
    place = {"sample_id": ids, "aim": "", "attack": CLEAN, "eps": 0.0, "outcome": _outcomes(met)}
    parts = [rows.build(Answers, len(ids), **place, distance=0.0, forwards=1, **columns)]
    arrays: dict[str, Tensor] = {}
    for search in searches:
        parts += search.run()
        arrays |= {f"{search.aim}-{sample}": search.best[row] for row, sample in enumerate(samples)}
    views = task.views(x, searches[0].best, samples, plan.batch_size)
    for name, view in views.items():
        arrays |= {f"{name}-{sample}": view[row].to(torch.uint8) for row, sample in enumerate(samples)}
    write_arrays(plan.folder / file, {name: array.cpu().numpy() for name, array in arrays.items()})
    return rows.concatenate(parts)


def _outcomes(met: Tensor) -> Array:
    return np.where(met.cpu().numpy(), "met", "open")


class _Search:
    """A group of pictures and the strongest input so far of each for one aim."""

    def __init__(self, plan: PicturesPlan, task: Task, ids: Array, x: Tensor, aim: str) -> None:
        self.plan, self.task, self.ids, self.x, self.aim = plan, task, ids, x, aim
        self.criterion = task.criterion(ids.tolist(), aim)
        self.best, self.answers = x.clone(), task.ask(x, plan.batch_size)
        self.margin = self.criterion.margin(self.answers, torch.zeros(len(ids), dtype=torch.int64, device=x.device), x)
        self.met = self.margin > 0

    def run(self) -> list[Answers]:
        """The rows of all budgets in rising order."""
        parts: list[Answers] = []
        for eps in self.plan.levels:
            for name, attack in self.plan.attacks.items():
                attackable = self.criterion.attackable
                changed = (self.best != self.x).flatten(1).any(1)
                finished, begun, fresh = (
                    mask.nonzero()[:, 0]
                    for mask in (attackable & self.met, attackable & ~self.met & changed, attackable & ~self.met & ~changed)
                )
                if len(finished):
                    parts.append(self._rows(name, eps, finished, outcome="below", answer=""))
                for index, start in ((fresh, None), (begun, self.best[begun])):
                    if len(index):
                        parts.append(self._attack(name, attack, eps, index, start))
        return parts

    def _attack(self, name: str, attack: Attack, eps: float, index: Tensor, start: Tensor | None) -> Answers:
        """Attack some of the pictures within a budget, from inputs within it; keep what is stronger, and return the rows."""
        begin, x, plan = time.perf_counter(), self.x[index], self.plan
        n, device = len(index), self.x.device
        ledger = Ledger(
            self.task.model,
            Batch(ids=torch.arange(n, device=device), x=x, y=torch.zeros(n, dtype=torch.int64, device=device), start=start),
            Threat(
                distance=plan.distance,
                eps=torch.full((n,), eps, device=device),
                domain=plan.dataset.domain,
                criterion=self.criterion.select(index),
            ),
            access=attack.access,
            queries=plan.queries,
            batch_size=plan.batch_size,
            minimal=attack.family == "minimal",
            reach=reach_of(attack, plan.distance.name),
            strongest=True,
        )
        ids = torch.as_tensor(self.ids, device=device)[index]
        of_aim = name if len(self.task.aims) == 1 and self.task.kind == "segmentation" else f"{self.aim}/{name}"
        attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(plan.seed, ids).fold(f"{of_aim} {eps!r}"))
        fooled, margin = ledger.fooled, ledger.best.margin
        found = torch.where(per_sample(fooled, x), ledger.best.closest, ledger.best.strongest)
        seconds = (time.perf_counter() - begin) / n
        improved = margin > self.margin[index]
        self.best[index[improved]], self.margin[index[improved]] = found[improved], margin[improved]
        self.met[index] |= fooled
        return self._rows(
            name,
            eps,
            index,
            outcome=_outcomes(fooled),
            margin=np.ma.masked_invalid(margin.double().cpu().numpy()),
            distance=size(plan.distance, found, x).double().cpu().numpy(),
            forwards=ledger.costs.forwards.cpu().numpy(),
            backwards=ledger.costs.backwards.cpu().numpy(),
            first_success=np.ma.masked_equal(ledger.best.first_success.cpu().numpy(), 0),
            seconds=seconds,
            **self.task.columns(self.task.ask(found, plan.batch_size), self.ids[index.cpu().numpy()].tolist()),
        )

    def _rows(self, name: str, eps: float, index: Tensor, **columns: Any) -> Answers:
        place = {"sample_id": self.ids[index.cpu().numpy()], "aim": self.aim, "attack": name, "eps": eps}
        return rows.build(Answers, len(index), **place, **columns)
