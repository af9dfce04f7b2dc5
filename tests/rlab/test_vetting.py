"""Distortions of one's own are tried at every severity that they may use, on real inputs and on
dark and constant ones."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from _helpers import mlp, plan_of, threat_of
from brinell.attacks.rlab import RLAB
from brinell.core.domain import Domain
from brinell.core.errors import ContractError
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.models._torch_model import TorchModel
from brinell.rlab.distort import extremes

IMAGE = Domain(kind="image", shape=(1, 4, 4), levels=256)
SMALL = threat_of(0.2, "l2", IMAGE, n=4)
REAL = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1


@dataclass(frozen=True, kw_only=True)
class UserDistortion:
    """Darkens, with a fault of the named kind."""

    fault: str = ""

    domains = frozenset({"image"})

    def draws(self, shape):
        return 1

    def __call__(self, x, severity, rng, draw):
        by = 1 - 0.1 * severity.reshape(-1, 1, 1, 1)
        if self.fault == "nan at 2" and bool((severity == 2).any()):
            return x * float("nan")
        if self.fault == "divides by the brightest":
            return x * by / x.flatten(1).amax(1).reshape(-1, 1, 1, 1)
        if self.fault == "divides by the range":
            flat = x.flatten(1)
            return x * by / (flat.amax(1) - flat.amin(1)).reshape(-1, 1, 1, 1).clamp(max=1)
        if self.fault == "leaves bounds of real ones":
            return torch.where(x.flatten(1).std(1).reshape(-1, 1, 1, 1) > 0, x + 1, x * by)
        if self.fault == "idle below 3":
            return torch.where(severity.reshape(-1, 1, 1, 1) < 3, x, x * by)
        return x.clone() if self.fault == "idle" else x * by


def attack(fault="", **settings):
    return RLAB(distortions=(UserDistortion(fault=fault),), **settings)


def test_a_fault_is_found_before_anything_is_spent(subtests):
    for fault, line in [
        ("nan at 2", "answered NaN or infinity"),
        ("divides by the brightest", "answered NaN or infinity"),
        ("divides by the range", "answered NaN or infinity"),
        ("leaves bounds of real ones", "left the bounds"),
    ]:
        with subtests.test(fault=fault, line=line):
            with pytest.raises(ContractError, match=f"distortion UserDistortion {line}"):
                attack(fault).try_on(REAL, SMALL)


def test_only_severities_that_may_be_used_are_tried():
    assert attack("nan at 2", severities=(1, 3)).try_on(REAL, SMALL) == []


def test_one_that_cannot_fill_the_budget_is_told_and_one_that_can_grows():
    assert "do not fill eps: user-distortion 0.00 of it" in attack("idle").try_on(REAL, SMALL)[0]
    (weak,) = attack(severities=(1,)).try_on(REAL, replace(SMALL, eps=torch.full((4,), 1.5)))
    assert "do not fill eps: user-distortion 0." in weak
    assert "made stronger" in attack().try_on(REAL, replace(SMALL, eps=torch.full((4,), 1.5)))[0]
    assert "0.00" in attack().try_on(torch.zeros(4, 1, 4, 4), SMALL)[0], (
        "darkening does nothing to what is dark"
    )


def test_what_is_shipped_is_tried_too_at_every_severity(monkeypatch):
    severities, noise = set(), GaussianNoise.__call__

    def recorded_call(self, x, severity, rng, draw):
        severities.update(severity.tolist())
        return noise(self, x, severity, rng, draw)

    monkeypatch.setattr(GaussianNoise, "__call__", recorded_call)
    assert RLAB(distortions=(GaussianNoise(),)).try_on(REAL, SMALL) == []
    assert severities == {1, 2, 3, 4, 5}


def test_extremes_reach_the_bounds():
    corners = extremes(Domain(kind="signal", shape=(2, 3), low=(-1.0, 0.0), high=(1.0, 4.0)))
    assert corners[:, :, 0].tolist() == [[-1.0, 0.0], [1.0, 4.0], [0.0, 2.0]]


SOURCE = """
from dataclasses import dataclass
from brinell.core.model import Access

@dataclass(frozen=True, kw_only=True)
class UserDistortion:
    domains = frozenset({"image"})
    access = Access.LABELS

    def draws(self, shape):
        return 1

    def __call__(self, x, severity, rng, draw):
        return FAULT
"""


@pytest.mark.slow
def test_a_plan_tries_it_on_the_data(tmp_path):
    model, x, y = TorchModel(mlp(16, 2), IMAGE), np.asarray(REAL), np.zeros(4, int)
    file = tmp_path / "own.py"
    file.write_text(SOURCE.replace("FAULT", "x.clone()"))
    plan = plan_of(
        model, x, y, attack=f"rlab?distortions={file}:UserDistortion&severities=2", norm="l2"
    )
    assert [line for line in plan.notes if "do not fill eps" in line]
    second_file = tmp_path / "other.py"
    second_file.write_text(SOURCE.replace("FAULT", "x / x.flatten(1).amax(1).reshape(-1, 1, 1, 1)"))
    with pytest.raises(ContractError, match="distortion UserDistortion answered NaN"):
        plan_of(model, x, y, attack=f"rlab?distortions={second_file}:UserDistortion", norm="l2")
