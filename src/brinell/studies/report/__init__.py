"""Write the page and the tables of a run, or of what another command made, again, from the records
alone.
"""

from brinell.engine.request import BaseRequest, Folder
from brinell.studies.kit import Output, Study


class ReportRequest(BaseRequest):
    """What `brinell report` is asked for."""

    run: Folder
    """The folder of an audit, or of any study that has a page."""


STUDY = Study(
    verb="report",
    request=ReportRequest,
    result="run:ReportResult",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=("brinell report RUN",),
)
