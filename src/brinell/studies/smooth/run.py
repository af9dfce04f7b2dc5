"""Randomised smoothing: noisy copies of each sample, their classes counted, and the radius that the count allows.

Cohen, Rosenfeld & Kolter 2019, Certified adversarial robustness via randomized smoothing (ICML; arXiv 1902.02918), section 3.2,
algorithm CERTIFY with theorem 1.

Deviations:
- Noisy inputs are moved into the bounds of the data before the model sees them. The smoothed model is that of the clipped model,
  so the theorem holds as it stands.
- The noise of a sample follows from the seed and its position in the data, so that pieces and batches change nothing. It is
  drawn by torch on the processor, five times as fast as by `core.streams`.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import RequestError, option
from brinell.core.intervals import clopper_pearson_low
from brinell.core.model import Model, ask
from brinell.core.record import Array
from brinell.core.streams import token
from brinell.engine.eps_grid import parse_eps
from brinell.store import rows
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.smooth import SmoothRequest
from brinell.studies.smooth.result import Radii, SmoothFacts, radius_of
from brinell.studies.work import open_plan

CHUNK, LEAST = 2**20, 16
"""Numbers that are drawn together, and the least number of noisy inputs; both fix the noise, whatever the size of a batch."""
MOST_SEED = 2**63
PIECE = 25
"""Samples of a piece."""
RADII = 5
"""Radii if nobody names any."""
SAMPLES = 100
"""Samples if nobody says how many."""


def make_plan(call: Call) -> Plan:
    """Open the data and the model, and choose the radii at which the result is stated."""
    _check_radii(call.request)
    plan: Plan = open_plan(call, usual_samples=SAMPLES)
    return replace(plan, facts=SmoothFacts(radii=_radii(call.request)))


def _check_radii(request: SmoothRequest) -> None:
    """Refuse draws that decide nothing, and radii that they cannot reach.

    Raises:
        RequestError: the draws and alpha allow no radius, or none as large as one that is asked for.
    """
    largest = radius_of(request.alpha ** (1 / request.draws), request.sigma)
    if not largest:
        least = math.floor(math.log(request.alpha) / math.log(0.5)) + 1
        raise RequestError(
            f"{request.draws} draws cannot tell any class at alpha {request.alpha:g}: {option('draws', str(least))} is the least"
        )
    asked = max(parse_eps(request.eps).values) if request.eps is not None else largest
    if asked <= 0:
        raise RequestError(f"{option('eps')} {request.eps} names no radius above 0: write some, such as 0:1:5")
    if asked > largest:
        sigma = math.ceil(100 * asked / largest * request.sigma) / 100
        raise RequestError(
            f"{option('eps')} names a radius of {asked:g}, and {request.draws} draws at sigma {request.sigma:g} prove at most "
            f"{largest:.3g}: take {option('sigma', f'{sigma:g}')}, or more draws, or leave larger radii out"
        )


def _radii(request: SmoothRequest) -> list[float]:
    """The radii at which the result is stated, 0 first."""
    if request.eps is not None:
        return sorted({0.0, *parse_eps(request.eps).values})
    largest = radius_of(request.alpha ** (1 / request.draws), request.sigma)
    return [float(radius) for radius in np.linspace(0.0, largest, RADII)]


def pieces(plan: Plan, call: Call) -> list[Piece]:
    """Parts of the samples."""
    return [
        Piece(
            name=f"samples {start + 1} to {min(start + PIECE, len(plan.ids))}",
            make=partial(smooth, plan, call, slice(start, start + PIECE)),
        )
        for start in range(0, len(plan.ids), PIECE)
    ]


def smooth(plan: Plan, call: Call, part: slice) -> Radii:
    """The radii of a part of the samples."""
    (model,) = plan.models.values()
    ids, request = plan.ids[part], call.request
    x = plan.dataset.load(ids.tolist())
    counted = [_count(plan, model, request, int(sample), value) for sample, value in zip(ids, x, strict=True)]
    predictions, counts = (np.array(column) for column in zip(*counted, strict=True))
    bounds = [clopper_pearson_low(int(k), request.draws, request.alpha) for k in counts]
    return rows.build(
        Radii,
        len(ids),
        sample_id=ids,
        label=plan.labels[part],
        prediction=predictions,
        count=counts,
        draws=np.full(len(ids), request.draws),
        low=np.array(bounds),
        radius=np.array([radius_of(low, request.sigma) for low in bounds]),
    )


def _count(plan: Plan, model: Model, request: SmoothRequest, sample: int, x: Tensor) -> tuple[int, int]:
    """The class of most of the first draws, and how many of the later ones have it."""
    first = sum(_classes(plan, model, request, f"first {sample}", x, request.first))
    prediction = int(np.argmax(first))
    later = sum(_classes(plan, model, request, f"later {sample}", x, request.draws))
    return prediction, int(np.asarray(later)[prediction])


def _classes(plan: Plan, model: Model, request: SmoothRequest, name: str, x: Tensor, draws: int) -> Iterator[Array]:
    """(classes,) counts of the predicted classes of noisy inputs, batch by batch."""
    size = max(LEAST, CHUNK // x.numel())
    generator = torch.Generator()
    for start in range(0, draws, size):
        generator.manual_seed(token(f"{request.seed} {name} {start}") % MOST_SEED)
        noise = torch.randn(min(size, draws - start), *x.shape, generator=generator).mul_(request.sigma)
        for part in torch.split(noise, request.batch_size):
            noisy = plan.dataset.domain.clamp(part.add_(x)).to(plan.device)
            with torch.no_grad():
                answers: Tensor = ask(model, noisy)
            yield torch.bincount(answers.argmax(1), minlength=model.classes).cpu().numpy()
