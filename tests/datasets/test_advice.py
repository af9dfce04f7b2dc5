"""The advice on inputs outside their bounds opens them, fits shape, type and range, and is the same in Python and in specs."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import brinell
from brinell.core.errors import RequestError
from brinell.datasets.npz import Npz
from brinell.engine.sources import open_data

N = 24
Y = np.arange(N) % 3
RNG = np.random.default_rng(0)


def follow_in_python(x, y=Y, source="x, y"):
    """The data after at most one refusal, whose advice is typed as it stands, and the advice."""
    try:
        return brinell.data(x, y), ""
    except RequestError as error:
        line = str(error)
    call = re.search(r"write (brinell\.data\((?:x\.clip\(0, 1\), y|.*?)\)\)?)(?:,| to|;|$)", line)
    assert call, line
    return eval(call[1], {"brinell": brinell, "x": x, "y": y}), line


def follow_in_a_spec(folder, x, y=Y, name="x"):
    """The same for an archive at the command line."""
    np.savez(folder / "a.npz", **{name: x, "y": y})
    try:
        return Npz(path=str(folder / "a.npz"))(), ""
    except RequestError as error:
        line = str(error)
    spec = re.search(r"write (npz:\S+)$", line)
    assert spec, line
    return open_data(spec[1]), line


def waves(n, *shape):
    """(n, *shape): smooth curves along the last axis, from about -1.3 to 1.6."""
    time = np.linspace(0, 1, shape[-1])
    phase = RNG.uniform(0, 6, (n, *shape[:-1], 1))
    return 0.15 + 1.45 * np.sin(12 * time + phase)


def test_millivolts_are_signals_between_bounds_around_them(tmp_path_factory, subtests):
    for dtype in ["float32", "float64"]:
        for shape in [(1, 187), (2, 300), (187,), (200, 1), (1, 200), (300, 2), (12, 40), (200,)]:
            with subtests.test(shape=shape, dtype=dtype):
                tmp_path = tmp_path_factory.mktemp("case")
                x = waves(N, *shape) if shape[-1] > 2 else waves(N, *shape[::-1]).swapaxes(1, 2)
                in_memory, line = follow_in_python(x.astype(dtype))
                assert "kind='signal', bounds=(-5, 5)" in line and "255" not in line
                from_file, line = follow_in_a_spec(tmp_path, x.astype(dtype))
                assert "kind=signal" in line and "low=-5&high=5" in line and "255" not in line
                for data in (in_memory, from_file):
                    channels = 1 if len(shape) == 1 else min(shape)
                    assert data.domain.kind == "signal" and data.domain.shape == (channels, max(shape))


def test_levels_are_divided_by_their_largest(tmp_path_factory, subtests):
    for shape in [(8, 8), (8, 8, 1), (64,), (3, 9, 9)]:
        for dtype in ["uint8", "int64", "float32"]:
            for top in [1, 15, 127]:
                with subtests.test(top=top, dtype=dtype, shape=shape):
                    tmp_path = tmp_path_factory.mktemp("case")
                    x = RNG.integers(0, top + 1, (N, *shape)).astype(dtype)
                    x.reshape(N, -1)[0] = top
                    in_memory, line = follow_in_python(x)
                    from_file, line_of_file = follow_in_a_spec(tmp_path, x)
                    if top == 1:
                        assert ("bounds=(0, 1)" in line) == ("low=0&high=1" in line_of_file) == (dtype == "uint8")
                    else:
                        assert f"divide={top}" in line and f"bounds=(0, {top})" in line and line_of_file.endswith(f"divide={top}")
                        assert f"give low=0&high={top} in place of divide={top}" in line_of_file
                    assert "by 255" not in line or dtype == "uint8"
                    assert in_memory.domain == from_file.domain and (in_memory.domain.low, in_memory.domain.high) == (0, 1)
                    assert in_memory.digest() == from_file.digest()
                    assert float(in_memory.load(range(N)).max()) == 1.0


SHAPES = st.one_of(
    st.tuples(st.integers(2, 70)),
    st.tuples(st.integers(1, 40), st.integers(2, 40)),
    st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(5, 9), st.integers(5, 9)),
    st.tuples(st.integers(5, 9), st.integers(5, 9), st.sampled_from([1, 2, 3, 4])),
)


@settings(max_examples=40, deadline=None)
@given(
    shape=SHAPES,
    dtype=st.sampled_from(["uint8", "int8", "int16", "int64", "float32", "float64", "bool"]),
    low=st.sampled_from([0.0, 0.0, -0.02, -1.0, -3.0, -128.0, -500.0]),
    high=st.floats(0.5, 1.2) | st.floats(0.5, 70000.0) | st.sampled_from([1.0, 1.02, 1.6, 16.0, 100.0, 255.0, 1023.0]),
    whole=st.booleans(),
)
def test_any_advice_opens_the_data_and_holds_their_range(tmp_path_factory, shape, dtype, low, high, whole):
    info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    low, high = (max(low, info.min), min(high, info.max)) if info else (low, high)
    x = np.random.default_rng(1).uniform(low, high, (N, *shape))
    x.reshape(-1)[:2] = low, high
    x = (np.round(x) if whole or info else x).astype(dtype)
    in_memory, line = follow_in_python(x)
    from_file, line_of_file = follow_in_a_spec(tmp_path_factory.mktemp("a"), x)
    assert bool(line) == bool(line_of_file), (line, line_of_file)
    assert in_memory.domain.kind == from_file.domain.kind
    if "bounds='columns'" not in line:
        assert in_memory.domain.shape == from_file.domain.shape
        if "clip(" not in line:
            assert in_memory.domain == from_file.domain and in_memory.digest() == from_file.digest()
    for data in (in_memory, from_file):
        values = data.load(range(N))
        low_bound, high_bound = data.domain.bounds()
        assert bool((values >= low_bound).all()) and bool((values <= high_bound).all())
    if "divide=255" in line.partition("; for dark")[0]:
        assert x.min() >= 0 and 127 < x.max() <= 255
    if 0 <= x.min() and x.max() <= 1 and dtype != "uint8":
        assert not line


@given(x=hnp.arrays("float32", (6, 9, 9), elements=st.floats(0, 1, width=32)))
def test_grey_images_are_read_alike_in_memory_and_in_files(tmp_path_factory, x):
    in_memory, _ = follow_in_python(x, Y[:6])
    from_file, _ = follow_in_a_spec(tmp_path_factory.mktemp("a"), x, Y[:6])
    assert in_memory.domain == from_file.domain and in_memory.domain.shape == (1, 9, 9)
    assert in_memory.info.notes == from_file.info.notes and "give kind=signal" in in_memory.info.notes[0]


def test_notes_name_the_other_reading(tmp_path):
    long, _ = follow_in_python(RNG.random((N, 12, 100)))
    assert long.domain.kind == "signal" and "give kind=image" in long.info.notes[0]
    pictures, _ = follow_in_python((255 * RNG.random((N, 12, 100))).astype(np.uint8))
    assert pictures.domain.kind == "image" and pictures.domain.shape == (1, 12, 100)
    beats = (waves(N, 187) + 1.5) / 4
    rows, _ = follow_in_a_spec(tmp_path, beats)
    assert rows.domain.kind == "vector" and "give kind=signal" in rows.info.notes[0]
    named, _ = follow_in_a_spec(tmp_path, beats, name="ecg")
    assert named.domain.kind == "signal" and not named.info.notes
    scattered, _ = follow_in_python(RNG.random((N, 187)))
    assert scattered.domain.kind == "vector" and not scattered.info.notes


def test_resized_images_are_clipped_and_normalised_ones_named():
    _, line = follow_in_python(RNG.uniform(-0.02, 1.03, (N, 3, 8, 8)))
    assert "x.clip(0, 1)" in line
    _, line = follow_in_python(RNG.normal(size=(N, 3, 8, 8)))
    assert "look normalised" in line and "bounds=(-5, 5)" in line
    _, line = follow_in_python(RNG.normal(size=(N, 7)))
    assert "bounds='columns'" in line


def test_a_divisor_needs_one_scale():
    x = RNG.integers(0, 17, (N, 64))
    for options, words in (({"divide": 0}, "above 0"), ({"divide": 16, "bounds": "columns"}, "leave one of them out")):
        with pytest.raises(RequestError, match=words):
            brinell.data(x, Y, **options)
