"""Records as the library writes them, and real ones."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from _records import SYMBOLS, write_record
from _refusals import refused
from brinell import plugins
from brinell.core.errors import RequestError
from brinell.datasets.wfdb import SPLITS, Wfdb
from brinell.testing.others import check_dataset


def open_records(folder: Path, **options: Any) -> Any:
    return Wfdb(path=str(folder), **options)()


def test_beats_are_cut_where_they_are(tmp_path: Path) -> None:
    write_record(tmp_path / "d", "a", symbols=SYMBOLS[:-1])
    data = open_records(tmp_path / "d")
    check_dataset(data)
    assert [data.classes[label] for label in data.labels()] == ["N", "N", "S", "V", "Q"], (
        "a change of rhythm is no beat"
    )
    assert data.domain.shape == (1, 187) and (
        data.domain.low,
        data.domain.high,
        data.domain.levels,
    ) == (-5, 5, None)
    sampling = data.info.sampling
    assert (sampling.rate, sampling.unit, sampling.leads) == (
        125,
        "mV",
        ("MLII",),
    ) and sampling.start == pytest.approx(-62 / 125)
    x = data.load(range(5))[:, 0]
    assert x.argmax(1).tolist() == [62] * 5 and float(x[:, :40].abs().max()) < 0.01, (
        "the baseline is at 0, R at 0.496 s"
    )
    torch.testing.assert_close(
        x.amax(1), torch.tensor([1.0, 1.2, 1.3, 1.4, 1.5]), atol=0.08, rtol=0
    )


def test_without_resampling_values_are_those_of_the_record(tmp_path: Path) -> None:
    write_record(tmp_path / "d", "a", fs=100)
    data = open_records(tmp_path / "d", rate=0, before=0.1, after=0.2)
    assert data.domain.shape == (1, 30) and data.info.sampling.rate == 100
    assert not set(SPLITS["ds1"]) & set(SPLITS["ds2"]) and (
        len(SPLITS["ds1"]),
        len(SPLITS["ds2"]),
    ) == (21, 22)
    torch.testing.assert_close(
        data.load([0])[0, 0, 5:16], 1 - (torch.arange(-5.0, 6).abs() / 5), atol=1e-4, rtol=0
    )


def test_leads_units_and_bounds(tmp_path: Path) -> None:
    write_record(tmp_path / "d", "a", leads=("I", "V1"), units="uV", height=1000.0)
    data = open_records(tmp_path / "d", leads=("V1", "I"), low=(-5.0, -2.0), high=(5.0,))
    assert data.domain.low == (-5, -2) and data.domain.high == (5, 5) and data.domain.shape[0] == 2
    assert float(data.load([0]).max()) == pytest.approx(1, abs=0.08)
    assert open_records(tmp_path / "d", leads=()).domain.shape == (1, 187), (
        "the first of each record"
    )
    with pytest.raises(RequestError, check=refused("datasets.wfdb.Wfdb.__call__")):
        open_records(tmp_path / "d")
    with pytest.raises(RequestError, match="give one for all, or one for each"):
        plugins.build("dataset", "wfdb", {"low": "-1+-2+-3", "leads": "I+V1"})


def test_the_rhythm_is_that_of_all_beats(tmp_path: Path) -> None:
    """A beat each second, but at 2 s, where a mark is none.

    The first window leaves the record; its beat counts all the same.
    """
    write_record(tmp_path / "d", "a", symbols=SYMBOLS[:-1])
    data = open_records(tmp_path / "d", before=1.2, rhythm=True)
    check_dataset(data)
    x, low, high = data.load(range(4)), data.domain.low, data.domain.high
    assert (
        x.shape == (4, 4, 275)
        and (low, high) == ((-5, 0, 0, 0), (5, 5, 5, 5))
        and data.domain.free.shape == (1, 275)
    )
    assert x[:, 1:, 0].tolist() == [[2, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]] and torch.equal(
        x[:, 1:, 0], x[:, 1:, -1]
    )
    plain = open_records(tmp_path / "d", before=1.2)
    assert torch.equal(x[:, :1], plain.load(range(4))) and plain.digest() != data.digest()
    write_record(tmp_path / "d", "b", symbols=["N"] * 5)
    write_record(tmp_path / "d", "c", symbols=["N"])
    data = open_records(tmp_path / "d", rhythm=True)
    assert [remark.text for remark in data.info.remarks] == [
        "record c has a single beat, and so no rhythm: left out"
    ]
    write_record(tmp_path / "d", "c", symbols=["N", "V"], spacing=0.0)
    assert (
        open_records(tmp_path / "d", rhythm=True)
        .info.remarks[0]
        .text.startswith("record c has beats that do not follow each other")
    )
    actual = data.load(range(10))[:, 1:, 0]
    assert actual[::2].tolist() == [[1, 2, 1], [2, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert actual[1::2].tolist() == [[1, 1, 1]] * 5


def test_records_take_turns_and_can_be_chosen(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_record(tmp_path / "d", name, symbols=["N"] * 3 + ["V"])
    data, a, b = (open_records(tmp_path / "d", records=records) for records in ((), ("a",), ("b",)))
    assert torch.equal(data.load(range(8))[::2], a.load(range(4))) and torch.equal(
        data.load(range(8))[1::2], b.load(range(4))
    )
    assert data.labels().tolist() == [0] * 6 + [2] * 2
    assert open_records(tmp_path / "d", without=("b",)).digest() == a.digest()
    assert open_records(tmp_path / "d", most=3).labels().tolist() == [0, 0, 0, 2, 2]
    with pytest.raises(RequestError, match="no record 'c'; it holds a, b"):
        open_records(tmp_path / "d", records=("c",))


def test_what_cannot_be_used_is_left_out_and_named(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = [
        ({"annotated": False}, {}, "record b has no annotations .b.atr.: left out"),
        (
            {"fs": 250},
            {"rate": 0},
            "record b has 250 values per second and the ones before 360: left out; rate=",
        ),
        ({"leads": ("V5",)}, {}, "record b has no lead MLII; it has V5: left out"),
        ({"units": "mmHg"}, {}, "record b is in 'mmhg', and not in volts"),
        (
            {"height": 9.0},
            {},
            "6 of 6 beats of record b have missing values or leave the bounds of "
            ".-5.0. to .5.0. mV: left out",
        ),
    ]
    for bad, options, words in rows:
        tmp_path = tmp_path_factory.mktemp("case")
        write_record(tmp_path / "d", "a")
        write_record(tmp_path / "d", "b", **bad)
        data = open_records(tmp_path / "d", **options)
        assert len(data) == 6 and len(data.info.remarks) == 1
        assert re.search(words, data.info.remarks[0].text) and "\n" not in data.info.remarks[0].text
        if "rate" not in options:  # alone there is no other rate
            with pytest.raises(
                RequestError, match=f"no record with beats that can be used: {words}"
            ):
                open_records(tmp_path / "d", records=("b",), **options)
        for change in (
            lambda: (tmp_path / "d" / "b.dat").unlink(),
            lambda: (tmp_path / "d" / "b.hea").write_text("none\n"),
        ):
            change()
            assert [remark.text[:8] for remark in open_records(tmp_path / "d").info.remarks] == [
                "record b"
            ]


def test_other_rates_are_resampled(tmp_path: Path) -> None:
    write_record(tmp_path / "d", "a", fs=360)
    write_record(tmp_path / "d", "b", fs=250)
    data = open_records(tmp_path / "d")
    x = data.load(range(len(data)))[:, 0]
    assert len(data) == 12 and x.argmax(1).tolist() == [62] * len(data)
    torch.testing.assert_close(x[0::2], x[1::2], atol=0.06, rtol=0)


def test_real_records_give_the_intervals_that_others_found(shared: Path) -> None:
    data = open_records(shared / "ecg_wfdb_records", records=("100",), rhythm=True)
    x = data.load(range(len(data)))
    beats = (x[:, 0].numpy() * 1000).round().astype(np.int16)
    rhythm_by_beat = {
        beat.tobytes(): rhythm for beat, rhythm in zip(beats, x[:, 1:, 0].numpy(), strict=True)
    }
    with np.load(shared / "ecg_mitbih" / "mitbih_beats_test_ds2.npz") as arrays:
        of = arrays["record"] == 100
        actual = np.array(
            [rhythm_by_beat.get(beat.tobytes(), [np.nan] * 3) for beat in arrays["beats_uV"][of]]
        )
        expected = np.stack([arrays["rr_prev_s"][of], arrays["rr_next_s"][of]], 1)
    equal = np.isclose(actual[:, :2], expected, atol=2e-3).all(1)
    assert (
        equal.mean() > 0.95
        and len(equal) > 200
        and np.unique(actual[equal, 2]).tolist() == [pytest.approx(0.794, abs=0.02)]
    )


def test_real_records_give_the_beats_that_others_cut(shared: Path) -> None:
    """Against an archive cut from the same records by its own code: every beat of it, within a
    microvolt.
    """
    data = open_records(shared / "ecg_wfdb_records", records=("100", "208"))
    assert np.bincount(data.labels(), minlength=5).tolist()[3] == 372
    label_by_beat: dict[bytes, int] = {}
    x = (data.load(range(len(data)))[:, 0].numpy() * 1000).round().astype(np.int16)
    for beat, label in zip(x, data.labels(), strict=True):
        label_by_beat[beat.tobytes()] = int(label)
    for part, name in (("test_ds2", 100), ("train_ds1", 208)):
        with np.load(shared / "ecg_mitbih" / f"mitbih_beats_{part}.npz") as arrays:
            of = arrays["record"] == name
            actual = [label_by_beat.get(beat.tobytes()) for beat in arrays["beats_uV"][of]]
            agree = [
                predicted == label
                for predicted, label in zip(actual, arrays["labels"][of], strict=True)
            ]
        assert np.mean(agree) > 0.95 and len(agree) > 300, (
            "a few differ by the rounding of a single value"
        )


TWELVE = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")


def test_records_with_a_label_each(tmp_path: Path, subtests: Any) -> None:
    """From the header or a table; what has no label, several, other leads or too few seconds is
    left out and named.
    """
    folder = tmp_path / "d"
    diagnoses = {"a": "AF", "b": "NSR", "c": "AF,NSR", "d": "", "e": "NSR", "f": "AF"}
    for number, (name, dx) in enumerate(diagnoses.items()):
        comments, leads = (
            ([f"Age: {60 + number}", f"dx: {dx}"] if dx else []),
            TWELVE[::-1] if name == "e" else TWELVE,
        )
        write_record(
            folder,
            name,
            leads=leads,
            annotated=False,
            comments=comments,
            symbols=SYMBOLS[: 7 - number],
        )
    table = tmp_path / "labels.csv"
    rows = "".join(f"{number},{name}.hea,{10 - number}\n" for number, name in enumerate(diagnoses))
    table.write_text(f"patient,file,grade\n{rows}")
    cases: list[tuple[str, float, list[str], list[tuple[str, str]], int]] = [
        ("Dx", 0, ["AF", "NSR"], [("a", "AF"), ("b", "NSR"), ("f", "AF")], 3),
        ("Dx", 6, ["AF", "NSR"], [("a", "AF"), ("b", "NSR")], 4),
        (
            f"{table}:grade",
            0,
            ["5", "7", "8", "9", "10"],
            [("f", "5"), ("d", "7"), ("c", "8"), ("b", "9"), ("a", "10")],
            1,
        ),
    ]
    for label, seconds, classes, expected, left_out in cases:
        with subtests.test(label):
            data = open_records(folder, label=label, seconds=seconds)
            check_dataset(data)
            assert [
                (name, data.classes[y])
                for name, y in zip(data.info.names, data.labels(), strict=True)
            ] == expected
            assert (
                list(data.classes) == classes
                and len(data.info.remarks) == left_out
                and data.info.sampling.leads == TWELVE
            )
            length = 125 * seconds if seconds else 125 * 4
            assert data.domain.shape == (12, length) and float(
                data.load([0])[0, :, 115:135].max()
            ) == pytest.approx(1, abs=0.1)
    for options, words in (
        ({}, "has no annotations .*write label="),
        ({"label": "Rhythm"}, "has no label by Rhythm"),
        ({"label": f"{table}:name"}, "has no column 'name'; it has patient, file, grade"),
        ({"label": "Dx", "leads": ("V9",)}, "has no lead V9; it has I, II"),
    ):
        with pytest.raises(RequestError, match=words):
            open_records(folder, **options)
