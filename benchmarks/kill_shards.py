"""Kills the processes that work on one run in shards at random moments, starts others, and holds the run against one alone.

    python benchmarks/kill_shards.py                             20 runs over a folder, two processes each
    python benchmarks/kill_shards.py --store s3 --failing 20     over S3 (moto on this machine), one request in twenty fails

A kill is SIGKILL to a process at a moment that is drawn from the whole run: when so many shards have been written, and a random
time of up to half a second later. Another process takes its place at once, as a scheduler would start it, with the same
command. All processes must end with exit code 0. The rows must then be those of a run by one process that nobody killed, in
every column but `seconds` and every bit; so must the stored inputs. A failing request fails half of the time before it was
carried out and half of the time after. Processes are forked from one that has imported everything, so that a kill finds work
and no start of Python; the lease is short for the same reason.
"""

import argparse
import contextlib
import importlib.util
import io
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import kill

from brinell.calls import call_of as _imports_everything  # noqa: F401 # before the processes are forked
from brinell.cli import run as command_line
from brinell.runners import shards
from brinell.store import shared
from brinell.store.folder import SHARDS as FOLDER
from brinell.store.run import Run

BUCKET = "brinell"
GROUP = 16
"""Samples in a group: four batches of four."""


@dataclass
class Trial:
    """Result of one run."""

    kills: int = 0
    with_work: int = 0
    """Kills after which something was in the store already."""
    starts: int = 0
    codes: list[int] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    leftovers: int = 0
    seconds: float = 0.0


def main() -> int:
    """All trials, and a verdict."""
    options = arguments()
    if options.store == "s3" and importlib.util.find_spec("moto") is None:
        print("left out for want of an S3 server: make extras, then PYTHONPATH=.venv-extras")
        return 0
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="brinell-shards-") as temporary, served(options.store) as root:
        work = Path(temporary)
        reference_run = work / "alone"
        begin_time = time.perf_counter()
        process = begin(options, str(reference_run), shared_=False)
        process.join()
        if process.exitcode:
            raise SystemExit(f"the run of one process ended with {process.exitcode}")
        seconds = time.perf_counter() - begin_time
        rows = Run.open(reference_run).records()
        groups = int(((rows.outcome == "fooled") | (rows.outcome == "survived")).sum()) // GROUP
        trials = []
        for number in range(options.trials):
            out = f"{root}/trial-{number}" if root else str(work / f"trial-{number}")
            result = trial(options, out, work / f"copy-{number}", reference_run, groups, rng)
            trials.append(result)
            print(
                f"run {number + 1:3}: {result.kills} kills ({result.with_work} with work done), "
                f"{result.starts} processes, exit codes "
                f"{sorted(set(result.codes))}, {result.seconds:.1f} s, "
                f"{'; '.join(result.differences) or 'equal'}, {result.leftovers} left behind",
                flush=True,
            )
    bad = [result for result in trials if result.differences or result.leftovers or any(result.codes)]
    failing = f", one request in {options.failing} failing" if options.failing else ""
    print(
        f"{len(trials)} runs over {options.store}{failing}, {sum(result.kills for result in trials)} kills of which "
        f"{sum(result.with_work for result in trials)} with work done: {len(trials) - len(bad)} equal to the run of one process "
        f"({seconds:.1f} s)"
    )
    return bool(bad)


def arguments() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3, help="in each run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", choices=("folder", "s3"), default="folder")
    parser.add_argument("--failing", type=int, default=0, help="one request in so many fails; 0: none")
    parser.add_argument("--lease", type=float, default=1.0, help="seconds")
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def trial(options: argparse.Namespace, out: str, copy: Path, reference_run: Path, groups: int, rng: random.Random) -> Trial:
    """One run: processes that are killed and replaced until there were enough kills, and then end."""
    result, begin_time, store = Trial(), time.perf_counter(), shared.open_store(out)
    moments = sorted(rng.randrange(groups) for _ in range(options.kills))
    running = [begin(options, out) for _ in range(options.workers)]
    result.starts = len(running)
    while any(process.is_alive() for process in running):
        time.sleep(0.05)
        if not moments or len(store.names(f"{FOLDER}/rows")) < moments[0]:
            continue
        time.sleep(rng.uniform(0, 0.5))
        index = rng.randrange(len(running))
        moments.pop(0)
        if running[index].is_alive():
            os.kill(running[index].pid, signal.SIGKILL)
            running[index].join()
            result.kills += 1
            result.with_work += bool(store.names(f"{FOLDER}/rows"))
            running[index] = begin(options, out)
            result.starts += 1
    result.codes = [process.exitcode for process in running]
    result.seconds = time.perf_counter() - begin_time
    if not any(result.codes):
        result.differences = kill.compare(reference_run, copied(out, copy))
        result.leftovers = len([path for path in copy.rglob("*") if kill.is_leftover(path) or FOLDER in path.parts])
    shutil.rmtree(copy, ignore_errors=True)
    return result


def begin(options: argparse.Namespace, out: str, *, shared_: bool = True) -> multiprocessing.Process:
    """Start a process; one that shares nothing works alone."""
    process = multiprocessing.get_context("fork").Process(target=partial(_work, options, out, shared_))
    process.start()
    return process


def _work(options: argparse.Namespace, out: str, shared_: bool) -> None:
    random.seed(os.getpid())
    words = [
        "audit",
        "--quiet",
        "--samples",
        str(options.samples),
        "--select",
        "first",
        "--eps",
        "0:0.2:5",
        "--batch-size",
        str(GROUP // 4),
    ]
    words += ["--attack", "apgd-ce?steps=20", "--attack", "square?steps=60", "--out", out]
    # Any number of processes may share one shard; with more, groups of a small stage would be smaller than those of one process.
    words += ["--shard", "1/1"] if shared_ else []
    if shared_ and options.failing:
        for kind in (shared.FolderStore, shared.AddressStore):
            for name in ("create", "write", "read", "names", "delete"):
                setattr(kind, name, failing(getattr(kind, name), options.failing))
    shards.run.__kwdefaults__["lease"] = options.lease
    with contextlib.redirect_stdout(io.StringIO()):
        code = command_line(words)
    os._exit(code)


def failing(request, often):
    """A request of a store that fails now and then, before it was carried out or after."""

    def instead(*arguments):
        if random.random() > 1 / often:
            return request(*arguments)
        if random.random() < 0.5:
            request(*arguments)
        raise ConnectionError("made to fail")

    return instead


@contextlib.contextmanager
def served(store: str) -> Iterator[str]:
    """The address of a bucket on a server that lives as long as the block; nothing for a folder."""
    if store == "folder":
        yield ""
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    line = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if time.monotonic() > end:
                raise SystemExit("the S3 server did not start")
            time.sleep(0.2)
        script = "import s3fs; s3fs.S3FileSystem().mkdir('" + BUCKET + "')"  # apart: its threads do not live through a fork
        subprocess.run([sys.executable, "-c", script], check=True)
        yield f"s3://{BUCKET}"
    finally:
        server.terminate()
        server.wait()


def copied(out: str, copy: Path) -> Path:
    """The run in a store as a folder."""
    if not re.match("s3:", out):
        shutil.copytree(out, copy)
        return copy
    code = "import sys, s3fs; s3fs.S3FileSystem().get(sys.argv[1], sys.argv[2], recursive=True)"
    subprocess.run([sys.executable, "-c", code, out + "/", f"{copy}/"], check=True)
    return copy


if __name__ == "__main__":
    sys.exit(main())
