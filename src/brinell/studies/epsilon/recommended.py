"""Budgets that are each sample's own: `recommended`, or `recommended:FOLDER` of `brinell epsilon` (design/0013-epsilon.md).

Options: `by=sample` (the default), `class` or `set`; `conditions=label+interpolation` keeps those alone; the budgets of a run are
`points` even multiples of a sample's recommended eps from 0 to `to` (0, 0.25, 0.5, 0.75 and 1 where nobody says otherwise).
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from brinell import plugins
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.engine.cascade import build_stages
from brinell.engine.eps_grid import Budgets, SampleBudgets, parse_eps
from brinell.engine.plan import open_data, select
from brinell.engine.request import Request
from brinell.engine.toml import checked
from brinell.store.folder import fitting
from brinell.studies.epsilon import conditions
from brinell.studies.epsilon.records import limits_of, load_folder
from brinell.studies.epsilon.request import EpsilonRequest
from brinell.studies.epsilon.run import measure

OPTIONS = ("by", "conditions", "to", "points")


def resolve(request: Request, dataset: Dataset | None) -> tuple[Dataset | None, SampleBudgets | None]:
    """The data and the budgets of an audit whose eps is `recommended`; of any other audit the data as given, and None.

    Args:
        request: the audit's.
        dataset: data already in memory, in place of `request.data`.

    Raises:
        RequestError: an unknown attack or option, a folder of other data, or samples without any limit.
    """
    text = request.eps or ""
    name, path, options = plugins.parse(text) if text.startswith("recommended") else ("", "", {})
    if name != "recommended":
        return dataset, None
    build_stages(request.attack, isolate=request.isolate)  # a misspelt attack is refused before anything is measured
    dataset = open_data(request.data) if dataset is None else dataset
    return dataset, _budgets(request, path, options, dataset)


def _budgets(request: Request, path: str, options: dict[str, Any], dataset: Dataset) -> SampleBudgets:
    text, norm, ids = str(request.eps), request.norm, select(request, dataset).ids
    for name in options:
        if name not in OPTIONS:
            raise RequestError(f"there is no option {name!r} of recommended{plugins.nearest(name, OPTIONS)}")
    by = options.get("by", "sample")
    if by not in ("sample", "class", "set"):
        raise RequestError(f"by is {by!r} in {text!r}: it is sample, class or set")
    names = options.get("conditions", "").split("+") if "conditions" in options else list(conditions.CONDITIONS)
    if unknown := [name for name in names if name not in conditions.CONDITIONS]:
        raise RequestError(f"there is no condition {unknown[0]!r} in {text!r}: there are {', '.join(conditions.CONDITIONS)}")
    facts, samples = _measured(path, request.data, norm, request.seed, dataset)
    if facts["data"]["n"] <= ids[-1]:
        raise RequestError(
            f"{path or 'brinell epsilon'} knows the first {facts['data']['n']} samples, not {ids[-1] + 1}: ask for fewer by "
            f"{option('samples')}, or for {option('select', 'first')}"
        )
    found = conditions.chosen(limits_of(facts, samples, norm), names)
    if not found:
        raise RequestError(f"{text!r} leaves no condition: {path or 'the data'} was judged by {', '.join(facts['conditions'])}")
    with fitting(Path(path)):
        each = conditions.budgets(found, samples["labels"], by, facts["allow"], norm == "l0")
    units = each[ids]
    if not np.isfinite(units).all():
        raise RequestError(
            f"nothing limits the eps of {int((~np.isfinite(units)).sum())} samples: data of one class has no sound eps"
        )
    if not units.any():
        raise RequestError(
            f"no eps above 0 is sound in {norm} by these conditions: choose others, such as {text.partition('?')[0]}"
            "?conditions=label+interpolation"
        )
    grid = parse_eps(f"0:{options.get('to', '1')}:{options.get('points', '5')}")
    about = {
        "by": by,
        "conditions": list(found),
        "folder": path or None,
        "median": float(np.median(units)),
        "least": float(units.min()),
        "most": float(units.max()),
        "without": int((units == 0).sum()),
        "digest": hashlib.blake2b(units.astype("<f8").tobytes(), digest_size=16).hexdigest(),
    }
    texts = tuple(f"{value}×" if value != "0" else "0" for value in grid.texts)
    return SampleBudgets(Budgets(grid.values, texts), each, about)


def _measured(path: str, spec: str, norm: str, seed: int, dataset: Dataset) -> tuple[dict[str, Any], dict[str, Array]]:
    if path:
        facts, arrays = load_folder(Path(path))
    else:
        request = checked(EpsilonRequest, {"norm": (norm,), "data": spec, "seed": seed})
        facts, arrays = measure(request, lambda text: None, dataset=dataset)
    if path and facts["data"]["digest"] != dataset.digest():
        raise RequestError(f"{path} was made from {facts['data']['name']} with other content than {dataset.name}: make it anew")
    return facts, arrays["samples"]
