"""idx files written by hand, byte by byte."""

import gzip
from pathlib import Path

import pytest
import torch

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.datasets.mnist import Mnist
from brinell.testing.others import check_dataset

# Magic number (two zeros, 08 for unsigned bytes, number of axes), then each length as a big-endian
# 32-bit number, then the bytes.
IMAGES = bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3)) + bytes(
    (0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6)
)
LABELS = bytes((0, 0, 8, 1, 0, 0, 0, 2)) + bytes((7, 2))


def write(
    folder: Path,
    images: bytes = IMAGES,
    labels: bytes = LABELS,
    prefix: str = "t10k",
    suffix: str = "",
) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    pack = gzip.compress if suffix else bytes
    (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(images))
    (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(labels))
    return str(folder)


def test_idx_files_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    for below in [".", "raw", "MNIST/raw"]:
        for suffix in ["", ".gz"]:
            tmp_path = tmp_path_factory.mktemp("case")
            write(tmp_path / below, suffix=suffix)
            data = Mnist(path=str(tmp_path))()
            check_dataset(data)
            assert (len(data), data.domain.shape, data.labels().tolist()) == (2, (1, 2, 3), [7, 2])
            assert torch.allclose(
                data.load([0]), torch.tensor([[[[0.0, 0.2, 0.4], [0.6, 0.8, 1.0]]]])
            )


def test_the_split_is_in_the_name(tmp_path: Path) -> None:
    path = write(tmp_path, prefix="train")
    assert Mnist(path=path, split="train")().name == "mnist-train"
    with pytest.raises(RequestError, check=refused("datasets.mnist._find")):
        Mnist(path=path)()


def test_bad_files_give_one_line(tmp_path: Path) -> None:
    for change, words in (
        ({"images": IMAGES[:-1]}, "27 bytes where 28 are needed"),
        ({"images": IMAGES[:9]}, "no idx file"),
        ({"images": LABELS}, "no idx file of bytes with 3 axes"),
        ({"images": b"\x80\x02}q."}, "no idx file .*starts with 80027d71"),
        ({"labels": bytes((0, 0, 8, 1, 0, 0, 0, 1, 7))}, "1 labels for 2"),
        ({"labels": LABELS[:-1] + b"\x0a"}, "label 10"),
        ({"images": IMAGES[:7] + b"\0" + IMAGES[8:]}, "nothing to audit"),
    ):
        with pytest.raises(RequestError, match=words) as error:
            Mnist(path=write(tmp_path, **change))()
        assert "\n" not in str(error.value)
    path = write(tmp_path / "packed", suffix=".gz")
    file = tmp_path / "packed" / "t10k-images-idx3-ubyte.gz"
    for content in (file.read_bytes()[:-12], b"not gzip"):
        file.write_bytes(content)
        with pytest.raises(RequestError, match="damaged or cut short"):
            Mnist(path=path)()
    with pytest.raises(RequestError, match="there is no folder"):
        Mnist(path=str(tmp_path / "none"))()
