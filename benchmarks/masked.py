"""The fast cascade on networks whose gradients mislead, beside the standard one.

    python benchmarks/masked.py [--samples 100] [--defences quantised wiggly ...] [--subjects cnn4_pgd resnet4b]

Each defence is planted in a network of the shared data, its weights as they are; `none` is the
network itself. `robust for fast alone` lists the samples that the standard cascade broke and the
fast one did not; `failed checks` are those of the fast run: where one says that gradients mislead,
the fast cascade spends the full budget. The defences make no network robust; they make attacks
fail.
"""

import argparse
import math
from collections.abc import Callable

import measure
import numpy as np
import torch
from autoattack import Verdict, first_images, ours
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


class Around(nn.Module):
    """A network with something done to its inputs and its answers."""

    def __init__(self, net: nn.Module, before: Change = lambda x: x, after: Change = lambda z: z) -> None:
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.after(self.net(self.before(x)))


class Largest(nn.Module):
    """Keeps the largest 30 % of a layer's values in place of the positive ones (Xiao, Zhong & Zheng 2020): discontinuous."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, ...) to the same, zeros but for the largest."""
        flat = x.flatten(1)
        least = flat.topk(max(1, math.floor(0.3 * flat.shape[1])), dim=1).values[:, -1:]
        return (flat * (flat >= least)).view_as(x).clamp_min(0)


def with_largest(net: nn.Module) -> nn.Module:
    """The network with its ReLU modules replaced."""
    for name, child in net.named_children():
        setattr(net, name, Largest() if isinstance(child, nn.ReLU) else with_largest(child))
    return net


DEFENCES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "none": lambda net: net,
    "quantised": lambda net: Around(net, before=lambda x: torch.round(x * 7) / 7),
    "wiggly": lambda net: Around(net, before=lambda x: x + 0.01 * torch.sin(2000 * x)),
    "soft steps": lambda net: Around(net, before=lambda x: x - torch.sin(16 * math.pi * x) / (16 * math.pi)),
    "saturated": lambda net: Around(net, after=lambda z: z * 1e4),
    "squashed": lambda net: Around(net, after=lambda z: 5 * torch.tanh(0.5 * z)),
    "largest": with_largest,
    "one-hot": lambda net: Around(net, after=lambda z: 10 * nn.functional.one_hot(z.argmax(1), z.shape[1]).float()),
}


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", nargs="+", default=["cnn4_pgd", "resnet4b"])
    parser.add_argument("--defences", nargs="+", default=list(DEFENCES), choices=list(DEFENCES))
    parser.add_argument("--norm", default="linf")
    parser.add_argument("--eps", default=None, help="default: each network's own")
    for name, default in (("samples", 100), ("batch-size", 250), ("seed", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    told = (
        f"python benchmarks/masked.py --subjects {' '.join(options.subjects)} --norm {options.norm} --samples {options.samples}"
    )
    columns = "network,eps,defence,clean,standard,fast,robust for fast alone,robust for standard alone"
    columns += ",failed checks,forwards,cpu"
    note = "Robust accuracy in samples. Forwards and cpu are those of fast over those of standard."
    table = measure.Table("Networks whose gradients mislead", told, columns.split(","), note)
    for name in options.subjects:
        one = measure.subject(name)
        text, (x, y) = options.eps or one.eps_text, first_images(one, options.samples)
        for defence in options.defences:
            module = DEFENCES[defence](one.module()).eval().requires_grad_(False)
            full, fast = (
                ours(module, x, y, options.norm, text, cascade, options.seed, options) for cascade in ("standard", "fast")
            )
            line(table, (one.name, text, defence), len(x), full, fast)


def line(table: measure.Table, start: tuple[str, ...], n: int, full: Verdict, fast: Verdict) -> None:
    """One line."""
    clean = round(full.stages[0].accuracy * n)
    missed = np.flatnonzero(fast.robust & ~full.robust).tolist()
    more = int((full.robust & ~fast.robust).sum())
    passes, cpu = f"{fast.forwards / full.forwards:.2f}", f"{fast.cpu / full.cpu:.2f}"
    table.add(*start, clean, int(full.robust.sum()), int(fast.robust.sum()), missed, more, " ".join(fast.signs), passes, cpu)


if __name__ == "__main__":
    main()
