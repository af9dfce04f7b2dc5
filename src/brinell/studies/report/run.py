"""The page of a folder, written again from its records by the study that made it."""

from collections.abc import Iterator
from pathlib import Path

from brinell.analysis.folder_result import Result
from brinell.studies.kit import Call
from brinell.studies.register import write_page


class ReportResult(Result):
    """What `brinell report --json` prints."""

    run: str
    """The folder."""
    report: str
    """The page."""

    def __fspath__(self) -> str:
        return self.report

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The path of the page."""
        yield self.report


def carry_out(call: Call) -> ReportResult:
    """Write the page of a folder."""
    folder = Path(call.request.run)
    return ReportResult(run=str(folder), report=str(write_page(folder)))
