"""Measure how much of a robust accuracy comes from changes that a detector sees, and how much adaptive attacks leave of it."""

from brinell.studies.detection.request import DetectRequest
from brinell.studies.kit import Study

STUDY = Study(
    package=__name__,
    verb="detect",
    request=DetectRequest,
    run="run:carry_out",
    result="analysis:DetectionResult",
    lines="terminal:lines",
    table="records:TABLE",
    summarise="analysis:summarise",
    page="page:write",
    positional=("run",),
    memory=("train",),
    foreign=True,
    examples=("brinell detect RUN --train TRAIN.npz",),
)
