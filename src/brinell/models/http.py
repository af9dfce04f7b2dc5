"""`http(s)://HOST/v2/models/NAME`: a model behind a server of the Open Inference Protocol (V2),
over REST with tensors as JSON.

KServe, Triton, OpenVINO Model Server and MLServer implement the protocol. The model's metadata give
name, datatype and shape of its input; options give the rest. A bearer token is read from an
environment variable and written nowhere. Each row of a request counts as one query; repeated
requests are counted separately.
"""

import hashlib
import json
import math
import os
import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Access, Domain, Remark
from brinell.core.errors import ModelError, RequestError, SampleError, UnreachableError
from brinell.core.model import Model, ModelInfo, as_logits
from brinell.core.settings import Checked, NotNegative, Positive, Range
from brinell.core.version import VERSION
from brinell.models._answers import Kind, LogitModel, logits_of_labels, random_inputs
from brinell.models._torch_model import affine

Array = np.ndarray[Any, Any]
Layout = Literal["first", "last"]
Value = TypeVar("Value")

DATATYPES: dict[str, str] = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    f"{kind}INT{8 * size}": f"<{kind.lower() or 'i'}{size}"
    for kind in ("U", "")
    for size in (1, 2, 4, 8)
}
"""Types of numbers by their names in the protocol, as NumPy's types."""
PROBES = 4
"""Number of random inputs whose answers show the form of the output. When in doubt, the first of
them is sent again."""
NOT_NOW = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses that mean that the same request may succeed later."""
UNAUTHORISED = frozenset({401, 403, 407})
LONGEST_WAIT = 30.0
"""Longest wait before another attempt, in seconds."""


class RefusedError(Exception):
    """The server responds, but refuses the request."""


class UnusableError(RefusedError):
    """The server responds with something other than an answer of the protocol."""


class BusyError(Exception):
    """The server does not respond, or asks to come back later."""


@dataclass(frozen=True, kw_only=True)
class Http(Checked):
    """A model behind a server of the Open Inference Protocol (KServe, Triton, OpenVINO Model
    Server, MLServer).
    """

    path: str = ""
    """The model's URL, `http://HOST:PORT/v2/models/NAME` or `.../NAME/versions/VERSION`."""
    name: str = ""
    """Name in reports; by default the name in the URL."""
    token_env: str = "BRINELL_TOKEN"
    """Environment variable that holds a bearer token, if the server requires one; its name
    begins with BRINELL_."""
    answers: Kind | Literal["labels"] | None = None
    """Kind of the answers: labels, or scores such as logits or probabilities; by default
    inferred from the answers."""
    classes: Annotated[int, Range("[2, 100000]")] | None = None
    """Number of classes; required if the server answers labels only, otherwise checked."""
    input: str = ""
    """Name of the input; by default the only one in the model's metadata."""
    output: str = ""
    """Name of the output; by default the only one in an answer."""
    layout: Layout = "first"
    """Position of the channels in the server's input: first (NCHW) or last (NHWC)."""
    mean: tuple[float, ...] = ()
    """Values to subtract from each channel, joined by `+`; a server of UINT8 gets 0 to 255, and
    they are in these units."""
    std: tuple[float, ...] = ()
    """Values by which to divide each channel after that, joined by `+`: mean=0.5&std=0.5 sends
    -1 to 1 for 0 to 1."""
    rows: Annotated[int, Range("[1, 100000]")] = 64
    """Maximum number of inputs per request."""
    concurrency: Annotated[int, Range("[1, 256]")] = 4
    """Maximum number of requests in flight."""
    timeout: Positive = 30.0
    """Seconds without a byte after which an attempt is given up."""
    retries: Annotated[int, Range("[0, 1000]")] = 5
    """Attempts after the first before the server counts as unreachable."""
    backoff: NotNegative = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""

    def __post_init__(self) -> None:
        """Refuse a variable whose value must not be sent to a server."""
        super().__post_init__()
        if self.token_env and not self.token_env.startswith("BRINELL_"):
            raise ValueError(
                f"token_env is {self.token_env!r}; only variables whose names "
                "begin with BRINELL_ are sent anywhere: put the "
                "token into one"
            )

    def __call__(self, domain: Domain) -> Model:
        """Read the model's metadata, and see the form of its answers by a few queries."""
        parts = urlsplit(self.path)
        # A version and the ending of a request are parts of addresses that people copy.
        match = re.fullmatch(
            r"(.*?/v2/models/([^/]+)(?:/versions/[^/]+)?)(?:/infer)?/*", parts.path
        )
        if parts.scheme not in ("http", "https") or not parts.hostname or match is None:
            raise RequestError(
                f"{self.path!r} is no model's URL: write http://HOST:PORT/v2/models/NAME"
            )
        if "@" in parts.netloc:
            raise RequestError(
                "a URL with a password is kept in records: leave it out, and put "
                "a bearer token into BRINELL_TOKEN"
            )

        model = RemoteModel(
            self,
            domain,
            Server(self, f"{parts.scheme}://{parts.netloc}{match[1]}"),
            self.name or match[2],
        )
        return model if self.answers in (None, "labels") else LogitModel(model, str(self.answers))


class Server:
    """The connection to one server, on which requests are repeated after a fault."""

    def __init__(self, options: Http, url: str) -> None:
        try:
            import httpx2
            import orjson  # noqa: F401
            import tenacity
        except ImportError as error:
            raise RequestError(
                f"{error.name} is not installed, which models behind a server "
                "need: pip install 'brinell[http]'"
            ) from None
        self.url, self.who = (
            url,
            f"model {url.partition('/v2/models/')[2]} at {urlsplit(url).netloc}",
        )

        self.counts: Counter[str] = Counter()
        """Number of answered requests, and of failed attempts by cause."""
        self.interrupted, self._lock = threading.Event(), threading.Lock()
        self._token_env, self._attempts = options.token_env, 1 + options.retries
        self._token = os.environ.get(options.token_env, "")
        if not self._token.isascii() or not self._token.isprintable() or " " in self._token:
            raise RequestError(
                f"{options.token_env} holds no valid bearer token: it has "
                "characters that a header must not contain"
            )

        headers = {"User-Agent": f"brinell/{VERSION}"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        self._client = httpx2.Client(timeout=options.timeout, headers=headers)
        # Waits double, and an interrupted run ends them.
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((BusyError, UnusableError)),
            stop=tenacity.stop_after_attempt(self._attempts)
            | tenacity.stop_when_event_set(self.interrupted),
            wait=tenacity.wait_exponential(options.backoff, LONGEST_WAIT),
            sleep=tenacity.sleep_using_event(self.interrupted),
            after=lambda state: self._count(str(state.outcome.exception())),  # type: ignore[union-attr]
            reraise=True,
        )
        weakref.finalize(self, self._client.close)

    def ask(self, place: str, read: Callable[[Any], Value], body: bytes | None = None) -> Value:
        """The result of `read` for the JSON that the server answers, to a GET or a POST."""
        try:
            value: Value = self._retrying(self._attempt, place, read, body)
        except BusyError as error:
            attempts = f"{self._attempts} attempts, " if self._attempts > 1 else ""
            raise UnreachableError(
                f"{self.who} does not answer ({attempts}{error}): check the server, then try again"
            ) from None
        self._count("requests")
        return value

    def _count(self, event: str) -> None:
        """Count an event; several threads ask at once."""
        with self._lock:
            self.counts[event] += 1

    def _attempt(self, place: str, read: Callable[[Any], Value], body: bytes | None) -> Value:
        """One attempt of `ask`, whose failures are sorted by whether another may help."""
        import httpx2

        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            response = self._client.request(
                "GET" if body is None else "POST", self.url + place, content=body, headers=headers
            )
        except httpx2.TimeoutException as error:
            raise BusyError(f"no answer in time ({type(error).__name__})") from None
        except httpx2.RequestError as error:
            raise BusyError(f"{self._masked(str(error)):.160}" or type(error).__name__) from None
        status = f"HTTP {response.status_code}"
        if response.status_code in NOT_NOW:
            raise BusyError(status)
        try:
            content = json.loads(response.content)
        except (ValueError, RecursionError):
            content = None
        if response.status_code != 200:
            reason = (
                content["error"]
                if isinstance(content, dict) and "error" in content
                else response.text
            )
            raise self._failure(
                response.status_code, f"{status} {self._masked(str(reason)):.160}".strip()
            )
        # Metadata may repeat the token of the request, which no record may hold.
        try:
            return read(json.loads(self._masked(json.dumps(content))) if body is None else content)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            text = self._masked(str(error) if type(error) is ValueError else response.text)
            raise UnusableError(
                f"it answers in another way than the protocol ({text:.160})"
            ) from None

    def _failure(self, code: int, text: str) -> UnreachableError | RefusedError:
        """The error behind a status other than 200: no token, a fault there, or a refusal."""
        if code in UNAUTHORISED:
            remedy = (
                f"set {self._token_env or 'the variable of token_env='} to a "
                "bearer token that it accepts"
            )
            return UnreachableError(
                f"{self.who} rejects the request without a valid token "
                f"({text}): {remedy}, then try again"
            )
        return UnusableError(text) if code >= 500 else RefusedError(f"it answers {text}")

    def _masked(self, text: str) -> str:
        """A text of the server's in one line, with the token masked."""
        text = " ".join(text.split())
        return text.replace(self._token, "***") if self._token else text


class ServedModel(NamedTuple):
    """The facts about a model that its metadata and the options state."""

    input: str
    datatype: str
    shape: tuple[int, ...]
    """Shape in which one input is sent."""
    batch: int | None
    """The only number of inputs that the server takes at once, if there is one."""
    platform: str | None


class RemoteModel:
    """A model on another machine: scores or labels, never gradients.

    Inputs are sent in several requests at once. If the server fails on an input, or answers it with
    NaN, but still answers others, SampleError is raised; if it answers none, UnreachableError.
    """

    def __init__(self, options: Http, domain: Domain, server: Server, name: str) -> None:
        self.domain, self.name, self._server, self._options = domain, name, server, options
        try:
            # The metadata stand at the address of the model itself.
            self._facts = server.ask("", lambda metadata: _facts(options, domain, metadata))
        except RefusedError as error:
            remedy = "check the URL: it ends in /v2/models/NAME, and the model is loaded"
            raise RequestError(
                f"{server.who} has no metadata of the Open Inference Protocol ({error}): {remedy}"
            ) from None

        bounds = (0.0, 255.0) if self._facts.datatype == "UINT8" and not domain.columns else None
        parameters = {
            "mean": options.mean or None,
            "std": options.std or None,
            "axis": -len(domain.shape),
        }
        self._scale, self._shift = affine(domain, parameters, bounds)
        self._rows, self._inputs = self._facts.batch or options.rows, 0
        self._pool = ThreadPoolExecutor(options.concurrency, thread_name_prefix="brinell-http")
        weakref.finalize(self, self._pool.shutdown, wait=False)

        self.probes = domain.round(random_inputs(domain, PROBES))
        # A category between two others is no input of a table.
        codes = [index for index, column in enumerate(domain.columns) if column.values]
        self.probes[:, codes] = self.probes[:, codes].round()
        """(PROBES, *shape): inputs whose answers show the form of the output."""
        self._labels, self.classes = self._read_form()
        self.access = Access.LABELS if self._labels else Access.SCORES
        self.info = ModelInfo(
            server=self,
            architecture=self._facts.platform,
            answers="one-hot" if self._labels else None,
        )
        self.served: dict[str, Any] = {
            "answers": "labels" if self._labels else "scores",
            "input": {
                "name": self._facts.input,
                "datatype": self._facts.datatype,
                "shape": list(self._facts.shape),
            },
            "rows": self._rows,
        }
        """ServedModel about the server for the manifest."""
        self.traffic()  # what was asked here is not a query of any attack

    def _read_form(self) -> tuple[bool, int]:
        """True if the probes' answers are labels, and the number of scores or classes."""
        answers, classes = self._options.answers, self._options.classes
        try:
            # The probes are few, and a server may take fewer at once.
            output = np.concatenate(
                [self._answer(part) for part in torch.split(self.probes, self._rows)]
            )
            labels = answers == "labels" or (
                answers is None and output.dtype.kind in "iu" and output.size == len(output)
            )
            if labels and classes is None:
                raise RequestError(
                    f"model {self.name} answers labels: say how many classes "
                    "there are with the option classes="
                )
            if output.ndim != 2 and not labels:
                raise RefusedError(
                    f"it answers {_first_values(output)} of shape {output.shape}, "
                    "not a row of scores for each"
                )

            classes = classes or int(output.shape[1])
            self._convert(output, labels, classes)
        except RefusedError as error:
            remedy = (
                "name what it answers by the options answers= and classes=, such as "
                "answers=labels&classes=10"
            )
            raise ModelError(
                f"model {self.name} is no classifier of the data's random inputs: {error}: {remedy}"
            ) from None
        return labels, classes

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape); those of a server of labels are certain.

        Raises:
            SampleError: the server fails on some of these inputs, but still answers the first
                probe.
            UnreachableError: the server does not answer, or no longer gives usable answers.
        """
        self._server.interrupted.clear()
        try:
            logits = list(self._pool.map(self._logits, torch.split(x.detach().cpu(), self._rows)))
        except RefusedError as error:
            # An input is to blame if the server still answers one that it answered before.
            try:
                self._logits(self.probes[:1])
            except RefusedError:
                raise UnreachableError(
                    f"{self._server.who} no longer works: {error}: check the server, then try again"
                ) from None
            raise SampleError(f"model {self.name} fails on an input: {error}") from None
        except KeyboardInterrupt:
            self._server.interrupted.set()
            raise

        self._inputs += len(x)
        return torch.cat(logits).to(x.device)

    def digest(self) -> str:
        """Hash of the address, the model's metadata, and the form of the requests.

        The weights cannot be read from here. Asking for the first answers again checks that they
        stay the same.
        """
        # Names and settings of the connection do not change answers.
        options = replace(
            self._options,
            path=self._server.url,
            name="",
            rows=1,
            concurrency=1,
            timeout=1,
            retries=0,
            backoff=0,
        )

        content = [repr(options), self.domain.text(), self.info.architecture, self.served]
        return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()

    def remarks(self) -> Sequence[Remark]:
        """Remarks for the reader on the form of the requests."""
        labels = Remark(
            "labels", "the server answers labels only: confidences in the records mean nothing"
        )
        rounded = Remark(
            "rounded", f"inputs are sent as {self._facts.datatype}, rounded to whole numbers"
        )
        return [labels] * self._labels + [rounded] * _is_whole(self._facts.datatype)

    def traffic(self) -> dict[str, int]:
        """Counts since the last call: inputs and requests answered, failed attempts by cause."""
        counts = dict(self._server.counts) | ({"inputs": self._inputs} if self._inputs else {})
        self._server.counts.clear()
        self._inputs = 0
        return counts

    def _logits(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of the inputs of one request."""
        return self._convert(self._answer(x), self._labels, self.classes)

    def _answer(self, x: Tensor) -> Array:
        """The output (n, ...) of the server for inputs of at most one request."""
        # Writes a float32 in the few digits that it needs: half as long, and three times as fast,
        # as Python does.
        import orjson

        n, facts = len(x), self._facts
        values = x * self._scale + self._shift
        values = values.round() if _is_whole(facts.datatype) else values
        values = values.movedim(1, -1) if self._options.layout == "last" else values
        if facts.batch is not None:
            values = torch.cat([values, values[-1:].expand(facts.batch - n, *values.shape[1:])])
        array = np.ascontiguousarray(
            values.reshape(len(values), *facts.shape).numpy(), DATATYPES[facts.datatype]
        )

        head = {
            "name": facts.input,
            "shape": list(array.shape),
            "datatype": facts.datatype,
            "data": array.ravel(),
        }
        outputs = {"outputs": [{"name": self._options.output}]} if self._options.output else {}
        body = orjson.dumps({"inputs": [head]} | outputs, option=orjson.OPT_SERIALIZE_NUMPY)
        return self._server.ask(
            "/infer", lambda content: read_output(content, self._options.output, len(array)), body
        )[:n]

    def _convert(self, output: Array, labels: bool, classes: int) -> Tensor:
        """Logits of an output, after a check that it holds labels or scores of so many classes."""
        answer = torch.from_numpy(output.astype(np.float64))
        if labels:
            # Labels come as numbers in a row or in a column.
            rows = answer.flatten(1) if answer.ndim > 1 else answer[:, None]
            if rows.shape[1] != 1 or not bool(
                ((rows >= 0) & (rows < classes) & (rows == rows.floor())).all()
            ):
                raise RefusedError(
                    f"it answers {_first_values(output)}, no labels from 0 to {classes - 1}"
                )
            return logits_of_labels(rows[:, 0], classes)

        if answer.shape[1:] != (classes,):
            raise RefusedError(
                f"it answers shape {tuple(answer.shape)}, not {(len(answer), classes)}"
            )
        if not bool(answer.isfinite().all()):
            raise RefusedError("it answers NaN or infinity")
        return as_logits(answer)


def _facts(options: Http, domain: Domain, metadata: Any) -> ServedModel:
    """The input and the platform in a model's metadata; the options have precedence."""
    entries = {str(entry["name"]): entry for entry in metadata.get("inputs") or ()}
    name = _input_name(options, entries)
    datatype = str(entries.get(name, {}).get("datatype", "FP32"))
    if datatype not in DATATYPES:
        raise RequestError(
            f"input {name} has datatype {datatype}, and only numbers are sent: "
            f"{', '.join(DATATYPES)}"
        )
    # The axes that the server states, -1 for any length; the first is that of the samples.
    shape = [int(side) for side in entries.get(name, {}).get("shape") or (-1,)]

    return ServedModel(
        name,
        datatype,
        _sent_shape(options, domain, shape[1:]),
        shape[0] if shape[0] > 0 else None,
        str(metadata.get("platform") or "") or None,
    )


def _input_name(options: Http, entries: Mapping[str, Any]) -> str:
    """The input that is sent: the one that was named, or the only one."""
    name = options.input or (next(iter(entries)) if len(entries) == 1 else "")
    if not name or (entries and name not in entries):
        raise RequestError(
            "the model has the inputs "
            f"{', '.join(entries) or 'of unknown names'}: name one by the option "
            "input=NAME"
        )
    return name


def _sent_shape(options: Http, domain: Domain, sides: Sequence[int]) -> tuple[int, ...]:
    """The axes of one input as the server takes it, which states these sides, -1 for any length."""
    sent = domain.shape if options.layout == "first" else (*domain.shape[1:], domain.shape[0])
    is_same_count = len(sides) == len(sent)
    if not sides or (
        is_same_count
        and all(side in (-1, length) for side, length in zip(sides, sent, strict=True))
    ):
        return sent

    # As many values on fewer or more axes: the server takes them flattened.
    if is_same_count or math.prod(sides) != math.prod(sent):
        raise RequestError(
            f"the server takes inputs of shape {tuple(sides)}, and the data, "
            f"with layout={options.layout}, have {sent}: give "
            "the other layout=, or data of its shape"
        )
    return tuple(sides)


def read_output(content: Any, name: str, n: int) -> Array:
    """The output tensor of `n` rows in the content of a response; an empty name takes
    the only one.
    """
    tensors = {str(tensor["name"]): tensor for tensor in content["outputs"]}
    if name not in tensors and (name or len(tensors) != 1):
        raise ValueError(
            f"{len(tensors)} outputs ({', '.join(tensors)}): name one with the option output="
        )
    tensor = tensors.get(name) or next(iter(tensors.values()))

    # Values that do not fit become infinity, which is refused later.
    with np.errstate(over="ignore"):
        values: Array = np.array(tensor["data"], DATATYPES[tensor["datatype"]]).reshape(
            tensor["shape"]
        )
    if values.ndim == 0 or len(values) != n:
        raise ValueError(f"shape {values.shape} to {n} inputs")
    return values


def _is_whole(datatype: str) -> bool:
    """True for a datatype of whole numbers."""
    return DATATYPES[datatype][1] in "iu"


def _first_values(values: Array) -> str:
    """The first values of an array, for messages."""
    return ", ".join(f"{value:g}" for value in values.ravel()[:3].tolist()) + (
        ", ..." if values.size > 3 else ""
    )
