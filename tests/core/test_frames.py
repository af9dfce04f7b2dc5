"""Frames over a pipe: what is sent arrives, and what is no frame is refused before anything is made of it."""

import json
import os

import pytest
import torch

from brinell.core.frames import HEAD, EndedError, Pipe, PipeError

ARRAYS = {
    "floats": torch.arange(6.0).reshape(2, 3),
    "doubles": torch.tensor([0.1], dtype=torch.float64),
    "longs": torch.tensor([2**40, -1]),
    "ints": torch.tensor([[7]], dtype=torch.int32),
    "flags": torch.tensor([True, False, True]),
    "bytes": torch.tensor([0, 255], dtype=torch.uint8),
    "none": torch.zeros(0, 4),
    "number": torch.tensor(3.5),
}


@pytest.fixture
def ends():
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            pass


def pipe(ends, **settings):
    return Pipe(*ends, **{"most": 1000, "seconds": 5.0} | settings)


def test_what_is_sent_arrives(ends):
    both = pipe(ends)
    both.send("ask", {"a": [1, "ä"], "b": None}, ARRAYS | {"view": ARRAYS["floats"].T})
    both.send("end")
    frame = both.receive()
    assert (frame.op, frame.fields, list(frame.arrays)) == ("ask", {"a": [1, "ä"], "b": None}, [*ARRAYS, "view"])
    for name, values in ARRAYS.items():
        assert frame.arrays[name].dtype == values.dtype and torch.equal(frame.arrays[name], values), name
    assert torch.equal(frame.arrays["view"], ARRAYS["floats"].T)
    assert both.receive() == ("end", {}, {})


def refusal(ends, head, values=b"", **settings):
    content = head if isinstance(head, bytes) else json.dumps(head).encode()
    os.write(ends[1], len(content).to_bytes(8, "little") + content + values)
    with pytest.raises(PipeError) as error:
        pipe(ends, **settings).receive()
    return str(error.value)


FORM = {"op": "ask", "fields": {}, "arrays": {}}
FAULTS = [
    (b"{", "no JSON"),
    ([], "no table"),
    (FORM | {"op": 1}, "op is 1 and must be a text"),
    (FORM | {"fields": []}, "fields is"),
    ({"op": "ask", "fields": {}}, "arrays is None"),
    (FORM | {"arrays": {"x": ["<f4"]}}, "an array is"),
    (FORM | {"arrays": {"x": ["<f2", [1]]}}, "an array is"),
    (FORM | {"arrays": {"x": ["<f4", [-1]]}}, "an array is"),
    (FORM | {"arrays": {"x": ["<f4", [True]]}}, "an array is"),
    (FORM | {"arrays": {"x": ["<f4", [2**53 + 1]]}}, "an array is"),
    (FORM | {"arrays": {"x": ["<f4", "1"]}}, "an array is"),
    (FORM | {"arrays": {"x": ["<f4", [251]]}}, "arrays of 1004 bytes, and 1000 are the most"),
    (FORM | {"arrays": {"x": ["<f4", [150]], "y": ["<f8", [51]]}}, "arrays of 1008 bytes"),
]


def test_heads_that_say_something_else_are_refused(ends):
    wrong = []
    for head, rule in FAULTS:
        reader, writer = os.pipe()
        text = refusal((reader, writer), head)
        os.close(reader)
        os.close(writer)
        wrong += [(head, text)] * (rule not in text)
    assert not wrong


def test_truth_values_are_zero_and_one(ends):
    assert "truth values" in refusal(ends, FORM | {"arrays": {"x": ["|b1", [2]]}}, b"\1\2")


def test_a_head_that_is_too_long_is_refused_unread(ends):
    os.write(ends[1], (HEAD + 1).to_bytes(8, "little"))
    with pytest.raises(PipeError, match=f"a head of {HEAD + 1} bytes"):
        pipe(ends).receive()


def test_an_end_that_is_gone_and_one_that_is_silent(ends):
    with pytest.raises(PipeError, match="its time is over"):
        pipe(ends, seconds=0.0).receive()
    os.write(ends[1], (50).to_bytes(8, "little") + b"{")
    both = pipe(ends)
    os.close(ends[1])
    with pytest.raises(EndedError, match="ended without an answer"):
        both.receive()
    reader, writer = os.pipe()
    other = Pipe(reader, writer, most=10, seconds=5.0)
    os.close(reader)
    with pytest.raises(EndedError):
        other.send("ask")
    os.close(writer)
