"""Processes that share one run against one process alone: what they cost in processor time, and how much faster they are.

    python benchmarks/shards.py                       2,000 samples of a convolutional network for MNIST
    python benchmarks/shards.py --samples 400 --repetitions 1
    PYTHONPATH=.venv-extras python benchmarks/shards.py --ray    two tasks of Ray as well (make extras installs it)
    PYTHONPATH=.venv-extras python benchmarks/shards.py --ray-only --steps 600      only these and one process alone

Each repetition runs, in turns: one process without shards, one with `--shard 1/16`, two at once with `--shard 1/16` and
`--shard 9/16`, and two at once without shards, a run each, all with one thread. Processor time is that of the processes, as the
system counts it: where other work shares the machine it says what the shards cost, and the wall clock says little. Two processes
on two free cores take half of their processor time together, and as long as they wait for each other more; how long they waited
is printed too. The two processes that share nothing measure what the machine gives to two processes: they bound the
throughput of shards.

With `--ray` each repetition also runs the shards as two tasks on a cluster of Ray that is started for it. Its start and that of
Python are timed apart: a task begins when the first shard is claimed, as the others begin in processes that have imported
everything.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import kill
import measure

from brinell.calls import call_of as _imports_everything  # noqa: F401 # before the processes are forked
from brinell.cli import run as command_line
from brinell.runners import ray, shard_worker
from brinell.store.folder import SHARDS as FOLDER


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--subject", default="cnn4_pgd")
    parser.add_argument("--eps", default="0.1:0.3:3")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--shards", type=int, default=16, help="with more than 4, groups are smaller than those of one process")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="two tasks of Ray as well")
    parser.add_argument("--ray-only", action="store_true", help="one process alone and two tasks of Ray, for longer runs")
    parser.add_argument("--keep", type=Path, help="keep the runs there, for simulate.py")
    options = parser.parse_args()
    print(f"\n{measure.machine()}\n")
    ratios, tasks = [], []
    with tempfile.TemporaryDirectory(prefix="brinell-shards-") as temporary:
        for number in range(options.repetitions):
            work = (options.keep or Path(temporary)) / str(number)
            single = timed(options, [work / "alone"], [None])
            if options.ray_only:
                print(f"{number + 1}  alone          {single[0]:7.1f} s, {single[1]:7.1f} s of processor time", flush=True)
                tasks.append(beside_ray(options, work, single[0], f"{number + 1}", work / "alone"))
                continue
            sharded = timed(options, [work / "one"], [f"1/{options.shards}"])
            two = timed(
                options, [work / "two"] * 2, [f"{1 + index * options.shards // 2}/{options.shards}" for index in range(2)]
            )
            separate = timed(options, [work / "first", work / "second"], [None, None])
            differences = "; ".join(kill.compare(work / "one", work / "two")) or "equal"
            for name, (wall, processor, waited) in (
                ("alone", single),
                ("one in shards", sharded),
                ("two in shards", two),
                ("two apart", separate),
            ):
                print(
                    f"{number + 1}  {name:<14} {wall:7.1f} s, {processor:7.1f} s of processor time, {waited:5.1f} s waited",
                    flush=True,
                )
            shares = (sharded[1] / single[1], two[1] / single[1], single[0] / two[0], two[2] / (2 * two[0]))
            ratios.append((*shares, 2 * single[0] / separate[0], separate[0] / (2 * two[0])))
            print(f"   rows and inputs of two beside one in shards: {differences}", flush=True)
            if options.ray:
                tasks.append(beside_ray(options, work, single[0], f"{number + 1}", work / "one"))
    names = (
        "one in shards / alone, processor",
        "two / alone, processor",
        "throughput of two in shards / alone",
        "share of time that two waited",
        "throughput of two apart / alone",
        "throughput of two in shards / two apart",
        "throughput of two on Ray / alone",
        "the same with Ray's start and Python's",
    )
    columns = [*zip(*ratios, strict=True), *zip(*tasks, strict=True)]
    for name, values in zip(names[-len(columns) :] if options.ray_only else names, columns, strict=False):
        print(f"{name}: {statistics.median(values):.3f} ({', '.join(f'{value:.3f}' for value in values)})")
    return 0


def timed(options: argparse.Namespace, outs: list[Path], numbers: list[str | None]) -> tuple[float, float, float]:
    """Wall and processor seconds of processes that run at once, and how long all of them waited for others."""
    context = multiprocessing.get_context("fork")
    pairs = list(zip(outs, numbers, strict=True))
    pipes = [context.Pipe(duplex=False) for _ in pairs]
    begin = time.perf_counter()
    processes = [
        context.Process(target=partial(_work, options, out, number, pipe[1]))
        for (out, number), pipe in zip(pairs, pipes, strict=True)
    ]
    for process in processes:
        process.start()
    measurements = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join()
    wall = time.perf_counter() - begin
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
    return wall, sum(processor for processor, _ in measurements), sum(waited for _, waited in measurements)


def on_ray(options: argparse.Namespace, out: Path) -> tuple[float, float]:
    """Seconds until the first of two tasks has claimed a shard, and from then until both have ended."""
    first: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            if any((out / FOLDER).glob("**/*")):
                first.append(time.perf_counter())
                return

    watching = threading.Thread(target=watch)
    begin = time.perf_counter()
    watching.start()
    try:
        codes = ray.run(command(options, out), options.shards, tasks=2)
    finally:
        over = time.perf_counter()
        stop.set()
        watching.join()
    if any(codes) or not first:
        raise SystemExit(f"exit codes {codes}")
    return first[0] - begin, over - first[0]


def beside_ray(options: argparse.Namespace, work: Path, single: float, number: str, reference: Path) -> tuple[float, float]:
    """Throughput of two tasks of Ray over that of one process, from the first claim and from the beginning; a line says both."""
    start, wall = on_ray(options, work / "ray")
    differences = "; ".join(kill.compare(reference, work / "ray")) or "equal"
    print(f"{number}  two on Ray     {wall:7.1f} s, {start:7.1f} s until the first claim; rows: {differences}", flush=True)
    return single / wall, single / (start + wall)


def command(options: argparse.Namespace, out: Path) -> list[str]:
    """The run, without the name of the program."""
    net = measure.subject(options.subject)
    words = ["audit", "--quiet", "--data", net.data_spec, "--model", net.model_spec, "--samples", str(options.samples)]
    words += ["--select", "first", "--eps", options.eps, "--batch-size", str(options.batch_size), "--out", str(out)]
    return [*words, "--attack", f"apgd-ce?steps={options.steps}", "--attack", f"square?steps={2 * options.steps}"]


def _work(options: argparse.Namespace, out: Path, number: str | None, pipe) -> None:
    words = command(options, out) + (["--shard", number] if number else [])
    waited, sleep = 0.0, time.sleep

    def slept(seconds: float) -> None:
        nonlocal waited
        waited += seconds
        sleep(seconds)

    shard_worker.time.sleep = slept
    sys.stdout = Path(os.devnull).open("w")
    code = command_line(words)
    used = resource.getrusage(resource.RUSAGE_SELF)
    pipe.send((used.ru_utime + used.ru_stime, waited))
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
