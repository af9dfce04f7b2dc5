"""Photographs within a limit on the distance: queries until the first success, with surrogates and without, beside Square.

    python benchmarks/rlab --study capped [--networks mcunet_144] [--surrogates mobilenet_v1 squeezenet1_0] [--samples 8]
                                          [--skip 0] [--seed 0] [--eps 4.74] [--queries 250] [--ways noise signed-patch square]

ImageNet networks, patches of 8 x 8 on 224 x 224, the first photographs that the network gets right. noise and signed-patch are
RLAB with that distortion and its default policy, first alone and then with the surrogates; square is Square Attack, which may
change every value. A query is one image shown to the network, the check of the clean image included; a photograph that was not
fooled counts with all queries. The ratio is that of the mean queries, paired by photograph, with the 95 % bootstrap interval.
"""

import argparse
import time
from dataclasses import replace

import measure
import torch
from black_box import Bench
from torch import Tensor

from brinell.core.intervals import ratio, ratio_text
from brinell.models._torch_model import TorchModel
from rlab.common import Outcome, fight, outcome
from rlab.photographs import DISTORTIONS, photographs


def run(bench: Bench, way: str, eps: float, queries: int, seed: int) -> list[tuple[str, Outcome]]:
    """By the names of the surrogates, the outcome of one way; Square has none."""
    if way == "square":
        began = time.process_time()
        ledger, _ = replace(bench, surrogates=()).fight(f"square?steps={queries - 1}", "l2", eps, queries - 1, seed)
        return [("", outcome(ledger, bench.x, time.process_time() - began))]
    spec = f"rlab?patch=8&steps={queries - 1}&clean_up=false&policy=default&distortions={DISTORTIONS[way]}"
    named = [("none", replace(bench, surrogates=()))]
    if bench.surrogates:
        named.append((", ".join(model.name for model in bench.surrogates), bench))
    return [(names, fight(part, spec, eps, queries, seed)) for names, part in named]


def main() -> None:
    """One table for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["mcunet_144"])
    parser.add_argument("--surrogates", nargs="*", default=["mobilenet_v1", "squeezenet1_0"])
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--skip", type=int, default=0, help="photographs to leave out first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eps", type=float, default=4.74)
    parser.add_argument("--queries", type=int, default=250)
    parser.add_argument("--ways", nargs="+", choices=[*DISTORTIONS, "square"], default=["square", "noise", "signed-patch"])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    surrogates = tuple(TorchModel(photographs(name).module(), photographs(name).domain, name=name) for name in options.surrogates)
    for name in options.networks:
        subject = photographs(name)
        module = subject.module()
        x, y = (part[options.skip :] for part in subject.samples(options.skip + options.samples, module))
        bench = Bench(subject, module, x, y, surrogates)
        words = f"python benchmarks/rlab --study capped --networks {name} --surrogates {' '.join(options.surrogates)}"
        words += f" --samples {options.samples} --skip {options.skip} --seed {options.seed} --eps {options.eps:g}"
        words += f" --queries {options.queries} --ways {' '.join(options.ways)}"
        title = f"L2 at most {options.eps:g}: {subject.name}, {len(y)} photographs, {options.queries} queries"
        heads = ["way", "surrogates", "fooled", "mean queries", "median", "over the first way", "processor s"]
        out = measure.Table(title, words, heads)
        first: Tensor | None = None
        for way in options.ways:
            for names, result in run(bench, way, options.eps, options.queries, options.seed):
                queries = result.queries.clamp_max(options.queries)
                first = queries if first is None else first
                over = "" if first is queries else ratio_text(*ratio(queries.numpy(), first.numpy()))
                fooled = f"{int(result.queries.isfinite().sum())} of {len(y)}"
                mean, median = f"{float(queries.mean()):.0f}", f"{float(queries.quantile(0.5)):.0f}"
                out.add(way, names, fooled, mean, median, over, f"{result.seconds:.0f}")
