"""Memory: queries of RLAB with a network that is fitted to the answers about other images.

    python benchmarks/rlab --study memory [--networks resnet44] [--images 1000] [--samples 60]
    [--start 4000] [--budgets 1 2 3] [--ways plain memory square] [--waves]

CIFAR-10, L2 at most each of the budgets, 1,000 queries, patches of 2 x 2, noise and the shipped
prior. The network under test answers the first --images test images from --start on that it gets
right; of these the last --samples are attacked and count. A query is one image shown to the network
under test, the check of the clean image included; an image that was not fooled counts with all
queries. Ratios of means are paired by image, with the 95 % bootstrap interval.

`memory` fits its network once, to the clean answers. With --waves the attack `rlab?memory=true`
attacks all images in its waves, and the last ones count. `first` is the share that is fooled within
3 queries, of which RLAB spends two on the clean image and Square one; seconds are the processor's,
those of the fits apart.
"""

import time
from argparse import Namespace

import measure
import torch
from black_box import Bench

from brinell.core.streams import Streams
from brinell.rlab.episodes import Placement
from brinell.rlab.memory import Memory
from brinell.rlab.search import run_episodes
from rlab.common import Outcome, capped, fight, outcome, over

QUERIES = 1000
SPEC = "rlab?patch=2&clean_up=false&refine=0&policy=prior"


def remember(bench: Bench, options: Namespace) -> Memory:
    """The memory of clean answers, which `rlab?memory=true` would have before its first wave."""
    with torch.no_grad():
        answers = torch.cat([bench.module(part) for part in bench.x.split(256)])
    rng = Streams.of(options.seed, torch.arange(len(bench.x)))
    memory = Memory(bench.x, answers, bench.subject.domain, options.share, rng)
    memory.fit()
    return memory


def attack(bench: Bench, memory: Memory, eps: float, options: Namespace) -> Outcome:
    """RLAB with the memory on the last images."""
    rlab = measure.build_attack(SPEC)
    domain = bench.subject.domain
    agent = rlab.agent(domain.kind)
    rows = torch.arange(len(bench.x))[-options.samples :]
    ledger = bench.open("l2", eps, QUERIES - 1)
    placement = Placement(
        grid=rlab.grid(domain),
        variants=rlab.variants(domain),
        rules=agent.rules(rlab._rules()),
        prior=agent.prior,
        slots=rlab.slots,
        learned=True,
    )

    began = time.process_time()
    batch = ledger.batch.select(rows)
    oracle = memory.attend(ledger.oracle())
    oracle.scores(batch.ids, batch.x)
    run_episodes(
        oracle,
        batch,
        ledger.threat.select(rows),
        placement,
        Streams.of(options.seed, batch.ids).fold(SPEC),
        agent.policy(placement.choices),
        answers=memory.clean[rows],
    )
    return last(outcome(ledger, bench.x, time.process_time() - began), options.samples)


def last(outcome: Outcome, samples: int) -> Outcome:
    """The outcome of the last samples."""
    columns = {
        name: values[-samples:]
        for name, values in outcome._asdict().items()
        if isinstance(values, torch.Tensor)
    }
    return outcome._replace(**columns)


def main() -> None:
    """One table."""
    options = measure.arguments(
        __doc__,
        study=("memory",),
        networks=["resnet44"],
        ways=["plain", "memory", "square"],
        budgets=[1.0, 2.0, 3.0],
        images=1000,
        samples=60,
        start=4000,
        share=0.5,
        seed=0,
        waves=False,
    )
    columns = "network, L2, way, first, @10, @100, fooled, mean queries, over Square, over plain, s, s of fits"
    table = measure.Table(f"Memory of {options.images} images, {options.samples} attacked", columns)
    for name in options.networks:
        everything = Bench.of(name, options.images, start=options.start)
        judged = Bench(
            everything.subject,
            everything.module,
            everything.x[-options.samples :],
            everything.y[-options.samples :],
        )
        has_one = "memory" in options.ways and not options.waves
        memory = remember(everything, options) if has_one else None
        for eps in options.budgets:
            outcomes: dict[str, list[Outcome]] = {}
            for way in options.ways:
                if way in ("plain", "learned"):
                    spec = f"{SPEC}&learned={str(way == 'learned').lower()}"
                    outcomes[way] = [fight(judged, spec, eps, QUERIES, options.seed)]
                elif way == "square":
                    spec = f"square?steps={QUERIES - 1}"
                    outcomes[way] = [fight(judged, spec, eps, QUERIES, options.seed)]
                elif options.waves:
                    spec = f"{SPEC}&memory={options.share}"
                    run = fight(everything, spec, eps, QUERIES, options.seed)
                    outcomes[way] = [last(run, options.samples)]
                elif memory is not None:
                    outcomes[way] = [attack(everything, memory, eps, options)]

            for way, ends in outcomes.items():
                queries = capped(ends, QUERIES)
                rates = [f"{float((queries <= most).float().mean()):.2f}" for most in (3, 10, 100)]
                table.add(
                    name,
                    f"{eps:g}",
                    way,
                    *rates,
                    f"{ends[0].rate():.2f}",
                    f"{float(queries.mean()):.1f}",
                    over(ends, outcomes.get("square", ends), QUERIES),
                    over(ends, outcomes.get("plain", ends), QUERIES),
                    f"{ends[0].seconds:.0f}",
                    f"{memory.cost.seconds:.0f}" if memory and way == "memory" else "",
                )
