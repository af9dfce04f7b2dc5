"""Serves a review on loopback: one page that shows pair after pair, and takes the answers.

    GET  /        the page
    GET  /next    the next open trial: both pictures as PNG, or that all are answered
    POST /answer  one answer; stored on disk before it is acknowledged

The page is never told how large a change is, nor which side it stands on.
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
LONGEST_LOOK = 1e6
"""Seconds that a person looks at a pair at most."""
PATIENCE = 20.0
"""Seconds that a request may take from its first byte to its last."""
LONGEST = 10_000
"""Bytes of an answer at most."""
GRACE = 0.5
"""Seconds after the last answer, in which the page learns that it was the last."""


class ReviewServer:
    """A review being answered by one person.

    Args:
        review: the trials and where answers go.
        page: HTML of the page.
        reviewer: whose answers these are.
        port: port on loopback; 0 takes a free one.

    Raises:
        RequestError: the port is taken.
    """

    def __init__(self, review: Review, page: str, reviewer: str = "", port: int = 0) -> None:
        self.review, self.page, self.reviewer = review, page, reviewer
        self._alone = ExitStack()
        self._alone.enter_context(LAYOUT.lock(review.path))  # two servers would store answers twice
        self._clean, self._changed = review.pairs()
        self._open = review.open_trials(reviewer)
        self._lock = threading.Lock()
        self.done = threading.Event()
        self.failed: BrinellError | None = None
        """Why an answer could not be stored; it ends the review."""
        try:
            self._http = _Http((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            self._alone.close()
            raise RequestError(f"port {port} cannot be used ({one_line(error)}): name another with {option('port')}") from None
        self._http.review = self
        self.acknowledge()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._http.server_address[1]}/"

    def serve(self, tell: Callable[[str], None]) -> None:
        """Answer requests until every trial is answered, or the process is interrupted."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        tell(f"open {self.url} in a browser on this machine; {len(self._open)} pairs are to be judged; Ctrl-C keeps the answers")
        try:
            while not self.done.wait(0.2):
                pass
            time.sleep(GRACE)
        finally:
            self._http.shutdown()
            self._http.server_close()
            self._alone.close()
        if self.failed is not None:
            raise self.failed

    def next(self) -> dict[str, Any]:
        """The next open trial, without what the person must not know."""
        with self._lock:
            total, left = len(self.review.trials), len(self._open)
            if not self._open:
                return {"done": True, "total": total, "left": 0}
            trial = self._open[0]
        equal = trial.eps == 0
        pictures = [self._clean[trial.number], self._clean[trial.number] if equal else self._changed[trial.number]]
        shown = pictures[::-1] if trial.changed_left else pictures
        return {
            "done": False,
            "total": total,
            "left": left,
            "trial": trial.number,
            "pictures": [_png(picture) for picture in shown],
            # The class is asked of the changed picture; where both are equal, of the side where it would have stood.
            "asked": 0 if trial.changed_left else 1,
        }

    def answer(self, told: Any) -> str | None:
        """Store an answer; returns what is wrong with it, or None."""
        keys: dict[str, tuple[type, ...]] = {"trial": (int,), "differs": (bool,), "seconds": (int, float)}
        if not isinstance(told, dict) or any(type(told.get(key)) not in kinds for key, kinds in keys.items()):
            return "an answer is {trial, differs, named, seconds}"
        if not 0 <= told["seconds"] <= LONGEST_LOOK:  # not so of NaN, either
            return f"seconds must be a number from 0 to {LONGEST_LOOK:g}"
        named = told.get("named")
        if named is not None and (type(named) is not int or not 0 <= named < len(self.review.classes)):
            return f"named must be null or a class, 0 to {len(self.review.classes) - 1}"
        with self._lock:
            if not self._open or told["trial"] != self._open[0].number:
                return "that trial is not the open one"
            answer = Answer(
                trial=told["trial"], reviewer=self.reviewer, differs=told["differs"], named=named, seconds=float(told["seconds"])
            )
            self.review.add(answer)
            self._open.pop(0)
        return None

    def fail(self, error: BrinellError) -> None:
        """An answer could not be stored: end the review and say why."""
        self.failed = error
        self.done.set()

    def acknowledge(self) -> None:
        """Called once an answer was confirmed to the page: the last one ends the review."""
        if not self._open:
            self.done.set()


class _Handler(BaseHTTPRequestHandler):
    server: "_Http"
    server_version, sys_version = "brinell", ""

    def do_GET(self) -> None:
        if not self._from_here():
            return
        if self.path == "/":
            self._send(HTTPStatus.OK, self.server.review.page.encode(), "text/html; charset=utf-8")
        elif self.path == "/next":
            self._json(HTTPStatus.OK, self.server.review.next())
        else:
            self._json(HTTPStatus.NOT_FOUND, {"error": "there is /, /next and /answer"})

    def do_POST(self) -> None:
        if not self._from_here():
            return
        said = self.headers.get("Content-Length") or ""
        length = int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else LONGEST + 1
        kind = (self.headers.get("Content-Type") or "").partition(";")[0]
        if self.path != "/answer" or kind != "application/json" or length > LONGEST:
            self._json(HTTPStatus.BAD_REQUEST, {"error": "an answer is JSON, posted to /answer"})
            return
        try:
            error = self.server.review.answer(json.loads(self.rfile.read(length), parse_constant=_refuse))
        except (ValueError, RecursionError):
            error = "that is no JSON"
        except BrinellError as failed:
            self._json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(failed)})
            self.server.review.fail(failed)
            return
        self._json(HTTPStatus.CONFLICT if error else HTTPStatus.OK, {"error": error} if error else {})
        self.server.review.acknowledge()

    def setup(self) -> None:
        """Give each connection, which carries one request, so long and no longer, however slowly its bytes come."""
        super().setup()
        self._end = threading.Timer(PATIENCE, self._hang_up)
        self._end.daemon = True
        self._end.start()

    def finish(self) -> None:
        """The request was answered."""
        self._end.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _from_here(self) -> bool:
        """A page of another site may not ask under a name that it has had pointed to this machine."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host in (HOST, "localhost"):
            return True
        self._json(HTTPStatus.FORBIDDEN, {"error": f"open {self.server.review.url}"})
        return False

    def _json(self, status: HTTPStatus, content: Any) -> None:
        self._send(status, json.dumps(content).encode(), "application/json")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page tells the person what goes on."""


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    review: ReviewServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a connection that broke off is the page's concern, and what concerns the person ends the review."""


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _png(picture: Array) -> str:
    image = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
