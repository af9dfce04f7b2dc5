"""Write the page and the tables of a run, or of what another command made, again, from the records alone."""

from brinell.studies.kit import Output, Study
from brinell.studies.report.request import ReportRequest

STUDY = Study(
    package=__name__,
    verb="report",
    request=ReportRequest,
    run="run:carry_out",
    result="run:ReportResult",
    lines="run:lines",
    positional=("run",),
    output=Output.NOTHING,
    examples=("brinell report RUN",),
)
