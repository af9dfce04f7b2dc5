"""Adversarial training: recipes, the loop, its checks and checkpoints, and building blocks for the
user's training loop.

This package audits nothing.
"""

from brinell.training.adversarial import AWP, AdversarialBatch, AdversarialLoss

__all__ = ["AWP", "AdversarialBatch", "AdversarialLoss"]
