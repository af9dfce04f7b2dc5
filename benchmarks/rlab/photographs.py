"""How close attacks come to photographs (`photographs`), and their queries within a limit on the
distance (`capped`).

    python benchmarks/rlab --study photographs [--networks mcunet_144 mobilenet_v2] [--samples 6]
    [--skip 0] [--seed 0]
                                               [--budgets 100 250 1000 5000] [--ways noise
                                               signed-patch ...] [--transfer mobilenet_v1
                                               mobilenet_v2 squeezenet1_0]
    python benchmarks/rlab --study capped [--networks mcunet_144] [--surrogates mobilenet_v1
    squeezenet1_0] [--samples 6]
                                          [--eps 4.74] [--queries 250] [--ways square noise
                                          signed-patch]

The setting of RLAB's papers: ImageNet networks, patches of 8 x 8 on 224 x 224, the first
photographs that the network gets right. noise, signed-patch, blur, brightness, dead-pixel and
mixture are RLAB with these distortions and its default policy; noise-learned adds content that
follows the linear model. A query is one image shown to the
network, the check of the clean image included.

Without a limit RLAB goes on until the queries are spent, in a run for each budget. square and sparse-rs place the same noise
by those searches (benchmarks/rlab/controls.py) and go on within 0.95 of each success; simba ends
with its success, and hop-skip-jump sees labels alone. A cell holds mean, median and largest L2 in
[0, 1]; photographs without a success count as infinity. The last column is the mean at the end in
the network's normalised units, where the published figures seem to be measured. `--transfer` adds a
column for each further network: how many of the first and of the closest adversarial examples fool
it too, of those whose photograph it gets right.

Within a limit, RLAB runs alone and then with the surrogates, and square is Square Attack, which may
change every value. A photograph that was not fooled counts with all queries. The ratio is that of
the mean queries, paired by photograph, with the 95 % bootstrap interval.
"""

import math
import statistics
from argparse import Namespace
from dataclasses import replace

import measure
import torch
from black_box import Bench
from torch import Tensor, nn

from brinell.core.ledger import Ledger
from brinell.core.norms import l2
from rlab.closer import spend
from rlab.common import Outcome, fight, over
from rlab.controls import CONTROLS

FREE = 1e3
"""An L2 budget beyond every distortion."""
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
"""By which the networks' inputs are divided, channel by channel."""
DISTORTIONS = {
    "noise": "gaussian-noise",
    "noise-learned": "gaussian-noise&learned=true",
    "signed-patch": "signed-patch",
    "blur": "gaussian-blur",
    "brightness": "brightness",
    "dead-pixel": "dead-pixel",
    "mixture": "gaussian-noise+gaussian-blur+brightness+dead-pixel",
}
STEP = 0.2 / FREE
"""The step of SimBA's paper, as a share of the budget."""
PEERS = {
    "simba": f"simba?step_size={STEP}",
    "simba-dct": f"simba?basis=dct&step_size={STEP}",
    "hop-skip-jump": "hop-skip-jump",
}


def transfers(module: nn.Module, examples: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> str:
    """How many of the first and of the closest adversarial inputs fool another network, of the
    photographs that it gets right.
    """
    counted = measure.is_right(module, x, y) & ~examples[0].flatten(1).isnan().all(1)
    fooled = [counted & ~measure.is_right(module, inputs.nan_to_num(), y) for inputs in examples]
    return f"{int(fooled[0].sum())} and {int(fooled[1].sum())} of {int(counted.sum())}"


def format_distances(distances: Tensor) -> str:
    """Mean, median and largest."""
    values = distances.tolist()
    figures = (statistics.fmean(values), statistics.median(values), max(values))
    return " / ".join("none" if math.isinf(figure) else f"{figure:.2f}" for figure in figures)


def spec_of(way: str, queries: int) -> str:
    """The attack of a way that may spend so many queries."""
    if way not in DISTORTIONS:
        return PEERS.get(way) or f"{way} of rlab?patch=8"
    steps = f"steps={queries - 1}&refine={queries}"
    return f"rlab?patch=8&{steps}&clean_up=false&distortions={DISTORTIONS[way]}"


def reach(bench: Bench, options: Namespace) -> None:
    """The table of one network without a limit on the distance."""
    budgets, targets = (
        sorted(options.budgets),
        {name: measure.subject(name).module() for name in options.transfer},
    )
    title = (
        f"L2 after so many queries, mean / median / largest: {bench.subject.name}, "
        f"{len(bench.y)} photographs"
    )
    heads = [
        "way",
        "fooled",
        *(f"L2 @{budget}" for budget in budgets),
        "mean, normalised",
        *(f"fools {name}" for name in targets),
    ]
    table = measure.Table(title, heads)
    for way in options.ways or ("noise", "signed-patch", *CONTROLS, "simba-dct", "hop-skip-jump"):
        first = torch.full_like(bench.x, torch.nan)

        def note(ledger: Ledger, first: Tensor = first) -> None:
            """Keep the inputs of new successes."""
            new = ledger.fooled & first.flatten(1).isnan().all(1)
            first[new] = ledger.best.closest[new]

        distances: dict[int, Tensor] = {}
        # RLAB paces itself by its budget, so each budget has a run.
        for part in [[budget] for budget in budgets] if way in DISTORTIONS else [budgets]:
            first.fill_(torch.nan)
            ledger, ends = spend(bench, spec_of(way, max(part)), FREE, part, options.seed, note)
            distances |= ends
        closest = torch.where(ledger.fooled.view(-1, 1, 1, 1), ledger.best.closest, torch.nan)
        normalised = float(l2((closest - bench.x) / DEVIATION).mean())
        cells = [f"{int(distances[budgets[-1]].isfinite().sum())} of {len(bench.y)}"]
        cells += [format_distances(distances[budget]) for budget in budgets]
        cells.append("none" if math.isnan(normalised) else f"{normalised:.1f}")
        table.add(
            way,
            *cells,
            *(transfers(module, (first, closest), bench.x, bench.y) for module in targets.values()),
        )


def capped(bench: Bench, options: Namespace) -> None:
    """The table of one network within a limit on the distance."""
    title = (
        f"L2 at most {options.eps:g}: {bench.subject.name}, {len(bench.y)} "
        f"photographs, {options.queries} queries"
    )
    table = measure.Table(
        title, "way, surrogates, fooled, mean queries, median, over the first way, processor s"
    )
    steps, base = f"steps={options.queries - 1}", list[Outcome]()
    for way in options.ways or ("square", "noise", "signed-patch"):
        spec = f"square?{steps}"
        if way in DISTORTIONS:
            spec = (
                f"rlab?patch=8&{steps}&clean_up=false&policy=default&distortions={DISTORTIONS[way]}"
            )
        for models in ((), bench.surrogates) if way in DISTORTIONS and bench.surrogates else ((),):
            ends = [
                fight(
                    replace(bench, surrogates=models),
                    spec,
                    options.eps,
                    options.queries,
                    options.seed,
                )
            ]
            base, queries = base or ends, ends[0].queries.clamp_max(options.queries)
            names = ", ".join(model.name for model in models) or (
                "none" if way in DISTORTIONS else ""
            )
            fooled = f"{int(ends[0].queries.isfinite().sum())} of {len(bench.y)}"
            middle = f"{float(queries.mean()):.0f}", f"{float(queries.quantile(0.5)):.0f}"
            table.add(
                way,
                names,
                fooled,
                *middle,
                over(ends, base, options.queries),
                f"{ends[0].seconds:.0f}",
            )


def main() -> None:
    """One table for each network."""
    lists = {
        "networks": ["mcunet_144"],
        "budgets": [100, 250, 1000, 5000],
        "ways": [],
        "transfer": [],
    }
    lists["surrogates"] = ["mobilenet_v1", "squeezenet1_0"]
    options = measure.arguments(
        __doc__,
        study=("photographs", "capped"),
        **lists,
        samples=6,
        skip=0,
        seed=0,
        eps=4.74,
        queries=250,
    )
    for name in options.networks:
        surrogates = tuple(options.surrogates) if options.study == "capped" else ()
        bench = Bench.of(name, options.samples, options.skip, surrogates)
        (capped if options.study == "capped" else reach)(bench, options)
