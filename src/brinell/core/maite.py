"""Data sets and models of image classification by the protocols of MAITE, recognised by their form:
MAITE is never imported.

Both have an attribute `metadata`, a mapping with a text `id` and perhaps `index2label`. An item of
a data set is an image, a target and its metadata; a model takes a sequence of images and answers
with a sequence of targets. An image is (C, H, W), a target (classes,) scores. MAITE's protocols of
detection and tracking differ in their targets alone, and are refused.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from brinell.core.class_names import names_of_mapping
from brinell.core.errors import RequestError, short
from brinell.core.record import Array
from brinell.core.values import as_array

OTHER_TASKS = {"boxes": "object detection", "frame_tracks": "tracking"}
"""The attribute that shows a target of another task, and the task."""


class Metadata(NamedTuple):
    """The fields by which a data set or a model describes itself."""

    name: str
    """Its `id`."""
    classes: tuple[str, ...]
    """Names of its classes in the order of the scores; empty without any."""


def metadata_of(component: Any) -> Metadata | None:
    """The metadata of a data set or a model of MAITE; None for any other object."""
    metadata = getattr(component, "metadata", None)
    # A class has the attributes too, and is no component yet.
    if (
        isinstance(component, type)
        or not isinstance(metadata, Mapping)
        or not isinstance(metadata.get("id"), str)
    ):
        return None
    names = metadata.get("index2label")
    return Metadata(
        metadata["id"], names_of_mapping(f"index2label of {metadata['id']}", names) if names else ()
    )


def scores_of(target: Any, subject: str) -> Array:
    """(classes,) scores of a target."""
    # Other tasks of MAITE have targets with the same attribute for scores.
    for attribute, task in OTHER_TASKS.items():
        if getattr(target, attribute, None) is not None:
            raise RequestError(
                f"{subject} is one of {task} (it has {attribute}), and Brinell "
                "audits classifiers alone so far: give a model and "
                "data of maite.protocols.image_classification"
            )

    scores = as_array(target, "scores")
    if (
        scores.ndim != 1
        or not scores.size
        or scores.dtype.kind not in "biuf"
        or not np.isfinite(scores).all()
    ):
        raise RequestError(
            f"{subject} is {short(target)}: by MAITE's protocol it is one row of "
            "scores, a finite number per class"
        )
    return scores
