"""Benchmark sets that were stopped, killed or damaged: nothing is lost, and nothing is counted twice."""

from pathlib import Path

import pytest

from _helpers import in_a_process_of_its_own
from _sets import arrays_of, rows_of, same_set, words
from brinell.cli import run as cli
from brinell.studies.benchmark.part import Part


def test_another_batch_size(work, made, tmp_path):
    assert cli(words(work, tmp_path / "set", "--batch-size", "3")) == 0
    same_set(made, tmp_path / "set")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("at", [2, 70])
def test_sigkill(work, made, tmp_path, at):
    out = tmp_path / "set"
    assert in_a_process_of_its_own(words(work, out), TEST_KILL_AT=str(at), TEST_CALLS="0") == -9
    done = {path: path.stat().st_mtime_ns for path in (out / "samples").glob("*")} if (out / "samples").exists() else {}
    assert bool(done) == (at == 70) and not (out / "README.md").exists()
    assert cli(["benchmark", "--resume", "--out", str(out)]) == 0
    same_set(made, out)
    assert all(path.stat().st_mtime_ns == time for path, time in done.items()), "a part was made twice"


class Killed(BaseException):
    """What no except clause of the program catches."""


def test_killed_before_every_file(work, tmp_path, monkeypatch):
    """The folder changes at no other moment than when a file is put in its place."""
    monkeypatch.setattr("brinell.studies.benchmark.plan.PART_SAMPLES", 1)
    replace, small = Path.replace, ["--samples", "2", "--refine", "0"]
    assert cli(words(work, tmp_path / "whole", *small, levels="1")) == 0
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
                cli(words(work, out, *small, levels="1"))
        put = [path.relative_to(out).as_posix().split("/")[0] for path in calls]
        assert put == [*files, "SHA256SUMS"][:k]
        assert cli(words(work, out, *small, "--resume", levels="1")) == 0
        same_set(tmp_path / "whole", out)


def test_interrupted(work, made, tmp_path, monkeypatch, capsys):
    out = tmp_path / "set"
    monkeypatch.setenv("TEST_INTERRUPT_AT", "40")
    assert cli(words(work, out)) == 130
    assert f"go on with brinell benchmark --resume --out {out}" in capsys.readouterr().err
    assert cli(["benchmark", "--resume", "--out", str(out)]) == 0
    same_set(made, out)


def test_what_is_done_of_a_part_is_kept(work, tmp_path, monkeypatch):
    """Blocks of four in parts of five: each that was done is read after a stop, and the set is the one that is made in one go."""
    monkeypatch.setattr("brinell.studies.benchmark.run.BLOCK_SECONDS", 0.0)
    assert cli(words(work, tmp_path / "whole")) == 0
    calls: list[slice] = []

    class Stopped(Part):
        def __init__(self, plan, at, progress):
            if len(calls) == stop:
                raise KeyboardInterrupt
            calls.append(at)
            super().__init__(plan, at, progress)

    monkeypatch.setattr("brinell.studies.benchmark.run.Part", Stopped)
    out, stop = tmp_path / "set", 0
    for stop in (1, 2, 3, 4, None):
        code = cli(words(work, out)) if stop == 1 else cli(["benchmark", "--resume", "--out", str(out)])
        assert code == (0 if stop is None else 130), stop
        if stop is not None:
            kept = sorted(file.name for file in (out / ".blocks").glob("*")) if (out / ".blocks").exists() else []
            assert kept == ([f"{calls[-1].start:08d}-{calls[-1].stop:08d}.safetensors"] if stop % 2 else [])
    assert [(at.start, at.stop) for at in calls] == [(0, 4), (4, 5), (5, 9), (9, 10), (10, 12)], "nothing is made twice"
    assert not (out / ".blocks").exists()
    assert rows_of(out, "data") == rows_of(tmp_path / "whole", "data")
    assert rows_of(out, "samples") == rows_of(tmp_path / "whole", "samples")
    one, other = arrays_of(out), arrays_of(tmp_path / "whole")
    assert one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)
    assert cli(words(work, out, "--resume")) == 0, "a set that is whole is left as it is"


def test_a_damaged_block_is_one_line(work, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("brinell.studies.benchmark.run.BLOCK_SECONDS", 0.0)
    blocks = iter([Part])
    monkeypatch.setattr("brinell.studies.benchmark.run.Part", lambda *given: next(blocks, interrupt)(*given))
    assert cli(words(work, tmp_path / "set")) == 130
    (file,) = (tmp_path / "set/.blocks").glob("*")
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    capsys.readouterr()
    assert cli(["benchmark", "--resume", "--out", str(tmp_path / "set")]) == 2
    said = capsys.readouterr().err
    assert f"{file.name} is damaged or missing" in said and "delete it" in said


def interrupt(*given):
    raise KeyboardInterrupt
