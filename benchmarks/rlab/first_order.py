"""The smallest L2 that a distortion could need on photographs, to first order at the clean input, if the gradient were known.

    python benchmarks/rlab --study first-order [--networks mcunet_144 mobilenet_v2] [--samples 6] [--skip 8]
                                               [--distortions gaussian-noise signed-patch] [--draws 1 4 16 64]

Each patch of 8 x 8 gets the version whose direction agrees best with the gradient of the margin, and the best magnitude; the L2
is that at which the linear model of the margin reaches 0. Agreement is the cosine of the whole change with the gradient. No
attack can know the gradient; the figures say how much of a distance is due to the distortion and how much to the search.
"""

import argparse
import statistics

import measure
import torch
from torch import Tensor

from brinell import plugins
from brinell.core import losses
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.variants import distorted
from rlab.photographs import photographs

SEVERITY = 3
"""Severity at which directions are taken: magnitudes are free."""


def rises(change: Tensor, gradient: Tensor) -> Tensor:
    """(n, patches): by how much the margin rises for a unit of L2, for changes (n, channels, patches, places)."""
    size = change.square().sum((1, 3)).sqrt()
    return (change * gradient).sum((1, 3)) / size.clamp_min(1e-12)


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["mcunet_144", "mobilenet_v2"])
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--skip", type=int, default=8, help="photographs to leave out first")
    parser.add_argument("--distortions", nargs="+", default=["gaussian-noise", "signed-patch"])
    parser.add_argument("--draws", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    words = f"python benchmarks/rlab --study first-order --samples {options.samples} --skip {options.skip}"
    out = measure.Table("The smallest L2 to first order", words, ["network", "distortion", "draws", "mean L2", "agreement"])
    for name in options.networks:
        subject = photographs(name)
        module = subject.module()
        x, y = (part[options.skip :] for part in subject.samples(options.skip + options.samples, module))
        with torch.enable_grad():
            leaf = x.clone().requires_grad_()
            margin = losses.margin(module(leaf), y)
            (gradient,) = torch.autograd.grad(margin.sum(), leaf)
        members = PatchGrid.over(subject.domain, 8).members
        slope, rng = gradient.flatten(2)[:, :, members], Streams.of(0, torch.arange(len(y)))
        for distortion in options.distortions:
            plugin = plugins.build("distortion", distortion, {})
            versions = plugin.draws(subject.domain.shape)
            for draws in [versions] if versions else options.draws:
                best = torch.zeros(len(y), len(members))
                for draw in range(draws):
                    change = distorted(plugin, x, SEVERITY, rng, domain=subject.domain, draw=draw) - x
                    best = torch.maximum(best, rises(change.flatten(2)[:, :, members], slope))
                rise = best.square().sum(1).sqrt()
                agreement = (rise / gradient.flatten(1).norm(dim=1)).mean()
                l2 = statistics.fmean((-margin.detach() / rise).tolist())
                out.add(name, distortion, draws, f"{l2:.2f}", f"{float(agreement):.2f}")
