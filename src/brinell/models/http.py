"""`http(s)://HOST/v2/models/NAME`: a model behind a server of the Open Inference Protocol, over REST.

KServe, Triton, OpenVINO Model Server and MLServer speak it. The server's metadata say what the model takes; options say what they
leave open. Numbers travel as binary tensors where the server takes them, and as JSON where it says no. A bearer token is read
from an environment variable and written nowhere. One row of a request is one query; repeated requests are counted apart.
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
from brinell.models._answers import are_probabilities, of_labels, of_probabilities, random_inputs
from brinell.models._channel import Channel, RejectedError, Response
from brinell.models._protocol import DATATYPES, AnswerError, Slot, answer, fits, parse, request, slots
from brinell.models._torch_model import affine

__all__ = ["Http"]

Array = np.ndarray[Any, Any]
Answers = Literal["auto", "logits", "probabilities", "labels"]
Layout = Literal["auto", "first", "last"]
Encoding = Literal["auto", "binary", "json"]
PROBES = 4
"""Random inputs by which the server's answers are learned; the first is asked about again where it is in doubt."""


@dataclass(frozen=True, kw_only=True)
class Http:
    """A model behind a server of the Open Inference Protocol (KServe, Triton, OpenVINO Model Server, MLServer)."""

    path: str = ""
    """The model's URL, `http://HOST:PORT/v2/models/NAME` or `.../NAME/versions/VERSION`."""
    name: Plain = ""
    """How reports call it; by default the name in the URL."""
    token_env: str = "BRINELL_TOKEN"
    """Environment variable that holds a bearer token, if the server wants one; its name begins with BRINELL_."""
    answers: Answers = "auto"
    """What the output holds: logits, probabilities (their logarithm is taken) or labels; auto learns it from a few answers."""
    classes: int | None = None
    """How many classes there are; needed where the server answers labels only, checked otherwise."""
    input: str = ""
    """Name of the input; needed where the server does not say."""
    output: str = ""
    """Name of the output; needed where there are several."""
    datatype: str = ""
    """Of the input, FP32 or UINT8 for example; by default what the server says, or else FP32."""
    layout: Layout = "auto"
    """Where the server wants the channels: first (NCHW) or last (NHWC); auto goes by the shape that it names."""
    low: float | None = None
    """What the smallest value of the data becomes; by default 0 for UINT8, and itself otherwise."""
    high: float | None = None
    """What the largest value of the data becomes; by default 255 for UINT8, and itself otherwise."""
    mean: tuple[float, ...] = ()
    """Subtracted from each channel after that, joined by `+`."""
    std: tuple[float, ...] = ()
    """Each channel is divided by this after that, joined by `+`."""
    encoding: Encoding = "auto"
    """Of tensors: binary, json, or auto, which tries binary first."""
    rows: int = 64
    """Inputs per request, at most."""
    concurrency: int = 4
    """Requests in flight together, at most."""
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
        """Read the model's metadata, settle what is open by a few queries.

        Raises:
            RequestError: a URL of another form, no such model, options that are needed or do not fit, httpx2 not installed.
            ModelError: answers that no classifier of this protocol gives.
            UnreachableError: the server does not answer, or only with another token.
        """
        url, name = _address(self.path)
        name = self.name or name
        who = f"model {name} at {urlsplit(url).netloc}"
        how = {"timeout": self.timeout, "backoff": self.backoff}
        channel = Channel(who, self.token_env, retries=self.retries, concurrency=self.concurrency, **how)
        with channel.session():
            try:
                metadata = channel.masked(channel.ask(url, lambda response: parse(response.body)))
                form = _form(self, domain, metadata)
            except (RejectedError, AnswerError) as error:
                hint = "check the URL: it ends in /v2/models/NAME, and the model is loaded"
                raise RequestError(f"{who} has no metadata of the Open Inference Protocol ({error}): {hint}") from None
            return _learn(RemoteModel(domain, name=name, url=url, channel=channel, form=form), self, metadata)


class Form(NamedTuple):
    """How inputs become requests, and answers logits."""

    slot: Slot
    """The server's input; its shape is that of one input, without the axis of the batch."""
    output: str
    layout: Layout
    scale: Tensor
    shift: Tensor
    rows: int
    """Inputs per request at most."""
    exactly: bool
    """Whether the server takes requests of that many inputs only."""
    binary: bool = True
    answers: Answers = "auto"
    classes: int = 0


class RemoteModel:
    """A model on another machine: scores or labels, never gradients.

    Inputs go out in several requests at once. An input that the server refuses, or answers with NaN, raises SampleError while
    the server answers others; where it does not, UnreachableError.
    """

    def __init__(self, domain: Domain, *, name: str, url: str, channel: Channel, form: Form) -> None:
        self.domain, self.name, self.url, self.form = domain, name, url, form
        self._channel = channel
        self.info = ModelInfo(session=self.session, server=self)
        self.served: dict[str, Any] = {}
        """What was learned of the server, for the manifest."""
        self.notes: list[Remark] = []
        self._shown: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.probes = domain.round(random_inputs(domain, PROBES))
        codes = [at for at, column in enumerate(domain.columns) if column.values]
        self.probes[:, codes] = self.probes[:, codes].round()
        """(PROBES, *shape): the inputs that the answers were learned from."""

    @property
    def access(self) -> Access:
        """Labels, or scores."""
        return Access.LABELS if self.form.answers == "labels" else Access.SCORES

    @property
    def classes(self) -> int:
        """How many classes the server distinguishes."""
        return self.form.classes

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits; one that gives labels only is certain of each.

        Raises:
            SampleError: the server fails on some of these inputs, and on the input that it answered first it does not.
            UnreachableError: it does not answer, or no longer sensibly.
        """
        values = x.detach().cpu()
        requests = -(-len(values) // self.form.rows)
        parts = torch.split(values, self.form.rows) if self.form.exactly else torch.tensor_split(values, requests)
        with self.session():
            try:
                found = self._channel.each([partial(self.logits, part) for part in parts])
            except RejectedError as error:
                self._suspect(error)
                raise SampleError(f"model {self.name} fails on an input: {error}") from None
        with self._lock:
            self._shown["inputs"] += len(x)
        return torch.cat(found).to(x.device)

    @contextmanager
    def session(self, device: torch.device | str | None = None) -> Iterator[None]:
        """Connections are kept until the end; outside of a session each `predict` makes its own."""
        with self._channel.session():
            yield

    def digest(self) -> str:
        """Hash of the address, of what the server says of the model, and of how it is asked.

        The weights cannot be seen from here: that they stay the same is checked by asking for the first answers again.
        """
        form = self.form
        how = [form.slot, form.output, form.layout, form.scale.tolist(), form.shift.tolist(), form.answers, form.classes]
        told = [self.url, self.domain.text(), self.info.architecture, self.served["versions"], *how]
        return hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest()

    def remarks(self) -> Sequence[Remark]:
        """What a reader should know of how the server was asked."""
        return self.notes

    def traffic(self) -> dict[str, int]:
        """Since the last call of this: inputs answered, requests answered, and attempts that were not, by what went wrong."""
        told = self._shown + self._channel.traffic
        self._shown.clear()
        self._channel.traffic.clear()
        return dict(told)

    def raw(self, x: Tensor, *, unusable: int | None = None) -> Array:
        """The server's answer to one request, as it is; arguments and errors as of `Channel.ask`."""
        slot, n = self.form.slot, len(x)
        values = x * self.form.scale + self.form.shift
        if DATATYPES[slot.datatype][1] in "iu":
            values = values.round()
        if self.form.layout == "last":
            values = values.movedim(1, -1)
        if self.form.exactly and n < self.form.rows:
            values = torch.cat([values, values[-1:].expand(self.form.rows - n, *values.shape[1:])])
        array = values.reshape(len(values), *slot.shape).numpy()
        body, headers = request(slot, array, binary=self.form.binary, output=self.form.output)

        def read(response: Response) -> Array:
            given: Array = answer(response.body, response.headers, self.form.output)
            if given.ndim == 0 or len(given) != len(array):
                raise AnswerError(f"shape {given.shape} to {len(array)} inputs")
            return given[:n]

        return self._channel.ask(f"{self.url}/infer", read, body, headers, unusable=unusable)

    def logits(self, x: Tensor) -> Tensor:
        """(n, classes) float32 by one request; n is at most what one request may hold.

        Errors are those of `Channel.ask`; RejectedError too for answers that no class follows from.
        """
        given, classes = torch.from_numpy(self.raw(x).astype(np.float64)), self.form.classes
        if self.form.answers == "labels":
            labels = given.flatten(1) if given.ndim > 1 else given[:, None]
            if labels.shape[1] != 1 or not bool(((labels >= 0) & (labels < classes) & (labels == labels.floor())).all()):
                raise RejectedError(f"it answers {_some(given.numpy())}, no labels from 0 to {classes - 1}")
            return of_labels(labels[:, 0], classes)
        if given.shape != (len(x), classes):
            raise RejectedError(f"it answers shape {tuple(given.shape)}, not {(len(x), classes)}")
        if not bool(given.isfinite().all()):
            raise RejectedError("it answers NaN or infinity")
        return of_probabilities(given) if self.form.answers == "probabilities" else given.float()

    def _suspect(self, error: RejectedError) -> None:
        """Ask about an input that the server has answered before: whether it fails on inputs, or on everything."""
        try:
            self.logits(self.probes[:1])
        except RejectedError:
            raise UnreachableError(f"{self._channel.who} no longer works: {error}: see to the server, then try again") from None


def _address(path: str) -> tuple[str, str]:
    """The model's URL without what follows it, and its name."""
    parts = urlsplit(path)
    match = re.fullmatch(r"(.*?/v2/models/([^/]+)(?:/versions/[^/]+)?)(?:/infer)?/*", parts.path)
    if parts.scheme not in ("http", "https") or not parts.hostname or match is None:
        raise RequestError(f"{path!r} is no model's URL: write http://HOST:PORT/v2/models/NAME")
    if "@" in parts.netloc:
        raise RequestError("a URL with a password is kept in records: leave it out, and put a bearer token into BRINELL_TOKEN")
    return f"{parts.scheme}://{parts.netloc}{match[1]}", match[2]


def _form(options: Http, domain: Domain, metadata: dict[str, Any]) -> Form:
    """How this model is to be asked, as far as its metadata and the options tell."""
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
    along = {"mean": options.mean or None, "std": options.std or None, "axis": -len(domain.shape)}
    scale, shift = affine(domain, along if options.mean or options.std else {}, bounds)
    return Form(
        slot=replace(slot, shape=shape),
        output=options.output,
        layout=layout,
        scale=scale,
        shift=shift,
        rows=batch if batch > 0 else options.rows,
        exactly=batch > 0,
        binary=options.encoding != "json",
        classes=options.classes or 0,
    )


def _slot(options: Http, metadata: dict[str, Any]) -> Slot:
    listed = slots(metadata, "inputs")
    chosen = [one for one in listed if options.input in ("", one.name)]
    if not listed:
        if not options.input:
            raise RequestError("the server does not say what the model's input is called: give the option input=NAME")
        return Slot(options.input, options.datatype or "FP32", ())
    if len(chosen) != 1:
        names = ", ".join(one.name for one in listed)
        what = f"takes {len(listed)} inputs ({names}), and data fill one" if len(listed) > 1 else f"has input {names}"
        raise RequestError(f"the model {what}: name it with the option input=, or serve a model of one input")
    return replace(chosen[0], datatype=options.datatype or chosen[0].datatype)


def _arrangement(slot: Slot, domain: Domain, layout: Layout) -> tuple[Layout, tuple[int, ...]]:
    """Where the channels go, and the shape in which one input is sent: one that fits what the server takes, or one row."""
    wanted, (channels, *rest) = slot.shape[1:], domain.shape
    ways: dict[Layout, tuple[int, ...]] = {"first": domain.shape, "last": (*rest, channels)}
    ways = ways if layout == "auto" else {layout: ways[layout]}
    shapes = [*ways.values(), *([tuple(rest)] if channels == 1 else []), (math.prod(domain.shape),)]
    fitting = [shape for shape in shapes if fits(wanted, shape)] if slot.shape else shapes
    if not fitting:
        raise RequestError(
            f"the server takes inputs of shape {wanted}, and the data are {domain.kind}s of shape {domain.shape}: "
            "give it data of its shape"
        )
    if layout == "auto":
        named = [way for way, shape in ways.items() if fits(wanted, shape)]
        if channels > 1 and rest and len(named) != 1:
            raise RequestError(
                f"the server does not say whether it takes the channels of {domain.shape} first or last: give the option "
                "layout=first or layout=last"
            )
        layout = named[0] if channels > 1 and rest else "first"
    return layout, fitting[0]


def _learn(model: RemoteModel, options: Http, metadata: dict[str, Any]) -> RemoteModel:
    """Settle encoding, kind of answers and number of classes by the answers to a few inputs."""
    given, refusal = _first_answer(model, options)
    kind = options.answers if options.answers != "auto" else _kind(given)
    classes = options.classes or 0 if kind == "labels" else given.shape[-1]
    if kind == "labels" and not classes:
        raise RequestError(f"model {model.name} answers labels: say how many classes there are with the option classes=")
    if kind != "labels" and (given.ndim != 2 or classes < 2):
        what = f"model {model.name} answers {_some(given)} of shape {given.shape}, not one number per class"
        raise ModelError(f"{what}: if these are labels, give the options answers=labels&classes=")
    if kind != "labels" and options.classes not in (None, classes):
        raise ModelError(f"model {model.name} answers {classes} classes, and classes={options.classes} was given: correct either")
    model.form = model.form._replace(answers=kind, classes=classes)
    try:
        for part in torch.split(model.probes, model.form.rows):
            model.logits(part)
    except RejectedError as error:
        raise ModelError(f"model {model.name} answers what cannot be judged: {error}") from None
    slot = model.form.slot
    told = "one-hot" if kind == "labels" else kind
    model.info = replace(model.info, architecture=str(metadata.get("platform") or "") or None, answers=told)
    model.served = {
        "encoding": "binary" if model.form.binary else "json",
        "answers": kind,
        "input": {"name": slot.name, "datatype": slot.datatype, "shape": list(slot.shape), "layout": model.form.layout},
        "versions": [str(one) for one in metadata.get("versions") or ()],
        "rows": model.form.rows,
        "concurrency": options.concurrency,
    }
    model.notes = _notes(model, refusal)
    model.traffic()  # what was asked here is not a query of any attack
    return model


def _first_answer(model: RemoteModel, options: Http) -> tuple[Array, str]:
    """The answer to the probes, and why the server would not have them as binary tensors."""
    refusal = ""
    if options.encoding == "auto":
        try:
            return _all(model, unusable=2), ""
        except RejectedError as error:
            refusal = str(error)
            model.form = model.form._replace(binary=False)
    try:
        return _all(model), refusal
    except RejectedError as error:
        raise ModelError(f"model {model.name} does not answer {PROBES} random inputs of the data's shape: {error}") from None


def _all(model: RemoteModel, *, unusable: int | None = None) -> Array:
    return np.concatenate([model.raw(part, unusable=unusable) for part in torch.split(model.probes, model.form.rows)])


def _kind(given: Array) -> Answers:
    if given.dtype.kind in "iu" and given.size == len(given):
        return "labels"
    distribution = given.ndim == 2 and are_probabilities(torch.from_numpy(given.astype(np.float64)))
    return "probabilities" if distribution else "logits"


def _notes(model: RemoteModel, refusal: str) -> list[Remark]:
    kind, datatype = model.form.answers, model.form.slot.datatype
    notes = {
        "json": (refusal, f"the server takes no binary tensors ({refusal}): numbers travel as JSON"),
        "probabilities": (kind == "probabilities", "the server answers probabilities: their logarithm stands in for logits"),
        "labels": (kind == "labels", "the server answers labels only: confidences in the records mean nothing"),
        "rounded": (DATATYPES[datatype][1] in "iu", f"inputs are sent as {datatype}, rounded to whole numbers"),
    }
    return [Remark(code, text) for code, (holds, text) in notes.items() if holds]


def _some(values: Array) -> str:
    return ", ".join(f"{value:g}" for value in values.ravel()[:3].tolist()) + (", ..." if values.size > 3 else "")
