"""The pairs of a review: which samples are shown, and how they are changed (design/0015-review.md).

Three kinds of change:

- `crafted`: towards a picture of another class, what a distance allows without any model. Linf: x0 + eps * sign(x1), the
  counter-example of the separation argument; L2: x0 + eps * (x1 - x0) / |x1 - x0|.
- `noise`: independent signs times eps (Linf), or a random direction of length eps (L2).
- `run:FOLDER`: the adversarial inputs that an audit stored, each at its own recorded distance.

Every changed picture is rounded to 8 bits, as a screen shows it, and its size is measured anew after clipping and rounding.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array, Outcome
from brinell.core.streams import Streams
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import open_data
from brinell.runners.loop import refuse
from brinell.store.run import Run
from brinell.studies.kit import Call
from brinell.studies.review import page
from brinell.studies.review.analysis import ReviewResult, summarise
from brinell.studies.review.records import LAYOUT, Review, Trial
from brinell.studies.review.request import ReviewOptions, ReviewRequest
from brinell.studies.review.server import ReviewServer

POOL = 5000
"""Samples at most from which the shown ones are drawn."""


def make_review(request: ReviewRequest, dataset: Dataset, folder: Path) -> Review:
    """Draw the trials, change the pictures, and write the review's folder.

    Raises:
        RequestError: data that are no pictures, a change or a run that does not fit, a folder that is taken.
    """
    LAYOUT.begin(folder)
    if dataset.domain.kind != "image" or len(dataset.domain.shape) != 3 or dataset.domain.shape[0] not in (1, 3):
        raise RequestError(f"{dataset.name} holds {dataset.domain.kind}s: a review shows pictures with one or three channels")
    rng = np.random.default_rng(np.random.SeedSequence([request.seed, 0xB12]))
    if request.change.startswith("run:"):
        ids, clean, changed, eps = _from_run(request, dataset, rng)
    elif request.change in ("crafted", "noise"):
        ids, clean, changed, eps = _changed(request, dataset, rng)
    else:
        raise RequestError(f"change={request.change}: it is crafted, noise or run:FOLDER")
    labels = np.asarray(dataset.labels())[ids]
    order = rng.permutation(len(ids))
    left = rng.random(len(ids)) < 0.5
    trials = [
        Trial(number=i, sample_id=int(ids[j]), label=int(labels[j]), eps=float(eps[j]), changed_left=bool(left[i]))
        for i, j in enumerate(order)
    ]
    pairs = {"clean": clean[order], "changed": changed[order]}
    return Review.make(folder, request.model_dump(mode="json"), dataset.classes, trials, pairs)


def resume_review(request: ReviewRequest, folder: Path) -> Review | None:
    """The review that a folder holds, to go on with; None where nothing was begun there.

    Raises:
        RequestError: it holds another review.
    """
    if not LAYOUT.has(folder):
        return None
    review = Review.open(folder)
    if dict(review.request) != request.model_dump(mode="json"):
        refuse(LAYOUT, folder, review.request, request)
    return review


def _share(request: ReviewRequest) -> tuple[int, int]:
    """How many changed pairs, and how many equal ones."""
    equal = min(max(round(request.trials * request.catch), 1), request.trials - 1)
    return request.trials - equal, equal


def _changed(request: ReviewRequest, dataset: Dataset, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    budgets = [value for value in parse_eps(request.eps).values if value > 0]
    if not budgets:
        raise RequestError(f"{option('eps')} {request.eps}: a review needs at least one size above 0")
    n, equal = _share(request)
    labels = np.asarray(dataset.labels())
    ids = _balanced(labels[:POOL], n + equal, rng)
    if request.change == "crafted" and len(np.unique(labels[ids])) < 2:
        raise RequestError(f"{dataset.name} has one class: change=crafted goes towards another; take noise")
    # Each class sees every size equally often: the k-th sample of a class has the k-th size, and so on in turns.
    classes = labels[ids]
    nth = np.array([np.sum(classes[:i] == classes[i]) for i in range(n)])
    eps = np.concatenate([np.array(budgets)[(nth + rng.integers(len(budgets))) % len(budgets)], np.zeros(equal)])
    x = dataset.load(ids.tolist())
    others = [rng.choice(np.flatnonzero(classes != one)) if (classes != one).any() else 0 for one in classes]
    streams = Streams.of(request.seed, torch.from_numpy(ids)).fold("review")
    size = torch.from_numpy(eps).float().reshape(-1, *[1] * (x.ndim - 1))
    y = dataset.domain.clamp(x + size * _direction(request, x, x[others], streams))
    return _shown(request, dataset, ids, x, y, eps)


def _direction(request: ReviewRequest, x: Tensor, other: Tensor, streams: Streams) -> Tensor:
    """(n, C, H, W) directions of length 1 in the norm."""
    if request.norm == "linf":
        return other.sign() if request.change == "crafted" else streams.uniform(*x.shape[1:]).sub(0.5).sign()
    to = other - x if request.change == "crafted" else streams.normal(*x.shape[1:])
    length: Tensor = to.flatten(1).norm(dim=1).clamp_min(1e-12).reshape(-1, *[1] * (x.ndim - 1))
    return to / length


def _balanced(labels: Array, n: int, rng: np.random.Generator) -> Array:
    """N positions, the classes in turns, each sample once as long as there are enough."""
    groups = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    return np.array([groups[i % len(groups)][(i // len(groups)) % len(groups[i % len(groups)])] for i in range(n)])


def _from_run(request: ReviewRequest, dataset: Dataset, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    run = Run.open(request.change.removeprefix("run:"))
    if run.manifest["data"]["digest"] != dataset.digest():
        raise RequestError(f"{run.path} was made from other data than {dataset.name}: name the run's own data")
    rows = run.records()
    fooled = np.flatnonzero((rows.outcome == Outcome.FOOLED.value) & (rows.attack != "clean"))
    n, equal = _share(request)
    ids: list[int] = []
    clean, changed = [], []
    for row in rng.permutation(fooled):
        model, attack, sample = str(rows.model[row]), str(rows.attack[row]), int(rows.sample_id[row])
        if len(ids) == n:
            break
        if sample in ids or sample not in (found := run.adversarial(model, attack, [sample])):
            continue
        ids.append(sample)
        clean.append(dataset.load([sample])[0])
        changed.append(torch.from_numpy(np.asarray(found[sample])).float())
    if not ids:
        raise RequestError(f"{run.path} stored no adversarial input: audit with budgets at which something breaks")
    repeat = rng.choice(np.array(ids), size=equal)
    for sample in repeat:
        picture = dataset.load([int(sample)])[0]
        clean.append(picture)
        changed.append(picture)
    every = np.concatenate([np.array(ids), repeat])
    return _shown(request, dataset, every, torch.stack(clean), torch.stack(changed), None)


def _shown(
    request: ReviewRequest, dataset: Dataset, ids: Array, x: Tensor, y: Tensor, asked: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Both as bytes, and how far they are apart as bytes; a catch trial stays one, a change that vanished says so."""
    low, high = dataset.domain.bounds(x)
    levels = ((part - low).div(high - low).mul(255).round().clamp(0, 255).to(torch.uint8) for part in (x, y))
    clean, changed = (part.movedim(1, -1).contiguous().numpy() for part in levels)
    delta = (changed.astype(np.float64) - clean) / 255 * float((high - low).max())
    flat = delta.reshape(len(delta), -1)
    size = np.abs(flat).max(1) if request.norm == "linf" else np.sqrt((flat**2).sum(1))
    if asked is not None and ((size == 0) & (asked > 0)).any():
        least = float(asked[(size == 0) & (asked > 0)].min())
        raise RequestError(
            f"{option('eps')} {least:g} changes nothing on a screen of 256 levels: begin at {float((high - low).max()) / 255:.2g}"
        )
    return ids, clean, changed, size


def carry_out(call: Call) -> ReviewResult:
    """Serve the pairs on loopback until all are judged, and write the page; what was judged before an interruption is kept.

    Raises:
        RequestError: what cannot be carried out, or a port that cannot be used.
    """
    request: ReviewRequest = call.request
    folder = call.folder(request.data)
    review = resume_review(request, folder) if call.resume else None
    review = review or make_review(request, call.dataset() or open_data(request.data), folder)
    options: ReviewOptions = call.options
    try:
        ReviewServer(review, page.trial_page(review), options.reviewer, options.port).serve(call.progress.note)
    finally:
        page.write(folder)
    return summarise(review)


def open_result(folder: Path) -> ReviewResult:
    """What a review's folder says, from its records alone."""
    return summarise(Review.open(folder))
