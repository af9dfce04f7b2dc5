"""A small residual network over single heartbeats.

`examples/train_ecg.py` trains it; it takes millivolts as they are.

`beatnet` sees the trace of a beat alone, `rhythmnet` also the three channels that `rhythm=` adds to
it: the seconds since the beat before, those until the one after, and the median between beats of
the same recording.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the length."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(in_channels, out_channels, 7, stride, 3, bias=False)
        self.norm1 = nn.BatchNorm1d(out_channels)
        self.conv2 = nn.Conv1d(out_channels, out_channels, 7, 1, 3, bias=False)
        self.norm2 = nn.BatchNorm1d(out_channels)
        self.shortcut = (
            nn.Conv1d(in_channels, out_channels, 1, stride, bias=False)
            if in_channels != out_channels or stride > 1
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, in_channels, T) to (n, out_channels, T / stride)."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class BeatNet(nn.Module):
    """A first convolution, four residual blocks, and a linear layer over all positions: beats are
    aligned at R.

    The rhythm enters with the trace, as channels of one constant value each, so every layer can use
    it.
    """

    def __init__(
        self,
        leads: int = 1,
        classes: int = 5,
        length: int = 187,
        width: int = 14,
        *,
        rhythm: bool = False,
    ) -> None:
        super().__init__()
        self.leads, channels = leads, leads + 3 * rhythm
        self.stem = nn.Sequential(
            nn.Conv1d(channels, width, 15, 2, 7, bias=False), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.blocks = nn.Sequential(
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 3 * width, 2),
            Block(3 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width * -(-length // 16), classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, leads, T) in millivolts, and with a rhythm (n, leads + 3, T), those channels in
        seconds, to (n, classes) logits.
        """
        x, rhythm = x[:, : self.leads], x[:, self.leads :]
        # How high a beat is, and where its baseline lies, is a matter of skin and electrodes.
        x = x - x.mean(2, keepdim=True)
        x = x * torch.rsqrt(x.square().mean(2, keepdim=True) + 0.01)
        return self.head(
            self.blocks(
                self.stem(torch.cat([x, relative(rhythm)], 1) if rhythm.shape[1] else x)
            ).flatten(1)
        )


def relative(rhythm: Tensor) -> Tensor:
    """(n, 3, T): the interval before and the one after against the median, and the one after
    against the one before.

    How fast a heart beats says whose it is, and little of the beat: so no interval counts as such.
    """
    before, after, usual = rhythm.clamp(0.2, 3.0).log().unbind(1)
    return 3 * torch.stack([before - usual, after - usual, after - before], 1).clamp(-1.5, 1.5)


class Committee(nn.Module):
    """Networks that were trained apart; their mean answer depends less on chance than any of
    theirs.
    """

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the members' logits."""
        return torch.stack([member(x) for member in self.members]).mean(0)


def beatnet(leads: str = "1", classes: str = "5", length: str = "187") -> nn.Module:
    """Three networks of 78,000 parameters for so many leads, classes and values (text, as the
    options of `torch:` are).
    """
    return Committee([BeatNet(int(leads), int(classes), int(length)) for _ in range(3)])


def rhythmnet(leads: str = "1", classes: str = "5", length: str = "187") -> nn.Module:
    """The same network with the rhythm as further channels."""
    return Committee(
        [BeatNet(int(leads), int(classes), int(length), rhythm=True) for _ in range(3)]
    )
