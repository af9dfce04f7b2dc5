"""CIFAR-10 batches whose bytes are written here opcode by opcode, as Python 2 wrote the published ones."""

import struct
from pathlib import Path

import numpy as np
import pytest

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.datasets._opcodes import read_values
from brinell.datasets.cifar10 import CLASSES, Cifar10
from brinell.testing.others import check_dataset

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), np.uint8)
ROWS = PIXELS.tobytes()


def short(text: bytes) -> bytes:
    """SHORT_BINSTRING: a str of Python 2."""
    return b"U" + bytes([len(text)]) + text


def text(value: str) -> bytes:
    """SHORT_BINUNICODE: a str of Python 3, protocol 4."""
    return b"\x8c" + bytes([len(value)]) + value.encode()


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
ARRAY_5 = (
    text("numpy._core.numeric") + text("_frombuffer") + b"\x93("  # STACK_GLOBAL, MARK
    b"\x96"
    + struct.pack("<Q", len(ROWS))
    + ROWS  # BYTEARRAY8
    + (text("numpy") + text("dtype") + b"\x93" + text("u1") + b"\x89\x88\x87R")  # dtype("u1", False, True)
    + (b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")
    + (b"K\x02M\x00\x0c\x86" + text("C") + b"tR")
)
PYTHON_3 = (
    b"\x80\x05\x95" + struct.pack("<Q", 0) + b"}\x94("  # PROTO 5, FRAME, EMPTY_DICT, MEMOIZE, MARK
    b"C\x04data" + ARRAY_5 + b"C\x06labels" + b"]\x94(K\x03K\x08eu."  # keys as bytes
)
META = b"(dp1\nS'num_cases_per_batch'\np2\nI10000\nsS'label_names'\np3\n(lp4\n" + b"".join(
    f"S'{name}'\na".encode() for name in "plane car bird cat deer dog frog horse ship truck".split()
) + b"sS'num_vis'\nI3072\ns."  # fmt: skip


def folder(tmp_path: Path, **files: bytes) -> str:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return str(tmp_path)


@pytest.mark.parametrize("batch", [PYTHON_2, PYTHON_3], ids=["python2", "python3"])
def test_a_python_batch_opens(tmp_path: Path, batch: bytes) -> None:
    data = Cifar10(path=folder(tmp_path, test_batch=batch, **{"batches.meta": META}))()
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
    with pytest.raises(RequestError, check=refused("datasets.cifar10._open")):
        Cifar10(path=path, split="train")()
    for i in range(1, 6):
        (tmp_path / f"data_batch_{i}").write_bytes(PYTHON_2)
    assert len(Cifar10(path=path, split="train")()) == 10


def test_a_pickle_is_never_run(tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests) -> None:
    rows = [
        (b"cos\nsystem\n(S'echo no'\ntR.", "asks for the global os.system"),
        (b"\x80\x04" + text("builtins") + text("eval") + b"\x93" + text("1") + b"\x85R.", "asks for the global builtins.eval"),
        (b"\x80\x02cnumpy\nndarray\nK\x00\x85R.", "a call of 'ndarray'"),
        (b"\x80\x02S'os'\nK\x00\x85R.", "a call of 'os'"),
        (b"(S'x'\nios\nsystem\n.", "the opcode INST"),
        (b"(cos\nsystem\no.", "the global os.system"),
        (b"\x80\x02S'a'\n}b.", "a state for a str"),
        (b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.", "arrays of type 'O'"),
        (b"\x80\x02c_codecs\nencode\nU\x01xU\x03zip\x86R.", "the coding 'zip'"),
        (b"\x80\x02P1\n.", "the opcode PERSID"),
        (b"\x80\x02\x82\x01.", "the opcode EXT1"),
        (PYTHON_2[:-1], "damaged"),
        (PYTHON_2[:3000], "damaged"),
        (b"", "damaged"),
        (b"no pickle", "damaged"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"e.", "damaged"),
        (b"\x80\x02}.", "no data and labels"),
        (b"\x80\x02K\x01.", "no data and labels"),
        (PYTHON_2.replace(b"K\x03K\x08e", b"K\x03e"), "2 labels"),
        (PYTHON_2.replace(b"K\x03K\x08e", b"K\x03Ne"), "whole numbers"),
        (PYTHON_2.replace(b"K\x03K\x08e", b"K\x03K\x0be"), "10 names, but the labels go up to 11"),
        (PYTHON_2.replace(b"M\x00\x0c\x86", b"M\x00\x0d\x86"), "damaged .*reshape"),
        (PYTHON_2.replace(b"U\x02u1", b"U\x02i1"), "no array of bytes"),
    ]
    for batch, words in rows:
        with subtests.test(batch=batch):
            tmp_path = tmp_path_factory.mktemp("case")
            with pytest.raises(RequestError, match=words) as error:
                Cifar10(path=folder(tmp_path, test_batch=batch))()
            assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_plain_values(tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests) -> None:
    rows = [
        (b"I01\n.", True),
        (b"(I1\nL-2L\ntp0\n.", (1, -2)),
        (b"\x80\x02(\x8a\x01\xfeG?\xf8\x00\x00\x00\x00\x00\x00\x88\x89Nt.", (-2, 1.5, True, False, None)),
        (b"\x80\x02}U\x01aK\x01s.", {"a": 1}),
        (b"(S'k'\n(lp1\nI5\nad.", {"k": [5]}),
        (b"\x80\x02]q\x01K\x07ah\x01.", [7]),
        (b"\x80\x03C\x02\x00\xff.", b"\x00\xff"),
        (b"\x80\x02c_codecs\nencode\nX\x02\x00\x00\x00\xc3\xbfX\x06\x00\x00\x00latin1\x86R.", b"\xff"),
        (b")\x85.", ((),)),
    ]
    for opcodes, value in rows:
        with subtests.test(opcodes=opcodes):
            tmp_path = tmp_path_factory.mktemp("case")
            (tmp_path / "f").write_bytes(opcodes)
            with (tmp_path / "f").open("rb") as file:
                assert read_values(file, "f") == value


def test_byte_order_and_column_order(tmp_path: Path) -> None:
    def array(order: bytes, fortran: bytes, data: bytes) -> bytes:
        kind = b"cnumpy\ndtype\nU\x02i2K\x00K\x01\x87R(K\x03U\x01" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        start = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        return start + b"(K\x01K\x02K\x02\x86" + kind + fortran + short(data) + b"tb."

    for opcodes in (
        array(b"<", b"\x89", b"\1\0\2\0\3\0\4\0"),
        array(b">", b"\x89", b"\0\1\0\2\0\3\0\4"),
        array(b"<", b"\x88", b"\1\0\3\0\2\0\4\0"),
    ):
        (tmp_path / "f").write_bytes(opcodes)
        with (tmp_path / "f").open("rb") as file:
            assert read_values(file, "f").tolist() == [[1, 2], [3, 4]]


def test_a_binary_file_of_another_size_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, check=refused("datasets.cifar10._records")):
        Cifar10(path=folder(tmp_path, **{"test_batch.bin": b"\0" * 3074}))()


def test_a_wrong_folder_gives_one_line(tmp_path: Path) -> None:
    with pytest.raises(RequestError, check=refused("datasets._files.missing_originals_error")):
        Cifar10(path=str(tmp_path))()
    (tmp_path / "cifar10_test.npz").touch()
    with pytest.raises(RequestError, check=refused("datasets._files.missing_originals_error")):
        Cifar10(path=str(tmp_path))()
    with pytest.raises(RequestError, check=refused("datasets.cifar10._names")):
        Cifar10(path=folder(tmp_path, test_batch=PYTHON_2, **{"batches.meta": b"}."}))()
