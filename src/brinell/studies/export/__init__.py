"""Write the figures, rows and tables of a run as CSV files, or as entries of RobustBench and the Hugging Face hub."""

from typing import Literal

from brinell.engine.request import BaseRequest, Budgets, Folder
from brinell.studies.kit import Study


class ExportRequest(BaseRequest):
    """What `brinell export` is asked for."""

    run: Folder
    """A run folder, made by brinell audit."""
    to: Literal["csv", "robustbench", "huggingface"]
    """csv: rows and tables as CSV, and the report. robustbench: a model_info file for each model.
    huggingface: a file for .eval_results of its repository on the hub."""
    eps: Budgets | None = None
    """The budget of the RobustBench entry, one of the run's. Default: its largest."""
    about: tuple[str, ...] = ()
    """Facts of an entry that the run cannot know, as KEY=VALUE. robustbench: name, authors, venue and link of the paper,
    architecture, additional_data, reported, footnote. huggingface: dataset (required), revision, task, url, source, user."""


STUDY = Study(
    package=__name__,
    verb="export",
    request=ExportRequest,
    result="run:ExportAnswer",
    positional=("run",),
    examples=(
        "brinell export RUN --to csv --out figures",
        "brinell export RUN --to huggingface --about dataset=OWNER/NAME",
        "brinell export RUN --to robustbench --eps 8/255 --about venue='arXiv, Nov 2026' --about additional_data=false",
    ),
)
