"""Show how far a run is that goes on elsewhere: what is done, who works on it, and the time left. It changes nothing."""

from brinell.engine.request import BaseRequest, Folder
from brinell.studies.kit import Output, Study


class ProgressRequest(BaseRequest):
    """What `brinell progress` is asked for."""

    run: Folder
    """A run folder, or an address such as s3://BUCKET/RUN."""


STUDY = Study(
    package=__name__,
    verb="progress",
    request=ProgressRequest,
    run="run:carry_out",
    result="result:RunProgress",
    lines="terminal:lines",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=("brinell progress RUN", "brinell progress s3://BUCKET/RUN --json"),
)
