"""`onnx:FILE`: a network in ONNX, run by ONNX Runtime on the processor: scores, no gradients.

`onnx:FILE?gradients=true` converts the network to torch: attacks by gradients, maps and proofs become possible. If the
converted network does not give the answers of ONNX Runtime on random inputs, a note says so, and the scores remain.

The file takes one array of numbers, with the samples along its first axis, and returns one row of logits or probabilities for
each sample. The answers to random inputs show which of the two they are; probabilities are converted by their logarithm.

If the first axis has a fixed length, it is made dynamic, provided that the file then gives the same answers as in batches of
that length. Otherwise inputs are sent in batches of that length, the last one filled up with copies. If the file takes
flattened inputs, (784,) or (784, 1) for (1, 28, 28), they are sent in row order. Notes report both.
"""

import ast
import hashlib
import json
import math
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from brinell.core import bounded
from brinell.core.contracts import Access, Domain
from brinell.core.detection import BoxForm
from brinell.core.errors import ModelError, RequestError, one_line
from brinell.core.file_content import check_graph
from brinell.core.model import MapOutput, ModelInfo
from brinell.core.settings import at_least, at_most
from brinell.core.user_files import path_hint
from brinell.models._answers import are_probabilities, logits_of_probabilities, random_inputs
from brinell.models._class_order import names_of_json
from brinell.models._detections import Decoder, box_form, decode_raw, open_decoder
from brinell.models._onnx_session import TYPES, WRONG_FORMAT, digest_of, in_batches, open_session, session_of

if TYPE_CHECKING:
    from brinell.models._torch_model import TorchModel

__all__ = ["Onnx"]

METADATA = ("class_names", "id2label", "names", "classes", "labels")
"""Keys of a file's metadata under which exporters name the classes."""
MOST_METADATA = 1 << 22
"""Maximum number of characters of these names."""
PROBES = 8
"""Number of random inputs whose answers distinguish logits from probabilities."""
LONGEST = 60.0
"""Seconds that `PROBES` inputs may take; a graph may hold a loop without an end."""

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
    """Position of the channels in the file's input, first or last; by default read from its shape."""
    mean: tuple[float, ...] = ()
    """Values to subtract from the inputs first: one number, or one per channel joined by +."""
    std: tuple[float, ...] = ()
    """Values by which to divide afterwards, like mean; 0.00392156862745098 converts 0 to 1 into 0 to 255."""
    gradients: bool = False
    """Convert the network to torch, so that it gives gradients and its layers can be bounded."""
    decode: str = ""
    """`FILE.py:FUNCTION` for a detector: turns the output, a tensor of torch, into (n, candidates, 4 + classes), corners in
    pixels and then a score from 0 to 1 for each class, before suppression."""
    bgr: bool = False
    """The file takes the channels in reverse order, blue first; mean and std are those of red, green and blue."""
    threads: int = 1
    """Threads of ONNX Runtime."""
    name: str = ""
    """Name in reports; by default the stem of the file."""

    def __post_init__(self) -> None:
        at_least(self, threads=1)
        at_most(self, threads=1024)
        if 0.0 in self.std:
            raise ValueError("std divides by 0")

    def __call__(self, domain: Domain) -> "OnnxModel | TorchModel":
        """Open the file and send it random inputs.

        Raises:
            RequestError: onnxruntime is not installed, or the file is missing, damaged, has several inputs, no axis for the
                samples, another shape or type than the data, or no output of scores.
        """
        file = Path(self.path).expanduser()
        if not self.path:
            raise RequestError("'onnx' names no file: write onnx:FILE")
        if not file.is_file():
            raise RequestError(f"there is no file {str(file)!r}: check the path{path_hint(file)}")
        for key in ("mean", "std"):
            if len(getattr(self, key)) not in (0, 1, domain.shape[0]):
                raise RequestError(f"{file}: {key} has {len(getattr(self, key))} numbers for {domain.shape[0]} channels")
        name = self.name or file.stem
        check_graph(file)
        digest, packed = digest_of(file)
        with bounded.decoding(file, packed, WRONG_FORMAT):
            model = OnnxModel(open_session(file, self.threads), domain, self, digest, name)
            note = ""
            if self.gradients:
                try:
                    return self._convert(model, file)
                except RequestError:
                    raise
                except Exception as error:
                    note = f"{name} gives scores alone: it cannot be carried out in torch ({one_line(error, 160)})"
            if model.batch is not None and (freed := _session_of_any_batch(file, self.threads)) is not None:
                model = model.of_any_batch(freed) or model
            if note:
                model.info = replace(model.info, gradients="", notes=(*model.info.notes, note))
            return model

    def _convert(self, model: "OnnxModel", file: Path) -> "TorchModel":
        """The network in torch."""
        from brinell.models._onnx_network import convert

        channels, numbers = -len(model.domain.shape), {"mean": self.mean, "std": self.std}
        preprocessing: dict[str, Any] = {"axis": channels} | ({"flip_axis": channels} if self.bgr else {})
        preprocessing |= {key: list(values) if len(values) > 1 else values[0] for key, values in numbers.items() if values}
        return convert(model, file, model.rows, model.output, preprocessing, model.decoder)


class OnnxModel:
    """A model around a session of ONNX Runtime.

    Args:
        session: has `run`, `get_inputs` and `get_outputs`.
        domain: domain of the inputs.
        options: settings of the model.
        digest: hash of the file and of its external weights.
        name: name in reports.
    """

    access = Access.SCORES

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxModel":
        """The model around a second session of the same network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        content = getattr(self._session, "_model_path", None) or getattr(self._session, "_model_bytes", None)
        if not content:
            raise TypeError("its session does not say which file it runs")
        options = self._session.get_session_options()
        twin._session = type(self._session)(content, options, providers=self._session.get_providers())
        return twin

    def __init__(self, session: Any, domain: Domain, options: Onnx, digest: str, name: str) -> None:
        self.domain, self.name, self._session, self._digest = domain, name, session, digest
        entry = _only_input(session, name)
        self._input, self._type = entry.name, TYPES[entry.type]
        self._last, self._sides = _arrangement(entry.shape, domain, options.layout, name)
        self.batch: int | None = entry.shape[0] if isinstance(entry.shape[0], int) else None
        """Number of inputs that the file takes at once; None if any number is accepted."""
        self._shift, self._scale = (_per_channel(values, domain) for values in (options.mean, options.std))
        self._options = options
        self.output, self._map = "", cast(MapOutput | BoxForm | None, None)
        self.decoder, decoder_code = cast(
            tuple[Decoder | None, str], open_decoder(options.decode) if options.decode else (None, "")
        )
        self._digest += decoder_code
        answers = self._probe(options.output)
        self.classes = answers.shape[1]
        logits = isinstance(self._map, BoxForm) or not are_probabilities(answers)
        answer_kind = options.answers or ("logits" if logits else "probabilities")
        self._probabilities = answer_kind == "probabilities"
        self._notes: tuple[str, ...] = ()
        if self._sides is not None:
            self._notes = (f"{name} takes inputs of shape {self._sides}: those of the data are flattened row by row",)
        batches = () if self.batch is None else (f"{name} takes {_count_text(self.batch)} at a time, and is asked that many",)
        gradients = f"onnx:{options.path}?gradients=true" if options.path else ""
        self.info = ModelInfo(
            class_names=_class_names(session, name),
            architecture="ONNX",
            output=self._map,
            answers=answer_kind,
            preprocessing={key: list(numbers) for key in ("mean", "std") if (numbers := getattr(options, key))},
            notes=self._notes + batches,
            gradients=gradients,
        )

    def of_any_batch(self, session: Any) -> "OnnxModel | None":
        """The same file with a dynamic first axis, if it then answers some random inputs as this one does; otherwise None."""
        try:
            model = OnnxModel(session, self.domain, self._options, self._digest, self.name)
            x = random_inputs(self.domain, PROBES)
            agrees = torch.allclose(model.predict(x), self.predict(x), rtol=1e-3, atol=1e-4)
        except Exception:  # what was exported for one input may hold its number anywhere
            return None
        if not agrees or model.batch is not None:
            return None
        note = f"{self.name} takes {_count_text(self.batch or 1)} at a time: its first axis was freed, and answers as before"
        model.info = replace(model.info, notes=(*model.info.notes, note))
        return model

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape) within the bounds."""
        answer = self._ask(self._convert(x), [self.output])[0]
        raw = torch.from_numpy(answer)
        logits = self._candidates(raw) if isinstance(self._map, BoxForm) else raw
        logits = logits if self._map is None else logits.flatten(1)
        return (logits_of_probabilities(logits) if self._probabilities else logits.float()).to(x.device)

    def _candidates(self, raw: Tensor) -> Any:
        """The answer of a detector, decoded where there is a function for that."""
        return raw if self.decoder is None else decode_raw(self.decoder, raw, self.name)

    @property
    def rows(self) -> dict[str, Any]:
        """The inputs that the file takes, as settings of `models._onnx_network.Rows`."""
        return {"last": self._last, "sides": self._sides, "dtype": self._type}

    def digest(self) -> str:
        """Hash of the file, the settings and the domain."""
        options = self._options
        text = (
            f"{self._digest} {self.output} {self._probabilities} {self._last} {options.mean} {options.std}{' bgr' * options.bgr}"
        )
        return hashlib.blake2b(f"{text} {self.domain.text()}".encode(), digest_size=16).hexdigest()

    def _convert(self, x: Tensor) -> np.ndarray[Any, Any]:
        """Inputs as the session takes them."""
        x = x.detach().cpu()
        x = self.domain.in_units(x.double()) if self.domain.columns else x
        x = x if self._shift is None else x - self._shift
        x = x if self._scale is None else x / self._scale
        x = x.flip(1) if self._options.bgr else x
        rows: np.ndarray[Any, Any] = x.numpy().astype(self._type, copy=False)
        rows = np.ascontiguousarray(np.moveaxis(rows, 1, -1)) if self._last else np.ascontiguousarray(rows)
        return rows if self._sides is None else rows.reshape(len(rows), *self._sides)

    def _ask(self, rows: np.ndarray[Any, Any], outputs: list[str]) -> list[np.ndarray[Any, Any]]:
        """Outputs for these rows, in batches of the fixed size if there is one."""
        return in_batches(lambda part: self._run(part, outputs), rows, self.batch)

    def _run(self, rows: np.ndarray[Any, Any], outputs: list[str]) -> list[np.ndarray[Any, Any]]:
        """Outputs of one call, which ends after its time.

        Raises:
            ModelError: the graph took longer.
        """
        if not type(self._session).__module__.startswith("onnxruntime"):  # an object of the user's own with the same methods
            return list(self._session.run(outputs, {self._input: rows}))
        import onnxruntime

        seconds, options, is_late = LONGEST * max(1, math.ceil(len(rows) / PROBES)), onnxruntime.RunOptions(), threading.Event()

        def stop() -> None:
            """End the call before its next node."""
            is_late.set()
            options.terminate = True

        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            return list(self._session.run(outputs, {self._input: rows}, options))
        except Exception:
            if not is_late.is_set():
                raise
            raise ModelError(
                f"{self.name} has not answered {_count_text(len(rows))} in {seconds:g} s: its graph may hold a loop without an "
                "end; export it without that, or give a smaller network"
            ) from None
        finally:
            timer.cancel()

    def _probe(self, output: str) -> Tensor:
        """Answers (PROBES, classes) to random inputs; sets the output that they come from."""
        x = random_inputs(self.domain, PROBES)
        names = [entry.name for entry in self._session.get_outputs()]
        if output and output not in names:
            raise RequestError(f"{self.name} has no output {output!r}; it has {', '.join(names)}")
        try:
            outputs = self._ask(self._convert(x), names)
        except ModelError:
            raise
        except Exception as error:
            raise RequestError(
                f"{self.name} cannot take the data, {PROBES} {self.domain.kind}s of shape {self.domain.shape} "
                f"({one_line(error)}): give it data of its shape, or export it with the first axis dynamic"
            ) from None
        answers = dict(zip(names, outputs, strict=True))
        named = [name for name in names if output in ("", name)]
        candidates = [name for name in named if _is_boxes(answers[name], decoded=self.decoder is not None)]
        rows = [name for name in named if _is_rows(answers[name])]
        if (self.decoder is not None or not rows) and len(candidates) == 1:
            return self._probe_boxes(candidates[0], torch.from_numpy(answers[candidates[0]]))
        if not rows and self.domain.kind == "image":
            rows = [name for name in named if _is_map(answers[name])]
        if len(rows) != 1:
            listed = ", ".join(f"{name} {getattr(answer, 'shape', None) or 'no array'}" for name, answer in answers.items())
            ambiguous = "one output holds a row of scores for each and another too: name one by output="
            absent = "no output holds a row of scores for each: export one that does"
            raise RequestError(f"{self.name} answers {PROBES} inputs with {listed}, where {ambiguous if rows else absent}")
        self.output, answer = rows[0], answers[rows[0]]
        if answer.ndim == 4:
            self._map = MapOutput(classes=answer.shape[1], height=answer.shape[2], width=answer.shape[3])
        return torch.from_numpy(answer.reshape(len(answer), -1))

    def _probe_boxes(self, output: str, raw: Tensor) -> Tensor:
        """Flattened candidates of a detector; sets their form."""
        self.output, candidates = output, self._candidates(raw)
        self._map = box_form(candidates, PROBES, max(self.domain.shape[1:]), self.name)
        return torch.as_tensor(candidates).flatten(1)


def _is_boxes(answer: Any, *, decoded: bool) -> bool:
    """True if an output may hold the boxes of each of the probes; one that is decoded may have any axes."""
    if not isinstance(answer, np.ndarray) or answer.dtype.kind != "f" or answer.ndim < 2 or len(answer) != PROBES:
        return False
    return decoded or (answer.ndim == 3 and answer.shape[2] > 4)


def _is_rows(answer: Any) -> bool:
    """True if an output holds a row of scores for each of the probes."""
    return isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and answer.ndim == 2 and len(answer) == PROBES


def _is_map(answer: Any) -> bool:
    """True if an output holds a map (classes, height, width) for each of the probes."""
    is_numbers = isinstance(answer, np.ndarray) and answer.dtype.kind == "f" and answer.ndim == 4
    return is_numbers and len(answer) == PROBES and math.prod(answer.shape[2:]) > 1


def _class_names(session: Any, name: str) -> tuple[str, ...]:
    """The names of the classes in the metadata of a file: JSON, Python's text of a dict or list, or names joined by commas."""
    metadata = dict(session.get_modelmeta().custom_metadata_map)
    key = next((key for key in METADATA if metadata.get(key)), None)
    if key is None:
        return ()
    subject, text = f"metadata {key} of {name}", metadata[key].strip()
    if len(text) > MOST_METADATA:
        raise RequestError(f"{subject} holds {len(text)} characters: name the classes in at most {MOST_METADATA}")
    for read in (json.loads, ast.literal_eval):
        try:
            content = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return names_of_json(subject, list(content) if isinstance(content, tuple) else content)
    return tuple(part.strip() for part in text.split(","))


def _only_input(session: Any, name: str) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        listed = ", ".join(f"{entry.name} {entry.shape}" for entry in inputs)
        raise RequestError(
            f"{name} has {len(inputs)} inputs ({listed}): Brinell asks models of one; export it with the others fixed"
        )
    entry = inputs[0]
    if entry.type not in TYPES:
        raise RequestError(f"{name} takes {entry.type}, and inputs are real numbers: export it for {', '.join(TYPES)}")
    return entry


def _arrangement(shape: list[Any], domain: Domain, layout: Layout | None, name: str) -> tuple[bool, tuple[int, ...] | None]:
    """True if the file takes the channels last, and the sides of flattened inputs, or None; refuses data of another shape."""
    first, last = domain.shape, (*domain.shape[1:], domain.shape[0])
    layouts: dict[Layout, tuple[int, ...]] = {"first": first, "last": last}
    for order in (layout,) if layout else tuple(layouts)[: len(first)]:
        pairs = zip(shape[1:], layouts[order], strict=False)
        if len(shape) == 1 + len(first) and all(side == length for side, length in pairs if isinstance(side, int)):
            return order == "last", None
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


def _count_text(inputs: int) -> str:
    return "one input" if inputs == 1 else f"{inputs} inputs"


def _session_of_any_batch(file: Path, threads: int) -> Any:
    """A session of the same file with a dynamic first axis; None if the changed file does not run."""
    try:
        import onnx

        model = onnx.load(file)
        del model.graph.value_info[:]
        for port in (*model.graph.input, *model.graph.output):
            if port.type.tensor_type.shape.dim:
                port.type.tensor_type.shape.dim[0].dim_param = "samples"
        return session_of(model.SerializeToString(), threads)
    except Exception:
        return None


def _per_channel(values: tuple[float, ...], domain: Domain) -> Tensor | None:
    return torch.tensor(values).reshape(-1, *[1] * (len(domain.shape) - 1)) if values else None
