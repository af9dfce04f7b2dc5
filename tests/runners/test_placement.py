"""Commands whose processes Ray or SLURM starts: the options of every verb with shards, and the folder of one process."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from _helpers import rows_of, workspace
from _pictures import write_pictures
from brinell.cli import run as cli
from brinell.core.errors import StoppedError
from brinell.runners import placement, slurm
from brinell.runners.task import Outcome
from brinell.store.run import Run
from brinell.studies import register

ROOT = Path(__file__).parents[2]
VERBS = sorted(verb for verb, study in register.studies().items() if study.shards)


@pytest.fixture(autouse=True)
def _processes(monkeypatch):
    """Processes find this checkout, and ask no cluster for a token."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


def fake_ray(monkeypatch, outcomes=None):
    """Ray that runs tasks one after the other, or gives the outcomes of none; returns the settings of its cluster."""
    settings = {}

    def remote(**resources):
        settings.update(resources)
        run = (lambda function, *values: function(*values)) if outcomes is None else (lambda *_: outcomes.pop(0))
        return lambda function: SimpleNamespace(remote=lambda *values: run(function, *values))

    fake = SimpleNamespace(init=lambda **options: settings.update(options), shutdown=dict, remote=remote, get=list)
    monkeypatch.setitem(sys.modules, "ray", fake)
    return settings


def folder(path):
    path.mkdir()
    return path


def audit_words(work, out):
    words = ["audit", "--data", f"npz:{work / 'data.npz'}", "--model", f"torch:{work / 'model.py'}:parabola"]
    return [*words, "--eps", "0.05, 0.1", "--attack", "pgd?steps=2", "--batch-size", "2", "--out", str(out)]


@pytest.mark.nightly
def test_a_run_on_ray_is_that_of_one_process(tmp_path, monkeypatch, capsys):
    """The answer too; relative paths mean those of the folder where the command was typed."""
    work = workspace(folder(tmp_path / "work"))
    assert cli(audit_words(work, tmp_path / "alone")) == 0
    settings = fake_ray(monkeypatch)
    monkeypatch.chdir(tmp_path)
    words = [word.replace(str(tmp_path), ".") for word in audit_words(work, "run")]
    capsys.readouterr()
    assert cli([*words, "--on", "ray:10.0.0.1:6379", "--tasks", "2", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["run"] and f"note: 2 tasks on ray; `brinell progress {tmp_path / 'run'}`" in captured.err
    assert settings["address"] == "10.0.0.1:6379" and settings["num_gpus"] == 0
    assert rows_of(Run.open(Path("run")).records()) == rows_of(Run.open(Path("alone")).records())


def test_a_run_as_jobs_of_submitit(tmp_path, monkeypatch):
    """With the real library, on this machine in place of SLURM."""
    pytest.importorskip("submitit", reason="submitit is not installed, which queues jobs: pip install brinell[slurm]")
    work, submit, parameters = workspace(folder(tmp_path / "work")), slurm.submit, {}

    def local(*values, cluster, **options):
        parameters.update(options, cluster=cluster)
        return submit(*values, logs=options["logs"], cluster="local", timeout_min=5)

    monkeypatch.setattr(slurm, "submit", local)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert cli([*audit_words(work, tmp_path / "run"), "--on", "slurm:gpu", "--tasks", "2"]) == 0
    assert parameters["slurm_partition"] == "gpu" and parameters["cluster"] == "slurm" and "gpus_per_node" not in parameters
    assert Run.open(tmp_path / "run").manifest["state"] == "finished"
    (work / "data.npz").unlink()
    assert cli([*audit_words(work, tmp_path / "other"), "--on", "slurm", "--tasks", "2"]) == 2


def test_every_verb_with_shards_hands_its_settings_on(tmp_path_factory, monkeypatch, capsys, subtests):
    """The command of a task means the same settings: typed again, it becomes itself."""
    for verb in VERBS:
        for on in ["ray", "ray:auto", "slurm", "slurm:gpu"]:
            with subtests.test(str((verb, on))):
                tmp_path = tmp_path_factory.mktemp("row")
                commands = []

                def record(self, arguments, *, device, message):
                    commands.append((list(arguments), device))
                    raise StoppedError("recorded")

                monkeypatch.setattr(placement.Placement, "carry_out", record)
                fields = register.load(verb).request.model_fields
                words = ["--seed", "7"] * ("seed" in fields) + ["--device", "cuda:0"] * ("device" in fields) + ["--samples", "9"]
                ending = ["--out", str(tmp_path / "run"), "--on", on, "--tasks", "3"]
                data = ["digits"] if register.load(verb).positional[:1] == ("data",) else ["--data", "digits"]
                if verb == "dense":
                    pictures, network = write_pictures(tmp_path / "pictures")
                    data = ["--data", pictures, "--model", network]
                if verb == "dense-transfer":
                    pictures, network = write_pictures(tmp_path / "pictures")
                    data = ["--data", pictures, "--model", f"{network}?name=one", "--model", f"{network}?name=two"]
                assert cli([verb, *words, *data, *ending]) == 3
                assert cli([*commands[0][0], *ending]) == 3
                assert commands[0] == commands[1] and "cuda:0" in commands[0][1]
                assert not {"--on", "--tasks", "--shard", "--out"} & set(commands[0][0])
                capsys.readouterr()


def test_verbs_without_shards_have_no_place(capsys):
    for verb in register.entries():
        if verb not in VERBS:
            assert cli([verb, "--on", "ray"]) == 2, verb
            assert "has no option --on" in capsys.readouterr().err


OUT = ["--out", "run"]


def test_refusals_in_one_line(tmp_path_factory, monkeypatch, capsys, subtests):
    for words, message in [
        (["--on", "rya", "--tasks", "2", *OUT], "--on is 'rya', did you mean 'ray'?: write ray, ray:ADDRESS, slurm or slurm:"),
        (["--on", "ray:", "--tasks", "2", *OUT], "--on is 'ray:': write ray, ray:ADDRESS"),
        (["--on", "ray", *OUT], "--tasks is missing: give the number of processes to start"),
        (["--on", "slurm", "--tasks", "0", *OUT], "--tasks is 0: give the number of processes"),
        (["--on", "ray", "--tasks", "2"], "--on needs --out"),
        (["--on", "ray", "--tasks", "2", "--shard", "1/2", *OUT], "leave --shard out"),
        (["--tasks", "2", *OUT], "--tasks is for --on"),
        (["--on", "ray", "--tasks", "2", "--metrics", "m.prom", *OUT], "--metrics is for one process"),
        (["--on", "ray", "--tasks", "2", *OUT], "started by Ray, which is not installed: pip install brinell[ray]"),
        (["--on", "slurm", "--tasks", "2", *OUT], "queued by submitit, which is not installed: pip install brinell[slurm]"),
    ]:
        with subtests.test(str((words, message))):
            tmp_path = tmp_path_factory.mktemp("row")
            monkeypatch.chdir(tmp_path)
            for module in ("ray", "submitit"):
                monkeypatch.setitem(sys.modules, module, None)
            assert cli(["audit", *words]) == 2
            error = capsys.readouterr().err
            assert message in error and error.count("\n") == 1 and not list(tmp_path.iterdir())


def test_slurm_needs_sbatch(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli(["audit", "--on", "slurm", "--tasks", "2", "--out", str(tmp_path / "run")]) == 2
    assert "this machine has no sbatch" in capsys.readouterr().err


def test_tasks_that_fail(tmp_path_factory, monkeypatch, capsys, subtests):
    for outcomes, code, message in [
        ([Outcome(2, "there is no file x"), Outcome(2, "")], 2, "2 of 2 tasks on ray failed (there is no file x): correct the"),
        (
            [Outcome(-9, ""), Outcome(3, "the disk is full")],
            3,
            "2 of 2 tasks on ray failed (the disk is full): start the command",
        ),
        ([Outcome(-9, ""), Outcome(-9, "")], 3, "failed (exit code -9)"),
    ]:
        with subtests.test(str((outcomes, code, message))):
            tmp_path = tmp_path_factory.mktemp("row")
            fake_ray(monkeypatch, outcomes)
            assert cli(["audit", "--on", "ray", "--tasks", "2", "--out", str(tmp_path / "run")]) == code
            assert message in capsys.readouterr().err


def test_a_cluster_that_is_not_there(tmp_path, monkeypatch, capsys):
    fake_ray(monkeypatch)

    def init(**options):
        raise ConnectionError("ray.init() could not\nreach it")

    sys.modules["ray"].init = init
    assert cli(["audit", "--on", "ray:auto", "--tasks", "2", "--out", str(tmp_path / "run")]) == 2
    assert "Ray cannot run the tasks (ray.init() could not reach it): correct the address in --on" in capsys.readouterr().err
