"""How near the time comes that `brinell audit --dry-run` tells: plans of different kinds, estimated and then carried out.

Times are of the processor, on one thread, so that other work on the machine does not tell. The data and the weights are those
in BRINELL_SHARED.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from brinell.engine.progress import SilentProgress
from brinell.engine.request import Request
from brinell.engine.toml import parse_request
from brinell.runners import local
from brinell.runners.estimate import estimate
from brinell.studies.audit.plan import plan_audit

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
    parser.add_argument("--only", default="", help="plans whose names hold this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    print("| plan | samples, of the calibration | told, s | told, passes | took, s | passes | told / took |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, settings in PLANS.items():
        if options.only not in name:
            continue
        plan = plan_audit(parse_request(Request, settings | {"device": "cpu"}))
        forecast = estimate(plan, plan.models[0], options.seconds)
        assert forecast is not None, "no model of these is on another machine"
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            rows = local.run(plan, Path(folder) / "run", SilentProgress(), command="a benchmark").records()
            took = time.process_time() - start
        passes = int(rows.forwards[rows.attack != "clean"].sum() + rows.backwards.sum())
        print(
            f"| {name} | {len(plan.ids)}, {forecast.samples} | {forecast.seconds:.1f} ({forecast.low:.1f} to "
            f"{forecast.high:.1f}) "
            f"| {forecast.passes:,.0f} | {took:.1f} | {passes:,} "
            f"| {forecast.seconds / took:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
