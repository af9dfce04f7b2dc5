"""Archives of arrays, good and bad."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.datasets.npz import Npz
from brinell.testing.others import check_dataset

X = np.arange(3 * 6 * 5 * 3, dtype=np.uint16).astype(np.uint8).reshape(3, 6, 5, 3)
Y = np.array([2, 0, 1])


def test_an_archive_opens(tmp_path_factory: pytest.TempPathFactory) -> None:
    for order in ["C", "F"]:
        for names in [("x", "y"), ("images", "labels"), ("clips", "labels")]:
            for save in [np.savez, np.savez_compressed]:
                tmp_path = tmp_path_factory.mktemp("case")
                save(
                    tmp_path / "d.npz",
                    **{
                        names[0]: np.asarray(X, order=order),
                        names[1]: Y,
                        "classes": np.array(["a", "b", "c"]),
                    },
                )
                data = Npz(path=str(tmp_path / "d.npz"))()
                check_dataset(data)
                assert (data.name, data.classes, data.labels().tolist()) == (
                    "d",
                    ("a", "b", "c"),
                    [2, 0, 1],
                )
                assert torch.equal(
                    data.load([2, 0]),
                    torch.from_numpy(X[[2, 0]].transpose(0, 3, 1, 2).astype(np.float32)) / 255,
                )


def test_signals_in_other_units_with_groups(tmp_path: Path) -> None:
    beats = np.array([[-1500, 4], [0, 5], [7, 8], [9, 9]], dtype=np.int16)
    arrays = {
        "beats_uV": beats,
        "y": np.arange(4),
        "record": np.array([7, 7, 7, 5]),
        "fs": 125.0,
        "r_index": 1,
    }
    np.savez(tmp_path / "e.npz", **arrays)  # type: ignore[arg-type]
    options = {
        "path": str(tmp_path / "e.npz"),
        "kind": "signal",
        "divide": 1000.0,
        "low": -5.0,
        "high": 5.0,
        "unit": "mV",
    }
    data: Any = Npz(**options, groups="record")()  # type: ignore[arg-type]
    check_dataset(data)
    assert data.labels().tolist() == [3, 0, 1, 2], "one of each record, then the second"
    assert (
        data.load([1]).tolist() == [[[-1.5, pytest.approx(0.004)]]] and data.domain.levels == 10001
    )
    assert (data.info.sampling.rate, data.info.sampling.unit, data.info.sampling.start) == (
        125,
        "mV",
        -1 / 125,
    )
    selected: Any = Npz(**options, groups="record", only=("7",), rate=250.0)()  # type: ignore[arg-type]
    assert selected.labels().tolist() == [0, 1, 2] and selected.info.sampling.rate == 250
    assert (
        selected.digest() != Npz(**options, groups="record")().digest() != Npz(**options)().digest()
    )  # type: ignore[arg-type]
    for groups, only, words in (
        ("record", ("6",), "no group '6'; it holds 5, 7"),
        ("nobody", (), "no array 'nobody'"),
    ):
        with pytest.raises(RequestError, match=words):
            Npz(**options, groups=groups, only=only)()  # type: ignore[arg-type]
    np.savez(tmp_path / "e.npz", **(arrays | {"fs": 0.0}))  # type: ignore[arg-type]
    with pytest.raises(RequestError, check=refused("datasets.npz.Npz._sampling")):
        Npz(**options)()  # type: ignore[arg-type]


def test_beats_with_their_rhythm(tmp_path: Path) -> None:
    arrays = {
        "beats_uV": np.array([[-1500, 4], [0, 5], [7, 8], [9, 9]], dtype=np.int16),
        "y": np.arange(4),
    }
    arrays |= {
        "record": np.array([7, 7, 7, 5]),
        "rr": np.array([0.5, 1.0, 1.0, 0.7]),
        "next": np.array([1.5, 1.0, 0.5, 0.7]),
    }
    np.savez(tmp_path / "e.npz", **arrays)  # type: ignore[arg-type]
    options = {
        "path": str(tmp_path / "e.npz"),
        "kind": "signal",
        "divide": 1000.0,
        "low": -5.0,
        "high": 5.0,
    }
    data: Any = Npz(**options, groups="record", rhythm=("rr", "next"))()  # type: ignore[arg-type]
    check_dataset(data)
    assert (
        data.domain.shape == (4, 2)
        and data.domain.free.shape == (1, 2)
        and data.domain.free.low == -5
    )
    x = data.load([1, 0])
    assert x[0, 0].tolist() == pytest.approx([-1.5, 0.004]) and x[0, 1:].tolist() == [
        [0.5] * 2,
        [1.5] * 2,
        [1.0] * 2,
    ]
    assert x[1, 1:, 0].tolist() == pytest.approx([0.7] * 3), "the record whose turn is first"
    # Levels are those of the trace.
    assert torch.equal(data.domain.round(x + 0.0002)[:, 1:], (x + 0.0002)[:, 1:])
    selected: Any = Npz(**options, groups="record", only=("7",), rhythm=("rr", "next"))()  # type: ignore[arg-type]
    assert torch.equal(selected.load([0]), x[:1])
    swapped: Any = Npz(**options, groups="record", rhythm=("next", "rr"))()  # type: ignore[arg-type]
    assert len({data.digest(), swapped.digest(), Npz(**options, groups="record")().digest()}) == 3  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rhythm= names two arrays, BEFORE.AFTER, and groups="):
        Npz(**options, rhythm=("rr", "next"))  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="no array 'rest'"):
        Npz(**options, groups="record", rhythm=("rr", "rest"))()  # type: ignore[arg-type]
    with pytest.raises(
        RequestError, match="holds vectors; a rhythm is for signals: give the option kind=signal"
    ):
        Npz(**(options | {"kind": "vector"}), groups="record", rhythm=("rr", "next"))()  # type: ignore[arg-type]


def test_bad_archives_give_one_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.npz"
    rows: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"x": X}, {}, "holds x alone, and no labels: save them too, as y$"),
        ({"x": X, "y": Y}, {"x": "z"}, "no array 'z'; it holds x, y"),
        ({"x": X, "y": Y[:2]}, {}, "2 labels for 3 inputs"),
        ({"x": np.array([{}, [], 1], dtype=object), "y": Y}, {}, "Python objects"),
        (
            {"x": np.array([[0.0, 255.0]]), "y": Y[:1]},
            {},
            "from 0 to 255, outside the bounds 0 to 1",
        ),
        ({"x": X[:0], "y": Y[:0]}, {}, "nothing to audit"),
        ({"x": np.float32(1), "y": Y}, {}, "single value"),
        ({"x": np.array([["a", "b"]]), "y": Y[:1]}, {}, "real numbers"),
    ]
    for arrays, options, words in rows:
        np.savez(file, **arrays)
        with pytest.raises(RequestError, match=words) as error:
            Npz(path=str(file), **options)()
        assert "\n" not in str(error.value) and "bad.npz" in str(error.value)
    np.savez(file, x=np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8), y=Y)
    raw = file.read_bytes()
    flipped = raw[:300] + bytes(byte ^ 255 for byte in raw[300:340]) + raw[340:]
    for content in (b"no zip at all", raw[: len(raw) // 2], b"", flipped):
        file.write_bytes(content)
        with pytest.raises(RequestError, match="damaged"):
            Npz(path=str(file))()
    np.save(tmp_path / "x.npy", X)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", (tmp_path / "x.npy").read_bytes()[:-9])
        archive.writestr("y.npy", (tmp_path / "x.npy").read_bytes()[:3])
    for name, words in (("x", "array x .*cut short"), ("y", "array y .*damaged")):
        with pytest.raises(RequestError, match=words):
            Npz(path=str(file), x=name, y="x")()
    with pytest.raises(RequestError, match="there is no file"):
        Npz(path=str(tmp_path / "none.npz"))()


def test_the_real_files_open_as_they_are(shared: Path) -> None:
    rows = [
        ("mnist/mnist_test.npz", (1, 28, 28), 10000, {}),
        ("cifar10/cifar10_test.npz", (3, 32, 32), 10000, {}),
        (
            "ecg_mitbih/mitbih_beats_test_ds2.npz",
            (1, 187),
            7958,
            {"kind": "signal", "low": -5000, "high": 5000},
        ),
        ("video/asl_gesture_clips.npz", (3, 16, 64, 64), 160, {}),
    ]
    for file, shape, n, options in rows:
        data = Npz(path=str(shared / file), **options)()
        assert (len(data), data.domain.shape) == (n, shape)
        if data.domain.high == 1:  # microvolts are whole only up to the rounding of float32
            check_dataset(data)
