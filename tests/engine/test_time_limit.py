"""An audit whose time is up stops in order: what it found stands, and a resumed run ends like one
that was never stopped.
"""

import numpy as np
import pytest
import torch

from _helpers import Recorder, assert_same_rows, mlp, plan_of
from brinell.core.checks import TIME_UP
from brinell.core.domain import Domain
from brinell.core.record import CLEAN, has_broken
from brinell.engine.progress import SilentProgress
from brinell.engine.time_limit import TimeLimit
from brinell.store.run import Run
from brinell.studies import audits
from brinell.studies.register import study_of

ATTACK = ("fgsm", "apgd-ce?steps=8", "rlab?steps=40", "square?steps=30")
N = 40


class Countdown(TimeLimit):
    """A limit that is up after so many looks at it, whatever the time is."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks, self.is_lifted = looks, True

    def begin_share(self, models: int) -> None:
        self.is_lifted = False

    def lift(self) -> None:
        self.is_lifted = True

    @property
    def is_up(self) -> bool:
        self.looks -= 0 if self.is_lifted else 1
        return self.looks < 0 and not self.is_lifted


def models(count: int = 1) -> tuple[Recorder, ...]:
    domain = Domain(kind="image", shape=(1, 6, 6))
    networks = [mlp(36, seed=seed).eval() for seed in range(count)]
    return tuple(
        Recorder(lambda x, net=net: net(x.flatten(1)), domain, 3, name=f"net-{seed}")
        for seed, net in enumerate(networks)
    )


def data(model: Recorder) -> tuple[np.ndarray, np.ndarray]:
    x = torch.rand(N, 1, 6, 6, generator=torch.Generator().manual_seed(3))
    return x.numpy(), model.function(x).argmax(1).numpy()


def carry_out(folder, **settings) -> Run:
    audited = models(2)
    plan = plan_of(audited, *data(audited[0]), attack=ATTACK, batch_size=4)
    return audits.run_audit(plan, folder, SilentProgress(), command="from a test", **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped, and how often it looked at its limit."""
    limit = Countdown(10**6)
    run = carry_out(tmp_path_factory.mktemp("whole") / "run", limit=limit)
    return run, 10**6 - limit.looks


def smallest(run: Run, name: str) -> np.ndarray:
    """(n,) the smallest budget at which each sample was broken, inf for none."""
    records = run.rows
    of_model = (records.model == name) & has_broken(records)
    least = np.full(N, np.inf)
    np.minimum.at(least, records.sample_id[of_model], records.broken[of_model])
    return least


@pytest.mark.parametrize("share", np.random.default_rng(5).uniform(size=6).round(3).tolist())
def test_a_stopped_run_is_an_upper_bound_and_is_resumed(whole, tmp_path, share):
    unstopped, looks = whole
    run = carry_out(tmp_path / "run", limit=Countdown(int(share * looks)))
    left = run.manifest["left"]
    warnings = [entry for entry in run.manifest["warnings"] if entry["code"] == TIME_UP]
    assert left and [entry["model"] for entry in warnings] == list(left)
    study = study_of(run.path)
    result = study.open(run.path)
    assert result.exit_code == 3
    for model in result.models:
        assert (smallest(run, model.name) >= smallest(unstopped, model.name)).all()
        assert model.complete == (model.name not in left)
        # Stages come in turn: those that are left are the last.
        assert list(left.get(model.name, [])) == list(ATTACK)[-len(left.get(model.name, [])) :]
        assert (run.of_stage(model.name, CLEAN).sample_id == np.arange(N)).all()
    assert TIME_UP in study.write_page(run.path).read_text()

    resumed = carry_out(run.path, resume=True)
    assert "left" not in resumed.manifest and study.open(run.path).exit_code == 0
    assert_same_rows(resumed.rows, unstopped.rows)
    assert resumed.manifest["checks"].keys() == unstopped.manifest["checks"].keys()
