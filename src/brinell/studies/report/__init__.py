"""Write the page and the tables of a run, or of what another command made, again, from the records
alone; of several folders of one model, one page of the model.

The page of a model says class by class what every study found, what is missing, and what to type
for it. Models are recognised by their digests, whatever their names.
"""

from pydantic import Field

from brinell.engine.request import BaseRequest, Folder
from brinell.studies.kit import Output, Study


class ReportRequest(BaseRequest):
    """What `brinell report` is asked for."""

    run: tuple[Folder, ...] = Field(min_length=1)
    """The folder of an audit, or of any study that has a page; or several of one model."""


STUDY = Study(
    verb="report",
    request=ReportRequest,
    result="run:ReportResult",
    positional=("run",),
    output=Output.ANSWER_ONLY,
    examples=("brinell report RUN", "brinell report AUDIT CORRUPTIONS CERTIFICATE"),
)
