"""Tasks: what a model answers where it is more than a class, and what studies ask of it.

Brinell has two. An installed package names another one by an entry point of the group
`brinell.task`: under the name of the task that its data give, the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from brinell.core.errors import RequestError

if TYPE_CHECKING:
    import torch

    from brinell.core.data import Dataset
    from brinell.core.model import Model
    from brinell.engine.tasks import Task, Use

GROUP = "brinell.task"


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """The parts of a task, each as `module:name`, which is imported on first use: what counts and
    reports needs no torch.
    """

    opener: str
    """`(dataset, model, criterion, first, device, use) -> engine.tasks.Task`."""
    figures: str
    """The subclass of `analysis.pictures.Pictures` that counts figures from the answers in rows."""
    report: str
    """The subclass of `reports.task_reports.TaskReport` that names figures and draws inputs."""


TASKS = {
    "segmentation": TaskRecord(
        opener="brinell.engine.tasks:open_maps",
        figures="brinell.analysis.pictures:Maps",
        report="brinell.reports.task_reports:MapReport",
    ),
    "detection": TaskRecord(
        opener="brinell.engine.tasks:open_boxes",
        figures="brinell.analysis.pictures:BoxPictures",
        report="brinell.reports.task_reports:BoxReport",
    ),
}
"""By what the data have a truth about (`core.data.Truth.task`)."""


def part_of(task: str, name: str) -> Any:
    """A part of the record of a task, by the name of its field."""
    outside = [entry for entry in entry_points(group=GROUP) if entry.name == task]
    if task not in TASKS and not outside:
        raise RequestError(
            f"no task {task!r} is installed, which the data or the folder are about: "
            "install its package"
        )

    record = TASKS[task] if task in TASKS else outside[0].load()
    return resolve_name(getattr(record, name))


def open_task(
    dataset: "Dataset",
    model: "Model",
    criterion: str | None,
    first: Sequence[int],
    device: "torch.device",
    use: "Use" = "search",
) -> "Task":
    """Fit a model to data with a truth about more than a class, and read the criterion; where none
    is written, it follows from the use. Answers are checked on the samples `first`, at the cost of
    a forward each.
    """
    assert dataset.info.truth is not None
    opener = part_of(dataset.info.truth.task, "opener")
    task: Task = opener(dataset, model, criterion, first, device, use)
    return task
