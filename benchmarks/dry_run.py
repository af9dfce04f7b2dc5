"""How near the time comes that `brinell audit --dry-run` tells: plans of different kinds, estimated and then carried out.

Times are of the processor, on one thread, so that other work on the machine does not tell. The data and the weights are those
in BRINELL_SHARED. With --workers as many processes carry the plan out together, and what is compared is what those would take
that had a processor each: the checks, and of each stage what the process took that made most of it.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch

from brinell.api import Silent, plan_audit
from brinell.engine.request import Request
from brinell.engine.toml import checked
from brinell.runners import local, shards
from brinell.runners.estimate import estimate
from brinell.runners.meeting import Shard
from brinell.store.run import Run

DATA = os.environ.get("BRINELL_SHARED", ".")
MODELS = Path(__file__).resolve().parent.parent / "examples" / "models"
MNIST = f"npz:{DATA}/mnist/mnist_test.npz"
CIFAR10 = f"npz:{DATA}/cifar10/cifar10_test.npz"

PLANS: dict[str, dict[str, Any]] = {
    "digits-cnn, fast, nine budgets": {"samples": 400},
    "digits-cnn, slides, one budget": {"attack": ("slides",), "eps": "0.1", "samples": 300},
    "CIFAR-10 resnet2b, fast, five budgets": {
        "data": CIFAR10,
        "model": (f"torch:{MODELS}/cifar10.py:resnet2b?weights={DATA}/cifar10_robust_weights/resnet2b.safetensors",),
        "eps": "0:8/255:5",
        "samples": 400,
    },
    "MNIST cnn4_pgd, standard, one budget": {
        "data": MNIST,
        "model": (f"torch:{MODELS}/mnist.py:cnn4?weights={DATA}/mnist_weights/cnn4_pgd.safetensors",),
        "eps": "0.3",
        "attack": ("standard",),
        "samples": 128,
    },
    "MNIST lenet5_advtrained, black-box of 1,000 queries, three budgets": {
        "data": MNIST,
        "model": (f"torch:{MODELS}/mnist.py:lenet5?weights={DATA}/mnist_weights/lenet5_advtrained.safetensors",),
        "eps": "0:0.4:3",
        "attack": ("black-box",),
        "queries": 1000,
        "samples": 100,
    },
}


def main() -> None:
    """Print a row for each plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20, help="what a calibration may take")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the run")
    parser.add_argument("--only", default="", help="plans whose names hold this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    print("| plan | samples, of the calibration | told, s | told, passes | took, s | passes | told / took |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, settings in PLANS.items():
        if options.only not in name:
            continue
        plan = plan_audit(checked(Request, settings | {"device": "cpu"}))
        found = estimate(plan, plan.models[0], options.seconds, options.workers)
        assert found is not None, "no model of these is on another machine"
        seconds, told = found.seconds, f"{found.seconds:.1f} ({found.low:.1f} to {found.high:.1f})"
        with tempfile.TemporaryDirectory() as folder:
            if options.workers == 1:
                started = time.process_time()
                rows = local.run(plan, Path(folder) / "run", Silent(), command="a benchmark").records()
                took = time.process_time() - started
            else:
                seconds = found.on_workers(options.workers, group=plan.group_size, n=len(plan.ids))
                told = f"{seconds:.1f} on {options.workers}, {told} on one"
                took, rows = together(plan, Path(folder) / "run", options.workers)
        passes = int(rows.forwards[rows.attack != "clean"].sum() + rows.backwards.sum())
        print(
            f"| {name} | {len(plan.ids)}, {found.samples} | {told} | {found.passes:,.0f} | {took:.1f} | {passes:,} "
            f"| {seconds / took:.2f} |",
            flush=True,
        )


def together(plan: Any, out: Path, number: int) -> tuple[float, Any]:
    """Seconds that as many processes would take with a processor each, and the rows that they made."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(number)]
    workers = [context.Process(target=partial(_work, plan, out, Shard(at + 1, number), pipes[at][1])) for at in range(number)]
    for one in workers:
        one.start()
    spent: list[Counter[str]] = [pipe[0].recv() for pipe in pipes]
    for one in workers:
        one.join()
    took = sum(
        sum(one[what] for one in spent) if what == "once" else max(one[what] for one in spent) for what in set().union(*spent)
    )
    return took, Run.open(out).records()


def _work(plan: Any, out: Path, shard: Shard, pipe: Any) -> None:
    """One process; it sends what each stage took it, and what it made once for all."""
    spent: Counter[str] = Counter()
    finish, once = shards.Shards.finish, shards.Shards.once

    def finished(self: Any, cell: str, key: str, told: Any) -> bool:
        spent[cell] += told.seconds
        return finish(self, cell, key, told)

    def made(make: Any) -> Any:
        started = time.process_time()
        try:
            return make()
        finally:
            spent["once"] += time.process_time() - started

    shards.Shards.finish = finished
    shards.Shards.once = lambda self, name, make: once(self, name, lambda: made(make))
    shards.run(plan, out, shard, Silent(), command="a benchmark", page=lambda folder: None, answer=lambda run, name: None)
    pipe.send(spent)


if __name__ == "__main__":
    main()
