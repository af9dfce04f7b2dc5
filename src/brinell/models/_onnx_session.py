"""Files of ONNX and sessions of ONNX Runtime, as `onnx:FILE` and `brinell certify` open them."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line

__all__ = [
    "TYPES",
    "WRONG_FORMAT",
    "digest_of",
    "in_batches",
    "open_session",
    "run_session",
    "session_of",
]

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
"""Element types of inputs by the names of ONNX Runtime."""
MOST_GRAPH = (1 << 31) - 1
"""Maximum size of the file in bytes, which is protobuf's own limit."""
WRONG_FORMAT = "no ONNX file"
SECONDS, SECONDS_EACH = 15.0, 5.0
"""Seconds that a graph may take for a batch, and for each input in it: its loops may not end."""


def session_of(source: str | bytes, threads: int = 1) -> Any:
    """A session of ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 4  # what matters is raised
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run_session(
    session: Any, outputs: Sequence[str], name: str, rows: "np.ndarray[Any, Any]"
) -> "list[np.ndarray[Any, Any]]":
    """The outputs of these names for the input of a name; refuses a graph that takes too long."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    # ONNX Runtime has no time limit: a timer sets the flag that it looks at between operations.
    seconds = SECONDS + SECONDS_EACH * len(rows)
    timer = threading.Timer(seconds, setattr, (options, "terminate", True))
    # A daemon, so that an error elsewhere does not wait for it.
    timer.daemon = True

    timer.start()
    try:
        return list(session.run(outputs, {name: rows}, options))
    except Exception:
        if not options.terminate:
            raise
        raise RequestError(
            f"the graph of ONNX took more than {seconds:g} s for {len(rows)} inputs: look for a "
            "loop without an end"
        ) from None
    finally:
        timer.cancel()


def open_session(file: Path, threads: int = 1) -> Any:
    """Open a file as a session, with errors in one line."""
    try:
        return session_of(str(file), threads)
    except ImportError:
        raise RequestError(
            "onnxruntime is not installed, which reads .onnx files: pip install 'brinell[onnx]'"
        ) from None
    except Exception as error:
        raise RequestError(
            f"{file} is damaged or no ONNX file that ONNX Runtime can run "
            f"({one_line(error)}): export it again"
        ) from None


def digest_of(file: Path) -> tuple[str, int]:
    """Hash of the file and of its external weights, and the bytes of all these files."""
    content = bounded.read(file, MOST_GRAPH)
    hash, packed = hashlib.blake2b(content, digest_size=16), len(content)
    # Names in the graph are a stranger's: they may lead nowhere but beside the file.
    for name in sorted(_beside(file, content)):
        place = bounded.path_inside(file.parent, name, file)
        if not place.is_file():
            raise RequestError(
                f"{file} keeps weights in {name[:80]!r}, which is no file beside "
                "it: fetch it, or export it again"
            )
        with bounded.open_regular(place) as weights:
            # Not at once: external weights may be larger than the memory.
            while part := weights.read(1 << 22):
                hash.update(part)
                packed += len(part)

    return hash.hexdigest(), packed


def _beside(file: Path, content: bytes) -> set[str]:
    """Names of the files with external weights, as the tensors within the graph state them."""
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError:
        raise RequestError(
            "onnx is not installed, which lists the weights of .onnx files: pip "
            "install 'brinell[onnx]'"
        ) from None

    with bounded.decoding(file, len(content), WRONG_FORMAT):
        try:
            model = onnx.load_model_from_string(content)
        except DecodeError:
            raise RequestError(
                f"{file} is damaged or no ONNX file: its content, which begins "
                f"with the bytes {content[:4].hex(' ')}, is no "
                "graph; export the network again by torch.onnx.export"
            ) from None
        entries = [entry for tensor in _tensors(model) for entry in tensor.external_data]
        return {entry.value for entry in entries if entry.key == "location"}


def _tensors(message: Any) -> Iterator[Any]:
    """The tensors in a message and in the messages within it."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for element in value if isinstance(value, Sequence) else [value]:
            if field.message_type.name == "TensorProto":
                yield element
            yield from _tensors(element)


def in_batches(
    answer: Callable[["np.ndarray[Any, Any]"], "list[np.ndarray[Any, Any]]"],
    rows: "np.ndarray[Any, Any]",
    size: int | None,
) -> "list[np.ndarray[Any, Any]]":
    """Outputs for all rows, in batches of the fixed size if there is one; the last is filled up."""
    if size is None or size == len(rows):
        return answer(rows)
    parts = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        padded = np.concatenate([part, np.repeat(part[-1:], size - len(part), 0)])
        parts.append([output[: len(part)] for output in answer(padded)])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
