"""Linear classifiers, whose distance to the boundary is known exactly in every norm, and in L0."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core import squares
from brinell.core.contracts import Access, Batch, Domain, Kind, Streams
from brinell.core.model import ModelInfo
from brinell.core.threat import COUNTS

SHAPES: dict[Kind, tuple[int, ...]] = {
    "image": (3, 6, 6),
    "signal": (2, 30),
    "video": (1, 4, 5, 5),
    "vector": (40,),
}
DUAL = {
    "linf": 1.0,
    "l2": 2.0,
    "l1": torch.inf,
    "l0": torch.inf,
    "pixels": torch.inf,
    "patch": torch.inf,
    "embedding": 2.0,
}
"""The order of the norm that is dual to each distance; in L0 that by which the gaps of the
samples are measured out."""
LARGEST = {
    "linf": 0.02,
    "l2": 0.1,
    "l1": 0.2,
    "l0": 2.5,
    "pixels": 2.5,
    "patch": 2.5,
    "embedding": 0.1,
}
"""The largest margin of the samples; in L0, where it is a number of values, some two to four of
them. An embedding without a file is the input itself."""


class LinearModel:
    """`logits = W x + b` on flattened inputs; counts the rows that it was shown, whoever asked.

    Args:
        weight: (classes, features).
        bias: (classes,).
        domain: where inputs live.
        access: the most that it answers with.
    """

    name = "linear"
    info = ModelInfo()

    def __init__(
        self, weight: Tensor, bias: Tensor, domain: Domain, access: Access = Access.GRADIENTS
    ) -> None:
        self.weight = weight
        self.bias = bias
        self.domain = domain
        self.access = access
        self.classes = len(weight)
        self.inputs_seen = 0

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) to (n, classes)."""
        self.inputs_seen += len(x)
        return x.flatten(1) @ self.weight.T + self.bias

    def digest(self) -> str:
        """Hash of weights and bias."""
        content = self.weight.numpy().tobytes() + self.bias.numpy().tobytes()
        return hashlib.blake2b(content, digest_size=12).hexdigest()

    def margin(self, x: Tensor, y: Tensor, distance: str) -> Tensor:
        """(n,): exact distance to the nearest input of another class, as if there were no bounds.

        The logit difference to class k falls fastest along the dual direction: (z_y - z_k) / ||w_y
        - w_k||_dual. Any step beyond that changes the class, and no shorter one does. In L0 the
        bounds count, without which one value would always do: each value goes to the better end of
        its range, those that gain most first, until the class changes.
        """
        logits = x.flatten(1) @ self.weight.T + self.bias
        gaps = logits.gather(1, y[:, None]) - logits
        if distance in COUNTS:
            return self._places_to_change(x, y, gaps, distance)

        # The dual norm of a difference of weights: how fast a step of size 1 can close
        # the gap.
        differences = self.weight[y][:, None] - self.weight[None]
        slopes = torch.linalg.vector_norm(differences, ord=DUAL[distance], dim=2)
        return torch.where(slopes > 0, gaps / slopes, torch.inf).amin(1)

    def _places_to_change(self, x: Tensor, y: Tensor, gaps: Tensor, distance: str) -> Tensor:
        """(n,): the fewest values by whose change another class leads; infinite where none is.

        In pixels it counts places, whose channels change together; in patch it is the smallest side
        of a square of places.
        """
        flat = x.flatten(1)
        low, high = self.domain.bounds(x)
        down = low.expand(1, *self.domain.shape).flatten(1) - flat
        up = high.expand(1, *self.domain.shape).flatten(1) - flat

        # Each value at the better end of its range, those that gain most first.
        slopes = self.weight[None] - self.weight[y][:, None]
        gains = torch.maximum(slopes * down[:, None], slopes * up[:, None])
        grid = self.domain.grid
        if distance != "l0":
            gains = gains.reshape(*gains.shape[:2], -1, math.prod(grid)).sum(2)
        if distance == "patch":
            per_place = gains.reshape(-1, *grid)
            best = [
                squares.sums(per_place, side).flatten(1).amax(1) for side in range(1, max(grid) + 1)
            ]
            gain = torch.stack(best, 1).reshape(*gaps.shape, -1)
        else:
            gain = gains.sort(2, descending=True).values.cumsum(2)
        count = 1.0 + (gain <= gaps[..., None]).sum(2)
        return torch.where(count <= gain.shape[2], count, torch.inf).amin(1)


@dataclass(frozen=True, kw_only=True)
class LinearProblem:
    """A linear model with samples that it gets right, all margins well inside the bounds."""

    model: LinearModel
    batch: Batch
    margin: Tensor
    """(n,): exact margins in the distance asked for."""


def linear_problem(
    kind: Kind, distance: str, *, n: int = 24, classes: int = 5, seed: int = 0
) -> LinearProblem:
    """A random linear problem over inputs of this kind, with `n` samples of known margins.

    Each sample lies between two classes, and the others are far below both. So the nearest boundary
    is also the one that a loss over all classes climbs towards: cross-entropy follows the mixture
    of all rivals, which need not be the nearest. The margins are small against the room that each
    value has inside the bounds, so the bounds do not change them.
    """
    shape = SHAPES[kind]
    domain = Domain(kind=kind, shape=shape)
    draw = Streams.of(seed, torch.arange(1)).fold(f"{kind} {classes}")
    features = torch.Size(shape).numel()
    weight = draw.fold("weight").normal(classes, features)[0]
    bias = torch.full((classes,), -40.0)
    bias[:2] = 0.0
    # So these are the scores in the middle of the inputs, where every value is 0.5.
    bias -= 0.5 * weight.sum(1)
    model = LinearModel(weight, bias, domain)
    x = 0.45 + 0.1 * draw.fold("x").uniform(n, features)[0]

    # Move along the difference of the two weights until the signed gap is the wanted one.
    normal = weight[0] - weight[1]
    share = 0.25 + 0.75 * draw.fold("margin").uniform(n)[0]
    side = torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0)
    length = torch.linalg.vector_norm(normal, ord=DUAL[distance])
    target_margin = side * share * LARGEST[distance] * length
    gap = x @ normal + bias[0] - bias[1]
    x = x + ((target_margin - gap) / normal.pow(2).sum())[:, None] * normal

    batch = Batch(ids=torch.arange(n), x=x.reshape(n, *shape), y=(side < 0).long())
    return LinearProblem(model=model, batch=batch, margin=model.margin(batch.x, batch.y, distance))
