"""Adversarial training with the Trainer of Hugging Face transformers: `compute_loss` is all that
changes.

pip install transformers accelerate
python examples/harden_trainer.py
"""

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import ImageClassifierOutput

import brinell
from brinell.datasets.digits import Digits
from brinell.training import AdversarialLoss


class Network(nn.Module):
    """A small network of the digits that answers as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)
        )

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> ImageClassifierOutput:
        """(n, 1, 8, 8) images to (n, 10) logits, and the loss where labels are given."""
        logits = self.layers(pixel_values)
        return ImageClassifierOutput(
            loss=None if labels is None else F.cross_entropy(logits, labels), logits=logits
        )


class HardenedTrainer(Trainer):
    """A Trainer that learns from adversarial inputs."""

    adversarial = AdversarialLoss("pgd?steps=3", eps=0.1, schedule=50)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **options: Any
    ) -> Any:
        """The adversarial loss; the answers to clean inputs where they are asked for."""
        x, y = inputs["pixel_values"], inputs["labels"]
        loss = self.adversarial(model, x, y) if model.training else model(**inputs).loss
        return (loss, model(**inputs)) if return_outputs else loss


def main(epochs: int = 10, eps: float = 0.1) -> tuple[float, float]:
    """Train, and return robust accuracy on test samples before and after."""
    train, test = Digits(split="train")(), Digits(split="test")()
    x, y = train.load(range(len(train))), torch.from_numpy(train.labels())
    samples = [{"pixel_values": image, "labels": label} for image, label in zip(x, y, strict=True)]
    x_test, y_test = test.load(range(200)), torch.from_numpy(test.labels()[:200])
    model = Network()

    def robust() -> float:
        return brinell.attack(
            model.layers, x_test, y_test, "apgd?steps=20", eps=eps
        ).robust_accuracy

    before = robust()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=64,
            learning_rate=3e-3,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        HardenedTrainer(model=model, args=arguments, train_dataset=samples).train()
    return before, robust()


if __name__ == "__main__":
    print("robust accuracy before and after: {:.1%}, {:.1%}".format(*main()))
