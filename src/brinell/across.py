"""The Python calls across models: study, transfer and corrupt. What one model is asked alone is in `brinell.api`."""

from pathlib import Path
from typing import Any

from brinell import runs
from brinell.api import Models, carry_out, default_out, plan_audit, specs_of, takes
from brinell.core.contracts import Dataset
from brinell.core.model import Model
from brinell.engine.progress import Progress
from brinell.engine.toml import checked
from brinell.inputs import Data, call_text, models_of, open_dataset, spec_of
from brinell.runners.meeting import Shard
from brinell.store.table import Folder
from brinell.studies.corruption import page as corrupt_page
from brinell.studies.corruption import run as corrupt_run
from brinell.studies.corruption.analysis import summarise as summarise_corruption
from brinell.studies.corruption.request import CorruptRequest
from brinell.studies.corruption.results import CorruptResult
from brinell.studies.corruption.run import CorruptPlan
from brinell.studies.corruption.run import make_plan as plan_corrupt
from brinell.studies.per_class import page as study_page
from brinell.studies.per_class import run as study_run
from brinell.studies.per_class.request import StudyRequest
from brinell.studies.per_class.results import StudyResult
from brinell.studies.per_class.run import StudyPlan
from brinell.studies.transfer import page as transfer_page
from brinell.studies.transfer import run as transfer_run
from brinell.studies.transfer.analysis import summarise as summarise_transfer
from brinell.studies.transfer.plan import TransferPlan
from brinell.studies.transfer.plan import make_plan as plan_transfer
from brinell.studies.transfer.records import Answers
from brinell.studies.transfer.request import TransferRequest
from brinell.studies.transfer.results import TransferResult
from brinell.telling import telling


@takes(StudyRequest)
def study(
    run: Any = (),
    *,
    model: Models = None,
    data: Data | Any = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> StudyResult:
    """Compare any number of models class by class, as `brinell study` does.

    Args:
        run: the folder of an audit or what `brinell.audit` returned, or several of these; every model in them takes part.
        model: models to audit first, as for `audit`.
        data: the data of that audit, as for `audit`.
        out: the folder; none makes a fresh one under runs/.
        resume: go on with the audit in a folder that holds part of it.
        progress: whether to tell what goes on, or what is told.
        settings: the other options of `brinell study`; none stands for the default.

    Returns:
        What `brinell study --json` prints; `result.folder` holds report.html and the tables.
    """
    dataset, models, named = _opened(model, data)
    runs_of = tuple(str(runs.folder_of(one)) for one in (run if isinstance(run, list | tuple) else (run,)))
    plan = plan_study(checked(StudyRequest, settings | named | {"run": runs_of}), dataset=dataset, models=models)
    folder = Path(out or default_out(plan.data, "study"))
    with telling(progress) as told:
        return make_study(plan, folder, told, command=call_text("study", model, data, settings), resume=resume)


def plan_study(request: StudyRequest, *, dataset: Dataset | None = None, models: tuple[Model, ...] = ()) -> StudyPlan:
    """The plan of a study; arguments as of `engine.plan.make_plan`."""
    asked = request.audited()
    return StudyPlan(request=request, audit=None if asked is None else plan_audit(asked, dataset=dataset, models=models))


def make_study(plan: StudyPlan, folder: Path, progress: Progress, *, command: str, resume: bool) -> StudyResult:
    """Carry out a study that is planned, and write its page; arguments as of `carry_out`."""
    study_run.check(plan, folder, resume=resume)
    if plan.audit is not None:
        carry_out(plan.audit, folder / study_run.AUDIT, progress, command=command, resume=resume)
    result, marks = study_run.make(plan.request, folder)
    study_page.write(result, marks)
    return result


@takes(TransferRequest)
def transfer(
    source: Any = (),
    *,
    model: Models = None,
    data: Data | Any = None,
    out: Path | str | None = None,
    resume: bool = False,
    shard: str | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> TransferResult:
    """Show models the adversarial examples of others, as `brinell transfer` does.

    Args:
        source: where examples come from: folders of benchmark sets and of runs (or what `brinell.audit` and `brinell.benchmark`
            returned), and names of models; one or several.
        model: the models that are shown the examples, as for `audit`.
        data: the data, as for `audit`.
        out: the folder; none makes a fresh one under runs/.
        resume: go on with a folder that holds part of this transfer.
        shard: `K/N`, where several processes make it together in `out`, a folder that all see or the address of a store.
        progress: whether to tell what goes on, or what is told.
        settings: the other options of `brinell transfer`; none stands for the default.

    Returns:
        What `brinell transfer --json` prints; `result.folder` holds report.html, the rows and the examples.
    """
    dataset, models, named = _opened(model, data)
    sources = tuple(str(runs.folder_of(one)) for one in (source if isinstance(source, list | tuple) else (source,)))
    request = checked(TransferRequest, settings | named | {"source": sources})
    part = Shard.asked(shard, out)
    plan = plan_transfer(request, dataset=dataset, models=models)
    folder = Path(out or default_out(plan.data, "transfer"))
    command = call_text("transfer", model, data, settings)
    with telling(progress) as told:
        return make_transfer(plan, folder, told, command=command, resume=resume, shard=part)


def make_transfer(
    plan: TransferPlan, folder: Path, progress: Progress, *, command: str, resume: bool = False, shard: Shard | None = None
) -> TransferResult:
    """Carry out a transfer that is planned, and write its page; arguments as of `carry_out`."""

    def answer(made: Folder[Answers], name: str) -> TransferResult:
        return summarise_transfer(made).model_copy(update={"folder": name})

    return transfer_run.make(
        plan, folder, progress, command=command, page=transfer_page.write, answer=answer, resume=resume, shard=shard
    )


@takes(CorruptRequest)
def corrupt(
    model: Models = None,
    data: Data | Any = None,
    *,
    out: Path | str | None = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> CorruptResult:
    """Corrupt inputs in the published ways and count what models get wrong, as `brinell corrupt` does.

    Args:
        model: one model or several, as for `audit`.
        data: as for `audit`.
        out: the folder; none makes a fresh one under runs/.
        progress: whether to tell what goes on, or what is told.
        settings: the other options of `brinell corrupt`; none stands for the default.

    Returns:
        What `brinell corrupt --json` prints; `result.folder` holds report.html and the rows.
    """
    dataset, models, named = _opened(model, data)
    plan = plan_corrupt(checked(CorruptRequest, settings | named), dataset=dataset, models=models)
    folder = Path(out or default_out(plan.request.data, "corrupt"))
    with telling(progress) as told:
        return make_corrupt(plan, folder, told, command=call_text("corrupt", model, data, settings))


def make_corrupt(plan: CorruptPlan, folder: Path, progress: Progress, *, command: str) -> CorruptResult:
    """Carry out corruptions that are planned, and write their page; arguments as of `carry_out`."""
    made = corrupt_run.make(plan, folder, progress, command=command)
    corrupt_page.write(folder)
    return summarise_corruption(made)


def _opened(model: Models, data: Data | Any) -> tuple[Dataset | None, tuple[Model, ...], dict[str, Any]]:
    """Data and models that were given, opened, and the settings that name them; what was not given stays with the request."""
    dataset = None if data is None else open_dataset(data)
    named: dict[str, Any] = {} if data is None else {"data": spec_of(data, dataset)}
    models = () if model is None else models_of(model, dataset, named.get("data", "digits"))
    return dataset, tuple(models), named | ({} if model is None else {"model": specs_of(model, models)})


__all__ = [
    "corrupt",
    "make_corrupt",
    "make_study",
    "make_transfer",
    "plan_corrupt",
    "plan_study",
    "plan_transfer",
    "study",
    "transfer",
]
