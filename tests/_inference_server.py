"""A small server of the Open Inference Protocol on loopback, in threads of the test, that
misbehaves on request.

It counts what it answered, so that a test can compare it with the records. Faults are planted by
request: `faults(number)` names the fault of the request of this number, or nothing.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

TYPES = {"FP32": "<f4", "FP64": "<f8", "FP16": "<f2", "UINT8": "<u1", "INT64": "<i8"}


class InferenceServer:
    """Serves `function`, (n, *shape) float32 or as `datatype` says to an output array, as the model
    "net"."""

    def __init__(
        self,
        function: Callable[[np.ndarray], np.ndarray],
        shape: tuple[int, ...] = (2,),
        *,
        datatype: str = "FP32",
        metadata: dict[str, Any] | None = None,
        token: str = "",
        faults: Callable[[int], str] = lambda number: "",
        reply: Callable[[np.ndarray, np.ndarray], Any] | None = None,
    ) -> None:
        self.function, self.token, self.faults, self.reply = function, token, faults, reply
        self.metadata = metadata or {
            "name": "net",
            "versions": ["1"],
            "platform": "numpy",
            "inputs": [{"name": "x", "datatype": datatype, "shape": [-1, *shape]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, -1]}],
        }
        self.inputs: list[np.ndarray] = []
        """The inputs of each request that was answered."""
        self.bodies: list[bytes] = []
        """Every request's body, answered or not."""
        self.headers: list[dict[str, str]] = []
        self.fault_counts: Counter[str] = Counter()
        """Faults that were carried out."""
        self.active = self.peak = self.requests = 0
        """Requests in hand, the most at once, and all so far."""
        self.lock = threading.Lock()
        self.ended = threading.Event()

    @property
    def rows(self) -> int:
        """Inputs that were answered."""
        return sum(len(x) for x in self.inputs)

    @contextmanager
    def running(self):
        """The model's URL, while the server runs."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"owner": self}))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v2/models/net"
        finally:
            self.ended.set()  # delayed answers end too
            server.shutdown()
            server.server_close()
            thread.join()

    def infer(self, body: bytes) -> bytes:
        """The answer to a body, by the protocol."""
        (tensor,) = json.loads(body)["inputs"]
        assert tensor["name"] == self.metadata.get("inputs", [{"name": "x"}])[0]["name"]
        x = np.array(tensor["data"], TYPES[tensor["datatype"]]).reshape(tensor["shape"])
        y = self.function(x)
        with self.lock:
            self.inputs.append(x)
        if self.reply is not None:
            return json.dumps(self.reply(x, y)).encode()
        datatype = {"i": "INT64", "u": "INT64", "f": "FP32"}[y.dtype.kind]
        output = {
            "name": "y",
            "datatype": datatype,
            "shape": list(y.shape),
            "data": y.ravel().tolist(),
        }
        return json.dumps({"model_name": "net", "outputs": [output]}).encode()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    owner: InferenceServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def allowed(self) -> bool:
        if self.owner.token and self.headers.get("Authorization") != f"Bearer {self.owner.token}":
            message = {"error": f"wrong token {self.headers.get('Authorization')}"}
            self.answer(401, json.dumps(message).encode())
            return False
        return True

    def do_GET(self) -> None:
        if not self.allowed():
            return
        if self.path == "/v2/models/net":
            self.answer(200, json.dumps(self.owner.metadata).encode())
        else:
            self.answer(404, b'{"error": "no such model"}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.allowed():
            return
        with self.owner.lock:
            self.owner.active += 1
            self.owner.peak = max(self.owner.peak, self.owner.active)
            self.owner.requests += 1
            number = self.owner.requests
            self.owner.bodies.append(body)
            self.owner.headers.append(dict(self.headers))
        try:
            fault = self.owner.faults(number)
            if fault:
                with self.owner.lock:
                    self.owner.fault_counts[fault] += 1
            self.respond(fault, body)
        finally:
            with self.owner.lock:
                self.owner.active -= 1

    def respond(self, fault: str, body: bytes) -> None:
        if fault == "closed":
            self.close_connection = True
        elif fault == "html":
            self.answer(
                200, b"<!DOCTYPE html><title>Welcome</title>", {"Content-Type": "text/html"}
            )
        elif fault.isdecimal():
            self.answer(int(fault), b'{"error": "planted"}', {"Retry-After": "0"})
        else:
            if fault.startswith("delay"):
                self.owner.ended.wait(float(fault[5:]))
            try:
                self.answer(200, self.owner.infer(body))
            except BrokenPipeError:
                self.close_connection = True
            except ValueError as error:
                self.answer(400, json.dumps({"error": str(error)}).encode())
