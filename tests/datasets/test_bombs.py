"""Small files that ask for much, and files that name others: each gives one line, soon, and no
program starts.
"""

import contextlib
import importlib
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from _child import run_in_child
from brinell.core import bounded
from brinell.core.contracts import Domain
from brinell.core.errors import RequestError
from brinell.datasets.ecg_csv import EcgCsv
from brinell.datasets.image_folder import ImageFolder
from brinell.datasets.npz import Npz
from brinell.datasets.table import TabularFile
from brinell.models.onnx import Onnx
from brinell.models.sklearn import Sklearn
from brinell.models.torch import TorchModule

IMAGE = Domain(kind="image", shape=(1, 2, 2), levels=256)


def npy(shape: str, data: bytes = b"", descr: str = "<f4") -> bytes:
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def archive(folder: Path, **members: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(folder / "f.npz", "w", zipfile.ZIP_DEFLATED) as archive_file:
        for name, content in members.items():
            archive_file.writestr(f"{name}.npy", content)
    return {"path": str(folder / "f.npz")}


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = zlib.compress(bytes(min(width * height * 3, 1 << 20)))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def of_arrays(**members: bytes) -> Callable[[Path], Any]:
    return lambda folder: Npz(**archive(folder, **members))()


def of_file(open_file: Callable[[Path], Any], **files: bytes | str) -> Callable[[Path], Any]:
    """Writes files by name, where __ is a point and _in_ a slash, and opens them."""

    def bomb(folder: Path) -> Any:
        for name, content in files.items():
            file = folder / name.replace("__", ".").replace("_in_", "/")
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        return open_file(folder)

    return bomb


def parquet(columns: Callable[[], dict[str, Any]]) -> Callable[[Path], Any]:
    def bomb(folder: Path) -> Any:
        pq.write_table(pa.table(columns()), folder / "t.parquet", compression="zstd")
        return TabularFile(path=str(folder / "t.parquet"))()

    return bomb


def numbers() -> dict[str, Any]:
    column = pa.array(np.zeros(1_000_000, np.int8))
    return {"a": column, "b": column, "label": column}


def long_text() -> dict[str, Any]:
    text = pa.DictionaryArray.from_arrays(np.zeros(10_000, np.int32), ["x" * 10_000])
    return {"a": text, "label": np.zeros(10_000, np.int8)}


def pictures(size: int, below: str = "") -> Callable[[Path], Any]:
    return lambda folder: ImageFolder(path=str(folder / below), size=size)().load([0])


def table(folder: Path) -> Any:
    return TabularFile(path=str(folder / "t.csv"))()


def a_picture_in_postscript(folder: Path) -> Any:
    text = (
        f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n({folder}/ran) (w) file "
        "closefile\nshowpage\n"
    )
    return of_file(pictures(8), a_in_f__png=text)(folder)


def network_with(folder: Path) -> Any:
    (folder / "m.py").write_text(
        "from torch import nn\ndef net():\n    return "
        "nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n"
    )
    return TorchModule(path=f"{folder}/m.py:net", weights=str(folder / "w.pt"))(IMAGE)


def weights_that_unpack(folder: Path) -> Any:
    torch.save({"weight": torch.zeros(1_000_000)}, folder / "whole.pt")
    with (
        zipfile.ZipFile(folder / "whole.pt") as source,
        zipfile.ZipFile(folder / "w.pt", "w", zipfile.ZIP_DEFLATED) as archive_file,
    ):
        for name in source.namelist():
            archive_file.writestr(name, source.read(name))
    return network_with(folder)


def old_weights_that_promise(folder: Path) -> Any:
    """The format before archives names the size of each storage before its bytes."""
    torch.save({"w": torch.zeros(7)}, folder / "w.pt", _use_new_zipfile_serialization=False)
    content = (folder / "w.pt").read_bytes()
    assert content.count(b"K\x07") >= 2
    (folder / "w.pt").write_bytes(
        content.replace(b"K\x07", b"\x8a\x05" + struct.pack("<Q", 1 << 34)[:5])
    )
    return network_with(folder)


def an_estimator_that_unpacks(folder: Path) -> Any:
    pytest.importorskip("skops")
    with zipfile.ZipFile(folder / "m.skops", "w", zipfile.ZIP_DEFLATED) as archive_file:
        archive_file.writestr("schema.json", "{}")
        archive_file.writestr("a.npy", bytes(4_000_000))
    return Sklearn(path=str(folder / "m.skops"))(IMAGE)


def onnx_with_weights_in(
    folder: Path, place: str, *, node: bool = False, make: Callable[[Path], Any] = lambda file: None
) -> Any:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make(folder / "w.bin")
    tensor = onnx.TensorProto(name="w", dims=[4, 2], data_type=1, data_location=1)
    for key, value in (("location", place), ("offset", "0"), ("length", "32")):
        tensor.external_data.add(key=key, value=value)
    helper = onnx.helper
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    if node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    ports = (
        [helper.make_tensor_value_info("x", 1, ["n", 1, 2, 2])],
        [helper.make_tensor_value_info("y", 1, ["n", 2])],
    )
    graph = helper.make_graph(nodes, "g", *ports, [] if node else [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return Onnx(path=str(folder / "m.onnx"))(IMAGE)


def link(file: Path) -> None:
    file.symlink_to("/etc/passwd")


X, LABELS = npy("(2, 2, 2)", bytes(32)), npy("(2,)", bytes(16), "<i8")
ROW = "1," * 1_000_000 + "1\n"
BOMBS: list[tuple[Callable[[Path], Any], str]] = [
    (
        of_arrays(x=X, y=npy("(2,)", np.array([0, 10**8]).tobytes(), "<i8")),
        "the label 100000000; labels are below 100000",
    ),
    (of_arrays(x=npy("(-2, 2, 2)", bytes(32)), y=LABELS), "damaged: its shape is"),
    (of_arrays(x=npy("(99999999999, 2, 2)", b"", "|S0"), y=LABELS), "damaged: its shape is"),
    (
        of_arrays(x=X, y=npy("(50000000,)", bytes(50_000_000), "|u1")),
        "where at most 2 values belong",
    ),
    (parquet(numbers), "would become 24 MB"),
    (parquet(long_text), "would become 100 MB"),
    (of_file(table, t__csv="a," * 1_000_000 + "label\n" + ROW), "it is no table"),
    (of_file(lambda folder: EcgCsv(path=str(folder / "t.csv"))(), t__csv=ROW), "it is no table"),
    (of_file(pictures(8), a_in_f__png=png(100_000, 100_000)), "pixels"),
    (of_file(pictures(200), a_in_f__png=png(1, 60_000)), "cannot be brought to 200"),
    (a_picture_in_postscript, "cannot identify image file"),
    (
        of_file(
            pictures(0, "d"),
            secret__png=png(8, 8),
            d_in_labels__csv="file,label\n../secret.png,0\n",
        ),
        "leads out of",
    ),
    (
        of_file(pictures(0), f__png=png(8, 8), labels__csv=f"file,label\nf.png,{'9' * 5000}\n"),
        "labels are below",
    ),
    (
        of_file(
            pictures(0),
            f__png=png(8, 8),
            labels__csv="file,label\nf.png,0\n",
            classes__json='[{"index": 1000000000, "name": "a"}]',
        ),
        "indices from 1000000000",
    ),
    (weights_that_unpack, "would become 4 MB"),
    (old_weights_that_promise, "w.pt"),
    (an_estimator_that_unpacks, "would become 4 MB"),
    (partial(onnx_with_weights_in, place="/dev/zero"), "leads out of"),
    (partial(onnx_with_weights_in, place="../../etc/passwd", node=True), "leads out of"),
    (partial(onnx_with_weights_in, place="*/_ORT_MEM_ADDR_/*"), "no file beside it"),
    (partial(onnx_with_weights_in, place="w.bin", make=link), "leads out of"),
    (partial(onnx_with_weights_in, place="w.bin", make=os.mkfifo), "no file beside it"),
]


MOST = 1 << 30
"""Bytes that one of them may take."""


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    """Imports the libraries that open the files, so that no child process needs memory and time for
    that."""
    for name in ("onnx", "onnxruntime", "skops.io"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@pytest.mark.parametrize("part", range(5))
def test_each_gives_one_line_and_takes_little(
    part: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bomb, words in BOMBS[part::5]:
        tmp_path = tmp_path_factory.mktemp("case")
        monkeypatch.setattr(bounded, "IN_MEMORY", 1 << 20)  # so that the bombs are soon made
        folder = tmp_path / "d"
        folder.mkdir()

        def open_bomb(bomb: Any = bomb, words: str = words, folder: Path = folder) -> str:
            with pytest.raises(RequestError, match=words) as error:
                bomb(folder)
            return str(error.value)

        line, memory = run_in_child(open_bomb)
        assert "\n" not in line and len(line) < 800
        assert not (folder / "ran").exists()
        assert memory < MOST


def test_what_a_child_takes_is_seen() -> None:
    def fill() -> int:
        """Pages of their own: a list might lie in what the parent has freed."""
        with mmap.mmap(-1, 1 << 26) as area:
            for page in range(0, len(area), mmap.PAGESIZE):
                area[page] = 1
            return len(area)

    size, memory = run_in_child(fill)
    assert size == 1 << 26 and memory > size * 0.9
