"""Small files that ask for much, and files that name others: each gives one line, soon, and no program starts."""

import contextlib
import importlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
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
from brinell.datasets.table import Table
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
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes(min(width * height * 3, 1 << 20)))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def a_label_of_ten_million(folder: Path) -> Any:
    return Npz(**archive(folder, x=npy("(2, 2, 2)", bytes(32)), y=npy("(2,)", np.array([0, 10**8]).tobytes(), "<i8")))()


def an_array_of_negative_shape(folder: Path) -> Any:
    return Npz(**archive(folder, x=npy("(-2, 2, 2)", bytes(32)), y=npy("(2,)", bytes(16), "<i8")))()


def an_array_of_nothing(folder: Path) -> Any:
    return Npz(**archive(folder, x=npy("(99999999999, 2, 2)", b"", "|S0"), y=npy("(2,)", bytes(16), "<i8")))()


def labels_without_end(folder: Path) -> Any:
    return Npz(**archive(folder, x=npy("(2, 2, 2)", bytes(32)), y=npy("(50000000,)", bytes(50_000_000), "|u1")))()


def a_parquet_of_one_number(folder: Path) -> Any:
    column = pa.array(np.zeros(1_000_000, np.int8))
    pq.write_table(pa.table({"a": column, "b": column, "label": column}), folder / "t.parquet", compression="zstd")
    return Table(path=str(folder / "t.parquet"))()


def a_parquet_of_one_long_text(folder: Path) -> Any:
    text = pa.DictionaryArray.from_arrays(np.zeros(10_000, np.int32), ["x" * 10_000])
    pq.write_table(pa.table({"a": text, "label": np.zeros(10_000, np.int8)}), folder / "t.parquet", compression="zstd")
    return Table(path=str(folder / "t.parquet"))()


def a_table_of_a_million_columns(folder: Path) -> Any:
    (folder / "t.csv").write_text("a," * 1_000_000 + "label\n" + "1," * 1_000_000 + "1\n")
    return Table(path=str(folder / "t.csv"))()


def beats_of_a_million_columns(folder: Path) -> Any:
    (folder / "t.csv").write_text("1," * 1_000_000 + "1\n")
    return EcgCsv(path=str(folder / "t.csv"))()


def a_picture_of_ten_gigapixels(folder: Path) -> Any:
    (folder / "a").mkdir()
    (folder / "a/f.png").write_bytes(png(100_000, 100_000))
    return ImageFolder(path=str(folder), size=8)().load([0])


def a_picture_one_pixel_wide(folder: Path) -> Any:
    (folder / "a").mkdir()
    (folder / "a/f.png").write_bytes(png(1, 60_000))
    return ImageFolder(path=str(folder), size=200)().load([0])


def a_picture_in_postscript(folder: Path) -> Any:
    (folder / "a").mkdir()
    text = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n({folder}/ran) (w) file closefile\nshowpage\n"
    (folder / "a/f.png").write_text(text)
    return ImageFolder(path=str(folder), size=8)().load([0])


def a_list_that_names_a_file_outside(folder: Path) -> Any:
    (folder / "in").mkdir()
    (folder / "secret.png").write_bytes(png(8, 8))
    (folder / "in/labels.csv").write_text("file,label\n../secret.png,0\n")
    return ImageFolder(path=str(folder / "in"))().load([0])


def a_list_with_a_large_label(folder: Path) -> Any:
    (folder / "f.png").write_bytes(png(8, 8))
    (folder / "labels.csv").write_text(f"file,label\nf.png,{'9' * 5000}\n")
    return ImageFolder(path=str(folder))()


def classes_without_end(folder: Path) -> Any:
    (folder / "f.png").write_bytes(png(8, 8))
    (folder / "labels.csv").write_text("file,label\nf.png,0\n")
    (folder / "classes.json").write_text('[{"index": 1000000000, "name": "a"}]')
    return ImageFolder(path=str(folder))()


def weights_that_unpack(folder: Path) -> Any:
    torch.save({"weight": torch.zeros(1_000_000)}, folder / "whole.pt")
    with (
        zipfile.ZipFile(folder / "whole.pt") as source,
        zipfile.ZipFile(folder / "w.pt", "w", zipfile.ZIP_DEFLATED) as archive_file,
    ):
        for name in source.namelist():
            archive_file.writestr(name, source.read(name))
    (folder / "whole.pt").unlink()
    (folder / "m.py").write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n")
    return TorchModule(path=f"{folder}/m.py:net", weights=str(folder / "w.pt"))(IMAGE)


def old_weights_that_promise(folder: Path) -> Any:
    """The format before archives names the size of each storage before its bytes."""
    torch.save({"w": torch.zeros(7)}, folder / "w.pt", _use_new_zipfile_serialization=False)
    content = (folder / "w.pt").read_bytes()
    assert content.count(b"K\x07") >= 2
    (folder / "w.pt").write_bytes(content.replace(b"K\x07", b"\x8a\x05" + struct.pack("<Q", 1 << 34)[:5]))
    (folder / "m.py").write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))\n")
    return TorchModule(path=f"{folder}/m.py:net", weights=str(folder / "w.pt"))(IMAGE)


def an_estimator_that_unpacks(folder: Path) -> Any:
    pytest.importorskip("skops")
    with zipfile.ZipFile(folder / "m.skops", "w", zipfile.ZIP_DEFLATED) as archive_file:
        archive_file.writestr("schema.json", "{}")
        archive_file.writestr("a.npy", bytes(4_000_000))
    return Sklearn(path=str(folder / "m.skops"))(IMAGE)


def onnx_with_weights_in(folder: Path, place: str, *, node: bool = False) -> Any:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tensor = onnx.TensorProto(name="w", dims=[4, 2], data_type=1, data_location=1)
    for key, value in (("location", place), ("offset", "0"), ("length", "32")):
        tensor.external_data.add(key=key, value=value)
    helper = onnx.helper
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    if node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 1, 2, 2])],
        [helper.make_tensor_value_info("y", 1, ["n", 2])],
        [] if node else [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return Onnx(path=str(folder / "m.onnx"))(IMAGE)


def onnx_with_weights_in_a_device(folder: Path) -> Any:
    return onnx_with_weights_in(folder, "/dev/zero")


def onnx_with_a_constant_elsewhere(folder: Path) -> Any:
    return onnx_with_weights_in(folder, "../../etc/passwd", node=True)


def onnx_with_weights_in_memory(folder: Path) -> Any:
    return onnx_with_weights_in(folder, "*/_ORT_MEM_ADDR_/*")


def onnx_with_weights_behind_a_link(folder: Path) -> Any:
    (folder / "w.bin").symlink_to("/etc/passwd")
    return onnx_with_weights_in(folder, "w.bin")


def onnx_with_weights_in_a_pipe(folder: Path) -> Any:
    os.mkfifo(folder / "w.bin")
    return onnx_with_weights_in(folder, "w.bin")


BOMBS: list[tuple[Callable[[Path], Any], str]] = [
    (a_label_of_ten_million, "the label 100000000; labels are below 100000"),
    (an_array_of_negative_shape, "damaged: its shape is"),
    (an_array_of_nothing, "damaged: its shape is"),
    (labels_without_end, "where at most 2 values belong"),
    (a_parquet_of_one_number, "would become 24 MB"),
    (a_parquet_of_one_long_text, "would become 100 MB"),
    (a_table_of_a_million_columns, "it is no table"),
    (beats_of_a_million_columns, "it is no table"),
    (a_picture_of_ten_gigapixels, "pixels"),
    (a_picture_one_pixel_wide, "cannot be brought to 200"),
    (a_picture_in_postscript, "cannot identify image file"),
    (a_list_that_names_a_file_outside, "leads out of"),
    (a_list_with_a_large_label, "labels are below"),
    (classes_without_end, "indices from 1000000000"),
    (weights_that_unpack, "would become 4 MB"),
    (old_weights_that_promise, "w.pt"),
    (an_estimator_that_unpacks, "would become 4 MB"),
    (onnx_with_weights_in_a_device, "leads out of"),
    (onnx_with_a_constant_elsewhere, "leads out of"),
    (onnx_with_weights_in_memory, "no file beside it"),
    (onnx_with_weights_behind_a_link, "leads out of"),
    (onnx_with_weights_in_a_pipe, "no file beside it"),
]


MOST = 1 << 30
"""Bytes that one of them may take."""


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    """Imports the libraries that open the files, so that no child process needs memory and time for that."""
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
    size, memory = run_in_child(lambda: len(b"x" * (1 << 26)))
    assert size == 1 << 26 and memory > size * 0.9
    parent_bytes = b"y" * (1 << 26)
    size, memory = run_in_child(lambda: len(parent_bytes))
    assert size == 1 << 26 and memory < size * 0.1, "what the parent holds is not counted"
    with pytest.raises(AssertionError, match="invalid literal"):
        run_in_child(lambda: int("no number"))
