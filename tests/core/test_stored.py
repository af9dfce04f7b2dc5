"""Safetensors files of others: what the library writes is read, and what does not lie in the file
is refused.
"""

import json

import numpy as np
import pytest
import safetensors.numpy

from _refusals import refused
from brinell.core import stored
from brinell.core.errors import RequestError

ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "doubles": np.array([1.5, -2.5]),
    "halves": np.array([[0.5]], np.float16),
    "bytes": np.arange(5, dtype=np.uint8),
    "longs": np.array([-(2**40), 2**40]),
    "shorts": np.array([-3], np.int16),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 4), np.float32),
    "number": np.array(7, np.int32),
}


def test_what_the_library_writes_is_read(tmp_path):
    safetensors.numpy.save_file(ARRAYS, tmp_path / "f", {"a": "b"})
    texts, arrays, content = stored.read(tmp_path / "f")
    assert (
        texts == {"a": "b"}
        and content == (tmp_path / "f").read_bytes()
        and arrays.keys() == ARRAYS.keys()
    )
    for name, array in ARRAYS.items():
        assert (
            arrays[name].dtype == array.dtype
            and arrays[name].shape == array.shape
            and np.array_equal(arrays[name], array)
        ), name
        assert arrays[name].flags.writeable
    with pytest.raises(RequestError, check=refused("core.bounded.read")):
        stored.read(tmp_path / "f", len(content) - 1)


def content_of(header, values=bytes(16)):
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + values


def place(shape, *offsets, dtype="F32"):
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}}


DAMAGED = {
    "nothing": b"",
    "no header": bytes(8),
    "a header beyond the file": (100).to_bytes(8, "little") + b"{}",
    "no JSON": content_of(b"{"),
    "a list": content_of([]),
    "an unknown type": content_of(place([4], 0, 16, dtype="Q4")),
    "too few bytes": content_of(place([4], 0, 12)),
    "beyond the file": content_of(place([4], 4, 20)),
    "before the values": content_of(place([4], -4, 12)),
    "turned": content_of(place([0], 8, 4)),
    "a negative side": content_of(place([-4], 16, 0)),
    "sides that are negative twice": content_of(place([-2, -2], 0, 16)),
    "sides that are no numbers": content_of(place(["4"], 0, 16)),
    "sides that are no whole numbers": content_of(place([4.0], 0, 16)),
    "no offsets": content_of({"a": {"dtype": "F32", "shape": [4]}}),
    "texts that are none": content_of({"__metadata__": {"a": 1}}),
    "texts that are a list": content_of({"__metadata__": ["a"]}),
}


def test_damaged_files_are_refused_by_a_value_error(tmp_path):
    read = []
    for name, content in DAMAGED.items():
        (tmp_path / "f").write_bytes(content)
        try:
            read.append((name, stored.read(tmp_path / "f")))
        except ValueError as error:
            assert "\n" not in str(error)
    assert not read
    (tmp_path / "f").write_bytes(content_of(place([2, 2], 0, 16)))
    assert stored.read(tmp_path / "f")[1]["a"].tolist() == [[0, 0], [0, 0]], (
        "the same form without a fault"
    )
