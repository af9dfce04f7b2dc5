"""Peak memory of large runs beside a small one, and time and memory of the embedded default audit;
with --rows, of many rows.

    python benchmarks/memory.py [--subjects resnet4b cnn4_pgd] [--samples 1000 10000]
    python benchmarks/memory.py --rows 1000 100000 300000

Peak memory is the largest resident set of the process that did the work, as the kernel counts it.
`baseline` is a process that imports Brinell, loads the same model and takes one gradient of one
full batch. The growth from 1,000 to 10,000 samples is what a run keeps of its data.
"""

import os
import statistics
import sys
import tempfile
from argparse import Namespace

import measure
import torch

import brinell

GROUP = "passes"
RUNS = {
    "": "--subjects cnn4_pgd --samples 200 400 --repetitions 1 --default-threads 1",
    "--rows 1000 100000": "--rows 100 1000",
}


def run(line: list[str], threads: int) -> tuple[float, float]:
    """Seconds and MiB of a process of this Python."""
    return measure.run_child([sys.executable, *line], OMP_NUM_THREADS=str(threads))[:2]


def baseline(name: str, batch_size: int) -> None:
    """Baseline of every run: the library, the model, and a gradient of one full batch."""
    import brinell.calls

    subject = measure.subject(name)
    module = subject.module()
    x = torch.zeros(batch_size, *subject.shape, requires_grad=True)
    torch.autograd.grad(module(x).sum(), x)
    assert brinell.calls


def large_runs(options: Namespace) -> None:
    """Peak memory against the number of samples."""
    columns = (
        "model, attack, eps, baseline MiB, samples, peak MiB, beyond baseline MiB, "
        "all inputs as float32 MiB, s"
    )
    table, size = (
        measure.Table("Memory of large runs", columns),
        ["--batch-size", str(options.batch_size)],
    )
    for name in options.subjects:
        subject = measure.subject(name)
        _, base = run([__file__, "--baseline", name, *size], options.threads)
        for samples in options.samples:
            with tempfile.TemporaryDirectory(prefix="brinell-memory-") as out:
                line = [
                    "-m",
                    "brinell",
                    "audit",
                    "--data",
                    subject.data_spec,
                    "--model",
                    subject.model_spec,
                ]
                line += [word for spec in options.attack for word in ("--attack", spec)]
                line += ["--eps", subject.eps_text, "--samples", f"first:{samples}", *size]
                seconds, peak = run([*line, "--out", f"{out}/run"], options.threads)
            inputs = samples * 4 * int(torch.tensor(subject.shape).prod()) / 2**20
            cells = [
                subject.name,
                " + ".join(options.attack),
                subject.eps_text,
                f"{base:.0f}",
                f"{samples:,}",
            ]
            table.add(
                *cells, f"{peak:.0f}", f"{peak - base:.0f}", f"{inputs:.0f}", f"{seconds:.0f}"
            )


def audit_rows(n: int) -> None:
    """An audit of n samples of four values on a linear model, so that nothing weighs but what is
    kept of a sample.
    """
    rng = torch.Generator().manual_seed(0)
    x, module = torch.rand(n, 4, generator=rng), torch.nn.Linear(4, 3, bias=False)
    module.weight.data = torch.randn(3, 4, generator=rng)
    with tempfile.TemporaryDirectory(prefix="brinell-memory-") as out:
        brinell.audit(
            module, (x, module(x).argmax(1)), samples=n, eps=[0.02], attack="fgsm", out=f"{out}/run"
        )


def many_rows(options: Namespace) -> None:
    """Peak memory of a cheap model against the number of samples."""
    table = measure.Table("Memory of many rows", "samples, peak MiB, s")
    for n in map(int, options.rows):
        seconds, peak = run([__file__, "--only-rows", str(n)], options.threads)
        table.add(f"{n:,}", f"{peak:.0f}", f"{seconds:.0f}")


def default_audit(options: Namespace) -> None:
    """The run of `make audit`, once to train and cache the model, then timed."""
    title = "The embedded default (`brinell audit`; limits: 60 s, 2048 MiB)"
    table = measure.Table(title, "run, model, s, peak MiB, repetitions")
    with tempfile.TemporaryDirectory(prefix="brinell-default-") as out:
        os.environ["BRINELL_CACHE"] = f"{out}/cache"
        line = ["-m", "brinell", "audit", "--out"]
        seconds, peak = run([*line, f"{out}/first"], options.default_threads)
        table.add("first", "trained and cached", f"{seconds:.1f}", f"{peak:.0f}", 1)
        costs = [
            run([*line, f"{out}/run-{n}"], options.default_threads)
            for n in range(options.repetitions)
        ]
    times, peaks = zip(*costs, strict=True)
    table.add(
        "later",
        "from the cache",
        measure.spread(times, 1),
        f"{statistics.median(peaks):.0f}",
        options.repetitions,
    )


def main() -> None:
    """Large runs, then the default audit."""
    lists = {
        "subjects": ["resnet4b", "cnn4_pgd"],
        "attack": ["fgsm", "pgd?steps=10"],
        "samples": [1000, 10000],
        "rows": [],
    }
    counts = {"batch_size": 128, "repetitions": 3, "default_threads": 2, "only_rows": 0}
    options = measure.arguments(__doc__, **lists, **counts, baseline="")
    if options.only_rows:
        audit_rows(options.only_rows)
    elif options.baseline:
        baseline(options.baseline, options.batch_size)
    elif options.rows:
        many_rows(options)
    else:
        large_runs(options)
        default_audit(options)


if __name__ == "__main__":
    main()
