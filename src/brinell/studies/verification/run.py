"""A verification from the folder to the verdict."""

from collections.abc import Sequence

from brinell.core.checks import Code, Finding
from brinell.core.errors import RequestError
from brinell.core.model import Model
from brinell.core.record import CLEAN
from brinell.engine.answers import settled
from brinell.engine.audited_model import AuditedModel
from brinell.engine.model_checks import ModelChecks
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress, Silent
from brinell.engine.request import IN_MEMORY, Request
from brinell.engine.room import Room
from brinell.engine.shard import session
from brinell.engine.state import State
from brinell.engine.toml import make_request
from brinell.engine.trust import MARK, refusal, untrusted
from brinell.store.run import Run
from brinell.store.signature import signers
from brinell.studies.audit.plan import plan_audit
from brinell.studies.kit import Call
from brinell.studies.verification import against_request, pages
from brinell.studies.verification.against_model import Claims
from brinell.studies.verification.alone import verify_unrun
from brinell.studies.verification.request import VerifyRequest
from brinell.studies.verification.rerun import Rerun, rerun
from brinell.studies.verification.result import Notes, VerifyResult
from brinell.studies.verification.rows import Rows

TRUST = (
    "wall times, the versions and the hardware, which the manifest states",
    "that stages which waited for an alarm found nothing where they found nothing: they are not attacked again",
    "the costs of attacks that succeeded, but for the most and least that the plan allows",
)
"""What no verification recomputes."""


def verify_run(
    run: Run, plan: Plan, progress: Progress | None = None, *, count: int | None = None, signed: Sequence[str] = ()
) -> VerifyResult:
    """Recompute what a run claims: from its request, the data, the records and the stored inputs, with the model, and by attacks.

    Args:
        run: the run.
        plan: its plan, made again from its request, with the data and the models that it names.
        progress: told what goes on; nobody where it is left out.
        count: robust samples of each model that are attacked again; None for 8 or 2 %, whichever is more.
        signed: whose signature the run carries, in a sentence.
    """
    notes, progress = Notes(), progress or Silent()
    claims = Claims(run, plan, notes)
    against_request.manifest(run, plan, notes)
    against_request.files(run, notes)
    rows, reruns, unchecked = 0, [], list[str | None]()
    for source in plan.models:
        told = Rows(run, plan, source, notes)
        state = told.check()
        rows += told.checked
        model = source.open()
        with session(model, plan.device):
            model = settled(model, plan.dataset, run.manifest, plan.device)
            claims.check(source, model)
            if state is not None:
                unchecked.append(_check_model(run, plan, source, model, state, notes, progress))
        if state is not None and told.broken is not None:
            reruns.append((source.name, rerun(run, plan, source, told.broken, state.correct, notes, progress, count)))
    unmade = pages.derived(run, notes) if not notes.problems else "something else does not hold"
    passed, whys = not notes.problems, [why for why in unchecked if why]
    return VerifyResult(
        run=str(run.path),
        passed=passed,
        successes=claims.successes,
        predictions=claims.predictions,
        boundary=claims.boundary + sum(one.boundary for _, one in reruns),
        rows=rows,
        rerun=sum(one.samples for _, one in reruns),
        proved=[*signed, *_proved(claims, rows, reruns, whys, unmade)] if passed else [],
        trusted=_trusted(reruns, whys, unmade),
        problems=notes.problems,
    )


def _proved(claims: Claims, rows: int, reruns: list[tuple[str, Rerun]], whys: list[str], unmade: str | None) -> list[str]:
    told = [
        "the manifest is what the request makes of the data and the models, and no file is missing, changed or foreign",
        f"{rows:,} rows agree with the labels of the data, the plan, each other and the stored inputs",
        f"the models predict the recorded classes for all {claims.predictions:,} {CLEAN} inputs",
        f"each of {claims.successes:,} stored adversarial inputs is within its budget and a success",
        *([] if whys else ["the checks before the attacks come out as recorded"]),
    ]
    for name, one in reruns:
        if one.samples:
            tenth = max(1, round(0.1 * one.of))
            told.append(
                f"{name}: {one.samples} of {one.of} robust samples were attacked again, and stayed robust; {tenth} forged ones "
                f"among them would be missed with probability {one.missed(tenth):.2g}, 1 with {one.missed(1):.2g}"
            )
    return [*told, *(["the tables and the page are what the records make"] if unmade is None else [])]


def _trusted(reruns: list[tuple[str, Rerun]], whys: list[str], unmade: str | None) -> list[str]:
    told = [f"{name}: that robust samples are robust: {one.why}" for name, one in reruns if one.why]
    told += [f"the checks before the attacks: {why}" for why in whys]
    told += [] if unmade is None else [f"the tables and the page: {unmade}"]
    return [*told, *TRUST]


def _check_model(
    run: Run, plan: Plan, source: ModelSource, model: Model, state: State, notes: Notes, progress: Progress
) -> str | None:
    """Make the checks of a model before the attacks again; returns why they cannot be compared, None where they were.

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


def carry_out(call: Call) -> VerifyResult:
    """Verify the run that a call names, with the models and data that it names or gives in place of the run's own.

    Raises:
        RequestError: no such run, a signature that does not hold, or models and data that are not the run's.
    """
    asked: VerifyRequest = call.request
    run = Run.open(asked.run)
    signed = signers(asked.run, asked.signed_by)
    values = run.manifest["request"]
    again = {name: value for name, value in (("model", list(asked.model)), ("data", asked.data)) if value}
    named = {name: value for name, value in again.items() if name not in (*call.datasets, *call.objects)}
    mark = run.manifest.get(MARK)
    if found := untrusted(values, Request, run.path, mark, trust=call.trust, given=asked.attack, replaced=set(again)):
        refused = str(refusal(run.path, found))
        call.progress.warn(refused)
        return verify_unrun(run, refused, signed)
    request = make_request({**values, **named})
    _check_in_memory(run, request, call)
    plan = plan_audit(request, dataset=call.dataset(), models=call.models())
    return verify_run(run, plan, count=asked.rerun, signed=signed)


def _check_in_memory(run: Run, request: Request, call: Call) -> None:
    """Refuse to verify a run of what was in memory without it, or with models that are called otherwise."""
    again = "pass it to brinell.verify(run, model, data)"
    if call.dataset() is None and request.data.startswith(IN_MEMORY):
        raise RequestError(f"{run.path} was made from data in memory: {again}")
    if not call.models() and request.model[0].startswith(IN_MEMORY):
        raise RequestError(f"{run.path} was made from a model in memory: {again}")
    names, given = [one["name"] for one in run.manifest["models"]], [model.name for model in call.models()]
    if given and given != names:
        raise RequestError(f"{run.path} is of {', '.join(names)}, and these are {', '.join(given)}: pass the same")
