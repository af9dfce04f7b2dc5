"""`brinell report`: the page of a run, written again from its records."""

from brinell.cli.options import Json, RunFolder, answer, show


def report(run: RunFolder, json: Json = False) -> int:
    """Write report.html and tables/ of a run again, from its records alone."""
    from brinell.cli.schemas import ReportAnswer
    from brinell.report import html
    from brinell.studies.unrestricted import page as unrestricted
    from brinell.studies.unrestricted.records import LAYOUT

    page = unrestricted.write(run) if LAYOUT.has(run) else html.write(run)
    return answer(json, ReportAnswer(run=str(run), report=str(page)), lambda: show(str(page)))
