"""The files for publishing have the form that their services ask for, and the steps of the workflow
run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from test_guides import python_blocks

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parent.parent / "examples" / "publish"
WORKFLOW = yaml.safe_load((FOLDER / "robustness.yml").read_text(encoding="utf-8"))


def test_form_of_the_workflow():
    assert {"name", True, "permissions", "env", "jobs"} == set(
        WORKFLOW
    )  # YAML 1.1 reads the key «on» as true
    assert set(WORKFLOW[True]) == {"pull_request", "push"}
    for job in WORKFLOW["jobs"].values():
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
    assert WORKFLOW["jobs"]["publish"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert WORKFLOW["jobs"]["publish"]["if"] == "github.ref == 'refs/heads/main'"


def test_head_of_the_space():
    text = (FOLDER / "space" / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---")[1])
    assert head["sdk"] == "static" and head["app_file"] == "index.html" and head["title"]


@pytest.mark.slow
@pytest.mark.nightly
def test_steps_of_the_workflow_run(tmp_path):
    inputs, labels = load_digits(return_X_y=True)
    np.savez(
        tmp_path / "test.npz",
        x=(inputs[:24].reshape(-1, 1, 8, 8) / 16).astype(np.float32),
        y=labels[:24],
    )
    network, *_ = python_blocks(FOLDER.parent.parent / "README.md")
    (tmp_path / "model.py").write_text(network)
    program = tmp_path / "bin" / "brinell"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m brinell "$@"\n')
    program.chmod(0o755)
    summary = tmp_path / "summary.md"
    variables = {name: str(value) for name, value in WORKFLOW["env"].items()} | {"LEAST": "0"}
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, **variables, "GITHUB_STEP_SUMMARY": str(summary), "PATH": path}
    steps = {
        step["name"]: step["run"] for step in WORKFLOW["jobs"]["audit"]["steps"] if "run" in step
    }
    assert list(steps) == ["install", "audit", "claim", "board", "gate"]
    results = {}
    for name, command in steps.items():
        if name != "install":
            results[name] = subprocess.run(
                ["bash", "-e", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True
            )
    # an untrained network is right on few samples: the gate may say no, and does so in its own
    # words
    assert {
        name: result.returncode for name, result in results.items() if name != "gate"
    } == dict.fromkeys(("audit", "claim", "board"), 0), results
    assert results["gate"].returncode in (0, 1) and "gate" in results["gate"].stdout
    assert "What was not tested" in summary.read_text()
    assert "1 model in" in (tmp_path / "site/index.html").read_text()
