"""What perceptibility is judged on: the answers of people, stored adversarial examples of an audit, or else random changes.

The better evidence takes the place of the worse, norm by norm. People: the size at which half of the changes are noticed, of
the class where its answers tell, else of all. Attacks: the stored perturbation of a sample, made larger or smaller, as long as
SSIM and PSNR hold. Random changes: the same for noise as `perception.typical_change` makes it, of drawn samples. A sample that
was not measured has what all but the allowed share of its class have.
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
from brinell.core.record import Array, Outcome
from brinell.core.streams import Streams
from brinell.store.run import Run
from brinell.studies.epsilon import perception
from brinell.studies.epsilon.request import EpsilonRequest

PEOPLE, ATTACKS, NOISE = "people", "attacks", "noise"
MOST = 1000
"""Stored adversarial examples that are judged at most; of more, the first by position."""
SHOWN = 12
"""Stored adversarial examples that are shown."""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """What people noticed in one norm."""

    folder: str
    norm: str
    overall: float
    """Size at which half of the changes are noticed."""
    per_class: Mapping[int, float]
    """The same for the classes whose answers tell, by index."""
    answers: int


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The smallest stored adversarial example of each sample of a run."""

    folder: str
    norm: str
    ids: Array
    """(k,) positions in the data, ascending."""
    x_adv: Tensor
    """(k, *shape)."""


def stored(folder: Path, digest: str, name: str, n: int) -> Stored:
    """The stored adversarial examples of a run on the same data, the smallest of each sample among the first `n`.

    Raises:
        RequestError: no run there, one on other data, or one without adversarial examples.
    """
    run = Run.open(folder)
    if run.manifest["data"]["digest"] != digest:
        raise RequestError(f"{folder} was made from other data than {name}: name a run on this data")
    rows, norm = run.records(), str(run.manifest["distance"])
    size = getattr(rows, norm, None)
    fooled = np.flatnonzero((rows.outcome == Outcome.FOOLED.value) & (rows.sample_id < n))
    if size is None or not len(fooled):
        raise RequestError(
            f"{folder} stored no adversarial example in linf, l2, l1 or l0: audit with budgets at which something breaks"
        )
    order = fooled[np.argsort(np.ma.filled(size[fooled].astype(np.float64), np.inf), kind="stable")]
    _, first = np.unique(rows.sample_id[order], return_index=True)
    closest = order[first][:MOST]
    by_stage: dict[tuple[str, str], list[int]] = {}
    for row in closest.tolist():
        by_stage.setdefault((str(rows.model[row]), str(rows.attack[row])), []).append(int(rows.sample_id[row]))
    found = {
        i: x for (model, attack), ids in by_stage.items() for i, x in run.adversarial(model, attack, ids).items() if i in ids
    }
    ids = np.array(sorted(found), np.int64)
    if not len(ids):
        raise RequestError(f"{folder} has no stored adversarial example left: its arrays/ is empty")
    return Stored(
        folder=str(folder), norm=norm, ids=ids, x_adv=torch.stack([torch.from_numpy(np.asarray(found[int(i)])) for i in ids])
    )


def judged(
    x: Tensor,
    labels: Array,
    domain: Domain,
    drawn: Array,
    norms: Sequence[str],
    request: EpsilonRequest,
    people: Sequence[Threshold],
    attacks: Sequence[Stored],
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The largest eps that goes unnoticed, for each sample and norm, and what it was judged on.

    Args:
        x: (n, d) all samples, flat.
        labels: (n,) int64.
        domain: theirs.
        drawn: positions on which random changes are measured.
        norms: that an eps is recommended for.
        request: its limits, and the share that a class may break.
        people: thresholds of reviews.
        attacks: stored adversarial examples.

    Returns:
        `NORM.unnoticed` (n,) for each norm, and by norm `by` (people, attacks or noise), `n` (answers or samples) and `folder`.
    """
    found: dict[str, Array] = {}
    told: dict[str, Any] = {}
    for norm in norms:
        asked = next((one for one in people if one.norm == norm), None)
        seen = next((one for one in attacks if one.norm == norm), None)
        if asked is not None:
            values = np.array([asked.per_class.get(int(label), asked.overall) for label in labels], np.float64)
            told[norm] = {"by": PEOPLE, "n": asked.answers, "folder": asked.folder}
        else:
            at = drawn if seen is None else seen.ids
            known = _measured(x, domain, norm, at, request, None if seen is None else seen.x_adv)
            values = _spread(known, at, labels, request.allow)
            told[norm] = {"by": NOISE if seen is None else ATTACKS, "n": len(at), "folder": None if seen is None else seen.folder}
        found[f"{norm}.unnoticed"] = values
    return found, told


def _measured(x: Tensor, domain: Domain, norm: str, at: Array, request: EpsilonRequest, x_adv: Tensor | None) -> Array:
    """(k,) the largest eps that goes unnoticed by SSIM and PSNR at each position of `at`."""
    parts = []
    for rows in torch.split(torch.arange(len(at)), 128):
        here = torch.from_numpy(at)[rows]
        x0, rng = x[here].reshape(-1, *domain.shape), Streams.of(request.seed, here).fold("unnoticed")
        change: Callable[[Tensor], Tensor]
        if x_adv is None:

            def change(eps: Tensor, x0: Tensor = x0, rng: Streams = rng) -> Tensor:
                return perception.typical_change(norm, x0, eps, domain, rng)
        else:

            def change(eps: Tensor, x0: Tensor = x0, delta: Tensor = x_adv[rows] - x0) -> Tensor:
                return domain.clamp(x0 + perception.resized(norm, delta, eps))

        parts.append(perception.unnoticed_up_to(norm, x0, domain, change, least_ssim=request.ssim, least_psnr=request.psnr))
    known: Array = torch.cat(parts).double().numpy()
    return known


def _spread(known: Array, at: Array, labels: Array, allow: float) -> Array:
    """(n,) what was measured at `at`; elsewhere what all but the allowed share of the class, or else of all, have."""
    values = np.empty(len(labels))
    values[at] = known
    rest = np.setdiff1d(np.arange(len(labels)), at)
    for label in np.unique(labels[rest]):
        mine = np.sort(known[labels[at] == label])
        mine = mine if len(mine) else np.sort(known)
        values[rest[labels[rest] == label]] = mine[int(allow * len(mine))]
    return values


def pictures(
    seen: Stored, x: Tensor, labels: Array, domain: Domain, request: EpsilonRequest
) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """Stored adversarial examples from the smallest to the largest beside their clean samples, and what is said of each."""
    size = perception.sizes(seen.norm, seen.x_adv - x[torch.from_numpy(seen.ids)].reshape(seen.x_adv.shape))
    order = size.argsort()
    order = order[torch.linspace(0, len(order) - 1, min(SHOWN, len(order))).long()]
    x0, changed = x[torch.from_numpy(seen.ids)[order]].reshape(-1, *domain.shape), seen.x_adv[order]
    low, high = domain.bounds()
    span = float((high - low).max())
    likeness, noise = perception.ssim(x0, changed, span), perception.psnr(x0, changed, span)
    told = [
        {
            "sample": int(seen.ids[at]),
            "label": int(labels[seen.ids[at]]),
            "size": float(size[at]),
            "ssim": float(likeness[i]),
            "psnr": min(float(noise[i]), 99.0),
            "unnoticed": bool(likeness[i] >= request.ssim and noise[i] >= request.psnr),
        }
        for i, at in enumerate(order.tolist())
    ]
    return {"stored": changed.numpy(), "stored_clean": x0.numpy()}, told
