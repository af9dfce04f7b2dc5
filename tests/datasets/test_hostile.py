"""Files of fifteen kinds, changed at random with a fixed seed: each opens, or gives one line, soon
and with little memory.
"""

import gzip
import json
import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save

from _child import run_in_child
from _records import write_record
from brinell.core.contracts import Domain
from brinell.core.errors import BrinellError
from brinell.datasets.ecg_csv import EcgCsv
from brinell.datasets.image_folder import ImageFolder
from brinell.datasets.mnist import Mnist
from brinell.datasets.npz import Npz
from brinell.datasets.table import TabularFile
from brinell.datasets.wfdb import Wfdb
from brinell.models._weights import read_weights
from brinell.models.onnx import Onnx
from brinell.models.sklearn import Sklearn
from brinell.store.files import read_arrays, write_arrays
from brinell.store.parquet import read_table, write_table

RNG = np.random.default_rng(0)
IMAGE = Domain(kind="image", shape=(1, 2, 2), levels=256)
VECTOR = Domain(kind="vector", shape=(4,))
MOST = 1 << 30
"""Bytes that all changed files of one kind may take."""


def load_first(dataset: Any) -> Any:
    return dataset().load([0]).shape


def npz(folder: Path) -> tuple[Path, Callable[[], Any]]:
    np.savez_compressed(
        folder / "f.npz", x=RNG.random((6, 4), np.float32), y=np.arange(6), classes=list("abcdef")
    )
    return folder / "f.npz", lambda: load_first(Npz(path=str(folder / "f.npz")))


def idx(folder: Path, pack: Callable[[bytes], bytes] = bytes, end: str = "") -> Any:
    pictures = bytes((0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2)) + bytes(range(12))
    (folder / f"t10k-images-idx3-ubyte{end}").write_bytes(pack(pictures))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3)))
    return folder / f"t10k-images-idx3-ubyte{end}", lambda: load_first(Mnist(path=str(folder)))


def picture(folder: Path, kind: str) -> Any:
    (folder / "a").mkdir()
    Image.fromarray(RNG.integers(0, 256, (9, 7, 3), np.uint8)).save(folder / f"a/f.{kind}")
    return folder / f"a/f.{kind}", lambda: load_first(ImageFolder(path=str(folder), size=4))


def listing(folder: Path, changed: str) -> Any:
    for name in ("a.png", "b.png"):
        Image.fromarray(RNG.integers(0, 256, (4, 4, 3), np.uint8)).save(folder / name)
    (folder / "labels.csv").write_text("file,label,name\na.png,0,cat\nb.png,1,dog\n")
    (folder / "classes.json").write_text(
        json.dumps([{"index": 0, "name": "cat"}, {"index": 1, "name": "dog"}])
    )
    return folder / changed, lambda: load_first(ImageFolder(path=str(folder)))


def rows(folder: Path) -> Any:
    (folder / "t.csv").write_text(
        "a,b,label\n" + "".join(f"{n / 7:.3f},w{n % 3},{n % 2}\n" for n in range(12))
    )
    return folder / "t.csv", lambda: load_first(TabularFile(path=str(folder / "t.csv")))


def parquet(folder: Path) -> Any:
    table = pa.table(
        {"a": np.arange(40) / 7, "b": [f"w{n % 3}" for n in range(40)], "label": np.arange(40) % 2}
    )
    pq.write_table(table, folder / "t.parquet")
    return folder / "t.parquet", lambda: load_first(TabularFile(path=str(folder / "t.parquet")))


def beats(folder: Path) -> Any:
    (folder / "b.csv").write_text(
        "".join(f"{n / 9:.3f},{n / 11:.3f},0.5,{n % 2}\n" for n in range(9))
    )
    return folder / "b.csv", lambda: load_first(EcgCsv(path=str(folder / "b.csv")))


def record(folder: Path, suffix: str) -> Any:
    write_record(folder, "a", leads=("MLII", "V5"))
    return folder / f"a.{suffix}", lambda: load_first(
        Wfdb(path=str(folder), low=(-1e3,), high=(1e3,))
    )


def network(folder: Path) -> Any:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, file = onnx.helper, folder / "m.onnx"
    weights = onnx.numpy_helper.from_array(RNG.random((4, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 1, 2, 2])],
        [helper.make_tensor_value_info("y", 1, ["n", 2])],
        [weights],
    )
    file.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    return file, lambda: Onnx(path=str(file))(IMAGE).predict(torch.zeros(1, 1, 2, 2)).shape


def estimator(folder: Path) -> Any:
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import LogisticRegression

    skops.dump(LogisticRegression().fit(RNG.random((8, 4)), np.arange(8) % 2), folder / "m.skops")
    return (
        folder / "m.skops",
        lambda: Sklearn(path=str(folder / "m.skops"))(VECTOR).predict(torch.zeros(1, 4)).shape,
    )


def state(folder: Path, *, new: bool) -> Any:
    torch.save(
        {"w": torch.rand(3, 2), "b": torch.zeros(2)},
        folder / "w.pt",
        _use_new_zipfile_serialization=new,
    )
    return folder / "w.pt", lambda: {
        name: value.shape for name, value in read_weights(folder / "w.pt").items()
    }


def tensors(folder: Path) -> Any:
    (folder / "w.safetensors").write_bytes(save({"w": torch.rand(3, 2), "b": torch.zeros(2)}))
    return folder / "w.safetensors", lambda: {
        name: tensor.shape for name, tensor in read_weights(folder / "w.safetensors").items()
    }


def stored_rows(folder: Path) -> Any:
    write_table(folder / "part-1.parquet", pa.table({"a": np.arange(40), "b": ["x"] * 40}))
    return folder / "part-1.parquet", lambda: len(read_table(folder / "part-1.parquet"))


def stored_arrays(folder: Path) -> Any:
    write_arrays(folder / "part-1.safetensors", {"1": RNG.random((2, 2)), "2": np.zeros(3)})
    return folder / "part-1.safetensors", lambda: list(read_arrays(folder / "part-1.safetensors"))


KINDS: tuple[Callable[[Path], Any], ...] = (npz, idx, partial(idx, pack=gzip.compress, end=".gz"))
KINDS += tuple(partial(picture, kind=kind) for kind in ("png", "jpeg", "gif", "tiff"))
KINDS += (
    partial(listing, changed="labels.csv"),
    partial(listing, changed="classes.json"),
    rows,
    parquet,
    beats,
)
KINDS += (partial(record, suffix="hea"), partial(record, suffix="atr"), network, estimator)
KINDS += (partial(state, new=True), partial(state, new=False), tensors, stored_rows, stored_arrays)


PIECES = (b"9" * 30, b"-", b"../", b"\x00", b"\n", b",", b"NaN", b"[" * 50)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One to six changes: bits, bytes, numbers that are large, pieces taken out, doubled, or put
    elsewhere.
    """
    mutant = bytearray(content)
    for _ in range(rng.integers(1, 7)):
        start, to = sorted(int(place) for place in rng.integers(0, len(mutant) + 1, 2))
        kind = rng.integers(8)
        if kind == 0 and mutant:
            mutant[start % len(mutant)] ^= 1 << int(rng.integers(8))
        elif kind == 1 and mutant:
            mutant[start % len(mutant)] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0x2D, 0x39]))
        elif kind == 2:
            mutant[start : start + 4] = (0, 2**31 - 1, 2**32 - 1, 2**24)[rng.integers(4)].to_bytes(
                4, "little"
            )
        elif kind == 3:
            mutant[start : start + 8] = (2**63 - 1, 2**64 - 1, 2**40)[rng.integers(3)].to_bytes(
                8, "big"
            )
        elif kind == 4:
            del mutant[start : min(to, start + 40)]
        elif kind == 5:
            mutant[start:start] = mutant[start : min(to, start + 200)]
        elif kind == 6:
            mutant[start:start] = PIECES[rng.integers(len(PIECES))]
        else:
            del mutant[max(start, len(mutant) // 2) :]
    return bytes(mutant)


def ends_of(file: Path, use: Callable[[], Any], count: int) -> dict[str, int]:
    """How often the changed file opened as before, opened otherwise, and was refused in one line."""
    original, ends = use(), Counter[str]()
    content, rng = file.read_bytes(), np.random.default_rng(7)
    for number in range(count):
        file.write_bytes(mutated(content, rng))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ends["as before" if use() == original else "otherwise"] += 1
        except BrinellError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000, (number, str(error))
            ends["refused"] += 1
    return dict(ends)


@pytest.mark.parametrize("count", [4, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", range(6))
def test_a_changed_file_opens_or_gives_one_line(
    part: int,
    count: int,
    tmp_path_factory: pytest.TempPathFactory,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("brinell.core.bounded.SECONDS", 2.0)
    for kind in KINDS[part::6]:
        file, use = kind(tmp_path_factory.mktemp("case"))
        ends, memory = run_in_child(partial(ends_of, file, use, count))
        assert memory < MOST
        assert "Traceback" not in "".join(capfd.readouterr())
        if kind in (stored_rows, stored_arrays):
            assert ends == {"refused": count}, "what is sealed is never read in silence"
        assert ends.get("refused"), ends
