"""The pieces of an audit, model after model; `model_audit` cuts those of each."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core.contracts import Filed
from brinell.core.criterion import MISCLASSIFIED, NotRejected
from brinell.core.model import Model
from brinell.core.record import SCHEMA_VERSION
from brinell.core.version import VERSION
from brinell.engine import provenance
from brinell.engine.answers import all_with_logits
from brinell.engine.audited_model import AuditedModel
from brinell.engine.group_attack import AttackSetting, GroupTask
from brinell.engine.model_audit import ModelAudit
from brinell.engine.piece import Piece, PieceAnswer, make_alone
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress, SilentProgress
from brinell.engine.stage_run import attack_group
from brinell.engine.time_limit import TimeLimit
from brinell.store import rows
from brinell.store.parts import ONCE, PieceResult
from brinell.store.run import ACCUMULATED, NO_ROWS


def audit_pieces(
    plan: Plan,
    folder: Path,
    progress: Progress,
    *,
    spread: int = 1,
    limit: TimeLimit | None = None,
    audit: Callable[[AuditedModel, int], ModelAudit] = ModelAudit,
) -> Generator[Sequence[Piece], PieceAnswer, PieceResult]:
    """The pieces of an audit, model after model; returns its rows, and the entries of its manifest
    that were found.

    Args:
        plan: the plan.
        folder: the folder of the audit.
        progress: told what goes on.
        spread: the number of groups over which a stage is spread; above 1, workers attack them.
        limit: the time in which the audit ends; None for no limit.
        audit: makes the audit of a model from its state and `spread`.
    """
    warnings = [
        {"code": remark.code, "model": None, "text": remark.text}
        for remark in plan.dataset.info.remarks
    ]
    entries: dict[str, Any] = {key: {} for key in ACCUMULATED} | {"warnings": warnings}
    parts = [NO_ROWS]
    for number, source in enumerate(plan.models, 1):
        start = time.perf_counter()
        with ExitStack() as sessions:
            networks = open_networks(plan, source, sessions)
            # As a piece, so that a run that goes on finds the kinds of answers without asking.
            make = partial(_recognise_answers, plan, networks)
            piece = Piece(name="answers", key=f"{ONCE}answers-{number}", make=make)
            answer = yield from make_alone(piece)
            for kind, values in answer.facts.items():
                entries[kind] |= values

            models = all_with_logits(networks, plan.dataset, entries, plan.device)
            audited = AuditedModel(plan, source, models, folder, entries, progress, limit=limit)
            model_warnings = yield from audit(audited, spread).pieces()

        parts.append(audited.all_rows())
        warnings += [
            {"code": code, "model": source.name, "text": text}
            for code, text in model_warnings.items()
        ]
        entries["seconds"][source.name] = time.perf_counter() - start
    return PieceResult(rows=rows.concatenate(parts), facts=entries)


def open_networks(plan: Plan, source: ModelSource, sessions: ExitStack) -> list[tuple[str, Model]]:
    """A model, then the surrogates of a plan, ready to be called until `sessions` end, each with the
    name under which the manifest states the kind of its answers.
    """
    networks = [(source.name, source.open())]
    networks += [(f"surrogate {followed.name}", followed.open()) for followed in plan.surrogates]
    for _, network in networks:
        sessions.enter_context(network.info.session(plan.device))
    return networks


def _recognise_answers(plan: Plan, networks: Sequence[tuple[str, Model]]) -> PieceResult:
    """The kinds of the answers of models, and what it cost to recognise them."""
    kinds: dict[str, Any] = {}
    all_with_logits(networks, plan.dataset, kinds, plan.device)
    return PieceResult(facts=kinds)


class AuditWorker:
    """Attacks groups for the driver of an audit; holds one model at a time."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sessions = ExitStack()
        self._audited: AuditedModel | None = None

    def piece(self, task: Mapping[str, Any]) -> Piece:
        """The piece that attacks a group, from the fields of its task, with ids as its index."""
        # A task names its samples by id; here they are positions in the plan, whose ids ascend.
        group = GroupTask(**task)
        group = replace(group, index=np.searchsorted(self._plan.ids, group.index))
        return Piece(name=group.stage, make=partial(self._attack, group))

    def _attack(self, task: GroupTask) -> PieceResult:
        """Attack a group, with its model open from the group before if that is the same."""
        plan = self._plan
        if self._audited is None or self._audited.source.name != task.model:
            self._sessions.close()
            source = next(source for source in plan.models if source.name == task.model)
            networks = open_networks(plan, source, self._sessions)
            # With the kinds that the driver recognised, nothing is asked again; and as the driver
            # alone writes files, the folder does not matter.
            entries = {"answers": dict(task.answers)}
            models = all_with_logits(networks, plan.dataset, entries, plan.device)
            self._audited = AuditedModel(plan, source, models, Path(), entries, SilentProgress())

        stage = next(stage for stage in plan.stages if stage.name == task.stage)
        setting = AttackSetting(audited=self._audited, stage=stage, model=self._audited.model)
        return attack_group(setting, task)


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Entries of the manifest that follow from the plan."""
    stages = [
        {
            "name": stage.name,
            "label": stage.label or stage.name,
            "kept_to": stage.kept_to,
            "attack": stage.plugin,
            "settings": stage.settings(),
            "turn": asdict(stage.turn),
            "eot": stage.eot,
            "gradient": stage.gradient,
            "family": stage.attack.family,
            "access": stage.attack.access.name.lower(),
        }
        for stage in plan.stages
    ]
    skipped = [
        {"model": model.name, "stage": name, "reason": reason}
        for model in plan.models
        for name, reason in model.skipped.items()
    ]
    criterion = (plan.targeting or plan.threshold or MISCLASSIFIED).describe()
    if plan.request.reject_class is not None:
        criterion = {"name": NotRejected.name}  # the class is with the facts of each model
    data = provenance.data_facts(
        plan.request.data, plan.dataset, plan.data_digest, len(plan.ids), plan.selection.method
    )
    surrogates = [_entry(source) for source in (*plan.surrogates, *plan.brought)]

    # Runs without surrogates or waves have no such keys; waves count from 0.
    return {
        "cell": plan_hash(plan),
        "seed": plan.request.seed,
        "data": data,
        "models": [_entry(source) for source in plan.models],
        **({"surrogates": surrogates} if surrogates else {}),
        **({} if plan.waves is None else {"waves": int(plan.waves.max(initial=-1)) + 1}),
        "criterion": criterion,
        "distance": plan.distance.name,
        "eps": list(plan.budgets.values),
        "eps_text": list(plan.budgets.texts),
        "recommended": plan.recommended,
        "stages": stages,
        "skipped": skipped,
    }


def _entry(source: ModelSource) -> dict[str, Any]:
    """A model or a surrogate as the manifest has it."""
    return {"name": source.name, "spec": source.spec, **source.facts}


def plan_hash(plan: Plan) -> str:
    """Hash of everything that decides the rows of an audit.

    Which sample is in which wave follows from the ids and the seed, so it states only whether there
    are waves.
    """
    request = plan.request
    criterion = None if plan.threshold is None else plan.threshold.describe()
    distance: Any = plan.distance.name
    if isinstance(plan.distance, Filed):
        distance = [plan.distance.name, plan.distance.digest()]
    stages = [
        [
            stage.name,
            stage.plugin,
            stage.settings(),
            asdict(stage.turn),
            stage.eot,
            stage.gradient,
        ]
        for stage in plan.stages
    ]

    return provenance.content_hash(
        schema=SCHEMA_VERSION,
        brinell=VERSION,
        models=[[source.name, source.facts["digest"], source.reject] for source in plan.models],
        surrogates=[source.facts["digest"] for source in (*plan.surrogates, *plan.brought)],
        data=plan.data_digest,
        ids=plan.all_ids.tolist(),
        waves=plan.request.until is not None,
        domain=list(plan.dataset.domain.to_json().values()),
        criterion=[request.targeted, criterion],
        stages=stages,
        distance=distance,
        eps=plan.levels.tolist(),
        units=None if plan.recommended is None else plan.units.tolist(),
        settings=[request.seed, request.queries, request.precision],
    )
