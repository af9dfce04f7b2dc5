"""The search of a generator's latent space for an input of an intended class on which a model errs.

Song, Shu, Kushman & Ermon 2018, Constructing unrestricted adversarial examples with generative
models, section 3. From a latent z0 and a class y, minimise over z (and tau)

    L0 + l1 * mean(max((z - z0)^2 - radius^2, 0)) + l2 * L2    with x = g(z, y) + noise * tanh(tau),
    cut at the bounds of the data

where L0 is the model's cross-entropy with the most probable wrong class, and L2 the auxiliary
classifier's with y; the second term is the form of the authors' code. Without noise there is no
tau. Untargeted alone. Deviations:

- Adam, and the search of a sample ends at the first success. Theirs is gradient descent with
  annealed noise on the gradient for a fixed number of steps: on a processor a tenth of them has to
  do, and a search that is over costs nothing.
- The auxiliary classifier looks at what the model is shown, noise included; theirs looks at the
  noiseless drawing. A noise that destroys the class should not pass for having kept it.
- The model is shown what can be stored: each input is rounded to the levels of the data (8-bit
  pictures); the gradient passes the rounding unchanged. A success that a file cannot hold is none.
- The auxiliary classifier must give the intended class nine tenths; with theirs it need only lead.
  A drawing on the edge between two classes says little of a model that takes it for the other.
- The weights l1 and l2 are 1 and 1 in place of 50 to 100: their steps are as long as the loss is
  steep, ours are not.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.core.criterion import MISCLASSIFIED
from brinell.core.domain import Domain
from brinell.core.losses import cross_entropy
from brinell.core.oracle import Oracle

BETAS = (0.9, 0.99)
"""Adam's decay rates of the mean gradient and of the mean square."""


def nearest_wrong(logits: Tensor, y: Tensor) -> Tensor:
    """(n,) minus the cross-entropy with the most probable class other than `y`, which the search
    ascends.
    """
    return F.log_softmax(logits, 1).scatter(1, y[:, None], -torch.inf).amax(1)


def quantise(x: Tensor, domain: Domain) -> Tensor:
    """`x` clipped to the bounds and rounded to the levels of the data; gradients pass the rounding
    unchanged.
    """
    clipped = torch.clamp(x, *domain.bounds(x))
    return clipped + (domain.round(clipped.detach().clone()) - clipped.detach())


def search(
    oracle: Oracle,
    generator: Callable[[Tensor, Tensor], Tensor],
    classifier: Callable[[Tensor], Tensor],
    z0: Tensor,
    y: Tensor,
    domain: Domain,
    *,
    steps: int,
    noise: float = 0.0,
    class_probability: float = 0.9,
    rate: float = 0.05,
    radius: float = 0.1,
    penalty: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Search from each latent until the model errs and the auxiliary classifier sees the intended
    class.

    Args:
        oracle: the model's oracle, behind which the ledger judges success; ids are 0 to n-1.
        generator: maps latents and classes to inputs, differentiably.
        classifier: the auxiliary classifier: inputs to logits, differentiably.
        z0: (n, latent) starting points.
        y: (n,) int64 intended classes.
        domain: the input domain.
        steps: most gradient steps.
        noise: largest change of a value by added noise.
        class_probability: least probability that the auxiliary classifier must give the intended
            class.
        rate: the size of a step, in standard deviations of the latent.
        radius: change of a latent value that costs no penalty.
        penalty: weight l1 of the penalty on latents beyond the radius.

    Returns:
        The last input of each search (n, *shape), which is its first success if it has one, and its
            latent (n, latent).
    """
    active = torch.arange(len(y), device=y.device)
    last_x = z0.new_zeros(len(y), *domain.shape)
    last_z = z0.clone()
    leaves = [z0.clone().requires_grad_()]
    if noise:
        leaves.append(torch.zeros_like(last_x).requires_grad_())
    # Adam takes each value by itself: no result depends on the batch.
    optimizer = torch.optim.Adam(leaves, lr=rate, betas=BETAS)

    for _ in range(steps):
        with torch.enable_grad():
            parts = [leaf[active] for leaf in leaves]
            z = parts[0]
            x = generator(z, y[active])
            # The noise is bounded by a tanh, so no step needs to be clamped.
            x = quantise(x + noise * torch.tanh(parts[1]) if noise else x, domain)
            aux_logits = classifier(x)
            excess = (z - z0[active]).square().sub(radius**2).clamp_min(0).mean(1)
            loss = (cross_entropy(aux_logits, y[active]) + penalty * excess).sum()

        answer = oracle.gradient(active, x.detach(), nearest_wrong)
        finished = errs(answer.logits, y[active], x.detach()) & sees(
            aux_logits.detach(), y[active], class_probability
        )
        last_x[active] = x.detach()
        last_z[active] = z.detach()

        # One backward pass through the generator serves both losses: the oracle's gradient is to be
        # ascended, so it enters with a minus.
        optimizer.zero_grad()
        torch.autograd.backward([loss, x], [torch.ones_like(loss), -answer.grad], inputs=leaves)
        optimizer.step()
        active = active[~finished & oracle.affordable(active)]
        if not len(active):
            break
    return last_x, last_z


def errs(logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(n,) bool: True where the logits of inputs `x` are wrong."""
    return MISCLASSIFIED.is_met(MISCLASSIFIED.margin(logits, y, x), logits, y)


def sees(logits: Tensor, y: Tensor, probability: float = 0.0) -> Tensor:
    """(n,) bool: `y` is the most probable class, with at least this probability."""
    return (logits.argmax(1) == y) & (logits.softmax(1).gather(1, y[:, None])[:, 0] >= probability)
