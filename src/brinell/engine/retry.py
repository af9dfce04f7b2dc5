"""Work on many samples, of which the model fails on some."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

from brinell.core.errors import BatchError, ModelError, SampleError
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.group_attack import predict

Answer = TypeVar("Answer")


def run_in_halves(
    work: Callable[[Array], Answer],
    index: Array,
    fail: Callable[[int, ModelError], Answer],
    model: Model,
    device: torch.device,
) -> list[Answer]:
    """Call `work` on the positions `index` (n,); split into halves on failure, down to single
    samples, which `fail` handles.

    A sample's results do not depend on the other samples, so failed samples do not affect them. If
    the model fails on a single sample, it is asked about another input; if it fails on that too,
    the error is raised.
    """
    try:
        return [work(index)]
    except (SampleError, BatchError) as error:
        if len(index) == 1:
            if isinstance(error, BatchError):
                x = model.domain.clamp(torch.zeros(1, *model.domain.shape, device=device))
                try:
                    is_answered = bool(torch.isfinite(predict(model, x, 1)).all())
                except ModelError:
                    is_answered = False
                if not is_answered:
                    raise
            return [fail(int(index[0]), error)]
        return [
            part
            for half in np.split(index, [len(index) // 2])
            for part in run_in_halves(work, half, fail, model, device)
        ]
