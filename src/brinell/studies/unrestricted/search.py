"""The search of a generator's latent space for an input of an intended class on which a model errs.

Song, Shu, Kushman & Ermon 2018, Constructing unrestricted adversarial examples with generative models, section 3. From a latent
z0 and a class y, minimise over z (and tau)

    L0 + l1 * mean(max((z - z0)^2 - radius^2, 0)) + l2 * L2    with x = g(z, y) + noise * tanh(tau), cut at the bounds of the data

where L0 is the model's cross-entropy with the class that is wanted, or with the nearest wrong one where any will do, and L2 the
auxiliary classifier's with y; the second term is the form of the authors' code. Without noise tau stays away. Deviations:

- Adam, and the search of a sample ends at the first input that counts. Theirs is gradient descent with annealed noise on the
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
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.criterion import MISCLASSIFIED, Criterion, Targeted
from brinell.core.domain import Domain
from brinell.core.losses import cross_entropy
from brinell.core.oracle import Oracle
from brinell.studies.unrestricted.request import UnrestrictedRequest

Draw = Callable[[Tensor, Tensor], Tensor]
"""Latents (n, latent) and classes (n,) to inputs (n, *shape), differentiable."""
Name = Callable[[Tensor], Tensor]
"""Inputs (n, *shape) to (n, classes) logits, differentiable."""
BETAS = (0.9, 0.99)
TINY = 1e-8


class Found(NamedTuple):
    """What a search proposes, found or not; nothing here is a verdict."""

    x: Tensor
    """(n, *shape): the last input of each search, which is the first that counted where there was one."""
    z: Tensor
    """(n, latent)."""
    steps: Tensor
    """(n,) int64: how many gradient steps were taken."""
    counted: Tensor
    """(n,) bool: whether the search believes that it is done."""


def nearest_wrong(logits: Tensor, y: Tensor) -> Tensor:
    """Minus the cross-entropy with the most probable class that is not `y` (n,): the untargeted loss, which rises."""
    return F.log_softmax(logits, 1).scatter(1, y[:, None], -torch.inf).amax(1)


def stored(x: Tensor, domain: Domain) -> Tensor:
    """`x` cut at the bounds and rounded to the levels of the data; the gradient passes the rounding unchanged."""
    low, high = domain.bounds(x)
    cut = torch.minimum(torch.maximum(x, low), high)
    return cut + (domain.round(cut.detach().clone()) - cut.detach())


def search(
    oracle: Oracle,
    draw: Draw,
    name: Name,
    z0: Tensor,
    y: Tensor,
    domain: Domain,
    settings: UnrestrictedRequest,
    criterion: Criterion = MISCLASSIFIED,
) -> Found:
    """Search from each latent until an input counts: the model errs and the auxiliary classifier sees the intended class.

    Args:
        oracle: answers for the model; ids are 0 to n-1.
        draw: the generator.
        name: the auxiliary classifier.
        z0: (n, latent) where to begin.
        y: (n,) int64 intended classes.
        domain: where inputs live.
        settings: steps, rate, noise, radius, hold (l1), keep (l2) and sure.
        criterion: when the model errs: any wrong class, or a target class for each sample. The ledger behind the oracle has
            the same.
    """
    n, shape = len(y), domain.shape
    now = torch.arange(n, device=y.device)
    state = _State(z0.clone(), torch.zeros(n, *shape, device=y.device) if settings.noise else None)
    x, steps, counted = torch.zeros(n, *shape, device=y.device), torch.zeros_like(y), torch.zeros_like(y, dtype=torch.bool)
    # Towards a target class the oracle turns the cross-entropy round.
    loss = cross_entropy if isinstance(criterion, Targeted) else nearest_wrong
    for step in range(1, settings.steps + 1):
        leaves = state.leaves(now)
        with torch.enable_grad():
            shown = draw(leaves[0], y[now])
            if settings.noise:
                shown = shown + settings.noise * torch.tanh(leaves[1])
            shown = stored(shown, domain)
            named = name(shown)
            held = (leaves[0] - z0[now]).square().sub(settings.radius**2).clamp_min(0).mean(1)
            own = settings.keep * cross_entropy(named, y[now]) + settings.hold * held
        answer = oracle.gradient(now, shown.detach(), loss)
        done = errs(criterion.select(now), answer.logits, y[now], shown.detach()) & sees(named.detach(), y[now], settings.sure)
        x[now], steps[now], counted[now] = shown.detach(), step, done
        moves = torch.autograd.grad([own.sum(), shown], leaves, [torch.ones_like(own.sum()), -answer.grad])
        state.step(now, moves, settings.rate, step)
        now = now[~done & oracle.affordable(now)]
        if not len(now):
            break
    return Found(x=x, z=state.shown, steps=steps, counted=counted)


def errs(criterion: Criterion, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(n,) bool: whether the answers to inputs `x` meet the criterion."""
    return criterion.met(criterion.margin(logits, y, x), logits.abs().amax(1))


def sees(logits: Tensor, y: Tensor, sure: float = 0.0) -> Tensor:
    """(n,) bool: `y` is the most probable class and its probability at least `sure`."""
    return (logits.argmax(1) == y) & (logits.softmax(1).gather(1, y[:, None])[:, 0] >= sure)


class _State:
    """Latents and noise with Adam's moments; each sample on its own, so that no batch changes another's path."""

    def __init__(self, z: Tensor, tau: Tensor | None) -> None:
        self.shown = z.clone()
        """(n, latent): the latents of the last inputs that were shown."""
        self.values = [z] if tau is None else [z, tau]
        self.moments = [(torch.zeros_like(value), torch.zeros_like(value)) for value in self.values]

    def leaves(self, rows: Tensor) -> list[Tensor]:
        """What is differentiated."""
        self.shown[rows] = self.values[0][rows]
        return [value[rows].requires_grad_() for value in self.values]

    def step(self, rows: Tensor, grads: tuple[Tensor, ...], rate: float, number: int) -> None:
        """One step of Adam (Kingma & Ba 2015) down the gradients."""
        for value, (first, second), grad in zip(self.values, self.moments, grads, strict=True):
            first[rows] = BETAS[0] * first[rows] + (1 - BETAS[0]) * grad
            second[rows] = BETAS[1] * second[rows] + (1 - BETAS[1]) * grad.square()
            size = (second[rows] / (1 - BETAS[1] ** number)).sqrt() + TINY
            value[rows] -= rate * first[rows] / (1 - BETAS[0] ** number) / size
