"""Model parameter randomisation: a map that stays the same on a model with shuffled weights shows the input and not the model.

Adebayo et al. 2018, Sanity checks for saliency maps, section 3: the cascade randomises layers from the last to the first and
compares the map after each. Hedstroem et al. 2024, A fresh look at sanity checks for saliency maps, correct its biases. sMPRT
averages maps over slightly noisy inputs before the comparison. The verdict uses the stage at which all layers are random, because
early layers pass the input on. eMPRT compares the entropy of the map with that on the random model. Deviations: weights are
shuffled within each tensor and not redrawn. This keeps their distribution for every architecture, and normalisation layers
still fit. A stage may contain several layers. The order of layers is their order in the module.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.core.model import Access, Model


@dataclass(frozen=True, kw_only=True)
class ShuffledModel:
    """A copy of a model whose weights are shuffled in stages."""

    model: Model
    """The copy."""
    layers: Sequence[Sequence[str]]
    """Names of the layers that each stage shuffles in addition to the earlier stages, the last layers first."""
    weights: Sequence[tuple[Tensor, Tensor, int]]
    """Each tensor of the model, the tensor of the copy, and the first stage (from 1) that shuffles it."""
    seed: int

    def shuffle(self, stage: int) -> Model:
        """Shuffle the weights of the first `stage` stages and restore all others. Returns the copy."""
        rng = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            for trained, shuffled, first_stage in self.weights:
                order = torch.randperm(trained.numel(), generator=rng).to(trained.device)
                shuffled.copy_(trained.flatten()[order].reshape(trained.shape) if first_stage <= stage else trained)
        return self.model


def make_shuffled_model(model: Model, seed: int, stages: int = 1) -> ShuffledModel | None:
    """Copy a model for shuffling its weights within each tensor; None if it wraps no torch module.

    Args:
        model: the model, which stays unchanged.
        seed: seed of the shuffling.
        stages: largest number of stages; at most one for each layer with weights.
    """
    if model.info.module is None or model.access < Access.GRADIENTS:
        return None
    duplicate = copy.deepcopy(model)
    module = duplicate.info.module
    if module is None or module is model.info.module:
        return None
    layers = [name for name, layer in model.info.module.named_modules() if any(True for _ in layer.parameters(recurse=False))]
    parts = [part[::-1].tolist() for part in np.array_split(layers, max(1, min(stages, len(layers))))][::-1]
    stage_of = {name: stage for stage, part in enumerate(parts, 1) for name in part}
    parameters = dict(module.named_parameters())
    weights = [
        (parameter, parameters[name], stage_of[name.rpartition(".")[0]])
        for name, parameter in model.info.module.named_parameters()
    ]
    return ShuffledModel(model=duplicate, layers=parts, weights=weights, seed=seed)
