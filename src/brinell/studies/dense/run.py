"""The computation: groups of pictures are attacked at each budget in rising order, from the strongest input so far."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from brinell import plugins
from brinell.core.contracts import Attack
from brinell.core.errors import RequestError, option
from brinell.core.model import Access, Model
from brinell.engine.attack_names import ALIASES, CASCADES
from brinell.engine.eps_grid import parse_eps
from brinell.studies.dense import detection, segmentation
from brinell.studies.dense.records import Answers, inputs_path
from brinell.studies.dense.request import SEA, DenseRequest
from brinell.studies.dense.stages import DensePlan, Setting, Stage
from brinell.studies.kit import Call, Piece
from brinell.studies.work import open_plan

TASKS: dict[str, Any] = {"segmentation": segmentation, "detection": detection}
"""Modules that attack, by what the data have a truth about."""
SAMPLES = 50
"""Pictures if nobody says how many."""
BUDGETS = {"linf": "1/255,2/255,4/255,8/255", "l2": "0.25,0.5,1"}
"""Budgets if nobody names any."""
LOSSES = ("masked-ce", "balanced-ce", "jensen-shannon", "masked-spherical")
"""The losses of `sea`."""
SEA_STEPS = 25
"""Steps of each loss if `sea` names no number."""


def make_plan(call: Call) -> DensePlan:
    """Open the data and the model, and refuse what cannot be carried out.

    Raises:
        RequestError: data without masks, a model without maps, an attack that does not fit, or an unknown criterion.
    """
    request: DenseRequest = call.request
    budgets = parse_eps(request.eps or BUDGETS[request.norm])
    levels = tuple(value for value in budgets.values if value > 0)
    if not levels:
        raise RequestError(f"{option('eps')} {request.eps} names no budget above 0: write some, such as 4/255,8/255")
    if request.lipschitz is not None and request.norm != "l2":
        raise RequestError(f"{option('lipschitz')} certifies in L2 alone: add {option('norm', 'l2')}, or leave it out")
    plan: DensePlan = open_plan(call, DensePlan, usual_samples=SAMPLES, setting=Setting(levels=levels))
    call.say_samples(plan)
    truth = plan.dataset.info.truth
    if truth is None:
        raise RequestError(
            f"{plan.dataset.name} has one class for each input: brinell audit attacks such models; name data with masks or "
            f"boxes, "
            "such as masks:FOLDER or boxes:FOLDER"
        )
    task = TASKS[truth.task]
    model = task.adapt(next(iter(plan.models.values())), plan, request)
    stages = stages_of(request, task, model)
    setting = Setting(levels=levels, texts=budgets.texts[-len(levels) :], stages=stages)
    checks = task.check(request, plan, model)
    names = plan.dataset.info.names or tuple(map(str, range(len(plan.dataset))))
    about = {
        "task": truth.task,
        "levels": list(levels),
        "group": request.batch_size,
        "attacks": [stage.name for stage in stages],
        "checks": checks,
        "names": [names[sample] for sample in plan.ids.tolist()],
    }
    return replace(plan, models={model.name: model}, setting=setting, about=about)


def stages_of(request: DenseRequest, task: Any, model: Model) -> tuple[Stage, ...]:
    """The attacks of a request on a model, or the usual one of the task.

    Raises:
        RequestError: an attack does not exist, or does not fit the model, the distance or pictures.
    """
    return tuple(stage for spec in request.attack or (task.default_attack(model),) for stage in _stages(spec, request, model))


def _stages(spec: str, request: DenseRequest, model: Model) -> list[Stage]:
    """The attacks that a spec names.

    Raises:
        RequestError: an attack does not exist, or does not fit the model, the distance or pictures.
    """
    name, _, options = plugins.parse(spec)
    if name == SEA:
        if unknown := set(options) - {"steps"}:
            raise RequestError(f"{spec!r} has the option {min(unknown)}: {SEA} has steps alone, those of each of its four losses")
        steps = options.get("steps", str(SEA_STEPS))
        specs = [f"apgd-map?loss={loss}&steps={steps}" for loss in LOSSES]
        return [stage for loss_spec in specs for stage in _stages(loss_spec, request, model)]
    if ALIASES.get(name, name) in CASCADES:
        raise RequestError(
            f"{name} is a cascade for models that answer one class: take {SEA}, or name attacks such as pgd or square"
        )
    attack: Attack = plugins.build("attack", name, options)
    if attack.access > model.access:
        raise RequestError(
            f"{name} needs {attack.access.name.lower()}, and {model.name} gives {model.access.name.lower()} only: take "
            + ("square, which needs scores only" if model.access == Access.SCORES else "hop-skip-jump, which needs labels only")
        )
    if request.norm not in attack.distances or "image" not in attack.domains:
        raise RequestError(f"{name} does not work on pictures in {request.norm}: take apgd-map, pgd, square or rlab")
    return [Stage(name=spec, attack=attack)]


def pieces(plan: DensePlan, call: Call) -> list[Piece]:
    """Groups of pictures."""
    size = call.request.batch_size
    return [
        Piece(
            name=f"pictures {start + 1} to {min(start + size, len(plan.ids))} of {len(plan.ids)}",
            make=_maker(plan, call, slice(start, start + size), inputs_path(number)),
            files=(inputs_path(number),),
        )
        for number, start in enumerate(range(0, len(plan.ids), size))
    ]


def _maker(plan: DensePlan, call: Call, part: slice, file: str) -> Callable[[], Answers]:
    """A function that attacks a group and returns its rows."""
    truth = plan.dataset.info.truth
    assert truth is not None
    task = TASKS[truth.task]
    return partial(task.attack, plan, call.request, part, file)
