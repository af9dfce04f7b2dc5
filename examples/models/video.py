"""A small (2+1)-D network for clips (C, T, H, W) in [0, 1], without normalisation; any number of
frames, any size.

Tran et al. 2018, A closer look at spatiotemporal convolutions for action recognition, section 3.5:
each 3-D convolution is one over height and width, then one over time. Deviations: four such pairs
with 16 to 96 channels and no residual connections, since there are only some hundred clips for
training; at the end the maximum over the positions of each frame and the mean over time, in place
of a mean over both, so that one distinctive hand shape is enough.
"""

from torch import Tensor, nn

WIDTHS = (16, 32, 64, 96)
"""Channels of the stages."""


def _pair(before: int, after: int, sides: int, slower: int) -> nn.Sequential:
    """A convolution over height and width that halves both, and one over time that keeps every
    `slower`-th frame.
    """
    return nn.Sequential(
        nn.Conv3d(
            before, after, (1, sides, sides), (1, 2, 2), (0, sides // 2, sides // 2), bias=False
        ),
        nn.BatchNorm3d(after),
        nn.ReLU(),
        nn.Conv3d(after, after, (3, 1, 1), (slower, 1, 1), (1, 0, 0), bias=False),
        nn.BatchNorm3d(after),
        nn.ReLU(),
    )


class R2Plus1D(nn.Module):
    """Four pairs of convolutions and a linear layer, 0.12 million parameters."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        later = zip(WIDTHS, WIDTHS[1:], (2, 1, 1), strict=False)
        self.stages = nn.Sequential(
            _pair(3, WIDTHS[0], 5, 2),
            *(_pair(before, after, 3, slow) for before, after, slow in later),
        )
        self.linear = nn.Linear(WIDTHS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, T, H, W) in [0, 1] to (n, classes) logits."""
        return self.linear(self.stages(4 * x - 2).amax((3, 4)).mean(2))


def r2plus1d(classes: str = "8") -> nn.Module:
    """For so many classes; `examples/train_video.py` makes weights for it."""
    return R2Plus1D(int(classes))
