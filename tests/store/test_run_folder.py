import multiprocessing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import rows_of
from _refusals import refused
from brinell.core.errors import RequestError, StoppedError
from brinell.core.record import COLUMNS, SCHEMA_VERSION, Outcome, Records
from brinell.store import parquet, rows
from brinell.store.files import write_atomically, write_text
from brinell.store.parts import Parts, PieceResult
from brinell.store.run import LAYOUT, Run, holders_of, merge_attacks, save_arrays

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
VALUES = {
    "string": TEXTS,
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32, allow_nan=False),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
}


@st.composite
def records(draw):
    """Any values that the columns can hold, with nulls wherever they are allowed."""
    n = draw(st.integers(0, 5))
    columns = {}
    for name, column in COLUMNS.items():
        dtype = object if column.kind == "string" else column.kind
        values = np.array(draw(st.lists(VALUES[column.kind], min_size=n, max_size=n)), dtype=dtype)
        mask = draw(st.lists(st.booleans(), min_size=n, max_size=n))
        columns[name] = np.ma.MaskedArray(values, mask=mask) if column.null else values
    return rows.build(Records, n, **columns)


def some_records(n=3, **columns):
    defaults = {
        "model": "m",
        "sample_id": np.arange(n),
        "label": 0,
        "clean_pred": 0,
        "clean_confidence": 0.5,
        "attack": "fgsm",
        "distance": "linf",
        "unit": 1.0,
        "attacked": 0.1,
        "outcome": str(Outcome.SURVIVED),
    }
    return rows.build(Records, n, **(defaults | columns))


# Tables


@settings(max_examples=20)
@given(records())
def test_round_trip(tmp_path_factory, records):
    file = tmp_path_factory.mktemp("t") / "part.parquet"
    parquet.write_table(file, parquet.to_table(records))
    reread = parquet.load_rows(Records, file)
    assert len(reread) == len(records)
    for name, column in COLUMNS.items():
        written, reread_column = getattr(records, name), getattr(reread, name)
        assert written.tolist() == reread_column.tolist(), name
        assert isinstance(reread_column, np.ma.MaskedArray) == column.null
        assert reread_column.dtype == written.dtype


def test_a_file_cut_short(tmp_path_factory, subtests):
    for keep in [0, 4, 100, -4]:
        with subtests.test(str((keep,))):
            tmp_path = tmp_path_factory.mktemp("row")
            file = tmp_path / "part.parquet"
            parquet.write_table(file, parquet.to_table(some_records()))
            file.write_bytes(file.read_bytes()[:keep])
            with pytest.raises(
                RequestError, match="part.parquet is damaged .*: restore it from a copy"
            ) as error:
                parquet.load_rows(Records, file)
            assert "\n" not in str(error.value)


def test_a_file_of_another_schema(tmp_path):
    file = tmp_path / "part.parquet"
    pq.write_table(pa.table({"x": [1]}), file)
    with pytest.raises(RequestError, check=refused("store.parquet.check_schema")):
        parquet.load_rows(Records, file)


@settings(max_examples=20)
@given(records(), st.data())
def test_take_and_concatenate(records, data):
    n = len(records)
    indices = np.array(
        data.draw(st.lists(st.integers(0, n - 1), max_size=6)) if n else [], dtype=int
    )
    selection = rows.take(records, indices)
    assert selection.sample_id.tolist() == records.sample_id[indices].tolist()
    joined = rows.concatenate([records, selection])
    assert len(joined) == n + len(indices)
    for name in COLUMNS:
        assert (
            getattr(joined, name).tolist()
            == getattr(records, name).tolist() + getattr(selection, name).tolist()
        )


# Files


def test_writing_is_whole_or_not_at_all(tmp_path):
    file = tmp_path / "deep" / "file.txt"
    write_text(file, "old")

    def breaks(path):
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, breaks)
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file], "something was left behind"


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk(tmp_path, monkeypatch, step):
    full = OSError(28, "No space left on device")

    def raises(*_, **__):
        raise full

    file = tmp_path / "file.txt"
    write_text(file, "old")
    if step != "write":
        monkeypatch.setattr({"fsync": "os.fsync", "replace": "pathlib.Path.replace"}[step], raises)
    with pytest.raises(StoppedError, check=refused("store.files.write_atomically")):
        write_atomically(file, raises if step == "write" else lambda path: path.write_text("new"))
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_what_is_written_is_on_disk_before_it_is_seen(tmp_path, monkeypatch):
    order = []
    import os
    from pathlib import Path

    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr("os.fsync", lambda file: order.append("fsync") or fsync(file))
    monkeypatch.setattr(
        "pathlib.Path.replace", lambda self, to: order.append("replace") or replace(self, to)
    )
    write_text(tmp_path / "file.txt", "new")
    assert order == ["fsync", "replace", "fsync"]


# The folder


def test_arrays_of_groups_become_those_of_a_stage(tmp_path, monkeypatch):
    """Two attacks broke sample 1, the second at a smaller budget; the part keeps the closer input,
    whose rows and arrays are whole.
    """
    parts = Parts(tmp_path)
    monkeypatch.setattr("brinell.store.run.PART_BYTES", 20)
    broken = {"outcome": str(Outcome.BROKEN), "forwards": 3}
    first_input, closer_input = np.float32([0.1, 0.2]), np.float32([0.3, 0.4])
    groups = {}
    for key, eps, arrays in [
        ("k1", 0.2, dict.fromkeys(range(7), first_input)),
        ("k2", 0.1, {1: closer_input}),
    ]:
        groups[key] = some_records(
            len(arrays),
            sample_id=np.array(list(arrays)),
            attacked=eps,
            broken=eps,
            l2=eps,
            **broken,
        )
        named = {str(sample): array for sample, array in arrays.items()}
        parts.write(key, PieceResult(rows=groups[key], arrays=named))
    for order in (groups, dict(reversed(groups.items()))):
        assert holders_of(order) == dict.fromkeys(range(7), "k1") | {1: "k2"}
    for key, group in groups.items():
        assert rows_of(parts.read(key, Records).rows) == rows_of(group)
    merged = merge_attacks(list(groups.values()))
    sources = {key: parts.arrays_file(key) for key in groups}
    save_arrays(tmp_path, "1-01-fgsm", groups, sources, size=8)
    assert (
        merged.attacked.tolist() == [0.2] * 7 and merged.broken.tolist() == [0.2, 0.1] + [0.2] * 5
    )
    assert merged.forwards.tolist() == [3, 6] + [3] * 5 and merged.l2.tolist() == pytest.approx(
        merged.broken.tolist()
    )
    assert len(list((tmp_path / "arrays").glob("*"))) == 4
    manifest = {"models": [{"name": "m"}], "stages": [{"name": "fgsm"}]}
    run = Run(path=tmp_path, manifest=manifest, rows=merged)
    examples = run.adversarial("m", "fgsm", [1, 0, 6, 9])
    assert sorted(examples) == [0, 1, 6] and run.stored("m", "fgsm") == set(range(7))
    for sample, x in examples.items():
        np.testing.assert_array_equal(x, closer_input if sample == 1 else first_input)
        assert x.dtype == np.float32
    assert run.adversarial("m", "pgd", [0]) == run.adversarial("other", "fgsm", [0]) == {}
    file = next(iter((tmp_path / "arrays").iterdir()))
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(RequestError, check=refused("store.files.damaged")):
        run.adversarial("m", "fgsm", range(7))


def test_a_damaged_answer_is_made_again(tmp_path):
    """A cut file of rows or a cut record is no answer, and nothing of it is left."""
    parts, answer = (
        Parts(tmp_path),
        PieceResult(rows=some_records(), facts={"failed": {"3": "why"}}),
    )
    for suffix in (".parquet", ".json"):
        assert parts.write("k", answer).facts == parts.read("k", Records).facts == answer.facts
        file = parts.folder / f"k{suffix}"
        file.write_bytes(file.read_bytes()[:-20])
        assert parts.read("k", Records) is None and not list(parts.folder.iterdir())


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 6), st.booleans()), min_size=1, max_size=8
    ),
    st.randoms(),
)
def test_attacks_on_a_sample_merge_into_one_row(samples, order):
    """Each sample descends from a level to the one below that it broke, until an attack fails or
    the smallest level is broken."""
    attacks, expected = [], {}
    for sample, (top, lowest, fails) in enumerate(samples):
        level, broken, costs, margin = top, None, 0, None
        while True:
            costs += level
            found = level > lowest
            outcome = (
                str(Outcome.BROKEN) if found else str(Outcome.FAILED if fails else Outcome.SURVIVED)
            )
            broken, margin = (level, None) if found else (broken, None if fails else -float(level))
            values = (
                {"broken": level, "queries_to_success": level, "linf": level}
                if found
                else {"margin": margin}
            )
            values = {name: value for name, value in values.items() if value is not None}
            attacks.append(
                some_records(
                    1, sample_id=sample, attacked=level, outcome=outcome, forwards=level, **values
                )
            )
            level -= 1
            if not found or level == 0:
                break
        outcome = "failed" if outcome == "failed" else "survived" if broken is None else "broken"
        expected[sample] = (
            top,
            broken,
            outcome,
            costs,
            margin,
            top if broken is not None else None,
            broken,
        )
    order.shuffle(attacks)
    rows_ = merge_attacks(attacks)
    names = ("attacked", "broken", "outcome", "forwards", "margin", "queries_to_success", "linf")
    columns = [np.ma.asarray(getattr(rows_, name)).tolist() for name in names]
    assert dict(zip(rows_.sample_id.tolist(), zip(*columns, strict=True), strict=True)) == expected


def test_folders_that_are_no_finished_run(tmp_path, subtests):
    folder = tmp_path / "run"
    folder.mkdir()
    with pytest.raises(
        RequestError, match="is no run folder: it has no manifest.json; brinell audit makes one"
    ):
        Run.open(folder)
    (folder / ".parts").mkdir()
    (folder / ".parts" / "plan.json").write_text("{}")
    with pytest.raises(
        RequestError, match="is not finished: go on with brinell audit --resume --out"
    ):
        Run.open(folder)
    for content in [b"{", b"", b"\xff\xfe\x00", b"[]", b"{}", b'"text"', b'{"schema": 3}']:
        with subtests.test(str((content,))):
            (folder / "manifest.json").write_bytes(content)
            with pytest.raises(RequestError, match="manifest.json is damaged"):
                Run.open(folder)
    LAYOUT.save(folder, {"schema": SCHEMA_VERSION + 1, "command": "Größe"})
    assert "Größe" in (folder / "manifest.json").read_text(encoding="utf-8")
    with pytest.raises(
        RequestError,
        match=f"was written by another version of brinell .schema {SCHEMA_VERSION + 1}.",
    ):
        Run.open(folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="is no run folder|is damaged"):
        Run.open(tmp_path / "file")


def test_what_a_kill_left_half_written_is_cleared_away(tmp_path):
    half = tmp_path / "arrays" / ".1-01-fgsm-0000.safetensors.123.tmp"
    half.parent.mkdir()
    half.write_text("half")
    with LAYOUT.lock(tmp_path):
        assert not half.exists()


def _hold(path, entered, leave):
    with LAYOUT.lock(path):
        entered.set()
        leave.wait(30)


def test_a_second_process_is_refused(tmp_path):
    context = multiprocessing.get_context("fork")
    entered, leave = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "run", entered, leave))
    process.start()
    try:
        assert entered.wait(30)
        with pytest.raises(
            RequestError,
            match="another process is writing to .*: wait for it, or choose another --out",
        ):
            with LAYOUT.lock(tmp_path / "run"):
                pass
    finally:
        leave.set()
        process.join()
    with LAYOUT.lock(tmp_path / "run"):
        pass


@pytest.mark.parametrize("deep", [False, True])
def test_a_folder_that_cannot_be_made(tmp_path, deep):
    (tmp_path / "file").write_text("not a folder")
    out = tmp_path / "file" / "run" if deep else tmp_path / "file"
    with pytest.raises((RequestError, StoppedError), match="file"):
        with LAYOUT.lock(out):
            pass
