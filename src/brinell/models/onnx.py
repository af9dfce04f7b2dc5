"""`onnx:FILE`: a network in ONNX, run by ONNX Runtime on the processor: scores, no gradients.

`onnx:FILE?gradients=true` converts the network to torch: attacks by gradients, maps and proofs
become possible. If the converted network does not give the answers of ONNX Runtime on random
inputs, a note says so, and the scores remain.

The file takes one array of numbers, with the samples along its first axis. If that axis has a fixed
length, inputs are sent in batches of that length, the last one filled up with copies; one by one
where something inside, such as a Reshape, holds a batch of one. If the file takes flattened inputs,
(784,) or (784, 1) for (1, 28, 28), they are sent in row order. Notes report all of this.
"""

import ast
import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from brinell.core import bounded
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.file_content import check_graph
from brinell.core.model import Model
from brinell.core.settings import Checked, Range
from brinell.core.user_files import existing_path
from brinell.models._answers import Kind, LogitModel, random_inputs
from brinell.models._class_order import names_of_json
from brinell.models._detections import Decoder, decode_raw, open_decoder
from brinell.models._function import ARRAYS, FunctionModel
from brinell.models._onnx_session import (
    TYPES,
    WRONG_FORMAT,
    digest_of,
    in_batches,
    open_session,
    run_session,
)

METADATA = ("class_names", "id2label", "names", "classes", "labels")
"""Keys of a file's metadata under which exporters name the classes."""

Layout = Literal["first", "last"]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Onnx(Checked):
    """A network in ONNX, answered by ONNX Runtime."""

    path: str = ""
    """The file."""
    output: str = ""
    """Name of the output to read; by default the only one of shape (samples, classes)."""
    answers: Kind | None = None
    """Kind of the answers, such as logits or probabilities; by default inferred from the answers
    to clean samples."""
    layout: Layout | None = None
    """Position of the channels in the file's input, first or last; by default read from its
    shape."""
    mean: tuple[float, ...] = ()
    """Values to subtract from the inputs first: one number, or one per channel joined by +."""
    std: tuple[float, ...] = ()
    """Values by which to divide afterwards, like mean; 0.00392156862745098 converts 0 to 1 into
    0 to 255."""
    gradients: bool = False
    """Convert the network to torch, so that it gives gradients and its layers can be bounded."""
    decode: str = ""
    """`FILE.py:FUNCTION` for a detector: turns the output, a tensor of torch, into (n,
    candidates, 4 + classes), corners in pixels and then a score from 0 to 1 for each class,
    before suppression."""
    bgr: bool = False
    """The file takes the channels in reverse order, blue first; mean and std are those of red,
    green and blue."""
    threads: Annotated[int, Range("[1, 1024]")] = 1
    """Threads of ONNX Runtime."""
    name: str = ""
    """Name in reports; by default the stem of the file."""

    def __post_init__(self) -> None:
        """Refuse a std of 0, by which inputs would be divided."""
        super().__post_init__()
        if 0.0 in self.std:
            raise ValueError("std divides by 0")

    def __call__(self, domain: Domain) -> Model:
        """Open the file and send it random inputs."""
        file = existing_path(self.path, "file", "onnx:FILE")
        name = self.name or file.stem
        check_graph(file)
        digest, packed = digest_of(file)
        with bounded.decoding(file, packed, WRONG_FORMAT):
            network = Network(open_session(file, self.threads), domain, self, name)
            return model_of(network, domain, self, digest, file)

    def preprocessing(self, domain: Domain) -> dict[str, Any]:
        """The settings for numbers and order of the channels, as of a TorchModel."""
        channels = -len(domain.shape)
        for key in ("mean", "std"):
            if len(getattr(self, key)) not in (0, 1, domain.shape[0]):
                raise RequestError(
                    f"{self.path}: {key} has {len(getattr(self, key))} numbers "
                    f"for {domain.shape[0]} channels"
                )

        numbers = {key: list(values) for key in ("mean", "std") if (values := getattr(self, key))}
        # One number is for all channels, so that its axis does not matter.
        settings = {
            key: values if len(values) > 1 else values[0] for key, values in numbers.items()
        }
        return (
            ({"axis": channels} if numbers else {})
            | settings
            | ({"flip_axis": channels} if self.bgr else {})
        )


class Network:
    """A session of ONNX Runtime as a function of arrays (n, *shape), to one array or several."""

    def __init__(self, session: Any, domain: Domain, options: Onnx, name: str) -> None:
        self.session, self.name = session, name
        entry = _only_input(session, name)
        self.input, self.dtype = entry.name, TYPES[entry.type]
        self.last, self.sides = _arrangement(entry.shape, domain, options.layout, name)
        self.batch: int | None = entry.shape[0] if isinstance(entry.shape[0], int) else None
        """Number of inputs that the file takes at once; None if any number is accepted."""

        self.outputs = [str(port.name) for port in session.get_outputs()]
        if options.output and options.output not in self.outputs:
            raise RequestError(
                f"{name} has no output {options.output!r}; it has {', '.join(self.outputs)}"
            )
        self.outputs = [options.output] if options.output else self.outputs
        decoder: tuple[Decoder | None, str] = (
            open_decoder(options.decode) if options.decode else (None, "")
        )
        self.decoder, self.decoder_code = decoder

        self.notes: tuple[str, ...] = ()
        if self.sides is not None:
            self.notes += (
                f"{name} takes inputs of shape {self.sides}: those of the data "
                "are flattened row by row",
            )
        if self.batch is not None:
            self.notes += (
                f"{name} was exported for batches of {self.batch}, and is asked in such batches",
            )
        # A Reshape to one sample is no error of the file, but refuses larger batches: so two are
        # tried.
        elif self._holds_one(random_inputs(domain, 2).numpy()):
            self.batch = 1
            self.notes += (
                f"{name} holds a batch of one inside, as in a Reshape, and is asked sample by "
                "sample",
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Network":
        """The function around a second session of the same network."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        content = getattr(self.session, "_model_path", None) or getattr(
            self.session, "_model_bytes", None
        )
        if not content:
            raise TypeError("its session does not say which file it runs")
        options = self.session.get_session_options()
        twin.session = type(self.session)(content, options, providers=self.session.get_providers())
        return twin

    def _holds_one(self, pair: Array) -> bool:
        """True if the file answers one input and not two, whatever it declares."""
        try:
            return any(len(array) != len(pair) for array in self._arrays(pair))
        except RequestError:
            raise
        # It refuses two inputs: then it depends on whether it answers one.
        except Exception:
            with suppress(Exception):
                return all(len(array) == 1 for array in self._arrays(pair[:1]))
        return False

    def _arrays(self, x: Array) -> list[Array]:
        """The outputs for inputs in the layout of the data."""
        rows = np.ascontiguousarray(np.moveaxis(x, 1, -1) if self.last else x, self.dtype)
        rows = rows if self.sides is None else rows.reshape(len(rows), *self.sides)
        return in_batches(
            lambda part: run_session(self.session, self.outputs, self.input, part), rows, self.batch
        )

    def __call__(self, x: Array) -> Any:
        """The scores; whole numbers beside them, such as labels, are left out."""
        pairs = zip(self.outputs, self._arrays(x), strict=True)
        # Converters add the label beside the scores, as whole numbers.
        scores = {
            name: array
            for name, array in pairs
            if isinstance(array, np.ndarray) and array.dtype.kind == "f"
        }
        if not scores:
            raise RequestError(
                f"{self.name} answers with {', '.join(self.outputs)}, and none "
                "holds scores: export one that does"
            )
        if len(scores) > 1:
            return scores
        (answer,) = scores.values()
        return (
            answer
            if self.decoder is None
            else decode_raw(self.decoder, torch.from_numpy(answer), self.name)
        )


def model_of(
    network: Network, domain: Domain, options: Onnx, digest: str, file: Path | None = None
) -> Model:
    """The model around a network.

    It is one of torch if the settings ask for gradients and ONNX Runtime gives the same answers.
    """
    preprocessing = options.preprocessing(domain)
    code = f"{digest} {network.decoder_code} {network.last} {network.sides}"
    model = FunctionModel(
        network,
        domain,
        classes=0,
        name=network.name,
        labels=False,
        forms=ARRAYS,
        # The type of the file's input: others would be refused by the session.
        dtype=torch.from_numpy(np.zeros(0, network.dtype)).dtype,
        code=code,
        preprocessing=preprocessing,
        class_names=_class_names(network.session, network.name),
        architecture="ONNX",
        notes=network.notes,
        gradients=f"onnx:{options.path}?gradients=true"
        * (bool(options.path) and not options.gradients),
    )
    if options.gradients and file is not None:
        from brinell.models._onnx_network import convert

        # Without gradients the file still answers by ONNX Runtime, so that failing here ends
        # nothing.
        try:
            return convert(model, file, preprocessing)
        except RequestError:
            raise
        except Exception as error:
            model.add_note(
                f"{network.name} gives scores alone: it cannot be carried out in "
                f"torch ({one_line(error, 160)})"
            )
    return LogitModel(model, options.answers) if options.answers else model


def _class_names(session: Any, name: str) -> tuple[str, ...]:
    """The names of the classes in the metadata of a file.

    They are JSON, Python's text of a dict or list, or names joined by commas.
    """
    metadata = dict(session.get_modelmeta().custom_metadata_map)
    key = next((key for key in METADATA if metadata.get(key)), None)
    if key is None:
        return ()

    subject, text = f"metadata {key} of {name}", metadata[key].strip()
    # A dict in JSON has texts as keys; Python's text of a dict has numbers.
    for read in (json.loads, ast.literal_eval):
        try:
            content = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return names_of_json(subject, list(content) if isinstance(content, tuple) else content)
    return tuple(part.strip() for part in text.split(","))


def _only_input(session: Any, name: str) -> Any:
    """The input of a file that has one of real numbers."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(f"{entry.name} {entry.shape}" for entry in inputs)
        raise RequestError(
            f"{name} has {len(inputs)} inputs ({names}): Brinell asks models of "
            "one; export it with the others fixed"
        )

    entry = inputs[0]
    if entry.type not in TYPES:
        raise RequestError(
            f"{name} takes {entry.type}, and inputs are real numbers: export it "
            f"for {', '.join(TYPES)}"
        )
    return entry


def _arrangement(
    shape: list[Any], domain: Domain, layout: Layout | None, name: str
) -> tuple[bool, tuple[int, ...] | None]:
    """True if the file takes the channels last, and the sides of flattened inputs, or None.

    Data of another shape are refused.
    """
    first, last = domain.shape, (*domain.shape[1:], domain.shape[0])
    layouts: dict[Layout, tuple[int, ...]] = {"first": first, "last": last}
    # Inputs of a single axis have one order alone.
    for order in (layout,) if layout else tuple(layouts)[: len(first)]:
        # An axis without a number takes any length.
        pairs = zip(shape[1:], layouts[order], strict=False)
        if len(shape) == 1 + len(first) and all(
            side == length for side, length in pairs if isinstance(side, int)
        ):
            return order == "last", None

    # Otherwise one axis may hold all values of an input.
    sides = [side for side in shape[1:] if isinstance(side, int)]
    if (
        len(sides) != len(shape) - 1
        or [side for side in sides if side != 1] != [math.prod(first)]
        or domain.columns
    ):
        if len(shape) == len(first):
            remedy = "export it with a first axis of any length"
            raise RequestError(
                f"{name} takes one input of shape {shape} and has no axis for the samples: {remedy}"
            )
        raise RequestError(
            f"{name} takes inputs of shape {shape[1:]}, and the data has "
            f"{domain.kind}s of shape {list(first)}"
        )
    if len(first) > 1 and first[0] > 1 and layout is None:
        raise RequestError(
            f"{name} takes inputs of shape {shape[1:]}, flattened from "
            f"{list(first)} with the channels first or last: say it by "
            "layout=first or layout=last"
        )
    return layout == "last", tuple(sides)
