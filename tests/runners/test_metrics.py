"""The file for Prometheus says what the run says."""

import re

import numpy as np
import pytest

from _helpers import Recorder, plan_of, threshold
from brinell.runners import local, progress
from brinell.runners.progress import LiveProgress, Metrics

X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
LABEL = r'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(r"^([a-z_]+)(?:\{model=" + LABEL + ",stage=" + LABEL + r"\})? (-?[0-9.e+-]+)$")


def read(path):
    """By name the value and the labels, and every one with its help and type before it."""
    lines, found = path.read_text().splitlines(), {}
    for at in range(0, len(lines), 3):
        name, model, stage, value = LINE.match(lines[at + 2]).groups()
        assert lines[at].startswith(f"# HELP {name} ") and lines[at + 1] == f"# TYPE {name} {progress.TOLD[name][0]}"
        found[name] = float(value), model, stage
    return found


def test_the_file_holds_the_counts_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    file, model, seen = tmp_path / "to" / "run.prom", Recorder(threshold(0.5)), []
    plan = plan_of(model, X, np.zeros(5, dtype=int), eps="0.1,0.15", attack=("fgsm", "pgd?steps=3"))
    inner = LiveProgress(quiet=True)
    monkeypatch.setattr(inner, "open", lambda *counts: seen.append(read(file)) if file.exists() else None)
    told = Metrics(file, inner)
    run = local.run(plan, tmp_path / "run", told, command="from a test")
    told.end()
    rows, found = run.records(), read(file)
    spent = run.manifest["probes"]["recorder"]
    assert found["brinell_forwards_total"][0] >= rows.forwards.sum() + 5 and found["brinell_running"][0] == 0
    assert rows.backwards.sum() <= found["brinell_backwards_total"][0] <= rows.backwards.sum() + spent["backwards"]
    broken = {"fooled", "fooled_below", "fooled_before", "misclassified"}
    last = (rows.attack == "pgd?steps=3") & (rows.eps == 0.15)
    assert found["brinell_samples_robust"][0] == sum(one not in broken for one in rows.outcome[last])
    assert found["brinell_samples_open"][:2] == (0.0, "recorder")
    assert {one["brinell_running"][0] for one in seen} == {1.0} and any("brinell_seconds_left" in one for one in seen)
    assert any("FGSM" in one["brinell_samples_open"][2] for one in seen)


@pytest.mark.parametrize("name", ['a "quoted" one', "back\\slash", "two\nlines"])
def test_names_are_quoted(tmp_path, name):
    file = tmp_path / "run.prom"
    Metrics(file, LiveProgress(quiet=True)).stage(name, "stage", 3, 9)
    assert read(file)["brinell_stage_samples"][0] == 3.0


def test_it_is_written_no_more_often_than_every_few_seconds(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    file = tmp_path / "run.prom"
    told = Metrics(file, LiveProgress(quiet=True))
    told.stage("m", "s", 3, 9)
    told.passes(5, 0)
    assert read(file)["brinell_forwards_total"][0] == 0
    now[0] += progress.EVERY
    told.passes(1, 2)
    assert read(file)["brinell_forwards_total"][0] == 6 and read(file)["brinell_backwards_total"][0] == 2
