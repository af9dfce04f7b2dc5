"""Serves a review on loopback: a page that shows one pair at a time and sends the answers.

    GET  /        the page
    GET  /next    the next open trial with both pictures as PNG, or the end of the review
    POST /answer  one answer, on disk before it is acknowledged

The page does not learn the size of a change, or which pictures are equal.
"""

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image

from brinell.core.errors import BrinellError, RequestError, one_line, option
from brinell.core.record import Array
from brinell.studies.review.records import LAYOUT, Answer, Review

HOST = "127.0.0.1"
MAX_SECONDS = 1e6
"""Longest time that a person may look at a pair, in seconds."""
REQUEST_TIMEOUT = 20.0
"""Longest time from the first byte of a request to the last, in seconds."""
MAX_ANSWER_BYTES = 10_000
"""Largest answer, in bytes."""
GRACE_SECONDS = 0.5
"""Time after the last answer in which the page learns that the review is complete, in seconds."""


class ReviewServer:
    """Serves a review to one person.

    Args:
        review: the review, which stores the answers.
        page: HTML of the page.
        reviewer: name of the person.
        port: port on loopback; 0 takes a free one.

    Raises:
        RequestError: the port is taken.
    """

    def __init__(self, review: Review, page: str, reviewer: str = "", port: int = 0) -> None:
        self.review, self.page, self.reviewer = review, page, reviewer
        self._folder_lock = ExitStack()
        self._folder_lock.enter_context(LAYOUT.lock(review.path))  # two servers would store answers twice
        self._clean, self._changed = review.pairs()
        self._open_trials = review.open_trials(reviewer)
        self._lock = threading.Lock()
        self.finished = threading.Event()
        self.error: BrinellError | None = None
        """The reason why an answer could not be stored, which ends the review."""
        try:
            self._http = _HttpServer((HOST, port), _RequestHandler)
        except (OSError, OverflowError) as error:
            self._folder_lock.close()
            raise RequestError(f"port {port} cannot be used ({one_line(error)}): name another with {option('port')}") from None
        self._http.review = self
        self.acknowledge()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self._http.server_address[1]}/"

    def serve(self, notify: Callable[[str], None]) -> None:
        """Answer requests until every trial is answered or the process is interrupted.

        Args:
            notify: takes a message for the user.

        Raises:
            BrinellError: an answer could not be stored.
        """
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        notify(f"open {self.url} in a browser on this machine to judge {len(self._open_trials)} pairs; Ctrl-C keeps the answers")
        try:
            while not self.finished.wait(0.2):
                pass
            time.sleep(GRACE_SECONDS)
        finally:
            self._http.shutdown()
            self._http.server_close()
            self._folder_lock.close()
        if self.error is not None:
            raise self.error

    def next(self) -> dict[str, Any]:
        """The next open trial, without the facts that the person must not know."""
        with self._lock:
            total, remaining = len(self.review.trials), len(self._open_trials)
            if not self._open_trials:
                return {"done": True, "total": total, "remaining": 0}
            trial = self._open_trials[0]
        equal = trial.eps == 0
        pictures = [self._clean[trial.number], self._clean[trial.number] if equal else self._changed[trial.number]]
        sides = pictures[::-1] if trial.changed_left else pictures
        return {
            "done": False,
            "total": total,
            "remaining": remaining,
            "trial": trial.number,
            "pictures": [_png(picture) for picture in sides],
            # The page asks for the class of the changed picture; for an equal pair, of the side drawn for it.
            "marked": 0 if trial.changed_left else 1,
        }

    def answer(self, content: Any) -> str | None:
        """Check and store an answer; returns the error, or None."""
        keys: dict[str, tuple[type, ...]] = {"trial": (int,), "differs": (bool,), "seconds": (int, float)}
        if not isinstance(content, dict) or any(type(content.get(key)) not in kinds for key, kinds in keys.items()):
            return "an answer is {trial, differs, named, seconds}"
        if not 0 <= content["seconds"] <= MAX_SECONDS:  # excludes NaN
            return f"seconds must be a number from 0 to {MAX_SECONDS:g}"
        label = content.get("named")
        if label is not None and (type(label) is not int or not 0 <= label < len(self.review.classes)):
            return f"named must be null or a class, 0 to {len(self.review.classes) - 1}"
        with self._lock:
            if not self._open_trials or content["trial"] != self._open_trials[0].number:
                return "this trial is not the open one"
            answer = Answer(
                trial=content["trial"],
                reviewer=self.reviewer,
                differs=content["differs"],
                named=label,
                seconds=float(content["seconds"]),
            )
            self.review.add(answer)
            self._open_trials.pop(0)
        return None

    def stop(self, error: BrinellError) -> None:
        """End the review, since an answer could not be stored."""
        self.error = error
        self.finished.set()

    def acknowledge(self) -> None:
        """End the review if the page has the confirmation of the last answer."""
        if not self._open_trials:
            self.finished.set()


class _RequestHandler(BaseHTTPRequestHandler):
    """Handles one request of the page."""

    server: "_HttpServer"
    server_version, sys_version = "brinell", ""

    def do_GET(self) -> None:
        """Serve the page or the next trial."""
        if not self._host_is_local():
            return
        if self.path == "/":
            self._send(HTTPStatus.OK, self.server.review.page.encode(), "text/html; charset=utf-8")
        elif self.path == "/next":
            self._send_json(HTTPStatus.OK, self.server.review.next())
        else:
            self._send_json(HTTPStatus.NOT_FOUND, {"error": "the paths are /, /next and /answer"})

    def do_POST(self) -> None:
        """Store an answer."""
        if not self._host_is_local():
            return
        header = self.headers.get("Content-Length") or ""
        length = int(header) if header.isascii() and header.isdecimal() and len(header) < 10 else MAX_ANSWER_BYTES + 1
        kind = (self.headers.get("Content-Type") or "").partition(";")[0]
        if self.path != "/answer" or kind != "application/json" or length > MAX_ANSWER_BYTES:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": "post an answer to /answer as JSON"})
            return
        try:
            error = self.server.review.answer(json.loads(self.rfile.read(length), parse_constant=_reject_constant))
        except (ValueError, RecursionError):
            error = "that is no JSON"
        except BrinellError as storage_error:
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(storage_error)})
            self.server.review.stop(storage_error)
            return
        self._send_json(HTTPStatus.CONFLICT if error else HTTPStatus.OK, {"error": error} if error else {})
        self.server.review.acknowledge()

    def setup(self) -> None:
        """Start a timer that closes the connection, which carries one request, however slowly its bytes arrive."""
        super().setup()
        self._timer = threading.Timer(REQUEST_TIMEOUT, self._hang_up)
        self._timer.daemon = True
        self._timer.start()

    def finish(self) -> None:
        """Stop the timer of the connection."""
        self._timer.cancel()
        super().finish()

    def _hang_up(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _host_is_local(self) -> bool:
        """Check the host name, so that a page of another site cannot send requests; returns True if it is local."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host in (HOST, "localhost"):
            return True
        self._send_json(HTTPStatus.FORBIDDEN, {"error": f"open {self.server.review.url}"})
        return False

    def _send_json(self, status: HTTPStatus, content: Any) -> None:
        self._send(status, json.dumps(content).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        """Send a response of media type `kind`."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the page shows the state to the person."""


class _HttpServer(ThreadingHTTPServer):
    """HTTP server that knows its review."""

    daemon_threads = True
    review: ReviewServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection. Errors that matter to the person end the review."""


def _reject_constant(name: str) -> Any:
    """Refuse NaN and infinities, which are not valid JSON."""
    raise ValueError(f"{name} is not a JSON number")


def _png(picture: Array) -> str:
    """A picture, uint8 (H, W, C), as a data URL."""
    image = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
