"""Peak memory of large runs beside a small one, and time and memory of the embedded default audit; with --rows, of many rows.

Peak memory is the largest resident set of the process that did the work, as the kernel counts it. `baseline` is a process
that imports Brinell, loads the same model and takes one gradient of one full batch. The growth from 1,000 to 10,000 samples
is what a run keeps of its data.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import measure
import torch

MIB = 2**20


class Cost(NamedTuple):
    """Seconds and memory of a process."""

    seconds: float
    peak: float
    """MiB."""


def run(line: list[str], threads: int) -> Cost:
    """Run a process to its end."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(line)} ended with {process.returncode}:\n{output.read()}")
    return Cost(seconds, usage.ru_maxrss * 1024 / MIB)


def baseline(name: str, batch_size: int) -> None:
    """Baseline of every run: the library, the model, and a gradient of one full batch."""
    import brinell.calls

    subject = measure.SUBJECTS[name]
    module = subject.module()
    x = torch.zeros(batch_size, *subject.shape, requires_grad=True)
    torch.autograd.grad(module(x).sum(), x)
    assert brinell.calls


def audit(*options: str) -> list[str]:
    """A command line of the tool in this environment."""
    return [str(Path(sys.executable).with_name("brinell")), "audit", *options]


def large_runs(options) -> None:
    """Peak memory against the number of samples."""
    command = measure.command(options, "subjects", "attack", "samples", "batch_size")
    columns = "model, attack, eps, baseline MiB, samples, peak MiB, beyond baseline MiB, all inputs as float32 MiB, s"
    table = measure.Table("Memory of large runs", command, columns.split(", "))
    for name in options.subjects:
        subject = measure.SUBJECTS[name]
        base = run([sys.executable, __file__, "--baseline", name, "--batch-size", str(options.batch_size)], options.threads)
        for samples in map(int, options.samples):
            with tempfile.TemporaryDirectory(prefix="brinell-memory-") as out:
                attack = [word for spec in options.attack for word in ("--attack", spec)]
                line = audit("--data", subject.data_spec, "--model", subject.model_spec, "--eps", subject.eps_text)
                line += [*attack, "--samples", str(samples), "--select", "first", "--batch-size", str(options.batch_size)]
                cost = run([*line, "--out", f"{out}/run"], options.threads)
            inputs = samples * 4 * int(torch.tensor(subject.shape).prod()) / MIB
            cells = [subject.name, " + ".join(options.attack), subject.eps_text, f"{base.peak:.0f}", f"{samples:,}"]
            table.add(*cells, f"{cost.peak:.0f}", f"{cost.peak - base.peak:.0f}", f"{inputs:.0f}", f"{cost.seconds:.0f}")


def rows(n: int) -> None:
    """An audit of n samples of four values on a linear model, so that nothing weighs but what is kept of a sample."""
    import brinell

    rng = torch.Generator().manual_seed(0)
    x, module = torch.rand(n, 4, generator=rng), torch.nn.Linear(4, 3, bias=False)
    module.weight.data = torch.randn(3, 4, generator=rng)
    with tempfile.TemporaryDirectory(prefix="brinell-memory-") as out:
        brinell.audit(module, (x, module(x).argmax(1)), samples=n, eps=[0.02], attack="fgsm", out=f"{out}/run")


def many_rows(options) -> None:
    """Peak memory of a cheap model against the number of samples."""
    table = measure.Table("Memory of many rows", measure.command(options, "rows"), ["samples", "peak MiB", "s"])
    for n in options.rows:
        cost = run([sys.executable, __file__, "--only-rows", n], options.threads)
        table.add(f"{int(n):,}", f"{cost.peak:.0f}", f"{cost.seconds:.0f}")


def default_audit(options) -> None:
    """The run of `make audit`, once to train and cache the model, then timed."""
    columns = ["run", "model", "s", "peak MiB", "repetitions"]
    command = measure.command(options, "repetitions")
    table = measure.Table("The embedded default (`brinell audit`; limits: 60 s, 2048 MiB)", command, columns)
    with tempfile.TemporaryDirectory(prefix="brinell-default-") as out:
        os.environ["BRINELL_CACHE"] = f"{out}/cache"
        first = run(audit("--out", f"{out}/first"), options.default_threads)
        table.add("first", "trained and cached", f"{first.seconds:.1f}", f"{first.peak:.0f}", 1)
        costs = [run(audit("--out", f"{out}/run-{n}"), options.default_threads) for n in range(options.repetitions)]
    seconds, peak = [cost.seconds for cost in costs], statistics.median(cost.peak for cost in costs)
    table.add("later", "from the cache", measure.spread(seconds, 1), f"{peak:.0f}", options.repetitions)


def main() -> None:
    """Large runs, then the default audit."""
    options = measure.arguments(
        __doc__ or "",
        subjects=["resnet4b", "cnn4_pgd"],
        attack=["fgsm", "pgd?steps=10"],
        samples=["1000", "10000"],
        batch_size=128,
        repetitions=3,
        default_threads=2,
        baseline="",
        rows=[],
        only_rows=0,
    )
    if options.only_rows:
        rows(options.only_rows)
        return
    if options.baseline:
        baseline(options.baseline, options.batch_size)
        return
    if options.rows:
        many_rows(options)
        return
    large_runs(options)
    default_audit(options)


if __name__ == "__main__":
    main()
