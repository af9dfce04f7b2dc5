"""The pairs of a review: selects samples and changes them (design/0015-review.md).

Three kinds of change:

- `crafted`: towards a picture of another class, which needs no model. Linf: x0 + eps * sign(x1), the counter-example of the
  separation argument; L2: x0 + eps * (x1 - x0) / |x1 - x0|.
- `noise`: independent signs times eps (Linf), or a random direction of length eps (L2).
- `run:FOLDER`: the adversarial inputs that an audit stored, each at its recorded distance.

Every changed picture is rounded to 8 bits, as on a screen. Its size is measured after clipping and rounding.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array, has_broken
from brinell.core.streams import Streams
from brinell.engine.eps_grid import parse_eps
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.run import Run
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.review import STUDY, ReviewOptions, ReviewRequest
from brinell.studies.review.result import ANSWERS, PAIRS, ReviewResult, Trials
from brinell.studies.work import carry_out as make_folder
from brinell.studies.work import open_plan

EQUAL = 0.2
"""Share of pairs without a change."""
POOL = 5000
"""Samples are drawn from at most the first 5000 of the data."""


@dataclass(frozen=True, kw_only=True)
class ReviewPlan(Plan):
    """The pairs of a review, in the order of presentation."""

    trials: Trials | None = None
    pairs: Mapping[str, Array] | None = None
    """`clean` and `changed`, uint8 (n, H, W, C)."""


def make_plan(call: Call) -> ReviewPlan:
    """Draw the trials and change the pictures.

    Raises:
        RequestError: the data are not pictures, or the change or run does not fit.
    """
    request: ReviewRequest = call.request
    plan = ReviewPlan(**vars(open_plan(call)))
    dataset = plan.dataset
    if dataset.domain.kind != "image" or len(dataset.domain.shape) != 3 or dataset.domain.shape[0] not in (1, 3):
        raise RequestError(f"{dataset.name} contains {dataset.domain.kind}s: a review shows pictures with one or three channels")
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, 0xB12]))
    equal = min(max(round(request.trials * EQUAL), 1), request.trials - 1)
    if request.change.startswith("run:"):
        ids, x, y, requested = _load_pairs(request, dataset, equal, rng)
    elif request.change in ("crafted", "noise"):
        ids, x, y, requested = _make_pairs(request, plan, equal, rng)
    else:
        raise RequestError(f"change={request.change}: it is crafted, noise or run:FOLDER")
    clean, changed, eps = _quantise_pairs(request, dataset, x, y, requested)
    order = rng.permutation(len(ids))
    trials = rows.build(
        Trials,
        len(ids),
        sample_id=ids[order],
        label=np.asarray(dataset.labels())[ids][order],
        eps=eps[order],
        changed_left=rng.random(len(ids)) < 0.5,
    )
    pairs = {"clean": clean[order], "changed": changed[order]}
    unique_ids = np.unique(ids)
    return replace(plan, ids=unique_ids, labels=np.asarray(dataset.labels())[unique_ids], trials=trials, pairs=pairs)


def pieces(plan: ReviewPlan, call: Call) -> list[Piece]:
    """The pairs, which are made at once."""

    def write_pairs() -> Trials | None:
        write_arrays(plan.folder / PAIRS, plan.pairs or {})
        return plan.trials

    return [Piece(name=f"{len(plan.ids)} pictures", make=write_pairs, files=(PAIRS,))]


def carry_out(call: Call) -> ReviewResult:
    """Make the pairs and the page that shows them, or add answers to the review in --out; write the results.

    Raises:
        RequestError: the request does not fit, or a file of answers belongs to another review.
    """
    options: ReviewOptions = call.options
    result: ReviewResult = make_folder(call)
    for file in options.answers:
        result.add(Path(file))
    return _count_answers(result) if options.answers else result


def repeat(call: Call, folder: Path) -> None:
    """Make the pairs of a review again, with the answers that its folder holds."""
    result: ReviewResult = make_folder(call)
    if (folder / ANSWERS).exists():
        shutil.copyfile(folder / ANSWERS, Path(result.folder) / ANSWERS)
        _count_answers(result)


def _count_answers(result: ReviewResult) -> ReviewResult:
    counted: ReviewResult = STUDY.open(Path(result.folder))
    counted.write()
    return counted


def _make_pairs(request: ReviewRequest, plan: Plan, equal: int, rng: np.random.Generator) -> tuple[Array, Tensor, Tensor, Array]:
    """Draw samples, and change all but `equal` of them; returns their positions, both pictures, and the sizes asked for."""
    budgets = [value for value in parse_eps(request.eps).values if value > 0]
    if not budgets:
        raise RequestError(f"{option('eps')} {request.eps}: a review needs at least one size above 0")
    dataset, labels = plan.dataset, np.asarray(plan.dataset.labels())
    pool = plan.ids[:POOL]
    # Classes alternate, and samples repeat only if a class has too few.
    groups = [rng.permutation(np.flatnonzero(labels[pool] == label)) for label in np.unique(labels[pool])]
    turns = (divmod(index, len(groups)) for index in range(request.trials))
    ids = pool[[groups[group][turn % len(groups[group])] for turn, group in turns]]
    classes = labels[ids]
    if request.change == "crafted" and len(groups) < 2:
        raise RequestError(f"{dataset.name} has one class, but change=crafted needs a second one: use change=noise")
    # The k-th sample of a class has the k-th size in turn, so each class has all sizes equally often.
    rank = np.array([np.sum(classes[:index] == classes[index]) for index in range(request.trials - equal)])
    eps = np.concatenate([np.array(budgets)[(rank + rng.integers(len(budgets))) % len(budgets)], np.zeros(equal)])
    x = dataset.load(ids.tolist())
    partners = [rng.choice(np.flatnonzero(classes != label)) if (classes != label).any() else 0 for label in classes]
    streams = Streams.of(request.seed, torch.from_numpy(ids)).fold("review")
    size = torch.from_numpy(eps).float().reshape(-1, *[1] * (x.ndim - 1))
    return ids, x, dataset.domain.clamp(x + size * _direction(request, x, x[partners], streams)), eps


def _direction(request: ReviewRequest, x: Tensor, partner: Tensor, streams: Streams) -> Tensor:
    """Directions (n, C, H, W) of length 1 in the norm, towards `partner` if the change is crafted."""
    if request.norm == "linf":
        return partner.sign() if request.change == "crafted" else streams.uniform(*x.shape[1:]).sub(0.5).sign()
    direction = partner - x if request.change == "crafted" else streams.normal(*x.shape[1:])
    length: Tensor = direction.flatten(1).norm(dim=1).clamp_min(1e-12).reshape(-1, *[1] * (x.ndim - 1))
    return direction / length


def _load_pairs(
    request: ReviewRequest, dataset: Dataset, equal: int, rng: np.random.Generator
) -> tuple[Array, Tensor, Tensor, None]:
    """Draw adversarial inputs that an audit stored, and equal pairs of the same samples; returns positions and both pictures."""
    run = Run.open(request.change.removeprefix("run:"))
    if run.manifest["data"]["digest"] != dataset.digest():
        raise RequestError(f"{run.path} was made from other data than {dataset.name}: give the data of the run")
    records, changed = run.records(), dict[int, Array]()
    for row in rng.permutation(np.flatnonzero(has_broken(records))):
        sample = int(records.sample_id[row])
        if len(changed) < request.trials - equal and sample not in changed:
            changed |= run.adversarial(str(records.model[row]), str(records.attack[row]), [sample])
    if not changed:
        raise RequestError(f"{run.path} stored no adversarial input: audit with larger budgets")
    ids = np.array([*changed, *rng.choice(np.array([*changed]), size=equal)])
    x = dataset.load(ids.tolist())
    y = torch.stack([*(torch.from_numpy(np.asarray(array)).float() for array in changed.values()), *x[len(changed) :]])
    return ids, x, y, None


def _quantise_pairs(
    request: ReviewRequest, dataset: Dataset, x: Tensor, y: Tensor, requested: Array | None
) -> tuple[Array, Array, Array]:
    """Both pictures of each pair (n, C, H, W) as uint8 (n, H, W, C), and (n,) the sizes of their changes after rounding.

    Raises:
        RequestError: a change that was requested above 0 vanishes by rounding.
    """
    low, high = dataset.domain.bounds(x)
    levels = ((pictures - low).div(high - low).mul(255).round().clamp(0, 255).to(torch.uint8) for pictures in (x, y))
    clean, changed = (pixels.movedim(1, -1).contiguous().numpy() for pixels in levels)
    delta = (changed.astype(np.float64) - clean) / 255 * float((high - low).max())
    flat = delta.reshape(len(delta), -1)
    size = np.abs(flat).max(1) if request.norm == "linf" else np.sqrt((flat**2).sum(1))
    if requested is not None and ((size == 0) & (requested > 0)).any():
        smallest = float(requested[(size == 0) & (requested > 0)].min())
        raise RequestError(
            f"{option('eps')} {smallest:g} changes nothing on a screen of 256 levels: "
            f"the smallest size is {float((high - low).max()) / 255:.2g}"
        )
    return clean, changed, size
