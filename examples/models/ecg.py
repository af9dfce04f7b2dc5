"""A small residual network over single heartbeats. `examples/train_ecg.py` trains it; it takes millivolts as they are."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the length."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(inside, outside, 7, stride, 3, bias=False)
        self.norm1 = nn.BatchNorm1d(outside)
        self.conv2 = nn.Conv1d(outside, outside, 7, 1, 3, bias=False)
        self.norm2 = nn.BatchNorm1d(outside)
        self.shortcut = nn.Conv1d(inside, outside, 1, stride, bias=False) if inside != outside or stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(n, inside, T) to (n, outside, T / stride)."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class BeatNet(nn.Module):
    """A stem and four residual blocks, then the mean and the maximum over time: about 91,000 parameters."""

    def __init__(self, leads: int = 1, classes: int = 5, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(leads, width, 15, 2, 7, bias=False), nn.BatchNorm1d(width), nn.ReLU())
        self.blocks = nn.Sequential(
            Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 3 * width, 2), Block(3 * width, 4 * width, 2)
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, leads, T) in millivolts to (n, classes) logits."""
        x = self.blocks(self.stem(x))
        return self.head(torch.cat([x.mean(2), x.amax(2)], 1))


def beatnet(leads: str = "1", classes: str = "5") -> nn.Module:
    """The network for so many leads and classes (text, as the options of `torch:` are)."""
    return BeatNet(int(leads), int(classes))
