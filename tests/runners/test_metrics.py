"""The file for Prometheus says what the run says."""

import re

import numpy as np

from _helpers import Recorder, plan_of, threshold
from brinell.runners import local, progress
from brinell.runners.progress import LiveProgress, MetricsFile

X = np.array([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]], dtype=np.float32)
LABEL = r'"((?:[^"\\]|\\.)*)"'
LINE = re.compile(r"^([a-z_]+)(?:\{model=" + LABEL + ",stage=" + LABEL + r"\})? (-?[0-9.e+-]+)$")


def read(path):
    """By name the value and the labels, and every one with its help and type before it."""
    lines, metrics = path.read_text().splitlines(), {}
    for row in range(0, len(lines), 3):
        name, model, stage, value = LINE.match(lines[row + 2]).groups()
        assert lines[row].startswith(f"# HELP {name} ") and lines[row + 1] == f"# TYPE {name} {progress.METRICS[name][0]}"
        metrics[name] = float(value), model, stage
    return metrics


def test_the_file_holds_the_counts_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "WRITE_INTERVAL", 0.0)
    file, model, snapshots = tmp_path / "to" / "run.prom", Recorder(threshold(0.5)), []
    plan = plan_of(model, X, np.zeros(5, dtype=int), eps="0.1,0.15", attack=("fgsm", "pgd?steps=3"))
    inner = LiveProgress(quiet=True)
    monkeypatch.setattr(inner, "update_open", lambda *counts: snapshots.append(read(file)) if file.exists() else None)
    progress_file = MetricsFile(file, inner)
    run = local.run(plan, tmp_path / "run", progress_file, command="from a test")
    progress_file.end()
    rows, metrics = run.records(), read(file)
    probes = run.manifest["probes"]["recorder"]
    assert metrics["brinell_forwards_total"][0] >= rows.forwards.sum() + 5 and metrics["brinell_running"][0] == 0
    assert rows.backwards.sum() <= metrics["brinell_backwards_total"][0] <= rows.backwards.sum() + probes["backwards"]
    broken = {"fooled", "fooled_below", "fooled_before", "misclassified"}
    last = (rows.attack == "pgd?steps=3") & (rows.eps == 0.15)
    assert metrics["brinell_samples_robust"][0] == sum(outcome not in broken for outcome in rows.outcome[last])
    assert metrics["brinell_samples_open"][:2] == (0.0, "recorder")
    assert {snapshot["brinell_running"][0] for snapshot in snapshots} == {1.0} and any(
        "brinell_seconds_left" in snapshot for snapshot in snapshots
    )
    assert any("FGSM" in snapshot["brinell_samples_open"][2] for snapshot in snapshots)


def test_names_are_quoted(tmp_path_factory, subtests):
    for name in ['a "quoted" one', "back\\slash", "two\nlines"]:
        with subtests.test(str((name,))):
            tmp_path = tmp_path_factory.mktemp("row")
            file = tmp_path / "run.prom"
            MetricsFile(file, LiveProgress(quiet=True)).stage(name, "stage", 3, 9)
            assert read(file)["brinell_stage_samples"][0] == 3.0


def test_it_is_written_no_more_often_than_every_few_seconds(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    file = tmp_path / "run.prom"
    progress_file = MetricsFile(file, LiveProgress(quiet=True))
    progress_file.stage("m", "s", 3, 9)
    progress_file.count_passes(5, 0)
    assert read(file)["brinell_forwards_total"][0] == 0
    clock[0] += progress.WRITE_INTERVAL
    progress_file.count_passes(1, 2)
    assert read(file)["brinell_forwards_total"][0] == 6 and read(file)["brinell_backwards_total"][0] == 2
