"""Requests to one server: several in flight together, asked again after a fault, each answer read before it counts.

A fault is a connection that fails or breaks off, a timeout, an HTTP status that says "not now", or an answer that cannot be read.
The wait before each further attempt doubles, or is what the server asks for (`Retry-After`), if that is longer; after an answer
that cannot be read it stays what it was at first, since the server is there. A connection that breaks off may be one that
was kept and that the server has closed meanwhile: as many as may be kept are no attempt, and the next is asked at once.

The timeout is one for a whole attempt. That of httpx2 is one for each wait and begins anew with every byte, so that a server
that sends a byte at a time would outlast it: the connections of a channel (`_Bounded`) wait no longer than the attempt may take.
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from brinell.core.errors import RequestError, UnreachableError, one_line
from brinell.core.version import VERSION
from brinell.models._protocol import AnswerError

if TYPE_CHECKING:
    import httpx2

Answer = TypeVar("Answer")

NOT_NOW = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses by which a server or its proxy says that the same request may work later."""
BARRED = frozenset({401, 403, 407})
LONGEST_WAIT = 30.0
"""Seconds; no wait before another attempt is longer."""
LEAST_MASKED = 8
"""Characters from which on a token is taken out of bodies."""
MOST_BYTES = 1 << 28
"""No answer is larger."""
PIECE = 1 << 16
"""Bytes that are sent in one go."""


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RejectedError(Exception):
    """The server answers, and will not do what it was asked, or answers what cannot be read; the text says what it says."""


class Channel:
    """The connection to one server.

    Args:
        who: the model and its address, as messages name it.
        token_env: name of the environment variable that may hold a bearer token; the token is kept nowhere else.
        timeout: seconds until an attempt is given up.
        retries: attempts after the first.
        backoff: seconds before the second attempt; each further wait is twice as long.
        concurrency: requests in flight together.
    """

    def __init__(self, who: str, token_env: str, *, timeout: float, retries: int, backoff: float, concurrency: int) -> None:
        self.who, self._token_env = who, token_env
        self._timeout, self._attempts, self._backoff, self._concurrency = timeout, 1 + retries, backoff, concurrency
        self.traffic: Counter[str] = Counter()
        """Requests that were answered, and attempts that were not, by what went wrong."""
        self._lock, self._depth = threading.Lock(), 0
        self._thread = threading.local()
        """Of the thread that asks: `until` when its attempt may last, and `stop`, set when what it asks is called off."""
        self._never = threading.Event()
        self._client: httpx2.Client | None = None
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Connections and threads, kept until the outermost session ends."""
        with self._lock:
            if not self._depth:
                self._open()
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    self._close()

    def _open(self) -> None:
        try:
            import httpx2
            import orjson  # noqa: F401
        except ModuleNotFoundError as error:
            raise RequestError(f"models behind a URL need {error.name}: pip install 'brinell[http]'") from None
        limits = httpx2.Limits(max_connections=self._concurrency)
        headers = {"User-Agent": f"brinell/{VERSION}", "Accept-Encoding": "identity"} | self._authorization()
        client: Any = httpx2.Client(timeout=self._timeout, limits=limits, headers=headers)
        for transport in {client._transport, *client._mounts.values()} - {None}:
            transport._pool._network_backend = _Bounded(transport._pool._network_backend, self._seconds_left)
        self._client, self._pool = client, ThreadPoolExecutor(self._concurrency, thread_name_prefix="brinell-http")

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            self._client.close()
        self._pool = self._client = None

    def _authorization(self) -> dict[str, str]:
        token = self._token()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise RequestError(f"what {self._token_env} holds is no bearer token: it has characters that no header may have")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def each(self, tasks: Sequence[Callable[[], Answer]]) -> list[Answer]:
        """The answers of all tasks, in their order; as many run together as there may be requests in flight.

        Each makes its own request, so the next is written while those before it wait. The first failure ends the others, and
        none of another thread's.
        """
        if self._pool is None or len(tasks) == 1:
            return [task() for task in tasks]
        stop = threading.Event()

        def run(task: Callable[[], Answer]) -> Answer:
            self._thread.stop = stop
            return task()

        futures = [self._pool.submit(run, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException as error:
            begun = [future for future in futures if not future.cancel()]
            stop.set()
            if isinstance(error, Exception):
                wait(begun)
            raise

    def ask(
        self,
        url: str,
        read: Callable[[Response], Answer],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        unusable: int | None = None,
    ) -> Answer:
        """What `read` makes of the answer to one request, a POST where it has a body.

        `read` takes a response of status 200 to the answer, or raises AnswerError, which counts as a fault; `unusable` such
        answers are enough, with no wait between them, where that is given. RejectedError: the server says no, or the last answer
        could not be read. UnreachableError: every attempt met a fault, or the server wants another token.
        """
        fault: Exception | str = ""
        attempts, readings = self._attempts, unusable or self._attempts
        for attempt in range(attempts):
            pause = self._backoff * 2**attempt
            try:
                response = self._send(url, body, headers or {})
                if response.status not in NOT_NOW:
                    answer = self._read(response, read)
                    self._count("requests")
                    return answer
                asked = response.headers.get("Retry-After", "")  # seconds, or a date, by which nobody waits here
                fault, pause = f"HTTP {response.status}", max(pause, float(asked) if asked.isdecimal() else 0.0)
            except AnswerError as error:
                fault, pause, readings = error, 0.0 if unusable else self._backoff, readings - 1
            except OSError as error:
                fault = str(error)
            self._count(fault if isinstance(fault, str) else "unusable answers")
            last = not readings or attempt + 1 == attempts
            if last or self._stopped().wait(min(pause, LONGEST_WAIT)):
                break
        if isinstance(fault, AnswerError):
            raise RejectedError(f"it answers {self._safe(fault)}") from fault
        tried = f"{attempts} attempts, {fault}" if attempts > 1 else fault
        raise UnreachableError(f"{self.who} does not answer ({tried}): see to the server, then try again")

    def _read(self, response: Response, read: Callable[[Response], Answer]) -> Answer:
        """The answer, or why there is none: a 5xx may be an accident and counts as a fault, a 4xx will not change."""
        if response.status == 200:
            return read(response)
        said = f"HTTP {response.status}{self._reason(response)}"
        if response.status in BARRED:
            hint = f"set {self._token_env} to a bearer token that it takes" if self._token_env else "give the option token_env="
            raise UnreachableError(f"{self.who} lets nobody in without the right token ({said}): {hint}, then try again")
        if response.status >= 500:
            raise AnswerError(said)
        raise RejectedError(f"it answers {said}")

    def _reason(self, response: Response) -> str:
        """What a refusal says, in one line and without the token, should the server repeat it."""
        if 300 <= response.status < 400:
            return f", go to {self._safe(response.headers.get('Location', ''))}"
        text = response.body[-2000:].decode("utf-8", "replace").strip()
        with suppress(ValueError, TypeError, KeyError):
            text = str(json.loads(response.body)["error"])
        if 'File "' in text:  # a traceback ends in what went wrong
            text = text.splitlines()[-1]
        text = " ".join(text.split())
        return "" if not text or text.startswith("<") else f", {self._safe(text)[:160]}"

    def _token(self) -> str:
        return os.environ.get(self._token_env, "") if self._token_env else ""

    def _safe(self, text: object) -> str:
        token = self._token()
        return str(text).replace(token, "***") if token else str(text)

    def _masked(self, body: bytes) -> bytes:
        """A body without the token, should the server repeat it; a token so short that numbers may hold it stays in bodies."""
        token = self._token().encode()
        return body.replace(token, b"*" * len(token)) if len(token) >= LEAST_MASKED else body

    def masked(self, value: Any) -> Any:
        """Parsed JSON without the token in any of its texts."""
        if isinstance(value, dict):
            return {self._safe(key): self.masked(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.masked(one) for one in value]
        return self._safe(value) if isinstance(value, str) else value

    def _send(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """One attempt; OSError where the connection fails."""
        for _ in range(self._concurrency):
            try:
                return self._exchange(url, body, headers)
            except ConnectionResetError as error:
                self._count(str(error))
        return self._exchange(url, body, headers)

    def _exchange(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """One request over one connection, the whole of it within the timeout; ConnectionResetError where that breaks off."""
        import httpx2

        if self._client is None or self._stopped().is_set():
            raise InterruptedError("interrupted")
        self._thread.until = time.monotonic() + self._timeout
        content, method = bytearray(), "GET" if body is None else "POST"
        try:
            with self._client.stream(method, url, content=body, headers=dict(headers)) as response:
                for part in response.iter_bytes():
                    content += part
                    if self._seconds_left() < 0:
                        raise httpx2.ReadTimeout("")
                    if len(content) > MOST_BYTES:
                        raise AnswerError(f"more than {MOST_BYTES} bytes")
            return Response(response.status_code, response.headers, self._masked(bytes(content)))
        except httpx2.TimeoutException:
            raise TimeoutError(f"no answer within {self._timeout:g} s") from None
        except httpx2.DecodingError:
            raise AnswerError("what cannot be unpacked") from None
        except httpx2.RequestError as error:
            text = one_line(error)
            broken = isinstance(error, httpx2.ReadError | httpx2.WriteError | httpx2.RemoteProtocolError)
            kind = ConnectionResetError if broken else ConnectionError
            raise kind(self._safe(text.partition("] ")[2] if text.startswith("[Errno") else text)) from None

    def _seconds_left(self) -> float:
        """Until this thread's attempt is given up."""
        return float(getattr(self._thread, "until", float("inf"))) - time.monotonic()

    def _stopped(self) -> threading.Event:
        """Set when what this thread asks about is called off."""
        stop: threading.Event = getattr(self._thread, "stop", self._never)
        return stop

    def _count(self, what: str) -> None:
        if not self._stopped().is_set():  # what was called off is no fault
            with self._lock:
                self.traffic[what] += 1


class _Bounded:
    """A backend or a connection of httpcore2 of which no wait is longer than `seconds_left`; all else is the inner one's."""

    def __init__(self, inner: Any, seconds_left: Callable[[], float]) -> None:
        self._inner, self._seconds_left = inner, seconds_left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect_tcp(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> "_Bounded":
        """A connection to a host and port."""
        return _Bounded(self._inner.connect_tcp(*args, timeout=self._bound(timeout), **kwargs), self._seconds_left)

    def start_tls(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> "_Bounded":
        """The same connection, encrypted."""
        return _Bounded(self._inner.start_tls(*args, timeout=self._bound(timeout), **kwargs), self._seconds_left)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, once something has."""
        return bytes(self._inner.read(max_bytes, self._bound(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        for start in range(0, len(buffer), PIECE):
            self._inner.write(buffer[start : start + PIECE], self._bound(timeout))

    def _bound(self, timeout: float | None) -> float:
        import httpcore2

        seconds = min(self._seconds_left(), float("inf") if timeout is None else timeout)
        if seconds <= 0:
            raise httpcore2.ReadTimeout()
        return seconds
