"""Studies of benchmarks/rlab that know more than an attack does: every patch probed, no limit on the distance."""

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import measure
import torch
from black_box import Bench
from torch import Tensor, nn

from brinell import plugins
from brinell.core import losses
from brinell.core.contracts import Distortion
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.datasets.image_folder import ImageFolder
from brinell.distortions._published import Published
from brinell.rlab.agent import find_agent
from brinell.rlab.assignment import Assignment
from brinell.rlab.cache import CLEAN
from brinell.rlab.content import describe
from brinell.rlab.env import PatchEnv, Placement
from brinell.rlab.outcomes import Outcomes
from brinell.rlab.predictions import sensitivity
from brinell.rlab.prior import Prior
from brinell.rlab.rules import Rules
from brinell.rlab.variants import SEVERITIES, distorted, variants
from rlab.common import Outcome, bench_of, fight, hunt, table, trained
from rlab.search import published

# --- the sensitivity map ---------------------------------------------------------------------------------------------


def map_(options: argparse.Namespace) -> None:
    """Effects of each patch according to the linear model and the prior, compared with queries of the network."""
    bench = bench_of("resnet20", options.samples)
    title = f"Is the sensitivity map right: {bench.subject.name}, L2 0.5, {options.samples} images"
    note = (
        "The truth: 8 variants of Gaussian noise (severity 3) on each patch of the clean image alone; of a patch, the root of "
        "the mean squared change of the margin over them. Moves: each variant on each patch, predicted and true. Means over the "
        "images. Placed: the predicted contribution of each patch beside what clearing it alone costs."
    )
    out = table(options, title, "side, map, queries, rank correlation, top-10 % hit rate, rank correlation of moves", note)
    fitted = find_agent(trained(options, "none-margin", "none"))
    for side in (2, 4):
        for line in _maps(options, bench, side, fitted.prior):
            out.add(side, *line)


def _maps(options: argparse.Namespace, bench: Bench, side: int, prior: Prior) -> Iterator[tuple[object, ...]]:
    domain = bench.subject.domain
    grid = PatchGrid.over(domain, side)
    noise_variants = variants([plugins.build("distortion", "gaussian-noise", {})], domain, (3,), 8)
    ledger, batch, threat = bench.open("l2", 0.5, None, minimal=True)
    oracle, rng, rules = ledger.oracle(), Streams.of(options.seeds[0], batch.ids), Rules(steps=800)
    worlds = {
        name: PatchEnv(
            oracle,
            batch,
            threat,
            Placement(grid=grid, variants=noise_variants, rules=rules, prior=fitted, slots=len(batch)),
            rng,
        )
        for name, fitted in (("linear model", None), ("linear model, fitted prior", prior))
    }
    truth = _exhaustive(oracle, batch, worlds["linear model"])
    chance = torch.rand(truth.moves.shape[:2], generator=torch.Generator().manual_seed(0))
    yield "chance", 0, *truth.agreement(chance), ""
    yield "the prior's energies", 0, *truth.agreement(prior.energies(describe(batch.x, grid))), ""
    for name, world in worlds.items():
        policy = find_agent("greedy").policy(world.choices)
        observation = world.reset(torch.ones_like(world.alive))
        for step in range(1, rules.steps + 1):
            observation = world.step(policy.act(observation, world.streams)).observation
            if step in (50, 200, rules.steps):
                yield name, step, *truth.of_gradient(world.posterior.mean)
                stored = sensitivity(world.cache, grid, world.posterior, torch.arange(len(batch)))[:, :, 0]
                yield f"{name}, as stored", step, *truth.agreement(stored), ""
        yield f"{name}: placed", "at the end", *_active(oracle, batch, threat, world), ""
    with torch.enable_grad():
        x = batch.x.clone().requires_grad_()
        lead = losses.margin(bench.module(x), batch.y)
        (gradient,) = torch.autograd.grad(lead.sum(), x)
    yield "true gradient", "white box", *truth.of_gradient(gradient.flatten(2))


@dataclass(frozen=True)
class Truth:
    """Effect of each distortion of a single patch on a clean image."""

    change: Tensor
    """(n, channels, patches, places of a patch, variants): of the input."""
    moves: Tensor
    """(n, patches, variants): of the margin."""
    grid: PatchGrid

    def agreement(self, guess: Tensor) -> tuple[str, str]:
        """Rank correlation and hit rate of a map (n, patches) with the root of the mean square over the variants."""
        true = self.moves.square().mean(2)
        top = max(1, round(0.1 * true.shape[1]))
        best = [torch.zeros_like(values).scatter(1, values.topk(top, 1).indices, 1.0) for values in (guess, true)]
        return f"{ranked(guess, true):.2f}", f"{float((best[0] * best[1]).sum(1).mean()) / top:.2f}"

    def of_gradient(self, gradient: Tensor) -> tuple[str, str, str]:
        """The same, and the rank correlation of the moves, for what a gradient (n, channels, places) predicts."""
        predicted = torch.einsum("nckv,nckvo->nko", gradient[:, :, self.grid.members], self.change)
        return *self.agreement(predicted.square().mean(2)), f"{ranked(predicted.flatten(1), self.moves.flatten(1)):.2f}"


def _exhaustive(oracle: Oracle, batch: Batch, world: PatchEnv) -> Truth:
    grid, n = world.grid, len(batch)
    rows = torch.arange(n)
    base = losses.margin(oracle.scores(batch.ids, batch.x), batch.y)
    margins, changes = [], []
    for variant in range(len(world.variants)):
        number = torch.full((n, grid.places), variant)
        places = torch.arange(grid.places).expand(n, -1)
        change = world.cache.values(rows, number, places, grid.channels) - batch.x.flatten(2)
        changes.append(change[:, :, grid.members] * grid.not_repeated)
        differences = []
        for patch in range(len(grid)):
            x = world.assignment.candidates(rows, torch.full((n,), patch), torch.full((n,), variant))
            differences.append(losses.margin(oracle.scores(batch.ids, x), batch.y) - base)
        margins.append(torch.stack(differences, 1))
    return Truth(torch.stack(changes, 4), torch.stack(margins, 2), grid)


def _active(oracle: Oracle, batch: Batch, threat: Threat, world: PatchEnv) -> tuple[str, str]:
    """Rank correlation between the map on distorted patches and the cost of clearing each of them; number of images."""
    outcomes, grid = world.outcomes, world.grid
    rows = (outcomes.success & ((outcomes.variant != CLEAN).sum(1) > 2)).nonzero()[:, 0]
    if not len(rows):
        return "", "(no image)"
    correlations = []
    for row in rows.split(1):
        assignment = Assignment(grid, world.cache)
        sample = batch.select(row)
        standing = (outcomes.variant[row[0]] != CLEAN).nonzero()[:, 0]
        assignments = outcomes.variant[row].expand(len(standing) + 1, -1).long().clone()
        assignments[torch.arange(len(standing)), standing] = CLEAN
        x = assignment.render(row.expand(len(assignments)), assignments)
        x = replace(threat, eps=outcomes.eps[row].expand(len(assignments))).project(x, sample.x.expand_as(x))
        margin = losses.margin(oracle.scores(sample.ids.expand(len(assignments)), x), sample.y.expand(len(assignments)))
        correlations.append(ranked(outcomes.value[row][:, standing], (margin[-1] - margin[:-1])[None]))
    return f"{statistics.fmean(correlations):.2f}", f"({len(rows)} images)"


def ranked(first: Tensor, second: Tensor) -> float:
    """Mean over the rows (n, k) of Spearman's rank correlation."""
    ranks = [values.argsort(1).argsort(1).double() for values in (first, second)]
    centred = [rank - rank.mean(1, keepdim=True) for rank in ranks]
    return float((torch.nn.functional.cosine_similarity(*centred, dim=1)).mean())


# --- the published loop ----------------------------------------------------------------------------------------------


def probes(options: argparse.Namespace) -> None:
    """Full probes before each step, one image at a time, and none, many images at a time."""
    bench, eps, most = bench_of("resnet20", options.samples), 2.0, 12_000
    published_bench = Bench(bench.subject, bench.module, bench.x[: options.published], bench.y[: options.published])
    spec = "rlab?patch=2&draws=1&severities=5&clean_up=false"
    seed, rlab_spec = options.seeds[0], "rlab?patch=2"
    close = 0.65 * eps
    hunts: dict[str, Callable[[], Outcome]] = {
        "published loop, probe by probe": lambda: hunt(published_bench, published(), spec, eps, most, seed),
        "published loop, a step's probes together": lambda: hunt(
            published_bench, replace(published(), batch_size=128), spec, eps, most, seed
        ),
        "RLAB, the same one variant": lambda: fight(published_bench, spec, eps, most, seed),
        "RLAB, its own variants": lambda: fight(published_bench, f"{rlab_spec}&clean_up=false", eps, most, seed),
        f"RLAB, its own variants, L2 {close:g} at most": lambda: fight(
            published_bench, f"{rlab_spec}&clean_up=false", close, most, seed
        ),
        "RLAB, its own variants, then clean-up": lambda: fight(published_bench, rlab_spec, eps, most, seed),
    }
    ends = {name: run() for name, run in hunts.items()}
    base = next(iter(ends.values()))
    share = base.rate()
    title = f"Beside the published loop: {bench.subject.name}, patches of 2 x 2, L2 {eps:g}, {options.published} images"
    note = f"{most} queries at most. Ratios are those of the published loop over the row: higher is better."
    columns = f"attack, success, queries per image, queries until {share:.2f} are fooled, ratio, s per success, ratio, L2"
    out = table(options, title, columns, note)
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


def fill(options: argparse.Namespace) -> None:
    """How full the batches are: while images wait for their first query, then of clean-up alone and of the whole run."""
    bench, eps = bench_of("resnet20", options.samples), 2.0
    title = f"How full batches are: {bench.subject.name}, {options.samples} images, 1000 queries"
    note = "Inputs over calls times slots: while images still wait for a slot, in clean-up while some wait for theirs, in all."
    out = table(options, title, "slots, while some wait, calls, clean-up while some wait, calls, in all, calls", note)
    for slots in (8, 16, 32):
        attack = plugins.build("attack", "rlab", {"patch": "2", "slots": str(slots)})
        ledger, batch, threat = bench.open("l2", eps, 999)
        calls: list[tuple[int, bool, bool]] = []
        first_queries = torch.zeros(0)

        def note_size(_: nn.Module, inputs: tuple[Tensor, ...], ledger: Ledger = ledger, calls: list = calls) -> None:
            cleaning = len(first_queries) > 0  # noqa: B023
            waiting = (ledger.costs.forwards == first_queries) & ledger.fooled if cleaning else ledger.costs.forwards == 0  # noqa: B023
            calls.append((len(inputs[0]), bool(waiting.any()), cleaning))

        def on_end(_: Outcomes, ledger: Ledger = ledger) -> None:
            nonlocal first_queries
            first_queries = ledger.costs.forwards.clone()

        handle = bench.module.register_forward_pre_hook(note_size)
        attack.play(ledger.oracle(), batch, threat, Streams.of(options.seeds[0], batch.ids), ended=on_end)
        handle.remove()
        parts = [[size for size, waits, cleaning in calls if waits and cleaning == phase] for phase in (False, True)]
        parts.append([size for size, *_ in calls])
        out.add(slots, *(cell for part in parts for cell in (f"{statistics.fmean(part) / slots:.2f}", len(part))))


# --- without a limit on the distance ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Photographs(measure.Subject):
    """The ImageNet photographs of the shared data."""

    def samples(self, n: int, module: nn.Module) -> tuple[Tensor, Tensor]:
        """The first `n` that the network gets right."""
        photographs = ImageFolder(path=str(measure.SHARED / self.data), size=self.shape[-1])()
        labels = torch.as_tensor(photographs.labels()).long()
        indices: list[int] = []
        for index in range(len(labels)):
            with torch.no_grad():
                if int(module(photographs.load([index])).argmax(1)) == int(labels[index]):
                    indices.append(index)
            if len(indices) == n:
                break
        return photographs.load(indices), labels[indices]


SQUEEZENET = Photographs(
    name="ImageNet squeezenet1_0",
    factory="imagenet.py:squeezenet1_0",
    weights="imagenet_weights/squeezenet1_0.safetensors",
    data="imagenet_samples",
    shape=(3, 224, 224),
    eps=1.0,
    eps_text="1",
)


def free(options: argparse.Namespace) -> None:
    """Each distortion alone, as far as it takes."""
    photographs = SQUEEZENET.module()
    benches = [
        (bench_of("lenet5_clean", options.samples), 300),
        (bench_of("resnet20", options.samples), 300),
        (Bench(SQUEEZENET, photographs, *SQUEEZENET.samples(max(1, options.samples // 5), photographs)), 100),
    ]
    title = "Each distortion alone, without a limit on the distance"
    note = (
        "Success (median queries; median L2 of the fooled after clean-up) / success of the distortion laid over the whole image "
        "at each of its five severities. 4 draws. Not gradient-sign: it looks into the model, which this attack does not."
    )
    heads = [f"{bench.subject.name} ({len(bench.y)} images, {budget} queries)" for bench, budget in benches]
    out = table(options, title, ", ".join(["distortion", *heads]).replace(" images, ", " images; "), note)
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
