"""Tests of hardening on a benchmark set: which inputs the training uses, and which it leaves out."""

import numpy as np
import pytest

import brinell
from _hardening import harden_arguments, samples
from brinell.cli import run as cli
from brinell.engine.progress import SilentProgress
from brinell.studies.harden import STUDY, HardenRequest
from brinell.studies.harden.run import make_plan
from brinell.studies.kit import Call


@pytest.fixture(scope="module")
def benchmark_set(workspace):
    """A benchmark set of the correctly classified among forty training samples."""
    spec = f"{workspace / 'model.py'}:network"
    settings = {
        "eps": "2",
        "distortions": "gaussian-noise+salt-and-pepper",
        "steps": 20,
        "samples": 40,
        "levels": "1",
    }
    return brinell.benchmark(
        spec,
        str(workspace / "train.npz"),
        out=workspace / "set",
        progress=SilentProgress(),
        device="cpu",
        patch="1",
        **settings,
    ).folder


def plan_with_set(workspace, benchmark_set, **settings):
    request = HardenRequest(
        data=str(workspace / "test.npz"),
        train=str(workspace / "train.npz"),
        model=f"{workspace / 'model.py'}:network",
        eps="0.15",
        recipe=f"plain+benchmark-set(path={benchmark_set})",
        batch_size=32,
        **settings,
    )
    return make_plan(Call(study=STUDY, request=request, command="", progress=SilentProgress()))


def test_examples_of_validation_samples_are_left_out(workspace, benchmark_set):
    plan = plan_with_set(workspace, benchmark_set)
    (stored,) = plan.examples.values()
    names = stored.dataset.info.names
    sources = {int(name.removeprefix("sample ")) for name in names}
    validation = set(plan.validation_positions.tolist())
    assert sources & validation, "the set contains validation samples"
    trained = {int(names[row].removeprefix("sample ")) for row in stored.rows}
    assert trained == sources - validation and trained


@pytest.mark.slow
def test_distortions_of_the_set_are_marked_as_seen(workspace, benchmark_set, tmp_path):
    recipe = f"plain+benchmark-set(path={benchmark_set})"
    assert (
        cli(
            harden_arguments(
                workspace, tmp_path / "out", "--recipe", recipe, "--epochs", "1", "--samples", "20"
            )
        )
        == 0
    )
    rows = {row.name: row.seen for row in brinell.open(tmp_path / "out").unseen}
    assert rows["gaussian-noise"] and not rows["dead-pixel"]
    assert not rows["PGD, 20 steps, Linf 0.15"], "the training had no eps"


@pytest.mark.slow
def test_a_set_of_validation_samples_only_is_rejected(workspace, benchmark_set, tmp_path, capsys):
    x, y = samples(256, 0)
    plan = plan_with_set(workspace, benchmark_set)
    np.savez(workspace / "held.npz", x=x[plan.validation_positions], y=y[plan.validation_positions])
    spec = f"{workspace / 'model.py'}:network"
    folder = brinell.benchmark(
        spec,
        str(workspace / "held.npz"),
        out=workspace / "held-set",
        progress=SilentProgress(),
        device="cpu",
        patch="1",
        eps="2",
        distortions="salt-and-pepper",
        steps=20,
        samples=26,
        levels="1",
    ).folder
    assert (
        cli(
            harden_arguments(
                workspace, tmp_path / "out", "--recipe", f"plain+benchmark-set(path={folder})"
            )
        )
        == 2
    )
    assert "derives from a validation sample" in capsys.readouterr().err
