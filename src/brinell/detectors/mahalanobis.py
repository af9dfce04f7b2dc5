"""Mahalanobis distance of the features to the nearest class.

Lee, Lee, Lee & Shin 2018, A simple unified framework for detecting out-of-distribution samples and
adversarial attacks (NeurIPS), section 2.1: class means and one covariance shared by all classes, on
the features before the last linear layer; the score is the smallest distance to a class mean.

Deviations: one layer, no weighted ensemble of layers and no input pre-processing (both are tuned on
adversarial inputs, which a detector never sees here); the covariance is shrunk towards its diagonal
mean by a hundredth so that it can be inverted. A model that shows no features is judged on its
logits.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from brinell.core.contracts import KINDS, Access, Kind, Model, Suspicion
from brinell.core.model import ask
from brinell.core.settings import Checked, Range

CHUNK = 256
"""Inputs whose features are taken at once."""


@dataclass(frozen=True, kw_only=True)
class Mahalanobis(Checked):
    """Distance of the features to the nearest class mean, in units of the spread within classes."""

    shrinkage: Annotated[float, Range("(0, 1)")] = 0.01
    """Share of the mean variance that is added to every variance."""

    access: ClassVar[Access] = Access.SCORES
    domains: ClassVar[frozenset[Kind]] = frozenset(KINDS)

    def fit(self, x: Tensor, labels: Tensor, model: Model) -> Suspicion:
        """Take class means and a shared covariance of the features."""
        features_of = model.info.features or (lambda part: ask(model, part))
        with torch.no_grad():
            features = torch.cat([features_of(part) for part in torch.split(x, CHUNK)]).double()

        # Ascending, so that a search finds the mean of each label.
        present: Tensor = torch.unique(labels)
        means = torch.stack([features[labels == label].mean(0) for label in present])
        residuals = features - means[torch.searchsorted(present, labels)]
        covariance = residuals.T @ residuals / len(residuals)
        ridge = self.shrinkage * covariance.diagonal().mean().clamp_min(1e-12)
        covariance += ridge * torch.eye(len(covariance), dtype=torch.float64, device=x.device)
        # Rows of the inverse Cholesky factor make the distance a plain one.
        whiten = torch.linalg.inv(torch.linalg.cholesky(covariance))
        centres = (means @ whiten.T).float()
        turn = whiten.T.float()

        def suspicion(x: Tensor) -> Tensor:
            points = features_of(x).float() @ turn
            # Exact near 0, where the product of matrices would cancel.
            distances = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")
            return distances.amin(1)

        return suspicion
