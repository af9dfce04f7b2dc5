"""A board of distortions: the queries that each shipped one needs, and random placement beside it.

    python benchmarks/rlab --study filters [--kinds image signal video] [--samples 24] [--queries
    300] [--start 6000] [--seed 0] [--ecg FILE] [--clips gestures]

Each distortion alone is fitted to the budget, so that all are calibrated alike: on the whole input
at its strongest it lies at twice eps. RLAB places it patch by patch by its default policy. Random
placement gives a random half of the patches a random version in every query, fits the whole to the
same budget and keeps nothing. Images are of CIFAR-10 on ResNet-20 at L2 2, behind those that
settings were chosen on; signals are heartbeats on the network of benchmarks/ecg.py at L2 1 mV;
videos are clips on the network of benchmarks/video.py at L2 8. A query is one input shown to the
network, the first check included; an input that was not fooled counts with all queries. Ratios are
paired by input, with the 95 % interval.
"""

from argparse import Namespace
from collections.abc import Callable

import ecg
import measure
import torch
import video
from black_box import Bench

from brinell import plugins
from brinell.core.streams import Streams
from brinell.distortions._published import Published
from brinell.rlab.distort import CLEAN, DistortedInputs
from rlab.common import Outcome, capped, fight, outcome, over

HALF = 0.5
"""The share of the patches that random placement distorts in a query."""


def place_at_random(bench: Bench, spec: str, eps: float, queries: int, seed: int) -> Outcome:
    """Random placement of what the RLAB that `spec` names would place."""
    attack = measure.build_attack(spec)
    ledger = bench.open("l2", eps, queries - 1)
    batch, threat, oracle = ledger.batch, ledger.threat, ledger.oracle()
    grid, variants = attack.grid(threat.domain), attack.variants(threat.domain)
    rng = Streams.of(seed, batch.ids)
    inputs = DistortedInputs(len(batch), threat.domain, variants, batch.x.device)
    inputs.put(torch.arange(len(batch)), batch.x, rng.fold("filters"), threat)

    for query in range(queries - 1):
        rows = oracle.active(batch.ids).nonzero()[:, 0]
        if not len(rows):
            break
        chance = rng.select(rows).fold(query)
        number = (chance.fold("variant").uniform(len(grid)) * len(variants)).long()
        is_distorted = chance.fold("patch").uniform(len(grid)) < HALF
        assigned = torch.where(is_distorted, number.clamp_max(len(variants) - 1), CLEAN)
        x = inputs.render(rows, assigned, grid)
        oracle.scores(batch.ids[rows], threat.select(rows).project(x, batch.x[rows]))
    return outcome(ledger, bench.x, 0.0)


def open_benches(options: Namespace) -> dict[str, tuple[Callable[[], Bench], float, str]]:
    """How the network of each kind is opened, its budget, and the patches."""
    n = options.samples
    return {
        "image": (lambda: Bench.of("resnet20", n, start=options.start), 2.0, "patch=2&draws=4"),
        "signal": (lambda: ecg.open_bench(n, options.ecg), ecg.CAP, "draws=4"),
        "video": (lambda: video.open_bench(options.clips, min(n, 8)), 8.0, "draws=4&slots=8"),
    }


def main() -> None:
    """One table of all kinds."""
    options = measure.arguments(
        __doc__,
        study=("filters",),
        kinds=["image", "signal"],
        samples=24,
        queries=300,
        start=6000,
        seed=0,
        ecg=ecg.WEIGHTS,
        clips="gestures",
    )
    table = measure.Table(
        f"Queries to fool by distortion, at most {options.queries}",
        "kind, distortion, RLAB fools, mean queries, random fools, mean queries, RLAB over random",
    )
    for kind in options.kinds:
        opener, eps, patches = open_benches(options)[kind]
        bench = opener()
        for name in plugins.names("distortion"):
            distortion = plugins.build("distortion", name, {})
            # The published corruptions are the same again, by other code.
            if isinstance(distortion, Published) or kind not in distortion.domains:
                continue
            spec = f"rlab?{patches}&clean_up=false&policy=default&distortions={name}"
            placed = fight(bench, spec, eps, options.queries, options.seed)
            by_chance = place_at_random(bench, spec, eps, options.queries, options.seed)
            cells = [
                text
                for ends in (placed, by_chance)
                for text in (
                    f"{int(ends.queries.isfinite().sum())} of {len(bench.y)}",
                    f"{float(capped([ends], options.queries).mean()):.0f}",
                )
            ]
            table.add(kind, name, *cells, over([placed], [by_chance], options.queries))


if __name__ == "__main__":
    main()
