"""The files for publishing have the form that their services ask for, and the steps of the workflow
and of the action run."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from test_guides import python_blocks

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "publish"
WORKFLOW = yaml.safe_load((FOLDER / "robustness.yml").read_text(encoding="utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


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


def test_form_of_the_action():
    """Texts of a workflow reach a shell as variables alone, and each input is used."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    steps = ACTION["runs"]["steps"]
    for step in steps:
        assert ("run" in step) != ("uses" in step)
        assert "uses" not in step or re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
        assert "${{" not in step.get("run", "")
        assert "uses" in step or step["shell"] == "bash"
    for name, values in ACTION["inputs"].items():
        assert f"inputs.{name} " in text and values["description"]
        assert values.get("required") or "default" in values
    names = {step["id"] for step in steps if "id" in step}
    for output in ACTION["outputs"].values():
        assert re.search(r"steps\.(\w+)\.", output["value"])[1] in names


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_form_of_an_issue(file):
    form = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert form["name"] and form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_container_holds_no_root_and_names_what_exists():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    words = [word for word, _ in steps]
    assert set(words) <= {"ARG", "FROM", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert words.index("USER") < words.index("ENTRYPOINT") and dict(steps)["USER"] == "brinell"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (extra,) = (value for word, value in steps if word == "ARG" and value.startswith("EXTRAS"))
    assert extra.partition("=")[2] in settings["project"]["optional-dependencies"]
    assert json.loads(dict(steps)["ENTRYPOINT"])[0] in settings["project"]["scripts"]


def environment_of(folder: Path) -> dict[str, str]:
    """A folder with a model and data, and programs of the names that a workflow calls."""
    inputs, labels = load_digits(return_X_y=True)
    np.savez(
        folder / "test.npz",
        x=(inputs[:24].reshape(-1, 1, 8, 8) / 16).astype(np.float32),
        y=labels[:24],
    )
    network, *_ = python_blocks(ROOT / "README.md")
    (folder / "model.py").write_text(network)
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {
        "brinell": f'exec {sys.executable} -m brinell "$@"',
        "pip": f'printf "%s\\n" "$@" > {folder}/pip.txt',
        "gh": f'printf "%s\\n" "$@" > {folder}/gh.txt',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}


@pytest.mark.slow
@pytest.mark.parametrize(("robust", "passed"), [("0.6", "false"), ("0", "true")])
def test_steps_of_the_action_run(tmp_path, robust, passed):
    """The action ends as its gate does, after it wrote the claim, the comment and the outputs."""
    settings = {"model": "model.py:factory", "data": "test.npz", "eps": "0.05", "robust": robust}
    settings |= {
        "settings": "--attack fgsm --attack square?steps=30 --seed 3",
        "samples": "20",
        "extras": "onnx",
    }
    outputs: dict[str, str] = {}
    fixed = {"github.token": "token", "github.event.pull_request.html_url": "REQUEST"}

    def value(text: str) -> str:
        values = {f"inputs.{name}": str(field.get("default", "")) for name, field in inputs.items()}
        values |= {f"inputs.{name}": text for name, text in settings.items()}
        return re.sub(
            r"\$\{\{ (.*?) \}\}", lambda match: (values | fixed | outputs)[match[1]], text
        )

    inputs, codes = ACTION["inputs"], {}
    env = environment_of(tmp_path) | {
        "GITHUB_OUTPUT": str(tmp_path / "outputs.txt"),
        "GITHUB_ACTION_PATH": "/action",
        "RUNNER_TEMP": str(tmp_path / "temp"),
    }
    for step in (step for step in ACTION["runs"]["steps"] if "run" in step):
        variables = {name: value(text) for name, text in step.get("env", {}).items()}
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        codes[step["name"]] = subprocess.run(command, cwd=tmp_path, env=env | variables).returncode
        if (tmp_path / "outputs.txt").exists():
            lines = (tmp_path / "outputs.txt").read_text().splitlines()
            outputs |= {
                f"steps.{step['id']}.outputs.{line.partition('=')[0]}": line.partition("=")[2]
                for line in lines
                if "id" in step
            }
    assert codes == dict.fromkeys(codes, 0) | {"gate": int(passed == "false")}
    assert outputs["steps.gate.outputs.passed"] == passed
    outcome = "passed" if passed == "true" else "failed"
    assert outputs["steps.gate.outputs.outcome"] == outcome
    assert (tmp_path / "pip.txt").read_text().split() == ["install", "/action[onnx]"]
    assert {"REQUEST", "--body-file"} <= set((tmp_path / "gh.txt").read_text().split())
    assert "What was not tested" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
@pytest.mark.nightly
def test_steps_of_the_workflow_run(tmp_path):
    variables = {name: str(value) for name, value in WORKFLOW["env"].items()} | {"LEAST": "0"}
    env = environment_of(tmp_path) | variables
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
    assert "What was not tested" in (tmp_path / "summary.md").read_text()
    assert "1 model in" in (tmp_path / "site/index.html").read_text()
