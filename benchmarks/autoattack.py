"""Our cascades beside the reference AutoAttack: the same model, samples, budget, batch size and threads, one after the other.

    python benchmarks/autoattack.py --reference CHECKOUT [--cascades standard fast] [--subjects ...] [--samples 500]

CHECKOUT is a working tree of the reference implementation; it is imported from there and is no dependency of ours. Both sides
judge the first `samples` test images, those that are wrong from the start included. Forwards and backwards are counted by a
hook on the module, for both alike.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import measure
import numpy as np
import torch

from brinell import api
from brinell.auditing.spacing import parse_eps
from brinell.core.record import BROKEN
from brinell.core.torch_target import TorchTarget
from brinell.datasets._memory import ArrayDataset
from brinell.store.run import Run

MORE = {
    "resnet2b": ("CIFAR-10 resnet2b", "cifar10.py:resnet2b", "cifar10_robust_weights/resnet2b", 8 / 255, "8/255"),
    "cnn_wide_kw": ("CIFAR-10 cnn_wide_kw", "cifar10.py:cnn_wide_kw", "cifar10_robust_weights/cnn_wide_kw", 8 / 255, "8/255"),
    "lenet5_advtrained": ("MNIST lenet5_advtrained", "mnist.py:lenet5", "mnist_weights/lenet5_advtrained", 0.3, "0.3"),
    "lenet5_clean": ("MNIST lenet5_clean", "mnist.py:lenet5", "mnist_weights/lenet5_clean", 0.1, "0.1"),
}


@dataclass(frozen=True)
class Verdict:
    """What one side found, and what it cost."""

    robust: np.ndarray
    """(n,) bool: samples that hold."""
    forwards: int
    backwards: int
    cpu: float
    stages: list[tuple[str, float, int, float]]
    """Name, accuracy after it, forwards, seconds; ours only."""


def subject(name: str) -> measure.Subject:
    """A network of the shared data by its short name."""
    if name in measure.SUBJECTS:
        return measure.SUBJECTS[name]
    title, factory, weights, eps, text = MORE[name]
    mnist = factory.startswith("mnist")
    return measure.Subject(
        name=title,
        factory=factory,
        weights=f"{weights}.safetensors",
        data="mnist/mnist_test.npz" if mnist else "cifar10/cifar10_test.npz",
        shape=(1, 28, 28) if mnist else (3, 32, 32),
        eps=eps,
        eps_text=text,
    )


def first_images(one: measure.Subject, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first n test images with their labels, right or wrong."""
    with np.load(measure.SHARED / one.data) as arrays:
        images, labels = arrays["images"][:n], arrays["labels"][:n]
    x = torch.from_numpy(images).reshape(n, *images.shape[1:3], -1).movedim(-1, 1).float().div(255).contiguous()
    return x, torch.from_numpy(labels.astype(np.int64))


def reference(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, norm: str, eps: float, options) -> Verdict:
    """The reference's standard version."""
    from autoattack import AutoAttack

    with tempfile.TemporaryDirectory() as folder, measure.counting(module) as passes:
        began = time.process_time()
        attack = AutoAttack(
            module,
            norm={"linf": "Linf", "l2": "L2"}[norm],
            eps=eps,
            seed=options.seed,
            device="cpu",
            verbose=False,
            log_path=f"{folder}/log.txt",
        )
        adversarial = attack.run_standard_evaluation(x, y, bs=options.batch_size)
        spent = time.process_time() - began
    with torch.no_grad():
        robust = torch.cat([module(part) for part in adversarial.split(256)]).argmax(1) == y
    return Verdict(robust.numpy(), passes.forwards, passes.backwards, spent, [])


def ours(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, norm: str, eps: str, cascade: str, options) -> Verdict:
    """One of our cascades, records and all."""
    data = ArrayDataset(x, y)
    target = TorchTarget(module, data.domain, name="module")
    with tempfile.TemporaryDirectory() as folder, measure.counting(module) as passes:
        began = time.process_time()
        api.audit(
            target, data, norm=norm, eps=eps, attack=cascade, samples=len(y), seed=options.seed, batch_size=options.batch_size,
            device="cpu", out=Path(folder) / "run",
        )  # fmt: skip
        spent = time.process_time() - began
        run = Run.open(Path(folder) / "run")
        rows = run.records()
    broken = np.isin(rows.outcome.astype(str), [str(outcome) for outcome in BROKEN])
    robust, stages = np.ones(len(y), dtype=bool), []
    for stage in ["clean", *(one["name"] for one in run.manifest["stages"])]:
        at = rows.attack == stage
        robust[rows.sample_id[at & broken]] = False
        stages.append((stage, float(robust.mean()), int(rows.forwards[at].sum()), float(rows.seconds[at].sum())))
    return Verdict(robust, passes.forwards, passes.backwards, spent, stages)


def main() -> None:
    """The comparison on every network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True, help="working tree of the reference AutoAttack")
    parser.add_argument("--subjects", nargs="+", default=["cnn4_pgd", "resnet4b"])
    parser.add_argument("--cascades", nargs="+", default=["standard", "fast"])
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--eps", default=None, help="default: each network's own")
    for name, default in (("samples", 500), ("batch-size", 250), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sys.path.insert(0, str(options.reference))
    told = (
        f"python benchmarks/autoattack.py --reference CHECKOUT --subjects {' '.join(options.subjects)} --cascades "
        f"{' '.join(options.cascades)} --norm {options.norm} --samples {options.samples} --seed {options.seed}"
        + (f" --eps {options.eps}" if options.eps else "")
    )
    columns = (
        "network",
        "eps",
        "cascade",
        "robust",
        "only ours held",
        "only reference held",
        "forwards",
        "backwards",
        "cpu s",
        "time",
    )
    table = measure.Table("Our cascades beside the reference AutoAttack", told, columns, "Time is ours over the reference's.")
    for name in options.subjects:
        one = subject(name)
        text = options.eps or one.eps_text
        eps = float(parse_eps(text).values[-1])
        module, (x, y) = one.module(), first_images(one, options.samples)
        there = reference(module, x, y, options.norm, eps, options)
        table.add(
            one.name, text, "reference", int(there.robust.sum()), "", "", there.forwards, there.backwards, f"{there.cpu:.1f}", 1
        )
        for cascade in options.cascades:
            here = ours(module, x, y, options.norm, text, cascade, options)
            table.add(
                one.name,
                text,
                cascade,
                int(here.robust.sum()),
                np.flatnonzero(here.robust & ~there.robust).tolist(),
                int((there.robust & ~here.robust).sum()),
                f"{here.forwards} (1/{there.forwards / here.forwards:.1f})",
                f"{here.backwards} (1/{there.backwards / max(1, here.backwards):.1f})",
                f"{here.cpu:.1f}",
                f"{here.cpu / there.cpu:.3f}",
            )
            for stage, accuracy, forwards, seconds in here.stages:
                print(f"<!-- {cascade} {stage}: {accuracy:.4f}, {forwards} forwards, {seconds:.1f} s -->", flush=True)


if __name__ == "__main__":
    main()
