"""`onnx:FILE`: a network in ONNX, answered by ONNX Runtime on the processor: scores, no gradients.

The file takes one array of numbers, the samples along its first axis, and answers one row of logits or probabilities for each.
Which of the two is seen from the answers to random inputs: probabilities are taken for their logarithms, which are logits.

Files are taken as others export them. Where the first axis has a fixed length it is freed, if the file then answers many inputs
as it answers them in batches of that length; else it is asked that many at a time, the last of them repeated where there are
fewer. Inputs that the file wants flattened, (784,) or (784, 1) for (1, 28, 28), are given in the order of rows. Both are said in
a note.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from brinell.core import bounded
from brinell.core.contracts import Access, Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.model import ModelInfo
from brinell.core.settings import Plain, at_least, at_most
from brinell.models._answers import are_probabilities, of_probabilities, random_inputs

__all__ = ["Onnx"]

TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
MOST_GRAPH = (1 << 31) - 1
"""Bytes of the file itself at most, which is protobuf's own limit."""
OTHERWISE = "no ONNX file"
PROBES = 8
"""Random inputs by whose answers logits are distinguished from probabilities."""

Answers = Literal["logits", "probabilities"]
Layout = Literal["first", "last"]


@dataclass(frozen=True, kw_only=True)
class Onnx:
    """A network in ONNX, answered by ONNX Runtime."""

    path: str = ""
    """The file."""
    output: str = ""
    """Name of the output to read; by default the only one of shape (samples, classes)."""
    answers: Answers | None = None
    """logits or probabilities; by default what the answers to random inputs look like."""
    layout: Layout | None = None
    """Where the file has the channels, first or last; by default where its shape says."""
    mean: tuple[float, ...] = ()
    """Subtracted from the inputs first, where the file expects that: one number, or one per channel joined by +."""
    std: tuple[float, ...] = ()
    """What is left is divided by, like mean; 0.00392156862745098 makes 0 to 255 of 0 to 1."""
    threads: int = 1
    """Threads of ONNX Runtime."""
    name: Plain = ""
    """How reports call it; by default the stem of the file."""

    def __post_init__(self) -> None:
        at_least(self, threads=1)
        at_most(self, threads=1024)
        if 0.0 in self.std:
            raise ValueError("std divides by 0")

    def __call__(self, domain: Domain) -> "OnnxModel":
        """Open the file and ask it about random inputs.

        Raises:
            RequestError: no onnxruntime, no such file, a damaged one, several inputs, no axis for the samples, another shape or
                type than the data has, no output of scores.
        """
        file = Path(self.path).expanduser()
        if not self.path or not file.is_file():
            raise RequestError(f"there is no file {str(file)!r}: write onnx:FILE")
        for key in ("mean", "std"):
            if len(getattr(self, key)) not in (0, 1, domain.shape[0]):
                raise RequestError(f"{file}: {key} has {len(getattr(self, key))} numbers for {domain.shape[0]} channels")
        name = self.name or file.stem
        digest, packed = _digest(file)
        with bounded.decoding(file, packed, OTHERWISE):
            model = OnnxModel(_open(file, self.threads), domain, self, digest, name)
            if model.batch is None or (freed := _freed(file, self.threads)) is None:
                return model
            return model.freed(freed) or model


class OnnxModel:
    """A model around a session of ONNX Runtime.

    Args:
        session: has `run`, `get_inputs` and `get_outputs`.
        domain: where the data's inputs live.
        options: how the file is asked.
        digest: of the file, and of what it keeps beside it.
        name: how reports call it.
    """

    access = Access.SCORES

    def __init__(self, session: Any, domain: Domain, options: Onnx, digest: str, name: str) -> None:
        self.domain, self.name, self._session, self._digest = domain, name, session, digest
        entry = _only_input(session, name)
        self._input, self._type = entry.name, TYPES[entry.type]
        self._last, self._sides = _arrangement(entry.shape, domain, options.layout, name)
        self.batch: int | None = entry.shape[0] if isinstance(entry.shape[0], int) else None
        """How many inputs the file takes at once; None where any number will do."""
        self._shift, self._scale = (_per_channel(values, domain) for values in (options.mean, options.std))
        self._options = options
        self._output = ""
        found = self._probe(options.output)
        self.classes = found.shape[1]
        said = options.answers or ("probabilities" if are_probabilities(found) else "logits")
        self._probabilities = said == "probabilities"
        self._notes: tuple[str, ...] = ()
        if self._sides is not None:
            self._notes = (f"{name} takes inputs of shape {self._sides}: those of the data are flattened row by row",)
        batches = () if self.batch is None else (f"{name} takes {_counted(self.batch)} at a time, and is asked that many",)
        self.info = ModelInfo(architecture="ONNX", answers=said, notes=self._notes + batches)

    def freed(self, session: Any) -> "OnnxModel | None":
        """The same file with its first axis freed, if that answers some random inputs as this does; None otherwise."""
        try:
            other = OnnxModel(session, self.domain, self._options, self._digest, self.name)
            x = random_inputs(self.domain, PROBES)
            same = torch.allclose(other.predict(x), self.predict(x), rtol=1e-3, atol=1e-4)
        except Exception:  # what was exported for one input may hold its number anywhere
            return None
        if not same or other.batch is not None:
            return None
        note = f"{self.name} takes {_counted(self.batch or 1)} at a time: its first axis was freed, and answers as before"
        other.info = replace(other.info, notes=(*other.info.notes, note))
        return other

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs within the bounds to (n, classes) logits."""
        found = self._ask(self._given(x), [self._output])[0]
        logits = torch.from_numpy(found)
        return (of_probabilities(logits) if self._probabilities else logits.float()).to(x.device)

    def digest(self) -> str:
        """Hash of the file, of how it is asked, and of the domain."""
        text = f"{self._digest} {self._output} {self._probabilities} {self._last} {self._options.mean} {self._options.std}"
        return hashlib.blake2b(f"{text} {self.domain.text()}".encode(), digest_size=16).hexdigest()

    def _given(self, x: Tensor) -> np.ndarray[Any, Any]:
        x = x.detach().cpu()
        x = self.domain.in_units(x.double()) if self.domain.columns else x
        x = x if self._shift is None else x - self._shift
        x = x if self._scale is None else x / self._scale
        rows: np.ndarray[Any, Any] = x.numpy().astype(self._type, copy=False)
        rows = np.ascontiguousarray(np.moveaxis(rows, 1, -1)) if self._last else np.ascontiguousarray(rows)
        return rows if self._sides is None else rows.reshape(len(rows), *self._sides)

    def _ask(self, rows: np.ndarray[Any, Any], outputs: list[str]) -> list[np.ndarray[Any, Any]]:
        size = self.batch
        if size is None or size == len(rows):
            found: list[np.ndarray[Any, Any]] = self._session.run(outputs, {self._input: rows})
            return found
        parts = []
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            padded = np.concatenate([part, np.repeat(part[-1:], size - len(part), 0)])
            parts.append([one[: len(part)] for one in self._session.run(outputs, {self._input: padded})])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _probe(self, wanted: str) -> Tensor:
        """Answers (PROBES, classes) to random inputs; notes which output they come from."""
        x = random_inputs(self.domain, PROBES)
        names = [one.name for one in self._session.get_outputs()]
        if wanted and wanted not in names:
            raise RequestError(f"{self.name} has no output {wanted!r}; it has {', '.join(names)}")
        try:
            found = self._ask(self._given(x), names)
        except Exception as error:
            raise RequestError(
                f"{self.name} cannot take the data, {PROBES} {self.domain.kind}s of shape {self.domain.shape} "
                f"({one_line(error)}): give it data of its shape, or export it with the first axis dynamic"
            ) from None
        answers = dict(zip(names, found, strict=True))
        rows = [name for name in names if wanted in ("", name) and _is_rows(answers[name])]
        if len(rows) != 1:
            listed = ", ".join(f"{name} {getattr(answer, 'shape', None) or 'no array'}" for name, answer in answers.items())
            several = "one output holds a row of scores for each and another too: name one by output="
            none = "no output holds a row of scores for each: export one that does"
            raise RequestError(f"{self.name} answers {PROBES} inputs with {listed}, where {several if rows else none}")
        self._output = rows[0]
        return torch.from_numpy(answers[rows[0]])


def _is_rows(answer: Any) -> bool:
    """Whether an output holds a row of scores for each of the probes."""
    return isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and answer.ndim == 2 and len(answer) == PROBES


def _session(source: str | bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 4  # what matters is raised
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _open(file: Path, threads: int) -> Any:
    try:
        return _session(str(file), threads)
    except ImportError:
        raise RequestError("onnxruntime is not installed, which reads .onnx files: pip install 'brinell[onnx]'") from None
    except Exception as error:
        raise RequestError(
            f"{file} is damaged or no ONNX file that ONNX Runtime can run ({one_line(error)}): export it again"
        ) from None


def _digest(file: Path) -> tuple[str, int]:
    """Hash of the file and of those in its folder in which it keeps its weights, and the bytes of all of them."""
    content = bounded.read(file, MOST_GRAPH)
    hashed, packed = hashlib.blake2b(content, digest_size=16), len(content)
    for name in sorted(_beside(file, content)):
        place = bounded.inside(file.parent, name, file)
        if not place.is_file():
            raise RequestError(f"{file} keeps weights in {name[:80]!r}, which is no file beside it: fetch it, or export it again")
        with bounded.opened(place) as weights:
            while part := weights.read(1 << 22):
                hashed.update(part)
                packed += len(part)
    return hashed.hexdigest(), packed


def _beside(file: Path, content: bytes) -> set[str]:
    """Names of the files in which any tensor of the graph, of a node or of a function says that its numbers are."""
    try:
        import onnx
    except ImportError:
        raise RequestError("onnx is not installed, which lists the weights of .onnx files: pip install 'brinell[onnx]'") from None
    with bounded.decoding(file, len(content), OTHERWISE):
        model = onnx.load_model_from_string(content)
        found = {entry.value for tensor in _tensors(model) for entry in tensor.external_data if entry.key == "location"}
    return found


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor anywhere in a message of ONNX."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if isinstance(value, Sequence) else [value]:
            if field.message_type.name == "TensorProto":
                yield one
            yield from _tensors(one)


def _only_input(session: Any, name: str) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        listed = ", ".join(f"{one.name} {one.shape}" for one in inputs)
        raise RequestError(
            f"{name} has {len(inputs)} inputs ({listed}): Brinell asks models of one; export it with the others fixed"
        )
    entry = inputs[0]
    if entry.type not in TYPES:
        raise RequestError(f"{name} takes {entry.type}, and inputs are real numbers: export it for {', '.join(TYPES)}")
    return entry


def _arrangement(shape: list[Any], domain: Domain, layout: Layout | None, name: str) -> tuple[bool, tuple[int, ...] | None]:
    """Whether the file has the channels last, and the sides that it takes where it flattens inputs; refuses other data."""
    first, last = domain.shape, (*domain.shape[1:], domain.shape[0])
    ways: dict[Layout, tuple[int, ...]] = {"first": first, "last": last}
    for way in (layout,) if layout else tuple(ways)[: len(first)]:
        pairs = zip(shape[1:], ways[way], strict=False)
        if len(shape) == 1 + len(first) and all(side == own for side, own in pairs if isinstance(side, int)):
            return way == "last", None
    sides = [side for side in shape[1:] if isinstance(side, int)]
    if len(sides) != len(shape) - 1 or [side for side in sides if side != 1] != [math.prod(first)] or domain.columns:
        if len(shape) == len(first):
            remedy = "export it with a first axis of any length"
            raise RequestError(f"{name} takes one input of shape {shape} and has no axis for the samples: {remedy}")
        raise RequestError(f"{name} takes inputs of shape {shape[1:]}, and the data has {domain.kind}s of shape {list(first)}")
    if len(first) > 1 and first[0] > 1 and layout is None:
        raise RequestError(
            f"{name} takes inputs of shape {shape[1:]}, flattened from {list(first)} with the channels first or last: say it by "
            "layout=first or layout=last"
        )
    return layout == "last", tuple(sides)


def _counted(inputs: int) -> str:
    return "one input" if inputs == 1 else f"{inputs} inputs"


def _freed(file: Path, threads: int) -> Any:
    """A session of the same file without a fixed length of the first axis; None where that makes no file that runs."""
    try:
        import onnx

        model = onnx.load(file)
        del model.graph.value_info[:]
        for one in (*model.graph.input, *model.graph.output):
            if one.type.tensor_type.shape.dim:
                one.type.tensor_type.shape.dim[0].dim_param = "samples"
        return _session(model.SerializeToString(), threads)
    except Exception:
        return None


def _per_channel(values: tuple[float, ...], domain: Domain) -> Tensor | None:
    return torch.tensor(values).reshape(-1, *[1] * (len(domain.shape) - 1)) if values else None
