"""Upper bound on the success of distorted patches on MNIST: a search with gradients compared with RLAB, which has none."""

import argparse

import torch
from black_box import Bench, spread
from torch import Tensor

from brinell import plugins
from brinell.core.contracts import Distortion
from brinell.core.criterion import MISCLASSIFIED
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions._published import Published
from brinell.rlab.cache import DistortionCache
from brinell.rlab.rules import aimed, margin_of
from brinell.rlab.variants import variants
from rlab.common import Outcome, bench_of, fight, over_seeds, table

STARTS, ROUNDS, DRAWS, BUDGET = 12, 60, 16, 5000
SPEC = f"rlab?distortions={{}}&policy=greedy&draws={DRAWS}&slots=32&steps={BUDGET}&clean_up=false&refine=0"


def reach(options: argparse.Namespace) -> None:
    """Each distortion alone, patches of 2 x 2, no limit on the distance."""
    bench = bench_of("lenet5_clean", options.samples)
    title = f"What each distortion can do: {bench.subject.name}, {options.samples} images, patches of 2 x 2, no limit of distance"
    note = (
        f"With gradients: from {STARTS} starts towards any class and towards each, all patches take the variant that "
        f"the gradient there promises most of, fewer of them where that does not gain. RLAB: greedy, {BUDGET} queries. The same "
        f"{DRAWS} draws and all severities for both. Missed: pairs of image and seed that the other search finds, of all that "
        "either does."
    )
    out = table(
        options,
        title,
        f"distortion, with gradients, RLAB @300, @1500, @{BUDGET}, by either, RLAB misses, gradients miss, median queries",
        note,
    )
    for name in plugins.names("distortion"):
        distortion = plugins.build("distortion", name, {})
        if (
            isinstance(distortion, Published)
            or distortion.access > Access.SCORES
            or bench.subject.domain.kind not in distortion.domains
        ):
            continue
        white = torch.stack([_flipped(bench, distortion, name, seed) for seed in options.seeds])
        ends = [fight(bench, SPEC.format(name), 1e3, BUDGET, seed) for seed in options.seeds]
        fooled = torch.stack([outcome.queries.isfinite() for outcome in ends])
        either = fooled | white
        out.add(
            name,
            spread(white.float().mean(1).tolist(), 2),
            *(over_seeds(ends, lambda outcome, budget=limit: outcome.rate(budget), 2) for limit in (300, 1500, BUDGET)),
            spread(either.float().mean(1).tolist(), 2),
            f"{int((white & ~fooled).sum())} of {int(either.sum())}",
            int((fooled & ~white).sum()),
            over_seeds(ends, Outcome.median, 0),
        )


def _flipped(bench: Bench, distortion: Distortion, name: str, seed: int) -> Tensor:
    """(n,) bool, with the very distorted inputs that RLAB places."""
    streams = Streams.of(seed, torch.arange(len(bench.y))).fold(SPEC.format(name)).fold("filters")
    return torch.tensor([flips(bench, distortion, index, streams.select(torch.tensor([index]))) for index in range(len(bench.y))])


def flips(bench: Bench, distortion: Distortion, index: int, streams: Streams) -> bool:
    """True if the search with gradients reaches a misclassified assignment."""
    domain, x = bench.subject.domain, bench.x[index : index + 1]
    grid, kinds = PatchGrid.over(domain, 2), variants([distortion], domain, draws=DRAWS)
    cache = DistortionCache(x, domain, kinds, streams)
    numbers = torch.arange(len(kinds))
    inputs = torch.cat([x, cache.inputs(torch.zeros_like(numbers), numbers)]).flatten(2)  # the first is the clean input
    values = inputs[:, :, grid.members].permute(2, 0, 1, 3).flatten(2)  # (patches, variants, values of a patch)
    aims = [-1, *(label for label in range(10) if label != int(bench.y[index]))]
    return any(_climbs(bench, index, grid, values, start, aim) for start in range(STARTS) for aim in aims)


def _climbs(bench: Bench, index: int, grid: PatchGrid, values: Tensor, start: int, aim: int) -> bool:
    patches, kinds, width = torch.arange(values.shape[0]), values.shape[1], values.shape[2]
    random_choice = torch.randint(0, kinds, patches.shape, generator=torch.Generator().manual_seed(start))
    choice = (torch.zeros_like(random_choice), torch.full_like(random_choice, kinds - 1), random_choice)[min(start, 2)]

    def margin(choice: Tensor) -> tuple[float, Tensor]:
        x = torch.empty(grid.channels, grid.places)
        x[:, grid.members] = values[patches, choice].view(len(patches), grid.channels, -1).transpose(0, 1)
        leaf = x.view(1, *grid.shape).requires_grad_()
        logits, y = bench.module(leaf), bench.y[index : index + 1]
        lead = aimed(margin_of(MISCLASSIFIED, logits, y, leaf), logits, y, torch.tensor([aim]))
        (slope,) = torch.autograd.grad(lead.sum(), leaf)
        return float(lead.detach()), slope.view(grid.channels, -1)[:, grid.members].transpose(0, 1).reshape(len(patches), width)

    count = len(patches)
    value, slope = margin(choice)
    for _ in range(ROUNDS):
        if value > 0:
            return True
        promise = torch.einsum("pvd,pd->pv", values - values[patches, choice][:, None], slope).max(1)
        best = promise.values.topk(count).indices
        best = best[promise.values[best] > 0]
        after = choice.clone()
        after[best] = promise.indices[best]
        then, its = margin(after)
        if then > value:
            choice, value, slope = after, then, its
        elif count > 1 and len(best):
            count = max(1, min(count, len(best)) // 2)
        else:
            return False
    return value > 0
