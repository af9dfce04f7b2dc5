"""Answers that are no logits, as logits: of probabilities the logarithm, of a class alone a certainty.

The logarithm of a probability is a logit: the softmax of it is the probability again, so losses, confidences and margins mean
what they mean for networks. Only a common summand is lost, on which no loss depends.
"""

import torch
from torch import Tensor

FLOOR = 2.0**-126
"""The smallest probability that differs from 0: the smallest normal float32, whose logarithm is -87.3."""
SUM = 1e-3
"""By how much the sum of probabilities may be off: some models answer in half precision."""


def of_probabilities(probabilities: Tensor) -> Tensor:
    """(n, classes) probabilities to (n, classes) float32 logits; none below `FLOOR`."""
    return probabilities.clamp_min(FLOOR).log().float()


def of_labels(labels: Tensor, classes: int) -> Tensor:
    """(n,) classes that a model answers with to (n, classes) float32 logits by which it is certain."""
    return of_probabilities(torch.nn.functional.one_hot(labels.long(), classes).float())


def are_probabilities(answers: Tensor) -> bool:
    """Whether each row of (n, classes) answers is a distribution over at least two classes."""
    off = (answers.double().sum(1) - 1).abs()
    return answers.shape[1] > 1 and bool((answers >= 0).all()) and bool((off < SUM).all())
