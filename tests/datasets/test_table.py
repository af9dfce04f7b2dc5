"""Tables: what becomes of each column, and one clear line for each that cannot be read."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brinell.core.domain import Column
from brinell.core.errors import RequestError
from brinell.datasets.table import TabularFile
from brinell.testing import check_dataset

TEXT = """age,job,income,member,answer
20,cook,1000,true,yes
60,baker,3000,false,no
40,cook,2000,true,no
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_table(file):
    data = TabularFile(path=str(file), label="answer")()
    check_dataset(data)
    assert (
        data.name == "people"
        and data.classes == ("no", "yes")
        and data.labels().tolist() == [1, 0, 0]
    )
    assert data.domain.columns == (
        Column("age", 20, 60),
        Column("job", fixed=True, values=("baker", "cook")),
        Column("income", 1000, 3000),
        Column("member", fixed=True),
    )
    x = data.load([0, 1, 2])
    assert x.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0.5, 1, 0.5, 1]]
    assert data.domain.in_units(x.double()).tolist() == [
        [20, 1, 1000, 1],
        [60, 0, 3000, 0],
        [40, 1, 2000, 1],
    ]
    assert data.info.notes == (
        "bounds are the least and the largest value in the data for age, income",
        "no attack changes job, member",
    )


def test_options(file):
    options = {
        "bounds": ("age:0:100",),
        "fixed": ("income",),
        "drop": ("member",),
        "classes": ("yes", "no", "unknown"),
    }
    data = TabularFile(path=str(file), label="answer", **options)()
    check_dataset(data)
    assert data.classes == options["classes"] and data.labels().tolist() == [0, 1, 1]
    assert [column.name for column in data.domain.columns] == ["age", "job", "income"]
    assert data.domain.columns[0] == Column("age", 0, 100) and data.domain.columns[2].fixed
    assert data.load([1]).tolist() == [[pytest.approx(0.6), 0, 3000]] and data.info.notes == (
        "no attack changes job, income",
    )


def test_rows_with_a_missing_value_are_refused_or_skipped(file):
    for changed, name in (
        (TEXT.replace("60,b", ",b"), "age"),
        (TEXT.replace("baker", " "), "job"),
        (TEXT.replace("60", "nan"), "age"),
    ):
        file.write_text(changed)
        with pytest.raises(
            RequestError,
            match=rf"column {name} of .* no value in line 3 \(1 of 3 rows\): .* missing=skip",
        ):
            TabularFile(path=str(file), label="answer")()
        data = TabularFile(path=str(file), label="answer", missing="skip")()
        assert data.labels().tolist() == [1, 0] and data.domain.in_units(data.load([1]))[0, 0] == 40
        assert "1 of 3 rows of" in data.info.remarks[0].text
    file.write_text("age,answer\n,yes\n1,\n")
    with pytest.raises(RequestError, match="no row is complete"):
        TabularFile(path=str(file), label="answer", missing="skip")()


def test_parquet_holds_the_same(file, tmp_path):
    ages = pa.array([20, 60, 40], pa.decimal128(5, 2))
    jobs = pa.array(["cook", "baker", "cook"]).dictionary_encode()
    others = {
        "income": [1000.0, 3000.0, 2000.0],
        "member": [True, False, True],
        "answer": ["yes", "no", "no"],
    }
    pq.write_table(pa.table({"age": ages, "job": jobs, **others}), tmp_path / "people.parquet")
    from_csv, from_parquet = (
        TabularFile(path=str(path), label="answer")()
        for path in (file, tmp_path / "people.parquet")
    )
    assert from_csv.domain == from_parquet.domain and from_csv.digest() == from_parquet.digest()


def test_a_digest_knows_units_and_what_is_fixed(file):
    tables = [
        TabularFile(path=str(file), label="answer", **more)
        for more in ({}, {"fixed": ("age",)}, {"bounds": ("age:0:100",)}, {"drop": ("age",)})
    ]
    assert len({table().digest() for table in tables}) == 4
    months = file.with_name("months.csv")  # the same from bound to bound, in other units
    months.write_text(
        TEXT.replace("20,c", "240,c").replace("60,b", "720,b").replace("\n40,c", "\n480,c"),
        encoding="utf-8",
    )
    in_months = TabularFile(path=str(months), label="answer")()
    assert (
        in_months.load([0, 1, 2]) == tables[0]().load([0, 1, 2])
    ).all() and in_months.digest() != tables[0]().digest()


def test_bad_tables(file):
    for text, options, message in (
        (TEXT.replace("60,", "inf,"), {}, "column age of .* holds NaN or infinity"),
        (TEXT, {"label": "verdict"}, "has no column 'verdict'; it has age, job"),
        (TEXT, {"label": ""}, "has no column label or target or class or y"),
        (TEXT, {"fixed": ("agee",)}, "has no column 'agee', which fixed= names"),
        (TEXT, {"drop": ("answers",)}, "has no column 'answers', which drop= names"),
        (TEXT, {"bounds": ("age:0",)}, "bounds=age:0: write COLUMN:LOW:HIGH"),
        (TEXT, {"bounds": ("age:9:1",)}, "write COLUMN:LOW:HIGH"),
        (TEXT, {"bounds": ("agee:0:1",)}, "has no column 'agee', which bounds= names"),
        (TEXT, {"bounds": ("job:0:1",)}, "holds categories: they have none"),
        (TEXT, {"bounds": ("age:0:50",)}, "holds 60 in row 2, outside its bounds 0 to 50"),
        (TEXT, {"classes": ("yes",)}, "has the class 'no' in answer, which classes= does not list"),
        (TEXT, {"fixed": ("age", "income")}, "every column is fixed"),
        (TEXT.partition("\n")[0] + "\n", {}, "has no rows"),
        ("answer\nyes\n", {}, "has no column beside 'answer'"),
        ("a,a,answer\n1,2,3\n", {}, "has two columns 'a'"),
        (TEXT + "1,2\n", {}, "damaged or cut short"),
        ("", {}, "damaged or cut short"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(RequestError, match=message) as error:
            TabularFile(**{"path": str(file), "label": "answer"} | options)()
        assert "\n" not in str(error.value)
    pq.write_table(
        pa.table({"when": [datetime.datetime(2020, 1, 1)], "label": [0]}),
        file.with_suffix(".parquet"),
    )
    file.with_suffix(".xlsx").write_bytes(b"")
    for suffix, words in (
        (".parquet", "column when .* neither numbers nor text: convert it, or drop=when"),
        (".xlsx", "is no table: name a .csv"),
        (".tsv", "there is no file"),
    ):
        with pytest.raises(RequestError, match=words):
            TabularFile(path=str(file.with_suffix(suffix)))()
    file.with_suffix(".tsv").write_text("a\tb\tclass\n5\t0.5\t10\n5\t0.7\t9\n5\t0.9\t2\n")
    data = TabularFile(path=str(file.with_suffix(".tsv")))()
    assert data.classes == ("2", "9", "10") and data.labels().tolist() == [2, 1, 0], (
        "numbers are in their order"
    )
    assert data.domain.columns[0] == Column("a", fixed=True) and data.load([0]).tolist() == [[5, 0]]


def test_numbers_come_back_from_their_units(tmp_path):
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.normal(1e5, 3, (50, 1)), rng.normal(0, 1e-6, (50, 1)), rng.integers(0, 9, (50, 1))], 1
    )
    rows = [",".join(map(repr, row.tolist())) for row in x]
    file = tmp_path / "t.csv"
    file.write_text(
        "a,b,c,label\n" + "\n".join(f"{row},{index % 2}" for index, row in enumerate(rows)) + "\n"
    )
    data = TabularFile(path=str(file), fixed=("c",))()
    restored = data.domain.in_units(data.load(range(50)).double()).numpy()
    assert (np.abs(restored - x) <= 1e-7 * np.ptp(x, 0)).all()
    assert (restored[:, 2] == x[:, 2]).all(), "what cannot change is what it was, to the last bit"
