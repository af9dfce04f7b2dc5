"""Insertion and deletion curves of saliency maps, and drops of probability when random patches are hidden.

Petsiuk, Das & Saenko 2018, RISE, section 4.1: deletion hides the most important places first; insertion shows them first,
starting from the blurred input. For a faithful map, the area under the probability is small in deletion and large in insertion.
Deviations: deletion also hides by blurring, because grey adds edges that no input has; places change in `steps` equal parts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.explainers._asking import blend, count_rows, hidden_fill, places_of

PERTURBATIONS = 32
"""Number of random masks that measure infidelity, the same for every method."""
PATCHES = 7
"""Patches along each axis of an image; a random mask hides each with probability one half."""


Ask = Callable[[Tensor, Tensor], Tensor]
"""Positions (m,) of samples in the group and inputs (m, *shape) to logits (m, classes)."""


class Curves(NamedTuple):
    """Probability of the class, and whether the class leads, as the share of places grows from 0 to 1."""

    insertion: Array
    """(n, steps + 1): probability while places are shown, the most important first."""
    insertion_leads: Array
    """(n, steps + 1) bool: True if the class leads."""
    deletion: Array
    """(n, steps + 1): probability while places are hidden, the most important first."""
    deletion_leads: Array
    """(n, steps + 1) bool: True if the class leads."""


def curves(ask: Ask, x: Tensor, y: Tensor, maps: Tensor, domain: Domain, steps: int) -> Curves:
    """Compute insertion and deletion curves of inputs (n, *shape), classes `y` (n,) and maps (n, *places)."""
    n, places = len(x), places_of(domain)
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1], device=x.device).expand_as(order))
    counts = torch.linspace(0, order.shape[1], steps + 1, device=x.device).round()
    leading = (rank[:, None] < counts[:, None]).reshape(n, steps + 1, *places).float()
    fill = hidden_fill(x, domain)
    insertion, deletion = (_ask_model(ask, x, y, fill, masks, domain) for masks in (leading, 1 - leading))
    return Curves(*insertion, *deletion)


def _ask_model(ask: Ask, x: Tensor, y: Tensor, fill: Tensor, masks: Tensor, domain: Domain) -> tuple[Array, Array]:
    """Probability of the class, and whether it leads, both (n, k), when only `masks` (n, k, *places) of an input show."""
    probability, leads, numbers = [], [], torch.arange(len(x), device=x.device)
    step = count_rows(x)
    for start in range(0, masks.shape[1], step):
        part = masks[:, start : start + step]
        logits = ask(numbers.repeat_interleave(part.shape[1]), blend(x, fill, part, domain).flatten(0, 1))
        classes = y.repeat_interleave(part.shape[1])
        probability.append(logits.softmax(1).gather(1, classes[:, None]).reshape(len(x), -1))
        leads.append((logits.argmax(1) == classes).reshape(len(x), -1))
    return torch.cat(probability, 1).cpu().numpy(), torch.cat(leads, 1).cpu().numpy()


def draw_masks(x: Tensor, domain: Domain, rng: Streams) -> Tensor:
    """Draw random masks (n, k, *places) for inputs (n, *shape): 1 hides a place. The model is not queried."""
    n, places = len(x), places_of(domain)
    per_axis = max(2, round(PATCHES ** (2 / len(places))))
    patch = torch.zeros(places, dtype=torch.int64, device=x.device)
    for axis, length in enumerate(places):
        axis_patch = torch.arange(length, device=x.device) * min(per_axis, length) // length
        patch = patch * min(per_axis, length) + axis_patch.reshape(-1, *[1] * (len(places) - axis - 1))
    hidden = (rng.uniform(PERTURBATIONS, int(patch.max()) + 1) < 0.5).float()
    return hidden[:, :, patch.flatten()].reshape(n, PERTURBATIONS, *places)


def drops(ask: Ask, x: Tensor, y: Tensor, masks: Tensor, domain: Domain) -> Array:
    """Drops (n, k) of the probability of the classes `y` (n,) when `masks` (n, k, *places) hide places."""
    perturbed, _ = _ask_model(ask, x, y, hidden_fill(x, domain), 1 - masks, domain)
    clean = ask(torch.arange(len(x), device=x.device), x).softmax(1).gather(1, y[:, None]).cpu().numpy()
    return np.asarray(clean - perturbed)
