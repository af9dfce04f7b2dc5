"""`http(s)://HOST/v2/models/NAME`: a model behind a server of the Open Inference Protocol, over REST.

KServe, Triton, OpenVINO Model Server and MLServer implement the protocol. The server's metadata state the inputs of the model;
options fill the gaps. Numbers are sent as binary tensors if the server accepts them, otherwise as JSON. A bearer token is read
from an environment variable and written nowhere. Each row of a request counts as one query; repeated requests are counted
separately.
"""

import hashlib
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Access, Domain, Remark
from brinell.core.errors import ModelError, RequestError, SampleError, UnreachableError
from brinell.core.model import ModelInfo
from brinell.core.settings import Plain, above_zero, at_least, at_most
from brinell.models._answers import are_probabilities, logits_of_labels, logits_of_probabilities, random_inputs
from brinell.models._channel import Channel, RejectedError, Response
from brinell.models._protocol import DATATYPES, AnswerError, Slot, answer, fits, parse, request, slots
from brinell.models._torch_model import affine

__all__ = ["Http"]

Array = np.ndarray[Any, Any]
Answers = Literal["auto", "logits", "probabilities", "labels"]
Layout = Literal["auto", "first", "last"]
Encoding = Literal["auto", "binary", "json"]
PROBES = 4
"""Number of random inputs whose answers show the kind of the output. When in doubt, the first of them is sent again."""


@dataclass(frozen=True, kw_only=True)
class Http:
    """A model behind a server of the Open Inference Protocol (KServe, Triton, OpenVINO Model Server, MLServer)."""

    path: str = ""
    """The model's URL, `http://HOST:PORT/v2/models/NAME` or `.../NAME/versions/VERSION`."""
    name: Plain = ""
    """Name in reports; by default the name in the URL."""
    token_env: str = "BRINELL_TOKEN"
    """Environment variable that holds a bearer token, if the server requires one; its name begins with BRINELL_."""
    answers: Answers = "auto"
    """Content of the output: logits, probabilities (converted by their logarithm) or labels; auto infers it from a few answers.
    """
    classes: int | None = None
    """Number of classes; required if the server answers labels only, otherwise checked."""
    input: str = ""
    """Name of the input; required if the server does not state it."""
    output: str = ""
    """Name of the output; required if there are several."""
    datatype: str = ""
    """Datatype of the input, such as FP32 or UINT8; by default the server's, or FP32 if it states none."""
    layout: Layout = "auto"
    """Position of the channels in the server's input: first (NCHW) or last (NHWC); auto follows the shape that the server
    states.
    """
    low: float | None = None
    """Value sent for the lower bound of the data; by default 0 for UINT8, and the bound itself otherwise."""
    high: float | None = None
    """Value sent for the upper bound of the data; by default 255 for UINT8, and the bound itself otherwise."""
    mean: tuple[float, ...] = ()
    """Values to subtract from each channel after that, joined by `+`."""
    std: tuple[float, ...] = ()
    """Values by which to divide each channel after that, joined by `+`."""
    encoding: Encoding = "auto"
    """Encoding of tensors: binary, json, or auto, which tries binary first."""
    rows: int = 64
    """Maximum number of inputs per request."""
    concurrency: int = 4
    """Maximum number of requests in flight."""
    timeout: float = 30.0
    """Seconds until an attempt is given up."""
    retries: int = 5
    """Attempts after the first before the server counts as unreachable."""
    backoff: float = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""

    def __post_init__(self) -> None:
        at_least(self, rows=1, concurrency=1, retries=0, backoff=0, classes=2)
        at_most(self, rows=100_000, concurrency=256, retries=1000, classes=100_000)
        above_zero(self, "timeout")
        if self.token_env and not self.token_env.startswith("BRINELL_"):
            raise ValueError(
                f"token_env is {self.token_env!r}; only variables whose names begin with BRINELL_ are sent anywhere: put the "
                "token into one"
            )
        if self.datatype and self.datatype not in DATATYPES:
            raise ValueError(f"datatype is {self.datatype!r}; it is one of {', '.join(DATATYPES)}")
        if (self.low is None) != (self.high is None):
            raise ValueError("low and high come together: what the ends of the data's range become")

    def __call__(self, domain: Domain) -> "RemoteModel":
        """Read the model's metadata and settle open questions by a few queries.

        Raises:
            RequestError: the URL has another form, the model does not exist, options are missing or do not fit, or httpx2 is not
                installed.
            ModelError: the answers cannot come from a classifier of this protocol.
            UnreachableError: the server does not answer, or does not accept the token.
        """
        url, name = _address(self.path)
        name = self.name or name
        who = f"model {name} at {urlsplit(url).netloc}"
        limits = {"timeout": self.timeout, "backoff": self.backoff}
        channel = Channel(who, self.token_env, retries=self.retries, concurrency=self.concurrency, **limits)
        with channel.session():
            try:
                metadata = channel.mask_token(channel.ask(url, lambda response: parse(response.body)))
                form = _form(self, domain, metadata)
            except (RejectedError, AnswerError) as error:
                hint = "check the URL: it ends in /v2/models/NAME, and the model is loaded"
                raise RequestError(f"{who} has no metadata of the Open Inference Protocol ({error}): {hint}") from None
            return _detect_form(RemoteModel(domain, name=name, url=url, channel=channel, form=form), self, metadata)


class RequestForm(NamedTuple):
    """Conversion of inputs to requests, and of answers to logits."""

    slot: Slot
    """The server's input; its shape is that of one input, without the axis of the batch."""
    output: str
    layout: Layout
    scale: Tensor
    shift: Tensor
    rows: int
    """Maximum number of inputs per request."""
    fixed_rows: bool
    """True if each request must hold exactly `rows` inputs."""
    binary: bool = True
    answers: Answers = "auto"
    classes: int = 0


class RemoteModel:
    """A model on another machine: scores or labels, never gradients.

    Inputs are sent in several requests at once. If the server fails on an input, or answers it with NaN, but still answers
    others, SampleError is raised; if it answers none, UnreachableError.
    """

    def __init__(self, domain: Domain, *, name: str, url: str, channel: Channel, form: RequestForm) -> None:
        self.domain, self.name, self.url, self.form = domain, name, url, form
        self._channel = channel
        self.info = ModelInfo(session=self.session, server=self)
        self.served: dict[str, Any] = {}
        """Facts about the server for the manifest."""
        self.notes: list[Remark] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.probes = domain.round(random_inputs(domain, PROBES))
        codes = [index for index, column in enumerate(domain.columns) if column.values]
        self.probes[:, codes] = self.probes[:, codes].round()
        """(PROBES, *shape): inputs whose answers show the kind of the output."""

    @property
    def access(self) -> Access:
        """Labels or scores, by the kind of the answers."""
        return Access.LABELS if self.form.answers == "labels" else Access.SCORES

    @property
    def classes(self) -> int:
        """Number of classes that the server distinguishes."""
        return self.form.classes

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape); a server of labels gives logits that are certain.

        Raises:
            SampleError: the server fails on some of these inputs, but still answers the first probe.
            UnreachableError: the server does not answer, or no longer gives usable answers.
        """
        values = x.detach().cpu()
        requests = -(-len(values) // self.form.rows)
        parts = torch.split(values, self.form.rows) if self.form.fixed_rows else torch.tensor_split(values, requests)
        with self.session():
            try:
                logits = self._channel.ask_all([partial(self.logits, part) for part in parts])
            except RejectedError as error:
                self._check_server(error)
                raise SampleError(f"model {self.name} fails on an input: {error}") from None
        with self._lock:
            self._counts["inputs"] += len(x)
        return torch.cat(logits).to(x.device)

    @contextmanager
    def session(self, device: torch.device | str | None = None) -> Iterator[None]:
        """Keep connections open until the end; outside a session each `predict` opens its own."""
        with self._channel.session():
            yield

    def digest(self) -> str:
        """Hash of the address, the model's metadata, and the form of the requests.

        The weights cannot be read from here. Asking for the first answers again checks that they stay the same.
        """
        form = self.form
        settings = [form.slot, form.output, form.layout, form.scale.tolist(), form.shift.tolist(), form.answers, form.classes]
        content = [self.url, self.domain.text(), self.info.architecture, self.served["versions"], *settings]
        return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()

    def remarks(self) -> Sequence[Remark]:
        """Remarks for the reader on the form of the requests."""
        return self.notes

    def traffic(self) -> dict[str, int]:
        """Counts since the last call: inputs answered, requests answered, and failed attempts by cause."""
        counts = self._counts + self._channel.traffic
        self._counts.clear()
        self._channel.traffic.clear()
        return dict(counts)

    def raw_answer(self, x: Tensor, *, unusable: int | None = None) -> Array:
        """The server's unconverted answer to one request; `unusable` and the errors are those of `Channel.ask`."""
        slot, n = self.form.slot, len(x)
        values = x * self.form.scale + self.form.shift
        if DATATYPES[slot.datatype][1] in "iu":
            values = values.round()
        if self.form.layout == "last":
            values = values.movedim(1, -1)
        if self.form.fixed_rows and n < self.form.rows:
            values = torch.cat([values, values[-1:].expand(self.form.rows - n, *values.shape[1:])])
        array = values.reshape(len(values), *slot.shape).numpy()
        body, headers = request(slot, array, binary=self.form.binary, output=self.form.output)

        def read(response: Response) -> Array:
            """The values of an answer, checked for their number."""
            output: Array = answer(response.body, response.headers, self.form.output)
            if output.ndim == 0 or len(output) != len(array):
                raise AnswerError(f"shape {output.shape} to {len(array)} inputs")
            return output[:n]

        return self._channel.ask(f"{self.url}/infer", read, body, headers, unusable=unusable)

    def logits(self, x: Tensor) -> Tensor:
        """Logits (n, classes) float32 by one request; n is at most the number of rows of a request.

        Raises as `Channel.ask`; RejectedError also for answers from which no class follows.
        """
        output, classes = torch.from_numpy(self.raw_answer(x).astype(np.float64)), self.form.classes
        if self.form.answers == "labels":
            labels = output.flatten(1) if output.ndim > 1 else output[:, None]
            if labels.shape[1] != 1 or not bool(((labels >= 0) & (labels < classes) & (labels == labels.floor())).all()):
                raise RejectedError(f"it answers {_first_values(output.numpy())}, no labels from 0 to {classes - 1}")
            return logits_of_labels(labels[:, 0], classes)
        if output.shape != (len(x), classes):
            raise RejectedError(f"it answers shape {tuple(output.shape)}, not {(len(x), classes)}")
        if not bool(output.isfinite().all()):
            raise RejectedError("it answers NaN or infinity")
        return logits_of_probabilities(output) if self.form.answers == "probabilities" else output.float()

    def _check_server(self, error: RejectedError) -> None:
        """Send an input that the server has answered before; raises UnreachableError if the server now fails on it too."""
        try:
            self.logits(self.probes[:1])
        except RejectedError:
            raise UnreachableError(f"{self._channel.who} no longer works: {error}: check the server, then try again") from None


def _address(path: str) -> tuple[str, str]:
    """The model's URL without the part after its name, and the name."""
    parts = urlsplit(path)
    match = re.fullmatch(r"(.*?/v2/models/([^/]+)(?:/versions/[^/]+)?)(?:/infer)?/*", parts.path)
    if parts.scheme not in ("http", "https") or not parts.hostname or match is None:
        raise RequestError(f"{path!r} is no model's URL: write http://HOST:PORT/v2/models/NAME")
    if "@" in parts.netloc:
        raise RequestError("a URL with a password is kept in records: leave it out, and put a bearer token into BRINELL_TOKEN")
    return f"{parts.scheme}://{parts.netloc}{match[1]}", match[2]


def _form(options: Http, domain: Domain, metadata: dict[str, Any]) -> RequestForm:
    """Form of the requests to this model, as far as its metadata and the options determine it."""
    slot = _slot(options, metadata)
    if slot.datatype not in DATATYPES:
        raise RequestError(f"input {slot.name} has datatype {slot.datatype}, and only numbers are sent: {', '.join(DATATYPES)}")
    layout, shape = _arrangement(slot, domain, options.layout)
    batch = slot.shape[0] if slot.shape else -1
    bounds = (0.0, 255.0) if slot.datatype == "UINT8" and not domain.columns else None
    if options.low is not None and options.high is not None:
        if domain.columns:
            raise RequestError("low and high are for data without columns: these are sent in the units of their table")
        bounds = (options.low, options.high)
    parameters = {"mean": options.mean or None, "std": options.std or None, "axis": -len(domain.shape)}
    scale, shift = affine(domain, parameters if options.mean or options.std else {}, bounds)
    return RequestForm(
        slot=replace(slot, shape=shape),
        output=options.output,
        layout=layout,
        scale=scale,
        shift=shift,
        rows=batch if batch > 0 else options.rows,
        fixed_rows=batch > 0,
        binary=options.encoding != "json",
        classes=options.classes or 0,
    )


def _slot(options: Http, metadata: dict[str, Any]) -> Slot:
    """The input tensor that the server expects."""
    inputs = slots(metadata, "inputs")
    matching = [port for port in inputs if options.input in ("", port.name)]
    if not inputs:
        if not options.input:
            raise RequestError("the server does not say what the model's input is called: give the option input=NAME")
        return Slot(options.input, options.datatype or "FP32", ())
    if len(matching) != 1:
        names = ", ".join(port.name for port in inputs)
        problem = f"takes {len(inputs)} inputs ({names}), and data fill one" if len(inputs) > 1 else f"has input {names}"
        raise RequestError(f"the model {problem}: name it with the option input=, or serve a model of one input")
    return replace(matching[0], datatype=options.datatype or matching[0].datatype)


def _arrangement(slot: Slot, domain: Domain, layout: Layout) -> tuple[Layout, tuple[int, ...]]:
    """Position of the channels, and the shape in which one input is sent: one that fits the server, or a flat row."""
    expected, (channels, *sides) = slot.shape[1:], domain.shape
    layouts: dict[Layout, tuple[int, ...]] = {"first": domain.shape, "last": (*sides, channels)}
    layouts = layouts if layout == "auto" else {layout: layouts[layout]}
    shapes = [*layouts.values(), *([tuple(sides)] if channels == 1 else []), (math.prod(domain.shape),)]
    shapes_that_fit = [shape for shape in shapes if fits(expected, shape)] if slot.shape else shapes
    if not shapes_that_fit:
        raise RequestError(
            f"the server takes inputs of shape {expected}, and the data are {domain.kind}s of shape {domain.shape}: "
            "give it data of its shape"
        )
    if layout == "auto":
        matching = [way for way, shape in layouts.items() if fits(expected, shape)]
        if channels > 1 and sides and len(matching) != 1:
            raise RequestError(
                f"the server does not say whether it takes the channels of {domain.shape} first or last: give the option "
                "layout=first or layout=last"
            )
        layout = matching[0] if channels > 1 and sides else "first"
    return layout, shapes_that_fit[0]


def _detect_form(model: RemoteModel, options: Http, metadata: dict[str, Any]) -> RemoteModel:
    """Determine encoding, kind of answers and number of classes from the answers to a few inputs."""
    output, refusal = _first_answer(model, options)
    kind = options.answers if options.answers != "auto" else _kind(output)
    classes = options.classes or 0 if kind == "labels" else output.shape[-1]
    if kind == "labels" and not classes:
        raise RequestError(f"model {model.name} answers labels: say how many classes there are with the option classes=")
    if kind != "labels" and (output.ndim != 2 or classes < 2):
        problem = f"model {model.name} answers {_first_values(output)} of shape {output.shape}, not one number per class"
        raise ModelError(f"{problem}: if these are labels, give the options answers=labels&classes=")
    if kind != "labels" and options.classes not in (None, classes):
        raise ModelError(f"model {model.name} answers {classes} classes, and classes={options.classes} was given: correct either")
    model.form = model.form._replace(answers=kind, classes=classes)
    try:
        for part in torch.split(model.probes, model.form.rows):
            model.logits(part)
    except RejectedError as error:
        raise ModelError(f"model {model.name} answers what cannot be judged: {error}") from None
    slot = model.form.slot
    answer_kind = "one-hot" if kind == "labels" else kind
    model.info = replace(model.info, architecture=str(metadata.get("platform") or "") or None, answers=answer_kind)
    model.served = {
        "encoding": "binary" if model.form.binary else "json",
        "answers": kind,
        "input": {"name": slot.name, "datatype": slot.datatype, "shape": list(slot.shape), "layout": model.form.layout},
        "versions": [str(version) for version in metadata.get("versions") or ()],
        "rows": model.form.rows,
        "concurrency": options.concurrency,
    }
    model.notes = _notes(model, refusal)
    model.traffic()  # what was asked here is not a query of any attack
    return model


def _first_answer(model: RemoteModel, options: Http) -> tuple[Array, str]:
    """The answer to the probes, and the server's reason for refusing binary tensors, if it did."""
    refusal = ""
    if options.encoding == "auto":
        try:
            return _answer_probes(model, unusable=2), ""
        except RejectedError as error:
            refusal = str(error)
            model.form = model.form._replace(binary=False)
    try:
        return _answer_probes(model), refusal
    except RejectedError as error:
        raise ModelError(f"model {model.name} does not answer {PROBES} random inputs of the data's shape: {error}") from None


def _answer_probes(model: RemoteModel, *, unusable: int | None = None) -> Array:
    return np.concatenate([model.raw_answer(part, unusable=unusable) for part in torch.split(model.probes, model.form.rows)])


def _kind(output: Array) -> Answers:
    """Kind of answers: labels, probabilities or logits."""
    if output.dtype.kind in "iu" and output.size == len(output):
        return "labels"
    distribution = output.ndim == 2 and are_probabilities(torch.from_numpy(output.astype(np.float64)))
    return "probabilities" if distribution else "logits"


def _notes(model: RemoteModel, refusal: str) -> list[Remark]:
    """Remarks on the requests to the server."""
    kind, datatype = model.form.answers, model.form.slot.datatype
    notes = {
        "json": (refusal, f"the server takes no binary tensors ({refusal}): numbers travel as JSON"),
        "probabilities": (kind == "probabilities", "the server answers probabilities: their logarithm stands in for logits"),
        "labels": (kind == "labels", "the server answers labels only: confidences in the records mean nothing"),
        "rounded": (DATATYPES[datatype][1] in "iu", f"inputs are sent as {datatype}, rounded to whole numbers"),
    }
    return [Remark(code, text) for code, (applies, text) in notes.items() if applies]


def _first_values(values: Array) -> str:
    return ", ".join(f"{value:g}" for value in values.ravel()[:3].tolist()) + (", ..." if values.size > 3 else "")
