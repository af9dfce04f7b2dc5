"""The pairs of a review: selects samples and changes them (design/0015-review.md).

A change leads towards a picture x1 of another class, which needs no model. Linf: x0 + eps *
sign(x1), the counter-example of the separation argument; L2: x0 + eps * (x1 - x0) / |x1 - x0|. With
`run` it is an adversarial input that an audit stored. Every changed picture is rounded to 8 bits,
as on a screen. Its size is measured after clipping and rounding.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array, has_broken
from brinell.engine.eps_grid import parse_eps
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.run import Run
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.review import ReviewRequest
from brinell.studies.review.choices import ReviewFacts
from brinell.studies.review.maps import pair_maps
from brinell.studies.review.result import ANSWERS, PAIRS, ReviewResult, Trials
from brinell.studies.work import carry_out as make_folder
from brinell.studies.work import open_plan

UNCHANGED = 0.2
"""Share of pairs without a change."""
STREAM = 0xB12
"""The number of the review's random numbers beside those of other studies of the same seed."""


@dataclass(frozen=True, kw_only=True)
class ReviewPlan(Plan):
    """The pairs of a review, in the order of presentation."""

    trials: Trials | None = None
    pairs: Mapping[str, Array] | None = None
    """`clean` and `changed`, uint8 (n, H, W, C); or inputs and maps by their names in a study of
    maps."""


def make_plan(call: Call) -> ReviewPlan:
    """Draw the trials: pairs of maps, or pictures that are changed."""
    request: ReviewRequest = call.request
    facts = ReviewFacts(methods={})
    plan = ReviewPlan(**vars(open_plan(call)) | {"facts": facts})
    dataset, labels = plan.dataset, np.asarray(plan.dataset.labels())
    if request.maps is not None:
        trials, pairs, facts = pair_maps(request, dataset)
        ids = np.unique(trials.sample_id)
        return replace(plan, ids=ids, labels=labels[ids], trials=trials, pairs=pairs, facts=facts)
    if (
        dataset.domain.kind != "image"
        or len(dataset.domain.shape) != 3
        or dataset.domain.shape[0] not in (1, 3)
    ):
        raise RequestError(
            f"{dataset.name} contains {dataset.domain.kind}s: a review shows "
            "pictures with one or three channels"
        )
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, STREAM]))
    # At least one trial of either kind.
    unchanged_count = min(max(round(request.trials * UNCHANGED), 1), request.trials - 1)
    ids, x, y = (
        _load_pairs(request, dataset, unchanged_count, rng)
        if request.run
        else _make_pairs(request, plan, labels, unchanged_count, rng)
    )
    low, high = dataset.domain.bounds(x)
    span = float((high - low).max())
    clean = _on_screen(x, low, high)
    changed = _on_screen(y, low, high)

    # Sizes are those of what the screen shows.
    delta = (changed.astype(np.float64) - clean).reshape(len(clean), -1) / 255
    eps = span * (np.abs(delta).max(1) if request.norm == "linf" else np.sqrt((delta**2).sum(1)))
    if not request.run and (eps == 0).sum() > unchanged_count:
        raise RequestError(
            f"{option('eps')} {request.eps}: the smallest changes nothing on a "
            f"screen of 256 levels, which shows {span / 255:.2g}"
        )

    order = rng.permutation(len(ids))
    columns = {"sample_id": ids[order], "label": labels[ids][order], "eps": eps[order]}
    trials = rows.build(Trials, len(ids), **columns, changed_left=rng.random(len(ids)) < 0.5)
    pairs = {"clean": clean[order], "changed": changed[order]}
    unique_ids = np.unique(ids)
    return replace(plan, ids=unique_ids, labels=labels[unique_ids], trials=trials, pairs=pairs)


def _on_screen(x: Tensor, low: Tensor, high: Tensor) -> Array:
    """Pictures (n, C, H, W) as a screen shows them: uint8 (n, H, W, C)."""
    levels = (x - low).div(high - low).mul(255).round().clamp(0, 255).to(torch.uint8)
    return levels.movedim(1, -1).contiguous().numpy()


def pieces(plan: ReviewPlan, call: Call) -> list[Piece]:
    """The pairs, which are made at once."""

    def write_pairs() -> Trials | None:
        write_arrays(plan.folder / PAIRS, plan.pairs or {})
        return plan.trials

    return [Piece(name=f"{len(plan.ids)} pictures", make=write_pairs, files=(PAIRS,))]


def carry_out(call: Call) -> ReviewResult:
    """Make the pairs and the page that shows them, or add answers to the review in --out; write the
    results.
    """
    result: ReviewResult = make_folder(call)
    for file in call.options.answers:
        result = result.add(Path(file))
    return result


def repeat(call: Call, folder: Path) -> None:
    """Make the pairs of a review again, with the answers that its folder holds."""
    result: ReviewResult = make_folder(call)
    if (folder / ANSWERS).exists():
        result.add(folder / ANSWERS)


def _make_pairs(
    request: ReviewRequest,
    plan: Plan,
    labels: Array,
    unchanged_count: int,
    rng: np.random.Generator,
) -> tuple[Array, Tensor, Tensor]:
    """Draw samples, and change all but `unchanged_count` of them; returns their positions and
    both pictures.
    """
    budgets = np.array([value for value in parse_eps(request.eps).values if value > 0])
    if not len(budgets):
        raise RequestError(
            f"{option('eps')} {request.eps}: a review needs at least one size above 0"
        )

    groups = [
        rng.permutation(plan.ids[labels[plan.ids] == label])
        for label in np.unique(labels[plan.ids])
    ]
    if len(groups) < 2:
        raise RequestError(
            f"{plan.dataset.name} has one class: a change leads towards a second one"
        )

    # Classes alternate, samples repeat only if a class has too few, and each class has all sizes
    # equally often.
    turn, group = np.divmod(np.arange(request.trials), len(groups))
    ids = np.array([groups[g][t % len(groups[g])] for t, g in zip(turn, group, strict=True)])
    # The sizes begin at a random one, or the smallest would be shown most where they do not divide
    # the turns. The last pairs stay unchanged: `make_plan` mixes the order.
    eps = budgets[(turn + rng.integers(len(budgets))) % len(budgets)]
    eps[request.trials - unchanged_count :] = 0

    x = plan.dataset.load(ids.tolist())
    others = x[[rng.choice(np.flatnonzero(group != g)) for g in group]]
    direction = (
        others.sign() if request.norm == "linf" else normalize((others - x).flatten(1)).view_as(x)
    )

    return (
        ids,
        x,
        plan.dataset.domain.clamp(
            x + torch.from_numpy(eps).float().reshape(-1, 1, 1, 1) * direction
        ),
    )


def _load_pairs(
    request: ReviewRequest, dataset: Dataset, unchanged_count: int, rng: np.random.Generator
) -> tuple[Array, Tensor, Tensor]:
    """Draw adversarial inputs that an audit stored, and unchanged pairs of the same samples;
    returns positions and both pictures.
    """
    run = Run.open(str(request.run))
    if run.manifest["data"]["digest"] != dataset.digest():
        raise RequestError(
            f"{run.path} was made from other data than {dataset.name}: give the data of the run"
        )
    records = run.rows
    changed: dict[int, Array] = {}
    for row in rng.permutation(np.flatnonzero(has_broken(records))):
        sample = int(records.sample_id[row])
        if len(changed) < request.trials - unchanged_count and sample not in changed:
            changed |= run.adversarial(str(records.model[row]), str(records.attack[row]), [sample])
    if not changed:
        raise RequestError(f"{run.path} stored no adversarial input: audit with larger budgets")

    # An unchanged pair shows whether people say that they see a difference where there is none.
    ids = np.array([*changed, *rng.choice(np.array([*changed]), size=unchanged_count)])
    x = dataset.load(ids.tolist())
    y = torch.stack(
        [
            *(torch.from_numpy(np.asarray(array)).float() for array in changed.values()),
            *x[len(changed) :],
        ]
    )
    return ids, x, y
