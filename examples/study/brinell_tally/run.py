"""The computation: each size of the noise is a piece of the work."""

from functools import partial

import torch

from brinell.core.streams import Streams
from brinell.store import rows
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.work import classes

from .result import Predictions


def pieces(plan: Plan, call: Call) -> list[Piece]:
    """One piece a size."""
    return [
        Piece(name=f"noise of {size:g}", make=partial(predict, plan, call, size))
        for size in call.request.size
    ]


def predict(plan: Plan, call: Call, size: float) -> Predictions:
    """Show the model every sample with noise of one size; the noise of a sample depends on seed,
    sample and size alone.
    """
    clean = plan.dataset.load(plan.ids.tolist()).to(plan.device)
    streams = Streams.of(call.request.seed, torch.as_tensor(plan.ids, device=plan.device)).fold(
        f"noise {size!r}"
    )
    noisy = plan.dataset.domain.clamp(clean + size * streams.normal(*clean.shape[1:]))
    (model,) = plan.models.values()
    predicted = classes(model, noisy, call.request.batch_size)
    return rows.build(
        Predictions,
        len(plan.ids),
        size=size,
        sample_id=plan.ids,
        label=plan.labels,
        prediction=predicted,
    )
