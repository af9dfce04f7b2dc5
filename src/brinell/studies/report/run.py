"""The page of a folder, written again from its records by the study that made it; or of a model."""

from collections.abc import Iterator
from pathlib import Path

from brinell.analysis.folder_result import Result
from brinell.studies.dossier import write_dossier
from brinell.studies.kit import Call
from brinell.studies.register import write_page


class ReportResult(Result):
    """What `brinell report --json` prints."""

    run: str
    """The folder; of several the first."""
    report: str
    """The page."""

    def __fspath__(self) -> str:
        return self.report

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The path of the page."""
        yield self.report


def carry_out(call: Call) -> ReportResult:
    """Write the page of a folder, or of the model of several."""
    folders = list(dict.fromkeys(Path(folder) for folder in call.request.run))
    page = write_page(folders[0]) if len(folders) == 1 else write_dossier(folders)
    return ReportResult(run=str(folders[0]), report=str(page))
