"""Adversarial training in a LightningModule: the batch is replaced in `training_step`, and nothing
else changes.

pip install lightning
python examples/harden_lightning.py
"""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import brinell
from brinell.datasets.digits import Digits
from brinell.training import AdversarialLoss


class Hardened(lightning.LightningModule):
    """A small network of the digits, trained by TRADES."""

    def __init__(self, eps: float = 0.1) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)
        )
        self.loss = AdversarialLoss("trades?steps=3", eps=eps, schedule=50)

    def forward(self, x: Tensor) -> Tensor:
        """(n, 1, 8, 8) images to (n, 10) logits."""
        return self.network(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """The loss of a batch, which makes its own adversarial inputs."""
        return self.loss(self.network, *batch)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """The share that is right."""
        x, y = batch
        self.log("clean", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main(epochs: int = 10, eps: float = 0.1) -> tuple[float, float]:
    """Train, and return robust accuracy on test samples before and after."""
    train, test = Digits(split="train")(), Digits(split="test")()
    loader = DataLoader(
        TensorDataset(train.load(range(len(train))), torch.from_numpy(train.labels())),
        64,
        shuffle=True,
    )
    x, y = test.load(range(200)), torch.from_numpy(test.labels()[:200])
    model = Hardened(eps)

    def robust() -> float:
        return brinell.attack(model.network, x, y, "apgd?steps=20", eps=eps).robust_accuracy

    before = robust()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, loader)
    return before, robust()


if __name__ == "__main__":
    print("robust accuracy before and after: {:.1%}, {:.1%}".format(*main()))
