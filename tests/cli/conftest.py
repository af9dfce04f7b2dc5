"""Runs that the tests of the command line share, and the two ways to call it: for an answer, and
for a refusal.
"""

import json
import re
import shutil

import jsonschema
import pytest

from _cli import audit_arguments
from _helpers import workspace
from brinell.cli import run as cli
from brinell.cli.options import verb_of


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    return workspace(tmp_path_factory.mktemp("work"), n=24)


@pytest.fixture(autouse=True)
def _work_folder(monkeypatch, tmp_path):
    # A run folder that nobody named lands in the temporary folder, not in the checkout.
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def good(work):
    """A run of one model."""
    assert cli(audit_arguments(work, work / "good")) == 0
    return work / "good"


@pytest.fixture(scope="session")
def pair(work, tmp_path_factory):
    """A run of two models: one whose boundary is farther away."""
    model = "parabola?name=near parabola?name=far&args=at=0.7"
    out = tmp_path_factory.mktemp("two") / "pair"
    assert cli(audit_arguments(work, out, model=model)) == 0
    return out


@pytest.fixture
def copy(good, tmp_path):
    """A copy of the good run to spoil."""
    return shutil.copytree(good, tmp_path / "copy")


@pytest.fixture
def ask(capsys, root):
    """Runs a verb with --json: (exit code, the one object on standard output), checked against its
    schema.
    """

    def ask(*arguments, schema=None):
        capsys.readouterr()
        code = cli([str(argument) for argument in (*arguments, "--json")])
        out, err = capsys.readouterr()
        assert out.count("\n") == 1 and out.endswith("\n"), (
            "more than one JSON object on standard output"
        )
        answer = json.loads(out)
        name = schema or verb_of(list(map(str, arguments)))
        jsonschema.validate(
            answer, json.loads((root / "docs" / "schema" / f"{name}.json").read_text())
        )
        assert "Traceback" not in err
        return code, answer

    return ask


@pytest.fixture
def refuse(capsys):
    """Runs what must be refused: (exit code, the one line on standard error), and nothing on
    standard output.
    """

    def refuse(*arguments, code=2):
        capsys.readouterr()
        assert cli([str(argument) for argument in arguments]) == code
        out, err = capsys.readouterr()
        lines = [
            line
            for line in err.splitlines()
            if not re.match(r"brinell: \S+ \S+: [\d,]+ samples, ", line)
        ]
        assert len(lines) == 1 and lines[0].startswith("brinell: error: "), err
        assert out == "" and "Traceback" not in err
        return lines[0]

    return refuse
