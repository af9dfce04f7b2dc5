"""Measure how much of an audit's robust accuracy comes from changes that a detector sees, and what
adaptive attacks leave.

`brinell audit --detector` makes it beside its run, in the folder `detectors` of that.
"""

from typing import Annotated

from pydantic import Field

from brinell.core.settings import Names
from brinell.engine.request import (
    BaseRequest,
    DataSpec,
    Device,
    Folder,
    ModelSpec,
    SampleCount,
    Seed,
)
from brinell.studies.kit import Study

FOLDER = "detectors"
"""Name of the folder within that of the audit."""


class DetectorsRequest(BaseRequest):
    """What the detectors are measured on, and how."""

    run: Folder
    """The finished run of an audit."""
    data: DataSpec
    """The data of the run."""
    model: tuple[ModelSpec, ...]
    """The models of the run."""
    train: DataSpec
    """Clean data that the detectors are fitted to. It must not contain samples of the run."""
    detector: tuple[Annotated[str, Names("detector")], ...]
    """A detector: background, feature-squeezing, mahalanobis, or file.py:Class."""
    fpr: float = Field(default=0.05, gt=0, lt=0.5)
    """The false-alarm rate on clean inputs, which determines the threshold."""
    samples: SampleCount = None
    """The number of samples of the run."""
    seed: Seed = 0
    device: Device = "auto"


STUDY = Study(
    verb="audit detectors",
    request=DetectorsRequest,
    rows="result:Scores",
    checks_fit=False,  # the audit checked it
    result="result:DetectorsResult",
    memory=("model", "data", "train"),
    claimed_keys=((("request", "run"), "the place of the run"),),
    ignored=("device", "run"),
    examples=("brinell audit --detector mahalanobis --detector-data TRAIN.npz",),
)
