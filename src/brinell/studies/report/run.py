"""The page of a folder, written again from its records by the study that made it."""

from collections.abc import Iterator
from pathlib import Path

from brinell.analysis.folder_result import Result
from brinell.core.errors import RequestError
from brinell.store.folder import fitting
from brinell.studies.kit import Call
from brinell.studies.register import study_of


class ReportResult(Result):
    """What `brinell report --json` prints."""

    run: str
    """The folder."""
    report: str
    """The page."""

    def __fspath__(self) -> str:
        return self.report


def carry_out(call: Call) -> ReportResult:
    """Write the page of a folder.

    Raises:
        RequestError: no folder of ours, one without a page, or files that do not fit together.
    """
    folder = Path(call.request.run)
    study = study_of(folder)
    if study.page is None:
        noun = study.resolve(study.layout).noun
        raise RequestError(f"{folder} holds a {noun}, which {study.without_page}")
    with fitting(folder):
        page: Path = study.resolve(study.page)(folder)
    return ReportResult(run=str(folder), report=str(page))


def lines(result: ReportResult) -> Iterator[str]:
    """The path of the page."""
    yield result.report
