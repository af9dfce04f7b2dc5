"""Write the figures, rows and tables of a run as CSV files, or as entries of RobustBench and the
Hugging Face hub.
"""

from typing import Literal

from brinell.engine.request import BaseRequest, Folder
from brinell.studies.kit import Study


class ExportRequest(BaseRequest):
    """What `brinell export` is asked for."""

    run: Folder
    """A run folder, made by brinell audit."""
    to: Literal["csv", "robustbench", "huggingface"]
    """csv: rows and tables as CSV, and the report. robustbench: a model_info file for each
    model, at the run's largest budget. huggingface: a file for .eval_results of its repository
    on the hub. Facts beyond a run are null in both: fill them in."""


STUDY = Study(
    verb="export",
    request=ExportRequest,
    result="run:ExportAnswer",
    positional=("run",),
    examples=(
        "brinell export RUN --to csv --out figures",
        "brinell export RUN --to huggingface",
        "brinell export RUN --to robustbench",
    ),
)
