"""Runs a verification, from the folder to the verdict."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, chdir
from dataclasses import dataclass, field, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.errors import RequestError
from brinell.core.record import CLEAN
from brinell.core.version import VERSION
from brinell.engine.answers import with_logits
from brinell.engine.group_attack import session
from brinell.engine.group_worker import open_surrogates
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress, SilentProgress
from brinell.engine.request import IN_MEMORY, Request
from brinell.engine.toml import parse_request
from brinell.store.folder import MANIFEST
from brinell.store.proofs import PROOFS
from brinell.store.run import LAYOUT, Run
from brinell.store.signature import signers
from brinell.store.standing import RUN_COLUMNS, RUN_KEYS, claimed_names
from brinell.store.trust import MARK, check_directory, find_origin, refusal, request_text
from brinell.studies.audit.plan import plan_audit
from brinell.studies.kit import Call
from brinell.studies.repetition import identify
from brinell.studies.verification import manifest_check, pages
from brinell.studies.verification.claims import Claims
from brinell.studies.verification.comparison import UNNOTICED
from brinell.studies.verification.folder_check import verify_folder
from brinell.studies.verification.judgement import Judgement, judge_replay
from brinell.studies.verification.premises import list_premises
from brinell.studies.verification.replay import ReplayedAudit
from brinell.studies.verification.request import VerifyRequest
from brinell.studies.verification.result import Notes, Status, VerifyResult
from brinell.studies.verification.rows import RowCheck
from brinell.studies.verification.study_folder import check_files, verify_study

MIN_SAMPLES, SHARE = 8, 0.05
"""Samples replayed by default: at least this many, and at least this share of those that were attacked."""


def miss_probability(samples: int, drawn: int, forged: int) -> float:
    """Probability that none of `forged` false samples, of `samples`, is among the `drawn` ones."""
    return comb(samples - forged, drawn) / comb(samples, drawn) if forged <= samples else 0.0


@dataclass
class _Outcome:
    """The findings about one model."""

    name: str
    attacked: int = 0
    """Samples that the run attacked."""
    drawn: int = 0
    """Samples among them that were replayed."""
    judgement: Judgement = field(default_factory=Judgement)
    reason: str = ""
    """Why nothing was replayed; empty if something was, or if there was nothing to replay."""


def verify_run(
    run: Run,
    plan: Plan,
    progress: Progress | None = None,
    *,
    count: int | None = None,
    premises: Sequence[str] = (),
    signatures: Sequence[str] = (),
) -> VerifyResult:
    """Recompute what a run says from its request, data, records and stored inputs, with its models and by a replay.

    Args:
        run: the run.
        plan: its plan, rebuilt from its request, with the data and models that it names.
        progress: reports progress; None for silence.
        count: samples of each model to replay; None for 8 or 5 %, whichever is more.
        premises: a sentence about each premise of the verdict.
        signatures: a sentence about each signature that the run carries.
    """
    notes, progress = Notes(), progress or SilentProgress()
    claims, rows, outcomes = Claims(run, plan, notes), 0, list[_Outcome]()
    manifest_check.check_manifest(run, plan, notes)
    manifest_check.check_files(run, notes)
    for source in plan.models if not notes.problems else ():
        row_check = RowCheck(run, plan, source, notes)
        row_check.check()
        rows += row_check.row_count
        outcomes.append(_verify_model(run, plan, source, claims, notes, progress, count))
    page_reason = "there are problems with the rows" if notes.problems else pages.check_pages(run, notes)
    status = Status.REFUSED if notes.problems else Status.PROVED
    if status == Status.PROVED and any(outcome.reason for outcome in outcomes):
        status = Status.CONSISTENT
    return VerifyResult(
        run=str(run.path),
        status=status,
        passed=status == Status.PROVED,
        premises=list(premises),
        rows=rows,
        predictions=claims.predictions,
        successes=claims.successes,
        replayed=sum(outcome.judgement.rows for outcome in outcomes),
        samples=sum(outcome.drawn for outcome in outcomes),
        deviations=claims.boundary + sum(outcome.judgement.deviations for outcome in outcomes),
        verified_claims=[] if notes.problems else [*signatures, *_verified_claims(claims, rows, outcomes, page_reason)],
        unverified_claims=_unverified_claims(outcomes, page_reason),
        claimed=claimed_names(RUN_COLUMNS, RUN_KEYS),
        problems=notes.problems,
    )


def _verify_model(
    run: Run, plan: Plan, source: ModelSource, claims: Claims, notes: Notes, progress: Progress, count: int | None
) -> _Outcome:
    """Repeat the answers of a model to clean and stored inputs, and replay its audit on drawn samples."""
    model, fresh = source.open(), dict[str, object]()
    with ExitStack() as stack:
        stack.enter_context(session(model, plan.device))
        model = with_logits(model, plan.dataset, fresh, plan.device)
        surrogates = open_surrogates(plan, fresh, stack)
        correct = claims.check(source, model)
        outcome = _Outcome(source.name)
        if correct is None or notes.problems:
            return outcome
        attacked = np.flatnonzero(correct & (plan.units > 0))
        outcome.attacked = len(attacked) if len(plan.levels) else 0
        if count == 0 and outcome.attacked:
            outcome.reason = "no sample was to be replayed"
        count = max(MIN_SAMPLES, round(SHARE * len(attacked))) if count is None else count
        drawn = np.zeros(len(plan.ids), bool)
        drawn[np.random.default_rng().choice(attacked, min(count, len(attacked)), replace=False)] = True
        outcome.drawn = int(drawn.sum()) if outcome.attacked else 0

        def prepare() -> ReplayedAudit:
            """A replay in a new folder."""
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="brinell-")))
            return ReplayedAudit(run, plan, source, model, progress, surrogates, drawn, folder)

        def repeat() -> ReplayedAudit:
            """A further replay, carried out."""
            further = prepare()
            further()
            return further

        replayed = prepare()
        outcome.judgement = judge_replay(run, plan, source, replayed, replayed(), fresh, notes, repeat)
    return outcome


def _verified_claims(claims: Claims, rows: int, outcomes: list[_Outcome], page_reason: str | None) -> list[str]:
    """Sentences about what was recomputed and holds."""
    sentences = [
        "the manifest follows from the request, the data and the models, and no file is missing, changed or foreign",
        f"{rows:,} rows agree with the labels of the data, the plan, each other and the stored inputs",
        f"the models predict the recorded classes for all {claims.predictions:,} {CLEAN} inputs",
        f"each of {claims.successes:,} stored adversarial inputs is a success within its budget",
    ]
    for outcome in outcomes:
        if not outcome.judgement.is_random:
            sentences.append(f"{outcome.name}: checks, alarms and warnings come out as recorded")
        if outcome.drawn:
            tenth = max(1, round(0.1 * outcome.attacked))
            single, several = (miss_probability(outcome.attacked, outcome.drawn, forged) for forged in (1, tenth))
            missed = f"this misses {tenth} forged samples with probability {several:.2g}, and a single one with {single:.2g}"
            if outcome.judgement.is_random:
                missed = f"of the replayed ones, up to {UNNOTICED} forged samples or more that answers leave open pass for chance"
            sentences.append(
                f"{outcome.name}: {outcome.drawn} of {outcome.attacked} attacked samples were replayed, "
                f"{outcome.judgement.rows:,} rows{outcome.judgement.text()}; {missed}"
            )
    return [*sentences, *(["the tables and the page are those that the records produce"] if page_reason is None else [])]


def _unverified_claims(outcomes: list[_Outcome], page_reason: str | None) -> list[str]:
    """Sentences about what was not recomputed."""
    sentences = [f"{outcome.name}: the attacked samples, since {outcome.reason}" for outcome in outcomes if outcome.reason]
    sentences += [f"{outcome.name}: {claim}" for outcome in outcomes for claim in outcome.judgement.claims]
    sentences += [] if page_reason is None else [f"the tables and the page, since {page_reason}"]
    return [*sentences, f"taken from whoever made the folder: {', '.join(claimed_names(RUN_COLUMNS, RUN_KEYS))}"]


def verify_files(path: Path, reason: str) -> VerifyResult:
    """Verify a folder from its files alone, whatever it names: digests, rows, request, tables and page.

    Args:
        path: the folder, of a run or of another study.
        reason: why its models and data are not used.

    Raises:
        RequestError: it is no folder of ours, damaged, or not finished.
    """
    study, manifest = identify(path)
    if study.verb != LAYOUT.verb:
        return check_files(study, path.absolute(), manifest, reason)
    return verify_folder(Run(path.absolute(), manifest), reason)


def carry_out(call: Call) -> VerifyResult:
    """Verify the folder of a call, that of a run or of another study. Models and data of the call replace those of the folder.

    Raises:
        RequestError: the folder holds neither, its signature is wrong, or the models and data differ from those of the run.
    """
    options: VerifyRequest = call.request
    study, manifest = identify(Path(options.run))
    path = Path(options.run).absolute()  # the directory changes below
    if study.verb != LAYOUT.verb:
        return verify_study(study, manifest, call)
    run = Run(path, LAYOUT.read(path))
    signatures = signers(options.run, options.signed_by)
    if run.manifest["brinell"] != VERSION:
        reason = f"brinell {run.manifest['brinell']} made it, and this is {VERSION}: verify it with that version"
        return verify_folder(run, reason, signatures)
    values = run.manifest["request"]
    replacements: dict[str, Any] = {"model": list(options.model)} if options.model else {}
    replacements |= {"data": options.data} if options.data else {}
    specs = {name: value for name, value in replacements.items() if name not in (*call.datasets, *call.objects)}
    text = request_text(run.manifest)
    origin = find_origin(path, text, run.manifest.get(MARK), call.trust)
    if origin is None:
        reason = str(refusal(path))
        call.progress.warn(reason)
        return verify_folder(run, reason, signatures)
    if specs:
        check_directory(path, text, origin)
    with chdir(origin):
        request = parse_request(Request, {**values, **specs})
        _check_in_memory(run, request, call)
        plan = plan_audit(request, dataset=call.dataset(), models=call.models())
        named = {*replacements, *call.datasets, *call.objects}
        premises = list_premises(plan, named, options.digest)
        result = verify_run(run, plan, count=options.replay, premises=premises, signatures=signatures)
    proofs = path / PROOFS
    if not (proofs / MANIFEST).is_file() or result.problems:
        return result
    of_proofs = call.request.model_copy(update={"run": str(proofs)})
    return _joined(result, verify_study(*identify(proofs), replace(call, request=of_proofs)))


def _joined(result: VerifyResult, proofs: VerifyResult) -> VerifyResult:
    status = next(s for s in (Status.REFUSED, Status.CONSISTENT, Status.PROVED) if s in (result.status, proofs.status))
    located = [problem.model_copy(update={"location": f"{PROOFS}/{problem.location}"}) for problem in proofs.problems]
    problems = [*result.problems, *located]
    return result.model_copy(
        update={
            "status": status,
            "passed": status == Status.PROVED,
            "rows": result.rows + proofs.rows,
            "replayed": result.replayed + proofs.replayed,
            "deviations": result.deviations + proofs.deviations,
            "verified_claims": [] if problems else [*result.verified_claims, *(f"{PROOFS}: {c}" for c in proofs.verified_claims)],
            "unverified_claims": [*result.unverified_claims, *(f"{PROOFS}: {c}" for c in proofs.unverified_claims)],
            "problems": problems,
        }
    )


def _check_in_memory(run: Run, request: Request, call: Call) -> None:
    """Refuse a call without the model or data that the run had in memory, or with models of other names."""
    hint = "pass it to brinell.verify(run, model, data)"
    if call.dataset() is None and request.data.startswith(IN_MEMORY):
        raise RequestError(f"{run.path} was made from data in memory: {hint}")
    if not call.models() and request.model[0].startswith(IN_MEMORY):
        raise RequestError(f"{run.path} was made from a model in memory: {hint}")
    names, call_names = [str(entry["name"]) for entry in run.manifest["models"]], [model.name for model in call.models()]
    if call_names and call_names != names:
        raise RequestError(
            f"{run.path} contains {', '.join(names)}, but the call gives {', '.join(call_names)}: pass the models of the run"
        )
