"""Criteria for one part of an answer: a region of a map, or one object of a detector. Explanations ask about it.

Both show attacks two classes as the criteria for whole answers do, but with a value that falls evenly from «unchanged» to
«gone», so that one query says how much of the part is left.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.core.boxes import LEAST, MATCH, overlaps
from brinell.core.detection import BoxCriterion
from brinell.core.segmentation import PixelShare

LIMIT = 0.01
"""Shares closer than this to 0 or 1 are shown as that, since log-odds beyond would be those of single pixels."""


@dataclass(frozen=True, kw_only=True)
class RegionChanged(PixelShare):
    """Half of the pixels of a region lose their class. Masks hold that class in the region, and `IGNORED` beyond it."""

    threshold: float = 0.5
    name = "region"

    def logits_for_attack(self, logits: Tensor, y: Tensor, margin: Tensor | None = None) -> Tensor:
        """(n, 2): logarithms of the share of the region that keeps its class, and of the rest."""
        margin = self.margins(self.maps(logits)) if margin is None else margin
        share = (0.5 - margin).clamp(LIMIT, 1 - LIMIT)
        return torch.stack((share.log(), (1 - share).log()), 1)


@dataclass(frozen=True, kw_only=True)
class ObjectLost(BoxCriterion):
    """No shown box of its class overlaps an object by `MATCH`. The scene holds one object for each picture.

    The margin is the log-odds by which the best score stays below that of shown boxes. Boxes that overlap the object less count
    by their share of `MATCH`, and never as found.
    """

    name = "object"

    def score(self, answers: Tensor) -> Tensor:
        """(n,) float32: the score by which each object is found."""
        scores = []
        for boxes, objects in zip(self.form.decode(answers, LEAST), self.scene.objects, strict=True):
            ratio = overlaps(boxes.boxes, objects.boxes)[:, 0] * (boxes.labels == objects.labels[0])
            full = float(boxes.scores[ratio >= MATCH].max(initial=0.0))
            part = float((boxes.scores * ratio / MATCH)[ratio < MATCH].max(initial=0.0))
            scores.append(full if full > self.least_score else min(max(full, part), self.least_score))
        return torch.tensor(scores, dtype=torch.float32, device=answers.device)

    def margin(self, logits: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """(n,): above 0 where the object is lost, and at least 1e-3 from 0."""
        with torch.no_grad():
            score = self.score(logits)
            least = torch.logit(torch.tensor(max(self.least_score, LIMIT)), LIMIT)
            value = least - torch.logit(score, LIMIT)
            value = torch.where(score > self.least_score, value.clamp_max(-1e-3), value.clamp_min(1e-3))
        if not logits.requires_grad:
            return value
        slope = self._slope(logits)
        return value + slope - slope.detach()
