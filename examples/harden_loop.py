"""Adversarial training in a plain PyTorch loop: three more lines than without.

    python examples/harden_loop.py

Real handwritten digits and a small network; a minute on one core.
"""

import torch
from torch import nn
from torch.nn import functional as F

import brinell
from brinell.datasets.digits import Digits
from brinell.training import AdversarialBatch


def main(epochs: int = 20, eps: float = 0.1) -> tuple[float, float]:
    """Train, and return robust accuracy on test samples before and after."""
    train, test = Digits(split="train")(), Digits(split="test")()
    x, y = train.load(range(len(train))), torch.from_numpy(train.labels())
    x_test, y_test = test.load(range(200)), torch.from_numpy(test.labels()[:200])
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    before = brinell.attack(model, x_test, y_test, "apgd?steps=20", eps=eps).robust_accuracy

    adversarial = AdversarialBatch(model, attack="n-fgsm", eps=eps, schedule=5 * len(x) // 64)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(adversarial(x[rows], y[rows])), y[rows])
            loss.backward()
            optimizer.step()

    return before, brinell.attack(model, x_test, y_test, "apgd?steps=20", eps=eps).robust_accuracy


if __name__ == "__main__":
    print("robust accuracy before and after: {:.1%}, {:.1%}".format(*main()))
