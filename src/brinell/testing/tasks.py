"""The rules that every task keeps. `check_task` names the first one that is broken.

A criterion that is wrong makes a model look robust, and no attack says so. So answers are drawn of
which many are right, wrong or tied, and each must be judged alike by margin, rows and attacks.
"""

from collections.abc import Iterator
from functools import partial

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
    opened = model_opener(model, dataset)()
    device = torch.device("cpu")

    task = open_task(dataset, opened, criterion, ids[:1], device, "audit")
    name = f"task {task.kind}"
    with form.contained(name), task.model.info.session(device):
        clean = task.ask(dataset.load(ids), len(ids))
        for aim in task.aims:
            _check_verdicts(task, ids, aim, clean)
            if task.model.access == Access.GRADIENTS:
                _check_slopes(task, ids, aim, clean)


def _drawn(clean: Tensor) -> Iterator[Tensor]:
    """Answers shaped as the clean ones: these, those of other samples, random ones, and ties."""
    yield clean
    for number in range(1, len(clean)):
        yield clean.roll(number, 0)

    streams = Streams.of(0, torch.arange(len(clean)))
    for number in range(DRAWS):
        noise = streams.fold(number).normal(clean.shape[1])
        yield noise * clean.std()
        yield noise.round()
    yield torch.zeros_like(clean)


def _check_verdicts(task: Task, ids: list[int], aim: str, clean: Tensor) -> None:
    """Rows, margin and what attacks are shown say the same of each answer."""
    demand = partial(form.demand, f"task {task.kind}:")
    criterion = task.criterion(ids, aim)
    y = torch.zeros(len(ids), dtype=torch.int64)
    order = torch.arange(len(ids)).flip(0)
    verdicts = []

    for answers in _drawn(clean):
        task.check_rows(task.columns(answers, ids), answers, ids, aim)
        margin = criterion.margin(answers, y, answers)
        is_met = margin > 0
        demand(not bool(margin.isnan().any()), "a margin is not a number")
        is_hidden = bool((is_met & ~criterion.attackable).any())
        demand(not is_hidden, "attackable is False for a sample on which an answer is a success")

        shown = criterion.logits_for_attack(answers, y).argmax(1) != 0
        demand(torch.equal(shown, is_met), "logits_for_attack shows attacks another verdict")
        selected = criterion.select(order).margin(answers[order], y, answers[order])
        demand(torch.equal(selected, margin[order]), "select gives samples the truth of others")
        verdicts.append(is_met)

    met = torch.stack(verdicts)[:, criterion.attackable]
    demand(bool(met.any()), "no drawn answer is a success: choose another criterion to check")
    demand(not bool(met.all()), "every drawn answer is a success: choose another criterion")


def _check_slopes(task: Task, ids: list[int], aim: str, clean: Tensor) -> None:
    """Gradients reach the margin, and those of the loss lead the same way."""
    demand = partial(form.demand, f"task {task.kind}:")
    criterion = task.criterion(ids, aim)
    y = torch.zeros(len(ids), dtype=torch.int64)
    leaf = clean.clone().requires_grad_()
    margin = criterion.margin(leaf, y, leaf)
    demand(margin.requires_grad, "the margin has no gradient")
    rows = criterion.attackable & (margin <= 0)

    (rise,) = torch.autograd.grad(margin[rows].sum(), leaf, retain_graph=True)
    lengths = rise[rows].norm(dim=1)
    has_slope = bool(((lengths > 0) & lengths.isfinite()).all())
    demand(has_slope, "the margin of an answer has no finite gradient, which attacks follow")
    loss = criterion.loss(losses.margin, leaf, y)
    (slope,) = torch.autograd.grad(loss[rows].sum(), leaf)
    demand(bool(((rise * slope).sum(1)[rows] > 0).all()), "the loss falls where the margin rises")
