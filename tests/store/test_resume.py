"""A run that was stopped at any moment goes on and ends as one that never was."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from _helpers import (
    Recorder,
    assert_same_rows,
    plan_of,
    run_audit,
    run_in_process,
    run_plan,
    workspace,
)
from _refusals import refused
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.store.run import Run

ATTACKS = ("pgd?steps=3", "apgd-ce?steps=4")
RNG = np.random.default_rng(1)
X = np.stack([RNG.uniform(0.2, 0.55, 10), RNG.uniform(0.3, 0.7, 10)], 1).astype(np.float32)
Y = np.zeros(10, dtype=int)
EPS = "0.05:0.2:4"


def parabola(x):
    import torch

    z = 10 * (x[:, 0] + (x[:, 1] - 0.5) ** 2 - 0.5)
    return torch.stack([-z, z], 1)


def small_plan(**settings):
    # Groups of four samples, so that a stage has several units.
    return plan_of(
        Recorder(parabola), X, Y, **({"eps": EPS, "attack": ATTACKS, "batch_size": 1} | settings)
    )


def same_run(expected, actual):
    assert_same_rows(expected.rows, actual.rows)
    for model in expected.manifest["models"]:
        for stage in expected.manifest["stages"]:
            ids = range(expected.manifest["data"]["n"])
            a, b = (
                run.adversarial(model["name"], stage["name"], ids) for run in (expected, actual)
            )
            assert a.keys() == b.keys() and len(a) > 0 or stage["name"] != ATTACKS[0]
            for sample, array in a.items():
                np.testing.assert_allclose(b[sample], array, atol=1e-6)
    assert sorted(actual.manifest["files"]) == sorted(expected.manifest["files"])
    assert not (actual.path / ".parts").exists() and not list(actual.path.glob("**/*.tmp"))


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    return run_plan(small_plan(), tmp_path_factory.mktemp("whole") / "run")


class Killed(BaseException):
    """An exception that no except clause of the program catches."""


class StopAt:
    """Raises in place of the k-th call of a function of pathlib or os."""

    def __init__(self, k, function, error=Killed):
        self.k, self.function, self.error, self.calls = k, function, error, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls != self.k:
            return self.function(*args, **kwargs)
        raise self.error

    def patch(self, monkeypatch, name):
        def instead(path, *args, **kwargs):
            # Temporary files are deleted after each write; those deletions change nothing.
            return (self.function if path.name.endswith(".tmp") and name == "unlink" else self)(
                path, *args, **kwargs
            )

        monkeypatch.setattr(Path, name, instead)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["replace", "unlink"])
def test_killed_at_every_write(tmp_path, monkeypatch, full_run, name):
    """Before every file that is put in its place, and before every one that is deleted: the folder
    changes at no other moment.
    """
    k, finished = 0, False
    while not finished:
        k += 1
        out = tmp_path / str(k)
        with monkeypatch.context() as patch:
            stop = StopAt(k, getattr(Path, name))
            stop.patch(patch, name)
            try:
                run_plan(small_plan(), out)
                finished = True
            except Killed:
                pass
        if not finished:
            same_run(full_run, run_plan(small_plan(), out, resume=True))
            shutil.rmtree(out)
    assert k > 8, "the run was stopped at few moments only"


def test_killed_again_and_again(tmp_path, monkeypatch, full_run):
    """Each attempt is stopped a few files later than it began; nothing is computed twice, so it
    ends.
    """
    for attempt in range(100):
        with monkeypatch.context() as patch:
            StopAt(6, Path.replace).patch(patch, "replace")
            try:
                run = run_plan(small_plan(), tmp_path / "run", resume=attempt > 0)
                break
            except Killed:
                continue
    assert 3 < attempt < 60
    same_run(full_run, run)


def test_a_finished_run_is_not_computed_again(full_run):
    model = Recorder(parabola)
    resumed = run_plan(
        plan_of(model, X, Y, eps=EPS, attack=ATTACKS, batch_size=1), full_run.path, resume=True
    )
    assert not model.calls
    same_run(full_run, resumed)


def test_with_another_batch_size(tmp_path, monkeypatch, full_run):
    with monkeypatch.context() as patch:
        StopAt(12, Path.replace).patch(patch, "replace")
        with pytest.raises(Killed):
            run_plan(small_plan(), tmp_path / "run")
    same_run(full_run, run_plan(small_plan(batch_size=64), tmp_path / "run", resume=True))


def test_another_run_is_refused(tmp_path_factory, full_run, subtests):
    for changed, message in [
        ({"eps": "0.05:0.2:3"}, "eps was '0.05:0.2:4' and is '0.05:0.2:3'"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"attack": ATTACKS[:1]}, "attack was"),
        ({"norm": "l2"}, "norm was 'linf' and is 'l2'"),
        ({"samples": 5}, "samples was None and is 5"),
        ({"queries": 9}, "queries was None and is 9"),
    ]:
        with subtests.test(str((changed, message))):
            tmp_path = tmp_path_factory.mktemp("row")
            out = tmp_path / "run"
            shutil.copytree(full_run.path, out)
            before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
            with pytest.raises(RequestError, match="holds another run .*" + message):
                run_plan(small_plan(**changed), out, resume=True)
            assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_other_data_and_other_weights_are_refused(tmp_path, full_run):
    shutil.copytree(full_run.path, tmp_path / "run")
    settings = {"eps": EPS, "attack": ATTACKS, "batch_size": 1}
    with pytest.raises(RequestError, check=refused("studies.job.refuse_request")):
        run_audit(tmp_path / "run", Recorder(parabola), X + 0.001, Y, resume=True, **settings)
    changed_model = Recorder(parabola)
    changed_model.digest = lambda: "another digest"
    with pytest.raises(RequestError, check=refused("studies.job.refuse_request")):
        run_audit(tmp_path / "run", changed_model, X, Y, resume=True, **settings)


def test_a_run_that_nobody_asked_to_go_on_with(tmp_path, full_run):
    shutil.copytree(full_run.path, tmp_path / "run")
    with pytest.raises(
        RequestError, match="holds a run: add --resume to go on with it, or choose another --out"
    ):
        run_plan(small_plan(), tmp_path / "run")


# From the command line, with a model that dies or is interrupted at a given call


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("work"))


def command(work, out, *arguments):
    words = [
        "audit",
        "--data",
        f"npz:{work / 'data.npz'}",
        "--model",
        f"torch:{work / 'model.py'}:parabola",
        "--eps",
        EPS,
    ]
    for attack in ATTACKS:
        words += ["--attack", attack]
    return [*words, "--batch-size", "2", "--out", str(out), *arguments]


@pytest.fixture(scope="module")
def reference(work):
    assert cli(command(work, work / "reference")) == 0
    return Run.open(work / "reference")


@pytest.fixture(autouse=True)
def _no_calls_yet(monkeypatch):
    monkeypatch.setenv("TEST_CALLS", "0")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_sigkill(tmp_path_factory, work, reference, capfd, subtests):
    """Killed at this call of the model, resumed with nothing but the folder, killed once more, and
    resumed to the end."""
    for call_index in [1, 12, 45]:
        with subtests.test(str((call_index,))):
            tmp_path = tmp_path_factory.mktemp("row")
            out = tmp_path / "run"
            assert (
                run_in_process(command(work, out), TEST_KILL_AT=str(call_index), TEST_CALLS="0")
                == -9
            )
            if not any(file.name[0].isdigit() for file in (out / ".parts").glob("*.json")):
                assert cli(command(work, out)) == 0
            else:
                resume = ["audit", "--resume", "--out", str(out)]
                assert run_in_process(resume, TEST_KILL_AT="9", TEST_CALLS="0") == -9
                assert cli(resume) == 0
            same_run(reference, Run.open(out))
            assert (out / "report.html").exists()


@pytest.mark.parametrize("call_index", [4, 30])
def test_interrupted(tmp_path, work, reference, call_index, monkeypatch, capsys):
    out = tmp_path / "run"
    monkeypatch.setenv("TEST_INTERRUPT_AT", str(call_index))
    assert cli(command(work, out)) == 130
    error = capsys.readouterr().err
    assert (
        f"interrupted; what was computed is kept: go on with brinell audit --resume --out {out}"
        in error
    )
    assert "Traceback" not in error
    assert cli(["audit", "--resume", "--out", str(out)]) == 0
    same_run(reference, Run.open(out))


@pytest.mark.parametrize(
    "k", [15, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_a_full_disk_and_then_room(tmp_path, work, reference, monkeypatch, capsys, k):
    """At the k-th file: exit code 3, one line with what to type, and after that line was typed the
    run is whole.
    """
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", StopAt(k, os.fsync, OSError(28, "No space left on device")))
        assert cli(command(work, out)) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "the disk is full" in line and f"brinell audit --resume --out {out}" in line
    if k == 1:  # not even the request was written
        assert cli(["audit", "--resume", "--out", str(out)]) == 2
        assert f"{out} holds no run to resume" in capsys.readouterr().err
        assert cli(command(work, out, "--resume")) == 0
    else:
        assert cli(["audit", "--resume", "--out", str(out)]) == 0
    same_run(reference, Run.open(out))


def test_resume_needs_a_folder(capsys):
    assert cli(["audit", "--resume"]) == 2
    assert "--resume needs --out" in capsys.readouterr().err
