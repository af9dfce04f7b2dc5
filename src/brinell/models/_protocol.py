"""The Open Inference Protocol over REST as bytes: what a server says of a model, requests, answers.

The protocol as KServe documents it (V2, HTTP/REST), and its binary tensor data extension: numbers follow the JSON header row by
row in little-endian order, and a header of the message tells where they begin.
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
"""The protocol's names of numbers, and NumPy's."""
LENGTH = "Inference-Header-Content-Length"
"""Header of a message with binary tensors: how many bytes of it are JSON."""


class AnswerError(Exception):
    """An answer that cannot be used; the text says in a few words what it is, in one line whatever the server wrote."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split())[:300])


@dataclass(frozen=True)
class Slot:
    """An input or an output of a model, as its server describes it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    """With the axis of the batch in front; -1 where any size will do; empty where the server does not say."""


def slots(metadata: Mapping[str, Any], key: str) -> tuple[Slot, ...]:
    """The `inputs` or `outputs` of a model's metadata; none where the server lists none."""
    try:
        return tuple(
            Slot(str(one["name"]), str(one["datatype"]), tuple(int(side) for side in one.get("shape") or ()))
            for one in metadata.get(key) or ()
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise AnswerError(f"its metadata lists {key} in another way than the protocol") from None


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise AnswerError(_not_json(body)) from None
    if not isinstance(found, dict):
        raise AnswerError(f"JSON of another form than the protocol's: {_glimpse(body)}")
    return found


def _not_json(body: bytes) -> str:
    if not body:
        return "nothing at all"
    page = body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))
    return "an HTML page, as a proxy or another service would" if page else f"no JSON: {_glimpse(body)}"


def _glimpse(body: bytes) -> str:
    text = " ".join(body[:80].decode("utf-8", "replace").split())
    return repr(text[:60])


def request(slot: Slot, x: Array, *, binary: bool, output: str = "") -> tuple[bytes, dict[str, str]]:
    """Body and headers of an inference request for (n, ...) inputs; no `output` for those that the server gives unasked."""
    numbers = np.ascontiguousarray(x, DATATYPES[slot.datatype])
    head: dict[str, Any] = {"name": slot.name, "shape": list(x.shape), "datatype": slot.datatype}
    asked: dict[str, Any] = {}
    if output:
        asked["outputs"] = [{"name": output} | ({"parameters": {"binary_data": True}} if binary else {})]
    if binary:
        head["parameters"] = {"binary_data_size": numbers.nbytes}
        text = json.dumps({"inputs": [head], "parameters": {"binary_data_output": True}} | asked).encode()
        return text + numbers.tobytes(), {LENGTH: str(len(text)), "Content-Type": "application/octet-stream"}
    import orjson  # writes a float32 in the few digits that it needs: half as long, and three times as fast, as Python does

    head["data"] = numbers.ravel()
    text = orjson.dumps({"inputs": [head]} | asked, option=orjson.OPT_SERIALIZE_NUMPY)
    return text, {"Content-Type": "application/json"}


def answer(body: bytes, headers: Mapping[str, str], output: str = "") -> Array:
    """The output tensor of an inference response; no `output` where there is but one. AnswerError where it holds none."""
    length = headers.get(LENGTH)
    if length is not None and not (length.isdecimal() and int(length) <= len(body)):
        raise AnswerError(f"a header {LENGTH} of {length!r} in a body of {len(body)} bytes")
    at = len(body) if length is None else int(length)
    outputs = parse(body[:at]).get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(one, dict) for one in outputs):
        raise AnswerError("JSON without outputs")
    tensors = {}
    for one in outputs:
        parameters = one.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if not isinstance(size, int | None) or (size or 0) < 0:
            raise AnswerError(f"an output of {size!r} bytes")
        tensors[str(one.get("name"))] = (one, None if size is None else body[at : at + size])
        at += size or 0
    return _read(*_chosen(tensors, output))


def _chosen(tensors: Mapping[str, tuple[dict[str, Any], bytes | None]], output: str) -> tuple[dict[str, Any], bytes | None]:
    listed = ", ".join(tensors) or "none"
    if output and output not in tensors:
        raise AnswerError(f"outputs {listed} and no {output}")
    if not output and len(tensors) != 1:
        raise AnswerError(f"{len(tensors)} outputs ({listed}): name one with the option output=")
    return tensors[output or next(iter(tensors))]


def _read(head: Mapping[str, Any], raw: bytes | None) -> Array:
    datatype, shape = head.get("datatype"), head.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES or not isinstance(shape, list):
        raise AnswerError(f"an output of datatype {datatype} and shape {shape}, which is no tensor of numbers")
    try:
        with np.errstate(over="ignore"):  # what does not fit becomes infinity, which no answer may hold
            values = np.array(head.get("data"), DATATYPES[datatype]) if raw is None else np.frombuffer(raw, DATATYPES[datatype])
        return values.reshape(shape)
    except (ValueError, TypeError, OverflowError):
        raise AnswerError(f"data that do not fill an output of datatype {datatype} and shape {shape}") from None


def fits(shape: tuple[int, ...], sides: tuple[int, ...]) -> bool:
    """Whether inputs of these sides are what a server takes whose shape says -1 where any size will do."""
    return len(shape) == len(sides) and all(wanted in (-1, side) for wanted, side in zip(shape, sides, strict=True))
