"""Train the network of examples/models/ecg.py on real heartbeats, patients kept apart, and print
its accuracy.

    python examples/train_ecg.py TRAIN TEST --out ecg.safetensors [--validate]

TRAIN and TEST are named as `brinell audit --data` names them, for instance

    "wfdb:mitdb?split=ds1" "wfdb:mitdb?split=ds2"
    "npz:mitbih_beats_train_ds1.npz?kind=signal&divide=1000&low=-5&high=5&groups=record" (and the
    same of test_ds2)

With `&rhythm=true` (wfdb) or `&rhythm=rr_prev_s+rr_next_s` (npz) after both, the network is
`rhythmnet`, which sees the intervals between beats too; otherwise it is `beatnet`.

With --validate it trains on two thirds of the training patients, in three ways, and prints the
accuracy on the third that was left out. The settings were chosen in this way, and TEST was used
once. --without 201 leaves a patient out of the training, here the one of record 202, which is in
the test half of MIT-BIH (npz only; `wfdb:` leaves it out by itself).

The recipe: three networks, each trained by AdamW with one cycle of the learning rate on the cross-
entropy with smoothed labels, for few epochs, on beats that are distorted anew each time: amplitude,
tempo, position of the R peak, slow drift, offset and noise, which differ far more between patients
and electrodes than within a training set. The more beats of a class a patient has, the less each of
them weighs.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from brinell.core.contracts import Dataset
from brinell.core.user_files import import_file
from brinell.engine.sources import open_data

BATCH, EPOCHS, FOLDS = 128, 4, 3
RATE, DECAY, SMOOTHING = 4e-3, 0.2, 0.05
WEIGHTS = 0.5
"""A beat weighs this power of one over the number of its patient's beats of its class: 0 for all
alike, 1 for balance."""
TEMPO, SHIFT, AMPLITUDE, DRIFT, OFFSET, NOISE = 0.15, 3.0, 0.3, 0.2, 0.05, 0.05
"""Stretch of time, shift in values, log amplitude, and drift, offset and noise in mV: largest
value or standard deviation."""


class Score(NamedTuple):
    """How well a network classifies some beats."""

    accuracy: float
    balanced: float
    """Mean recall of the classes that occur."""
    recall: list[float]
    f1: list[float]
    confusion: np.ndarray
    """(classes, classes): rows are true."""


def augment(x: Tensor, rng: torch.Generator) -> Tensor:
    """Change (n, leads, T) in mV as other patients and electrodes might have recorded it."""
    n, leads, length = x.shape

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand(shape, generator=rng) - 1

    middle = (length - 1) / 3
    place = (
        (torch.arange(length) - middle) * (1 + TEMPO * uniform(n, 1))
        + middle
        + SHIFT * uniform(n, 1)
    )
    grid = torch.stack([2 * place / (length - 1) - 1, torch.zeros_like(place)], -1)[:, None]
    x = F.grid_sample(x[:, :, None], grid, padding_mode="border", align_corners=True)[:, :, 0]
    x = x * torch.exp(AMPLITUDE * torch.randn(n, 1, 1, generator=rng))
    cycles = (0.1 + 0.25 * (1 + uniform(n, leads, 1))) * torch.arange(length) / 125 + uniform(
        n, leads, 1
    )
    x = x + DRIFT * uniform(n, leads, 1) * torch.sin(2 * torch.pi * cycles)
    x = x + OFFSET * torch.randn(n, leads, 1, generator=rng)
    return x + NOISE * uniform(n, leads, 1) * torch.randn(x.shape, generator=rng)


def train(
    x: Tensor,
    y: Tensor,
    classes: int,
    *,
    rhythm: bool = False,
    patients: np.ndarray | None = None,
    epochs: int,
    seed: int = 0,
) -> nn.Module:
    """Networks trained on beats x (n, channels, T) with labels y (n,) of `patients` (n,); None for
    a single one.

    Channels are leads in mV, and with a rhythm three more.
    """
    models = import_file(Path(__file__).parent / "models" / "ecg.py")
    leads = x.shape[1] - 3 * rhythm
    net = (models.rhythmnet if rhythm else models.beatnet)(
        str(leads), str(classes), str(x.shape[2])
    )
    patients = np.zeros(len(y)) if patients is None else patients
    _, cell, counts = np.unique(
        np.array([patients.astype(str), y.numpy().astype(str)]),
        axis=1,
        return_inverse=True,
        return_counts=True,
    )
    weights = torch.from_numpy(counts[cell.ravel()] ** -WEIGHTS).float()
    for number, member in enumerate(net.members):
        fit(
            member,
            x,
            y,
            weights / weights.mean(),
            epochs,
            torch.Generator().manual_seed(seed + number),
        )
    return net.eval()


def fit(
    net: nn.Module, x: Tensor, y: Tensor, weights: Tensor, epochs: int, rng: torch.Generator
) -> None:
    """Train one network from random weights."""
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim > 1:
                nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=rng)
        net.head.bias.zero_()
    optimiser = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    steps = max(1, len(y) // BATCH)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=epochs * steps)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=rng)[: steps * BATCH].chunk(steps):
            augmented = torch.cat([augment(x[rows, : net.leads], rng), x[rows, net.leads :]], 1)
            losses = F.cross_entropy(
                net(augmented), y[rows], reduction="none", label_smoothing=SMOOTHING
            )
            optimiser.zero_grad()
            (losses * weights[rows]).mean().backward()
            optimiser.step()
            cycle.step()


def score(net: nn.Module, x: Tensor, y: Tensor, classes: int) -> Score:
    """Accuracy, balanced accuracy and F1."""
    with torch.no_grad():
        predicted = torch.cat([net(part).argmax(1) for part in x.split(512)])
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (y.numpy(), predicted.numpy()), 1)
    return measure(confusion)


def measure(confusion: np.ndarray) -> Score:
    """The figures of a confusion matrix.

    A class that never occurs has recall and F1 0 and is left out of the balance.
    """
    right, true, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    recall = right / np.maximum(true, 1)
    f1 = 2 * right / np.maximum(true + predicted, 1)
    return Score(
        float(right.sum() / true.sum()),
        float(recall[true > 0].mean()),
        recall.tolist(),
        f1.tolist(),
        confusion,
    )


def tell(title: str, score: Score, names: tuple[str, ...]) -> None:
    """Print one line."""
    classes = ", ".join(
        f"{name} {recall:.2f} / {f1:.2f}"
        for name, recall, f1 in zip(names, score.recall, score.f1, strict=True)
    )
    print(
        f"{title}: accuracy {score.accuracy:.3f}, balanced {score.balanced:.3f}; "
        f"recall / F1: {classes}",
        flush=True,
    )


def patients(data: Dataset) -> np.ndarray:
    """The patient of each beat.

    Raises:
        SystemExit: the data do not name the patients.
    """
    groups = getattr(data, "groups", None)
    if groups is None:
        raise SystemExit(
            f"{data.name} does not say whose each beat is: name the patients by "
            "groups=, or read wfdb: records"
        )
    return np.asarray(groups).astype(str)


def has_rhythm(data: Dataset) -> bool:
    """True if the beats come with the intervals around them."""
    return data.domain.movable is not None


def validate(
    x: Tensor, y: Tensor, patients: np.ndarray, classes: int, epochs: int, rhythm: bool
) -> Score:
    """Score the recipe on patients that it was not trained on, over three ways of leaving a third
    of them out.
    """
    names = sorted(set(patients.tolist()))
    total = np.zeros((classes, classes), dtype=np.int64)
    for fold in range(FOLDS):
        held_out = torch.from_numpy(np.isin(patients, names[fold::FOLDS]))
        net = train(
            x[~held_out],
            y[~held_out],
            classes,
            rhythm=rhythm,
            patients=patients[~held_out.numpy()],
            epochs=epochs,
        )
        total += score(net, x[held_out], y[held_out], classes).confusion
    return measure(total)


def main() -> None:
    """Train, save, and print the accuracy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train")
    parser.add_argument("test", nargs="?")
    parser.add_argument("--out", default="ecg.safetensors")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--without", default="", help="patients to leave out of the training, joined by +"
    )
    parser.add_argument("--validate", action="store_true")
    options = parser.parse_args()
    data = open_data(options.train)
    x, y = data.load(range(len(data))), torch.from_numpy(data.labels())
    groups = None
    if options.without or options.validate or getattr(data, "groups", None) is not None:
        groups = patients(data)
        mask = ~np.isin(groups, options.without.split("+"))
        x, y, groups = x[mask], y[mask], groups[mask]
    if options.validate:
        tell(
            "patients left out",
            validate(x, y, groups, len(data.classes), options.epochs, has_rhythm(data)),
            data.classes,
        )
        return
    began = time.process_time()
    settings = {
        "rhythm": has_rhythm(data),
        "patients": groups,
        "epochs": options.epochs,
        "seed": options.seed,
    }
    net = train(x, y, len(data.classes), **settings)
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, options.out)
    print(
        f"{options.out}: {len(y)} beats, {options.epochs} epochs, "
        f"{time.process_time() - began:.0f} s of processor time"
    )
    if options.test:
        test = open_data(options.test)
        tell(
            test.name,
            score(
                net, test.load(range(len(test))), torch.from_numpy(test.labels()), len(test.classes)
            ),
            test.classes,
        )


if __name__ == "__main__":
    main()
