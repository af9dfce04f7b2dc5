"""What `brinell transfer` costs over the bare passes that a matrix over seven CIFAR-10 networks needs.

    python benchmarks/transfer.py [--samples 100] [--steps 10] [--repetitions 3]

Bare: for each source as many gradient passes as MI-FGSM has steps and one forward, then each network once on the clean inputs
and once on each source's examples, in one batch each. Both run in turns in one process; `cpu` is its processor time.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import measure
import torch
from torch.nn import functional as F

import brinell
from brinell.datasets.npz import Npz
from brinell.models.torch import TorchModule

NETWORKS = {
    "resnet20": "cifar10_weights/resnet20",
    "resnet32": "cifar10_weights/resnet32",
    "resnet44": "cifar10_weights/resnet44",
    "captum_cnn": "cifar10_weights/captum_cnn_plain",
    "resnet4b": "cifar10_robust_weights/resnet4b",
    "resnet2b": "cifar10_robust_weights/resnet2b",
    "cnn_wide_kw": "cifar10_robust_weights/cnn_wide_kw",
}


def bare(modules: list[torch.nn.Module], x: torch.Tensor, y: torch.Tensor, steps: int) -> None:
    """The passes alone."""
    for source in modules:
        for _ in range(steps):
            leaf = x.clone().requires_grad_()
            torch.autograd.grad(F.cross_entropy(source(leaf), y, reduction="sum"), leaf)
        with torch.no_grad():
            source(x)
    with torch.no_grad():
        for module in modules:
            for _ in range(1 + len(modules)):
                module(x)


def timed(work: Callable[[], object]) -> float:
    """Processor seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Time both in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Npz(path=str(measure.SHARED / "cifar10" / "cifar10_test.npz"))()
    factory = measure.ROOT / "examples" / "models" / "cifar10.py"
    models = [
        TorchModule(path=f"{factory}:{name}", weights=str(measure.SHARED / f"{weights}.safetensors"))(data.domain)
        for name, weights in NETWORKS.items()
    ]
    modules = []
    for model in models:
        module = model.info.module
        assert module is not None
        modules.append(module.eval().requires_grad_(False))
    x, y = data.load(range(options.samples)), torch.as_tensor(data.labels()[: options.samples])
    ratios = []
    for _ in range(options.repetitions):
        with tempfile.TemporaryDirectory() as folder:
            full = timed(
                lambda folder=folder: brinell.transfer(
                    model=models,
                    data=(x, y),
                    eps="8/255",
                    attack=f"mi-fgsm?steps={options.steps}",
                    out=Path(folder) / "t",
                    progress=False,
                )
            )
        passes = timed(lambda: bare(modules, x, y, options.steps))
        ratios.append(full / passes)
        print(f"transfer {full:.1f} s, bare passes {passes:.1f} s of processor time, ratio {full / passes:.2f}", flush=True)
    print(f"median ratio {sorted(ratios)[len(ratios) // 2]:.2f}")


if __name__ == "__main__":
    main()
