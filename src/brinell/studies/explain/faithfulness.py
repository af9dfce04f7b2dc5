"""What the model says while places are shown and hidden in the order of a map, and while patches are hidden at random.

Petsiuk, Das & Saenko 2018, RISE, section 4.1: deletion hides the most important places first, insertion shows them first, from
the blurred input; the area under the class's probability is small for the one and large for the other where a map is faithful.
Deviations: deletion too hides by blurring, since grey adds edges that no input has; places come in `steps` equal parts.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.engine.shard import predict
from brinell.explainers._asking import ROWS, hidden_by, mixed, places_of

PERTURBATIONS = 32
"""Random hidings by which infidelity is judged, the same for every method."""
PATCHES = 7
"""Patches along each axis of an image that such a hiding chooses from, each with probability one half."""


class Curves(NamedTuple):
    """Along the shares of the places, 0 to 1 in steps: the class's probability, and whether it leads."""

    shown: Array
    """(n, steps + 1): while places are shown, the most important first."""
    shown_leads: Array
    hidden: Array
    """(n, steps + 1): while they are hidden."""
    hidden_leads: Array


def curves(model: Model, x: Tensor, y: Tensor, maps: Tensor, domain: Domain, steps: int, batch_size: int) -> Curves:
    """Insertion and deletion of each input (n, *shape) by its map (n, *places); `y` (n,) are the classes."""
    n, places = len(x), places_of(domain)
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1], device=x.device).expand_as(order))
    upto = torch.linspace(0, order.shape[1], steps + 1, device=x.device).round()
    first = (rank[:, None] < upto[:, None]).reshape(n, steps + 1, *places).float()
    fill = hidden_by(x, domain)
    shown, hidden = (_asked(model, x, y, fill, kept, domain, batch_size) for kept in (first, 1 - first))
    return Curves(*shown, *hidden)


def _asked(
    model: Model, x: Tensor, y: Tensor, fill: Tensor, kept: Tensor, domain: Domain, batch_size: int
) -> tuple[Array, Array]:
    """Probability of the class, and whether it leads, both (n, k), for inputs of which `kept` (n, k, *places) shows."""
    probability, leads = [], []
    step = max(1, ROWS // len(x))
    for first in range(0, kept.shape[1], step):
        part = kept[:, first : first + step]
        logits = predict(model, mixed(x, fill, part, domain).flatten(0, 1), batch_size)
        of = y.repeat_interleave(part.shape[1])
        probability.append(logits.softmax(1).gather(1, of[:, None]).reshape(len(x), -1))
        leads.append((logits.argmax(1) == of).reshape(len(x), -1))
    return torch.cat(probability, 1).cpu().numpy(), torch.cat(leads, 1).cpu().numpy()


def hidings(x: Tensor, domain: Domain, rng: Streams) -> Tensor:
    """Random hidings (n, k, *places) of inputs (n, *shape), 1 where hidden; no model is asked."""
    n, places = len(x), places_of(domain)
    along = max(2, round(PATCHES ** (2 / len(places))))
    at = torch.zeros(places, dtype=torch.int64, device=x.device)
    for axis, length in enumerate(places):
        here = torch.arange(length, device=x.device) * min(along, length) // length
        at = at * min(along, length) + here.reshape(-1, *[1] * (len(places) - axis - 1))
    chosen = (rng.uniform(PERTURBATIONS, int(at.max()) + 1) < 0.5).float()
    return chosen[:, :, at.flatten()].reshape(n, PERTURBATIONS, *places)


def drops(model: Model, x: Tensor, y: Tensor, hides: Tensor, domain: Domain, batch_size: int) -> Array:
    """By how much (n, k) the probability of the classes `y` (n,) falls under hidings (n, k, *places)."""
    under, _ = _asked(model, x, y, hidden_by(x, domain), 1 - hides, domain, batch_size)
    clean = predict(model, x, batch_size).softmax(1).gather(1, y[:, None]).cpu().numpy()
    return np.asarray(clean - under)
