"""Tables of beats, with and without a header."""

from pathlib import Path
from typing import Any

import pytest

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.testing.others import check_dataset


def open_table(folder: Path, text: str, **options: Any) -> Any:
    (folder / "beats.csv").write_text(text)
    return plugins.build("dataset", "ecg-csv", {"path": str(folder / "beats.csv")} | options)()


def test_without_a_header_the_last_column_is_the_label(tmp_path: Path) -> None:
    data = open_table(
        tmp_path, "0.1,0.2,0.0\n0.3,0.4,0.0\n0.5,0.6,0.0\n0.7,1.0,2.0\n", classes="N+S+V+F+Q"
    )
    check_dataset(data)
    assert data.labels().tolist() == [0, 2, 0, 0], "classes take turns"
    assert data.load([0, 1]).flatten().tolist() == pytest.approx([0.1, 0.2, 0.7, 1.0])
    assert (data.domain.kind, data.domain.shape, data.classes) == (
        "signal",
        (1, 2),
        ("N", "S", "V", "F", "Q"),
    )
    assert (
        data.info.sampling.rate == 125
        and open_table(tmp_path, "0.1,0.2,0\n0,1,1\n1,1,1\n", rate="0").info.sampling is None
    )
    for header in ("0,1,2", "1,2,3"):
        assert len(open_table(tmp_path, f"{header}\n0.1,0.2,1\n0,0,0\n1,1,0\n")) == 3, (
            "numbers of columns are a header"
        )


def test_columns_by_name(tmp_path: Path) -> None:
    text = "patient,class,t0,t1,note\np,V,-1.5,2,good\np,N,0,1,\nq,N,1,1,bad\n"
    options = {"groups": "patient", "leave": "note", "low": "-5", "high": "5"}
    data = open_table(tmp_path, text, unit="mV", rate="360", **options)
    assert data.classes == ("N", "V") and data.labels().tolist() == [1, 0, 0], (
        "patients take turns: p, q, p"
    )
    assert data.load([0]).tolist() == [[[-1.5, 2.0]]] and (
        data.info.sampling.rate,
        data.info.sampling.unit,
    ) == (360, "mV")
    assert (
        open_table(tmp_path, text.replace("class", "kind"), label="kind", **options).digest()
        == data.digest()
    )


def test_a_missing_value_is_refused_or_skipped(tmp_path: Path) -> None:
    text = "a,b,label\n0.1,0.2,N\n0.3,,V\nnan,1,V\n1,1,V\n"
    with pytest.raises(
        RequestError, match=r"column b .* no value in line 3 \(2 of 4 rows\): .* missing=skip"
    ):
        open_table(tmp_path, text)
    data = open_table(tmp_path, text, missing="skip")
    assert data.labels().tolist() == [0, 1] and "2 of 4 rows of" in data.info.remarks[0].text
    with pytest.raises(RequestError, match="no row is complete"):
        open_table(tmp_path, "a,b,label\n0.1,,N\n", missing="skip")


def test_bad_tables_give_one_line(tmp_path: Path) -> None:
    for text, options, words in (
        ("a,b,label\n1,x,N\n", {}, "holds 'x' in column b, among the values"),
        (
            "a,b\n1,1\n",
            {},
            "no column called label or class or target or y: name the label's by label=",
        ),
        ("a,b,y\n1,1,1\n", {"label": "z"}, "no column 'z'"),
        ("a,a,y\n1,1,1\n", {}, "two columns of one name .'a'."),
        ("1,1,1\n1,1\n", {}, "damaged or cut short .*Expected 3 columns, got 2"),
        ("", {}, "is empty"),
        ("a,b,label\n", {}, "a header and no row"),
        ("label\n1\n", {}, "no column of values"),
        ("0.5,7,1\n", {}, "values from 0.5 to 7, outside the bounds 0 to 1"),
        ("0.5,0.5,0.5\n", {}, "labels are whole numbers"),
        ("a,y\n1,N\n0,X\n", {"classes": "N+V"}, "there is a label 'X', and the classes are N, V"),
        ("0,1,2\n1,1,4\n", {"classes": "N+V"}, "has 2 names, but the labels go up to 4"),
    ):
        with pytest.raises(RequestError, match=words) as error:
            open_table(tmp_path, text, **options)
        assert "\n" not in str(error.value)
