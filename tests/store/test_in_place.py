"""Rows that stay in their files are those that are read whole, and a stage is joined with few of its rows in memory."""

import tracemalloc

import numpy as np
import pytest

from brinell.core.errors import RequestError
from brinell.core.record import COLUMNS, Outcome, Records
from brinell.store import in_place, joining, parquet, rows, seal


def make_records(ids, attack="fgsm", eps=0.1, seed=0):
    """Rows with all kinds of columns, some of them null in places."""
    draw, n = np.random.default_rng(seed), len(ids)
    return rows.build(
        Records,
        n,
        model="m",
        sample_id=np.asarray(ids),
        label=draw.integers(0, 3, n),
        clean_pred=1,
        clean_confidence=draw.random(n),
        attack=attack,
        distance="linf",
        eps=eps,
        radius=eps,
        outcome=np.where(draw.random(n) < 0.5, str(Outcome.FOOLED), str(Outcome.SURVIVED)),
        best_margin=np.ma.masked_array(draw.random(n), draw.random(n) < 0.5),
        quantised_within=np.ma.masked_array(draw.random(n) < 0.5, draw.random(n) < 0.5),
        queries_to_success=np.ma.masked_array(draw.integers(1, 9, n), draw.random(n) < 0.5),
        forwards=draw.integers(0, 9, n),
        seconds=draw.random(n),
    )


def assert_same_records(actual, expected):
    for name, column in COLUMNS.items():
        column_values, expected_values = getattr(actual, name), getattr(expected, name)
        assert np.ma.getdata(column_values).dtype == np.ma.getdata(expected_values).dtype, name
        assert isinstance(column_values, np.ma.MaskedArray) is isinstance(expected_values, np.ma.MaskedArray) is column.null, name
        np.testing.assert_array_equal(np.ma.getmaskarray(column_values), np.ma.getmaskarray(expected_values), name)
        np.testing.assert_array_equal(np.ma.filled(column_values, 0), np.ma.filled(expected_values, 0), name)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 7)
    monkeypatch.setattr(in_place, "SMALL", 0)
    parts = [make_records(range(20)), make_records([], attack="none"), make_records(range(15), attack="pgd", eps=0.2, seed=1)]
    for number, part in enumerate(parts):
        parquet.write(tmp_path / f"{number}.parquet", part, "cell")
    return [tmp_path / f"{number}.parquet" for number in range(len(parts))]


def test_they_are_the_rows_that_are_read_whole(files, monkeypatch, subtests):
    for cache_bytes in [0, 200, 8 << 20]:
        with subtests.test(str((cache_bytes,))):
            monkeypatch.setattr(in_place, "CACHE_BYTES", cache_bytes)
            actual, expected = in_place.records(files), parquet.read(files)
            for _ in range(2):
                assert_same_records(actual, expected)
            assert len(actual) == 35 and set(actual.attack) == {"fgsm", "pgd"}
            mask = actual.sample_id == 3
            assert_same_records(rows.take(actual, mask), rows.take(expected, mask))
            assert_same_records(rows.concatenate([actual, expected]), rows.concatenate([expected, expected]))
            with pytest.raises(AttributeError):
                actual.nothing  # noqa: B018
            assert_same_records(in_place.records([]), parquet.read([]))


def test_little_is_kept(files, monkeypatch):
    monkeypatch.setattr(in_place, "CACHE_BYTES", 600)
    records = in_place.records(files)
    for name in COLUMNS:
        getattr(records, name)
        cache = records.__dict__["_read"]._cache
        assert name in cache and (len(cache) == 1 or sum(map(in_place._bytes, cache.values())) <= 600)


def test_few_rows_are_read_at_once(files, monkeypatch):
    monkeypatch.setattr(in_place, "SMALL", 35)
    assert "_read" not in in_place.records(files).__dict__
    assert_same_records(in_place.records(files), parquet.read(files))


def test_groups_are_pieces_of_a_file(files):
    pieces = list(in_place.groups(files[0]))
    assert [len(piece) for piece in pieces] == [7, 7, 6]
    assert_same_records(rows.concatenate(pieces), parquet.read(files[:1]))


def test_a_flipped_bit_is_noticed_before_a_column_is_read(files):
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 4
    files[0].write_bytes(content)
    with pytest.raises(RequestError, match="is damaged or missing"):
        in_place.records(files)
    with pytest.raises(RequestError, match="is damaged or missing"):
        list(in_place.groups(files[0].with_name("absent.parquet")))


def test_a_file_is_sealed_as_its_bytes_are(tmp_path):
    content = b"figures " + seal.BLANK.encode() + b" more " + seal.BLANK.encode() + b" end"
    (tmp_path / "file").write_bytes(content)
    seal.seal(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == seal.sealed(content)
    (tmp_path / "file").write_bytes(b"figures")
    with pytest.raises(ValueError, match="no place"):
        seal.seal(tmp_path / "file")


def shards_of(folder, n, size):
    """Shards whose samples come in turns, as of a stage whose first groups left some for later ones."""
    paths = []
    for number, start in enumerate(range(0, n, size)):
        ids = np.arange(start, start + size)
        part = rows.concatenate(
            [make_records(ids[::2], eps=0.2, seed=number), make_records((ids[1::2] + n // 2) % n, eps=0.1, seed=number)]
        )
        paths.append(folder / f"shard-cell-{number:03d}.parquet")
        parquet.write(paths[-1], part, "cell")
    return paths


def fill(ids):
    """The rows that no shard has: each sample has one at either budget."""

    def missing_rows(index, records_by_shard):
        present = {
            (int(i), float(e))
            for records in records_by_shard.values()
            for i, e in zip(records.sample_id, records.eps, strict=True)
        }
        missing = [(i, e) for i in ids[index].tolist() for e in (0.1, 0.2) if (i, e) not in present]
        return make_records([i for i, _ in missing], eps=np.array([e for _, e in missing]))

    return missing_rows


def holding(records_by_shard):
    """The last shard that speaks of a sample."""
    return {sample: name for name in sorted(records_by_shard) for sample in records_by_shard[name].sample_id.tolist()}


def test_blocks_of_any_size_make_the_same_part(tmp_path_factory, monkeypatch, subtests):
    for block in [1, 9, 10_000]:
        with subtests.test(str((block,))):
            tmp_path = tmp_path_factory.mktemp("row")
            paths, ids = shards_of(tmp_path, 40, 10), np.arange(40)
            monkeypatch.setattr(joining, "BLOCK_ROWS", block)
            blocks = list(joining.blocks(paths, ids, 2, fill(ids), holding))
            joined = rows.concatenate([joined_block.records for joined_block in blocks])
            assert joined.sample_id.tolist() == np.repeat(ids, 2).tolist() and joined.eps.tolist() == [0.1, 0.2] * 40
            stored = parquet.read(paths)
            order = np.lexsort((stored.eps, stored.sample_id))
            is_stored = np.isin(joined.sample_id + joined.eps, stored.sample_id + stored.eps)
            for name in ("best_margin", "forwards", "outcome"):
                np.testing.assert_array_equal(getattr(joined, name)[is_stored], getattr(stored, name)[order])
            holders = {sample: holder for joined_block in blocks for sample, holder in joined_block.holders.items()}
            assert holders == holding({path.stem: parquet.read([path]) for path in paths}) and len(holders) == 40


@pytest.mark.slow
def test_no_more_is_in_memory_of_a_long_stage_than_of_a_short_one(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "BLOCK_ROWS", 256)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 256)
    peaks = []
    for n in (512, 3072):
        folder = tmp_path / str(n)
        folder.mkdir()
        paths, ids = shards_of(folder, n, 256), np.arange(n)
        tracemalloc.start()
        try:
            blocks = joining.blocks(paths, ids, 2, fill(ids))
            parquet.write_parts(folder / "part.parquet", (block.records for block in blocks), "cell")
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(parquet.read([folder / "part.parquet"])) == 2 * n
    assert peaks[1] < 1.3 * peaks[0], peaks
