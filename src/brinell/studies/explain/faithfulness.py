"""Insertion and deletion curves of saliency maps.

Petsiuk, Das & Saenko 2018, RISE, section 4.1: deletion hides the most important places first;
insertion shows them first, starting from the blurred input. For a faithful map, the area under the
probability is small in deletion and large in insertion. Deviations: deletion also hides by
blurring, because grey adds edges that no input has; places change in `steps` equal parts.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.record import Array
from brinell.explainers._asking import blend, count_rows, hidden_fill, places_of

Ask = Callable[[Tensor], Tensor]
"""Inputs (m, *shape) to logits (m, classes)."""


def curves(
    ask: Ask, x: Tensor, y: Tensor, maps: Tensor, domain: Domain, steps: int
) -> tuple[Array, Array]:
    """Insertion and deletion curves, both (n, steps + 1): the probability of classes `y` (n,) as
    the share of places grows.

    Inputs `x` are (n, *shape), `maps` (n, *places). Places are shown or hidden in equal steps.
    """
    n, places = len(x), places_of(domain)
    # The rank of each place: 0 has the largest value of the map.
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=x.device).expand_as(order)
    )
    counts = torch.linspace(0, order.shape[1], steps + 1, device=x.device).round()
    # (n, steps + 1, *places): 1 on so many places of the highest ranks.
    leading = (rank[:, None] < counts[:, None]).reshape(n, steps + 1, *places).float()
    fill = hidden_fill(x, domain)

    def probabilities(masks: Tensor) -> Array:
        """(n, k): when only `masks` (n, k, *places) of an input show."""
        parts = []
        for part in torch.split(masks, count_rows(x), 1):
            logits = ask(blend(x, fill, part, domain).flatten(0, 1))
            classes = y.repeat_interleave(part.shape[1])
            parts.append(logits.softmax(1).gather(1, classes[:, None]).reshape(n, -1))
        answers: Array = torch.cat(parts, 1).cpu().numpy()
        return answers

    return probabilities(leading), probabilities(1 - leading)
