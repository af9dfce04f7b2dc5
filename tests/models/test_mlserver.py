"""An audit of a model behind a real server of the protocol: MLServer, in a separate environment."""

import json
import os

import numpy as np
import pytest

from _helpers import assert_same_rows
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.user_files import import_file
from brinell.models.digits_cnn import DigitsCnn
from brinell.store.run import Run

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def network():
    return DigitsCnn()(Domain(kind="image", shape=(1, 8, 8), levels=17))


@pytest.fixture(scope="module")
def served(root, network):
    example = import_file(root / "examples" / "served" / "serve.py")
    if not example.MLSERVER.is_file():
        pytest.skip("no inference server: `make server` makes its environment")
    with example.serving(network.module, "digits", (1, 8, 8)) as (url, pid):
        yield url
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_command_audits_it(tmp_path, capsys, monkeypatch, network, served):
    """The built-in network behind MLServer and in this process: the same rows."""
    monkeypatch.delenv("BRINELL_TOKEN", raising=False)
    out = tmp_path / "run"
    words = [
        "audit",
        "--data",
        "digits",
        "--samples",
        "40",
        "--eps",
        "0.05,0.1",
        "--attack",
        "square?steps=40",
    ]
    assert (
        cli([*words, "--model", f"{served}?name=digits-cnn&rows=16", "--out", str(out), "--json"])
        == 0
    )
    assert not json.loads(capsys.readouterr().out)["remarks"]
    records, manifest = Run.open(out).rows, Run.open(out).manifest
    forwards = (
        int(records.forwards.sum() + records.judge_forwards.sum())
        + manifest["probes"]["digits-cnn"]["forwards"]
    )
    assert manifest["traffic"]["digits-cnn"] == {
        "inputs": forwards,
        "requests": manifest["traffic"]["digits-cnn"]["requests"],
    }
    assert cli([*words, "--model", "digits-cnn", "--out", str(tmp_path / "here")]) == 0
    local_records = Run.open(tmp_path / "here").rows
    assert np.isin(["broken", "survived"], local_records.outcome).all()
    assert_same_rows(records, local_records)
    assert cli(["verify", str(out)]) == 0 and (out / "report.html").is_file()
