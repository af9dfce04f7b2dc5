"""CIFAR-10 batches whose bytes are written here opcode by opcode, as Python 2 wrote the published ones."""

import hashlib
import io
import pickle  # noqa: TID251  the published files alone, by their digests
import struct
from pathlib import Path

import numpy as np
import pytest

from _refusals import refused
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
    b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85U\x01b\x87R"  # _reconstruct(ndarray, (0,), "b")
    b"(K\x01K\x02M\x00\x0c\x86" + DTYPE_2 + b"\x89" + b"T" + struct.pack("<i", len(ROWS)) + ROWS + b"tb"  # BUILD with the bytes
)
PYTHON_2 = (
    b"\x80\x02}q\x01("  # PROTO 2, EMPTY_DICT, BINPUT 1, MARK
    + (short(b"batch_label") + b"q\x02" + short(b"testing batch 1 of 1") + b"q\x03")
    + (short(b"labels") + b"q\x04]q\x05(K\x03K\x08e")  # EMPTY_LIST, MARK, 3, 8, APPENDS
    + (short(b"data") + ARRAY_2)
    + (short(b"filenames") + b"](" + short(b"domestic_cat_s_000907.png") + short(b"ship_\xff.png") + b"e")
    + b"u."  # SETITEMS, STOP
)
META = b"(dp1\nS'num_cases_per_batch'\np2\nI10000\nsS'label_names'\np3\n(lp4\n" + b"".join(
    f"S'{name}'\na".encode() for name in "plane car bird cat deer dog frog horse ship truck".split()
) + b"sS'num_vis'\nI3072\ns."  # fmt: skip


def folder(tmp_path: Path, **files: bytes) -> str:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return str(tmp_path)


@pytest.fixture(autouse=True)
def _published(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these bytes were the published ones."""
    batches = {name: PYTHON_2 for name in PUBLISHED} | {"batches.meta": META}
    for name, content in batches.items():
        monkeypatch.setitem(PUBLISHED, name, hashlib.md5(content).hexdigest())


def test_a_python_batch_opens(tmp_path: Path) -> None:
    data = Cifar10(path=folder(tmp_path, test_batch=PYTHON_2, **{"batches.meta": META}))()
    check_dataset(data)
    assert data.labels().tolist() == [3, 8]
    assert data.classes[:3] == ("plane", "car", "bird")
    assert np.array_equal(data.load([1]).numpy()[0] * 255, PIXELS[1].reshape(3, 32, 32).astype(np.float32))


def test_the_binary_version_holds_the_same(tmp_path: Path) -> None:
    records = b"".join(bytes([label]) + row.tobytes() for label, row in zip((3, 8), PIXELS, strict=True))
    names = ("\n".join(CLASSES) + "\n\n").encode()
    (tmp_path / "cifar-10-batches-bin").mkdir()
    folder(tmp_path / "cifar-10-batches-bin", **{"test_batch.bin": records, "batches.meta.txt": names})
    binary = Cifar10(path=str(tmp_path))()
    check_dataset(binary)
    assert binary.classes == CLASSES
    (tmp_path / "py").mkdir()
    assert Cifar10(path=folder(tmp_path / "py", test_batch=PYTHON_2))().digest() == binary.digest()


def test_five_batches_are_the_train_split(tmp_path: Path) -> None:
    records = [bytes([label]) + bytes([label]) * 3072 for label in range(5)]
    path = folder(tmp_path, **{f"data_batch_{i + 1}.bin": records[i] * 2 for i in range(5)})
    data = Cifar10(path=path, split="train")()
    assert data.labels().tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert (data.load([9, 0])[:, 0, 0, 0] * 255).tolist() == [4, 0]
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(RequestError, check=refused("datasets.cifar10.Cifar10.__call__")):
        Cifar10(path=path, split="train")()
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}").write_bytes(PYTHON_2)
    assert len(Cifar10(path=path, split="train")()) == 10


def test_other_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    evil = b"cos\nsystem\n(S'touch ran'\ntR."
    index = np.random.default_rng(0).integers(len(PYTHON_2), size=20)
    changed = [PYTHON_2[:k] + bytes([PYTHON_2[k] ^ 1]) + PYTHON_2[k + 1 :] for k in index]
    for content in (evil, PYTHON_2[:-1], b"", *changed):
        for name in ("test_batch", "batches.meta"):
            path = folder(tmp_path, **{"test_batch": PYTHON_2, name: content})
            with pytest.raises(RequestError, match=f"{name} is not the file of CIFAR-10 that is published"):
                Cifar10(path=path)()
            (tmp_path / "batches.meta").unlink(missing_ok=True)
    for content in (evil, b"cbuiltins\neval\n(S'1'\ntR.", b"cnumpy\nload\n(S'x'\ntR."):
        with pytest.raises(pickle.UnpicklingError, match="it names"):
            _Unpickler(io.BytesIO(content)).load()
    (tmp_path / "test_batch").unlink()
    with pytest.raises(RequestError, match="no whole number of records"):
        Cifar10(path=folder(tmp_path, **{"test_batch.bin": b"\0" * 3074}))()
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(RequestError, check=refused("datasets._files.missing_originals_error")):
        Cifar10(path=str(tmp_path))()
