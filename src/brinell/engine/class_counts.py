"""The check that labels fit the number of a model's classes; where they are written from 1 on, the model's answers say how."""

from math import comb

import numpy as np
import torch

from brinell.core.contracts import Dataset
from brinell.core.errors import BrinellError, ModelError
from brinell.core.model import MapOutput, Model, ask
from brinell.core.record import Array
from brinell.models._answers import count_classes

TRIALS = 64
"""Number of samples on which two ways of writing labels are compared."""
SIGNIFICANCE = 1e-3
"""Largest probability of the difference by chance, at which one way is proposed alone."""


def check_classes(model: Model, labels: Array, dataset: Dataset | None = None) -> None:
    """Raise ModelError if labels (n,) are out of range of the model's answers.

    Args:
        model: the model.
        labels: (n,) labels; all labels of the data where `dataset` is given.
        dataset: the data, on some of which the model is asked if its classes may be written from 1 on.
    """
    count = count_classes(model)
    check_output(model, dataset)
    used = np.unique(labels)
    if labels.max(initial=0) == count and labels.min(initial=count) >= 1 and 2 * len(used) > count:
        raise ModelError(
            f"model {model.name} tells {count} classes apart, and the labels of the data run from {labels.min()} to {count}",
            remedy=_advise_numbering(model, labels, dataset, count),
        )
    if labels.max(initial=0) >= count or labels.min(initial=0) < 0:
        raise ModelError(
            f"model {model.name} tells {count} classes apart, and the data has labels from {labels.min()} to "
            f"{labels.max()}, {len(used)} different ones: choose the model made for this data"
        )
    if count < 2:
        raise ModelError(
            f"model {model.name} tells one class apart: give one logit per class, or say what the one number is by "
            "answers=logit or answers=probability"
        )


def check_output(model: Model, dataset: Dataset | None) -> None:
    """Raise ModelError if the model answers something else than the data have a truth for."""
    output, truth = model.info.output, None if dataset is None else dataset.info.truth
    if output is None and truth is not None and dataset is not None:
        subject = "a mask for each picture" if truth.task == "segmentation" else "the objects of each picture"
        raise ModelError(
            f"model {model.name} answers one class for each input, and {dataset.name} holds {subject}: choose the model of this "
            "data"
        )
    if output is not None and truth is None:
        form, remedy = (
            ("a map", "masks, such as masks:FOLDER")
            if isinstance(output, MapOutput)
            else ("boxes", "boxes, such as boxes:FOLDER")
        )
        raise ModelError(
            f"model {model.name} answers {form} of {' x '.join(map(str, output.shape))} numbers for each input, and the data "
            f"have "
            f"one class for each: give data with {remedy}, or end the model with a layer that answers classes"
        )


def _advise_numbering(model: Model, labels: Array, dataset: Dataset | None, count: int) -> str:
    """What to do about labels from 1 to `count`: they are counted from 1, or class 0 is written as `count`."""
    counted = "labels counted from 1 want 1 taken from each (y - 1)"
    written = f"where class 0 is written as {count}, as in SVHN, take the remainder (y % {count})"
    scores = None if dataset is None else _compare_numberings(model, labels, dataset, count)
    if scores is None:
        return f"{counted}; {written}"
    n, minus, modulo = scores
    result = f"on {n} samples the model is right on {minus} with y - 1 and on {modulo} with y % {count}"
    most, least = max(minus, modulo), min(minus, modulo)
    games = minus + modulo
    chance = sum(comb(games, wins) for wins in range(most, games + 1)) / 2**games
    if chance > SIGNIFICANCE or most <= n / count + least:
        return f"{result}, so either may be: {counted}; {written}"
    if minus > modulo:
        return f"{result}: they are counted from 1; take 1 from each (y - 1)"
    return f"{result}: class 0 is written as {count}; take the remainder (y % {count})"


def _compare_numberings(model: Model, labels: Array, dataset: Dataset, count: int) -> tuple[int, int, int] | None:
    """Number of samples, and on how many of them the model is right with y - 1 and with y % count; None if it fails."""
    order = np.lexsort((np.arange(len(labels)), labels))
    index = order[np.linspace(0, len(order) - 1, min(len(order), TRIALS)).astype(int)]
    try:
        with model.info.session(torch.device("cpu")), torch.no_grad():
            pred = ask(model, dataset.load(index.tolist())).argmax(1).cpu().numpy()
    except BrinellError:  # a model that cannot be asked here settles nothing
        return None
    y = labels[index]
    return len(index), int((pred == y - 1).sum()), int((pred == y % count).sum())
