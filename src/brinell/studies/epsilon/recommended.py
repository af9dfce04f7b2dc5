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
from brinell.core.errors import RequestError
from brinell.engine.eps_grid import Budgets, parse_eps
from brinell.engine.toml import checked
from brinell.studies.epsilon import conditions
from brinell.studies.epsilon.records import limits_of, load_folder
from brinell.studies.epsilon.run import EpsilonRequest, measure

Array = np.ndarray[Any, Any]
OPTIONS = ("by", "conditions", "to", "points")


class _Quiet:
    def message(self, text: str) -> None:
        """Nothing."""


def recommended_budgets(
    text: str, spec: str, norm: str, seed: int, dataset: Dataset, n: int
) -> tuple[Budgets, Array, dict[str, Any]]:
    """The multiples that are tried, (n,) what they are multiples of, and what a manifest says of it.

    Args:
        text: as it was asked for.
        spec: the data's spec, for a message.
        norm: in which eps is measured.
        seed: of the random changes by which perceptibility is measured, where nothing was measured before.
        dataset: the data.
        n: how many samples, from the first.

    Raises:
        RequestError: an unknown option, a folder of other data, or samples without any limit.
    """
    _, path, options = plugins.parse(text)
    for name in options:
        if name not in OPTIONS:
            raise RequestError(f"there is no option {name!r} of recommended{plugins.nearest(name, OPTIONS)}")
    by = options.get("by", "sample")
    if by not in ("sample", "class", "set"):
        raise RequestError(f"by is {by!r} in {text!r}: it is sample, class or set")
    names = options.get("conditions", "").split("+") if "conditions" in options else list(conditions.CONDITIONS)
    if unknown := [name for name in names if name not in conditions.CONDITIONS]:
        raise RequestError(f"there is no condition {unknown[0]!r} in {text!r}: there are {', '.join(conditions.CONDITIONS)}")
    facts, samples = _measured(path, spec, norm, seed, dataset)
    if facts["data"]["n"] < n:
        raise RequestError(f"{path} knows the first {facts['data']['n']} samples, not {n}: ask for fewer by --samples")
    found = conditions.chosen(limits_of(facts, samples, norm), names)
    if not found:
        raise RequestError(f"{text!r} leaves no condition: {path or 'the data'} was judged by {', '.join(facts['conditions'])}")
    units = conditions.budgets(found, samples["labels"], by, facts["allow"], norm == "l0")[:n]
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
    return Budgets(grid.values, tuple(f"{value}×" if value != "0" else "0" for value in grid.texts)), units, about


def _measured(path: str, spec: str, norm: str, seed: int, dataset: Dataset) -> tuple[dict[str, Any], dict[str, Array]]:
    if not path:
        request = checked(EpsilonRequest, {"norm": (norm,), "data": spec, "seed": seed})
        facts, arrays = measure(request, _Quiet(), dataset=dataset)
        return facts, arrays["samples"]
    facts, arrays = load_folder(Path(path))
    if facts["data"]["digest"] != dataset.digest():
        raise RequestError(f"{path} was made from {facts['data']['name']} with other content than {dataset.name}: make it anew")
    return facts, arrays["samples"]
