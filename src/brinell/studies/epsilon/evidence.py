"""Evidence for perceptibility: answers of people, stored adversarial examples of an audit, or random changes.

Each norm uses the best evidence at hand. People: the size at which half of the changes are noticed, for the class if it has
enough answers, else for all. Attacks: the largest scaled perturbation of a sample that keeps SSIM and PSNR. Random changes: the
same for the noise of `perception.typical_change`, on a subset of the samples. An unmeasured sample gets the limit that all but
the allowed share of its class reach.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.record import Array, has_broken
from brinell.core.streams import Streams
from brinell.store.run import Run
from brinell.studies.epsilon import EpsilonRequest, perception

PEOPLE, ATTACKS, NOISE = "people", "attacks", "noise"
MOST_EXAMPLES = 1000
"""Largest number of stored adversarial examples to judge, the first by position."""
MOST_SHOWN = 12
"""Largest number of stored adversarial examples on the page."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Sizes of change that people notice in one norm."""

    folder: str
    norm: str
    overall: float
    """Size at which half of the changes are noticed."""
    per_class: Mapping[int, float]
    """The same for classes with enough answers, by index."""
    answers: int


@dataclass(frozen=True, kw_only=True)
class StoredExamples:
    """The smallest stored adversarial example of each sample of a run."""

    folder: str
    norm: str
    ids: Array
    """(k,) positions in the data, ascending."""
    x_adv: Tensor
    """(k, *shape)."""


def load_examples(folder: Path, digest: str, name: str, n: int) -> StoredExamples:
    """Load the smallest stored adversarial example of each of the first `n` samples from a run on the same data.

    Args:
        folder: folder of the run.
        digest: digest of the data.
        name: name of the data.
        n: number of samples.

    Raises:
        RequestError: the folder contains no run, a run on other data, or a run without adversarial examples.
    """
    run = Run.open_finished(folder)
    if run.manifest["data"]["digest"] != digest:
        raise RequestError(f"{folder} was made from other data than {name}: use a run on {name}")
    rows, norm = run.records(), str(run.manifest["distance"])
    size = getattr(rows, norm, None)
    fooled = np.flatnonzero(has_broken(rows) & (rows.sample_id < n))
    if size is None or not len(fooled):
        raise RequestError(f"{folder} contains no adversarial example in linf, l2, l1 or l0: audit with larger budgets")
    order = fooled[np.argsort(np.ma.filled(size[fooled].astype(np.float64), np.inf), kind="stable")]
    _, first = np.unique(rows.sample_id[order], return_index=True)
    closest = order[first][:MOST_EXAMPLES]
    by_stage: dict[tuple[str, str], list[int]] = {}
    for row in closest.tolist():
        by_stage.setdefault((str(rows.model[row]), str(rows.attack[row])), []).append(int(rows.sample_id[row]))
    examples = {
        i: x for (model, attack), ids in by_stage.items() for i, x in run.adversarial(model, attack, ids).items() if i in ids
    }
    ids = np.array(sorted(examples), np.int64)
    if not len(ids):
        raise RequestError(f"{folder} contains no stored adversarial example: its folder arrays/ is empty")
    return StoredExamples(
        folder=str(folder), norm=norm, ids=ids, x_adv=torch.stack([torch.from_numpy(np.asarray(examples[int(i)])) for i in ids])
    )


def measure_perceptibility(
    x: Tensor,
    labels: Array,
    domain: Domain,
    subset: Array,
    norms: Sequence[str],
    request: EpsilonRequest,
    people: Sequence[Threshold],
    attacks: Sequence[StoredExamples],
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Measure the largest unnoticed eps for each sample and norm, and record the evidence.

    Args:
        x: (n, d) all samples, flat.
        labels: (n,) int64.
        domain: domain of the samples.
        subset: positions of the samples that measure random changes.
        norms: norms of the recommendation.
        request: limits of SSIM and PSNR, the allowed share, and the seed.
        people: thresholds of reviews.
        attacks: stored adversarial examples.

    Returns:
        `NORM.unnoticed` (n,) for each norm, and by norm `by` (people, attacks or noise), `n` (answers or samples) and `folder`.
    """
    limits: dict[str, Array] = {}
    evidence: dict[str, Any] = {}
    for norm in norms:
        threshold = next((entry for entry in people if entry.norm == norm), None)
        examples = next((entry for entry in attacks if entry.norm == norm), None)
        if threshold is not None:
            values = np.array([threshold.per_class.get(int(label), threshold.overall) for label in labels], np.float64)
            evidence[norm] = {"by": PEOPLE, "n": threshold.answers, "folder": threshold.folder}
        else:
            positions = subset if examples is None else examples.ids
            measured = _measure_limits(x, domain, norm, positions, request, None if examples is None else examples.x_adv)
            values = _fill_by_class(measured, positions, labels, request.allow)
            evidence[norm] = {
                "by": NOISE if examples is None else ATTACKS,
                "n": len(positions),
                "folder": None if examples is None else examples.folder,
            }
        limits[f"{norm}.unnoticed"] = values
    return limits, evidence


def _measure_limits(
    x: Tensor, domain: Domain, norm: str, positions: Array, request: EpsilonRequest, x_adv: Tensor | None
) -> Array:
    """Largest eps (k,) that SSIM and PSNR rate as unnoticed at each position; `x_adv` None measures random changes."""
    parts = []
    for rows in torch.split(torch.arange(len(positions)), 128):
        batch = torch.from_numpy(positions)[rows]
        x0, rng = x[batch].reshape(-1, *domain.shape), Streams.of(request.seed, batch).fold("unnoticed")
        change: Callable[[Tensor], Tensor]
        if x_adv is None:

            def change(eps: Tensor, x0: Tensor = x0, rng: Streams = rng) -> Tensor:
                """Inputs changed as much as is typical at a budget."""
                return perception.typical_change(norm, x0, eps, domain, rng)
        else:

            def change(eps: Tensor, x0: Tensor = x0, delta: Tensor = x_adv[rows] - x0) -> Tensor:
                """Adversarial inputs rescaled to a budget."""
                return domain.clamp(x0 + perception.rescale(norm, delta, eps))

        parts.append(perception.largest_unnoticed(norm, x0, domain, change, least_ssim=request.ssim, least_psnr=request.psnr))
    limits: Array = torch.cat(parts).double().numpy()
    return limits


def _fill_by_class(measured: Array, positions: Array, labels: Array, allow: float) -> Array:
    """(n,) measured limits; others get the `allow` quantile of their class, or of all if the class has none."""
    values = np.empty(len(labels))
    values[positions] = measured
    unmeasured = np.setdiff1d(np.arange(len(labels)), positions)
    for label in np.unique(labels[unmeasured]):
        class_limits = np.sort(measured[labels[positions] == label])
        class_limits = class_limits if len(class_limits) else np.sort(measured)
        values[unmeasured[labels[unmeasured] == label]] = class_limits[int(allow * len(class_limits))]
    return values


def example_pictures(
    examples: StoredExamples, x: Tensor, labels: Array, domain: Domain, request: EpsilonRequest
) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """Select stored adversarial examples by ascending size, with their clean samples and a record of each."""
    size = perception.sizes(examples.norm, examples.x_adv - x[torch.from_numpy(examples.ids)].reshape(examples.x_adv.shape))
    order = size.argsort()
    order = order[torch.linspace(0, len(order) - 1, min(MOST_SHOWN, len(order))).long()]
    x0, changed = x[torch.from_numpy(examples.ids)[order]].reshape(-1, *domain.shape), examples.x_adv[order]
    low, high = domain.bounds()
    span = float((high - low).max())
    likeness, noise = perception.ssim(x0, changed, span), perception.psnr(x0, changed, span)
    records = [
        {
            "sample": int(examples.ids[index]),
            "label": int(labels[examples.ids[index]]),
            "size": float(size[index]),
            "ssim": float(likeness[i]),
            "psnr": min(float(noise[i]), 99.0),
            "unnoticed": bool(likeness[i] >= request.ssim and noise[i] >= request.psnr),
        }
        for i, index in enumerate(order.tolist())
    ]
    return {"stored": changed.numpy(), "stored_clean": x0.numpy()}, records
