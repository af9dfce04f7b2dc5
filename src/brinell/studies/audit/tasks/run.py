"""Pictures under attack: at each budget in rising order, each attack from the strongest input so
far, for each aim by itself.

An input within a budget is within every larger one. So the strongest input of a smaller budget is
where the attacks of the next one begin, and it counts where they find nothing better: no curve
rises.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.attack import attack
from brinell.core.contracts import Attack
from brinell.core.errors import RequestError, option
from brinell.core.model import Model
from brinell.core.oracle import Batch
from brinell.core.record import CLEAN, Array
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, size
from brinell.engine.attack_names import ALIASES, CASCADES
from brinell.engine.cascade import build_stages
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import open_distance, skip_reason
from brinell.engine.request import BaseRequest, Request
from brinell.engine.tasks import LOOKED_AT, SEA, Task, Use
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies.audit.request import AuditOptions
from brinell.studies.audit.tasks.result import PIECE, AttackRows, PicturesFacts, inputs_path
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.tasks import open_task
from brinell.studies.work import open_plan

SAMPLES = 50
"""Pictures if nobody says how many."""
BUDGETS = {"linf": "1/255,2/255,4/255,8/255", "l2": "0.25,0.5,1"}
"""Budgets if nobody names any."""
FAST = ("fast",)
"""The attack of an audit if nobody names one: here the usual one of the task."""
LOSSES, SEA_STEPS = ("masked-ce", "balanced-ce", "jensen-shannon", "masked-spherical"), "25"
"""The losses of `sea`, and the steps of each if it names no number."""
OF_CLASSES = ("surrogate", "targeted", "reject_class", "expect", "precision", "until")
"""Settings that only an audit of classes has."""


@dataclass(frozen=True, kw_only=True)
class PicturesPlan(Plan):
    """The plan of an audit of pictures, or of the attack on one model of a transfer."""

    task: Task
    distance: Distance
    attacks: Mapping[str, Attack]
    """By spec, in order."""
    levels: tuple[float, ...]
    """Budgets above 0, ascending."""
    texts: tuple[str, ...]
    """The same as they were written."""
    seed: int
    batch_size: int
    queries: int | None = None
    """Forward evaluations that each attack may spend on a picture at each budget."""


def make_plan(call: Call) -> PicturesPlan:
    """Open the data and the model, and refuse what cannot be carried out."""
    request: Request = call.request
    _refuse_settings(request, OF_CLASSES)
    if call.options is not None:
        refused = [name for name in AuditOptions.model_fields if name != "minutes"]
        _refuse_settings(call.options, refused)
    plan: Plan = open_plan(call, truth=True, usual_samples=SAMPLES)
    call.say_samples(plan)
    if len(plan.models) != 1:
        raise RequestError(
            "models of masks or boxes are audited one by one, and "
            f"{len(plan.models)} are named: call it for each"
        )

    (model,) = plan.models.values()
    opened = plan_attack(plan, model, request, request.attack)
    task = opened.task
    names = plan.dataset.info.names or tuple(map(str, range(len(plan.dataset))))
    facts = PicturesFacts(
        **task_facts(task),
        aims=list(task.aims),
        attacks=list(opened.attacks),
        eps=list(opened.levels),
        eps_text=list(opened.texts),
        names=[names[sample] for sample in plan.ids.tolist()],
    )
    return replace(
        opened, about={"checks": task.checks(plan.ids[:LOOKED_AT].tolist())}, facts=facts
    )


def _refuse_settings(given: BaseRequest, names: Sequence[str]) -> None:
    """Refuse settings that only an audit of classes has, where they differ from their defaults."""
    for name in names:
        if getattr(given, name) != type(given).model_fields[name].default:
            raise RequestError(f"data with masks or boxes have no {option(name)}: leave it out")


def plan_attack(
    plan: Plan,
    model: Model,
    request: Any,
    attack: Sequence[str],
    use: Use = "audit",
) -> PicturesPlan:
    """The plan of the attacks on one model."""
    if request.norm not in BUDGETS:
        raise RequestError(
            f"pictures with masks or boxes are attacked in {' or '.join(BUDGETS)}, "
            f"and norm is {request.norm}"
        )

    usual = BUDGETS[request.norm]
    # A transfer has one budget, usually the largest.
    budgets = parse_eps(request.eps or (usual if use == "audit" else usual.rpartition(",")[2]))
    levels = tuple(value for value in budgets.values if value > 0)
    if not levels:
        raise RequestError(
            f"{option('eps')} {request.eps} names no budget above 0: write some, "
            "such as 4/255,8/255"
        )

    # One picture may show nothing.
    first = plan.ids[:LOOKED_AT].tolist()
    task = open_task(plan.dataset, model, request.criterion, first, plan.device, use)
    distance = open_distance(request.norm)

    return PicturesPlan(
        **request.settings(PicturesPlan) | vars(plan) | {"models": {model.name: task.model}},
        task=task,
        distance=distance,
        attacks=dict(_attacks(attack, task, distance)),
        levels=levels,
        texts=budgets.texts[-len(levels) :],  # without that of a budget of 0, which is the first
    )


def task_facts(task: Task) -> dict[str, Any]:
    """The fields of `TaskFacts`."""
    return {"task": task.kind, "criterion": task.text, "least_score": task.shown}


def _attacks(specs: Sequence[str], task: Task, distance: Distance) -> Iterator[tuple[str, Attack]]:
    """Attacks by the specs that name them, the usual ones of the task for `fast`."""
    for spec in (task.usual_attack if spec in FAST else spec for spec in specs):
        name, _, options = plugins.parse(spec)
        if ALIASES.get(name, name) in CASCADES:
            raise RequestError(
                f"{name} is a cascade for models that answer one class: take "
                f"{SEA}, or attacks such as pgd or square"
            )
        if name == SEA and (unknown := set(options) - {"steps"}):
            raise RequestError(
                f"{spec!r} has the option {min(unknown)}: {SEA} has steps alone, "
                "those of each of its four losses"
            )

        steps = options.get("steps", SEA_STEPS)
        of_losses = tuple(f"apgd-map?loss={loss}&steps={steps}" for loss in LOSSES)
        for stage in build_stages(of_losses if name == SEA else (spec,)):
            if reason := skip_reason(stage, task.model, distance):
                raise RequestError(
                    f"{name} cannot attack {task.model.name}: {reason}; take "
                    f"{SEA}, pgd, square (by scores) or rlab"
                )
            yield stage.name, stage.attack


def pieces(plan: PicturesPlan, call: Call) -> list[Piece]:
    """Groups of pictures."""
    return [
        Piece(
            name=name,
            make=partial(attack_pictures, plan, ids, inputs_path(start)),
            files=(inputs_path(start),),
        )
        for start, ids, name in groups(plan)
    ]


def groups(plan: Plan) -> Iterator[tuple[int, Array, str]]:
    """The place, the pictures and the name of each group."""
    for start in range(0, len(plan.ids), PIECE):
        ids = plan.ids[start : start + PIECE]
        yield start, ids, f"pictures {start + 1} to {start + len(ids)} of {len(plan.ids)}"


def attack_pictures(plan: PicturesPlan, ids: Array, file: str) -> AttackRows:
    """Attack a group of pictures for each aim by itself, and write their strongest inputs and what
    a page shows.
    """
    (model,) = plan.models.values()
    task, samples = replace(plan.task, model=model), ids.tolist()
    x = plan.dataset.load(samples).to(plan.device)
    answers = task.ask(x, plan.batch_size)
    searches = [_Search(plan, task, ids, x, answers, aim) for aim in task.aims]

    met = torch.stack([search.met for search in searches]).any(0).cpu().numpy()
    columns = task.columns(answers, samples, truth=True)
    for aim in task.aims:
        task.check_rows(columns, answers, samples, aim)
    place = {"sample_id": ids, "aim": "", "attack": CLEAN, "eps": 0.0, "met": met}
    parts = [rows.build(AttackRows, len(ids), **place, distance=0.0, forwards=1, **columns)]
    strongest: dict[str, Tensor] = {}
    for search in searches:
        parts += search.run()
        strongest[search.aim] = search.best

    views = task.views(x, searches[0].best, samples, plan.batch_size)
    pictures = {name: view.to(torch.uint8) for name, view in views.items()}
    arrays = {
        f"{name}-{sample}": values[row]
        for name, values in (strongest | pictures).items()
        for row, sample in enumerate(samples)
    }
    write_arrays(plan.folder / file, {name: array.cpu().numpy() for name, array in arrays.items()})
    return rows.concatenate(parts)


class _Search:
    """A group of pictures and the strongest input so far of each for one aim."""

    def __init__(
        self, plan: PicturesPlan, task: Task, ids: Array, x: Tensor, answers: Tensor, aim: str
    ) -> None:
        self.plan, self.task, self.ids, self.x, self.aim = plan, task, ids, x, aim
        self.criterion = task.criterion(ids.tolist(), aim)
        # The criterion knows the truth; attacks are shown that class 0 is the true one.
        self.y = torch.zeros(len(ids), dtype=torch.int64, device=x.device)

        self.best = x.clone()
        self.margin = self.criterion.margin(answers, self.y, x)
        self.met = self.margin > 0

    def run(self) -> list[AttackRows]:
        """The rows of all budgets in rising order."""
        parts = []
        for eps, (name, method) in product(self.plan.levels, self.plan.attacks.items()):
            is_open = self.criterion.attackable & ~self.met
            changed = (self.best != self.x).flatten(1).any(1)

            # An attack begins at the strongest input so far, where there is one.
            fresh = (is_open & ~changed).nonzero()[:, 0]
            begun = (is_open & changed).nonzero()[:, 0]
            for index, start in ((fresh, None), (begun, self.best[begun])):
                if len(index):
                    parts.append(self._attack(name, method, eps, index, start))
        return parts

    def _attack(
        self, name: str, method: Attack, eps: float, index: Tensor, start: Tensor | None
    ) -> AttackRows:
        """Attack some of the pictures within a budget, from inputs within it; keep what is
        stronger, and return the rows.
        """
        begin = time.perf_counter()
        x, plan, n = self.x[index], self.plan, len(index)
        threat = Threat(
            distance=plan.distance,
            eps=torch.full((n,), eps, device=x.device),
            domain=plan.dataset.domain,
            criterion=self.criterion.select(index),
        )
        samples = self.ids[index.cpu().numpy()]
        streams = Streams.of(plan.seed, torch.as_tensor(samples, device=x.device))
        stream = f"{name if self.task.has_one_aim else f'{self.aim}/{name}'} {eps!r}"

        ledger, _ = attack(
            self.task.model,
            Batch.of(x, self.y[index], start),
            threat,
            method,
            streams.fold(stream),
            queries=plan.queries,
            batch_size=plan.batch_size,
            strongest=True,
        )

        # The rows are of the strongest inputs of this attack, and `best` holds those of all
        # attacks.
        margin, found = ledger.best.margin, ledger.strongest
        seconds = (time.perf_counter() - begin) / n
        answers = self.task.ask(found, plan.batch_size)
        columns = self.task.columns(answers, samples.tolist())
        self.task.check_rows(columns, answers, samples.tolist(), self.aim)

        improved = margin > self.margin[index]
        self.best[index[improved]] = found[improved]
        self.margin[index[improved]] = margin[improved]
        self.met[index] |= ledger.fooled
        return rows.build(
            AttackRows,
            n,
            sample_id=samples,
            aim=self.aim,
            attack=name,
            eps=eps,
            met=ledger.fooled.cpu().numpy(),
            margin=np.ma.masked_invalid(margin.double().cpu().numpy()),
            distance=size(plan.distance, found, x).double().cpu().numpy(),
            forwards=ledger.costs.forwards.cpu().numpy(),
            backwards=ledger.costs.backwards.cpu().numpy(),
            seconds=seconds,
            **columns,
        )
