"""Budgets of an audit by sample: `recommended`, or `recommended:FOLDER` of `brinell epsilon` (design/0013-epsilon.md).

Options: `by=sample` (the default), `class` or `set`; `conditions=label+interpolation` selects conditions. The budgets of a run
are `points` evenly spaced multiples of the recommended eps of a sample from 0 to `to` (default: 0, 0.25, 0.5, 0.75 and 1).
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from brinell import plugins
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.suggestions import suggestion
from brinell.engine.cascade import build_stages
from brinell.engine.eps_grid import Budgets, SampleBudgets, parse_eps
from brinell.engine.plan import select_samples
from brinell.engine.request import Request
from brinell.engine.sources import open_data
from brinell.engine.toml import parse_request
from brinell.store.folder import fitting
from brinell.studies.epsilon import EpsilonRequest, conditions
from brinell.studies.epsilon.records import load_folder, sample_limits
from brinell.studies.epsilon.run import measure

OPTIONS = ("by", "conditions", "to", "points")


def resolve(request: Request, dataset: Dataset | None) -> tuple[Dataset | None, SampleBudgets | None]:
    """Resolve the data and budgets of an audit whose eps is `recommended`. For other audits: `dataset` and None.

    Args:
        request: request of the audit.
        dataset: data in memory, instead of `request.data`.

    Raises:
        RequestError: an attack or option is unknown, the folder is for other data, or samples have no limit.
    """
    text = request.eps or ""
    name, path, options = plugins.parse(text) if text.startswith("recommended") else ("", "", {})
    if name != "recommended":
        return dataset, None
    build_stages(request.attack)  # refuses a misspelt attack before the measurement
    dataset = open_data(request.data) if dataset is None else dataset
    return dataset, _budgets(request, path, options, dataset)


def _budgets(request: Request, path: str, options: dict[str, Any], dataset: Dataset) -> SampleBudgets:
    """Budgets of the samples of an audit, from the options of `recommended` and its folder, or measured if `path` is empty."""
    text, norm, ids = str(request.eps), request.norm, select_samples(request, dataset).ids
    for name in options:
        if name not in OPTIONS:
            raise RequestError(f"there is no option {name!r} of recommended{suggestion(name, OPTIONS)}")
    by = options.get("by", "sample")
    if by not in ("sample", "class", "set"):
        raise RequestError(f"by is {by!r} in {text!r}: it is sample, class or set")
    names = options.get("conditions", "").split("+") if "conditions" in options else list(conditions.CONDITIONS)
    if unknown := [name for name in names if name not in conditions.CONDITIONS]:
        raise RequestError(f"there is no condition {unknown[0]!r} in {text!r}: there are {', '.join(conditions.CONDITIONS)}")
    facts, samples = _load_or_measure(path, request.data, norm, request.seed, dataset)
    if facts["data"]["n"] <= ids[-1]:
        raise RequestError(
            f"{path or 'brinell epsilon'} covers the first {facts['data']['n']} samples, not {ids[-1] + 1}: select fewer with "
            f"{option('samples')}, or use {option('select', 'first')}"
        )
    limits = conditions.select_limits(sample_limits(facts, samples, norm), names)
    if not limits:
        raise RequestError(f"{text!r} leaves no condition: {path or 'the data'} was judged by {', '.join(facts['conditions'])}")
    with fitting(Path(path)):
        budgets = conditions.budgets(limits, samples["labels"], by, facts["request"]["allow"], norm == "l0")
    units = budgets[ids]
    if not np.isfinite(units).all():
        raise RequestError(
            f"nothing limits the eps of {int((~np.isfinite(units)).sum())} samples: data of one class has no sound eps"
        )
    if not units.any():
        raise RequestError(
            f"no eps above 0 is sound in {norm} under these conditions: choose others, such as {text.partition('?')[0]}"
            "?conditions=label+interpolation"
        )
    grid = parse_eps(f"0:{options.get('to', '1')}:{options.get('points', '5')}")
    about = {
        "by": by,
        "conditions": list(limits),
        "folder": path or None,
        "median": float(np.median(units)),
        "least": float(units.min()),
        "most": float(units.max()),
        "without": int((units == 0).sum()),
        "digest": hashlib.blake2b(units.astype("<f8").tobytes(), digest_size=16).hexdigest(),
    }
    texts = tuple(f"{value}×" if value != "0" else "0" for value in grid.texts)
    return SampleBudgets(Budgets(grid.values, texts), budgets, about)


def _load_or_measure(path: str, spec: str, norm: str, seed: int, dataset: Dataset) -> tuple[dict[str, Any], dict[str, Array]]:
    """Load the facts and sample arrays of a folder, or measure them if `path` is empty."""
    if path:
        facts, arrays = load_folder(Path(path))
    else:
        request = parse_request(EpsilonRequest, {"norm": (norm,), "data": spec, "seed": seed})
        facts, arrays = measure(request, lambda text: None, dataset=dataset)
    if path and facts["data"]["digest"] != dataset.digest():
        raise RequestError(
            f"{path} was made from {facts['data']['name']} with other content than {dataset.name}: run brinell epsilon again"
        )
    return facts, arrays["samples"]
