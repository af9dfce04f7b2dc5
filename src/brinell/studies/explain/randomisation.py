"""A model that has forgotten what it learnt: a map that stays the same on it shows the input and not the model.

Adebayo et al. 2018, Sanity checks for saliency maps, section 3: layers are made random from the last to the first, and the map is
compared after each (the cascade); and the forms of Hedstroem et al. 2024 (A fresh look at sanity checks for saliency maps), which
correct biases of the first: maps are averaged over copies of the input with a little noise before they are compared (sMPRT), the
verdict is taken where all layers are random, since earlier ones pass the input on, and the entropy of the map is compared with
that on the random model (eMPRT). Deviations: weights are shuffled within each tensor and not drawn anew, so that their spread
stays that of the trained network, whatever its architecture, and normalisation layers still fit; layers may be taken several at
a time; what is last is so in the order in which the module holds its layers.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.core.model import Access, Model


@dataclass(frozen=True, kw_only=True)
class Forgetful:
    """A copy of a model that forgets in stages."""

    model: Model
    """The copy."""
    layers: Sequence[Sequence[str]]
    """Names of the layers whose weights each stage shuffles besides those before it, the last ones first."""
    weights: Sequence[tuple[Tensor, Tensor, int]]
    """Each tensor of the model, that of the copy, and the stage, from 1, at which it is shuffled."""
    seed: int

    def at(self, stage: int) -> Model:
        """The copy with the weights of the first `stage` stages shuffled; with those of the last stage all are."""
        rng = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            for learnt, own, from_ in self.weights:
                order = torch.randperm(learnt.numel(), generator=rng).to(learnt.device)
                own.copy_(learnt.flatten()[order].reshape(learnt.shape) if from_ <= stage else learnt)
        return self.model


def forgetful(model: Model, seed: int, stages: int = 1) -> Forgetful | None:
    """What shuffles the weights of a copy of a model, each tensor by itself; None where it has no torch module inside.

    Args:
        model: the model, which stays as it is.
        seed: of the shuffling.
        stages: the number of stages; there are never more than layers with weights.
    """
    if model.info.module is None or model.access < Access.GRADIENTS:
        return None
    other = copy.deepcopy(model)
    module = other.info.module
    if module is None or module is model.info.module:
        return None
    layers = [name for name, layer in model.info.module.named_modules() if any(True for _ in layer.parameters(recurse=False))]
    parts = [part[::-1].tolist() for part in np.array_split(layers, max(1, min(stages, len(layers))))][::-1]
    stage_of = {name: stage for stage, part in enumerate(parts, 1) for name in part}
    own = dict(module.named_parameters())
    weights = [(one, own[name], stage_of[name.rpartition(".")[0]]) for name, one in model.info.module.named_parameters()]
    return Forgetful(model=other, layers=parts, weights=weights, seed=seed)
