"""Videos end to end: a folder of files, some of them damaged; and the example network on real
gestures.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import _videos
from brinell.cli import run as cli
from brinell.core.record import CLEAN
from brinell.store.run import Run


def run_command(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """JSON output of a command."""
    assert cli([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def spec(folder: Path, *options: str) -> tuple[str, ...]:
    (folder / "model.py").write_text(_videos.MODEL)
    data = "&".join((f"video-folder:{folder / 'data'}?frames=8", "stride=2", "size=0", *options))
    return "--data", data, "--model", f"torch:{folder / 'model.py'}:bars"


@pytest.mark.slow
def test_a_folder_of_videos_is_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _videos.folder(tmp_path / "data")
    out = str(tmp_path / "run")
    attacks = (
        "--attack",
        "apgd?steps=5",
        "--attack",
        "rlab?steps=30&patch=4x10x14&distortions=frame-drop+gaussian-noise",
    )
    answer = run_command(
        capsys, "audit", *spec(tmp_path), *attacks, "--norm", "l2", "--eps", "0:40:3", "--out", out
    )
    assert (answer["n"], answer["models"][0]["clean_accuracy"]["value"]) == (6, 1) and answer[
        "models"
    ][0]["robust_accuracy"][-1]["value"] < 1
    assert run_command(capsys, "verify", out)["passed"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "video of shape 3 × 8 × 20 × 28" in page and 'class="strip' in page


def test_videos_that_give_no_clip_are_failed_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = _videos.with_broken_videos(tmp_path / "data")
    broken = {index for index, text in enumerate(messages) if text}
    out = str(tmp_path / "run")
    words = ["audit", *spec(tmp_path), "--attack", "apgd?steps=3", "--eps", "0:0.2:3", "--out", out]
    answer = run_command(capsys, *words)
    rate = answer["models"][0]["clean_accuracy"]
    assert (rate["n"], rate["k"], rate["missing"]) == (2, 2, 4)
    (warning,) = [entry for entry in answer["warnings"] if entry["code"] == "failed-samples"]
    assert (
        "4 of 6 samples could not be judged; the first: 1 in clean: " in warning["text"]
        and messages[1] in warning["text"]
    )
    records = Run.open(out).rows
    failed = records.outcome == "failed"
    assert set(records.sample_id[failed].tolist()) == broken
    assert failed.sum() == len(broken) and not records.forwards[failed].any(), (
        "no stage attacks them"
    )
    assert bool(((records.attack == CLEAN) & (records.clean_pred == -1))[failed].all())
    (reason,) = [stages["clean"] for stages in Run.open(out).manifest["failed"].values()]
    assert set(map(int, reason)) == broken and all(
        messages[int(sample)] in text for sample, text in reason.items()
    )
    assert "4 of 6 samples could not be judged" in (tmp_path / "run" / "report.html").read_text()
    assert run_command(capsys, "verify", out)["passed"]
    assert run_command(capsys, "gate", out, "--robust", "0", code=1)["passed"] is False


@pytest.mark.slow
def test_agents_and_benchmark_sets_leave_them_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _videos.with_broken_videos(tmp_path / "data")
    folder = str(tmp_path / "set")
    assert (
        cli(["train", "agent", *spec(tmp_path), "--out", str(tmp_path / "agent.safetensors")]) == 2
    )
    assert "2 correctly classified inputs are too few to train on" in capsys.readouterr().err, (
        "all that can be read"
    )
    sets = (
        "--distortions",
        "frame-drop",
        "--patch",
        "4x10x14",
        "--steps",
        "20",
        "--refine",
        "0",
        "--levels",
        "1",
    )
    assert run_command(capsys, "benchmark", *spec(tmp_path), *sets, "--out", folder)["samples"] == 2


def test_a_folder_without_a_single_clip_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _videos.folder(tmp_path / "data", count=1, frames=5)
    assert cli(["audit", *spec(tmp_path), "--eps", "0.1", "--out", str(tmp_path / "run")]) == 2
    line = capsys.readouterr().err
    assert (
        "none of the 2 samples of data can be read; the first: " in line and "has 5 frames" in line
    )
    assert line.count("\n") == 1


@pytest.mark.slow
@pytest.mark.nightly
def test_the_example_network_on_gestures(
    root: Path, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two epochs of its recipe, and an audit of some clips held out: the command of the README."""
    clips, out = shared / "video" / "asl_gesture_clips.npz", tmp_path / "gestures"
    train = [
        sys.executable,
        str(root / "examples" / "train_video.py"),
        str(clips),
        "--out",
        str(out),
    ]
    output = subprocess.run(
        [*train, "--epochs", "2", "--threads", "1"], capture_output=True, text=True, check=True
    ).stdout
    assert "112 clips to train on, 48 held out" in output
    model = f"torch:{root / 'examples' / 'models' / 'video.py'}:r2plus1d?weights={out / 'weights.safetensors'}"
    attack = "rlab?distortions=frame-drop+compression-blocks&steps=20"
    words = ("--model", model, "--attack", attack, "--norm", "l2", "--eps", "60", "--samples", "4")
    answer = run_command(
        capsys, "audit", "--data", f"npz:{out / 'test.npz'}", *words, "--out", str(tmp_path / "run")
    )
    assert answer["n"] == 4 and [c["name"] for c in answer["models"][0]["per_class"]]
    assert Run.open(str(tmp_path / "run")).manifest["data"]["domain"]["shape"] == [3, 16, 64, 64]
