"""List attacks, cascades, distances, distortions, defences, detectors, explainers, data sets and models, with settings."""

from brinell.studies.catalogue.request import PluginsRequest
from brinell.studies.kit import Output, Study

STUDY = Study(
    package=__name__,
    verb="plugins",
    request=PluginsRequest,
    run="run:carry_out",
    result="run:PluginsResult",
    lines="run:lines",
    positional=("kind",),
    output=Output.NOTHING,
    call=False,  # from Python the module `brinell.plugins` lists them
    examples=("brinell plugins attack", "brinell plugins cascade"),
)
