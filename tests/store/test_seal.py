"""A flipped bit anywhere in records, arrays or manifest is noticed before a figure is made of it."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from _helpers import Recorder, assert_same_rows, plan_of, run_plan
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.store import seal
from brinell.store.files import read_arrays, write_arrays
from brinell.store.parquet import read_table, write_table
from brinell.store.run import LAYOUT, Run

RNG = np.random.default_rng(3)
X, Y = RNG.uniform(0.2, 0.55, (12, 2)).astype(np.float32), np.zeros(12, dtype=int)


def line(x):
    import torch

    z = 10 * (x[:, 0] - 0.5)
    return torch.stack([-z, z], 1)


def plan():
    return plan_of(Recorder(line), X, Y, eps="0.1:0.3:3", attack=("fgsm", "pgd?steps=2"), batch_size=1)


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    return run_plan(plan(), tmp_path_factory.mktemp("whole") / "run").path


def test_a_sealed_text_knows_itself() -> None:
    content = seal.sealed(b"figures 1 2 3 " + seal.BLANK.encode() + b" more")
    assert seal.holds(content) is True and seal.holds(b"figures 1 2 3") is None
    assert seal.BLANK.encode() not in content and len(content) == len(b"figures 1 2 3 " + seal.BLANK.encode() + b" more")
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            assert seal.holds(bytes(flipped)) is False, (place, bit)
    with pytest.raises(ValueError, match="no place"):
        seal.sealed(b"figures")


def test_a_text_that_looks_like_a_seal_changes_nothing() -> None:
    seal_text = "brinell:digest:" + "1" * 32
    content = seal.sealed(f"{seal_text} {seal.BLANK} {seal_text}".encode())
    assert seal.holds(content) is True and seal.holds(content.replace(b"1 ", b"2 ")) is False


def test_tables_and_arrays_are_sealed(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", pa.table({"a": [1, 2]}))
    write_arrays(tmp_path / "a.safetensors", {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True])})
    assert all(seal.holds(file.read_bytes()) for file in tmp_path.iterdir())
    assert read_table(tmp_path / "t.parquet")["a"].to_pylist() == [1, 2]
    arrays = read_arrays(tmp_path / "a.safetensors", lambda name: name == "a")
    assert list(arrays) == ["a"] and arrays["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_header_that_lies(tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests) -> None:
    heads = ['{"a":{"dtype":"F64","shape":[9],"data_offsets":[0,8]}}', '{"a":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}}']
    heads += ['{"a":{"dtype":"X","shape":[1],"data_offsets":[0,8]}}', '{"a":7}', "[]", "{", '{"a":{"dtype":"F64","shape":[1]}}']
    heads += ['{"a":{"dtype":"F64","shape":[1],"data_offsets":[-8,0]}}', "[" * 100_000]
    for head in heads:
        with subtests.test(str((head,))):
            tmp_path = tmp_path_factory.mktemp("row")
            (tmp_path / "a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head.encode() + bytes(8))
            with pytest.raises(RequestError, match="a.safetensors is damaged or missing"):
                read_arrays(tmp_path / "a.safetensors")


def flips(folder: Path, count: int):
    """A file, and its bytes with one bit flipped: records, arrays and manifest in turns."""
    rng = np.random.default_rng(0)
    kinds = [sorted(folder.glob(pattern)) for pattern in ("records/*", "arrays/*", "manifest.json")]
    for number in range(count):
        file = kinds[number % 3][rng.integers(len(kinds[number % 3]))]
        content = bytearray(file.read_bytes())
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        yield file, bytes(content)


def read_all(folder: Path) -> None:
    run = Run.open(folder)
    run.records()
    for model in run.manifest["models"]:
        for stage in run.manifest["stages"]:
            run.adversarial(model["name"], stage["name"], range(len(X)))
    run.clean()


@pytest.mark.parametrize("count", [90, pytest.param(1200, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("state", ["finished", "running"])
def test_no_flipped_bit_is_read_in_silence(tmp_path: Path, full_run: Path, count: int, state: str) -> None:
    shutil.copytree(full_run, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    LAYOUT.save(run.path, {key: value for key, value in run.manifest.items() if key != "files"} | {"state": state})
    read_all(run.path)
    for file, content in flips(run.path, count):
        original = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(RequestError, match=f"{file.name} is damaged") as error:
            read_all(run.path)
        assert "\n" not in str(error.value)
        file.write_bytes(original)


def test_a_file_that_changed_or_came_after_the_run_is_not_read(tmp_path: Path, full_run: Path, capsys) -> None:
    """Even where it is sealed: another run's rows, for example."""
    shutil.copytree(full_run, tmp_path / "run")
    first, second = sorted((tmp_path / "run/records").glob("*"))[:2]
    original = first.read_bytes()
    first.write_bytes(second.read_bytes())
    for verb in (["report"], ["gate", "--robust", "0"]):
        assert cli([*verb, str(tmp_path / "run")]) == 2
        message = capsys.readouterr().err
        assert f"{first.name} is damaged or missing (it was changed after the run ended): delete it" in message, message
    first.unlink()
    assert cli(["report", str(tmp_path / "run")]) == 2
    assert f"{first.name} is missing: brinell audit --resume" in capsys.readouterr().err
    first.write_bytes(original)
    (tmp_path / "run/records/part-more.parquet").write_bytes(original)
    assert cli(["report", str(tmp_path / "run")]) == 2
    assert "part-more.parquet was not there when the run ended" in capsys.readouterr().err


def test_a_resumed_run_makes_again_what_was_damaged(tmp_path: Path, full_run: Path) -> None:
    shutil.copytree(full_run, tmp_path / "run")
    arrays = next((tmp_path / "run/arrays").glob("part-*"))
    content = bytearray(arrays.read_bytes())
    content[-3] ^= 4
    arrays.write_bytes(bytes(content))
    rows = next(path for path in (tmp_path / "run/records").iterdir() if arrays.stem.startswith(path.stem))
    with pytest.raises(RequestError, match=f"{arrays.name} is damaged .*: delete it and records/{rows.name} and go on with"):
        run_plan(plan(), tmp_path / "run", resume=True)
    arrays.unlink()
    with pytest.raises(RequestError, match=f"{arrays.name} is missing: delete records/{rows.name} too and go on with --resume"):
        run_plan(plan(), tmp_path / "run", resume=True)
    rows.unlink()
    run_plan(plan(), tmp_path / "run", resume=True)
    assert_same_rows(Run.open(full_run).records(), Run.open(tmp_path / "run").records())
    assert Run.open(tmp_path / "run").digests().keys() == Run.open(full_run).digests().keys()
