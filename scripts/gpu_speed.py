"""Rates of attacks beside bare passes, and one hardening with its audits, for `scripts/gpu.py`."""

import copy
import importlib.util
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_parts import (
    ROOT,
    Size,
    Table,
    ViT,
    digits,
    preact_resnet18,
    seconds_of,
    synchronise,
    weights_of,
    wide_resnet28,
)
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import brinell
from brinell import plugins
from brinell.analysis.curve import WRONG, grid, worst_case
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.models._torch_model import TorchModel
from brinell.store.run import Run

DATA = (
    ROOT / "shared/data/cifar10",
    ROOT.parent / "shared/data/cifar10",
    Path(os.environ.get("BRINELL_SHARED", ".")) / "cifar10",
)
"""Where the images of CIFAR-10 are looked for."""
CHUNK = 100
"""Samples of AutoAttack at once, between which the time is looked at."""
TINY = 1e-5
"""A budget that fools nobody, so that batches stay full."""
EPS = 8 / 255


# Rates


def rates(table: Table) -> None:
    """Passes a second of attacks beside bare passes."""
    from cifar10 import resnet20  # of examples/models, which `gpu_parts` puts on the path

    batch, device = table.size.batch, table.device
    small = table.is_small
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        vit = (ViT(64, 2, 32, 8), 32) if small else (ViT(768, 12, 224, 16), 224)
        networks: dict[str, tuple[nn.Module, int, int]] = {
            "ResNet-20": (resnet20(), 32, batch),
            "WideResNet-28-1" if small else "WideResNet-28-10": (
                wide_resnet28(1 if small else 10),
                32,
                batch,
            ),
            "ViT of width 64" if small else "ViT-B/16": (*vit, batch // 4),
        }
    for name, (network, side, n) in networks.items():
        with table.part("rate", name, needed=6 * table.size.moment):
            rates_of(table, name, network.eval(), side, max(n, 2), device)


def rates_of(
    table: Table, name: str, network: nn.Module, side: int, n: int, device: torch.device
) -> None:
    """Rows of one network."""
    domain = Domain(kind="image", shape=(3, side, side))
    model = TorchModel(network, domain, name=name)
    x = torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1)).to(device)
    with model.info.session(device):
        with torch.no_grad():
            y = model.predict(x).argmax(1)

        def forward() -> None:
            with torch.no_grad():
                network(x)

        def forward_and_backward() -> None:
            leaf = x.clone().requires_grad_()
            torch.autograd.grad(F.cross_entropy(network(leaf), y), leaf)

        bare = {}
        for kind, work in (("forward", forward), ("forward and backward", forward_and_backward)):
            bare[kind] = pace_of(work, table.size.moment / 2, device) / n
            table.add(
                "rate",
                f"{name}, bare {kind} passes",
                f"{1 / bare[kind]:.0f} a second",
                f"float32, batch {n}",
            )
        for attack, pace in (
            ("apgd", bare["forward and backward"]),
            ("square", bare["forward"]),
            ("rlab", bare["forward"]),
        ):
            steps = int(np.clip(table.size.moment / (pace * n), 5, 1000))
            attack_rate(table, model, x, y, attack, steps, bare)


def pace_of(work: Callable[[], object], moment: float, device: torch.device) -> float:
    """Seconds of some work, repeated for a moment."""
    work()  # the first calls choose kernels
    times = max(3, round(moment / seconds_of(work, device)))
    return seconds_of(lambda: [work() for _ in range(times)], device) / times


class TimeOverError(Exception):
    """An attack has run for long enough."""


def attack_rate(
    table: Table,
    model: TorchModel,
    x: Tensor,
    y: Tensor,
    name: str,
    steps: int,
    bare: dict[str, float],
) -> None:
    """A row: the rate of an attack of so many steps, as a share of bare passes."""
    n, device = len(x), x.device
    settings = {"loss": "ce"} if name == "apgd" else {}
    attack = plugins.build("attack", name, settings | {"steps": str(steps)})
    threat = Threat(
        distance=plugins.build("distance", "linf", {}),
        eps=torch.full((n,), TINY, device=device),
        domain=model.domain,
    )
    batch = Batch(ids=torch.arange(n, device=device), x=x, y=y)

    counts, deadline = [0, 0], float("inf")

    def count(forwards: int, backwards: int) -> None:
        """Count passes; ends the attack after its time."""
        counts[:] = counts[0] + forwards, counts[1] + backwards
        if time.monotonic() > deadline:
            raise TimeOverError

    def run(queries: int) -> None:
        """One run of the attack."""
        ledger = Ledger(
            model, batch, threat, access=attack.access, batch_size=n, queries=queries, on_pass=count
        )
        with suppress(TimeOverError):
            copy.deepcopy(attack)(
                ledger.oracle(),
                ledger.batch,
                ledger.threat,
                Streams.of(0, torch.arange(n, device=device)),
            )

    run(3)
    counts[:] = [0, 0]
    deadline = time.monotonic() + 2 * table.size.moment
    seconds = seconds_of(lambda: run(steps + 1), device)
    forwards, backwards = counts
    plain = backwards * bare["forward and backward"] + (forwards - backwards) * bare["forward"]
    note = f"{forwards} forwards, {backwards} backwards in {seconds:.1f} s"
    table.add(
        "rate",
        f"{model.name}, {name}",
        f"{forwards / seconds:.0f} a second, {plain / seconds:.2f} of bare passes",
        note,
    )


# One hardening


def images(size: Size, data: Path | None) -> tuple[str, tuple[Any, Any], tuple[Any, Any]]:
    """Name, training images and test images."""
    folder = next(
        (
            folder
            for folder in ((data,) if data else DATA)
            if (folder / "cifar10_test.npz").is_file()
        ),
        None,
    )
    if folder is None and data is not None:
        raise SystemExit(
            f"error: {data} holds no cifar10_test.npz: name the folder that does, "
            "or leave --data out"
        )
    if folder is None:
        x, y = digits()
        x = np.repeat(np.kron(x, np.ones((1, 1, 4, 4), np.float32)), 3, 1)
        arrays, name = (
            [(x[:1200], y[:1200]), (x[1200:], y[1200:])],
            "enlarged digits (no CIFAR-10 here: --data)",
        )
    else:
        archives = [
            np.load(folder / f"cifar10_{part}.npz") for part in ("train_a", "train_b", "test")
        ]
        arrays = [
            (part["images"].transpose(0, 3, 1, 2).astype(np.float32) / 255, part["labels"])
            for part in archives
        ]
        name = "CIFAR-10"
    x, y = (np.concatenate(columns)[: size.images] for columns in zip(*arrays[:-1], strict=True))
    x_test, y_test = arrays[-1]
    rows = np.sort(
        np.concatenate(
            [np.flatnonzero(y_test == label)[: size.audited // 10] for label in range(10)]
        )
    )
    return (
        f"{name}, {len(x)} images",
        (x, y.astype(np.int64)),
        (x_test[rows], y_test[rows].astype(np.int64)),
    )


def hardening(table: Table, folder: Path, data: Path | None) -> None:
    """PreActResNet-18 trained by N-FGSM; then fast, and the reference AutoAttack where it is at
    hand.
    """
    name, train, test = images(table.size, data)
    device, n = table.device, len(test[0])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        network = preact_resnet18(table.size.width)
    subject = f"PreActResNet-18 of width {table.size.width}"
    result: Any = None
    with table.part("harden", subject, needed=60 * table.size.minutes / 3):
        minutes = min(table.size.minutes, max(0.01, (table.remaining - 90) / 60))
        out = folder / "hardened"
        settings: dict[str, Any] = {
            "recipe": "n-fgsm",
            "eps": "8/255",
            "minutes": minutes,
            "batch_size": min(128, len(train[0]) // 4),
        }
        settings |= {
            "attack": "fgsm",
            "budgets": "8/255",
            "samples": min(100, n),
            "augment": "shift-flip",
        }
        result = brinell.harden(network, test, train=train, out=out, device=str(device), **settings)
        last = result.training
        pace = last.forwards / last.seconds
        note = f"{name}, {last.steps} steps in {last.seconds:.0f} s, {pace:.0f} forwards a second"
        table.add("harden", subject, f"{minutes:.1f} minutes of n-fgsm", note)
        network.load_state_dict(load_file(weights_of(result, out)))
    if result is None:
        return
    network = network.eval().to(device)
    x, y = (torch.from_numpy(part).to(device) for part in test)
    with torch.no_grad():
        clean = int((network(x).argmax(1) == y).sum())
    fast, broken = 0.0, set[int]()
    with table.part("harden", "fast", needed=10):
        run = folder / "fast"
        fast = seconds_of(
            lambda: brinell.audit(
                network, test, eps="8/255", attack="fast", out=run, device=str(device)
            ),
            device,
        )
        opened = Run.open(run)
        cells = grid(opened.rows, opened.manifest, opened.manifest["models"][0]["name"])
        broken = set(
            cells.ids[worst_case(cells, range(len(cells.stages)))[:, -1] == WRONG].tolist()
        )
        note = f"{clean} right without an attack; {fast:.1f} s with checks and page"
        table.add("harden", "fast", f"{n - len(broken)} of {n} robust", note)
    if importlib.util.find_spec("autoattack") is None:
        table.add("harden", "reference AutoAttack", "left out", "autoattack is not installed")
        return
    with table.part("harden", "reference AutoAttack", needed=45):
        from autoattack import AutoAttack

        reference = AutoAttack(
            network, norm="Linf", eps=EPS, version="standard", device=str(device), verbose=False
        )
        robust, total, last, m = 0, 0.0, 0.0, 0
        for part, labels in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
            if table.remaining < last:
                break
            synchronise(device)
            start = time.perf_counter()
            answers = reference.run_standard_evaluation(part, labels, bs=CHUNK)
            with torch.no_grad():
                robust += int((network(answers).argmax(1) == labels).sum())
            last = time.perf_counter() - start
            total, m = total + last, m + len(part)
        ratio = f"; fast takes {fast / n / (total / m):.3f} of its time a sample" if fast else ""
        robust_to_fast = m - sum(sample < m for sample in broken)
        table.add(
            "harden",
            "reference AutoAttack",
            f"{robust} of {m} robust, by fast {robust_to_fast}",
            f"{total:.1f} s{ratio}",
        )
