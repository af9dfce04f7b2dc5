"""Criteria for models that answer a map with one class for each pixel: the truth is a mask, and an
answer is a flattened map.

A map of `classes` x h x w logits reaches the ledger as (n, classes * h * w). Attacks that ask for
scores or labels are shown two classes instead, 0 and a margin, and the true one is the first: so
every such attack runs unchanged. Losses are means over the valid pixels of a picture
(`attacks.apgd_map`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.criterion import Loss, TwoClasses
from brinell.core.errors import RequestError

IGNORED = 255
"""The value of a mask's pixel that has no true class: no figure and no loss counts it."""

SPREAD = 20.0
"""Largest minus smallest logit of a pixel, as a mean over a picture, to which losses scale
logits: about that of DeepLabV3."""


@dataclass(frozen=True, kw_only=True)
class MapCriterion(TwoClasses, ABC):
    """Base of the criteria for maps; a subclass gives the margin."""

    masks: Tensor
    """(n, h, w) int64: the true class of each pixel, or `IGNORED`."""
    classes: int
    """Classes of a map."""
    name = "map"

    @abstractmethod
    def margins(self, maps: Tensor) -> Tensor:
        """(n,): margins of maps (n, classes, h, w)."""

    def maps(self, logits: Tensor) -> Tensor:
        """(n, classes, h, w): flattened answers as maps."""
        return logits.reshape(len(logits), self.classes, *self.masks.shape[1:])

    @property
    def valid(self) -> Tensor:
        """(n, h, w) bool: pixels that have a true class."""
        return self.masks != IGNORED

    @property
    def attackable(self) -> Tensor:
        """(n,) bool: pictures on which the criterion can be met."""
        return self.valid.flatten(1).any(1)

    @property
    def truth(self) -> Tensor:
        """(n, h, w) int64: the masks, with class 0 where a pixel is ignored."""
        return self.masks.masked_fill(self.masks == IGNORED, 0)

    def beyond(self, pixels: Tensor, threshold: float) -> Tensor:
        """(n,): by how large a share of the valid pixels `pixels` (n, h, w) reach a threshold.

        Whole pixels are needed, and half of one decides, so that no rounding does.
        """
        valid = self.valid
        total = valid.flatten(1).sum(1)
        # The product of a threshold such as 0.7 may lie just above a whole number.
        needed = torch.ceil(threshold * total.double() - 1e-6).clamp_min(1)
        return (((pixels & valid).flatten(1).sum(1) - needed + 0.5) / total.clamp_min(1)).float()

    def mean(self, pixels: Tensor) -> Tensor:
        """(n,): mean of (n, h, w) values over the valid pixels."""
        valid = self.valid
        total = (
            torch.where(valid, pixels, torch.zeros((), device=pixels.device, dtype=pixels.dtype))
            .flatten(1)
            .sum(1)
        )
        return total / valid.flatten(1).sum(1).clamp_min(1)

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): margins, with the gradient of the mean masked margin of the pixels.

        A count has no gradient.
        """
        value = self.margins(self.maps(logits))
        if not logits.requires_grad:
            return value
        slope = self.loss(losses.margin, logits, y)
        return value.detach() + slope - slope.detach()

    def loss(self, loss: Loss, logits: Tensor, y: Tensor) -> Tensor:
        """(n,): mean over the valid pixels of a loss of single pixels, of `rescaled` logits."""
        return self.mean_loss(loss, self.rescaled(self.maps(logits)))

    def rescaled(self, maps: Tensor) -> Tensor:
        """(n, classes, h, w): maps with the mean spread `SPREAD` in each picture.

        The scale of its logits changes no decision of a network. Without this step it would change
        attacks: if logits are small, the cross-entropy weighs all pixels alike, and if they are
        large, it has no gradient.
        """
        return maps * self.scale(maps)[:, None, None, None]

    def scale(self, maps: Tensor) -> Tensor:
        """(n,): the factors by which `rescaled` multiplies maps.

        1 where all logits of a picture are alike, or not finite.
        """
        maps = maps.detach()
        spread = self.mean(maps.amax(1) - maps.amin(1))
        return torch.where((spread > 0) & (spread < torch.inf), SPREAD / spread, 1.0)

    def mean_loss(self, loss: Loss, maps: Tensor) -> Tensor:
        """(n,): mean over the valid pixels of a loss of their logits."""
        return self.mean(loss(maps, self.truth))

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """(n, 2): 0 and the margin.

        It is less by 0 to 2 if the criterion is not met: the more, the farther the pixels are from
        their goal. A count stands still while no pixel changes its class, so that a search by
        counts alone would see nothing. The scale of logits does not change what it sees.
        """
        if margin is not None:
            return torch.stack((torch.zeros_like(margin), margin), 1)

        margin = self.margin(logits, y, logits)
        maps = self.maps(logits)
        loss = partial(nearness, scale=self.scale(maps))
        value = torch.where(margin > 0, margin, margin + self.mean_loss(loss, maps) - 1)
        return torch.stack((torch.zeros_like(margin), value), 1)

    def select(self, keep: slice | Tensor) -> Self:
        """The criterion for some pictures."""
        return replace(self, masks=self.masks[keep])

    def check(self, classes: int) -> None:
        """Refuse a model whose answers have another length than maps of this size."""
        expected = self.classes * self.masks.shape[1:].numel()
        if classes != expected:
            raise RequestError(
                f"the model answers {classes} numbers, and a map of "
                f"{self.classes} classes on masks of "
                f"{self.masks.shape[2]} x {self.masks.shape[1]} pixels has "
                f"{expected}: choose the model of this data"
            )

    def describe(self) -> dict[str, Any]:
        """The name and the fields that the criterion is set by, without the pictures."""
        return {"name": self.name} | {
            key: value for key, value in vars(self).items() if not isinstance(value, Tensor)
        }


@dataclass(frozen=True, kw_only=True)
class PixelShare(MapCriterion):
    """The share of valid pixels whose class is wrong reaches a threshold; 1 takes all of them."""

    threshold: float = 1.0
    name = "pixels"

    def margins(self, maps: Tensor) -> Tensor:
        """By how many pixels the wrong ones reach the threshold."""
        return self.beyond(~losses.correct(maps, self.truth), self.threshold)


@dataclass(frozen=True, kw_only=True)
class PictureIoU(MapCriterion):
    """The mean IoU of a picture, over the classes that occur in its mask, falls below a value."""

    below: float
    name = "iou"

    def margins(self, maps: Tensor) -> Tensor:
        """The value minus the mean IoU, which is 1 in a picture without a valid pixel."""
        counts = confusion(losses.predicted_classes(maps), self.masks, self.classes).double()
        hits = counts.diagonal(dim1=1, dim2=2)
        true = counts.sum(2)
        predicted = counts.sum(1)

        occurs = true > 0
        iou = torch.where(occurs, hits / (true + predicted - hits).clamp_min(1), 0.0).sum(1)
        mean = torch.where(occurs.any(1), iou / occurs.sum(1).clamp_min(1), 1.0)
        return (self.below - mean).float()


@dataclass(frozen=True, kw_only=True)
class ClassGone(MapCriterion):
    """At most a share of the pixels of one class still has that class.

    A picture without the class never meets it.
    """

    label: int
    share: float = 0.0
    name = "gone"

    @property
    def attackable(self) -> Tensor:
        """(n,) bool: pictures that have the class."""
        return (self.masks == self.label).flatten(1).any(1)

    def margins(self, maps: Tensor) -> Tensor:
        """By how many pixels fewer than the share still have the class; -1 without the class."""
        pixels = self.masks == self.label
        total = pixels.flatten(1).sum(1)
        remaining = (
            (losses.correct(maps, torch.full_like(self.masks, self.label)) & pixels)
            .flatten(1)
            .sum(1)
        )
        # Half a pixel decides, so that no rounding does.
        margin = (self.share * total - remaining + 0.5) / total.clamp_min(1)
        return torch.where(total > 0, margin, -1.0)

    def mean_loss(self, loss: Loss, maps: Tensor) -> Tensor:
        """The mean over the pixels of the class."""
        pixels = replace(self, masks=self.masks.masked_fill(self.masks != self.label, IGNORED))
        return MapCriterion.mean_loss(pixels, loss, maps)


@dataclass(frozen=True, kw_only=True)
class TargetMap(MapCriterion):
    """The share of valid pixels that have the class of a target map reaches a threshold."""

    targets: Tensor
    """(n, h, w) int64."""
    threshold: float = 0.5
    name = "target"

    def margins(self, maps: Tensor) -> Tensor:
        """By how many pixels those of the target class reach the threshold."""
        return self.beyond(losses.correct(maps, self.targets), self.threshold)

    def mean_loss(self, loss: Loss, maps: Tensor) -> Tensor:
        """The mean loss of the target classes, turned: raising it leads to them."""
        return -self.mean(loss(maps, self.targets))

    def select(self, keep: slice | Tensor) -> Self:
        """The criterion for some pictures, with their target maps."""
        return replace(self, masks=self.masks[keep], targets=self.targets[keep])


def nearness(logits: Tensor, y: Tensor, scale: Tensor) -> Tensor:
    """The sigmoid of the scaled margin of each pixel.

    It is above a half where the pixel is wrong, and the smaller the surer it is right.
    """
    return (losses.margin(logits, y) * scale[:, None, None]).sigmoid()


def confusion(predicted: Tensor, masks: Tensor, classes: int) -> Tensor:
    """(n, classes, classes) int64: valid pixels by true class (rows) and predicted class."""
    valid = masks != IGNORED
    picture = torch.arange(len(masks), device=masks.device)[:, None, None]
    # One number for each triple of picture, true class and predicted class.
    index = ((picture * classes + masks) * classes + predicted)[valid]
    return torch.bincount(index, minlength=len(masks) * classes * classes).reshape(
        len(masks), classes, classes
    )
