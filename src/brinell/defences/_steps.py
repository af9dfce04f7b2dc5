"""Building blocks of defences that attack the network in training.

No ledger counts queries or judges success here: training must be fast, and an audit measures the
result.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import KINDS, Batch, Kind, Network, Streams, Threat
from brinell.core.norms import per_sample
from brinell.core.settings import Checked, Count, Range

Loss = Callable[[Tensor], Tensor]
"""(n, classes) logits to (n,) values, which an attack raises."""

START_RADIUS = 1e-3
"""Distance from the clean input at which the attacks of TRADES and MART start."""
ENOUGH = 10
"""Steps of an attack beyond which more steps do not prevent overfitting to it."""


class OnGradients(Checked):
    """Declarations of defences that follow gradients: any kind of input, Linf and L2."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    distances: ClassVar[frozenset[str]] = frozenset({"linf", "l2"})
    budgeted: ClassVar[bool] = True


class WithoutBudget(Checked):
    """Declarations of defences whose inputs do not depend on an eps, for any kind of input."""

    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)
    distances: ClassVar[frozenset[str]] = frozenset({"linf", "l2", "l1", "l0"})
    budgeted: ClassVar[bool] = False

    def cost(self) -> tuple[int, int]:
        """Cost of plain training: a forward and a backward for the update."""
        return 1, 1


class LearnsTheWorst:
    """Minimises the cross-entropy on what was crafted, and on nothing else."""

    def loss(self, network: Network, batch: Batch, x_adv: Tensor) -> Tensor:
        """(n,) cross-entropy of the crafted inputs."""
        return F.cross_entropy(network(x_adv), batch.y, reduction="none")

    def safer(self) -> str:
        """The recipe to go on with after catastrophic overfitting: empty, since none is safer."""
        return ""


def gradient(network: Network, x: Tensor, loss: Loss) -> Tensor:
    """(n, *shape) gradient of each sample's loss to its input, without one to any weight."""
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        (grad,) = torch.autograd.grad(loss(network(leaf)).sum(), leaf)
    return grad


def cross_entropy(y: Tensor) -> Loss:
    """The cross-entropy with these labels (n,)."""
    return lambda logits: F.cross_entropy(logits, y, reduction="none")


def noise(batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
    """(n, *shape) drawn uniformly from the ball of each sample's budget, whatever the bounds."""
    x = batch.x
    if threat.distance.name == "linf":
        delta = torch.empty_like(x).uniform_(-1, 1, generator=rng)
    else:
        # A stream for each sample, whose key, nearly any whole number of 64 bits, the generator of
        # the training draws.
        keys = torch.randint(-(2**62), 2**62, (len(x),), generator=rng, device=x.device)
        delta = threat.distance.sample(Streams(keys), tuple(x.shape[1:]))
    return delta.mul_(per_sample(threat.eps, x))


def stepped(x: Tensor, grad: Tensor, threat: Threat, size: float) -> Tensor:
    """`x` and a step of `size` times eps along the steepest ascent of `grad`, as a new tensor."""
    step: Tensor = threat.distance.ascent(grad)
    return step.mul_(per_sample(size * threat.eps, x)).add_(x)


def project(x: Tensor, batch: Batch, threat: Threat) -> Tensor:
    """`x` moved into ball and bounds; values that may not change are the clean ones."""
    return restore_fixed(threat.project(x, batch.x), batch, threat)


def restore_fixed(x: Tensor, batch: Batch, threat: Threat) -> Tensor:
    """`x` with the clean values where it may not change."""
    domain = threat.domain
    return x if domain.is_free else domain.merge(batch.x, domain.part(x))


@dataclass(frozen=True, kw_only=True)
class ClimbsTheGradient(OnGradients):
    """A defence by projected gradient ascent, which learns from two answers to each input."""

    steps: Count = 10
    """Gradient steps of the attack."""
    step_size: Annotated[float, Range("(0, 2]")] | None = None
    """Length of a step as a fraction of eps; none means 2.5 / steps."""

    def climb(
        self, network: Network, batch: Batch, threat: Threat, start: Tensor, loss: Loss
    ) -> Tensor:
        """(n, *shape) the last iterate of projected gradient ascent from `start`.

        `start` need not lie in the ball.
        """
        # Madry et al. 2018: the steps can reach any point of the ball, and move along its edge.
        size = self.step_size or 2.5 / self.steps
        x = project(start, batch, threat)
        for _ in range(self.steps):
            grad = gradient(network, x, loss)
            x = project(stepped(x, grad, threat, size), batch, threat)
        return x.detach()

    def cost(self) -> tuple[int, int]:
        """The steps, and two of each for the update."""
        return self.steps + 2, self.steps + 2

    def safer(self) -> str:
        """The recipe with twice the steps, of the default length; empty where there are enough."""
        if self.steps >= ENOUGH:
            return ""
        names = [field.name for field in fields(self) if field.name not in ("steps", "step_size")]
        settings = [f"{name}={getattr(self, name)!r}" for name in names]
        settings.append(f"steps={min(2 * self.steps, ENOUGH)}")
        return f"{type(self).__name__.lower()}({','.join(settings)})"


def divergence(clean: Tensor, attacked: Tensor) -> Tensor:
    """(n,) Kullback-Leibler divergence between the probabilities of logits (n, classes)."""
    log_p = clean.log_softmax(1)
    log_q = attacked.log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1)


def start_near(batch: Batch, threat: Threat, rng: torch.Generator) -> Tensor:
    """(n, *shape) close to the clean inputs, where TRADES and MART start.

    At the clean inputs themselves the divergence from them has no gradient.
    """
    if threat.distance.name == "linf":
        return torch.empty_like(batch.x).normal_(0, START_RADIUS, generator=rng).add_(batch.x)
    return noise(batch, threat, rng).mul_(START_RADIUS).add_(batch.x)
