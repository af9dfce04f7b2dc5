"""What filters on patches can do at all, on MNIST: a search with gradients through the network beside RLAB, which has none."""

import argparse

import torch
from black_box import Bench
from rlab_common import bench_of, fight, table
from torch import Tensor

from brinell import plugins
from brinell.core.bank import Bank
from brinell.core.contracts import Filter
from brinell.core.filtering import variants
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.target import Access
from brinell.rl.goals import MISTAKE

STARTS, ROUNDS, DRAWS, BUDGET = 12, 60, 16, 1500


def reach(options: argparse.Namespace) -> None:
    """Each filter alone, patches of 2 x 2, no limit on the distance."""
    bench = bench_of("lenet5_clean", options.samples)
    title = (
        f"What each filter can flip: {bench.subject.name}, {options.samples} images, patches of 2 x 2, no limit on the distance"
    )
    note = (
        f"With gradients: from {STARTS} starts, all patches take the variant that the gradient there promises most of, fewer "
        f"of them where that does not gain. RLAB: greedy, {BUDGET} queries. {DRAWS} draws and all severities for both."
    )
    out = table(options, title, "filter, with gradients, RLAB @300, @1500, by either, RLAB misses, median queries", note)
    for name in plugins.names("filter"):
        filter = plugins.build("filter", name, {})
        if filter.access > Access.SCORES or bench.subject.domain.kind not in filter.domains:
            continue
        white = torch.tensor([flips(bench, filter, at) for at in range(len(bench.y))])
        one = fight(bench, f"rlab?filters={name}&slots=32&steps={BUDGET}&clean_up=false", 1e3, BUDGET, options.seeds[0])
        fooled = one.queries.isfinite()
        either, missed = (white | fooled).float().mean(), int((white & ~fooled).sum())
        rates = [f"{float(white.float().mean()):.2f}", f"{one.rate(300):.2f}", f"{one.rate():.2f}", f"{float(either):.2f}"]
        out.add(name, *rates, missed, f"{one.median():.0f}")


def flips(bench: Bench, filter: Filter, at: int) -> bool:
    """Whether any assignment that the search with gradients meets is a mistake."""
    domain, x = bench.subject.domain, bench.x[at : at + 1]
    grid, placed = PatchGrid.over(domain, 2), variants([filter], domain, draws=DRAWS)
    bank = Bank(x, domain, placed, Streams.of(0, torch.tensor([at])).fold("filters"))
    numbers = torch.arange(len(placed))
    every = torch.cat([x, bank.inputs(torch.zeros_like(numbers), numbers)]).flatten(2)  # the first is the clean input
    values = every[:, :, grid.members].permute(2, 0, 1, 3).flatten(2)  # (patches, variants, values of a patch)
    return any(_climbs(bench, at, grid, values, start) for start in range(STARTS))


def _climbs(bench: Bench, at: int, grid: PatchGrid, values: Tensor, start: int) -> bool:
    patches, kinds, each = torch.arange(values.shape[0]), values.shape[1], values.shape[2]
    some = torch.randint(0, kinds, patches.shape, generator=torch.Generator().manual_seed(start))
    chosen = (torch.zeros_like(some), torch.full_like(some, kinds - 1), some)[min(start, 2)]

    def height(chosen: Tensor) -> tuple[float, Tensor]:
        x = torch.empty(grid.channels, grid.places)
        x[:, grid.members] = values[patches, chosen].view(len(patches), grid.channels, -1).transpose(0, 1)
        leaf = x.view(1, *grid.shape).requires_grad_()
        lead = MISTAKE.height(bench.module(leaf), bench.y[at : at + 1])
        (slope,) = torch.autograd.grad(lead.sum(), leaf)
        return float(lead.detach()), slope.view(grid.channels, -1)[:, grid.members].transpose(0, 1).reshape(len(patches), each)

    count = len(patches)
    now, slope = height(chosen)
    for _ in range(ROUNDS):
        if now > 0:
            return True
        promise = torch.einsum("pvd,pd->pv", values - values[patches, chosen][:, None], slope).max(1)
        best = promise.values.topk(count).indices
        best = best[promise.values[best] > 0]
        after = chosen.clone()
        after[best] = promise.indices[best]
        then, its = height(after)
        if then > now:
            chosen, now, slope = after, then, its
        elif count > 1 and len(best):
            count = max(1, min(count, len(best)) // 2)
        else:
            return False
    return now > 0
