"""Studies of benchmarks/rlab beside the published loop, which probes every patch, and without a limit on the distance."""

import argparse
import math
from collections.abc import Callable
from dataclasses import replace

import measure
import torch
from black_box import Bench

from brinell import plugins
from brinell.core.contracts import Distortion
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.distortions._published import Published
from brinell.rlab.variants import SEVERITIES, distorted
from rlab.common import Outcome, fight, hunt
from rlab.search import published

# --- the published loop ----------------------------------------------------------------------------------------------


def probes(options: argparse.Namespace) -> None:
    """Full probes before each step, one image at a time, and none, many images at a time."""
    bench, eps, most, seed = Bench.of("resnet20", options.samples), 2.0, 12_000, options.seeds[0]
    spec, own = "rlab?patch=2&draws=1&severities=5&clean_up=false", "rlab?patch=2"
    hunts: dict[str, Callable[[], Outcome]] = {
        "published loop, probe by probe": lambda: hunt(bench, published(), spec, eps, most, seed),
        "published loop, a step's probes together": lambda: hunt(
            bench, replace(published(), batch_size=128), spec, eps, most, seed
        ),
        "RLAB, the same one variant": lambda: fight(bench, spec, eps, most, seed),
        "RLAB, its own variants": lambda: fight(bench, f"{own}&clean_up=false", eps, most, seed),
        "RLAB, its own variants, L2 1.3 at most": lambda: fight(bench, f"{own}&clean_up=false", 1.3, most, seed),
        "RLAB, its own variants, then clean-up": lambda: fight(bench, own, eps, most, seed),
    }
    ends = {name: run() for name, run in hunts.items()}
    base = next(iter(ends.values()))
    share = base.rate()
    title = f"Beside the published loop: {bench.subject.name}, patches of 2 x 2, L2 {eps:g}, {options.samples} images"
    note = f"{most} queries at most. Ratios are those of the published loop over the row: higher is better."
    columns = f"attack, success, queries per image, queries until {share:.2f} are fooled, ratio, s per success, ratio, L2"
    out = measure.Table(title, columns, note)
    for name, outcome in ends.items():
        until, seconds = _until(outcome, share), outcome.seconds / max(1, int(outcome.queries.isfinite().sum()))
        out.add(
            name,
            f"{outcome.rate():.2f}",
            f"{float(outcome.total_queries.float().mean()):.0f}",
            f"{until:.0f}",
            f"{_until(base, share) / until:.1f}",
            f"{seconds:.2f}",
            f"{base.seconds / max(1, int(base.queries.isfinite().sum())) / seconds:.1f}",
            f"{outcome.of_fooled(outcome.l2):.2f}",
        )


def _until(outcome: Outcome, share: float) -> float:
    """Queries for each image until such a share of them is fooled."""
    return float(outcome.queries.sort().values[max(0, math.ceil(share * len(outcome.queries) - 1e-6) - 1)])


# --- without a limit on the distance ---------------------------------------------------------------------------------


def free(options: argparse.Namespace) -> None:
    """Each distortion alone, as far as it takes."""
    sizes = {"lenet5_clean": (options.samples, 300), "resnet20": (options.samples, 300)}
    sizes["squeezenet1_0"] = (max(1, options.samples // 5), 100)
    benches = [(Bench.of(name, samples), budget) for name, (samples, budget) in sizes.items()]
    title = "Each distortion alone, without a limit on the distance"
    note = (
        "Success (median queries; median L2 of the fooled after clean-up) / success of the distortion laid over the whole image "
        "at each of its five severities. 4 draws. Not gradient-sign: it looks into the model, which this attack does not."
    )
    heads = [f"{bench.subject.name} ({len(bench.y)} images, {budget} queries)" for bench, budget in benches]
    out = measure.Table(title, ", ".join(["distortion", *heads]).replace(" images, ", " images; "), note)
    for name in plugins.names("distortion"):
        distortion = plugins.build("distortion", name, {})
        if isinstance(distortion, Published) or distortion.access > Access.SCORES or "image" not in distortion.domains:
            continue
        cells = []
        for bench, budget in benches:
            outcome = fight(bench, f"rlab?distortions={name}&draws=4&slots=32", 1e3, budget, options.seeds[0])
            details = f"{outcome.median():.0f}; {outcome.of_fooled(outcome.l2):.2g}"
            cells.append(f"{outcome.rate():.2f} ({details}) / {_full_image_success(bench, distortion):.2f}")
        out.add(name, *cells)


@torch.no_grad()
def _full_image_success(bench: Bench, distortion: Distortion) -> float:
    """Success of a distortion that covers the whole image, at any severity, in its first draw."""
    fooled = torch.zeros(len(bench.y), dtype=torch.bool)
    for severity in SEVERITIES:
        rng = Streams.of(0, torch.arange(len(bench.y)))
        x = distorted(distortion, bench.x, severity, rng, domain=bench.subject.domain)
        fooled |= torch.cat([bench.module(part).argmax(1) for part in x.split(64)]) != bench.y
    return float(fooled.float().mean())
