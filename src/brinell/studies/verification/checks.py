"""The checks of a model made again: does each come out as the manifest says?"""

from brinell.core.checks import Code, Finding
from brinell.core.model import Model
from brinell.engine.audited_model import AuditedModel
from brinell.engine.model_checks import ModelChecks
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.room import Room
from brinell.engine.state import State
from brinell.store.run import Run
from brinell.studies.verification.result import Notes


def checks(run: Run, plan: Plan, source: ModelSource, model: Model, state: State, notes: Notes, progress: Progress) -> str | None:
    """Make the checks before the attacks again; returns why they cannot be held against each other, None where they were.

    A check near its limit may come out otherwise on another machine; only one that fails clearly now and passed then is noted,
    or is missing.
    """
    kept = {str(one["code"]): one for one in run.manifest.get("checks", {}).get(source.name, [])}
    where = f"{source.name} checks"
    if state.failed.all():
        return None
    if not kept:
        notes.note(where, "no check is listed, and they were all to be made")
        return None
    room = Room(plan.request.batch_size, lambda remark: None)
    again = ModelChecks(AuditedModel(plan, source, model, run, progress, room=room))
    found = room.fit(lambda: again.probe(state)).findings
    if any(one.code == Code.RANDOM and one.passed is False for one in found):
        return f"{source.name} answers at random, so that the checks come out otherwise each time"
    for one in found:
        said = kept.get(str(one.code))
        if said is None:
            notes.note(where, f"{one.code} is not listed")
        elif one.passed is False and said["passed"] is not False and _clearly(one):
            notes.note(where, f"{one.code} fails, and the run says that it {'passed' if said['passed'] else 'was not made'}")
        elif one.passed is True and said["passed"] is None:
            notes.note(where, f"{one.code} passes, and the run says that it was not made")
    return None


def _clearly(one: Finding) -> bool:
    return one.figure is None or one.limit is None or abs(one.figure - one.limit) > 0.1 * max(abs(one.limit), abs(one.figure))
