"""`brinell export`: a run for the tools that people keep their experiments in."""

from typing import TYPE_CHECKING

from brinell.cli.options import show
from brinell.cli.verb import Asked, verb
from brinell.studies.export.request import ExportRequest

if TYPE_CHECKING:
    from brinell.studies.export.answer import ExportAnswer


@verb(ExportRequest, argument="run")
def export(asked: Asked) -> int:
    """Write metrics, tables and the report of a run for TensorBoard, MLflow or a spreadsheet, or as RobustBench entries."""
    from brinell import api
    from brinell.wording import in_options

    request = asked.request(ExportRequest)
    result = in_options(api.export)(**request.model_dump(exclude_unset=True), out=asked.out)
    return asked.answer(result, lambda: _show(result))


def _show(result: "ExportAnswer") -> None:
    for note in result.notes:
        show(f"note: {note}")
    some = f"{result.metrics:,} metrics and " if result.metrics else ""
    show(f"{result.to}: {some}{len(result.files)} files in {result.where}")
