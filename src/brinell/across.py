"""The Python calls across models: study. What one model is asked alone is in `brinell.api`."""

from pathlib import Path
from typing import Any

from brinell import runs
from brinell.api import Models, carry_out, default_out, plan_audit, specs_of, takes
from brinell.core.contracts import Dataset
from brinell.core.model import Model
from brinell.engine.progress import Progress
from brinell.engine.toml import checked
from brinell.inputs import Data, call_text, models_of, open_dataset, spec_of
from brinell.studies.per_class import page as study_page
from brinell.studies.per_class import run as study_run
from brinell.studies.per_class.request import StudyRequest
from brinell.studies.per_class.results import StudyResult
from brinell.studies.per_class.run import StudyPlan
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
        What `brinell study --json` prints; `result.folder` holds study.html and the tables.
    """
    dataset = None if data is None else open_dataset(data)
    named: dict[str, Any] = {} if data is None else {"data": spec_of(data, dataset)}
    models = () if model is None else models_of(model, dataset, named.get("data", "digits"))
    named |= {} if model is None else {"model": specs_of(model, models)}
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
