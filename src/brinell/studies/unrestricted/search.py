"""The search of a generator's latent space for an input of an intended class on which a model errs.

Song, Shu, Kushman & Ermon 2018, Constructing unrestricted adversarial examples with generative models, section 3. From a latent
z0 and a class y, minimise over z (and tau)

    L0 + l1 * mean(max((z - z0)^2 - radius^2, 0)) + l2 * L2    with x = g(z, y) + noise * tanh(tau), cut at the bounds of the data

where L0 is the model's cross-entropy with the most probable wrong class, and L2 the auxiliary classifier's with y; the second
term is the form of the authors' code. Without noise there is no tau. Untargeted alone. Deviations:

- Adam, and the search of a sample ends at the first success. Theirs is gradient descent with annealed noise on the
  gradient for a fixed number of steps: on a processor a tenth of them has to do, and a search that is over costs nothing.
- The auxiliary classifier looks at what the model is shown, noise included; theirs looks at the noiseless drawing. A noise that
  destroys the class should not pass for having kept it.
- The model is shown what can be stored: each input is rounded to the levels of the data (8-bit pictures); the gradient passes
  the rounding unchanged. A success that a file cannot hold is none.
- The auxiliary classifier must give the intended class nine tenths; with theirs it need only lead. A drawing on the edge between
  two classes says little of a model that takes it for the other.
- The weights l1 and l2 are 1 and 1 in place of 50 to 100: their steps are as long as the loss is steep, ours are not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.criterion import MISCLASSIFIED
from brinell.core.domain import Domain
from brinell.core.losses import cross_entropy
from brinell.core.oracle import Oracle

Generator = Callable[[Tensor, Tensor], Tensor]
"""Latents (n, latent) and classes (n,) to inputs (n, *shape), differentiable."""
Classifier = Callable[[Tensor], Tensor]
"""Inputs (n, *shape) to (n, classes) logits, differentiable."""
BETAS = (0.9, 0.99)
TINY = 1e-8


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a search."""

    steps: int
    """Most gradient steps."""
    noise: float = 0.0
    """Largest change of a value by added noise."""
    class_probability: float = 0.9
    """Least probability that the auxiliary classifier must give the intended class."""
    rate: float = 0.05
    """The size of a step, in standard deviations of the latent."""
    radius: float = 0.1
    """Change of a latent value that costs no penalty."""
    penalty: float = 1.0
    """Weight l1 of the penalty on latents beyond the radius."""
    class_weight: float = 1.0
    """Weight l2 of the auxiliary classifier's loss."""


class SearchResult(NamedTuple):
    """Outcome of the searches. The ledger, not the search, judges success."""

    x: Tensor
    """(n, *shape): the last input of each search, which is its first success if it has one."""
    z: Tensor
    """(n, latent)."""
    steps: Tensor
    """(n,) int64: number of gradient steps."""
    success: Tensor
    """(n,) bool: True if the search stopped with a success."""


def nearest_wrong(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) minus the cross-entropy with the most probable class other than `y`, which the search ascends."""
    return F.log_softmax(logits, 1).scatter(1, y[:, None], -torch.inf).amax(1)


def quantise(x: Tensor, domain: Domain) -> Tensor:
    """`x` clipped to the bounds and rounded to the levels of the data; gradients pass the rounding unchanged."""
    low, high = domain.bounds(x)
    clipped = torch.minimum(torch.maximum(x, low), high)
    return clipped + (domain.round(clipped.detach().clone()) - clipped.detach())


def search(
    oracle: Oracle,
    generator: Generator,
    classifier: Classifier,
    z0: Tensor,
    y: Tensor,
    domain: Domain,
    settings: Settings,
) -> SearchResult:
    """Search from each latent until the model errs and the auxiliary classifier sees the intended class.

    Args:
        oracle: the model's oracle; ids are 0 to n-1.
        generator: maps latents and classes to inputs.
        classifier: the auxiliary classifier.
        z0: (n, latent) starting points.
        y: (n,) int64 intended classes.
        domain: the input domain.
        settings: the settings of the search.
    """
    n, shape = len(y), domain.shape
    active = torch.arange(n, device=y.device)
    state = _State(z0.clone(), torch.zeros(n, *shape, device=y.device) if settings.noise else None)
    x, steps, success = torch.zeros(n, *shape, device=y.device), torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool)
    for step in range(1, settings.steps + 1):
        leaves = state.leaves(active)
        with torch.enable_grad():
            x_active = generator(leaves[0], y[active])
            if settings.noise:
                x_active = x_active + settings.noise * torch.tanh(leaves[1])
            x_active = quantise(x_active, domain)
            aux_logits = classifier(x_active)
            excess = (leaves[0] - z0[active]).square().sub(settings.radius**2).clamp_min(0).mean(1)
            regulariser = settings.class_weight * cross_entropy(aux_logits, y[active]) + settings.penalty * excess
        answer = oracle.gradient(active, x_active.detach(), nearest_wrong)
        finished = errs(answer.logits, y[active], x_active.detach()) & sees(
            aux_logits.detach(), y[active], settings.class_probability
        )
        x[active], steps[active], success[active] = x_active.detach(), step, finished
        moves = torch.autograd.grad([regulariser.sum(), x_active], leaves, [torch.ones_like(regulariser.sum()), -answer.grad])
        state.step(active, moves, settings.rate, step)
        active = active[~finished & oracle.affordable(active)]
        if not len(active):
            break
    return SearchResult(x=x, z=state.last, steps=steps, success=success)


def errs(logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(n,) bool: True where the logits of inputs `x` are wrong."""
    return MISCLASSIFIED.is_met(MISCLASSIFIED.margin(logits, y, x), logits, y)


def sees(logits: Tensor, y: Tensor, probability: float = 0.0) -> Tensor:
    """(n,) bool: `y` is the most probable class, with at least this probability."""
    return (logits.argmax(1) == y) & (logits.softmax(1).gather(1, y[:, None])[:, 0] >= probability)


class _State:
    """Latents and noise with Adam's moments. Each sample has its own, so results do not depend on the batch."""

    def __init__(self, z: Tensor, tau: Tensor | None) -> None:
        self.last = z.clone()
        """(n, latent): the latents of the last inputs that the model evaluated."""
        self.values = [z] if tau is None else [z, tau]
        self.moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in self.values]

    def leaves(self, rows: Tensor) -> list[Tensor]:
        """The values at `rows` as leaves of the gradient."""
        self.last[rows] = self.values[0][rows]
        return [value[rows].requires_grad_() for value in self.values]

    def step(self, rows: Tensor, grads: tuple[Tensor, ...], rate: float, number: int) -> None:
        """One step of Adam (Kingma & Ba 2015) down the gradients."""
        for value, (first, second), grad in zip(self.values, self.moments, grads, strict=True):
            first[rows] = BETAS[0] * first[rows] + (1 - BETAS[0]) * grad
            second[rows] = BETAS[1] * second[rows] + (1 - BETAS[1]) * grad.square()
            size = (second[rows] / (1 - BETAS[1] ** number)).sqrt() + TINY
            value[rows] -= rate * first[rows] / (1 - BETAS[0] ** number) / size
