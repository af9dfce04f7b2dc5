"""Planted violators for the checker of tasks: the example from outside, with one mistake each."""

import random
import sys
from dataclasses import replace
from importlib import import_module

import pytest
import torch

from _pictures import write_pictures
from brinell.core.errors import ContractError
from brinell.core.segmentation import PixelShare
from brinell.studies import tasks
from brinell.testing import check_task

DATA, MODEL = "brinell_ordinal.run:OrderedDigits", "digits-cnn"


@pytest.fixture(scope="module", autouse=True)
def ordinal(root):
    """The example of a task, registered as an installed one would be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "examples" / "task")
        record = import_module("brinell_ordinal").TASK
        patch.setitem(tasks.TASKS, "ordinal", record)
        yield import_module("brinell_ordinal.run")
    for name in [name for name in sys.modules if name.startswith("brinell_ordinal")]:
        del sys.modules[name]


def test_the_example_passes_with_every_criterion():
    for steps in ("1", "2", "5"):
        check_task(DATA, MODEL, steps)


def reversed_sign(margin):
    return lambda self, logits, y, x: -margin(self, logits, y, x)


def other_threshold(margin, by):
    return lambda self, logits, y, x: margin(self, logits, y, x) + by


def other_rank(margin, steps):
    def of_other(self, logits, y, x):
        return margin(replace(self, steps=self.steps + steps), logits, y, x)

    return of_other


def without_ties(margin):
    def of_scores(self, logits, y, x):
        far = self._is_far()
        near = logits.masked_fill(far, -torch.inf).amax(1)
        return logits.masked_fill(~far, -torch.inf).amax(1) - near

    return of_scores


def without_gradient(margin):
    return lambda self, logits, y, x: margin(self, logits.detach(), y, x)


def flat(margin):
    return lambda self, logits, y, x: margin(self, logits.detach(), y, x) + 0 * logits.sum(1)


@pytest.mark.parametrize("seed", range(6))
def test_a_wrong_margin_is_found(ordinal, monkeypatch, seed):
    draw = random.Random(seed)
    right, steps = ordinal.FarOff.margin, draw.choice([1, 2, 3])
    breaks = [
        (reversed_sign(right), "`wrong` must agree"),
        (other_rank(right, draw.choice([-1, 1])), "`wrong` must agree"),
        (
            other_threshold(right, draw.uniform(0.01, 3) * draw.choice([-1, 1])),
            "`wrong` must agree",
        ),
        (without_ties(right), "`wrong` must agree"),
        (without_gradient(right), "no gradient"),
        (flat(right), "no finite gradient"),
    ]
    wrong, rule = breaks[seed]
    monkeypatch.setattr(ordinal.FarOff, "margin", wrong)
    with pytest.raises(ContractError, match=rule):
        check_task(DATA, MODEL, str(steps))


def test_the_rest_of_a_criterion_is_held_to_its_margin(ordinal, monkeypatch):
    criterion, right = ordinal.FarOff, ordinal.FarOff.logits_for_attack
    none = property(lambda self: torch.zeros(len(self.true), dtype=torch.bool))
    breaks = {
        "attackable is False": ("attackable", none),
        "another verdict": ("logits_for_attack", lambda *values, **_: right(*values).flip(1)),
        "the truth of others": ("select", lambda self, keep: self),
        "the loss falls": ("loss", lambda self, loss, logits, y: -self.margin(logits, y, logits)),
    }
    for rule, (name, wrong) in breaks.items():
        with monkeypatch.context() as patch:
            patch.setattr(criterion, name, wrong)
            with pytest.raises(ContractError, match=rule):
                check_task(DATA, MODEL)


def test_data_without_a_truth_and_answers_that_never_succeed_are_refused():
    with pytest.raises(ContractError, match=r"has no info\.truth"):
        check_task("digits", MODEL)
    with pytest.raises(ContractError, match="no drawn answer is a success"):
        check_task(DATA, MODEL, "9")


def test_masks_pass_and_half_a_margin_does_not(tmp_path, monkeypatch):
    data, model = write_pictures(tmp_path)
    for criterion in ("pixels:0.5", "iou:0.4"):
        check_task(data, model, criterion)

    right = PixelShare.margins
    monkeypatch.setattr(PixelShare, "margins", lambda self, maps: right(self, maps) - 0.2)
    with pytest.raises(ContractError, match="pixels are wrong"):
        check_task(data, model, "pixels:0.5")
