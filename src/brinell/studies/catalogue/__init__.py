"""List attacks, cascades, distances, distortions, defences, detectors, explainers, data sets and
models, with settings.
"""

from brinell.engine.request import BaseRequest
from brinell.studies.kit import Output, Study


class PluginsRequest(BaseRequest):
    """What `brinell plugins` is asked for."""

    kind: str | None = None
    """The kind: attack, cascade, distance, distortion, defence, detector, explainer, dataset or
    model. Default: all."""


STUDY = Study(
    verb="plugins",
    request=PluginsRequest,
    result="run:PluginsResult",
    positional=("kind",),
    output=Output.ANSWER_ONLY,
    examples=("brinell plugins attack", "brinell plugins cascade"),
)
