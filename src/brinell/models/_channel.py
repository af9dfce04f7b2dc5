"""Requests to one server: several in flight at once, repeated after a fault, each response parsed before it counts.

A fault is a connection that fails or breaks off, a timeout, an HTTP status that says "not now", or a response that cannot be
parsed. The wait before each further attempt doubles; a longer `Retry-After` of the server takes precedence. After a response
that cannot be parsed the wait stays at its first value, since the server is up. If a kept-alive connection breaks off, the
server may have closed it while it was idle. As many such failures as there are kept connections do not count as attempts, and
the request is repeated at once.

The timeout limits a whole attempt. In httpx2 a timeout limits each wait and restarts with every byte, so a server that sends
one byte at a time would exceed it. The connections of a channel (`_Bounded`) therefore wait no longer than the rest of the
attempt.
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
"""Statuses that mean that the same request may succeed later."""
UNAUTHORISED = frozenset({401, 403, 407})
LONGEST_WAIT = 30.0
"""Longest wait before another attempt, in seconds."""
LEAST_MASKED = 8
"""Minimum length of a token, in characters, that is masked in bodies."""
MOST_BYTES = 1 << 28
"""Maximum size of a response in bytes."""
PIECE = 1 << 16
"""Bytes sent in one write."""


class Response(NamedTuple):
    """Status, headers and body of a response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RejectedError(Exception):
    """The server responds, but refuses the request or sends a response that cannot be parsed; the text gives its message."""


class Channel:
    """The connection to one server.

    Args:
        subject: the model and its address, as messages name it.
        token_env: name of the environment variable that may hold a bearer token; the token is stored nowhere else.
        timeout: seconds until an attempt is given up.
        retries: attempts after the first.
        backoff: seconds before the second attempt; each further wait is twice as long.
        concurrency: maximum number of requests in flight.
    """

    def __init__(self, subject: str, token_env: str, *, timeout: float, retries: int, backoff: float, concurrency: int) -> None:
        self.who, self._token_env = subject, token_env
        self._timeout, self._attempts, self._backoff, self._concurrency = timeout, 1 + retries, backoff, concurrency
        self.traffic: Counter[str] = Counter()
        """Number of answered requests, and of failed attempts by cause."""
        self._lock, self._depth = threading.Lock(), 0
        self._thread = threading.local()
        """State of the calling thread: `until`, the deadline of its attempt, and `stop`, an event that is set when its task is
        cancelled.
        """
        self._not_cancelled = threading.Event()
        self._client: httpx2.Client | None = None
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep connections and threads open until the outermost session ends."""
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
        """The header with the token; empty without a token."""
        token = self._token()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise RequestError(f"{self._token_env} holds no valid bearer token: it has characters that a header must not contain")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def ask_all(self, tasks: Sequence[Callable[[], Answer]]) -> list[Answer]:
        """The answers of all tasks, in their order; at most `concurrency` tasks run at once.

        Each task sends one request, so a request is written while earlier ones wait for their response. The first failure
        cancels the other tasks of this call, and no tasks of other threads.
        """
        if self._pool is None or len(tasks) == 1:
            return [task() for task in tasks]
        stop = threading.Event()

        def run(task: Callable[[], Answer]) -> Answer:
            """Run a task that can be cancelled."""
            self._thread.stop = stop
            return task()

        futures = [self._pool.submit(run, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BaseException as error:
            running = [future for future in futures if not future.cancel()]
            stop.set()
            if isinstance(error, Exception):
                wait(running)
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
        """The parsed response to one request, which is a POST if it has a body.

        Args:
            url: address of the request.
            read: parses a response of status 200; it may raise AnswerError, which counts as a fault.
            body: body of a POST; None sends a GET.
            headers: additional headers.
            unusable: number of responses that cannot be parsed after which the request fails, with no wait between them; by
                default the number of attempts.

        Raises:
            RejectedError: the server refuses the request, or its last response cannot be parsed.
            UnreachableError: every attempt met a fault, or the server does not accept the token.
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
                retry_after = response.headers.get("Retry-After", "")  # seconds; dates are ignored
                fault, pause = f"HTTP {response.status}", max(pause, float(retry_after) if retry_after.isdecimal() else 0.0)
            except AnswerError as error:
                fault, pause, readings = error, 0.0 if unusable else self._backoff, readings - 1
            except OSError as error:
                fault = str(error)
            self._count(fault if isinstance(fault, str) else "unusable answers")
            is_last = not readings or attempt + 1 == attempts
            if is_last or self._cancelled().wait(min(pause, LONGEST_WAIT)):
                break
        if isinstance(fault, AnswerError):
            raise RejectedError(f"it answers {self._mask_text(fault)}") from fault
        attempts_text = f"{attempts} attempts, {fault}" if attempts > 1 else fault
        raise UnreachableError(f"{self.who} does not answer ({attempts_text}): check the server, then try again")

    def _read(self, response: Response, read: Callable[[Response], Answer]) -> Answer:
        """The parsed response. A 5xx may be temporary and counts as a fault; a 4xx is final."""
        if response.status == 200:
            return read(response)
        status = f"HTTP {response.status}{self._reason(response)}"
        if response.status in UNAUTHORISED:
            hint = f"set {self._token_env} to a bearer token that it accepts" if self._token_env else "give the option token_env="
            raise UnreachableError(f"{self.who} rejects the request without a valid token ({status}): {hint}, then try again")
        if response.status >= 500:
            raise AnswerError(status)
        raise RejectedError(f"it answers {status}")

    def _reason(self, response: Response) -> str:
        """The server's message in one line, with the token masked in case the server repeats it."""
        if 300 <= response.status < 400:
            return f", go to {self._mask_text(response.headers.get('Location', ''))}"
        text = response.body[-2000:].decode("utf-8", "replace").strip()
        with suppress(ValueError, TypeError, KeyError):
            text = str(json.loads(response.body)["error"])
        if 'File "' in text:  # a traceback ends in what went wrong
            text = text.splitlines()[-1]
        text = " ".join(text.split())
        return "" if not text or text.startswith("<") else f", {self._mask_text(text)[:160]}"

    def _token(self) -> str:
        """The token of the environment; empty without one."""
        return os.environ.get(self._token_env, "") if self._token_env else ""

    def _mask_text(self, text: object) -> str:
        token = self._token()
        return str(text).replace(token, "***") if token else str(text)

    def _mask_body(self, body: bytes) -> bytes:
        """A body with the token masked in case the server repeats it. Short tokens stay, since numbers may contain them."""
        token = self._token().encode()
        return body.replace(token, b"*" * len(token)) if len(token) >= LEAST_MASKED else body

    def mask_token(self, value: Any) -> Any:
        """Parsed JSON with the token masked in all its texts."""
        if isinstance(value, dict):
            return {self._mask_text(key): self.mask_token(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.mask_token(element) for element in value]
        return self._mask_text(value) if isinstance(value, str) else value

    def _send(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """One attempt; raises OSError if the connection fails."""
        for _ in range(self._concurrency):
            try:
                return self._exchange(url, body, headers)
            except ConnectionResetError as error:
                self._count(str(error))
        return self._exchange(url, body, headers)

    def _exchange(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        """One request over one connection, within the timeout; raises ConnectionResetError if the connection breaks off."""
        import httpx2

        if self._client is None or self._cancelled().is_set():
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
            return Response(response.status_code, response.headers, self._mask_body(bytes(content)))
        except httpx2.TimeoutException:
            raise TimeoutError(f"no answer within {self._timeout:g} s") from None
        except httpx2.DecodingError:
            raise AnswerError("data that cannot be decompressed") from None
        except httpx2.RequestError as error:
            text = one_line(error)
            broken_off = isinstance(error, httpx2.ReadError | httpx2.WriteError | httpx2.RemoteProtocolError)
            kind = ConnectionResetError if broken_off else ConnectionError
            raise kind(self._mask_text(text.partition("] ")[2] if text.startswith("[Errno") else text)) from None

    def _seconds_left(self) -> float:
        """Seconds until this thread's attempt is given up."""
        return float(getattr(self._thread, "until", float("inf"))) - time.monotonic()

    def _cancelled(self) -> threading.Event:
        """The event that is set when this thread's task is cancelled."""
        stop: threading.Event = getattr(self._thread, "stop", self._not_cancelled)
        return stop

    def _count(self, event: str) -> None:
        """Count an event, unless the request was cancelled."""
        if not self._cancelled().is_set():  # a cancelled request counts as no fault
            with self._lock:
                self.traffic[event] += 1


class _Bounded:
    """A backend or connection of httpcore2 that waits at most `seconds_left()`; everything else comes from the inner object."""

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
        """The next bytes of the response; waits until some arrive."""
        return bytes(self._inner.read(max_bytes, self._bound(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all bytes of the buffer."""
        for start in range(0, len(buffer), PIECE):
            self._inner.write(buffer[start : start + PIECE], self._bound(timeout))

    def _bound(self, timeout: float | None) -> float:
        """Timeout of an operation within the time of the request."""
        import httpcore2

        seconds = min(self._seconds_left(), float("inf") if timeout is None else timeout)
        if seconds <= 0:
            raise httpcore2.ReadTimeout()
        return seconds
