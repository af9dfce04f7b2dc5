"""Audits of models behind a server: faults leave no trace in the records, and what fails is said."""

import numpy as np
import pytest
import torch

from _helpers import Recorder, assert_same_rows, cells_of, mlp, rows_of, run_audit, states_of
from _inference_server import InferenceServer
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.model import Access
from brinell.core.record import Outcome
from brinell.models.http import Http
from brinell.store.run import Run
from brinell.studies.register import write_page

SIX = Domain(kind="vector", shape=(6,))
NET = mlp(6, 3)
X = torch.rand(24, 6, generator=torch.Generator().manual_seed(3))
Y = NET(X).argmax(1)
REQUEST = {"eps": "0.05:0.15:3", "attack": ("square?steps=30",), "batch_size": 16}
QUICK = {"backoff": 0.001, "timeout": 10.0, "rows": 8}
COSTS = ("seconds",)


def served(x):
    """The network's answers, each row by itself, so that its float bits do not depend on how
    requests are cut."""
    with torch.no_grad():
        return torch.cat(
            [NET(row[None]) for row in torch.from_numpy(np.array(x, np.float32))]
        ).numpy()


def local_logits(x):
    with torch.no_grad():
        return torch.cat([NET(row[None]) for row in x])


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("BRINELL_TOKEN", raising=False)


def remote(url, **options):
    return Http(path=url, **(QUICK | options))(SIX)


def audit_of(server, out, *, resume=False, **options):
    with server.running() as url:
        return run_audit(out, remote(url), X, Y, resume=resume, **(REQUEST | options))


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same network in this process, without its gradients."""
    model = Recorder(local_logits, SIX, 3, name="net")
    model.access = Access.SCORES
    return run_audit(tmp_path_factory.mktemp("local") / "run", model, X, Y, **REQUEST)


def spent_queries(run):
    """Forwards that the run owns to: of rows, of the judge, of the checks."""
    records, probes = run.rows, run.manifest["probes"]["net"]
    return int(records.forwards.sum() + records.judge_forwards.sum()) + probes["forwards"]


def test_the_records_are_those_of_the_model_itself(tmp_path, local):
    server = InferenceServer(served, (6,))
    run = audit_of(server, tmp_path / "run")
    assert rows_of(run.rows, without=COSTS) == rows_of(local.rows, without=COSTS)
    assert run.manifest["traffic"]["net"]["inputs"] == spent_queries(run)
    assert (Outcome.BROKEN in run.rows.outcome) and (Outcome.SURVIVED in run.rows.outcome)
    assert run.manifest["models"][0]["served"]["answers"] == "scores"


def test_one_request_in_ten_that_fails_changes_no_record(tmp_path, local):
    """The same rows, and each query counted once."""
    server = InferenceServer(served, (6,), faults=lambda number: "503" if number % 10 == 7 else "")
    run = audit_of(server, tmp_path / "run")
    assert rows_of(run.rows, without=COSTS) == rows_of(local.rows, without=COSTS)
    traffic = run.manifest["traffic"]["net"]
    assert traffic["inputs"] == spent_queries(run) == server.rows - 4, (
        "four probes show what it answers"
    )
    faults = sum(count for kind, count in traffic.items() if kind not in ("inputs", "requests"))
    assert faults == sum(server.fault_counts.values()) >= 5


def picky(limit):
    """A server that refuses every input whose first value is above the limit, by an error of the
    model."""

    def function(x):
        if (x[:, 0] > limit).any():
            raise ValueError(f"first value above {limit}")
        return served(x)

    return function


@pytest.mark.slow
def test_a_sample_that_the_server_refuses_stands_as_failed_and_the_others_go_on(tmp_path, local):
    limit = (
        float(X[:, 0].sort().values[-3]) + 1e-4
    )  # two samples are refused as they are, some more on the way
    run = audit_of(InferenceServer(picky(limit), (6,)), tmp_path / "run", eps="0.02,0.1")
    records = run.rows
    cells = cells_of(records)
    failed_samples = [
        sample for sample in range(24) if cells["net", "clean", sample] == Outcome.FAILED
    ]
    assert (
        failed_samples == sorted((X[:, 0] > limit).nonzero()[:, 0].tolist())
        and len(failed_samples) == 2
    )
    assert not any(("net", "square?steps=30", sample) in cells for sample in failed_samples)
    later = {
        s
        for (_, attack, s), outcome in cells.items()
        if attack != "clean" and outcome == Outcome.FAILED
    }
    assert later and all(float(X[sample, 0]) > limit - 0.1 for sample in later), (
        "only those near the limit"
    )
    states = states_of(run)
    assert all(states["net", "square?steps=30", sample, 0.02] == "failed" for sample in later)
    reference = cells_of(
        audit_of(InferenceServer(served, (6,)), tmp_path / "fine", eps="0.02,0.1").rows
    )
    assert all(
        cells[key] == reference[key] for key in cells if key[2] not in later | set(failed_samples)
    )
    failed = run.manifest["failed"]["net"]
    assert set(failed["clean"]) == {str(sample) for sample in failed_samples}
    assert all(
        "HTTP 400 first value above" in reason
        for stage in failed.values()
        for reason in stage.values()
    )
    (failure_warning,) = [
        warning for warning in run.manifest["warnings"] if warning["code"] == "failed-samples"
    ]
    assert failure_warning["text"].startswith(
        f"{len(failed_samples) + len(later)} of 24 samples could not be judged; "
        f"the first: {failed_samples[0]} in clean"
    )
    write_page(run.path)
    assert "could not be judged" in (run.path / "report.html").read_text()


def test_a_sample_answered_with_nan_fails_alone(tmp_path):
    def function(x):
        y = served(x)
        y[np.abs(x - X[5].numpy()).max(1) < 1e-6] = np.nan
        return y

    def reply(x, y):
        output = {"name": "y", "datatype": "FP32", "shape": list(y.shape), "data": y.tolist()}
        return {"outputs": [output]}

    cells = cells_of(audit_of(InferenceServer(function, (6,), reply=reply), tmp_path / "run").rows)
    assert [s for s in range(24) if cells["net", "clean", s] == Outcome.FAILED] == [5]


def test_a_model_that_is_exchanged_in_between_is_noticed(tmp_path):
    server = InferenceServer(served, (6,))
    server.function = lambda x: served(x) if server.requests < 60 else served(x)[:, ::-1].copy()
    run = audit_of(server, tmp_path / "run")
    (message,) = [
        warning["text"]
        for warning in run.manifest["warnings"]
        if warning["code"] == "answers-drift"
    ]
    assert "at the end the model answers" in message and "another one took its place" in message


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_line(tmp_path, capsys, monkeypatch):
    """One command from data to report; the token stands in no file; a server that goes away costs
    nothing that was kept.
    """
    monkeypatch.setenv("BRINELL_TOKEN", "s3cret-t0ken")
    np.savez(tmp_path / "data.npz", x=X.numpy(), y=Y.numpy())
    server = InferenceServer(served, (6,), token="s3cret-t0ken")
    out = tmp_path / "run"
    with server.running() as url:
        words = [
            "audit",
            "--data",
            f"npz:{tmp_path / 'data.npz'}",
            "--eps",
            "0.05,0.1",
            "--attack",
            "square?steps=20",
        ]
        words += [
            "--batch-size",
            "1",
            "--model",
            f"{url}?backoff=0.001&retries=1",
            "--out",
            str(out),
        ]
        server.faults = lambda number: "503" if number > 400 else ""
        assert cli(words) == 3
        line = capsys.readouterr().err.splitlines()[-1]
        assert (
            "check the server, then try again" in line
            and f"brinell audit --resume --out {out}" in line
        )
        assert list(out.glob(".parts/*~*.parquet")) and list(out.glob(".parts/1-00-clean.parquet"))
        server.faults = lambda number: ""
        assert cli(["audit", "--resume", "--out", str(out)]) == 0
        full_run = tmp_path / "whole"
        assert cli([*words[:-1], str(full_run)]) == 0
        assert cli(["verify", str(out)]) == 0
    assert_same_rows(Run.open(out).rows, Run.open(full_run).rows)
    for path in [*out.rglob("*"), *full_run.rglob("*")]:
        assert not path.is_file() or b"s3cret" not in path.read_bytes(), path
    assert "s3cret" not in "".join(capsys.readouterr())
