"""`brinell report`: the page of a run, written again from its records."""

from brinell.cli.options import Json, RunFolder, show, show_json


def report(run: RunFolder, json: Json = False) -> int:
    """Write report.html and tables/ of a run again, from its records alone."""
    from brinell.cli.schemas import ReportAnswer
    from brinell.report import html
    from brinell.studies.unrestricted import page as unrestricted
    from brinell.studies.unrestricted.records import LAYOUT

    page = unrestricted.write(run) if LAYOUT.has(run) else html.write(run)
    if json:
        show_json(ReportAnswer(run=str(run), report=str(page)).model_dump())
    else:
        show(str(page))
    return 0
