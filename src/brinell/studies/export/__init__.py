"""Write the figures, rows and tables of a run as CSV files, or what RobustBench and the Hugging
Face hub take of it.
"""

from typing import Literal

from brinell.engine.request import BaseRequest, Folder
from brinell.studies.kit import Study


class ExportRequest(BaseRequest):
    """What `brinell export` is asked for."""

    run: Folder
    """A run folder, made by brinell audit; for the hub also a benchmark set."""
    to: Literal["csv", "robustbench", "hub"]
    """csv: rows and tables as CSV, and the report. robustbench: a model_info file for each
    model, at the run's largest budget. hub: for the repository of each model on the Hugging Face
    hub a file for .eval_results, its robustness as JSON for programs, and a section of its card;
    of a benchmark set its dataset card. Facts beyond a run are null: fill them in."""
    push: str | None = None
    """The repository of the hub, OWNER/NAME, that gets these files, or the whole benchmark set.
    Default: nothing leaves this machine."""


STUDY = Study(
    verb="export",
    request=ExportRequest,
    result="run:ExportAnswer",
    positional=("run",),
    examples=(
        "brinell export RUN --to csv --out figures",
        "brinell export RUN --to hub",
        "brinell export RUN --to robustbench",
        "brinell export SET --to hub --push OWNER/NAME",
    ),
)
