"""The check that labels fit the number of a model's classes, and its answers the truth of the data."""

import numpy as np

from brinell.core.contracts import Dataset
from brinell.core.errors import ModelError
from brinell.core.model import MapOutput, Model
from brinell.core.record import Array
from brinell.models._answers import count_classes


def check_classes(model: Model, labels: Array, dataset: Dataset | None = None) -> None:
    """Raise ModelError if labels (n,), with a `dataset` all that it has, are out of range of the
    model's answers.
    """
    count = count_classes(model)
    check_output(model, dataset)
    used = np.unique(labels)
    # Labels from 1 on: the last one is out of range by one, 0 never occurs, and most classes do, so
    # that this is no chance.
    is_from_1 = labels.max(initial=0) == count and labels.min(initial=count) >= 1
    if is_from_1 and 2 * len(used) > count:
        raise ModelError(
            f"model {model.name} tells {count} classes apart, and the labels of "
            f"the data run from {labels.min()} to {count}",
            remedy="take 1 from labels that are counted from 1 (y - 1), or the "
            f"remainder where class 0 is written as {count} "
            f"(y % {count})",
        )

    if labels.max(initial=0) >= count or labels.min(initial=0) < 0:
        raise ModelError(
            f"model {model.name} tells {count} classes apart, and the data has "
            f"labels from {labels.min()} to "
            f"{labels.max()}, {len(used)} different ones: choose the model made for this data"
        )
    if count < 2:
        raise ModelError(
            f"model {model.name} tells one class apart: give one logit per class "
            "(of one map torch.cat([-logit, logit], 1)), or "
            "say what the one number is by answers=logit or answers=probability"
        )


def check_output(model: Model, dataset: Dataset | None) -> None:
    """Raise ModelError if the model answers something else than the data have a truth for."""
    output = model.info.output
    truth = None if dataset is None else dataset.info.truth
    subjects = {
        "segmentation": "a mask for each picture",
        "detection": "the objects of each picture",
    }
    if output is None and truth is not None and dataset is not None and truth.task in subjects:
        raise ModelError(
            f"model {model.name} answers one class for each input, and "
            f"{dataset.name} holds {subjects[truth.task]}: choose the model of this "
            "data"
        )

    if output is not None and truth is None:
        kind = "masks" if isinstance(output, MapOutput) else "boxes"
        raise ModelError(
            f"model {model.name} answers {kind} of "
            f"{' x '.join(map(str, output.shape))} numbers for each input, and "
            "the data "
            f"have one class: give data with {kind}, such as {kind}:FOLDER, or "
            "end the model with a layer that answers classes"
        )
