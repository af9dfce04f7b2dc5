"""MNIST networks whose published weights load key for key.

They take images in [0, 1] without normalisation.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class LeNet5(nn.Module):
    """Two 3x3 convolutions with pooling and two linear layers, as advertorch calls its LeNet-5."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.linear1 = nn.Linear(3136, 200)
        self.linear2 = nn.Linear(200, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 28, 28) in [0, 1] to (n, 10) logits."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.linear2(F.relu(self.linear1(x.flatten(1))))


def lenet5() -> nn.Module:
    """Clean accuracy 0.9889 as `lenet5_clean`, 0.9864 as `lenet5_advtrained` (weights of
    BorealisAI/advertorch).
    """
    return LeNet5()


def cnn4() -> nn.Module:
    """Two strided convolutions and two linear layers, adversarially trained: 0.9899 (weights of
    locuslab/fast_adversarial).
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1568, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    )
