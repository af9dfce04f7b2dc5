"""The pieces of an audit, model after model; `model_audit` cuts those of each."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from brinell.core.criterion import MISCLASSIFIED, NotRejected
from brinell.core.data import Remark
from brinell.core.model import Model
from brinell.engine import provenance
from brinell.engine.answers import with_logits
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.cells import plan_hash
from brinell.engine.group_attack import AttackSetting, GroupTask
from brinell.engine.model_audit import ModelAudit
from brinell.engine.piece import Piece, PieceAnswer, make_alone
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.stage_run import Attacker
from brinell.store import rows
from brinell.store.parts import ONCE, PieceResult
from brinell.store.run import ACCUMULATED, NO_ROWS


def audit_pieces(
    plan: Plan, make_audit: Callable[..., ModelAudit]
) -> Generator[Sequence[Piece], PieceAnswer, PieceResult]:
    """The pieces of an audit, model after model; returns its rows, and the entries of its manifest
    that were found.

    Args:
        plan: the plan.
        make_audit: `(plan, source, model, entries=, surrogates=) -> ModelAudit`.
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
            make = partial(_recognise_answers, plan, networks)
            piece = Piece(name="answers", key=f"{ONCE}answers-{number}", make=make)
            answer = yield from make_alone(piece)
            for kind, values in answer.facts.items():
                entries[kind] |= values

            model, surrogates = as_logits(plan, networks, entries)
            audit = make_audit(plan, source, model, entries=entries, surrogates=surrogates)
            failures = yield from audit.pieces()

        parts.append(audit.audited.all_rows())
        warnings += [
            {"code": code, "model": source.name, "text": text} for code, text in failures.items()
        ]
        entries["seconds"][source.name] = time.perf_counter() - start
    return PieceResult(rows=rows.concatenate(parts), facts=entries)


def open_networks(plan: Plan, source: ModelSource, sessions: ExitStack) -> list[Model]:
    """A model and the surrogates of a plan, ready to be called until `sessions` end."""
    networks = [source.open(), *(surrogate.open() for surrogate in plan.surrogates)]
    for network in networks:
        sessions.enter_context(network.info.session(plan.device))
    return networks


def as_logits(
    plan: Plan, networks: Sequence[Model], manifest: dict[str, Any]
) -> tuple[Model, tuple[Model, ...]]:
    """A model and the surrogates with answers as logits; the manifest keeps the kinds of their
    answers.
    """
    model, *followed = networks
    names = [f"surrogate {source.name}" for source in plan.surrogates]
    surrogates = [
        with_logits(surrogate, plan.dataset, manifest, plan.device, name=name)
        for name, surrogate in zip(names, followed, strict=True)
    ]
    return with_logits(model, plan.dataset, manifest, plan.device), tuple(surrogates)


def _recognise_answers(plan: Plan, networks: Sequence[Model]) -> PieceResult:
    """The kinds of the answers of models, and what it cost to recognise them."""
    kinds: dict[str, Any] = {"answers": {}, "probes": {}}
    as_logits(plan, networks, kinds)
    return PieceResult(facts=kinds)


class AuditWorker:
    """Attacks groups for the driver of an audit; holds one model at a time."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sessions = ExitStack()
        self._source: ModelSource | None = None

    def piece(self, task: Mapping[str, Any]) -> Piece:
        """The piece that attacks a group, from the fields of its task, with ids as its index."""
        group = GroupTask(**task)
        group = replace(group, index=np.searchsorted(self._plan.ids, group.index))
        return Piece(name=group.stage, make=partial(self._attack, group))

    def _attack(self, task: GroupTask) -> PieceResult:
        """Attack a group, with its model open from the group before if that is the same."""
        plan = self._plan
        if self._source is None or self._source.name != task.model:
            self._sessions.close()
            self._source = next(source for source in plan.models if source.name == task.model)
            networks = open_networks(plan, self._source, self._sessions)
            kinds = {"answers": dict(task.answers), "probes": {}}
            self._model, self._surrogates = as_logits(plan, networks, kinds)
            self._shortages: list[Remark] = []
            self._sizer = BatchSizer(plan.request.batch_size, self._shortages.append)

        setting = AttackSetting(
            plan=plan,
            source=self._source,
            model=self._model,
            stage=next(stage for stage in plan.stages if stage.name == task.stage),
            surrogates=self._surrogates,
        )
        return Attacker(setting, self._sizer, self._shortages).attack(task)


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
