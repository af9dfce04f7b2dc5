"""Content hashes: what a row depends on, apart from its sample and its eps."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from brinell.core.contracts import Filed
from brinell.core.record import CLEAN, SCHEMA_VERSION
from brinell.core.version import VERSION
from brinell.engine.cascade import Stage
from brinell.engine.plan import ModelSource, Plan


def content_hash(**content: Any) -> str:
    """24 hex digits that change whenever any of `content` (JSON values) does."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _model_cell(plan: Plan, source: ModelSource, **content: Any) -> str:
    """Hash of everything that decides the rows of a cell of this model."""
    domain = plan.dataset.domain
    return content_hash(
        schema=SCHEMA_VERSION,
        brinell=VERSION,
        model=source.facts["digest"],
        name=source.name,
        data=plan.data_digest,
        samples=len(plan.ids),
        **({} if plan.selection.method in ("all", "first") else {"ids": plan.ids.tolist()}),
        domain=list(domain.to_json().values()),
        targeted=plan.request.targeted,
        **({} if source.reject is None else {"reject": source.reject}),
        **({} if plan.threshold is None else {"criterion": plan.threshold.describe()}),
        **content,
    )


def clean_cell(plan: Plan, source: ModelSource) -> str:
    """Cell (the hash that names stored rows) of the first check of a model on clean inputs."""
    return _model_cell(plan, source, attack=CLEAN, eot=plan.eot)


def stage_cell(plan: Plan, source: ModelSource, stage: Stage) -> str:
    """Cell of a stage. It covers the earlier stages too, because they decide which samples remain."""
    stages = plan.stages[: plan.stages.index(stage) + 1]
    return _model_cell(
        plan,
        source,
        stages=[
            [
                predecessor.name,
                predecessor.plugin,
                predecessor.settings(),
                asdict(predecessor.turn),
                predecessor.eot,
                predecessor.gradient,
            ]
            for predecessor in stages
        ],
        distance=[plan.distance.name, plan.distance.digest()] if isinstance(plan.distance, Filed) else plan.distance.name,
        eps=plan.levels.tolist(),
        units=None if plan.recommended is None else plan.units.tolist(),
        seed=plan.request.seed,
        queries=plan.request.queries,
        precision=plan.request.precision,
        surrogates=[surrogate.facts["digest"] for surrogate in plan.surrogates] if stage.follows_surrogates else [],
    )
