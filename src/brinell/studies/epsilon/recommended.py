"""Budgets of an audit by sample: `recommended`, or `recommended:FOLDER` of `brinell epsilon`
(design/0013-epsilon.md).

The budgets of a run are 0, 0.25, 0.5, 0.75 and 1 times the recommended eps of a sample.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from brinell import plugins
from brinell.core import bounded
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.engine.cascade import build_stages
from brinell.engine.eps_grid import Budgets, BudgetsBySample, parse_eps
from brinell.engine.plan import select_samples
from brinell.engine.progress import SilentProgress
from brinell.engine.request import Request
from brinell.engine.sources import open_data
from brinell.engine.toml import parse_request
from brinell.store import rows
from brinell.store.folder import MANIFEST, fitting
from brinell.studies.epsilon import STUDY, EpsilonRequest
from brinell.studies.epsilon.result import Distances, budgets_by, limits_of
from brinell.studies.epsilon.run import DistanceSearch, make_plan
from brinell.studies.kit import Call


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """Options of `recommended`."""

    by: Literal["sample", "class", "set"] = "sample"
    conditions: tuple[Literal["label", "interpolation", "perception"], ...] = (
        "label",
        "interpolation",
        "perception",
    )


def resolve(request: Request, dataset: Dataset | None) -> tuple[Dataset, BudgetsBySample]:
    """Resolve the data and budgets of an audit whose eps is `recommended`; `dataset` is in memory,
    in place of `request.data`.
    """
    text = str(request.eps)
    name, path, options = plugins.parse(text)
    if name != "recommended":
        raise RequestError(
            f"eps {text!r} is no budget: write numbers, recommended or recommended:FOLDER"
        )
    chosen: Recommended = plugins.build_class("eps", name, Recommended, options)
    build_stages(request.attack)  # refuses a misspelt attack before the measurement
    dataset = open_data(request.data) if dataset is None else dataset
    table, allow = _load(path, dataset, request.norm) if path else _measure(request, dataset)
    ids = select_samples(request, dataset).ids
    if missing := np.setdiff1d(ids, table.sample_id).tolist():
        raise RequestError(
            f"{path or 'brinell epsilon'} does not cover sample {missing[0]}: "
            f"select fewer by {option('samples', 'first:N')}"
        )
    limits = {
        str(name): limit
        for name, limit in limits_of(table, request.norm).items()
        if name in chosen.conditions
    }
    if not limits:
        raise RequestError(
            f"{text!r} leaves no condition that was measured: add label or interpolation"
        )

    # By the position in the data; what was not measured has no budget.
    with fitting(Path(path)):
        budgets = np.full(int(table.sample_id.max()) + 1, np.nan)
        budgets[table.sample_id] = budgets_by(limits, table.label, chosen.by, allow)
    units = budgets[ids]
    if unlimited := int((~np.isfinite(units)).sum()):
        raise RequestError(
            f"nothing limits the eps of {unlimited} samples: data of one class has no sound eps"
        )
    if not units.any():
        raise RequestError(
            f"no eps above 0 is sound in {request.norm} under these conditions: "
            f"choose others, such as {text.partition('?')[0]}"
            "?conditions=label+interpolation"
        )

    # The grid counts multiples of each sample's own budget.
    grid = parse_eps("0:1:5")
    texts = tuple(f"{value}×" if value != "0" else "0" for value in grid.texts)
    provenance = _provenance(path, chosen, list(limits), units)
    return dataset, BudgetsBySample(Budgets(grid.values, texts), budgets, provenance)


def _provenance(
    path: str, chosen: "Recommended", conditions: list[str], units: Array
) -> dict[str, Any]:
    """The origin of budgets (n,), for the manifest of the audit."""
    return {
        "by": chosen.by,
        "conditions": conditions,
        "folder": path or None,
        "manifest": bounded.digest(Path(path) / MANIFEST) if path else None,
        "median": float(np.median(units)),
        "least": float(units.min()),
        "most": float(units.max()),
        "without": int((units == 0).sum()),
        "digest": hashlib.blake2b(units.astype("<f8").tobytes(), digest_size=16).hexdigest(),
    }


def _load(path: str, dataset: Dataset, norm: str) -> tuple[Distances, float]:
    """The rows of a folder in a norm, and the share that may break a condition."""
    content = STUDY.table().read(path)
    data = content.manifest["data"]
    settings = EpsilonRequest.model_validate(content.manifest["request"])
    if data["digest"] != dataset.digest():
        raise RequestError(
            f"{path} was made from other data than {dataset.name}: run brinell epsilon again"
        )

    if norm not in settings.norm:
        raise RequestError(
            f"nothing is recommended for {norm}, only for {', '.join(settings.norm)}: "
            f"run brinell epsilon with {option('norm', norm)}"
        )
    return rows.take(content.rows, content.rows.norm == norm), settings.allow


def _measure(request: Request, dataset: Dataset) -> tuple[Distances, float]:
    settings = parse_request(
        EpsilonRequest, {"norm": (request.norm,), "data": request.data, "seed": request.seed}
    )
    call = Call(
        study=STUDY,
        request=settings,
        command="",
        progress=SilentProgress(),
        datasets={"data": dataset},
    )
    return DistanceSearch(make_plan(call), settings).measure(request.norm), settings.allow
