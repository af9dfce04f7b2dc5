"""CIFAR-10 batches whose bytes are written here opcode by opcode, as Python 2 wrote the published
ones."""

import hashlib
import io
import pickle  # noqa: TID251  the published files alone, by their digests
import struct
from pathlib import Path

import numpy as np
import pytest

from brinell.core.errors import RequestError
from brinell.datasets.cifar10 import CLASSES, PUBLISHED, Cifar10, _Unpickler
from brinell.testing.others import check_dataset

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)
ROWS = PIXELS.tobytes()


def short(text: bytes) -> bytes:
    """SHORT_BINSTRING: a str of Python 2."""
    return b"U" + bytes([len(text)]) + text


DTYPE_2 = b"cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
ARRAY_2 = (
    # _reconstruct(ndarray, (0,), "b").
    b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85U\x01b\x87R"
    b"(K\x01K\x02M\x00\x0c\x86"
    + DTYPE_2
    + b"\x89"
    + b"T"
    + struct.pack("<i", len(ROWS))
    + ROWS
    + b"tb"  # BUILD with the bytes
)
PYTHON_2 = (
    b"\x80\x02}q\x01("  # PROTO 2, EMPTY_DICT, BINPUT 1, MARK
    + (short(b"batch_label") + b"q\x02" + short(b"testing batch 1 of 1") + b"q\x03")
    + (short(b"labels") + b"q\x04]q\x05(K\x03K\x08e")  # EMPTY_LIST, MARK, 3, 8, APPENDS
    + (short(b"data") + ARRAY_2)
    + (
        short(b"filenames")
        + b"]("
        + short(b"domestic_cat_s_000907.png")
        + short(b"ship_\xff.png")
        + b"e"
    )
    + b"u."  # SETITEMS, STOP
)


def folder(tmp_path: Path, **files: bytes) -> str:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return str(tmp_path)


@pytest.fixture(autouse=True)
def _published(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these bytes were the published ones."""
    for name in PUBLISHED:
        monkeypatch.setitem(PUBLISHED, name, hashlib.md5(PYTHON_2).hexdigest())


def test_a_python_batch_opens(tmp_path: Path) -> None:
    data = Cifar10(path=folder(tmp_path, test_batch=PYTHON_2))()
    check_dataset(data)
    assert data.labels().tolist() == [3, 8]
    assert data.classes == CLASSES
    assert np.array_equal(
        data.load([1]).numpy()[0] * 255, PIXELS[1].reshape(3, 32, 32).astype(np.float32)
    )


def test_five_batches_are_the_train_split(tmp_path: Path) -> None:
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    folder(place, **{f"data_batch_{i}": PYTHON_2 for i in range(1, 6)})
    assert Cifar10(path=str(tmp_path), split="train")().labels().tolist() == [3, 8] * 5
    (place / "data_batch_4").unlink()
    with pytest.raises(RequestError, match="data_batch_4: name the folder .* with all batches"):
        Cifar10(path=str(tmp_path), split="train")()


def test_other_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    evil = b"cos\nsystem\n(S'touch ran'\ntR."
    index = np.random.default_rng(0).integers(len(PYTHON_2), size=20)
    changed = [PYTHON_2[:k] + bytes([PYTHON_2[k] ^ 1]) + PYTHON_2[k + 1 :] for k in index]
    for content in (evil, PYTHON_2[:-1], b"", *changed):
        path = folder(tmp_path, test_batch=content)
        with pytest.raises(
            RequestError, match="test_batch is not the file of CIFAR-10 that is published"
        ):
            Cifar10(path=path)()
    for content in (evil, b"cbuiltins\neval\n(S'1'\ntR.", b"cnumpy\nload\n(S'x'\ntR."):
        with pytest.raises(pickle.UnpicklingError, match="it names"):
            _Unpickler(io.BytesIO(content)).load()
    (tmp_path / "test_batch").unlink()
    with pytest.raises(RequestError, match="there is no file .*test_batch"):
        Cifar10(path=str(tmp_path))()
