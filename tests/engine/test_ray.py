"""Workers on Ray make the rows of any number of workers; Ray is beside the environment (`make
extras`).
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import brinell
from brinell.engine.ray_pool import RayPool
from brinell.store.run import Run
from brinell.testing.studies import rows_match, rows_of

SETTINGS = {
    "samples": 60,
    "eps": "0:0.1:3",
    "attack": ("apgd-ce?steps=10", "square?steps=40"),
    "progress": False,
}


@pytest.fixture
def counts(monkeypatch):
    """Lets a test say how many workers there are."""
    pytest.importorskip("ray")
    count = [1]
    open_workers = RayPool.open_workers

    def some(pool, shared):
        workers = open_workers(pool, shared)
        return workers[: count[0]]

    monkeypatch.setattr(RayPool, "open_workers", some)
    return count


@pytest.mark.nightly
def test_an_audit_and_a_study_on_ray(tmp_path, counts):
    for count in (1, 2):
        counts[0] = count
        brinell.audit("digits-cnn", "digits", out=tmp_path / f"run-{count}", on="ray", **SETTINGS)
        smoothing = {"method": "smoothing?draws=200", "samples": 6, "on": "ray", "progress": False}
        brinell.certify("digits-cnn", "digits", out=tmp_path / f"smooth-{count}", **smoothing)
    first, second = (Run.open(tmp_path / f"run-{count}").records() for count in (1, 2))
    for name in ("sample_id", "attack", "broken", "margin", "linf", "forwards"):
        assert (
            np.ma.filled(getattr(first, name), -1).tolist()
            == np.ma.filled(getattr(second, name), -1).tolist()
        )
    assert rows_match(rows_of(tmp_path / "smooth-1"), rows_of(tmp_path / "smooth-2"))


def test_what_is_refused(monkeypatch):
    for on in ("slurm", "ray:", "rays"):
        with pytest.raises(brinell.BrinellError, match="write ray or ray:ADDRESS"):
            RayPool(on, lambda channel: None, gpus=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(brinell.BrinellError, match="Ray is not installed"):
        RayPool("ray", lambda channel: None, gpus=False)


def test_what_does_not_start_is_the_environment(monkeypatch):
    """Ray raises a bare Exception where its processes do not come up in time."""

    def init(**settings):
        raise Exception("The current node timed out during startup.")

    stopped = []
    ray = SimpleNamespace(init=init, shutdown=lambda: stopped.append(True))
    monkeypatch.setitem(sys.modules, "ray", ray)
    for on, code, words in (
        ("ray", 3, "may be too busy"),
        ("ray:ray://nowhere:1", 2, "correct the address"),
    ):
        with pytest.raises(brinell.BrinellError, match=words) as caught:
            RayPool(on, lambda channel: None, gpus=False)
        assert caught.value.exit_code == code
    assert len(stopped) == 2
