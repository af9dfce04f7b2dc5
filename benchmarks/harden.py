"""Hardening at a budget of processor seconds, evaluated by the standard version of AutoAttack on
held-out test samples.

    BRINELL_SHARED=... OMP_NUM_THREADS=1 python benchmarks/harden.py --case mnist-60 ... [--seeds 0
    1 2] [--samples 1000] python benchmarks/harden.py --overhead

Settings of a case (recipe, rate, ramp, augmentation) were chosen on samples of the training data
that were set aside, by PGD of twenty steps, or APGD; those of resnet20-600 on test images 5,000 to
5,800, by PGD of ten steps, since its published weights have seen all training data. The time of the
training counts its checks and checkpoints, and not the audits. Freed memory is kept, as by `brinell
harden`. Each line is one JSON object.

--overhead: a step of the loop compared with the bare passes of the same recipe (crafting, forward,
backward, optimiser) and with a step of plain training; medians of interleaved blocks, so that what
else the machine does falls on all alike.
"""

import itertools
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import brinell
from brinell import plugins
from brinell.engine.progress import SilentProgress
from brinell.models._torch_model import TorchModel
from brinell.models._weights import load_weights_file
from brinell.training.checks import Checker
from brinell.training.data import TrainingSamples
from brinell.training.loop import Loop, Settings
from brinell.training.recipe import Recipe, TrainedNetwork

GROUP = "hardening"
RUNS = {"": "--case mnist-60 --samples 20 --attack fgsm", "--overhead": ""}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, its data, and how it is hardened."""

    data: str
    network: str
    weights: str = ""
    """Weights file at the start of the training; empty for a start from scratch."""
    eps: str
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    goal: str = ""
    """The figure that is aimed at, in a few words."""


CNN4 = {"recipe": "pgd(steps=3)", "rate": 0.005, "batch_size": 64}
SGD = {"optimizer": "sgd", "precision": "bf16"}
RESNET4B = SGD | {"rate": 0.02, "ramp": 0.0}
WEIGHTS4 = "cifar10_robust_weights/resnet4b.safetensors"
CASES = {
    "mnist-60": Case(
        data="mnist", network="cnn4", eps="0.3", seconds=60, settings=CNN4, goal="84 % robust"
    ),
    "mnist-300": Case(
        data="mnist",
        network="cnn4",
        eps="0.3",
        seconds=300,
        goal="87 % robust, 98 % clean",
        settings=CNN4 | {"recipe": "pgd(steps=5)"},
    ),
    "resnet4b-60": Case(
        data="cifar10",
        network="resnet4b",
        weights=WEIGHTS4,
        eps="8/255",
        seconds=60,
        goal="32 % robust",
        settings=RESNET4B | {"recipe": "n-fgsm(step_size=1.5)", "batch_size": 32, "average": 0.995},
    ),
    "resnet4b-600": Case(
        data="cifar10",
        network="resnet4b",
        weights=WEIGHTS4,
        eps="8/255",
        seconds=600,
        goal="35 % robust, 65 % clean",
        settings=RESNET4B | {"recipe": "n-fgsm", "augment": "shift-flip"},
    ),
    "resnet20-600": Case(
        data="cifar10",
        network="resnet20",
        weights="cifar10_weights/resnet20.safetensors",
        eps="2/255",
        seconds=600,
        settings=SGD
        | {"recipe": "n-fgsm", "rate": 0.2, "batch_size": 128, "augment": "shift-flip"},
        goal="66 % robust, 83 % clean",
    ),
}


def load(data: str, split: str, n: int | None = None) -> Any:
    """The first images of a part of the shared data, as data of brinell."""
    files = [f"{data}/{data}_{split}.npz"]
    if (data, split) == ("cifar10", "train"):
        files = [f"{data}/{data}_{split}_{part}.npz" for part in "ab"]
    parts = [measure.images(file, slice(n)) for file in files]
    x, y = (torch.cat(column)[:n].numpy() for column in zip(*parts, strict=True))
    return brinell.data(
        (255 * x).round().astype(np.uint8), y, kind="image", layout="first", name=f"{data}-{split}"
    )


def network(case: Case, seed: int) -> nn.Module:
    """The network with its weights, or first weights by the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module: nn.Module = getattr(
            measure.import_example(f"models/{case.data}.py"), case.network
        )()
    if case.weights:
        load_weights_file(module, str(measure.SHARED / case.weights))
    return module


def run(name: str, seed: int, samples: int, attack: str, out: Path) -> dict[str, Any]:
    """One hardening and its audits."""
    case = CASES[name]
    settings = {
        "budgets": f"0,{case.eps}",
        "minutes": case.seconds / 60,
        "attack": attack,
        "samples": samples,
        "seed": seed,
    }
    settings |= {
        "device": "cpu",
        "out": out / f"{name}-{seed}",
        "progress": SilentProgress(),
    } | case.settings
    data, train = load(case.data, "test", samples), load(case.data, "train")
    result = brinell.harden(network(case, seed), data, train=train, eps=case.eps, **settings)
    figures = {
        f"{label}_{when}": [round(100 * value, 1) for value in (rate.value, rate.low, rate.high)]
        for when, side in (("before", result.before), ("after", result.after))
        for label, rate in (("clean", side.clean_accuracy), ("robust", side.robust_accuracy[-1]))
    }
    last = result.training
    about = {
        "case": name,
        "goal": case.goal,
        "seed": seed,
        "seconds": round(last.seconds, 1),
        "steps": last.steps,
    }
    return (
        about
        | {"recipe": last.recipe, "attack": attack, "n": result.after.n}
        | figures
        | {"events": result.events}
    )


def overhead(blocks: int = 9, steps: int = 12) -> dict[str, Any]:
    """Milliseconds of processor time of a step: plain, the bare passes of a recipe, and the loop."""
    report: dict[str, Any] = {}
    for name, recipe in (
        ("mnist-60", "n-fgsm"),
        ("mnist-60", "pgd(steps=5)"),
        ("resnet4b-60", "n-fgsm"),
    ):
        times: dict[str, list[float]] = defaultdict(list)
        with ExitStack() as stack:
            works = _works(CASES[name], recipe, steps, stack)
            for block in range(blocks + 1):
                for key, work in works.items():
                    start = time.process_time()
                    work()
                    if block:  # the first one warms up
                        times[key].append(1000 * (time.process_time() - start) / steps)
        ratios = {
            key: statistics.median(a / b for a, b in zip(times["loop"], times[key], strict=True))
            for key in ("bare", "plain")
        }
        report[f"{CASES[name].network} {recipe}"] = {
            **{key: round(statistics.median(values), 2) for key, values in times.items()},
            "loop_over_bare": round(ratios["bare"], 3),
            "loop_over_plain": round(ratios["plain"], 3),
        }
    return report


def _works(case: Case, text: str, steps: int, stack: ExitStack) -> dict[str, Callable[[], None]]:
    dataset = load(case.data, "train", 4096)
    module = network(case, 0).requires_grad_(True).train()
    model = TorchModel(module, dataset.domain)
    stack.enter_context(model.session())
    distance = plugins.build("distance", "linf", {})
    samples = TrainingSamples.of(dataset, np.arange(len(dataset)), torch.device("cpu"))
    checker = Checker(
        x=samples.load(torch.arange(64)),
        y=samples.labels[:64],
        distance=distance,
        domain=dataset.domain,
        batch_size=64,
        seed=0,
    )
    settings = Settings(
        eps=0.1,
        epochs=1000,
        batch_size=128,
        rate=1e-4,
        weight_decay=0.0,
        average=0.999,
        seed=0,
    )
    recipe = Recipe.of(text).fit(dataset.domain, distance)
    loop = Loop(TrainedNetwork.of(model), samples, [samples], checker, recipe, distance, settings)
    module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    images, labels = samples.load(torch.arange(128)), samples.labels[:128]

    def update(inputs: Tensor) -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def plain() -> None:
        for _ in range(steps):
            update(images)

    def bare() -> None:
        rng = torch.Generator().manual_seed(0)
        passes = 1 if text == "n-fgsm" else 5
        for _ in range(steps):
            inputs = (images + torch.empty_like(images).uniform_(-0.1, 0.1, generator=rng)).clamp_(
                0, 1
            )
            for _ in range(passes):
                leaf = inputs.requires_grad_()
                (grad,) = torch.autograd.grad(
                    F.cross_entropy(module(leaf), labels, reduction="sum"), leaf
                )
                inputs = (
                    (leaf.detach() + 0.05 * grad.sign())
                    .sub_(images)
                    .clamp_(-0.1, 0.1)
                    .add_(images)
                    .clamp_(0, 1)
                )
            update(inputs)

    def run_loop() -> None:
        for _ in range(steps):
            loop._step(0.5)
            loop.state.step += 1

    return {"plain": plain, "bare": bare, "loop": run_loop}


def main() -> None:
    """Measure what was asked for."""
    options = measure.arguments(
        __doc__,
        case=list(CASES),
        seeds=[0],
        samples=1000,
        attack="standard",
        overhead=False,
        out=Path,
    )
    if options.overhead:
        print(json.dumps(overhead()), flush=True)
        return
    with tempfile.TemporaryDirectory() as temporary:
        for name, seed in itertools.product(options.case, options.seeds):
            print(
                json.dumps(
                    run(name, seed, options.samples, options.attack, options.out or Path(temporary))
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
