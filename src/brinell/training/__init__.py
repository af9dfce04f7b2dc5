"""Adversarial training: recipes, the loop, its checks and checkpoints, and what a training loop of one's own takes.

Nothing here audits.
"""

from brinell.training.adversarial import AWP, AdversarialBatch, AdversarialLoss

__all__ = ["AWP", "AdversarialBatch", "AdversarialLoss"]
