"""Hardening on a benchmark set: what is learned of it, and what is kept apart."""

import numpy as np
import pytest

import brinell
from _hardening import samples, words
from brinell.cli import run as cli
from brinell.engine.progress import Silent
from brinell.studies.harden.plan import make_plan
from brinell.studies.harden.request import HardenRequest


@pytest.fixture(scope="module")
def made(work):
    """A set of those of a hundred training samples that are right."""
    spec = f"{work / 'model.py'}:network"
    settings = {"eps": "2", "distortions": "gaussian-noise+salt-and-pepper", "steps": 20, "samples": 100, "levels": "1"}
    return brinell.benchmark(
        spec, str(work / "train.npz"), out=work / "set", progress=Silent(), device="cpu", patch="1", **settings
    ).folder


def planned(work, made, **more):
    return make_plan(
        HardenRequest(
            data=str(work / "test.npz"), train=str(work / "train.npz"), model=f"{work / 'model.py'}:network", eps="0.15",
            recipe=f"plain+benchmark-set(path={made})", batch_size=32, **more,
        )
    )  # fmt: skip


def test_what_was_made_of_a_validation_sample_is_not_learned(work, made):
    plan = planned(work, made)
    (brought,) = plan.brought.values()
    names = brought.dataset.info.names
    of = {int(name.removeprefix("sample ")) for name in names}
    held = set(plan.held.tolist())
    assert of & held, "the set was made of validation samples too"
    learned = {int(names[at].removeprefix("sample ")) for at in brought.rows}
    assert learned == of - held and learned


def test_the_distortions_that_it_was_made_by_are_seen(work, made, tmp_path):
    recipe = f"plain+benchmark-set(path={made})"
    assert cli(words(work, tmp_path / "out", "--recipe", recipe, "--epochs", "1", "--samples", "20", "--quiet")) == 0
    rows = {row.name: row.seen for row in brinell.studies.harden.analysis.summarise(tmp_path / "out").unseen}
    assert rows["gaussian-noise, severity 3"] and not rows["dead-pixel, severity 3"]
    assert not rows["PGD, 20 steps, linf 0.15"], "no eps was trained for"


def test_a_set_of_validation_samples_alone_is_refused(work, made, tmp_path, capsys):
    x, y = samples(256, 0)
    plan = planned(work, made)
    np.savez(work / "held.npz", x=x[plan.held], y=y[plan.held])
    spec = f"{work / 'model.py'}:network"
    alone = brinell.benchmark(
        spec, str(work / "held.npz"), out=work / "held-set", progress=Silent(), device="cpu", patch="1", eps="2",
        distortions="salt-and-pepper", steps=20, samples=26, levels="1",
    ).folder  # fmt: skip
    assert cli(words(work, tmp_path / "out", "--recipe", f"plain+benchmark-set(path={alone})")) == 2
    assert "was made of a sample that is set aside for validation" in capsys.readouterr().err
