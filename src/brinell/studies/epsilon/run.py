"""What budgets are judged by: distances between the samples of a data set, and how much change goes unnoticed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.model import Model
from brinell.core.neighbours import Reference
from brinell.core.pairs import class_means, l2_statistics, l2_to
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.answers import settled
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import open_data, opener_of
from brinell.studies.epsilon import page, perception
from brinell.studies.epsilon.analysis import EpsilonResult, summarise
from brinell.studies.epsilon.conditions import PERCEPTION
from brinell.studies.epsilon.crafted import craft
from brinell.studies.epsilon.evidence import NOISE, PEOPLE, Stored, Threshold, judged, pictures, stored
from brinell.studies.epsilon.records import check_free, save_folder
from brinell.studies.epsilon.request import EpsilonRequest
from brinell.studies.kit import Call
from brinell.studies.review.analysis import thresholds
from brinell.studies.review.records import LAYOUT as REVIEW
from brinell.studies.review.records import Review

NORMS = ("linf", "l2", "l1", "l0")
MOST_BYTES = 4 * 2**30
VALUES = 2e10
"""Pairs times values up to which L1 and L0 neighbours are searched unasked: some ten seconds."""
SHOWN = 20
USUAL = {
    "linf": ("2/255", "4/255", "8/255", "16/255", "0.1", "0.2", "0.3"),
    "l2": ("0.25", "0.5", "1", "2", "3", "4.5"),
    "l1": ("5", "12", "40"),
    "l0": ("1", "5", "10", "50"),
}
"""Budgets that studies of images in [0, 1] use."""


class Points:
    """A data set in memory, flattened, since distances do not depend on the shape."""

    def __init__(self, dataset: Dataset, labels: Array) -> None:
        self.dataset, self.domain, self.labels, n = dataset, dataset.domain, labels, len(labels)
        self.classes = max(len(dataset.classes), int(labels.max()) + 1)
        if self.domain.kind == "signal" and self.domain.movable is not None:
            raise RequestError(
                f"some channels of {dataset.name} are fixed, and say nothing of a budget: name the data without rhythm="
            )
        size = 4 * n * int(np.prod(self.domain.shape))
        if size > MOST_BYTES:
            raise RequestError(
                f"{n} samples of {dataset.name} need {size / 2**30:.1f} GiB in memory: ask for fewer by {option('samples')}"
            )
        parts = [dataset.load(range(start, min(start + 1024, n))) for start in range(0, n, 1024)]
        self.x = torch.cat(parts).flatten(1)
        _check(self.x, self.domain, dataset.name)
        low, high = self.domain.bounds()
        self.step = float((high - low).max()) / 255 if self.domain.levels == 256 and low.ndim == high.ndim == 0 else 0.0
        self.values: Array = self.x.numpy()
        """(n, d): bytes where the data has 256 levels, else float32."""
        if self.step:
            self.values = ((self.x - low) / self.step).round().to(torch.uint8).numpy()
        whole = np.ascontiguousarray(self.values).view(np.dtype((np.void, self.values.dtype.itemsize * self.values.shape[1])))
        self.content = whole[:, 0]

    def __len__(self) -> int:
        return len(self.labels)

    def scale(self, norm: str) -> float:
        """By what a distance between `values` is multiplied to be one between inputs."""
        return self.step if self.step and norm in ("linf", "l1") else 1.0


def _check(x: Tensor, domain: Domain, name: str) -> None:
    bad = (~torch.isfinite(x)).any(1).nonzero()
    if len(bad):
        raise RequestError(
            f"{name} holds NaN or infinity in {len(bad)} samples, the first at position {int(bad[0])}: correct or drop them"
        )
    shaped = x.reshape(-1, *domain.shape)
    excess = domain.excess(shaped)
    if excess > domain.slack:
        raise RequestError(f"{name} leaves its bounds by {excess:.3g}: name the bounds that hold (options low= and high=)")


def measure(
    request: EpsilonRequest,
    tell: Callable[[str], None],
    *,
    dataset: Dataset | None = None,
    train: Dataset | None = None,
    model: Model | None = None,
    people: Sequence[Threshold] = (),
) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Everything that the recommendation is made from: facts for the manifest, and arrays.

    `people` are the thresholds of the reviews that `request.evidence` names; its other folders are runs.

    Raises:
        RequestError: data that cannot be measured.
    """
    started = time.perf_counter()
    dataset = open_data(request.data) if dataset is None else dataset
    train = open_data(request.train) if train is None and request.train else train
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    n = min(len(labels), request.samples or len(labels))
    if n < 2:
        raise RequestError(f"{dataset.name} has {n} sample: there is no distance to measure")
    points = Points(dataset, labels[:n])
    notes: dict[str, str] = {}
    drawn = draw(points.labels, request.pairs, request.seed)
    norms = _norms(request, points, notes)
    samples: dict[str, Array] = {"labels": points.labels}
    tell(f"distances between {n} samples, {', '.join(norms)}")
    distinct, back = _distinct(points)
    notes |= _remarks(points, distinct, back)
    near, whole = _search(points, distinct, back, norms, tell)
    samples |= near
    if train is not None:
        samples |= _train(points, train, norms, tell, notes)
    tell("mean distances between classes")
    x, of = points.x[torch.from_numpy(drawn)], points.labels[drawn]
    means = {norm: whole if norm == "l2" else class_means(x, of, points.classes, norm) for norm in NORMS}
    background = perception.background(points.x)
    unnoticed, judged_on, attacks = _perception(points, drawn, norms, request, notes, people)
    samples |= unnoticed
    facts = {
        "data": {
            "spec": request.data,
            "name": dataset.name,
            "digest": dataset.digest(),
            "n": n,
            "total": len(dataset),
            "classes": list(dataset.classes),
            "domain": {key: value for key, value in points.domain.to_json().items() if key != "columns"},
        },
        "train": None if train is None else {"name": train.name, "n": len(train), "spec": request.train or "in-memory"},
        "norms": list(norms),
        "conditions": [name for name in request.conditions if name != PERCEPTION or unnoticed],
        "fraction": request.fraction,
        "allow": request.allow,
        "perception": judged_on,
        "ssim": request.ssim,
        "psnr": request.psnr,
        "pairs": request.pairs,
        "drawn": len(drawn),
        "seed": request.seed,
        "usual": _usual(points, drawn, norms, background, request.seed) if unnoticed else {},
        "background": None if background is None or points.domain.kind != "image" else background,
        "background_share": None if background is None else float((points.x == background).float().mean()),
        "notes": [{"code": code, "text": text} for code, text in notes.items()],
        "seconds": 0.0,
        "request": request.model_dump(mode="json"),
    }
    if not facts["conditions"]:
        raise RequestError(
            f"no condition is left for {points.domain.kind} data: add {option('conditions')} label or interpolation"
        )
    model = opener_of(request.model, dataset)() if model is None and request.model else model
    if model is not None:
        tell(f"{model.name} classifies the crafted inputs")
        model = settled(model, dataset, facts)
    crafted, told = craft(points, facts, samples, model)
    if attacks:
        shown, facts["stored"] = pictures(attacks[0], points.x, points.labels, points.domain, request)
        crafted |= shown
    facts |= {"crafted": told, "seconds": round(time.perf_counter() - started, 1)}
    return facts, {"samples": samples, "means": means, "crafted": crafted}


def draw(labels: Array, each: int, seed: int) -> Array:
    """Positions of at most `each` samples of every class, ascending; all for 0. A class's draw does not depend on the others."""
    if not each:
        return np.arange(len(labels))
    rank = Streams.of(seed, torch.arange(len(labels))).fold("drawn").uniform(1)[:, 0].numpy()
    order = np.lexsort((rank, labels))
    sorted_labels = labels[order]
    first = np.searchsorted(sorted_labels, sorted_labels)
    return np.sort(order[np.arange(len(labels)) - first < each])


def _norms(request: EpsilonRequest, points: Points, notes: dict[str, str]) -> tuple[str, ...]:
    if request.norm:
        return tuple(norm for norm in NORMS if norm in request.norm)
    work = float(len(points)) ** 2 * points.x.shape[1]
    if work <= VALUES:
        return NORMS
    notes["slow-norms"] = (
        f"L1 and L0 neighbours were not searched: some {work * 5e-10:.0f} s more; --norm l1 --norm l0 asks for them"
    )
    return NORMS[:2]


def _distinct(points: Points) -> tuple[Array, Array]:
    """Positions of the different (content, label) pairs, and for each sample the one of them that it equals."""
    _, content = np.unique(points.content, return_inverse=True)
    key = content.astype(np.int64) * (int(points.labels.max()) + 1) + points.labels
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    return first, back


def _remarks(points: Points, distinct: Array, back: Array) -> dict[str, str]:
    notes: dict[str, str] = {}
    contents, inverse, counts = np.unique(points.content[distinct], return_inverse=True, return_counts=True)
    clash = np.isin(back, np.flatnonzero(counts[inverse] > 1))
    if clash.any():
        shown = ", ".join(map(str, np.flatnonzero(clash)[:SHOWN].tolist()))
        notes["conflict"] = (
            f"{int(clash.sum())} samples are equal to one of another label: they make every eps unsound, and no "
            f"classifier can be right on all of them; correct their labels first (such as positions {shown})"
        )
    fixed = sum(column.fixed for column in points.domain.columns)
    if fixed:
        notes["fixed"] = f"{fixed} columns are fixed; distances count them too, so that budgets are on the safe side"
    twins = len(points) - len(distinct)
    if twins:
        notes["duplicates"] = (
            f"{twins} samples repeat another of the same label; the nearest different sample counts as neighbour"
        )
    flat = (points.x.amax(1) == points.x.amin(1)).nonzero()[:, 0].tolist()
    if flat:
        notes["constant"] = (
            f"{len(flat)} samples are constant, which no picture of anything is (positions "
            f"{', '.join(map(str, flat[:SHOWN]))}{', ...' if len(flat) > SHOWN else ''})"
        )
    values, members = np.unique(points.labels[distinct], return_counts=True)
    single = [_name(points, int(value)) for value in values[members == 1]]
    if single:
        notes["single"] = (
            f"{len(single)} classes have one (different) sample, so nothing is known about interpolation within "
            f"them: {', '.join(single[:SHOWN])}{', ...' if len(single) > SHOWN else ''}"
        )
    if len(values) < 2:
        notes["one-class"] = "there is one class alone, so nothing is known about label constancy"
    return notes


def _name(points: Points, label: int) -> str:
    return points.dataset.classes[label] if label < len(points.dataset.classes) else str(label)


def _search(
    points: Points, distinct: Array, back: Array, norms: tuple[str, ...], tell: Callable[[str], None]
) -> tuple[dict[str, Array], Array]:
    """Nearest neighbours within the data, by norm; and what comes with them, the mean L2 distances over all pairs."""
    x, labels = points.x[torch.from_numpy(distinct)], points.labels[distinct]
    sums, first = l2_statistics(x, labels, points.classes)
    values, everyone = points.values[distinct], np.arange(len(distinct))
    reference = Reference(values, labels)
    found: dict[str, Array] = {}
    for norm in norms:
        tell(f"nearest neighbours in {norm}")
        near = first if norm == "l2" else reference.nearest(norm, values, labels, first, itself=everyone)
        scale = points.scale(norm)
        found |= {
            f"{norm}.same": near.same[back] * scale,
            f"{norm}.other": near.other[back] * scale,
            f"{norm}.same_at": np.where(near.same_at >= 0, distinct[near.same_at], -1)[back],
            f"{norm}.other_at": np.where(near.other_at >= 0, distinct[near.other_at], -1)[back],
        }
    return found, sums.means()


def _train(
    points: Points, train: Dataset, norms: tuple[str, ...], tell: Callable[[str], None], notes: dict[str, str]
) -> dict[str, Array]:
    """Nearest neighbours in the training data; what is in both is no neighbour of itself."""
    if train.domain != points.domain:
        raise RequestError(
            f"{train.name} and {points.dataset.name} have different shapes or bounds: {option('train')} needs the same"
        )
    tell(f"nearest neighbours among {len(train)} training samples")
    known = np.asarray(train.labels(), dtype=np.int64)
    there = Points(train, known)
    pairs = {(c.tobytes(), int(label)) for c, label in zip(points.content, points.labels, strict=True)}
    keep = np.array([(c.tobytes(), int(label)) not in pairs for c, label in zip(there.content, known, strict=True)])
    if not keep.all():
        notes["leak"] = f"{int((~keep).sum())} training samples are in {points.dataset.name} too: accuracy on them is memory"
    if not keep.any():
        return {}
    first = l2_to(points.x, points.labels, there.x[torch.from_numpy(keep)], known[keep])
    reference = Reference(there.values[keep], known[keep])
    found: dict[str, Array] = {}
    for norm in norms:
        near = first if norm == "l2" else reference.nearest(norm, points.values, points.labels, first)
        scale = points.scale(norm)
        found |= {f"{norm}.train_same": near.same * scale, f"{norm}.train_other": near.other * scale}
    return found


def _perception(
    points: Points,
    drawn: Array,
    norms: tuple[str, ...],
    request: EpsilonRequest,
    notes: dict[str, str],
    people: Sequence[Threshold],
) -> tuple[dict[str, Array], dict[str, Any], list[Stored]]:
    """What goes unnoticed, what that was judged on, and the stored adversarial examples among it."""
    if PERCEPTION not in request.conditions:
        return {}, {}, []
    if points.domain.kind != "image" or min(points.domain.shape[1:]) < 3:
        notes["no-perception"] = (
            f"perceptibility was not measured: {points.domain.kind} data of this shape has no visual meaning here"
        )
        return {}, {}, []
    reviews = [one.folder for one in people]
    runs = [Path(folder) for folder in request.evidence if folder not in reviews]
    attacks = [stored(folder, points.dataset.digest(), points.dataset.name, len(points)) for folder in runs]
    for folder, norm in [(one.folder, one.norm) for one in people] + [(one.folder, one.norm) for one in attacks]:
        if norm not in norms:
            raise RequestError(f"{folder} is about {norm}, for which nothing is recommended: add {norm} to {option('norm')}")
    found, told = judged(points.x, points.labels, points.domain, drawn, norms, request, people, attacks)
    if any(one["by"] != PEOPLE for one in told.values()):
        notes["no-lpips"] = (
            "LPIPS was not measured: the weights of its networks are not at hand; SSIM and PSNR measure perceptibility instead"
        )
    if len(drawn) < len(points) and any(one["by"] == NOISE for one in told.values()):
        notes["drawn"] = f"perceptibility was measured on {len(drawn)} samples; every other one has what its class is recommended"
    return found, told, attacks


def _usual(points: Points, drawn: Array, norms: tuple[str, ...], background: float | None, seed: int) -> dict[str, Any]:
    """What the usual budgets do to pictures: medians over some of the drawn samples."""
    if points.domain.bounds()[0].ndim or (points.domain.low, points.domain.high) != (0.0, 1.0):
        return {}
    at = torch.from_numpy(drawn[np.linspace(0, len(drawn) - 1, min(len(drawn), 200)).astype(int)])
    x0 = points.x[at].reshape(-1, *points.domain.shape)
    step = 1 / (points.domain.levels - 1) if points.domain.levels else 1 / 255
    found: dict[str, Any] = {}
    for norm in norms:
        for text in USUAL[norm]:
            eps = parse_eps(text).values[0]
            x = perception.typical_change(
                norm, x0, torch.full((len(x0),), eps), points.domain, Streams.of(seed, at).fold("unnoticed")
            )
            moved = None
            if background is not None:
                moved = float(perception.background_changed(x0, x, background, step).nanmedian())
            found.setdefault(norm, []).append(
                {
                    "eps": eps,
                    "text": text,
                    "ssim": float(perception.ssim(x0, x).median()),
                    "psnr": min(float(perception.psnr(x0, x).median()), 99.0),
                    "background_changed": moved,
                }
            )
    return found


def carry_out(call: Call) -> EpsilonResult:
    """Measure distances, recommend budgets, and write the folder and its page.

    Raises:
        RequestError: what cannot be carried out, or a folder that holds something.
        StoppedError: the folder cannot be written.
    """
    request: EpsilonRequest = call.request
    folder = call.folder(request.data)
    check_free(folder)
    facts, arrays = measure(
        request,
        call.progress.note,
        dataset=call.dataset(),
        train=call.dataset("train"),
        model=call.model(),
        people=_people(request.evidence),
    )
    save_folder(folder, facts, arrays)
    page.write(folder)
    return summarise(folder)


def _people(folders: Sequence[str]) -> list[Threshold]:
    """What people noticed, from those of some folders that are reviews."""
    reviews = [folder for folder in folders if REVIEW.has(Path(folder))]
    return [Threshold(folder=folder, **thresholds(Review.open(folder))._asdict()) for folder in reviews]
