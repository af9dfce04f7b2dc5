"""Content hashes: what rows depend on, apart from their samples and budgets."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from brinell.core.contracts import Filed
from brinell.core.record import SCHEMA_VERSION
from brinell.core.version import VERSION
from brinell.engine.plan import Plan


def content_hash(**content: Any) -> str:
    """24 hex digits that change whenever any of `content` (JSON values) does."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def plan_hash(plan: Plan) -> str:
    """Hash of everything that decides the rows of an audit."""
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

    return content_hash(
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
