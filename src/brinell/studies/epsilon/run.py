"""Measure distances between the samples of a data set, and the sizes of unnoticed changes, for recommendations of eps."""

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
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.answers import with_logits
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import model_opener
from brinell.engine.request import count_samples
from brinell.engine.sources import open_data
from brinell.store.folder import verb_of
from brinell.studies.epsilon import EpsilonRequest, perception
from brinell.studies.epsilon.class_distances import class_means
from brinell.studies.epsilon.conditions import PERCEPTION
from brinell.studies.epsilon.crafted import craft_examples
from brinell.studies.epsilon.evidence import (
    NOISE,
    PEOPLE,
    StoredExamples,
    Threshold,
    example_pictures,
    load_examples,
    measure_perceptibility,
)
from brinell.studies.epsilon.figures import summarise
from brinell.studies.epsilon.records import NORMS, check_free, save_folder
from brinell.studies.epsilon.result import EpsilonResult
from brinell.studies.kit import Call
from brinell.studies.review import STUDY as REVIEW
from brinell.studies.review.result import ReviewResult

MOST_BYTES = 4 * 2**30
MOST_VALUES = 2e10
"""Largest number of pairs times values for which L1 and L0 are default norms: about ten seconds."""
MOST_LISTED = 20
USUAL = {
    "linf": ("2/255", "4/255", "8/255", "16/255", "0.1", "0.2", "0.3"),
    "l2": ("0.25", "0.5", "1", "2", "3", "4.5"),
    "l1": ("5", "12", "40"),
    "l0": ("1", "5", "10", "50"),
}
"""Usual budgets in publications on images in [0, 1]."""


class Points:
    """A data set in memory, flattened, since distances do not depend on the shape."""

    def __init__(self, dataset: Dataset, labels: Array) -> None:
        self.dataset, self.domain, self.labels, n = dataset, dataset.domain, labels, len(labels)
        self.classes = max(len(dataset.classes), int(labels.max()) + 1)
        if self.domain.kind == "signal" and self.domain.movable is not None:
            raise RequestError(
                f"some channels of {dataset.name} are fixed, so their distances limit no budget: remove the option rhythm="
            )
        size = 4 * n * int(np.prod(self.domain.shape))
        if size > MOST_BYTES:
            raise RequestError(
                f"{n} samples of {dataset.name} need {size / 2**30:.1f} GiB in memory: use fewer with {option('samples')}"
            )
        parts = [dataset.load(range(start, min(start + 1024, n))) for start in range(0, n, 1024)]
        self.x = torch.cat(parts).flatten(1)
        _check_inputs(self.x, self.domain, dataset.name)
        low, high = self.domain.bounds()
        self.step = float((high - low).max()) / 255 if self.domain.levels == 256 and low.ndim == high.ndim == 0 else 0.0
        self.values: Array = self.x.numpy()
        """(n, d): bytes where the data has 256 levels, else float32."""
        if self.step:
            self.values = ((self.x - low) / self.step).round().to(torch.uint8).numpy()
        row_bytes = np.ascontiguousarray(self.values).view(np.dtype((np.void, self.values.dtype.itemsize * self.values.shape[1])))
        self.content = row_bytes[:, 0]
        """(n,): bytes of each sample, for comparing samples."""

    def __len__(self) -> int:
        return len(self.labels)

    def scale(self, norm: str) -> float:
        """Factor from a distance between `values` to a distance between inputs."""
        return self.step if self.step and norm != "l0" else 1.0


def _check_inputs(x: Tensor, domain: Domain, name: str) -> None:
    """Refuse inputs (n, d) that are not finite or outside the bounds."""
    invalid = (~torch.isfinite(x)).any(1).nonzero()
    if len(invalid):
        raise RequestError(
            f"{name} contains NaN or infinity in {len(invalid)} samples, the first at position {int(invalid[0])}: "
            "correct or remove them"
        )
    shaped = x.reshape(-1, *domain.shape)
    excess = domain.excess(shaped)
    if excess > domain.slack:
        raise RequestError(f"{name} exceeds its bounds by {excess:.3g}: set the correct bounds with the options low= and high=")


def measure(
    request: EpsilonRequest,
    notify: Callable[[str], None],
    *,
    dataset: Dataset | None = None,
    train: Dataset | None = None,
    model: Model | None = None,
    people: Sequence[Threshold] = (),
) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """Measure everything that a recommendation needs: facts for the manifest, and arrays by file and name.

    Args:
        request: settings of the study.
        notify: receives progress messages.
        dataset: data in memory, instead of `request.data`.
        train: training data in memory, instead of `request.train`.
        model: a model in memory, instead of `request.model`.
        people: thresholds of the reviews that `request.evidence` names; its other folders are runs.

    Raises:
        RequestError: the data cannot be measured.
    """
    start = time.perf_counter()
    dataset = open_data(request.data) if dataset is None else dataset
    train = open_data(request.train) if train is None and request.train else train
    labels = np.asarray(dataset.labels(), dtype=np.int64)
    n = count_samples(request.samples, len(labels))
    if n < 2:
        raise RequestError(f"{dataset.name} has {n} sample: there is no distance to measure")
    points = Points(dataset, labels[:n])
    notes: dict[str, str] = {}
    subset = draw(points.labels, request.pairs, request.seed)
    norms = _choose_norms(request, points, notes)
    samples: dict[str, Array] = {"labels": points.labels}
    notify(f"distances between {n} samples, {', '.join(norms)}")
    distinct, distinct_index = _find_distinct(points)
    notes |= _data_notes(points, distinct, distinct_index)
    samples |= _search_neighbours(points, distinct, distinct_index, norms, notify)
    if train is not None:
        samples |= _search_train(points, train, norms, notify, notes)
    notify("mean distances between classes")
    rows = {norm: distinct if norm == "l2" else subset for norm in NORMS}
    means = {
        norm: class_means(points.x[torch.from_numpy(index)], points.labels[index], points.classes, norm)
        for norm, index in rows.items()
    }
    background = perception.find_background(points.x)
    unnoticed, judged_on, attacks = _measure_perception(points, subset, norms, request, notes, people)
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
        "perception": judged_on,
        "subset_size": len(subset),
        "usual": _usual_effects(points, subset, norms, background, request.seed) if unnoticed else {},
        "background": None if background is None or points.domain.kind != "image" else background,
        "background_share": None if background is None else float((points.x == background).float().mean()),
        "notes": [{"code": code, "text": text} for code, text in notes.items()],
        "seconds": 0.0,
        "request": request.model_dump(mode="json"),
    }
    if not facts["conditions"]:
        raise RequestError(
            f"no condition applies to {points.domain.kind} data: add {option('conditions')} label or interpolation"
        )
    model = model_opener(request.model, dataset)() if model is None and request.model else model
    if model is not None:
        notify(f"{model.name} classifies the crafted inputs")
        model = with_logits(model, dataset, facts)
    crafted, crafted_facts = craft_examples(points, facts, samples, model)
    if attacks:
        example_arrays, facts["stored"] = example_pictures(attacks[0], points.x, points.labels, points.domain, request)
        crafted |= example_arrays
    facts |= {"crafted": crafted_facts, "seconds": round(time.perf_counter() - start, 1)}
    return facts, {"samples": samples, "means": means, "crafted": crafted}


def draw(labels: Array, per_class: int, seed: int) -> Array:
    """Draw at most `per_class` positions of every class, ascending; all for 0. The draws of classes are independent."""
    if not per_class:
        return np.arange(len(labels))
    rank = Streams.of(seed, torch.arange(len(labels))).fold("drawn").uniform(1)[:, 0].numpy()
    order = np.lexsort((rank, labels))
    sorted_labels = labels[order]
    first = np.searchsorted(sorted_labels, sorted_labels)
    return np.sort(order[np.arange(len(labels)) - first < per_class])


def _choose_norms(request: EpsilonRequest, points: Points, notes: dict[str, str]) -> tuple[str, ...]:
    if request.norm:
        return tuple(norm for norm in NORMS if norm in request.norm)
    work = float(len(points)) ** 2 * points.x.shape[1]
    if work <= MOST_VALUES:
        return NORMS
    notes["slow-norms"] = (
        f"L1 and L0 neighbours were not searched, which takes about {work * 5e-10:.0f} s; to search them, add --norm l1 --norm l0"
    )
    return NORMS[:2]


def _find_distinct(points: Points) -> tuple[Array, Array]:
    """Positions (k,) of distinct (content, label) pairs, and for each sample the index (n,) of its pair."""
    _, content = np.unique(points.content, return_inverse=True)
    key = content.astype(np.int64) * (int(points.labels.max()) + 1) + points.labels
    _, first, distinct_index = np.unique(key, return_index=True, return_inverse=True)
    return first, distinct_index


def _data_notes(points: Points, distinct: Array, distinct_index: Array) -> dict[str, str]:
    """Notes on problems of the data by code, such as conflicting labels and duplicates."""
    notes: dict[str, str] = {}
    contents, inverse, counts = np.unique(points.content[distinct], return_inverse=True, return_counts=True)
    clash = np.isin(distinct_index, np.flatnonzero(counts[inverse] > 1))
    if clash.any():
        positions = ", ".join(map(str, np.flatnonzero(clash)[:MOST_LISTED].tolist()))
        notes["conflict"] = (
            f"{int(clash.sum())} samples equal a sample with another label: they make every eps unsound, and no "
            f"classifier can be right on all of them; correct their labels first (such as positions {positions})"
        )
    fixed = sum(column.fixed for column in points.domain.columns)
    if fixed:
        notes["fixed"] = f"{fixed} columns are fixed; distances include them, which makes budgets conservative"
    twins = len(points) - len(distinct)
    if twins:
        notes["duplicates"] = (
            f"{twins} samples repeat a sample with the same label; the nearest different sample counts as neighbour"
        )
    flat = (points.x.amax(1) == points.x.amin(1)).nonzero()[:, 0].tolist()
    if flat:
        notes["constant"] = (
            f"{len(flat)} samples are constant and thus show nothing (positions "
            f"{', '.join(map(str, flat[:MOST_LISTED]))}{', ...' if len(flat) > MOST_LISTED else ''})"
        )
    values, members = np.unique(points.labels[distinct], return_counts=True)
    single = [_class_name(points, int(value)) for value in values[members == 1]]
    if single:
        notes["single"] = (
            f"{len(single)} classes have only one distinct sample, so nothing is known about interpolation within "
            f"them: {', '.join(single[:MOST_LISTED])}{', ...' if len(single) > MOST_LISTED else ''}"
        )
    if len(values) < 2:
        notes["one-class"] = "there is only one class, so nothing is known about label constancy"
    return notes


def _class_name(points: Points, label: int) -> str:
    return points.dataset.classes[label] if label < len(points.dataset.classes) else str(label)


def _search_neighbours(
    points: Points, distinct: Array, distinct_index: Array, norms: tuple[str, ...], notify: Callable[[str], None]
) -> dict[str, Array]:
    """Search nearest neighbours within the data: distances and positions by norm."""
    values, labels, positions = points.values[distinct], points.labels[distinct], np.arange(len(distinct))
    reference = Reference(values, labels)
    first = reference.nearest("l2", values, labels, itself=positions)
    arrays: dict[str, Array] = {}
    for norm in norms:
        notify(f"nearest neighbours in {norm}")
        neighbours = first if norm == "l2" else reference.nearest(norm, values, labels, first, itself=positions)
        scale = points.scale(norm)
        arrays |= {
            f"{norm}.same": neighbours.same_class[distinct_index] * scale,
            f"{norm}.other": neighbours.other_class[distinct_index] * scale,
            f"{norm}.same_at": np.where(neighbours.same_at >= 0, distinct[neighbours.same_at], -1)[distinct_index],
            f"{norm}.other_at": np.where(neighbours.other_at >= 0, distinct[neighbours.other_at], -1)[distinct_index],
        }
    return arrays


def _search_train(
    points: Points, train: Dataset, norms: tuple[str, ...], notify: Callable[[str], None], notes: dict[str, str]
) -> dict[str, Array]:
    """Search nearest neighbours in the training data. A training sample that is also in the data does not count."""
    if train.domain != points.domain:
        raise RequestError(
            f"{train.name} and {points.dataset.name} have different shapes or bounds: "
            f"{option('train')} needs the shapes and bounds of the data"
        )
    notify(f"nearest neighbours among {len(train)} training samples")
    train_labels = np.asarray(train.labels(), dtype=np.int64)
    train_points = Points(train, train_labels)
    pairs = {(c.tobytes(), int(label)) for c, label in zip(points.content, points.labels, strict=True)}
    keep = np.array([(c.tobytes(), int(label)) not in pairs for c, label in zip(train_points.content, train_labels, strict=True)])
    if not keep.all():
        notes["leak"] = (
            f"{int((~keep).sum())} training samples are also in {points.dataset.name}: accuracy on them measures memorisation"
        )
    if not keep.any():
        return {}
    reference = Reference(train_points.values[keep], train_labels[keep])
    first = reference.nearest("l2", points.values, points.labels)
    arrays: dict[str, Array] = {}
    for norm in norms:
        neighbours = first if norm == "l2" else reference.nearest(norm, points.values, points.labels, first)
        scale = points.scale(norm)
        arrays |= {f"{norm}.train_same": neighbours.same_class * scale, f"{norm}.train_other": neighbours.other_class * scale}
    return arrays


def _measure_perception(
    points: Points,
    subset: Array,
    norms: tuple[str, ...],
    request: EpsilonRequest,
    notes: dict[str, str],
    people: Sequence[Threshold],
) -> tuple[dict[str, Array], dict[str, Any], list[StoredExamples]]:
    """Measure unnoticed changes: limits by norm, their evidence, and the stored adversarial examples of runs."""
    if PERCEPTION not in request.conditions:
        return {}, {}, []
    if points.domain.kind != "image" or min(points.domain.shape[1:]) < 3:
        notes["no-perception"] = f"perceptibility was not measured: {points.domain.kind} data of this shape are not pictures"
        return {}, {}, []
    reviews = [threshold.folder for threshold in people]
    runs = [Path(folder) for folder in request.evidence if folder not in reviews]
    attacks = [load_examples(folder, points.dataset.digest(), points.dataset.name, len(points)) for folder in runs]
    for folder, norm in [(threshold.folder, threshold.norm) for threshold in people] + [
        (examples.folder, examples.norm) for examples in attacks
    ]:
        if norm not in norms:
            raise RequestError(f"{folder} is evidence for {norm}, which the request leaves out: add {norm} to {option('norm')}")
    limits, evidence = measure_perceptibility(points.x, points.labels, points.domain, subset, norms, request, people, attacks)
    if any(entry["by"] != PEOPLE for entry in evidence.values()):
        notes["no-lpips"] = (
            "LPIPS was not measured, because the weights of its networks are unavailable; SSIM and PSNR measure perceptibility"
        )
    if len(subset) < len(points) and any(entry["by"] == NOISE for entry in evidence.values()):
        notes["drawn"] = f"perceptibility was measured on {len(subset)} samples; other samples get the limit of their class"
    return limits, evidence, attacks


def _usual_effects(points: Points, subset: Array, norms: tuple[str, ...], background: float | None, seed: int) -> dict[str, Any]:
    """Effects of usual budgets on pictures by norm: medians over at most 200 samples of the subset."""
    if points.domain.bounds()[0].ndim or (points.domain.low, points.domain.high) != (0.0, 1.0):
        return {}
    index = torch.from_numpy(subset[np.linspace(0, len(subset) - 1, min(len(subset), 200)).astype(int)])
    x0 = points.x[index].reshape(-1, *points.domain.shape)
    step = 1 / (points.domain.levels - 1) if points.domain.levels else 1 / 255
    effects: dict[str, Any] = {}
    for norm in norms:
        for text in USUAL[norm]:
            eps = parse_eps(text).values[0]
            x = perception.typical_change(
                norm, x0, torch.full((len(x0),), eps), points.domain, Streams.of(seed, index).fold("unnoticed")
            )
            changed_share = None
            if background is not None:
                changed_share = float(perception.background_changed(x0, x, background, step).nanmedian())
            effects.setdefault(norm, []).append(
                {
                    "eps": eps,
                    "text": text,
                    "ssim": float(perception.ssim(x0, x).median()),
                    "psnr": min(float(perception.psnr(x0, x).median()), 99.0),
                    "background_changed": changed_share,
                }
            )
    return effects


def carry_out(call: Call) -> EpsilonResult:
    """Measure distances, recommend budgets, and write the folder and its page.

    Raises:
        RequestError: the study cannot be run as requested, or the folder is not empty.
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
        people=load_thresholds(request.evidence),
    )
    save_folder(folder, facts, arrays)
    result = summarise(folder)
    result.write()
    return result


def load_thresholds(folders: Sequence[str]) -> list[Threshold]:
    """Thresholds of the folders that hold reviews.

    Raises:
        RequestError: a review is damaged, or has too few answers.
    """
    thresholds = []
    for folder in (folder for folder in folders if verb_of(Path(folder)) == REVIEW.verb):
        review: ReviewResult = REVIEW.open_folder(Path(folder))
        overall = None if review.overall is None else review.overall.size
        if overall is None:
            raise RequestError(f"the answers in {folder} are too few for a threshold: judge more pairs")
        per_class = {entry.class_: entry.size for entry in review.per_class if entry.size}
        thresholds.append(
            Threshold(folder=folder, norm=review.request.norm, overall=overall, per_class=per_class, answers=review.answers)
        )
    return thresholds
