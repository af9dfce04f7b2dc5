"""How close attacks come to photographs: the L2 of the closest adversarial example over the queries that were spent.

    python benchmarks/rlab --study photographs [--networks mcunet_144 mobilenet_v2] [--samples 6] [--skip 0] [--seed 0]
                                               [--budgets 100 250 1000 5000] [--ways noise signed-patch ...]
                                               [--transfer mobilenet_v1 mobilenet_v2 squeezenet1_0]

The setting of RLAB's papers: ImageNet networks, patches of 8 x 8 on 224 x 224, no limit on the distance, the first photographs
that the network gets right. noise, signed-patch, blur, brightness, dead-pixel and mixture are RLAB with these distortions and
its default policy; it goes on until the queries are spent. square and sparse-rs place the same noise by those searches
(benchmarks/rlab/controls.py) and go on within 0.95 of each success; simba ends with its success, and hop-skip-jump sees labels
alone. A query is one image shown to the network, the check of the clean image included. A cell holds mean, median and largest L2
in [0, 1]; photographs without a success count as infinity. The last column is the mean at the end in the network's normalised
units, where the published figures seem to be measured. `--transfer` adds a column for each further network: how many of the first
and of the closest adversarial examples fool it too, of those whose photograph it gets right.
"""

import argparse
import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

import measure
import torch
from black_box import Bench
from torch import Tensor, nn

from brinell import plugins
from brinell.core.norms import l2
from brinell.core.streams import Streams
from rlab.closer import distances_by_budget
from rlab.controls import Restricted, Sparse
from rlab.truth import Photographs

FREE = 1e3
"""An L2 budget beyond every distortion."""
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
"""By which the networks' inputs are divided, channel by channel."""
DISTORTIONS = {
    "noise": "gaussian-noise",
    "signed-patch": "signed-patch",
    "blur": "gaussian-blur",
    "brightness": "brightness",
    "dead-pixel": "dead-pixel",
    "mixture": "gaussian-noise+gaussian-blur+brightness+dead-pixel",
}
CONTROLS = {"square": Restricted, "sparse-rs": Sparse}
STEP = 0.2 / FREE
"""The step of SimBA's paper, as a share of the budget."""
PEERS = {
    "simba": f"simba?step_size={STEP}",
    "simba-dct": f"simba?basis=dct&step_size={STEP}",
    "hop-skip-jump": "hop-skip-jump",
}
WAYS = ("noise", "signed-patch", "square", "sparse-rs", "simba-dct", "hop-skip-jump")


def photographs(name: str) -> Photographs:
    """A network of the shared data with its photographs."""
    return Photographs(
        name=f"ImageNet {name}",
        factory=f"imagenet.py:{name}",
        weights=f"imagenet_weights/{name}.safetensors",
        data="imagenet_samples",
        shape=(3, 224, 224),
        eps=FREE,
        eps_text=str(FREE),
    )


class Curve(NamedTuple):
    """Result of one way on n photographs."""

    distances: dict[int, Tensor]
    """By budget (n,): the smallest L2, infinite for none."""
    first: Tensor
    """(n, *shape): the first adversarial inputs, NaN for none."""
    closest: Tensor
    """(n, *shape): the closest ones at the end, NaN for none."""


def curve(bench: Bench, way: str, budgets: tuple[int, ...], seed: int) -> Curve:
    """One way on all photographs."""
    most = max(budgets)
    ledger, batch, threat = bench.open("l2", FREE, most - 1, minimal=way == "hop-skip-jump")
    rng, oracle = Streams.of(seed, batch.ids).fold(way), ledger.oracle()
    run: Callable[[], object]
    if way in CONTROLS:
        settings = plugins.build("attack", "rlab", {"patch": "8"})
        run = CONTROLS[way](oracle, batch, threat, rng, settings, most - 1, closer=True)
    else:
        refined = (
            f"rlab?patch=8&refine={most}&clean_up=false&distortions={DISTORTIONS[way]}" if way in DISTORTIONS else PEERS[way]
        )
        attack = plugins.build("attack", *plugins.parse(refined)[::2])
        run = lambda: attack(oracle, batch, threat, rng)  # noqa: E731
    first = torch.full_like(bench.x, torch.nan)

    def note(*_: object) -> None:
        """Keep the inputs of new successes."""
        new = ledger.fooled & first.flatten(1).isnan().all(1)
        first[new] = ledger.best.closest[new]

    handle = bench.module.register_forward_pre_hook(note)
    with distances_by_budget(bench, ledger, budgets) as distances:
        run()
    handle.remove()
    note()
    return Curve(distances, first, torch.where(ledger.fooled.view(-1, 1, 1, 1), ledger.best.closest, torch.nan))


def transfers(module: nn.Module, examples: Curve, x: Tensor, y: Tensor) -> str:
    """How many of the first and of the closest adversarial inputs fool another network, of the photographs that it gets right."""
    with torch.no_grad():
        counted = (module(x).argmax(1) == y) & ~examples.first.flatten(1).isnan().all(1)
        fooled = [counted & (module(inputs.nan_to_num()).argmax(1) != y) for inputs in (examples.first, examples.closest)]
    return f"{int(fooled[0].sum())} and {int(fooled[1].sum())} of {int(counted.sum())}"


def cell(distances: Tensor) -> str:
    """Mean, median and largest."""
    values = distances.tolist()
    figures = (statistics.fmean(values), statistics.median(values), max(values))
    return " / ".join("none" if math.isinf(figure) else f"{figure:.2f}" for figure in figures)


def main() -> None:
    """One table for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["mcunet_144", "mobilenet_v2"])
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--skip", type=int, default=0, help="photographs to leave out first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budgets", nargs="+", type=int, default=[100, 250, 1000, 5000])
    parser.add_argument("--ways", nargs="+", choices=[*DISTORTIONS, *CONTROLS, *PEERS], default=list(WAYS))
    parser.add_argument("--transfer", nargs="+", default=[], help="other networks that get the adversarial examples")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    budgets = tuple(sorted(options.budgets))
    others = {name: photographs(name).module() for name in options.transfer}
    for name in options.networks:
        subject = photographs(name)
        module = subject.module()
        x, y = (part[options.skip :] for part in subject.samples(options.skip + options.samples, module))
        bench = Bench(subject, module, x, y)
        words = f"python benchmarks/rlab --study photographs --networks {name} --samples {options.samples} --skip {options.skip}"
        words += f" --seed {options.seed} --budgets {' '.join(map(str, budgets))} --ways {' '.join(options.ways)}"
        words += f" --transfer {' '.join(others)}" if others else ""
        title = f"L2 after so many queries, mean / median / largest: {subject.name}, {len(y)} photographs"
        heads = [
            "way",
            "fooled",
            *(f"L2 @{budget}" for budget in budgets),
            "mean, normalised",
            *(f"fools {other}" for other in others),
        ]
        out = measure.Table(title, words, heads)
        for way in options.ways:
            result = curve(bench, way, budgets, options.seed)
            normalised = l2((result.closest - x) / DEVIATION).mean()
            fooled = f"{int(result.distances[budgets[-1]].isfinite().sum())} of {len(y)}"
            cells = [cell(result.distances[budget]) for budget in budgets]
            cells.append("none" if normalised.isnan() else f"{float(normalised):.1f}")
            out.add(way, fooled, *cells, *(transfers(module, result, x, y) for module in others.values()))
