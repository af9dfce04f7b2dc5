"""`brinell audit --minutes` at the command line."""

import json
from unittest.mock import Mock

import pytest

from _cli import audit_arguments
from _refusals import refused
from brinell.core.checks import TIME_UP
from brinell.core.errors import RequestError
from brinell.studies.register import study_of


def test_the_command_stops_and_says_how_to_go_on(work, tmp_path, ask):
    folder = str(tmp_path / "run")
    code, answer = ask(*audit_arguments(work, folder, "--minutes", "1e-9"))
    assert code == 3 and not answer["complete"]
    (warning,) = [entry for entry in answer["warnings"] if entry["code"] == TIME_UP]
    assert f"--resume --out {folder}" in warning["text"]
    assert all(
        rate["k"] == answer["models"][0]["clean_accuracy"]["k"]
        for rate in answer["models"][0]["robust_accuracy"]
    )
    with pytest.raises(RequestError, check=refused("studies.audit.run.repetition")):
        study_of(tmp_path / "run").resolve("run:repetition")(
            Mock(models=tuple), tmp_path / "run", None
        )

    code, answer = ask("audit", "--resume", "--out", folder)
    assert (
        code == 0
        and answer["complete"]
        and answer["models"][0]["robust_accuracy"][-1]["k"] < answer["n"]
    )
    assert "left" not in json.loads((tmp_path / "run" / "manifest.json").read_text())
