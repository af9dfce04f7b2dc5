"""Planted violators for the checker of detectors: each breaks one rule, and the checker names it."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import torch

from _helpers import unrefused
from brinell.core.domain import KINDS
from brinell.core.model import Access
from brinell.testing import check_detector

CALLS = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Honest:
    """Distance to the nearest mean of a class."""

    scale: float = 1.0

    access: ClassVar[Access] = Access.LABELS
    domains: ClassVar[frozenset[str]] = frozenset(KINDS)

    def fit(self, x, labels, model):
        means = torch.stack([x[labels == label].mean(0) for label in labels.unique()]).flatten(1)
        return lambda x: self.scale * (x.flatten(1)[:, None] - means).square().sum(2).amin(1)


def derived(answer):
    """An honest detector whose scores go through `answer(score, x, model)`."""

    class Violator(Honest):
        def fit(self, x, labels, model):
            honest = super().fit(x, labels, model)
            return lambda x: answer(honest(x), x, model)

    return Violator


class Thawed:
    access, domains = Access.LABELS, frozenset(KINDS)


@dataclass(frozen=True, kw_only=True)
class Needs(Honest):
    needed: int


@dataclass(frozen=True, kw_only=True)
class SetsItsThreshold(Honest):
    threshold: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Undeclared:
    scale: float = 1.0


class OtherInputs(Honest):
    domains = frozenset({"text"})


class NoInputs(Honest):
    domains = frozenset()


class NumberForAccess(Honest):
    access = 2


@dataclass(frozen=True, kw_only=True)
class Unwritten(Honest):
    scale: torch.dtype = torch.float32


class Fails(Honest):
    def fit(self, x, labels, model):
        raise KeyError("mean")


class WritesIntoItsInputs(Honest):
    def fit(self, x, labels, model):
        x.mul_(0.5)
        return super().fit(x, labels, model)


class WritesIntoItsLabels(Honest):
    def fit(self, x, labels, model):
        suspicion = super().fit(x, labels, model)
        labels.zero_()
        return suspicion


class ChangesTheModel(Honest):
    def fit(self, x, labels, model):
        model.weight.mul_(0.5)
        return super().fit(x, labels, model)


def peeking(score, x, model):
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        (grad,) = torch.autograd.grad(model.predict(leaf).sum(), leaf)
    return score + grad.abs().flatten(1).sum(1)


VIOLATORS = {
    "thawed": (Thawed, "is no frozen dataclass"),
    "needs a setting": (Needs, "setting needed must be keyword-only and have a default"),
    "sets its threshold": (SetsItsThreshold, "setting threshold has another name here: the study"),
    "undeclared": (Undeclared, "does not declare access"),
    "other inputs": (OtherInputs, "domains must be some of"),
    "no inputs": (NoInputs, "domains must be some of"),
    "a number for access": (NumberForAccess, "access must be LABELS, SCORES or GRADIENTS"),
    "unwritten": (Unwritten, "settings that do not survive JSON"),
    "fails": (Fails, "failed with KeyError"),
    "one score for all": (
        derived(lambda score, x, model: score.sum()),
        r"answers shape \(\) to 6 inputs",
    ),
    "a column": (
        derived(lambda score, x, model: score[:, None]),
        r"answers shape \(6, 1\) to 6 inputs",
    ),
    "NaN": (derived(lambda score, x, model: score * torch.nan), "answers NaN or infinity"),
    "global generator": (
        derived(lambda score, x, model: score + torch.rand(())),
        "drew from a global random generator",
    ),
    "writes into its inputs": (WritesIntoItsInputs, "wrote into what it was given"),
    "writes into its labels": (WritesIntoItsLabels, "wrote into what it was given"),
    "changes the model": (ChangesTheModel, "changed the weights of the model"),
    "counts": (
        derived(lambda score, x, model: score + next(CALLS)),
        "gave two scores to the same inputs",
    ),
    "minds its company": (
        derived(lambda score, x, model: score - score.mean()),
        "gave other scores when the batch was split",
    ),
    "upside down": (
        derived(lambda score, x, model: -score),
        "scores noisy inputs no higher than clean ones",
    ),
    "cut off": (derived(lambda score, x, model: score.detach()), "has no finite input gradient"),
    "steep": (
        derived(lambda score, x, model: score + (x - x.detach()).flatten(1).sum(1).sqrt()),
        "has no finite input gradient",
    ),
    "peeks at gradients": (derived(peeking), "needs more of the model than it declares"),
}


def test_an_honest_detector_passes():
    check_detector(Honest)
    check_detector(Honest, scale=2.0)


def test_violators():
    assert not unrefused(check_detector, VIOLATORS.values())
