"""Time of an audit of a model behind MLServer, relative to the time of the server for the same
requests.

    python benchmarks/http_server.py [--subjects digits cnn4_pgd ...] [--samples 500]

The audit's requests are kept, and then sent again by a client that does nothing else: bodies
prepared beforehand, as many connections, answers read and thrown away. So the ratio says how much
time an audit takes beyond a server that always has work. The server has a separate core, as on
another machine, and both clients run on the others. Needs `make server`, and two cores.
"""

import http.client
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import measure
from torch import nn

import brinell
from brinell.core.domain import Domain
from brinell.models.digits_cnn import DigitsCnn
from brinell.models.http import Server
from brinell.store.run import Run

GROUP = "kinds"
RUNS = {"": "--subjects digits --samples 40 --steps 10 --repetitions 1"}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Seconds."""

    wall: float
    server: float
    """Of the processor, in the server."""
    client: float
    """Of the processor, here."""
    main_thread: float
    """Of the processor, here in the main thread, which writes no request: while it works no
    request waits for an answer."""


@contextmanager
def recording() -> Iterator[list[bytes]]:
    """The bodies of the requests for answers meanwhile."""
    ask, bodies = Server.ask, list[bytes]()

    def keep(
        server: Server, place: str, read: Callable[[Any], Any], body: bytes | None = None
    ) -> Any:
        bodies.extend([] if body is None else [body])
        return ask(server, place, read, body)

    Server.ask = keep  # type: ignore[method-assign, assignment]
    try:
        yield bodies
    finally:
        Server.ask = ask  # type: ignore[method-assign]


def networks(names: list[str]) -> Iterator[tuple[str, nn.Module, str, tuple[int, ...], str]]:
    """Name, chain of layers, data, shape and budget of each subject."""
    for name in names:
        if name == "digits":
            domain = Domain(kind="image", shape=(1, 8, 8), levels=17)
            yield (
                "digits-cnn",
                DigitsCnn()(domain).module,
                "digits?split=train",
                domain.shape,
                "0.03",
            )
        else:
            subject = measure.subject(name)
            yield (
                subject.name,
                _chain(subject.module().net),
                subject.data_spec,
                subject.shape,
                subject.eps_text,
            )


def _chain(net: nn.Module) -> nn.Sequential:
    """The network as a chain of layers; LeNet-5 has its activations and pools in its code."""
    if isinstance(net, nn.Sequential):
        return net
    pools = [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        net.conv1, *pools, net.conv2, *pools, nn.Flatten(), net.linear1, nn.ReLU(), net.linear2
    )


@contextmanager
def separate_cores(start: AbstractContextManager[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """What `start` yields, its processes on the first core, and this process on the others
    meanwhile.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        raise SystemExit("the server needs a core of its own, and there is but one")
    os.sched_setaffinity(0, {min(cores)})
    try:
        with start as served:
            os.sched_setaffinity(0, cores - {min(cores)})
            yield served
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def clocks(pid: int) -> Iterator[list[Cost]]:
    """The cost of what is done meanwhile."""
    costs: list[Cost] = []
    before = time.perf_counter(), _cpu(pid), time.process_time(), time.thread_time()
    yield costs
    after = time.perf_counter(), _cpu(pid), time.process_time(), time.thread_time()
    costs.append(Cost(*(end - begin for begin, end in zip(before, after, strict=True))))


def _cpu(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def replay(url: str, bodies: list[bytes], connections: int) -> None:
    """Send all bodies, each connection the next one as soon as its last is answered."""
    counter, parts = itertools.count(), urlsplit(f"{url}/infer")

    def work() -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        while (number := next(counter)) < len(bodies):
            connection.request(
                "POST", parts.path, bodies[number], {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise SystemExit(
                    f"the server answers {answer.status} to a request that it has answered before"
                )
            answer.read()
        connection.close()

    with ThreadPoolExecutor(connections) as pool:
        for future in [pool.submit(work) for _ in range(connections)]:
            future.result()


def main() -> None:
    """One line for each network."""
    counts = {
        "samples": 500,
        "steps": 100,
        "rows": 64,
        "concurrency": 4,
        "batch_size": 512,
        "repetitions": 3,
    }
    options = measure.arguments(
        __doc__, subjects=["digits", "cnn4_pgd", "lenet5_advtrained"], **counts
    )
    columns = (
        "model, samples, requests, inputs, audit s, replay s, audit / replay, "
        "server cpu s, client cpu s, of it not overlapped, "
        "cpu ratio, repetitions"
    )
    note = (
        "The audit is `brinell.audit` from the request to the report; replay is "
        "the same requests and nothing else. Server and "
        "client have a core each. Beside other work wall time says little: the "
        "cpu ratio is the processor time of the server and "
        "of what the client does while no request is under way, together, over the server's."
    )
    table = measure.Table("An audit over HTTP beside what the server needs", columns, note)
    serve = measure.import_example("served/serve.py")
    if not serve.MLSERVER.is_file():
        raise SystemExit("no inference server: `make server` makes its environment")
    settings = {
        "samples": f"first:{options.samples}",
        "batch_size": options.batch_size,
        "device": "cpu",
    }
    settings["attack"] = f"square?steps={options.steps}"
    for name, chain, data, shape, eps in networks(options.subjects):
        audits, replays = [], []
        with (
            separate_cores(serve.serving(chain, "net", shape)) as (url, pid),
            tempfile.TemporaryDirectory() as folder,
        ):
            for repetition in range(options.repetitions):
                out, spec = (
                    Path(folder) / str(repetition),
                    f"{url}?rows={options.rows}&concurrency={options.concurrency}",
                )
                with recording() as bodies, clocks(pid) as cost:
                    brinell.audit(spec, data, eps=eps, out=out, **settings)
                audits += cost
                with clocks(pid) as cost:
                    replay(url, bodies, options.concurrency)
                replays += cost
            traffic = Run.open(out).manifest["traffic"]["net"]
        walls = [measure.spread([cost.wall for cost in costs], 2) for costs in (audits, replays)]
        over = measure.spread(
            [audit.wall / bare.wall for audit, bare in zip(audits, replays, strict=True)]
        )
        cpu = [
            f"{statistics.median(getattr(audit, kind) for audit in audits):.2f}"
            for kind in ("server", "client", "main_thread")
        ]
        ratio = measure.spread([1 + audit.main_thread / audit.server for audit in audits])
        table.add(
            name,
            options.samples,
            traffic["requests"],
            traffic["inputs"],
            *walls,
            over,
            *cpu,
            ratio,
            options.repetitions,
        )


if __name__ == "__main__":
    main()
