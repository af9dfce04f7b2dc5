"""The adapters to submitit and Ray: the same run as of one process, started by others."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from _helpers import rows_of, workspace
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.runners import ray, slurm, task
from brinell.store.run import Run

ROOT = Path(__file__).parents[2]


def command(work, out):
    words = ["audit", "--data", f"npz:{work / 'data.npz'}", "--model", f"torch:{work / 'model.py'}:parabola"]
    return [*words, "--eps", "0.05, 0.1", "--attack", "pgd?steps=2", "--batch-size", "2", "--quiet", "--out", str(out)]


@pytest.fixture(scope="module")
def single_run(tmp_path_factory):
    work = workspace(tmp_path_factory.mktemp("work"))
    assert cli(command(work, work / "alone")) == 0
    return work


@pytest.fixture(autouse=True)
def _workspace(monkeypatch):
    """Processes find this checkout, and none of them shares its threads."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def equal(work, out):
    assert rows_of(Run.open(out).records()) == rows_of(Run.open(work / "alone").records())


@pytest.fixture
def no_token(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    return tmp_path / "token"


def test_submitit_on_this_machine(single_run, tmp_path):
    pytest.importorskip("submitit", reason="submitit is not installed, which queues jobs: pip install brinell[slurm]")
    jobs = slurm.submit(command(single_run, tmp_path / "run"), 2, logs=tmp_path / "logs", cluster="local", timeout_min=5)
    assert [job.result() for job in jobs] == [0, 0]
    equal(single_run, tmp_path / "run")


@pytest.mark.nightly
def test_any_verb_in_shards(single_run, tmp_path_factory, subtests):
    """A worker's command line is that of the verb."""
    for verb in ["benchmark", "transfer", "explain"]:
        with subtests.test(str((verb,))):
            tmp_path = tmp_path_factory.mktemp("row")
            arguments = [
                "--data",
                f"npz:{single_run / 'data.npz'}",
                "--model",
                f"torch:{single_run / 'model.py'}:parabola",
                "--samples",
                "4",
            ]
            extra_arguments = {
                "benchmark": ["--steps", "5", "--refine", "0"],
                "transfer": ["--eps", "0.1"],
                "explain": ["--method", "random"],
            }
            words = [verb, *arguments, *extra_arguments[verb], "--quiet", "--out", str(tmp_path / "out")]
            task.check_arguments(words)
            assert task.run_command([*words, "--shard", "2/2"]) == (0, "")
            assert (tmp_path / "out" / "manifest.json").exists() and not (tmp_path / "out" / "shards").exists()


@pytest.mark.slow
def test_a_job_that_fails_says_so(capfd):
    with pytest.raises(RuntimeError, match="brinell plugins ended with exit code 2: .*nosuch"):
        slurm.CommandJob(["plugins", "--nosuch"])()
    assert "nosuch" in capfd.readouterr().err


def test_a_job_that_is_pre_empted_is_queued_again():
    pytest.importorskip("submitit", reason="submitit is not installed, which queues jobs: pip install brinell[slurm]")
    worker = slurm.CommandJob(["audit"])
    resubmission = worker.checkpoint()
    assert resubmission.function is worker and resubmission.args == ()


TWO_TASKS = """
import runpy
import sys

_, script, first, second, *words = sys.argv
for out in (first, second):
    sys.argv = [script, "2", *words, "--out", out]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
"""


@pytest.mark.nightly
def test_ray_on_this_machine(single_run, tmp_path, no_token):
    """Twice in a child process, so that what Ray leaves behind does not affect other tests."""
    pytest.importorskip("ray", reason="ray is not installed: pip install brinell[ray]")
    outs = [str(tmp_path / "first"), str(tmp_path / "second")]
    *words, option, _ = command(single_run, tmp_path)
    assert option == "--out"
    script = [sys.executable, "-c", TWO_TASKS, str(ROOT / "examples" / "scale" / "on_ray.py"), *outs, *words]
    process = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    for out in outs:
        equal(single_run, out)


TWO_NODES = """
import sys
from ray.cluster_utils import Cluster
from brinell.runners import ray

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
outcomes = ray.run(sys.argv[1:], 2, address=cluster.address)
cluster.shutdown()
sys.exit(max(outcome.code for outcome in outcomes))
"""


@pytest.mark.nightly
def test_a_cluster_of_ray_by_its_address(single_run, tmp_path, no_token, monkeypatch):
    """Two nodes on this machine that share a token."""
    pytest.importorskip("ray", reason="ray is not installed: pip install brinell[ray]")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    script = [sys.executable, "-c", TWO_NODES, *command(single_run, tmp_path / "run")]
    process = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    equal(single_run, tmp_path / "run")


@pytest.mark.parametrize("call", [slurm.submit, ray.run])
def test_processes_must_meet_somewhere(call):
    with pytest.raises(RequestError, match="the command names no --out"):
        call(["audit", "run.toml"], 2)
    with pytest.raises(RequestError, match="each of its processes is given its own of: leave it out"):
        call(["audit", "run.toml", "--out=x", "--shard=1/2"], 2)


def test_a_cluster_of_ray_asks_for_a_token(no_token, monkeypatch):
    with (
        pytest.raises(RequestError, match=f"there is none in {no_token}: copy that of the cluster's head there"),
        ray.cluster_token("auto"),
    ):
        pass
    for name, value in (("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "0" * 64)):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with ray.cluster_token("auto"):
                pass
    no_token.write_text("0" * 64)
    with ray.cluster_token("auto"), ray.cluster_token(None):
        assert "RAY_AUTH_TOKEN" not in os.environ, "the cluster's is used"


@pytest.mark.parametrize(("address", "is_asked"), [(None, "local"), ("10.0.0.1:6379", "10.0.0.1:6379")])
def test_without_an_address_no_cluster_is_looked_for(no_token, monkeypatch, address, is_asked):
    """Ray left to itself asks one that an earlier run left behind, whether it is alive or not."""
    settings = stand_in(monkeypatch)
    ray.run(["audit", "run.toml", "--out", "x"], 2, address=address)
    assert settings["address"] == is_asked


def test_fewer_tasks_than_shards_begin_apart(no_token, monkeypatch, subtests):
    for tasks, begin in [
        (None, ["1/4", "2/4", "3/4", "4/4"]),
        (4, ["1/4", "2/4", "3/4", "4/4"]),
        (2, ["1/4", "3/4"]),
        (1, ["1/4"]),
    ]:
        with subtests.test(str((tasks, begin))):
            stand_in(monkeypatch)
            commands = ray.run(["audit", "run.toml", "--out", "x"], 4, tasks=tasks)
            assert commands == [["audit", "run.toml", "--out", "x", "--shard", number] for number in begin]


@pytest.mark.parametrize("tasks", [0, 5])
def test_more_tasks_than_shards_are_refused(no_token, monkeypatch, tasks):
    settings = stand_in(monkeypatch)
    with pytest.raises(RequestError, match=f"{tasks} tasks cannot share 4 shards: take from 1 to 4"):
        ray.run(["audit", "run.toml", "--out", "x"], 4, tasks=tasks)
    assert not settings, "nothing was started"


def stand_in(monkeypatch):
    """A stand-in for Ray that starts nothing and records its settings."""
    settings = {}
    fake = SimpleNamespace(
        init=lambda **options: settings.update(options),
        shutdown=lambda: None,
        remote=lambda **_: lambda _: SimpleNamespace(remote=lambda words, folder: words),
        get=lambda commands: commands,
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    return settings


def test_a_cluster_of_our_own_gets_the_token_of_this_process(no_token):
    tokens = []
    for _ in range(2):
        with ray.cluster_token(None):
            tokens.append(os.environ["RAY_AUTH_TOKEN"])
        assert "RAY_AUTH_TOKEN" not in os.environ and not no_token.exists()
    assert len(tokens[0]) == 64 and tokens[0] == tokens[1], (
        "Ray reads it once, and would show the first one to the second cluster"
    )


def test_without_the_packages_a_line_says_what_to_install(monkeypatch):
    for name, call in (("submitit", slurm.submit), ("ray", ray.run)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(RequestError, match=r"which is not installed: pip install brinell\["):
            call(["audit", "run.toml", "--out", "x"], 2)
