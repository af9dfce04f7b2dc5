"""The rules that every task keeps. `check_task` names the first one that is broken.

A criterion that is wrong makes a model look robust, and no attack says so. So answers are drawn of
which many are right, wrong or tied, and each must be judged alike by margin, rows and attacks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.engine.plan import model_opener
from brinell.engine.sources import open_data
from brinell.engine.tasks import Task
from brinell.studies.tasks import open_task
from brinell.testing import form

SAMPLES = 24
"""Samples that are looked at, at most."""
DRAWS = 8
"""Random answers to each sample, and as many in which several scores are equal."""


def check_task(data: str, model: str, criterion: str | None = None) -> None:
    """Check the task of data: criterion, gradients and columns of rows agree on drawn answers.

    Args:
        data: the spec of data with the truth of the task, whose package is installed.
        model: the spec of a model with the answers of the task.
        criterion: as for brinell audit; by default the usual one.

    Raises:
        ContractError: the first rule that is broken, in one line.
    """
    dataset = open_data(data, truth=True)
    form.demand(f"data {dataset.name}", dataset.info.truth is not None, "has no info.truth")
    ids = list(range(min(len(dataset), SAMPLES)))
    device = torch.device("cpu")

    task = open_task(
        dataset, model_opener(model, dataset)(), criterion, ids[:1], device, use="audit"
    )
    with form.contained(f"task {task.kind}"), task.model.info.session(task.device):
        clean = task.ask(dataset.load(ids), len(ids))
        for aim in task.aims:
            _check_verdicts(task, ids, aim, clean)
            if task.model.access == Access.GRADIENTS:
                _check_slopes(task, task.criterion(ids, aim), clean)


def _drawn(clean: Tensor) -> Iterator[Tensor]:
    """Answers shaped as the clean ones: these, those of other samples, random ones, and ties."""
    for number in range(len(clean)):
        yield clean.roll(number, 0)

    streams = Streams.of(0, torch.arange(len(clean)))
    for number in range(DRAWS):
        noise = streams.fold(number).normal(clean.shape[1])
        yield noise * clean.std()
        yield noise.round()
    yield torch.zeros_like(clean)


def _check_verdicts(task: Task, ids: list[int], aim: str, clean: Tensor) -> None:
    """Rows, margin and what attacks are shown say the same of each answer."""
    criterion = task.criterion(ids, aim)
    y = torch.zeros(len(ids), dtype=torch.int64)
    order = torch.arange(len(ids)).flip(0)
    verdicts = []

    for answers in _drawn(clean):
        task.check_rows(task.columns(answers, ids), answers, ids, aim)
        margin = criterion.margin(answers, y, answers)
        met = margin > 0
        shown = criterion.logits_for_attack(answers, y).argmax(1) != 0
        selected = criterion.select(order).margin(answers[order], y, answers[order])
        rules = {
            "a margin is not a number": not margin.isnan().any(),
            "attackable is False for a sample on which an answer is a success": not (
                met & ~criterion.attackable
            ).any(),
            "logits_for_attack shows attacks another verdict": torch.equal(shown, met),
            "select gives samples the truth of others": torch.equal(selected, margin[order]),
        }
        _demand(task, rules)
        verdicts.append(met[criterion.attackable])

    verdict = torch.cat(verdicts)
    _demand(
        task,
        {
            "no drawn answer is a success: choose another criterion to check": verdict.any(),
            "every drawn answer is a success: choose another criterion to check": not verdict.all(),
        },
    )


def _check_slopes(task: Task, criterion: Any, clean: Tensor) -> None:
    """Gradients reach the margin, and those of the loss lead the same way."""
    y = torch.zeros(len(clean), dtype=torch.int64)
    leaf = clean.clone().requires_grad_()
    margin = criterion.margin(leaf, y, leaf)
    _demand(task, {"the margin has no gradient": margin.requires_grad})

    rows = criterion.attackable & (margin <= 0)
    (rise,) = torch.autograd.grad(margin[rows].sum(), leaf, retain_graph=True)
    loss = criterion.loss(losses.margin, leaf, y)
    (slope,) = torch.autograd.grad(loss[rows].sum(), leaf)
    length = rise[rows].norm(dim=1)
    rules = {
        "the margin of an answer has no finite gradient, which attacks follow": (
            (length > 0) & length.isfinite()
        ).all(),
        "the loss falls where the margin rises": ((rise * slope).sum(1)[rows] > 0).all(),
    }
    _demand(task, rules)


def _demand(task: Task, rules: Mapping[str, Any]) -> None:
    """Demand that no mistake was made, each of which stands beside whether it was avoided."""
    for mistake, is_avoided in rules.items():
        form.demand(f"task {task.kind}:", bool(is_avoided), mistake)
