"""What `brinell export` is asked for."""

from typing import Any, Literal

from pydantic import field_validator

from brinell.core.errors import RequestError
from brinell.core.settings import Plain
from brinell.engine.request import BaseRequest, Budgets, Folder

WANDB = (
    "the client of Weights & Biases writes no folder by itself: it starts a service process, wandb-core, and has that write. "
    "Export to csv or tensorboard, and log metrics.csv or the events from a run of your own"
)


class ExportRequest(BaseRequest):
    """What `brinell export` is asked for."""

    run: Folder
    """A run folder, made by brinell audit."""
    to: Literal["csv", "tensorboard", "mlflow", "robustbench", "huggingface", "every-eval-ever"]
    """csv: metrics, rows and tables as CSV, and the report. tensorboard: event files. mlflow: a run for each model, at
    MLFLOW_TRACKING_URI or in --out. robustbench: a model_info file for each model. huggingface: a file for .eval_results of
    its repository on the hub. every-eval-ever: a record with a line for each sample and budget."""
    eps: Budgets | None = None
    """The budget of the RobustBench entry, one of the run's. Default: its largest."""
    about: tuple[Plain, ...] = ()
    """Facts of an entry that the run cannot know, as KEY=VALUE. robustbench: name, authors, venue and link of the paper,
    architecture, additional_data, reported, footnote. huggingface: dataset (required), revision, task, url, source, user.
    every-eval-ever: organization, relationship, developer, id, availability.
    """

    @field_validator("to", mode="before")
    @classmethod
    def _no_service(cls, value: Any) -> Any:
        """Refuse services that need an account."""
        if value in ("wandb", "wandb-folder"):
            raise RequestError(WANDB)
        return value
