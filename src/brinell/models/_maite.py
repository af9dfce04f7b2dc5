"""A model by MAITE's protocol of image classification as a function of batches, which sees scores
alone (`core.maite`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import RequestError, is_foreign, one_line
from brinell.core.maite import scores_of
from brinell.core.model import check_exit
from brinell.core.record import Array


class MaiteFunction:
    """Scores of a batch (n, C, H, W), asked of a model that takes a list of images (C, H, W).

    By the protocol a model takes what the data hold. `byte_scale` is the number of bytes per unit
    of the domain where they hold bytes, which it then gets as well; None for other data.
    """

    def __init__(
        self, model: Callable[[Any], Sequence[Any]], name: str, *, byte_scale: float | None
    ) -> None:
        self.model, self.name, self.byte_scale = model, name, byte_scale
        self._form: Callable[[Array], Any] | None = None

    def __call__(self, x: Tensor | Array) -> Tensor:
        """(n, classes) scores."""
        images = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
        if self.byte_scale is not None:
            images = np.rint(images * self.byte_scale).astype(np.uint8)
        answer = self._probe(images) if self._form is None else self.model(self._form(images))
        return self._scores(answer, len(images))

    def _probe(self, images: Array) -> Any:
        """The answer to images in the first form of a sequence that the model takes."""
        failures = []
        for form in FORMS:
            try:
                answer = self.model(form(images))
            except BaseException as error:
                # Any other error than those that end a run shows that this form is not taken.
                check_exit(self.name, error)
                failures.append(f"{type(error).__name__}: {one_line(error, 90)}")
                continue
            self._form = form
            return answer

        raise RequestError(
            f"{self.name} takes no list of arrays of shape {images.shape[1:]} "
            f"({failures[0]}), nor of tensors "
            f"({failures[1]}): give it the shape of the data"
        )

    def _scores(self, answer: Any, n: int) -> Tensor:
        """(n, classes) scores of the answer to so many images."""
        try:
            targets = list(answer)
        except Exception as error:
            if not is_foreign(error):
                raise
            targets = []

        rows = [scores_of(target, f"the answer of {self.name}") for target in targets]
        if len(rows) != n or len({len(row) for row in rows}) != 1:
            lengths = ", ".join(sorted({str(len(row)) for row in rows})) or "no"
            raise RequestError(
                f"{self.name} answers {n} images with {len(rows)} targets of "
                f"{lengths} scores: by MAITE's protocol it gives one "
                "row of scores for each, all of one length"
            )
        scores = np.stack(rows)
        # Whole numbers would be read as labels.
        return torch.from_numpy(scores.astype(np.result_type(scores, np.float32)))


FORMS: tuple[Callable[[Array], Any], ...] = (
    list,  # of arrays, as MAITE's own data loader makes it
    lambda images: [torch.from_numpy(image.copy()) for image in images],
    lambda images: torch.from_numpy(images.copy()),
)
"""Sequences of images, the most usual first."""
