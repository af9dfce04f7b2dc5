"""`brinell report`: the page of a run or a study, written again from its records."""

from brinell.cli.options import Json, RunFolder, answer, show


def report(run: RunFolder, json: Json = False) -> int:
    """Write the page and the tables of a run, or of what another command made, again, from the records alone."""
    from brinell import runs
    from brinell.cli.schemas import ReportAnswer

    page = runs.report(run)
    return answer(json, ReportAnswer(run=str(run), report=str(page)), lambda: show(str(page)))
