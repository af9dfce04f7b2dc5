"""Commands that launchers start several times: one answer, the same rows, and no process is in the
way of the others when it is killed.
"""

import os
import random
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec

import pytest

from _helpers import rows_of
from brinell.store.run import Run

AUDIT = ["audit", "--samples", "40", "--eps", "0:0.1:3", "--device", "cpu"]
AUDIT += ["--attack", "apgd-ce?steps=5", "--attack", "square?steps=20"]
LAUNCHERS = ("RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "JOB_COMPLETION", "MASTER_", "TORCHELASTIC")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**variables):
    variables_of_shell = {
        key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)
    }
    return variables_of_shell | {"OMP_NUM_THREADS": "1"} | variables


def start(words, **variables):
    return subprocess.Popen(
        [sys.executable, "-m", "brinell", *words],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def slurm(rank, size, port):
    place = {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size), "SLURM_LOCALID": str(rank)}
    return place | {"SLURM_JOB_NODELIST": "localhost", "MASTER_PORT": str(port)}


def facts_of(folder):
    return rows_of(Run.open(folder).rows, without=("seconds",))


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    """The rows of one rank, which insists on being one."""
    folder = tmp_path_factory.mktemp("one") / "run"
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    process = start(
        ["--on", "ranks", *AUDIT, "--out", str(folder)], **place, MASTER_PORT=str(free_port())
    )
    _, error = process.communicate()
    assert process.returncode == 0, error
    return facts_of(folder)


@pytest.mark.slow
def test_torchrun(tmp_path, by_one):
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "brinell"]
    process = subprocess.run(
        [sys.executable, *words, *AUDIT, "--out", str(tmp_path / "run")],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("page: ") == 1, "rank 0 alone prints the answer"
    assert facts_of(tmp_path / "run") == by_one
    assert not (tmp_path / "run" / ".token").exists()


@pytest.mark.slow
def test_slurm_and_a_scheduler_that_ends_the_job(tmp_path, by_one):
    """SIGTERM ends each rank with 143, and the same command with --resume goes on."""
    out = ["--out", str(tmp_path / "run")]
    port = free_port()
    processes = [start([*AUDIT, *out], **slurm(rank, 2, port)) for rank in range(2)]
    for line in processes[0].stderr:
        if "APGD" in line or "clean" in line:
            break
    for process in reversed(processes):
        process.send_signal(signal.SIGTERM)
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [143, 143], errors
    assert "go on with brinell audit --resume --out" in errors[0] and not errors[1]

    port = free_port()
    resumed = [start(["audit", "--resume", *out], **slurm(rank, 2, port)) for rank in range(2)]
    answers = [process.communicate() for process in resumed]
    assert [process.returncode for process in resumed] == [0, 0], answers
    assert answers[1][0] == "" and facts_of(tmp_path / "run") == by_one


@pytest.mark.slow
def test_ray(tmp_path, by_one):
    """The rows of a cluster of Ray that the command starts on this machine."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    process = start(["--on", "ray", *AUDIT, "--out", str(tmp_path / "run")])
    _, error = process.communicate()
    assert process.returncode == 0, error
    assert facts_of(tmp_path / "run") == by_one


@pytest.mark.slow
def test_ranks_that_do_not_belong_together(tmp_path):
    """Another command on a rank, and a port that is taken: one line, exit 2."""
    port = free_port()
    out = ["--out", str(tmp_path / "run")]
    first = start([*AUDIT, *out], **slurm(0, 2, port))
    second = start([*AUDIT, *out, "--seed", "1"], **slurm(1, 2, port))
    _, error = second.communicate()
    assert second.returncode == 2 and error.count("\n") == 1 and "its command is" in error
    first.send_signal(signal.SIGTERM)
    first.communicate()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = slurm(0, 2, listener.getsockname()[1])
        process = start([*AUDIT, "--out", str(tmp_path / "two")], **place)
        _, error = process.communicate()
    assert process.returncode == 2 and error.count("\n") == 1 and "cannot listen" in error
    assert not (tmp_path / "two").exists()


@pytest.mark.nightly
def test_eight_ranks_and_twenty_kills(tmp_path, by_one):
    """Ranks, rank 0 among them, are killed at random; what is missing is started again."""
    rng = random.Random(76)
    kills, runs = 0, 0
    while kills < 20:
        folder = tmp_path / f"run-{runs}"
        kills += _audit_with_kills(folder, rng, 20 - kills)
        assert facts_of(folder) == by_one
        runs += 1


def _audit_with_kills(folder, rng, most):
    """An audit on eight ranks, of which at most so many are killed; returns how many were."""
    processes, words, kills, port = {}, [*AUDIT, "--out", str(folder)], 0, free_port()
    while True:
        for rank in range(8):
            if rank not in processes:
                processes[rank] = start(words, **slurm(rank, 8, port))
        try:
            _, error = processes[0].communicate(
                timeout=rng.uniform(1, 12) if kills < most else None
            )
            assert processes[0].returncode == 0, error
            break
        except subprocess.TimeoutExpired:
            kills += 1
        victim = rng.randrange(8)
        for rank in range(8) if not victim else [victim]:  # without rank 0 the others end as well
            processes[rank].kill()
            processes.pop(rank).communicate()
        if not victim:
            port = free_port()
            if (folder / "run.toml").exists():
                words = ["audit", "--resume", "--out", str(folder)]
    for process in processes.values():
        process.communicate()
    return kills
