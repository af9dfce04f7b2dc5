"""A run for other tools: what they are given is what the run says, read back by their own clients
where those are installed.
"""

import csv
import json
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import brinell
from _helpers import Recorder, run_audit, threshold
from _refusals import refused
from brinell.core.bounded import digest
from brinell.core.errors import RequestError
from brinell.core.record import COLUMNS
from brinell.engine.attack_names import CASCADES
from brinell.studies import register
from brinell.studies.export.entries import PAPER
from brinell.studies.register import write_page

# Margins 0.12, 0.02, 0.30, wrong from the start, 0.19.
X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
Y = np.zeros(5, dtype=int)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Robust: 4 of 5 on clean inputs, 3 within 0.05, 2 within 0.15."""
    folder = tmp_path_factory.mktemp("export") / "run"
    audit_run = run_audit(
        folder, Recorder(threshold(0.5)), X, Y, eps="0,0.05,0.15", attack=("fgsm", "pgd?steps=3")
    )
    write_page(audit_run.path)
    return audit_run


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    folder = tmp_path_factory.mktemp("standard") / "run"
    return run_audit(folder, Recorder(threshold(0.5)), X, Y, eps="0.15", attack=("autoattack",))


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_holds_every_row(run, tmp_path):
    brinell.export(run.path, "csv", out=tmp_path)
    rows, records = table(tmp_path / "rows.csv"), run.rows
    assert list(rows[0]) == list(COLUMNS) and len(rows) == len(records)
    assert [row["outcome"] for row in rows] == records.outcome.tolist()
    masked = np.ma.getmaskarray(np.ma.asarray(records.margin))
    assert masked.any() and [row["margin"] == "" for row in rows] == masked.tolist()
    assert [int(row["forwards"]) for row in rows] == records.forwards.tolist()


def test_the_report_and_the_tables_go_along(run, tmp_path):
    answer = brinell.export(run.path, "csv", out=tmp_path)
    assert set(answer.files) >= {"report.html", "tables/robust_accuracy.csv", "tables/checks.csv"}
    assert (tmp_path / "report.html").read_text() == (run.path / "report.html").read_text()
    for table_ in (run.path / "tables").iterdir():
        assert (tmp_path / "tables" / table_.name).read_text() == table_.read_text()


def test_nothing_else_is_written_over(run, tmp_path):
    """An export that was stopped ends by the same call; other files with its names stay."""
    answer = brinell.export(run.path, "csv", out=tmp_path)
    (tmp_path / answer.files[-1]).unlink()
    assert brinell.export(run.path, "csv", out=tmp_path) == answer
    (tmp_path / answer.files[0]).write_text("mine")
    with pytest.raises(RequestError, check=refused("studies.export.run.carry_out")):
        brinell.export(run.path, "csv", out=tmp_path)


# RobustBench


def entry(folder):
    (path,) = folder.rglob("*.json")
    return path.relative_to(folder).as_posix(), json.loads(path.read_text(encoding="utf-8"))


def test_a_robustbench_entry_by_hand(standard, tmp_path):
    """AutoAttack leaves two of five within 0.15."""
    assert tuple(stage["name"] for stage in standard.manifest["stages"]) == CASCADES["standard"]
    answer = brinell.export(standard.path, "robustbench", out=tmp_path)
    path, exported = entry(tmp_path)
    data = standard.manifest["data"]["name"]
    assert path == f"{data}/Linf/recorder.json" and answer.files == (path,)
    assert (
        exported["eps"] == "0.15"
        and exported["clean_acc"] == "80.00"
        and exported["autoattack_acc"] == "40.00"
    )
    assert exported["number_forward_passes"] == 1
    assert "external" not in exported and f"{data} is none of RobustBench's data sets" in " ".join(
        answer.notes
    )


def test_what_a_run_cannot_know_is_null_and_said(standard, tmp_path):
    answer = brinell.export(standard.path, "robustbench", out=tmp_path)
    _, exported = entry(tmp_path)
    assert exported["name"] is exported["link"] is exported["reported"] is None
    assert any(
        "null because the run cannot know it: link, name, authors, venue" in note
        for note in answer.notes
    )


def test_other_attacks_make_no_autoattack_figure(run, tmp_path):
    answer = brinell.export(run.path, "robustbench", out=tmp_path)
    _, exported = entry(tmp_path)
    assert (
        exported["autoattack_acc"] is None
        and exported["external"] == "40.00"
        and exported["eps"] == "0.15"
    )
    assert any("audit with --attack standard" in note for note in answer.notes)


@pytest.mark.shared
def test_the_form_is_that_of_the_published_entries(standard, tmp_path, shared):
    """The same fields, and values of the same types, as every entry for Linf has."""
    brinell.export(standard.path, "robustbench", out=tmp_path)
    _, exported = entry(tmp_path)
    published = [
        json.loads(path.read_text())
        for path in (shared / "robustbench_model_info").glob("*/Linf/*.json")
    ]
    assert len(published) > 100
    everywhere = set.intersection(*(set(entry_keys) for entry_keys in published))
    anywhere = set.union(*(set(entry_keys) for entry_keys in published))
    assert everywhere <= set(exported) <= anywhere
    for key, value in exported.items():
        if key in (*PAPER, "footnote"):
            continue  # the author fills it in
        assert type(value) in {
            type(entry_of_file[key]) for entry_of_file in published if key in entry_of_file
        }, key


def test_what_cannot_be_exported_is_one_line(run, tmp_path):
    for settings, message in (
        ({"to": "excel"}, "to is 'excel'"),
        ({"to": "csv", "eps": "0.05"}, "eps"),
    ):
        with pytest.raises(RequestError, match=message):
            brinell.export(run.path, out=tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


# The hub


class Hub:
    """Stands for the hub: keeps what it is sent."""

    def __init__(self):
        self.sent = []

    def upload_folder(self, *, repo_id, folder_path, repo_type, allow_patterns, commit_message):
        if repo_id == "nobody/nothing":
            raise PermissionError("no such\nrepository")
        names = [
            path.relative_to(folder_path).as_posix()
            for path in Path(folder_path).rglob("*")
            if path.is_file()
        ]
        self.sent.append((repo_id, repo_type, {*names} & {*(allow_patterns or names)}))
        return f"hub/{repo_id}"


@pytest.fixture
def hub(monkeypatch):
    stand_in = Hub()
    module = types.ModuleType("huggingface_hub")
    module.__spec__ = ModuleSpec("huggingface_hub", None)
    module.HfApi = lambda: stand_in
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return stand_in


def test_results_for_the_hub(run, tmp_path):
    answer = brinell.export(run.path, "hub", out=tmp_path)
    (file,) = (tmp_path / ".eval_results").glob("*.yaml")
    assert answer.files == (
        f".eval_results/{file.name}",
        f"robustness/{file.stem}.json",
        "ROBUSTNESS.md",
    )
    entries = file.read_text().split("- dataset:")[1:]
    assert [
        line.split(": ")[1]
        for entry in entries
        for line in entry.splitlines()
        if line.startswith("  value")
    ] == [
        "80.00",
        "60.00",
        "40.00",
    ]
    assert "    id: null" in entries[0] and '    task_id: "robustness_linf-0.05"' in entries[1]
    assert "5 samples, 95 % interval" in entries[0] and any(
        "the dataset's id" in note for note in answer.notes
    )


def test_the_field_for_programs_follows_its_schema_and_names_the_rows_by_digest(run, tmp_path):
    brinell.export(run.path, "hub", out=tmp_path)
    (path,) = (tmp_path / "robustness").glob("*.json")
    field = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(field, register.schema("robustness"))
    assert field["eps_text"] == ["0", "0.05", "0.15"]
    assert [rate["k"] for rate in field["robust_accuracy"]] == [4, 3, 2]
    assert field["certified"] is None and field["address"] is None
    assert field["rows"]
    for name, value in field["rows"].items():
        assert value == digest(run.path / name)
    section = (tmp_path / "ROBUSTNESS.md").read_text(encoding="utf-8")
    assert "40.0" in section and "<script" not in section


def test_a_field_that_says_more_than_its_run_is_refused(tmp_path):
    run = tmp_path / "run"
    brinell.audit("digits-cnn", "digits", samples=6, eps="0.1", attack="fgsm", out=run)
    brinell.export(run, "hub", out=tmp_path)
    (path,) = (tmp_path / "robustness").glob("*.json")
    field = json.loads(path.read_text(encoding="utf-8"))
    honest = field | {"address": "example.org/run"}
    path.write_text(json.dumps(honest))
    answer = brinell.verify(run, field=path)
    assert answer.passed and any(path.name in text for text in answer.verified_claims)

    for key, value in {
        "robust_accuracy": [rate | {"value": 1.0, "k": 6} for rate in field["robust_accuracy"]],
        "failed_checks": ["invented"],
        "model": "another",
        "award": "best of all",
    }.items():
        path.write_text(json.dumps(honest | {key: value}))
        answer = brinell.verify(run, field=path)
        (problem,) = answer.problems
        assert not answer.passed and problem.location == f"{path.name}/{key}"


def test_nothing_is_sent_unless_a_repository_is_named(run, tmp_path, hub):
    answer = brinell.export(run.path, "hub", out=tmp_path / "kept")
    assert answer.pushed is None and not hub.sent
    answer = brinell.export(run.path, "hub", push="me/net", out=tmp_path / "sent")
    assert answer.pushed == "hub/me/net"
    assert hub.sent == [("me/net", "model", {*answer.files})]
    with pytest.raises(RequestError, match="PermissionError: no such repository"):
        brinell.export(run.path, "hub", push="nobody/nothing", out=tmp_path / "refused")
    with pytest.raises(RequestError, match="add --to hub|add to"):
        brinell.export(run.path, "csv", push="me/net", out=tmp_path / "csv")


def test_a_benchmark_set_is_sent_whole_with_its_card(tmp_path, hub):
    folder = tmp_path / "set"
    brinell.benchmark("digits-cnn", "digits", samples=2, steps=4, out=folder)
    answer = brinell.export(folder, "hub", push="me/set", out=tmp_path / "card")
    assert answer.files == ("README.md",)
    ((repository, kind, names),) = hub.sent
    assert (repository, kind) == ("me/set", "dataset") and {"README.md", "manifest.json"} <= names
    assert (tmp_path / "card" / "README.md").read_text() == (folder / "README.md").read_text()
