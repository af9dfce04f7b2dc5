"""Models that answer maps: enlargement to the size of the input, and logits in place of probabilities."""

import torch
from torch import Tensor
from torch.nn import functional

from brinell.core.errors import RequestError
from brinell.core.model import MapOutput, Model
from brinell.models._answers import SUM, Converted, logits_of_probabilities


class MapModel(Converted):
    """A model whose maps are as large as its inputs, and hold logits."""

    def __init__(self, model: Model, *, probabilities: bool = False) -> None:
        output = model.info.output
        if not isinstance(output, MapOutput):
            raise RequestError(
                f"model {model.name} answers no map: masks need a model with scores (n, classes, height, width) for each pixel"
            )
        _, height, width = model.domain.shape
        if output.height > height or output.width > width:
            raise RequestError(
                f"model {model.name} answers maps of {output.width} x {output.height} for pictures of {width} x {height}: let it "
                "answer one class for each pixel"
            )
        self._own, self._probabilities = output, probabilities
        self.output = MapOutput(classes=output.classes, height=height, width=width)
        self._is_smaller = self._own != self.output
        notes: tuple[str, ...] = ()
        if probabilities:
            notes += (f"{model.name} answers probabilities: their logarithms stand in for logits",)
        if self._is_smaller:
            size, smaller = (f"{form.width} x {form.height}" for form in (self.output, output))
            notes += (f"{model.name} answers maps of {smaller} for pictures of {size}: they are enlarged (bilinear)",)
        step = f"{self.output.shape} bilinear {probabilities}"
        super().__init__(model, step, output.classes * height * width, output=self.output, answers="logits", notes=notes)

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
    """True if each pixel of the maps for inputs (n, *shape) has a distribution over at least two classes."""
    output = model.info.output
    if output is None or output.classes < 2:
        return False
    with torch.no_grad():
        maps = model.predict(x).reshape(len(x), *output.shape)
    return bool((maps >= 0).all()) and bool(((maps.double().sum(1) - 1).abs() < SUM).all())
