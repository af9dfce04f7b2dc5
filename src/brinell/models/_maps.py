"""Models that answer maps: enlargement to the size of the input, and logits in place of probabilities."""

import hashlib
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from brinell.core.errors import RequestError
from brinell.core.model import MapOutput, Model, ModelInfo
from brinell.models._answers import SUM, logits_of_probabilities

Enlargement = Literal["bilinear", "bilinear-aligned", "nearest"]
"""How a map that is smaller than its input is enlarged; aligned: the outer pixels of both lie upon each other."""


class MapModel:
    """A model whose maps are as large as its inputs, and hold logits.

    Args:
        model: answers flattened maps.
        enlargement: how maps are enlarged.
        probabilities: True if the maps hold probabilities, whose logarithms are taken.

    Raises:
        RequestError: the model answers no maps, or larger ones than its inputs.
    """

    def __init__(self, model: Model, enlargement: Enlargement = "bilinear", *, probabilities: bool = False) -> None:
        output = model.info.output
        if not isinstance(output, MapOutput):
            raise RequestError(
                f"model {model.name} answers no map: masks need a model with scores (n, classes, height, width) for each pixel"
            )
        self.model, self.name, self.domain, self.access = model, model.name, model.domain, model.access
        _, height, width = model.domain.shape
        if output.height > height or output.width > width:
            raise RequestError(
                f"model {model.name} answers maps of {output.width} x {output.height} for pictures of {width} x {height}: let it "
                "answer one class for each pixel"
            )
        self._own, self._enlargement, self._probabilities = output, enlargement, probabilities
        self.output = MapOutput(classes=output.classes, height=height, width=width)
        self.classes = output.classes * height * width

    @property
    def info(self) -> ModelInfo:
        """The facts of the inner model, the full size of the maps, and a note where they are enlarged."""
        info = self.model.info
        notes: tuple[str, ...] = (
            (f"{self.name} answers probabilities: their logarithms stand in for logits",) if self._probabilities else ()
        )
        if self._is_smaller:
            size, smaller = (f"{output.width} x {output.height}" for output in (self.output, self._own))
            notes += (f"{self.name} answers maps of {smaller} for pictures of {size}: they are enlarged ({self._enlargement})",)
        return replace(info, output=self.output, answers="logits", notes=(*info.notes, *notes))

    @property
    def _is_smaller(self) -> bool:
        """True if maps are enlarged."""
        return self._own != self.output

    def predict(self, x: Tensor) -> Tensor:
        """(n, classes * h * w): flattened maps of logits."""
        answer = self.model.predict(x)
        if self._probabilities:
            answer = logits_of_probabilities(answer)
        if not self._is_smaller:
            return answer
        maps = answer.reshape(len(answer), *self._own.shape)
        size = (self.output.height, self.output.width)
        if self._enlargement == "nearest":
            return functional.interpolate(maps, size, mode="nearest").flatten(1)
        aligned = self._enlargement == "bilinear-aligned"
        return functional.interpolate(maps, size, mode="bilinear", align_corners=aligned).flatten(1)

    def digest(self) -> str:
        """Hash of the inner model's digest and of what is done to its maps."""
        text = f"{self.model.digest()} {self.output.shape} {self._enlargement} {self._probabilities}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def holds_probabilities(model: Model, x: Tensor) -> bool:
    """True if each pixel of the maps for inputs (n, *shape) has a distribution over at least two classes."""
    output = model.info.output
    if output is None or output.classes < 2:
        return False
    with torch.no_grad():
        maps = model.predict(x).reshape(len(x), *output.shape)
    return bool((maps >= 0).all()) and bool(((maps.double().sum(1) - 1).abs() < SUM).all())
