"""The Open Inference Protocol over REST as bytes: metadata of a model, requests, answers.

It covers the protocol as KServe documents it (V2, HTTP/REST), and its binary tensor data extension. There, numbers follow the
JSON header row by row in little-endian order, and a header of the message says where they begin.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

DATATYPES: dict[str, str] = {
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "UINT8": "<u1",
    "INT8": "<i1",
    "UINT16": "<u2",
    "INT16": "<i2",
    "UINT32": "<u4",
    "INT32": "<i4",
    "UINT64": "<u8",
    "INT64": "<i8",
}
"""Types of numbers by their names in the protocol, as NumPy's types."""
LENGTH = "Inference-Header-Content-Length"
"""Header of a message with binary tensors: number of its bytes that are JSON."""


class AnswerError(Exception):
    """A response that cannot be used; the text describes it in a few words and in one line."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split())[:300])


@dataclass(frozen=True)
class Slot:
    """An input or output of a model, as its server describes it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """Shape with the batch axis in front; -1 for an axis of any size; empty if the server does not state it."""


def slots(metadata: Mapping[str, Any], key: str) -> tuple[Slot, ...]:
    """The `inputs` or `outputs` of a model's metadata; empty if the server lists none."""
    try:
        return tuple(
            Slot(str(entry["name"]), str(entry["datatype"]), tuple(int(side) for side in entry.get("shape") or ()))
            for entry in metadata.get(key) or ()
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise AnswerError(f"its metadata lists {key} in another way than the protocol") from None


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; raises AnswerError if it holds none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerError(_not_json(body)) from None
    if not isinstance(content, dict):
        raise AnswerError(f"JSON of another form than the protocol's: {_glimpse(body)}")
    return content


def _not_json(body: bytes) -> str:
    """Description of an answer that is not JSON."""
    if not body:
        return "nothing at all"
    page = body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))
    return "an HTML page, as a proxy or another service would" if page else f"no JSON: {_glimpse(body)}"


def _glimpse(body: bytes) -> str:
    """The beginning of an answer."""
    text = " ".join(body[:80].decode("utf-8", "replace").split())
    return repr(text[:60])


def request(slot: Slot, x: Array, *, binary: bool, output: str = "") -> tuple[bytes, dict[str, str]]:
    """Body and headers of an inference request for (n, ...) inputs; with an empty `output` the server chooses the outputs."""
    numbers = np.ascontiguousarray(x, DATATYPES[slot.datatype])
    head: dict[str, Any] = {"name": slot.name, "shape": list(x.shape), "datatype": slot.datatype}
    outputs: dict[str, Any] = {}
    if output:
        outputs["outputs"] = [{"name": output} | ({"parameters": {"binary_data": True}} if binary else {})]
    if binary:
        head["parameters"] = {"binary_data_size": numbers.nbytes}
        text = json.dumps({"inputs": [head], "parameters": {"binary_data_output": True}} | outputs).encode()
        return text + numbers.tobytes(), {LENGTH: str(len(text)), "Content-Type": "application/octet-stream"}
    import orjson  # writes a float32 in the few digits that it needs: half as long, and three times as fast, as Python does

    head["data"] = numbers.ravel()
    text = orjson.dumps({"inputs": [head]} | outputs, option=orjson.OPT_SERIALIZE_NUMPY)
    return text, {"Content-Type": "application/json"}


def answer(body: bytes, headers: Mapping[str, str], output: str = "") -> Array:
    """The output tensor of an inference response; an empty `output` takes the only one. Raises AnswerError if it holds none."""
    length = headers.get(LENGTH)
    if length is not None and not (length.isdecimal() and int(length) <= len(body)):
        raise AnswerError(f"a header {LENGTH} of {length!r} in a body of {len(body)} bytes")
    position = len(body) if length is None else int(length)
    outputs = parse(body[:position]).get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(entry, dict) for entry in outputs):
        raise AnswerError("JSON without outputs")
    tensors = {}
    for head in outputs:
        parameters = head.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if not isinstance(size, int | None) or (size or 0) < 0:
            raise AnswerError(f"an output of {size!r} bytes")
        tensors[str(head.get("name"))] = (
            head,
            None if size is None else body[position : position + size],
        )
        position += size or 0
    return _read(*_select_output(tensors, output))


def _select_output(
    tensors: Mapping[str, tuple[dict[str, Any], bytes | None]], output: str
) -> tuple[dict[str, Any], bytes | None]:
    """The requested output, or the only one."""
    names = ", ".join(tensors) or "none"
    if output and output not in tensors:
        raise AnswerError(f"outputs {names} but not {output}")
    if not output and len(tensors) != 1:
        raise AnswerError(f"{len(tensors)} outputs ({names}): name one with the option output=")
    return tensors[output or next(iter(tensors))]


def _read(head: Mapping[str, Any], raw: bytes | None) -> Array:
    """Values of an output tensor."""
    datatype, shape = head.get("datatype"), head.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES or not isinstance(shape, list):
        raise AnswerError(f"an output of datatype {datatype} and shape {shape}, which is not a tensor of numbers")
    try:
        with np.errstate(over="ignore"):  # values that do not fit become infinity, which is refused later
            values = np.array(head.get("data"), DATATYPES[datatype]) if raw is None else np.frombuffer(raw, DATATYPES[datatype])
        return values.reshape(shape)
    except (ValueError, TypeError, OverflowError):
        raise AnswerError(f"data that do not fill an output of datatype {datatype} and shape {shape}") from None


def fits(shape: tuple[int, ...], sides: tuple[int, ...]) -> bool:
    """True if inputs with these sides fit a server's shape, in which -1 stands for any size."""
    return len(shape) == len(sides) and all(expected in (-1, side) for expected, side in zip(shape, sides, strict=True))
