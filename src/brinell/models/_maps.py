"""Models that answer maps: enlargement to the size of the input, logits in place of probabilities,
and mistakes of maps.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from brinell.core.errors import RequestError
from brinell.core.model import MapOutput, Model
from brinell.core.segmentation import IGNORED, confusion
from brinell.models._answers import SUM_TOLERANCE, Converted, logits_of_probabilities

LEAST, MOST, ALIKE = 0.4, 0.75, 0.03
"""Least share that is right with a mistake mended, largest without, and the difference up to
which two mistakes are named."""


class MapModel(Converted):
    """A model whose maps are as large as its inputs, and hold logits."""

    def __init__(self, model: Model, *, probabilities: bool = False) -> None:
        output = model.info.output
        if not isinstance(output, MapOutput):
            raise RequestError(
                f"model {model.name} answers no map: masks need a model with "
                "scores (n, classes, height, width) for each pixel"
            )
        _, height, width = model.domain.shape
        if output.height > height or output.width > width:
            raise RequestError(
                f"model {model.name} answers maps of {output.width} x "
                f"{output.height} for pictures of {width} x {height}: let it "
                "answer one class for each pixel"
            )

        # Maps smaller than the picture are enlarged, since masks have a class for each pixel.
        self._own, self._probabilities = output, probabilities
        self.output = MapOutput(classes=output.classes, height=height, width=width)
        self._is_smaller = self._own != self.output
        notes = []
        if probabilities:
            notes.append(
                f"{model.name} answers probabilities: their logarithms stand in for logits"
            )
        if self._is_smaller:
            notes.append(
                f"{model.name} answers maps of {output.width} x {output.height} for pictures of "
                f"{width} x {height}: they are enlarged (bilinear)"
            )
        super().__init__(
            model,
            f"{self.output.shape} bilinear {probabilities}",
            output.classes * height * width,
            output=self.output,
            answers="logits",
            notes=tuple(notes),
        )

    def predict(self, x: Tensor) -> Tensor:
        """(n, classes * h * w): flattened maps of logits."""
        answer = self.model.predict(x)
        if self._probabilities:
            answer = logits_of_probabilities(answer)
        if not self._is_smaller:
            return answer
        maps = answer.reshape(len(answer), *self._own.shape)
        size = (self.output.height, self.output.width)
        return functional.interpolate(maps, size, mode="bilinear", align_corners=False).flatten(1)


def holds_probabilities(model: Model, x: Tensor) -> bool:
    """True if each pixel of the maps for inputs (n, *shape) has a distribution over classes."""
    output = model.info.output
    # A single score of 1 is no distribution to tell classes apart by.
    if output is None or output.classes < 2:
        return False
    with torch.no_grad():
        maps = model.predict(x).reshape(len(x), *output.shape)
    return bool((maps >= 0).all()) and bool(
        ((maps.double().sum(1) - 1).abs() < SUM_TOLERANCE).all()
    )


def mistakes_of_maps(predicted: Tensor, masks: Tensor, classes: int) -> list[str]:
    """Explanations of predicted classes (n, h, w) that are not those of the masks.

    They are changes by which far more pixels are right.
    """
    from scipy.optimize import linear_sum_assignment  # which takes longer than most checks

    valid = masks != IGNORED
    if not bool(valid.any()):
        return []
    answers, true = predicted[valid], masks[valid]
    if bool((answers == answers[0]).all()) and not bool((true == true[0]).all()):
        return [f"it answers class {int(answers[0])} in every pixel"]
    changes = [
        (
            answers - 1,
            "with its class minus 1",
            "add 1 to the masks, or return logits[:, 1:] if its first class is a background",
        ),
        (
            answers + 1,
            "with its class plus 1",
            "take 1 from the masks, and write 255 where they hold 0",
        ),
    ]
    if predicted.shape[1] == predicted.shape[2]:
        changes.append(
            (
                predicted.transpose(1, 2)[valid],
                "with height and width exchanged",
                "return logits.transpose(2, 3)",
            )
        )
    mended = [
        (float((answer == true).double().mean()), words, line) for answer, words, line in changes
    ]
    # The order of the classes by which most pixels are right, whatever the classes are called.
    labels, places = linear_sum_assignment(
        confusion(predicted, masks, classes).sum(0).cpu().numpy(), maximize=True
    )
    # The true class of each answered one.
    order = torch.as_tensor(labels[places.argsort()], device=true.device)
    share = float((order[answers] == true).double().mean())
    best_share = max(part for part, _, _ in mended)
    # By an order rare classes alone may be matched a little better than by a shift.
    if share > best_share + ALIKE:
        swaps = [
            f"{answer} is {label}"
            for answer, label in enumerate(order.tolist())
            if answer != label and label in true
        ]
        words = f"with its classes in another order ({', '.join(swaps)})"
        mended.append((share, words, "return its logits in that of the data"))
    return explain(float((answers == true).double().mean()), mended, "pixels")


def explain(plain: float, mended: Sequence[tuple[float, str, str]], units: str) -> list[str]:
    """The changes that explain a share that is right, at most two.

    Args:
        plain: the share that is right as it is.
        mended: of each change the share that is right with it, its words, and what to do.
        units: what the shares are of.
    """
    best = max((share for share, _, _ in mended), default=0.0)
    # A mistake explains the answers if with it twice as much is right, or a third as much wrong.
    if best < LEAST or not (plain <= best / 2 or (plain <= MOST and 1 - best <= (1 - plain) / 3)):
        return []

    return [
        f"{100 * plain:.0f} % of the {units} are right, and {100 * share:.0f} % {words}: {line}"
        for share, words, line in mended
        if share >= best - ALIKE
    ][:2]
