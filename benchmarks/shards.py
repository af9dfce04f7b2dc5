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

import multiprocessing
import os
import resource
import sys
import tempfile
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import kill
import measure

from brinell.cli import run as command_line
from brinell.runners import ray, shard_worker
from brinell.store.folder import SHARDS as FOLDER

GROUP = "sweeps"
RUNS = {"": "--samples 200 --repetitions 1"}


def main() -> None:
    """The tables."""
    counts = {"samples": 2000, "batch_size": 64, "steps": 30, "shards": 16, "repetitions": 3}
    switches = {"ray": False, "ray_only": False}
    options = measure.arguments(__doc__, subject="cnn4_pgd", eps="0.1:0.3:3", **counts, **switches)
    table = measure.Table("Processes that share a run", "repetition, processes, s, processor s, waited s, rows and inputs")
    figures: dict[str, list[float]] = {}

    def note(**values: float) -> None:
        for name, value in values.items():
            figures.setdefault(name.replace("_", " "), []).append(value)

    with tempfile.TemporaryDirectory(prefix="brinell-shards-") as temporary:
        for number in range(options.repetitions):
            work = Path(temporary) / str(number)

            def measured(name: str, outs: list[str], shards: list[str | None], beside: str = "", work: Path = work) -> Any:
                costs = timed(options, [work / out for out in outs], shards)
                equal = "; ".join(kill.compare(work / beside, work / outs[0])) or "equal" if beside else ""
                table.add(number + 1, name, *(f"{cost:.1f}" for cost in costs), equal)  # noqa: B023
                return costs

            alone = measured("alone", ["alone"], [None])
            if not options.ray_only:
                numbers = [f"{1 + index * options.shards // 2}/{options.shards}" for index in range(2)]
                one = measured("one in shards", ["one"], [f"1/{options.shards}"])
                two = measured("two in shards", ["two"] * 2, numbers, "one")
                apart = measured("two apart", ["first", "second"], [None, None])
                note(processor_of_one_in_shards=one[1] / alone[1], processor_of_two=two[1] / alone[1])
                note(throughput_of_two=alone[0] / two[0], share_of_time_that_two_waited=two[2] / (2 * two[0]))
                note(throughput_of_two_apart=2 * alone[0] / apart[0], two_over_two_apart=apart[0] / (2 * two[0]))
            if options.ray or options.ray_only:
                start, wall = on_ray(options, work / "ray")
                equal = "; ".join(kill.compare(work / ("alone" if options.ray_only else "one"), work / "ray")) or "equal"
                table.add(number + 1, "two on Ray", f"{wall:.1f}", "", f"{start:.1f} until the first claim", equal)
                note(throughput_of_two_on_Ray=alone[0] / wall, the_same_with_its_start=alone[0] / (start + wall))
    summary = measure.Table("Beside one process alone", "figure, median")
    for name, values in figures.items():
        summary.add(name, measure.spread(values))


def timed(options: Namespace, outs: list[Path], numbers: list[str | None]) -> tuple[float, float, float]:
    """Wall and processor seconds of processes that run at once, and how long all of them waited for others."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in outs]
    begin = time.perf_counter()
    targets = zip(outs, numbers, pipes, strict=True)
    processes = [context.Process(target=_work, args=(options, out, number, pipe[1])) for out, number, pipe in targets]
    for process in processes:
        process.start()
    measurements = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join()
    wall = time.perf_counter() - begin
    if any(process.exitcode for process in processes):
        raise SystemExit(f"exit codes {[process.exitcode for process in processes]}")
    return wall, sum(processor for processor, _ in measurements), sum(waited for _, waited in measurements)


def on_ray(options: Namespace, out: Path) -> tuple[float, float]:
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


def command(options: Namespace, out: Path) -> list[str]:
    """The run, without the name of the program."""
    net = measure.subject(options.subject)
    words = ["audit", "--quiet", "--data", net.data_spec, "--model", net.model_spec, "--samples", str(options.samples)]
    words += ["--select", "first", "--eps", options.eps, "--batch-size", str(options.batch_size), "--out", str(out)]
    return [*words, "--attack", f"apgd-ce?steps={options.steps}", "--attack", f"square?steps={2 * options.steps}"]


def _work(options: Namespace, out: Path, number: str | None, pipe: Any) -> None:
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
    main()
