"""A model that cannot take the data gets the advice with which it can, which is tried before it is given."""

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.core.errors import RequestError

RNG = torch.Generator().manual_seed(0)
SIGNALS = torch.rand(6, 187, generator=RNG)


def mixed(x):
    """A function whose weights are float64."""
    return x.flatten(1) @ torch.ones(64, 3, dtype=torch.float64)


class Strict(nn.Module):
    """A network that takes one type alone."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.inner = dtype, nn.Linear(64, 3)

    def forward(self, x):
        if x.dtype != self.dtype:
            raise TypeError(f"expected {self.dtype}")
        return self.inner(x.float().flatten(1))


CONVOLUTION = nn.Sequential(nn.Conv1d(1, 2, 5), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2, 3))
IMAGES = torch.rand(6, 1, 8, 8, generator=RNG)


def test_the_remedy_was_tried(tmp_path_factory, subtests):
    rows = [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3)), IMAGES.repeat(1, 3, 1, 1), r"read them in grey"),
        (
            nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 3)),
            IMAGES,
            r"takes images of 3 channels, and these have 1",
        ),
        (Strict(torch.float64), IMAGES, r"it takes inputs in float64: let its forward pass begin with x = x.double\(\)"),
        (Strict(torch.float16), IMAGES, r"it takes inputs in float16: .* x.half\(\)"),
        (mixed, IMAGES, r"it takes inputs in float64"),
        (CONVOLUTION, SIGNALS, r"it takes inputs of shape \(1, 187\): give the data kind=signal"),
        (nn.Linear(64, 3), IMAGES, r"begin with x = x.flatten\(1\)"),
        (nn.Linear(65, 3), IMAGES, "give it its own shape"),
    ]
    for model, x, words in rows:
        with subtests.test(model=model):
            tmp_path = tmp_path_factory.mktemp("case")
            with pytest.raises(RequestError, match=words):
                brinell.audit(model, (x, np.arange(6) % 3), eps=0.1, attack="fgsm", out=tmp_path / "run")
