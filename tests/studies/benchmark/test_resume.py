"""Benchmark sets that were stopped, killed or damaged lose no result and count no query twice."""

from pathlib import Path

import pytest

from _helpers import run_in_process
from _sets import arrays_of, assert_same_set, benchmark_arguments, rows_of
from brinell.cli import run as cli
from brinell.studies.benchmark.part import BenchmarkPart


def test_another_batch_size(work, benchmark_set, tmp_path):
    assert cli(benchmark_arguments(work, tmp_path / "set", "--batch-size", "3")) == 0
    assert_same_set(benchmark_set, tmp_path / "set")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("calls", [70])
@pytest.mark.slow
def test_sigkill(work, benchmark_set, tmp_path, calls):
    out = tmp_path / "set"
    assert run_in_process(benchmark_arguments(work, out), TEST_KILL_AT=str(calls), TEST_CALLS="0") == -9
    times = {path: path.stat().st_mtime_ns for path in (out / "samples").glob("*")} if (out / "samples").exists() else {}
    assert bool(times) == (calls == 70) and not (out / "README.md").exists()
    assert cli(["benchmark", "--resume", "--out", str(out)]) == 0
    assert_same_set(benchmark_set, out)
    assert all(path.stat().st_mtime_ns == time for path, time in times.items()), "a part was made twice"


class Killed(BaseException):
    """An interruption that no except clause of the program catches."""


@pytest.mark.slow
def test_killed_before_every_file(work, tmp_path, monkeypatch):
    """The folder changes only when a file is moved to its final name, so these moments cover all kills."""
    monkeypatch.setattr("brinell.studies.benchmark.plan.PART_SAMPLES", 1)
    replace, small = Path.replace, ["--samples", "2", "--refine", "0"]
    assert cli(benchmark_arguments(work, tmp_path / "whole", *small, levels="1")) == 0
    files = [
        "run.toml",
        "manifest.json",
        "manifest.json",  # with the kind of the model's answers
        *["arrays", "data", "samples"] * 2,
        "manifest.json",
        "README.md",
        "croissant.json",
    ]
    for k in range(1, len(files) + 2, 2):
        calls, out = [], tmp_path / str(k)

        def stop(path, model, calls=calls, k=k):
            calls.append(model)
            if len(calls) == k:
                raise Killed
            return replace(path, model)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", stop)
            with pytest.raises(Killed):
                cli(benchmark_arguments(work, out, *small, levels="1"))
        folders = [path.relative_to(out).as_posix().split("/")[0] for path in calls]
        assert folders == [*files, "SHA256SUMS"][:k]
        assert cli(benchmark_arguments(work, out, *small, "--resume", levels="1")) == 0
        assert_same_set(tmp_path / "whole", out)


@pytest.mark.slow
def test_what_is_done_of_a_part_is_kept(work, tmp_path, monkeypatch):
    """With blocks of four in parts of five, a resumed run loads the finished blocks and makes the same set."""
    monkeypatch.setattr("brinell.studies.benchmark.run.BLOCK_SECONDS", 0.0)
    assert cli(benchmark_arguments(work, tmp_path / "whole")) == 0
    calls: list[slice] = []

    class Stopped(BenchmarkPart):
        def __init__(self, plan, span, progress):
            if len(calls) == stop:
                raise KeyboardInterrupt
            calls.append(span)
            super().__init__(plan, span, progress)

    monkeypatch.setattr("brinell.studies.benchmark.run.BenchmarkPart", Stopped)
    out, stop = tmp_path / "set", 0
    for stop in (1, 2, 3, 4, None):
        code = cli(benchmark_arguments(work, out)) if stop == 1 else cli(["benchmark", "--resume", "--out", str(out)])
        assert code == (0 if stop is None else 130), stop
        if stop is not None:
            blocks = sorted(file.name for file in (out / ".blocks").glob("*")) if (out / ".blocks").exists() else []
            assert blocks == ([f"{calls[-1].start:08d}-{calls[-1].stop:08d}.safetensors"] if stop % 2 else [])
    assert [(span.start, span.stop) for span in calls] == [(0, 4), (4, 5), (5, 9), (9, 10), (10, 12)], "a block was made twice"
    assert not (out / ".blocks").exists()
    assert rows_of(out, "data") == rows_of(tmp_path / "whole", "data")
    assert rows_of(out, "samples") == rows_of(tmp_path / "whole", "samples")
    arrays, expected = arrays_of(out), arrays_of(tmp_path / "whole")
    assert arrays.keys() == expected.keys() and all((arrays[name] == expected[name]).all() for name in arrays)
    assert cli(benchmark_arguments(work, out, "--resume")) == 0, "a complete set must not change"


def test_a_damaged_block_is_one_line(work, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("brinell.studies.benchmark.run.BLOCK_SECONDS", 0.0)
    blocks = iter([BenchmarkPart])
    monkeypatch.setattr("brinell.studies.benchmark.run.BenchmarkPart", lambda *arguments: next(blocks, interrupt)(*arguments))
    assert cli(benchmark_arguments(work, tmp_path / "set")) == 130
    (file,) = (tmp_path / "set/.blocks").glob("*")
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    capsys.readouterr()
    assert cli(["benchmark", "--resume", "--out", str(tmp_path / "set")]) == 2
    message = capsys.readouterr().err
    assert f"{file.name} is damaged or missing" in message and "delete it" in message


def interrupt(*arguments):
    raise KeyboardInterrupt
