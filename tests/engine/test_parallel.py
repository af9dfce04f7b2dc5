"""Groups in two halves: both query the model at once, each has its own copy of the attack, and a failure stops both."""

import threading

import numpy as np
import pytest
import torch

from _helpers import VECTOR, Recorder, distance, rows_of, run_audit, threshold
from brinell.attacks.square import Square
from brinell.core.errors import UnreachableError
from brinell.core.model import Access, ModelInfo
from brinell.engine import retry
from brinell.engine.cascade import Stage
from brinell.engine.group_attack import AttackSetting, Group

PATIENCE = 20.0
"""Seconds after which a half that does not come is not side by side."""


class Elsewhere(Recorder):
    """A model on another machine, as far as the audit knows."""

    access, served = Access.SCORES, {}

    def __init__(self, *words):
        super().__init__(*words)
        self.info = ModelInfo(server=self)

    def remarks(self):
        return ()

    def traffic(self):
        return {}


def setting_of(model, attack):
    return AttackSetting(
        name="net",
        model=model,
        stage=Stage(name="mine", plugin="mine", attack=attack),
        distance=distance("linf"),
        domain=VECTOR,
        levels=np.array([0.1]),
        seed=0,
        batch_size=16,
        queries=None,
    )


def group_of(n):
    zeros = np.zeros(n, dtype=np.int64)
    x = torch.full((n, *VECTOR.shape), 0.3)
    return Group(
        sample_id=np.arange(n),
        target=None,
        label=zeros,
        clean_pred=zeros,
        clean_confidence=np.ones(n, np.float32),
        level=zeros,
        x=x,
        unit=np.ones(n),
    )


class Remembering:
    """An attack that keeps what it works on, and meets the other half in the middle."""

    family, access, norms = "budgeted", Access.SCORES, ("linf",)

    def __init__(self, meet):
        self.meet = meet

    def __deepcopy__(self, memo):
        return Remembering(self.meet)

    def __call__(self, oracle, batch, threat, rng):
        self.batch = batch
        oracle.scores(batch.ids, batch.x)
        self.meet.wait(PATIENCE)
        oracle.scores(self.batch.ids, batch.x + 0.05)


def test_both_halves_are_under_way_at_once_and_keep_apart():
    """Neither half comes past the middle before the other is there; five samples are three and two."""
    model = Elsewhere(threshold(0.34))
    passes = []
    setting = setting_of(model, Remembering(threading.Barrier(2)))
    setting = AttackSetting(**{**vars(setting), "on_pass": lambda forwards, backwards: passes.append(forwards)})
    result = retry.attack_group(setting, group_of(5), lambda sample, reason: None)
    assert result.records.sample_id.tolist() == [0, 1, 2, 3, 4] and set(result.records.outcome) == {"broken"}
    assert result.records.forwards.tolist() == [2] * 5 and sorted(passes) == [2, 2, 3, 3]
    assert sorted(result.arrays) == [0, 1, 2, 3, 4]


def test_the_rows_are_those_of_one_piece(tmp_path_factory, subtests):
    for n in [7]:
        with subtests.test(str((n,))):
            tmp_path = tmp_path_factory.mktemp("row")
            x = torch.rand(n, *VECTOR.shape, generator=torch.Generator().manual_seed(n)) * 0.4
            y = torch.zeros(n, dtype=torch.int64)
            request = {"eps": "0.05:0.25:3", "attack": ("square?steps=40",)}
            local_model = Recorder(threshold(0.45))
            local_model.access = Access.SCORES
            full_run = run_audit(tmp_path / "whole", local_model, x, y, **request)
            parted = run_audit(tmp_path / "parted", Elsewhere(threshold(0.45)), x, y, **request)
            assert rows_of(parted.records()) == rows_of(full_run.records())


class Failing(Elsewhere):
    """Fails in the half that has sample 0, once the other is under way."""

    def __init__(self):
        super().__init__(threshold(0.9))
        self.second = threading.Event()

    def predict(self, x):
        if (x[:, 0] < 0.1).any():
            assert self.second.wait(PATIENCE)
            raise UnreachableError("nobody is there any more")
        self.second.set()
        return super().predict(x)


def test_a_half_that_fails_ends_the_other():
    group, model, steps = group_of(4), Failing(), 20_000
    group.x[:2] = 0.0
    with pytest.raises(UnreachableError, match="nobody"):
        retry.attack_group(setting_of(model, Square(steps=steps)), group, lambda sample, reason: None)
    assert 0 < len(model.calls) < steps
