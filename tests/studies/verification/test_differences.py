"""A folder and its repetition: each changed value is named with its file, its place and its
samples, and rounding is none.
"""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from _refusals import refused
from brinell.core.errors import RequestError
from brinell.core.record import Records, claimed_columns
from brinell.manifest import claims_in, is_claimed
from brinell.store.files import write_arrays
from brinell.store.parquet import write_table
from brinell.store.run_manifest import RunManifest
from brinell.studies.differences import (
    Claims,
    FolderComparison,
    are_close,
    compare_folders,
    compare_texts,
    list_files,
    size_of_data,
)

N = 1500
ROWS = {
    "sample_id": list(range(100, 100 + N)),
    "margin": [number / 7 for number in range(N)],
    "outcome": ["fooled", "survived", "fooled"] * (N // 3),
    "size": [None if number % 2 else 0.5 for number in range(N)],
}
MANIFEST = {
    "seed": 3,
    "eps": [0.1, 0.2],
    "models": [{"name": "a", "seconds": 1.5}],
    "text": "no place",
    "flag": True,
}
ARRAYS = {"a": np.arange(6.0), "b": np.array([True, False])}


def write(folder, rows=ROWS, manifest=MANIFEST, arrays=ARRAYS, page="<p>1</p>"):
    """A folder with data of each kind, and a page."""
    folder.mkdir(parents=True)
    write_table(folder / "rows.parquet", pa.table(rows))
    write_arrays(folder / "arrays.safetensors", arrays)
    (folder / "archive.npz").write_bytes(b"some bytes")
    (folder / "report.html").write_text(page)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"files": {"of": str(folder)}}))
    return folder


@pytest.fixture(scope="module")
def repetition(tmp_path_factory):
    return write(tmp_path_factory.mktemp("repetition") / "run")


def compared(folder, repetition, **claims):
    comparison = FolderComparison(Claims(**claims))
    compare_folders(folder, repetition, comparison)
    return comparison


def rows(column, *changes):
    values = list(ROWS[column])
    for row, value in changes:
        values[row] = value
    return {"rows": ROWS | {column: values}}


CHANGES = [
    # What is changed, the file and the words of the difference, samples, their number.
    (
        {"rows": {name: values[:-1] for name, values in ROWS.items()}},
        "rows.parquet",
        f"{N - 1} rows, and the request makes {N}",
        (),
        0,
    ),
    ({"rows": ROWS | {"more": [1] * N}}, "rows.parquet", "other columns", (), 0),
    (
        rows("outcome", (7, "x")),
        "rows.parquet",
        "column outcome comes out differently in 1 of 1500",
        (107,),
        1,
    ),
    (rows("margin", (7, -1.0)), "rows.parquet", "column margin", (107,), 1),
    (rows("margin", (7, 1e6)), "rows.parquet", "column margin", (107,), 1),
    (rows("size", (1, 0.6)), "rows.parquet", "column size", (101,), 1),
    (
        rows("margin", *((row, 0.0) for row in (3, 5, 8, 9, 12, 14, 20))),
        "rows.parquet",
        "in 7 of 1500",
        (103, 105, 108, 109, 112),
        7,
    ),
    ({"arrays": ARRAYS | {"a": np.arange(6.0) + 0.1}}, "arrays.safetensors", "", None, None),
    ({"arrays": {"a": ARRAYS["a"]}}, "arrays.safetensors", "", None, None),
    ({"arrays": ARRAYS | {"b": np.array([False, False])}}, "arrays.safetensors", "", None, None),
    (
        {"arrays": ARRAYS | {"a": np.arange(6.0).reshape(2, 3)}},
        "arrays.safetensors",
        "",
        None,
        None,
    ),
    ({"manifest": MANIFEST | {"seed": 4}}, "manifest.json", "seed is 4, and comes out as 3", (), 0),
    ({"manifest": MANIFEST | {"seed": 3.0}}, "manifest.json", "seed is 3.0", (), 0),
    ({"manifest": MANIFEST | {"flag": 1}}, "manifest.json", "flag is 1", (), 0),
    (
        {"manifest": MANIFEST | {"eps": [0.1, 0.21]}},
        "manifest.json",
        "eps.1 is 0.21, and comes out as 0.2",
        (),
        0,
    ),
    ({"manifest": MANIFEST | {"eps": [0.1]}}, "manifest.json", "eps is", (), 0),
    (
        {"manifest": MANIFEST | {"more": 1}},
        "manifest.json",
        "more is 1, and comes out as missing",
        (),
        0,
    ),
    (
        {"manifest": {key: MANIFEST[key] for key in MANIFEST if key != "text"}},
        "manifest.json",
        "text is missing",
        (),
        0,
    ),
    (
        {"manifest": MANIFEST | {"models": [{"name": "b", "seconds": 1.5}]}},
        "manifest.json",
        "models.0.name is 'b'",
        (),
        0,
    ),
]


def test_each_change_is_named(tmp_path, repetition):
    problems = []
    for number, (change, location, words, samples, count) in enumerate(CHANGES):
        differences = compared(write(tmp_path / str(number), **change), repetition).differences
        right = [
            difference
            for difference in differences
            if difference.location == location and words in difference.description
        ]
        if (
            len(differences) != 1
            or not right
            or (
                samples is not None
                and (differences[0].samples, differences[0].count) != (samples, count)
            )
        ):
            problems.append(
                (change if location == "manifest.json" else location, words, differences)
            )
    assert not problems, problems


def test_rounding_and_a_few_samples_at_the_boundary_are_no_difference(tmp_path, repetition):
    twin = compared(write(tmp_path / "same"), repetition)
    assert (twin.differences, twin.rows, twin.boundary, twin.arrays) == ([], N, 0, 2)
    rounded = {
        "manifest": MANIFEST | {"eps": [0.1000001, 0.2]},
        "arrays": ARRAYS | {"a": np.arange(6.0) * (1 + 1e-5)},
    }
    assert (
        compared(
            write(tmp_path / "rounded", **rows("margin", (7, 1.00001)), **rounded), repetition
        ).differences
        == []
    )
    # Three of 1500, and not four, may come out as another one does.
    three = compared(
        write(tmp_path / "three", **rows("outcome", *((row, "survived") for row in (0, 3, 6)))),
        repetition,
    )
    assert (three.differences, three.boundary) == ([], 3)
    four = compared(
        write(tmp_path / "four", **rows("outcome", *((row, "survived") for row in (0, 3, 6, 9)))),
        repetition,
    )
    assert [difference.samples for difference in four.differences] == [
        (100, 103, 106, 109)
    ] and four.boundary == 0
    boundary = compared(write(tmp_path / "within", **rows("margin", (7, 0.0))), repetition)
    assert (boundary.differences, boundary.boundary) == ([], 1), "0.0 occurs among the others"


HOSTILE = ("seconds", "*", "lab/robust", "..", "[", "manifest.json", "versions", "0", "a.seconds")
"""Names that people may give, and that mean something elsewhere."""


def test_claims_are_declared_by_type_whatever_names_people_give():
    """A key that people chose leads to a value, and never to a claim of its own."""
    rng = random.Random(0)
    for _ in range(200):
        name, other = rng.sample(HOSTILE, 2)
        folder, elsewhere = rng.sample([name for name in HOSTILE if "/" not in name], 2)
        assert is_claimed(RunManifest, ("seconds", name))
        assert is_claimed(RunManifest, ("hardware", "cpu"))
        assert is_claimed(RunManifest, ("remarks", name, other, name))
        assert not is_claimed(RunManifest, ("checks", name, rng.randrange(9), "text"))
        assert not is_claimed(RunManifest, ("repairs", name, "way"))
        assert not is_claimed(RunManifest, ("extras", name, other))
        assert not is_claimed(RunManifest, ("request", name))
        assert not is_claimed(RunManifest, ("models", rng.randrange(9), name))
        claims = Claims(folders=frozenset({folder}), files={"records/a-N.jsonl": "it is a claim"})
        assert claims.cover_file(f"{folder}/rows.parquet")
        assert not claims.cover_file(f"{elsewhere}/rows.parquet")
        assert not claims.cover_file(f"x{folder}")
        assert claims.cover_file(f"records/a-{rng.randrange(99)}.jsonl")
        assert not claims.cover_file(f"records/{rng.choice('bcd')}-1.jsonl")


def test_every_claim_of_a_run_is_listed_with_its_reason():
    names = dict(claims_in(RunManifest))
    assert {"seconds", "versions", "hardware", "created", "remarks", "traffic"} <= names.keys()
    assert "checks" not in names and "models" not in names
    assert claimed_columns(Records) == {"seconds"}


def test_what_is_claimed_is_not_compared(tmp_path, repetition):
    change = rows("margin", (7, -1.0)) | {"manifest": MANIFEST | {"seed": 4}}
    folder = write(tmp_path / "run", **change)
    assert len(compared(folder, repetition).differences) == 2
    claimed = {"columns": frozenset({"margin"}), "keys": {("seed",): "it is a claim"}}
    assert not compared(folder, repetition, **claimed).differences
    claimed = {"files": {"rows.parquet": "it is a claim"}, "keys": {("eps",): "it is a claim"}}
    (difference,) = compared(folder, repetition, **claimed).differences
    assert difference.location == "manifest.json"


def test_files_that_are_missing_or_too_many(tmp_path, repetition):
    folder = write(tmp_path / "run")
    (folder / "arrays.safetensors").unlink()
    (folder / "more.npz").write_bytes(b"")
    (folder / ".lock").write_bytes(b"")
    differences = [
        (difference.location, difference.description)
        for difference in compared(folder, repetition).differences
    ]
    assert differences == [
        ("arrays.safetensors", "the file is missing"),
        ("more.npz", "the request makes no such file"),
    ]
    assert not compared(
        folder, repetition, files=dict.fromkeys(("more.npz", "arrays.safetensors"), "it is a claim")
    ).differences


def test_texts_follow_from_the_data(tmp_path, repetition):
    folder = write(tmp_path / "run", page="<p>2</p>")
    (folder / "more.csv").write_text("1")
    comparison = FolderComparison(Claims())
    compare_texts(folder, repetition, comparison)
    assert [difference.location for difference in comparison.differences] == [
        "more.csv",
        "report.html",
    ]
    comparison = FolderComparison(Claims(files={"report.html": "it is a claim"}))
    compare_texts(repetition, folder, comparison)
    assert [
        (difference.location, difference.description) for difference in comparison.differences
    ] == [("more.csv", "the file is missing")]


def test_the_place_of_a_folder_may_be_another_one(tmp_path):
    """A text that holds the place of the repetition may hold another in its stead, the same one
    everywhere."""
    place = str(tmp_path / "new")
    repetition = write(
        tmp_path / "new", manifest={"a": f"brinell --out {place}", "b": f"{place}/x"}
    )
    cases = [
        ({"a": "brinell --out /old", "b": "/old/x"}, []),
        ({"a": "brinell --out /old", "b": "/other/x"}, ["the folder names several places"]),
        ({"a": "brinell --in /old", "b": "/old/x"}, ["a is 'brinell --in /old'"]),
        ({"a": "brinell --out /old", "b": "/old/y"}, ["b is '/old/y'"]),
    ]
    for number, (manifest, expected) in enumerate(cases):
        differences = compared(
            write(tmp_path / str(number), manifest=manifest), repetition
        ).differences
        assert len(differences) == len(expected) and all(
            words in difference.description
            for words, difference in zip(expected, differences, strict=True)
        )


def test_what_is_damaged_or_a_link_is_refused(tmp_path, repetition):
    folder = write(tmp_path / "run")
    for damaged in (b"[]", b"{", b"[" * 9999):
        (folder / "manifest.json").write_bytes(damaged)
        with pytest.raises(RequestError):
            compared(folder, repetition)
    (folder / "archive.npz").unlink()
    (folder / "archive.npz").symlink_to(repetition / "archive.npz")
    (folder / "manifest.json").write_bytes((repetition / "manifest.json").read_bytes())
    assert "archive.npz" in list_files(folder)
    with pytest.raises(RequestError, check=refused("studies.differences.content_of")):
        compared(folder, repetition)


def test_the_absolute_tolerance_is_a_share_of_the_size_of_the_data():
    """Digits that matter are seen for data of any size, and rounding is not."""
    rng = np.random.default_rng(75)
    for _ in range(50):
        scale = float(10 ** rng.uniform(-9, 2))
        domain = {"low": 0.0, "high": [scale, 2 * scale]}
        size = size_of_data({"data": {"domain": domain}})
        assert size == pytest.approx(min(1.0, scale))
        values = rng.uniform(0.1, 1, (3, 4)) * size
        assert are_close(values, values * (1 + 1e-6), size)
        assert not are_close(values, values * (1 + rng.uniform(0.01, 0.5)), size)
    assert size_of_data({}) == 1.0
