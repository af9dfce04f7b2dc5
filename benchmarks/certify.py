"""Proofs of brinell certify beside those of auto_LiRPA: how many of the first images, in how much processor time.

    python benchmarks/certify.py [--cases cnn_wide_kw:1/255 ...] [--samples 100] [--methods crown alpha-crown] [--peer CHECKOUT]

Only images that are classified correctly and that an attack (APGD, 30 steps, on cross-entropy and on nine targets) does not break
are bounded, by both sides. Both run in this process on one thread, ours in float32 with rounding accounted for and again in
float64 where that may have cost the proof, the peer in float32. The data and the weights are those in BRINELL_SHARED. CHECKOUT is
a source tree of auto_LiRPA.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import measure
import torch
from torch import Tensor, nn

import brinell
from brinell import plugins
from brinell.bounds._trace import trace
from brinell.core.domain import Domain
from brinell.engine.sources import open_data
from brinell.studies.certify.proofs import Proofs, Prover

CASES = ("cnn_wide_kw:1/255", "cnn_wide_kw:2/255", "cnn4_pgd:1/10", "cnn4_pgd:3/20", "resnet2b:1/255", "resnet4b:1/255")
ATTACKS = ("apgd?steps=30", "apgd-t?steps=30")
PEER_METHODS = {"crown": "CROWN", "alpha-crown": "CROWN-Optimized"}


def ours(net: nn.Module, domain: Domain, x: Tensor, y: Tensor, eps: float, spec: str) -> Tensor:
    """(n,) bool: proven by one of our methods."""
    name, _, options = plugins.parse(spec)
    prover = Prover.of(trace(net, x[:8]), domain, "linf")
    proofs = Proofs.none(len(x))
    proofs.extend(prover, name, plugins.build("bound", name, options), x, y, [eps], torch.ones(len(x), dtype=torch.int64))
    return proofs.level >= 0


def theirs(
    net: nn.Module, domain: Domain, x: Tensor, y: Tensor, eps: float, spec: str, batch: int, mode: str = "patches"
) -> Tensor:
    """(n,) bool: proven by the method of that name in auto_LiRPA."""
    import auto_LiRPA
    from auto_LiRPA.perturbations import PerturbationLpNorm

    options = {"conv_mode": mode, "optimize_bound_args": {"iteration": 20, "lr_alpha": 0.1}}
    bounded = auto_LiRPA.BoundedModule(net, torch.empty_like(x[:1]), bound_opts=options, device="cpu")
    low, high = domain.bounds(x)
    proven = []
    for part, labels in zip(x.split(batch), y.split(batch), strict=True):
        classes = int(net(part[:1]).shape[1])
        others = torch.arange(classes).expand(len(part), classes)
        others = others[others != labels[:, None]].view(len(part), classes - 1)
        eye = torch.eye(classes)
        functions = eye[labels][:, None] - eye[others]
        ball = PerturbationLpNorm(norm=float("inf"), x_L=(part - eps).clamp(min=low), x_U=(part + eps).clamp(max=high))
        box = auto_LiRPA.BoundedTensor(part, ball)
        lower, _ = bounded.compute_bounds(x=(box,), C=functions, method=PEER_METHODS[spec], bound_upper=False)
        proven.append((lower > 0).all(1))
    return torch.cat(proven)


def sweep(net: nn.Module, domain: Domain, x: Tensor, y: Tensor, eps: float, specs: Sequence[str], budgets: int) -> Proofs:
    """Proofs by several methods in turn at equally spaced budgets up to one."""
    prover, proofs = Prover.of(trace(net, x[:8]), domain, "linf"), Proofs.none(len(x))
    levels = [eps * (k + 1) / budgets for k in range(budgets)]
    for spec in specs:
        name, _, options = plugins.parse(spec)
        limit = torch.full((len(x),), budgets, dtype=torch.int64)
        proofs.extend(prover, name, plugins.build("bound", name, options), x, y, levels, limit)
    return proofs


def print_sweep(title: str, budgets: int, *arguments: Any) -> None:
    """Print processor seconds at one budget and at several, and their ratio."""
    seconds = []
    for count in (1, budgets):
        start = time.process_time()
        proofs = sweep(*arguments, count)
        seconds.append(time.process_time() - start)
    proven = int((proofs.level + 1).sum())
    total = budgets * len(proofs.level)
    figures = f"{seconds[0]:.1f} s at one budget, {seconds[1]:.1f} s at {budgets}, ratio {seconds[1] / seconds[0]:.2f}"
    print(f"{title}: {figures}; {proven} of {total} pairs of image and budget proven", flush=True)


def timed(prove: Callable[[], Tensor]) -> tuple[int, float]:
    """Number of proofs, and processor seconds."""
    start = time.process_time()
    proven = prove()
    return int(proven.sum()), time.process_time() - start


def timed_peer(*arguments: Any) -> tuple[int, float]:
    """As `timed`, for the peer: in its faster mode where that takes the network, otherwise in the other one."""
    try:
        return timed(lambda: theirs(*arguments))
    except AssertionError:
        return timed(lambda: theirs(*arguments, "matrix"))


def main() -> None:
    """Print a row for each case and method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--methods", nargs="+", default=["crown", "alpha-crown"])
    parser.add_argument("--batch", type=int, default=1, help="images that the peer bounds at a time; one is its fastest here")
    parser.add_argument("--budgets", type=int, default=0, help="compare so many budgets up to eps with eps alone, by all methods")
    parser.add_argument("--peer", help="a source tree of auto_LiRPA")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.peer:
        sys.path.insert(0, arguments.peer)
    if not arguments.budgets:
        print("| network, eps | clean | attacked | method | proven | s | auto_LiRPA proven | s | time of ours over theirs |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in arguments.cases:
        name, _, text = case.partition(":")
        subject = measure.subject(name)
        net, eps, domain = subject.module(), float(Fraction(text)), subject.domain
        data = open_data(subject.data_spec)
        x, y = data.load(range(arguments.samples)), torch.as_tensor(data.labels())[: arguments.samples].long()
        with torch.no_grad():
            right = net(x).argmax(1) == y
        attacked: Any = brinell.attack(net, x[right], y[right], list(ATTACKS), eps=eps)
        survivors = right.nonzero()[:, 0][~attacked.success]
        x, y = x[survivors], y[survivors]
        if arguments.budgets:
            print_sweep(f"{subject.name}, {text}", arguments.budgets, net, domain, x, y, eps, arguments.methods)
            continue
        for spec in arguments.methods:
            proven, seconds = timed(functools.partial(ours, net, domain, x, y, eps, spec))
            row = [f"{subject.name}, {text}", int(right.sum()), len(x), spec, proven, f"{seconds:.1f}"]
            if arguments.peer and spec in PEER_METHODS:
                peer, peer_seconds = timed_peer(net, domain, x, y, eps, spec, arguments.batch)
                row += [peer, f"{peer_seconds:.1f}", f"{seconds / peer_seconds:.2f}"]
            print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
