"""Distances of each sample to its nearest neighbours, means between classes, and the largest
changes that go unnoticed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core import norms
from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.neighbours import Neighbours, Reference, class_means
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.detectors._background import SHARE, most_frequent
from brinell.engine.sources import open_data
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.folder import verb_of
from brinell.studies.epsilon import EpsilonRequest
from brinell.studies.epsilon.result import (
    MEANS,
    OUTLINES,
    PAIRS,
    Distances,
    EpsilonFacts,
    Evidence,
    common_budgets,
    limits_of,
)
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.review import STUDY as REVIEW
from brinell.studies.review.result import ReviewResult
from brinell.studies.work import open_plan

MOST_BYTES = 4 * 2**30
MOST_LISTED = 20
MOST_CLASSES = 10
"""Largest number of classes of whose outlines the page shows pictures."""
BLOCK = 1024
"""Rows and columns of a block of distances."""
SHOWN = 3
"""Samples at the limit of each condition that the page shows."""
STEPS = 15
"""Steps of the bisection, to 1 part in 2**STEPS of the search range."""


class SampledPoints:
    """Samples in memory, flattened, since distances do not depend on the shape."""

    def __init__(self, dataset: Dataset, ids: Array) -> None:
        self.name, self.domain = dataset.name, dataset.domain
        self.labels: Array = np.asarray(dataset.labels(), dtype=np.int64)[ids]
        if self.domain.kind == "signal" and self.domain.movable is not None:
            raise RequestError(
                f"some channels of {self.name} are fixed, so their distances "
                "limit no budget: remove rhythm="
            )
        size = 4 * len(ids) * int(np.prod(self.domain.shape))
        if size > MOST_BYTES:
            raise RequestError(
                f"{len(ids)} samples of {self.name} need {size / 2**30:.1f} GiB "
                f"in memory: use fewer with {option('samples')}"
            )

        self.x = torch.cat(
            [dataset.load(part.tolist()) for part in np.split(ids, range(BLOCK, len(ids), BLOCK))]
        ).flatten(1)
        low, high = self.domain.bounds()
        self.step = (
            float((high - low).max()) / 255
            if self.domain.levels == 256 and low.ndim == high.ndim == 0
            else 0.0
        )

        self.values: Array = self.x.numpy()
        """(n, d): bytes where the data has 256 levels, else float32."""
        if self.step:
            self.values = ((self.x - low) / self.step).round().to(torch.uint8).numpy()

        # Equal inputs are compared once: a duplicate is no neighbour, and costs no search.
        self.pairs = [
            (row.tobytes(), label)
            for row, label in zip(self.values, self.labels.tolist(), strict=True)
        ]
        # From the last to the first, so that the first of equal pairs is what stays.
        first = {pair: number for number, pair in reversed(list(enumerate(self.pairs)))}
        self.distinct: Array = np.array(sorted(first.values()))
        """Positions (k,) of distinct pairs, each the first of its kind."""
        self.kind: Array = np.searchsorted(self.distinct, [first[pair] for pair in self.pairs])
        """(n,): the index of the pair of each sample in `distinct`."""

    def notes(self) -> dict[str, str]:
        """Facts that make budgets wrong, by code."""
        notes: dict[str, str] = {}
        contents = Counter(self.pairs[position][0] for position in self.distinct.tolist())
        if clash := [
            str(number) for number, (content, _) in enumerate(self.pairs) if contents[content] > 1
        ]:
            notes["conflict"] = (
                f"{len(clash)} samples equal a sample with another label: they "
                "make every eps unsound, and no classifier can be "
                "right on all of them; correct their labels first (such as "
                f"positions {', '.join(clash[:MOST_LISTED])})"
            )

        if twins := len(self.labels) - len(self.distinct):
            notes["duplicates"] = (
                f"{twins} samples repeat a sample with the same label; the "
                "nearest different sample counts as neighbour"
            )
        if len(np.unique(self.labels)) < 2:
            notes["one-class"] = (
                "there is only one class, so nothing is known about label constancy"
            )
        return notes


@dataclass(frozen=True, kw_only=True)
class EpsilonPlan(Plan):
    """A resolved study, with the data in memory."""

    facts: EpsilonFacts
    points: SampledPoints
    train: SampledPoints | None
    """Training samples that are not in the data."""
    subset: Array
    """Positions of the samples that measure means and perceptibility."""
    people: Mapping[str, ReviewResult]


def make_plan(call: Call) -> EpsilonPlan:
    """Load the data and the reviews."""
    request: EpsilonRequest = call.request
    dataset = call.dataset() or open_data(request.data)
    plan: Plan = open_plan(call, usual_samples=len(dataset), usual_method="first")
    if len(plan.ids) < 2:
        raise RequestError(
            f"{dataset.name} has {len(plan.ids)} sample: there is no distance to measure"
        )

    points = SampledPoints(plan.dataset, plan.ids)
    people = open_reviews(request)
    train = call.dataset("train") or (open_data(request.train) if request.train else None)
    others = None if train is None else training_points(points, train)
    subset = draw(points.labels, request.pairs, request.seed)
    notes = points.notes()
    # `others` are the training samples that are not in the data.
    leaks = 0 if train is None else len(train) - (0 if others is None else len(others.labels))
    if leaks:
        notes["leak"] = (
            f"{leaks} training samples are also in {dataset.name}: accuracy on "
            "them measures memorisation"
        )
    facts = EpsilonFacts(
        evidence=_evidence(request, people, dataset.domain, len(subset)),
        train=0 if train is None else len(train),
        background=_background(points, subset),
        notes=notes,
    )
    identity = {
        "train": None if train is None else train.digest(),
        "people": {norm: review.payload() for norm, review in people.items()},
    }
    return EpsilonPlan(
        **vars(plan) | {"facts": facts, "identity": identity},
        points=points,
        train=others,
        subset=subset,
        people=people,
    )


def _background(points: "SampledPoints", subset: Array) -> float | None:
    """The share of the values of pictures that are one background; None without one."""
    domain = points.domain
    if domain.kind not in ("image", "video"):
        return None
    pictures = points.x[torch.from_numpy(subset)].reshape(-1, *domain.shape)
    _, frequency = most_frequent(pictures, domain)
    return frequency if frequency >= SHARE else None


def _evidence(
    request: EpsilonRequest, people: Mapping[str, ReviewResult], domain: Domain, samples: int
) -> dict[str, Evidence]:
    """The evidence by norm of how large a change goes unnoticed: answers of people, before noise.

    SSIM needs windows of three pixels, and random changes have a size of their own in two norms.
    """
    evidence = {}
    if domain.kind == "image" and min(domain.shape[1:]) >= 3:
        evidence = {
            norm: Evidence(by="noise", n=samples) for norm in ("linf", "l2") if norm in request.norm
        }
    return evidence | {
        norm: Evidence(by="people", n=review.answers, folder=review.folder)
        for norm, review in people.items()
    }


def draw(labels: Array, per_class: int, seed: int) -> Array:
    """Draw at most `per_class` positions of every class, ascending; all for 0.

    The draws of classes are independent.
    """
    if not per_class:
        return np.arange(len(labels))
    rank = Streams.of(seed, torch.arange(len(labels))).fold("drawn").uniform(1)[:, 0].numpy()
    order = np.lexsort((rank, labels))
    sorted_labels = labels[order]
    # Where the class of each begins, and so its place within the class.
    first = np.searchsorted(sorted_labels, sorted_labels)
    return np.sort(order[np.arange(len(labels)) - first < per_class])


def open_reviews(request: EpsilonRequest) -> dict[str, ReviewResult]:
    """Reviews by norm."""
    reviews: dict[str, ReviewResult] = {}
    for folder in request.evidence:
        if verb_of(Path(folder)) != REVIEW.verb:
            raise RequestError(f"{folder} holds no review: brinell {REVIEW.verb} makes one")
        review: ReviewResult = REVIEW.open(Path(folder))

        norm = review.request.norm
        if review.overall is None or review.overall.size is None:
            raise RequestError(
                f"the answers in {folder} are too few for a threshold: judge more pairs"
            )
        if norm not in request.norm:
            raise RequestError(
                f"{folder} is evidence for {norm}, which the request leaves out: "
                f"add {norm} to {option('norm')}"
            )
        reviews[norm] = review
    return reviews


def training_points(points: SampledPoints, train: Dataset) -> SampledPoints | None:
    """The training samples that are not in the data; None if all are."""
    if train.domain != points.domain:
        raise RequestError(
            f"{train.name} and {points.name} have different shapes or bounds: "
            f"{option('train')} needs those of the data"
        )
    known = set(points.pairs)
    keep = np.flatnonzero(
        [pair not in known for pair in SampledPoints(train, np.arange(len(train))).pairs]
    )
    return SampledPoints(train, keep) if len(keep) else None


def pieces(plan: EpsilonPlan, call: Call) -> list[Piece]:
    """The neighbours in each norm, the means between classes, and inputs whose outlines the page
    shows.
    """
    search = DistanceSearch(plan, call.request)
    first, *further_norms = call.request.norm

    return [
        Piece(
            name=f"nearest neighbours in {first}",
            make=partial(measure_with_pairs, search, first),
            files=(PAIRS,),
        ),
        *(
            Piece(name=f"nearest neighbours in {norm}", make=partial(search.measure, norm))
            for norm in further_norms
        ),
        Piece(
            name="mean distances between classes",
            make=partial(write_means, plan, call.request.norm),
            files=(MEANS,),
        ),
        Piece(name="outlines of classes", make=partial(write_outlines, plan), files=(OUTLINES,)),
    ]


def measure_with_pairs(search: "DistanceSearch", norm: str) -> Distances:
    """The rows of a norm; writes samples at the common limit of each condition, and what lies
    there.
    """
    plan, points = search.plan, search.points
    measured = search.measure(norm)
    limits = limits_of(measured, norm)
    common = common_budgets(limits, search.request.allow, exact=True)
    shape = points.domain.shape
    arrays: dict[str, Array] = {}

    for name, limit in limits.items():
        finite = np.flatnonzero(np.isfinite(limit))
        # The samples whose own limit is nearest to the common one.
        nearest = finite[np.argsort(np.abs(limit[finite] - common[name]), kind="stable")][:SHOWN]
        if not len(nearest):
            continue

        x0 = points.x[torch.from_numpy(nearest)]
        x1, labels = search.counterparts(name, norm, nearest, limit[nearest])
        arrays |= {
            f"{name}/x": torch.stack([x0, x1], dim=1).reshape(-1, 2, *shape).numpy(),
            f"{name}/ids": plan.ids[nearest],
            f"{name}/labels": np.stack([points.labels[nearest], labels], axis=1),
            f"{name}/eps": limit[nearest],
        }
    write_arrays(plan.folder / PAIRS, arrays)
    return measured


def write_means(plan: EpsilonPlan, names: Sequence[str]) -> None:
    """Write the mean distances between classes: in L2 over all pairs of distinct samples, else over
    those of the subset.
    """
    x, labels = plan.points.x, plan.points.labels
    classes = max(len(plan.dataset.classes), int(labels.max()) + 1)
    positions = {norm: plan.points.distinct if norm == "l2" else plan.subset for norm in names}
    means = {
        norm: class_means(x[torch.from_numpy(index)], labels[index], classes, norm)
        for norm, index in positions.items()
    }
    write_arrays(plan.folder / MEANS, means)


def write_outlines(plan: EpsilonPlan) -> None:
    """Write the first sample of each of the first classes, and its position: the report draws the
    outline of another class on it (`result._outlined`).
    """
    _, first = np.unique(plan.points.labels, return_index=True)
    first = first[:MOST_CLASSES]
    x = plan.points.x[torch.from_numpy(first)].reshape(-1, *plan.dataset.domain.shape).numpy()
    write_arrays(
        plan.folder / OUTLINES,
        {"x": x, "ids": plan.ids[first], "labels": plan.points.labels[first]},
    )


class DistanceSearch:
    """Distances to neighbours in the data and in the training data, in any norm; both begin at the
    neighbours in L2.
    """

    def __init__(self, plan: EpsilonPlan, request: EpsilonRequest) -> None:
        self.plan, self.request, self.points = plan, request, plan.points
        self.values = self.points.values[self.points.distinct]
        self.labels = self.points.labels[self.points.distinct]
        self.references = {"": Reference(self.values, self.labels)}
        if plan.train is not None:
            self.references["train_"] = Reference(plan.train.values, plan.train.labels)
        self.squared = dict[str, Neighbours]()
        """The neighbours in L2, by the prefix of their columns."""

    def nearest(self, norm: str, prefix: str) -> Neighbours:
        """The neighbours of the distinct samples; a sample of the data is not its own neighbour."""
        # Without a prefix the reference is the data themselves.
        itself = None if prefix else np.arange(len(self.labels))
        if prefix not in self.squared:
            self.squared[prefix] = self.references[prefix].nearest(
                "l2", self.values, self.labels, itself=itself
            )
        first = self.squared[prefix]
        return (
            first
            if norm == "l2"
            else self.references[prefix].nearest(norm, self.values, self.labels, first, itself)
        )

    def measure(self, norm: str) -> Distances:
        """The rows of a norm."""
        points, kind = self.points, self.points.kind
        # Bytes were compared where data have 256 levels; L0 counts values, whatever their unit.
        scale = points.step if points.step and norm != "l0" else 1.0
        columns: dict[str, Array] = {}
        for prefix in self.references:
            near = self.nearest(norm, prefix)
            columns |= {
                f"{prefix}same": near.same_class[kind] * scale,
                f"{prefix}other": near.other_class[kind] * scale,
            }

        if norm in self.plan.facts.evidence:
            columns["unnoticed"] = self._unnoticed(norm)
        return rows.build(
            Distances, len(kind), norm=norm, sample_id=self.plan.ids, label=points.labels, **columns
        )

    def counterparts(
        self, condition: str, norm: str, index: Array, eps: Array
    ) -> tuple[Tensor, Array]:
        """What limits the eps of samples in a condition: their neighbours, or changes of that size.

        Returns (k, d) float32 and labels (k,).
        """
        side = "same" if condition == "interpolation" else "other"
        kind = self.points.kind[index]
        x, labels = (
            torch.empty(len(index), self.points.x.shape[1]),
            self.points.labels[index].copy(),
        )
        nearest = np.full(len(index), np.inf)
        for prefix in self.references:
            near = self.nearest(norm, prefix)
            distances = getattr(near, f"{side}_class")[kind]
            positions = getattr(near, f"{side}_at")[kind]
            source = self.points if not prefix or self.plan.train is None else self.plan.train
            for row in np.flatnonzero(distances < nearest).tolist():
                # Neighbours in the data are numbered among its distinct samples.
                position = positions[row] if prefix else self.points.distinct[positions[row]]
                x[row], labels[row] = source.x[position], source.labels[position]
            nearest = np.minimum(nearest, distances)
        if condition != "perception":
            return x, labels

        # The same changes that were measured, or such as people judged in a review: the outline of
        # another sample in Linf, a step towards it in L2.
        domain, part = self.points.domain, torch.from_numpy(index)
        x0 = self.points.x[part]
        if norm in self.plan.people:
            delta = x.sign() if norm == "linf" else F.normalize(x - x0)
        else:
            rng = Streams.of(self.request.seed, part).fold("unnoticed")
            delta = random_change(norm, x0.reshape(-1, *domain.shape), rng).flatten(1)
        changed = x0 + torch.from_numpy(eps).float()[:, None] * delta
        return domain.clamp(changed.reshape(-1, *domain.shape)).flatten(1), self.points.labels[
            index
        ]

    def _unnoticed(self, norm: str) -> Array:
        """(n,) the largest eps whose change goes unnoticed, by people, or by SSIM and PSNR of
        random changes.

        Where random changes of a sample were not measured, it gets the limit that all but the
        allowed share of its class reach.
        """
        labels, domain, subset = self.points.labels, self.points.domain, self.plan.subset
        request = self.request
        if (review := self.plan.people.get(norm)) is not None:
            sizes = {entry.class_: entry.size for entry in review.per_class if entry.size}
            default = None if review.overall is None else review.overall.size
            return np.array([sizes.get(label, default) for label in labels.tolist()], np.float64)

        parts = []
        for part in torch.split(torch.from_numpy(subset), 128):
            x0 = self.points.x[part].reshape(-1, *domain.shape)
            rng = Streams.of(request.seed, part).fold("unnoticed")
            delta = random_change(norm, x0, rng)
            limits = largest_unnoticed(
                norm, x0, delta, domain, least_ssim=request.ssim, least_psnr=request.psnr
            )
            parts.append(limits)

        measured: Array = torch.cat(parts).double().numpy()
        values = np.empty(len(labels))
        for label in np.unique(labels):
            # The allowed share lies below the entry at this place.
            known = np.sort(measured[labels[subset] == label])
            values[labels == label] = known[int(request.allow * len(known))]
        values[subset] = measured
        return values


def ssim(x: Tensor, y: Tensor, span: float = 1.0) -> Tensor:
    """Structural similarity (n,) of pictures `y` to clean pictures `x`, both (n, C, H, W) over a
    range `span`; 1 for equal ones.

    Wang, Bovik, Sheikh & Simoncelli 2004, Image quality assessment: from error visibility to
    structural similarity (Gaussian window of 11 x 11 with sigma 1.5, K1 = 0.01, K2 = 0.03).
    Deviations: the window shrinks to the largest odd side that fits into a small picture, and the
    mean is over the windows in which the standard deviation of the clean picture is at least 0.03
    of the span, for each channel separately. On a plain window, the index falls towards 0 for noise
    that nobody sees, and most windows of an MNIST picture are plain. Without a textured window, the
    mean is over all windows.
    """
    # The largest odd side up to 11 that fits.
    side = min(11, *(size - 1 + size % 2 for size in x.shape[2:]))
    offsets = torch.arange(side, dtype=x.dtype, device=x.device) - side // 2
    window = torch.exp(-offsets * offsets / (2 * 1.5**2))
    window /= window.sum()
    n, channels = x.shape[:2]

    def smooth(values: Tensor) -> Tensor:
        flat = values.reshape(n * channels, 1, *values.shape[2:])
        return F.conv2d(F.conv2d(flat, window.view(1, 1, -1, 1)), window.view(1, 1, 1, -1))

    # Means, then variances and the covariance, in each window.
    mx, my = smooth(x), smooth(y)
    xx, yy, xy = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    index = (
        (2 * mx * my + c1) * (2 * xy + c2) / ((mx * mx + my * my + c1) * (xx + yy + c2))
    ).reshape(n, -1)
    textured = (xx >= c2).reshape(n, -1)
    textured = textured | ~textured.any(1, keepdim=True)
    return (index * textured).sum(1) / textured.sum(1)


def psnr(x: Tensor, y: Tensor, span: float = 1.0) -> Tensor:
    """Peak signal-to-noise ratio (n,) in dB; infinite for equal pictures."""
    error = (x - y).flatten(1).square().mean(1)
    return 10 * torch.log10(span * span / error)


def random_change(norm: str, x0: Tensor, rng: Streams) -> Tensor:
    """A random change of inputs, of size 1 in Linf (every value up or down) or in L2 (normal
    noise).
    """
    if norm == "linf":
        return (rng.uniform(*x0.shape[1:]) - 0.5).sign()
    delta = rng.normal(*x0.shape[1:])
    return delta * norms.per_sample(1 / norms.l2(delta), x0)


def largest_unnoticed(
    norm: str, x0: Tensor, delta: Tensor, domain: Domain, *, least_ssim: float, least_psnr: float
) -> Tensor:
    """Largest eps (n,) at which pictures `x0` (n, C, H, W) changed by eps times `delta` keep SSIM
    and PSNR (dB).

    `delta` has size 1 in the norm, linf or l2; changed pictures stay within the domain.
    """
    low, high = domain.bounds(x0)
    span = float((high - low).max())
    values = x0[0].numel()
    # PSNR bounds the mean square and thus the search range; in Linf a single value may change most.
    top = (
        span
        if norm == "linf"
        else min(2 * (values * 10 ** (-least_psnr / 10)) ** 0.5, values) * span
    )
    below = torch.zeros(len(x0))
    above = torch.full((len(x0),), top)
    for _ in range(STEPS):
        middle = (below + above) / 2
        x = domain.clamp(x0 + norms.per_sample(middle, x0) * delta)
        unnoticed = (ssim(x0, x, span) >= least_ssim) & (psnr(x0, x, span) >= least_psnr)
        below = torch.where(unnoticed, middle, below)
        above = torch.where(unnoticed, above, middle)
    return below
