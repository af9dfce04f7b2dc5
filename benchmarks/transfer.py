"""What `brinell transfer` costs over the bare passes that a matrix over seven CIFAR-10 networks
needs.

    python benchmarks/transfer.py [--samples 100] [--steps 10] [--repetitions 3]

Bare: for each source as many gradient passes as MI-FGSM has steps and one forward, then each
network once on the clean inputs and once on each source's examples, in one batch each. Both run in
turns in one process; `cpu` is its processor time.
"""

import tempfile
from pathlib import Path

import measure
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import brinell

GROUP = "studies"
RUNS = {"": "--samples 8 --repetitions 1"}
NETWORKS = ("resnet20", "resnet32", "resnet44", "captum_cnn", "resnet4b", "resnet2b", "cnn_wide_kw")


def replay(modules: list[nn.Module], x: Tensor, y: Tensor, steps: int) -> None:
    """The passes alone."""
    for source in modules:
        for _ in range(steps):
            leaf = x.clone().requires_grad_()
            torch.autograd.grad(F.cross_entropy(source(leaf), y, reduction="sum"), leaf)
    with torch.no_grad():
        for module in modules:
            for _ in range(2 + len(modules)):
                module(x)


def main() -> None:
    """Time both in turns."""
    options = measure.arguments(__doc__, samples=100, steps=10, repetitions=3)
    subjects = [measure.subject(name) for name in NETWORKS]
    modules = [subject.module() for subject in subjects]
    x, y = subjects[0].first(options.samples)
    models, settings = (
        [subject.model_spec for subject in subjects],
        {"eps": "8/255", "attack": f"mi-fgsm?steps={options.steps}"},
    )
    table = measure.Table("Transfer over its bare passes", "transfer cpu s, bare cpu s, ratio")
    ratios = []
    for _ in range(options.repetitions):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            _, ours = measure.timed(
                lambda out=out: brinell.transfer(
                    model=models, data=(x, y), out=out, progress=False, **settings
                )
            )
        _, bare = measure.timed(lambda: replay(modules, x, y, options.steps))
        ratios.append(ours / bare)
        table.add(f"{ours:.1f}", f"{bare:.1f}", f"{ratios[-1]:.2f}")
    print(f"\nratio {measure.spread(ratios, 2)}")


if __name__ == "__main__":
    main()
