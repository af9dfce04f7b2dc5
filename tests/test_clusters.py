"""The files for clusters: what schedulers and Brinell read in them fits together."""

import re
import shlex
import subprocess

import pytest
import yaml

from brinell.cli.options import verb_of
from brinell.engine.ranks import find_place

SBATCH = {
    "job-name",
    "nodes",
    "ntasks-per-node",
    "gpus-per-task",
    "gpus-per-node",
    "cpus-per-task",
    "time",
    "signal",
    "requeue",
}


@pytest.fixture
def folder(root):
    return root / "examples" / "clusters"


def words_of_brinell(text):
    """The words after `brinell` in a command."""
    words = shlex.split(text)
    return words[words.index("brinell") + 1 :]


@pytest.mark.parametrize("name", ["slurm.sbatch", "slurm-ray.sbatch"])
def test_batch_files(folder, name):
    text = (folder / name).read_text(encoding="utf-8")
    assert text.startswith("#!/bin/bash\n")
    assert subprocess.run(["bash", "-n", folder / name], check=False).returncode == 0
    options = re.findall(r"^#SBATCH --([a-z-]+)", text, re.MULTILINE)
    assert set(options) <= SBATCH and len(options) == len(set(options))
    joined = text.replace("\\\n", " ")
    command = next(line for line in joined.splitlines() if "brinell" in line and "srun" in line)
    words = words_of_brinell(command)
    assert verb_of(words) == "audit" and "--out" in words
    if "ray" in name:
        assert words[:2] == ["--on", "ray:auto"] and "symmetric-run" in command
    else:
        assert "--resume" in words and "--on" not in words, "the launcher's variables say enough"


def test_indexed_job(folder):
    text = (folder / "indexed-job.yaml").read_text(encoding="utf-8")
    service, job = yaml.safe_load_all(text)
    spec = job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert job["kind"] == "Job" and spec["completionMode"] == "Indexed"
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert pod["subdomain"] == service["metadata"]["name"]

    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    words = [*container["command"][1:], *container["args"]]
    assert variables["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    for index in range(spec["completions"]):
        place = find_place(words[1], variables | {"JOB_COMPLETION_INDEX": str(index)})
        assert (place.rank, place.size) == (index, spec["parallelism"])
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert str(place.token_file.parent) in mounts
    assert verb_of(words) == "audit" and "--resume" in words
    assert {volume["name"] for volume in pod["volumes"]} == {
        mount["name"] for mount in container["volumeMounts"]
    }


def test_job_of_ray(folder):
    job = yaml.safe_load((folder / "rayjob.yaml").read_text(encoding="utf-8"))
    assert job["kind"] == "RayJob" and job["spec"]["shutdownAfterJobFinishes"]
    words = words_of_brinell(job["spec"]["entrypoint"])
    assert words[:2] == ["--on", "ray:auto"] and verb_of(words) == "audit"
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {group["template"]["spec"]["containers"][0]["image"] for group in groups}
    assert len(images) == 1, "one environment on all machines"
