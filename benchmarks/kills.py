"""What each member of a cascade adds: samples that it fools alone, and that no other one fools.

    python benchmarks/kills.py --norm pixels --eps 10 --attacks sparse-pgd sigma-zero sparse-rs
    [--subjects resnet4b] [--samples 100] [--spgd CHECKOUT] [--sparse-rs CHECKOUT]

Every attack gets the same images, which the network gets right, all of them, with the same seed.
A pass is a forward or a backward of one sample; a fooled sample ends its run where the attack
allows it. `order` is greedy: first the member with the most kills per pass, then the one that adds
the most per pass to those before it, and so on; members that add nothing have no number.

With `--spgd`, the working tree of sparse-PGD's authors, their Sparse-AutoAttack runs beside ours:
the unprojected attack, then on its survivors the projected one, then Sparse-RS, with as many steps
as `--peer-steps` and `--peer-queries` say. With `--sparse-rs`, the working tree of Sparse-RS's
authors, their search for patches of side eps runs beside ours with as many queries as
`--peer-queries` says; of images with one channel, its last updates of single channels take that one.
"""

import sys
from argparse import Namespace
from types import ModuleType
from typing import NamedTuple

import measure
import numpy as np
import torch
from torch import Tensor, nn

from brinell.core.contracts import Streams, reach_of
from brinell.models._torch_model import TorchModel

GROUP = "passes"
RUNS = {
    "--attacks sparse-pgd?steps=5 sigma-zero?steps=5": "--subjects cnn4_pgd --samples 3 --eps 12"
}


class Kills(NamedTuple):
    """What an attack fools."""

    fooled: np.ndarray
    """(n,) bool."""
    forwards: float
    """For each sample."""
    backwards: float


def run_attack(
    spec: str, subject: measure.Subject, module: nn.Module, x: Tensor, y: Tensor, options: Namespace
) -> Kills:
    """One attack of ours on all samples."""
    attack = measure.build_attack(spec)
    model = TorchModel(module, subject.domain, name="module")
    ledger = measure.open_ledger(
        model,
        x,
        y,
        options.norm,
        measure.parse_eps(options.eps),
        access=attack.access,
        minimal=attack.family == "minimal",
        reach=reach_of(attack, options.norm),
        queries=options.queries or None,
        batch_size=len(x),
    )
    measure.run_attack(attack, ledger, Streams.of(options.seed, ledger.batch.ids).fold(spec))
    costs = ledger.costs
    return Kills(
        ledger.fooled.numpy(),
        float(costs.forwards.float().mean()),
        float(costs.backwards.float().mean()),
    )


def greedy_order(results: dict[str, Kills]) -> list[str]:
    """The members by what they add per pass to those before them, without those that add nothing."""
    order: list[str] = []
    killed = np.zeros_like(next(iter(results.values())).fooled)

    def added(spec: str) -> float:
        result = results[spec]
        return float((result.fooled & ~killed).sum() / (result.forwards + result.backwards))

    while waiting := [spec for spec in results if spec not in order and added(spec) > 0]:
        best = max(waiting, key=added)
        order.append(best)
        killed = killed | results[best].fooled
    return order


def sparse_auto_attack(module: nn.Module, x: Tensor, y: Tensor, options: Namespace) -> Kills:
    """Sparse-AutoAttack of its authors, whose passes a hook counts."""
    # Modules that their files import and these three attacks do not use.
    sys.modules.setdefault("skimage", ModuleType("skimage"))
    util = ModuleType("skimage.util")
    util.random_noise = None  # type: ignore[attr-defined]
    sys.modules.setdefault("skimage.util", util)
    from rs_attacks import RSAttack
    from spgd import SparsePGD

    k = int(options.eps)
    fooled = torch.zeros(len(x), dtype=torch.bool)
    torch.manual_seed(options.seed)  # noqa: TID251  -- they draw from the global generator
    with measure.counting(module) as passes:
        for unprojected in (True, False):
            rows = (~fooled).nonzero()[:, 0]
            if len(rows):
                attack = SparsePGD(
                    module, k=k, t=options.peer_steps, unprojected_gradient=unprojected
                )
                x_adv = attack(x[rows], y[rows])[0].detach()
                fooled[rows] = ~measure.is_right(module, x_adv, y[rows])
        rows = (~fooled).nonzero()[:, 0]
        if len(rows) and options.peer_queries:
            search = RSAttack(
                module,
                norm="L0",
                eps=k,
                verbose=False,
                n_queries=options.peer_queries,
                p_init=0.8,
                targeted=False,
                loss="ce",
                device="cpu",
            )
            x_adv = search.perturb(x[rows], y[rows])[1]
            fooled[rows] = ~measure.is_right(module, x_adv, y[rows])
    return Kills(fooled.numpy(), passes.forwards / len(x), passes.backwards / len(x))


def sparse_rs_patches(module: nn.Module, x: Tensor, y: Tensor, options: Namespace) -> Kills:
    """Sparse-RS for patches of its authors, whose passes a hook counts."""
    from rs_attacks import RSAttack

    channels = x.shape[1]
    side = int(options.eps)
    search = RSAttack(
        module,
        norm="patches",
        eps=side * side,
        verbose=False,
        n_queries=options.peer_queries,
        p_init=0.4,
        seed=options.seed,
        device="cpu",
    )
    draw = search.random_int
    search.random_int = lambda low, high, shape: draw(
        low=low, high=min(high, channels), shape=shape
    )
    with measure.counting(module) as passes, torch.no_grad():
        x_adv = search.perturb(x, y)[1]
    fooled = ~measure.is_right(module, x_adv, y)
    return Kills(fooled.numpy(), passes.forwards / len(x), 0.0)


def compare(name: str, options: Namespace, table: measure.Table) -> None:
    """All members on one network."""
    subject = measure.subject(name)
    module = subject.module()
    x, y = subject.samples(options.samples, module, options.skip)
    results = {spec: run_attack(spec, subject, module, x, y, options) for spec in options.attacks}
    order = greedy_order(results)

    for spec, result in results.items():
        others = [other.fooled for key, other in results.items() if key != spec]
        beyond = result.fooled & ~np.any(others, axis=0) if others else result.fooled
        place = order.index(spec) + 1 if spec in order else ""
        table.add(
            subject.name,
            spec,
            result.fooled.sum(),
            beyond.sum(),
            f"{result.forwards:.0f}",
            f"{result.backwards:.0f}",
            place,
        )
    union = np.any([result.fooled for result in results.values()], axis=0)
    table.add(subject.name, "all", union.sum(), "", "", "", "")
    peers = {"authors' sAA": (options.spgd, sparse_auto_attack)}
    peers["authors' Sparse-RS"] = (options.sparse_rs, sparse_rs_patches)
    for title, (checkout, run_peer) in peers.items():
        if checkout:
            peer = run_peer(module, x, y, options)
            beyond = (peer.fooled & ~union).sum()
            passes = [f"{peer.forwards:.0f}", f"{peer.backwards:.0f}"]
            table.add(subject.name, title, peer.fooled.sum(), beyond, *passes, "")


def main() -> None:
    """One table."""
    lists = {"attacks": [""], "subjects": ["resnet20", "resnet2b", "cnn4_pgd"]}
    options = measure.arguments(
        __doc__,
        **lists,
        norm="linf",
        eps="8/255",
        samples=100,
        skip=0,
        seed=0,
        queries=0,
        spgd="",
        sparse_rs="",
        peer_steps=300,
        peer_queries=0,
    )
    if options.spgd:
        sys.path[:0] = [f"{options.spgd}/autoattack"]
    if options.sparse_rs:
        sys.path[:0] = [options.sparse_rs]
    table = measure.Table(
        f"Kills of {options.samples} samples within {options.norm} {options.eps}",
        "network,attack,alone,after all others,forwards,backwards,order",
    )
    for name in options.subjects:
        compare(name, options, table)


if __name__ == "__main__":
    main()
