"""MI-FGSM: steps along the sign of an accumulated gradient, whose examples transfer better.

Dong et al. 2018, Boosting adversarial attacks with momentum, Algorithm 1 and section 3.2 (in L2
equation 8): each gradient is divided by its L1 norm and added to `decay` times the sum so far;
steps of eps / steps follow that sum. With `diverse` above 0 it is M-DI2-FGSM (Xie et al. 2019,
Improving transferability of adversarial examples with input diversity, sections 3.3 and 3.4): with
that probability, each gradient is taken at a resized and padded version of the input. With `kernel`
above 1 it is TI (Dong et al. 2019, Evading defenses to transferable adversarial examples by
translation-invariant attacks, section 3.2): each gradient is smoothed by a Gaussian kernel, whose
deviation is a third of its reach as in the authors' code.

Deviations:
- A sample leaves in the iteration in which it is fooled, as in all attacks here. If examples are
  made for other models, nothing counts as fooled (`core.criterion.Worst`), so all steps are spent
  and the input of the largest margin is kept; the paper keeps the last one.
- Input diversity resizes down, to a share between `shrink` and 1 of each side, and pads to the size
  that the model takes with the lowest value; the paper resizes a 299 pixel image up to 330, which
  other models do not take. Resizing and padding are one bilinear map with offsets between pixels,
  through which the gradient is led back.
- With input diversity the model is asked about inputs beyond eps, which cannot succeed; besides
  them only the last iterate and those that were not resized are judged.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from brinell.attacks._shared import EveryKind, still_active
from brinell.core.contracts import Access, Batch, Domain, Oracle, Streams, Threat
from brinell.core.errors import RequestError
from brinell.core.losses import cross_entropy
from brinell.core.norms import l1, per_sample
from brinell.core.settings import Count, NotNegative, Portion, Range


@dataclass(frozen=True, kw_only=True)
class MIFGSM(EveryKind):
    """Momentum iterative FGSM, with variants for diverse inputs and translation invariance.

    `diverse=0.5` and `kernel=5` are these variants.
    """

    steps: Count = 10
    """Gradient steps."""
    decay: NotNegative = 1.0
    """Weight of the accumulated gradient against the new one; 0 is the basic iterative method."""
    step_size: Annotated[float, Range("(0, 2]")] | None = None
    """Length of a step as a fraction of eps; none means 1 / steps."""
    diverse: Portion = 0.0
    """Probability that a gradient is taken at a resized and padded version of the input; for
    images and video."""
    shrink: Annotated[float, Range("[0.1, 1]")] = 0.85
    """Smallest share of each side to which the input is resized."""
    kernel: Count = 1
    """Side of the Gaussian kernel that smooths gradients along height and width, odd; 1 leaves
    them. 15 is the paper's for ImageNet, 3 to 5 fit images of 32 pixels."""

    access = Access.GRADIENTS
    distances = frozenset({"linf", "l2"})
    family = "budgeted"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; its side is odd, so that it has a middle")

    def check(self, domain: Domain) -> None:
        """Refuse data other than images and video if inputs are resized or gradients smoothed."""
        if (self.diverse or self.kernel > 1) and domain.kind not in ("image", "video"):
            raise RequestError(
                "mi-fgsm resizes and smooths images and video, not a "
                f"{domain.kind}: leave diverse and kernel out"
            )
        if self.kernel > 1 and self.kernel > min(domain.shape[-2:]):
            raise RequestError(
                f"kernel is {self.kernel}, larger than inputs of shape "
                f"{domain.shape}: take a smaller one"
            )

    def reach(self, distance: str) -> float:
        """Multiple of eps within which it queries: infinite with `diverse`, otherwise 1.

        Resized inputs may leave the ball.
        """
        return float("inf") if self.diverse else 1.0

    def cost(self, classes: int) -> tuple[int, int]:
        """One forward and backward a step, and a forward for the last iterate."""
        return self.steps + 1, self.steps

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> None:
        """All steps on all samples; the last iterate is scored."""
        x = batch.x
        sums = torch.zeros_like(batch.x)

        fraction = self.step_size or 1 / self.steps
        for step in range(self.steps):
            grad = self._gradient(oracle, batch, x, threat.domain, rng.fold(step))
            batch, threat, rng, x, sums, grad = still_active(
                oracle, batch, threat, rng, x, sums, grad
            )
            if not len(batch):
                return

            if self.kernel > 1:
                grad = smoothed(grad, self.kernel)
            # The sum is of directions: a gradient that is large once would outweigh all others.
            scaled = grad / per_sample(l1(grad).clamp_min(1e-30), grad)
            sums = sums.mul_(self.decay).add_(scaled)

            move = threat.distance.ascent(sums).mul_(per_sample(fraction * threat.eps, x))
            x = threat.project(move.add_(x), batch.x)
        # Only to be judged: the oracle itself notes what fools the model.
        oracle.scores(batch.ids, x)

    def _gradient(
        self, oracle: Oracle, batch: Batch, x: Tensor, domain: Domain, rng: Streams
    ) -> Tensor:
        """(n, *shape): the gradient at each input, or led back from a resized version of it."""
        if not self.diverse:
            return oracle.gradient(batch.ids, x, cross_entropy).grad

        resized = rng.uniform(1)[:, 0] < self.diverse
        share = self.shrink + (1 - self.shrink) * rng.fold("share").uniform(1)[:, 0]
        place = rng.fold("place").uniform(2)
        share = torch.where(resized, share, 1.0)

        low = domain.bounds(x)[0]
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            transformed = padded(leaf - low, share, place) + low
            # Samples that are not resized stay bit-identical to the input, so they are judged
            # within eps.
            transformed = torch.where(per_sample(resized, x), transformed, leaf)

        # The model's gradient is led back through the transformation.
        answer = oracle.gradient(
            batch.ids, domain.clamp(transformed.detach().clone()), cross_entropy
        )
        return torch.autograd.grad(transformed, leaf, answer.grad)[0]


def padded(x: Tensor, share: Tensor, place: Tensor) -> Tensor:
    """Inputs resized to a share of their height and width, and placed somewhere on zeros.

    Args:
        x: (n, ..., H, W).
        share: (n,) above 0 and at most 1: how large the resized input is.
        place: (n, 2) in [0, 1]: where it lies in the room that is left, from the left and from
            above.

    Returns:
        (n, ..., H, W), bilinear.
    """
    n = len(x)
    height = x.shape[-2]
    width = x.shape[-1]
    # A point u of the output, -1 to 1, shows the point (u - centre) / share of the input.
    centre = (2 * place - 1) * (1 - share[:, None])
    theta = torch.zeros(n, 2, 3, device=x.device, dtype=x.dtype)
    # Rows of the map are those of x and y, columns their factors of x, of y and of 1.
    theta[:, 0, 0] = 1 / share
    theta[:, 1, 1] = 1 / share
    theta[:, :, 2] = -centre / share[:, None]

    flat = x.reshape(n, -1, height, width)
    grid = F.affine_grid(theta, list(flat.shape), align_corners=False)
    shown = F.grid_sample(flat, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return shown.reshape(x.shape)


def smoothed(grad: Tensor, side: int) -> Tensor:
    """(n, ..., H, W) convolved with a Gaussian kernel of this odd side; zeros outside."""
    reach = side // 2
    positions = torch.arange(-reach, reach + 1, device=grad.device, dtype=grad.dtype)
    # The deviation is a third of the reach.
    weights = torch.exp(-0.5 * (positions * 3 / reach) ** 2)
    weights = weights / weights.sum()
    # The kernel is a product: one axis after the other.
    flat = grad.reshape(-1, 1, *grad.shape[-2:])
    flat = F.conv2d(flat, weights.reshape(1, 1, -1, 1), padding=(reach, 0))
    flat = F.conv2d(flat, weights.reshape(1, 1, 1, -1), padding=(0, reach))
    return flat.reshape(grad.shape)
