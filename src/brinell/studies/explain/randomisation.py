"""A model that has forgotten what it learnt: a map that stays the same on it shows the input and not the model.

Adebayo et al. 2018, Sanity checks for saliency maps; in the forms of Hedstroem et al. 2024 (A fresh look at sanity checks for
saliency maps), which correct a bias of the first: maps are averaged over copies of the input with a little noise before they are
compared (sMPRT), and the entropy of the map is compared with that on the random model (eMPRT). Deviations: all layers are made
random at once, where the paper goes from the last to the first and compares at each; weights are shuffled within each tensor, so
that their spread stays that of the trained network, whatever its architecture, and normalisation layers still fit.
"""

import copy

import torch

from brinell.core.model import Access, Model


def forgetful(model: Model, seed: int) -> Model | None:
    """A copy of a model whose weights are shuffled, each tensor by itself; None where it has no torch module inside."""
    if model.info.module is None or model.access < Access.GRADIENTS:
        return None
    other = copy.deepcopy(model)
    module = other.info.module
    if module is None or module is model.info.module:
        return None
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            order = torch.randperm(parameter.numel(), generator=rng).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))
    return other
