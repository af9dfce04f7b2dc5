"""What manifests of all kinds say, as forms (`core.form`): the data, the models, and how the folder came to be."""

from typing import Any

from brinell.core.form import Count, Number, Row, Word

LONGEST = 10**6
"""Values along one axis of an input at most, and classes, budgets and stages of a run."""
MOST_PARTS = 10**6
"""Parts of a folder at most."""
STATE = Word("running", "finished")
DOMAIN: dict[Any, Any] = {
    "kind": Word("image", "signal", "video", "vector"),
    "shape": [Count(1, LONGEST)],
    "low": (Number(), [Number()]),
    "high": (Number(), [Number()]),
    "levels": (Count(2), None),
    "columns?": [Row(str, Number(), Number(), bool, [str])],
}
SAMPLING: dict[Any, Any] = {"rate": Number(1e-9, 1e12), "unit": str, "start": Number(), "leads": [str]}
DATA: dict[Any, Any] = {
    "spec": str,
    "name": str,
    "digest": str,
    "n": Count(),
    "total": Count(),
    "select?": str,
    "domain": DOMAIN,
    "sampling?": (SAMPLING, None),
    "classes": [str],
    "notes?": [str],
}
MODEL: dict[Any, Any] = {
    "name": str,
    "spec?": str,
    "digest": str,
    "architecture": (str, None),
    "parameters": (Count(), None),
    "classes": Count(1, LONGEST),
    "access": Word("labels", "scores", "gradients"),
    "notes?": [str],
}
HEAD: dict[Any, Any] = {
    "brinell": str,
    "revision": (str, None),
    "state": STATE,
    "created": str,
    "finished": (str, None),
    "command": str,
    "request": dict,
    "made_here?": (str, None),
    "versions": {str: (str, None)},
    "hardware": {"device": str, "cpu": str, "threads": Count(), "cores": (Count(), None)},
    "answers?": {str: (str, None)},
    "probes?": {str: {"forwards": Count(), "backwards": Count()}},
}
"""Of every folder that is filled part after part."""


def misfit(data: Any) -> str | None:
    """What does not fit together in DATA that have their form; None where all does."""
    domain = data["domain"]
    bounds = [bound if isinstance(bound, list) else [bound] for bound in (domain["low"], domain["high"])]
    if not domain["shape"] or any(len(bound) not in (1, domain["shape"][0]) for bound in bounds):
        return "data.domain has bounds for another number of channels than its shape has"
    wide = max(map(len, bounds))
    low, high = (bound * (wide // len(bound)) for bound in bounds)
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return "data.domain has a lower bound that is not below the upper one"
    axes = {"image": 3, "signal": 2, "video": 4, "vector": 1}[domain["kind"]]
    return (
        None if len(domain["shape"]) == axes else f"data.domain has {len(domain['shape'])} axes, and its kind is {domain['kind']}"
    )
