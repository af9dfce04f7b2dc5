"""The problem of an attack that may change one square of each input alone: its content is the
input.

So an attack on whole inputs works in a square as it is.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from brinell.core import squares
from brinell.core.contracts import Batch, Distance, Oracle, Threat
from brinell.core.criterion import Loss
from brinell.core.oracle import GradientAnswer
from brinell.core.threat import extent


def square_problem(
    oracle: Oracle, batch: Batch, threat: Threat, numbers: Tensor, side: int, distance: Distance
) -> tuple[Oracle, Batch, Threat]:
    """The problem in the squares of these numbers (n, count) and this side, `count` of each sample.

    Rows (n * count) are numbered anew, since a sample occurs with several squares. Any content lies
    within eps, which is the largest one in `distance`.
    """
    # One row for each square of each sample, so that an attack of whole inputs can attack them all.
    index = torch.arange(len(batch), device=numbers.device).repeat_interleave(numbers.shape[1])
    batch, threat = batch.select(index), threat.select(index)
    shape, grid = threat.domain.shape, threat.domain.grid
    planes = batch.x.reshape(len(batch), math.prod(shape) // math.prod(grid), math.prod(grid))
    places = squares.places(numbers.flatten(), side, grid)[:, None]
    widths = tuple(min(side, length) for length in grid)
    # The domain of the squares alone: their bounds, levels and channels are those of the inputs.
    domain = replace(threat.domain, shape=(*shape[: len(shape) - len(grid)], *widths))

    def cut(rows: Tensor, values: Tensor) -> Tensor:
        """(m, ..., *content): values (m, ..., *shape) in the squares of these rows."""
        lead = values.shape[: values.ndim - len(shape)]
        channels = math.prod(values.shape[1:]) // planes.shape[2]
        flat = values.reshape(len(values), channels, planes.shape[2])
        part = flat.gather(2, places[rows].expand(-1, channels, -1))
        return part.reshape(*lead, *domain.shape)

    def paste(rows: Tensor, x: Tensor) -> Tensor:
        """(m, *shape): the inputs of these rows with the content x (m, *content)."""
        index = places[rows].expand(-1, planes.shape[1], -1)
        return planes[rows].scatter(2, index, x.reshape(index.shape)).reshape(-1, *shape)

    def gradient(rows: Tensor, x: Tensor, *settings: object) -> GradientAnswer:
        answer = oracle.gradient(batch.ids[rows], paste(rows, x), *settings)
        # The rest of the input is fixed, so that its gradient is left out.
        return answer._replace(grad=cut(rows, answer.grad))

    # The same oracle, which pastes each content into its input before it asks.
    inner = replace(
        oracle,
        scores=lambda rows, x: oracle.scores(batch.ids[rows], paste(rows, x)),
        loss=lambda rows, x, *loss: oracle.loss(batch.ids[rows], paste(rows, x), *loss),
        gradient=gradient,
        active=lambda rows, *stop: oracle.active(batch.ids[rows], *stop),
        remaining=lambda rows, *stop: oracle.remaining(batch.ids[rows], *stop),
        affordable=lambda rows: oracle.affordable(batch.ids[rows]),
        slopes=lambda rows, x, weights: cut(
            rows, oracle.slopes(batch.ids[rows], paste(rows, x), weights)
        ),
    )
    rows = torch.arange(len(batch), device=numbers.device)
    start = None if batch.start is None else cut(rows, batch.start)
    content = Batch(ids=rows, x=cut(rows, batch.x), y=batch.y, start=start)
    # Within a square every change is allowed: the budget is its side.
    eps = threat.eps.new_full((len(batch),), extent(distance, domain))
    return inner, content, replace(threat, distance=distance, eps=eps, domain=domain)


def best_rows(oracle: Oracle, x: Tensor, count: int, most: int, loss: Loss | None = None) -> Tensor:
    """(n, most) int64: rows of a problem with `count` squares of each sample, the best first.

    Each content x (n * count, *content) is shown once; the best ones have the highest loss, by
    default the criterion's margin. Rows that a budget of queries does not reach come last.
    """
    every_row = torch.arange(len(x), device=x.device)
    rows = every_row[oracle.active(every_row)]
    values = torch.full((len(x),), -torch.inf, device=x.device)
    if len(rows):
        values[rows] = oracle.loss(rows, x[rows], loss)
    ranks = values.view(-1, count).topk(min(most, count), dim=1).indices
    # A rank counts the squares of one sample, whose rows follow each other.
    return ranks + every_row[::count, None]
