"""Counter-examples made by hand: what a budget allows when it is spent on the image of another class, or of another sample.

`x0 + eps * sign(x1)` lays the outline of a sample of another class over a sample: where a person reads the other class, the
budget does not keep the label. `r * x_a + (1 - r) * x_b` walks from one sample of a class to its nearest, as far as the budget
goes: where it arrives, an "adversarial" input is another sample of the class, and an error there is one of generalisation.
"""

from typing import Any

import numpy as np
import torch

from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.shard import predict, session
from brinell.studies.epsilon import conditions
from brinell.studies.epsilon.perception import sizes
from brinell.studies.epsilon.records import limits_of

ROWS = 10
"""Classes that are shown."""
USUAL = (0.1, 0.2, 0.3)
"""Budgets in Linf that are used everywhere; those that fit into the range are shown beside the recommended one."""


def craft(
    points: Any, facts: dict[str, Any], samples: dict[str, Array], model: Model | None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Pictures (k, *shape) under their names, and what is said about each.

    Args:
        points: the data (`studies.epsilon.run.Points`).
        facts: of the analysis so far.
        samples: its arrays by sample.
        model: a model that is asked what it sees, or None.
    """
    labels, low = points.labels, float(points.domain.bounds()[0].min())
    present = np.unique(labels)[:ROWS]
    norm = "linf" if "linf" in facts["norms"] else facts["norms"][0]
    found = limits_of(facts, samples, norm)
    recommended = conditions.common(found, facts["allow"], norm == "l0").eps
    each = conditions.budgets(found, labels, "class", facts["allow"], norm == "l0")
    span = float((points.domain.bounds()[1] - points.domain.bounds()[0]).max())
    visible = conditions.chosen(found, [conditions.LABEL, conditions.INTERPOLATION])
    seen = conditions.common(visible, facts["allow"], norm == "l0").eps if visible else np.inf
    usual = (u * span for u in USUAL) if norm == "linf" else ()
    eps = sorted({e for e in (recommended, seen, *usual) if np.isfinite(e) and e > 0})
    shape, told, pictures = points.domain.shape, [], []
    for i, label in enumerate(present.tolist()):
        here = int(np.flatnonzero(labels == label)[0])
        base = points.x[here].reshape(shape)
        about = {"label": int(label), "sample": here, "class_eps": float(each[here])}
        if norm == "linf" and len(present) > 1:
            there = int(np.flatnonzero(labels == present[(i + 1) % len(present)])[0])
            sign = (points.x[there].reshape(shape) - low).sign()  # bounds may begin elsewhere than at 0
            for budget in eps:
                pictures.append(points.domain.clamp((base + budget * sign)[None])[0])
                told.append(about | {"kind": "between", "other": there, "other_label": int(labels[there]), "eps": budget})
        there = int(samples[f"{norm}.same_at"][here])
        if there >= 0:
            other = points.x[there].reshape(shape)
            gap = float(sizes(norm, (other - base)[None]))
            for budget in eps:
                # In L0 nothing lies on the way: a value has changed or not.
                share = min(1.0, budget / gap) if norm != "l0" else float(budget >= gap)
                pictures.append(base + share * (other - base))
                told.append(
                    about
                    | {"kind": "within", "other": there, "other_label": int(label), "eps": budget, "r": 1 - share, "gap": gap}
                )
    arrays = {"pictures": torch.stack(pictures).numpy()} if pictures else {"pictures": np.zeros((0, *shape), np.float32)}
    shown = np.unique([one[key] for one in told for key in ("sample", "other")]).astype(np.int64)
    arrays |= {"ids": shown, "clean": points.x[torch.from_numpy(shown)].reshape(-1, *shape).numpy()}
    if model is not None and told:
        _ask(model, arrays, told)
    return arrays, {
        "norm": norm,
        "eps": eps,
        "recommended": recommended if np.isfinite(recommended) else None,
        "model": None if model is None else model.name,
        "pictures": told,
    }


def _ask(model: Model, arrays: dict[str, Array], told: list[dict[str, Any]]) -> None:
    """Add what a model says of each picture, and of the clean sample that it was made from."""
    with session(model, torch.device("cpu")):
        says, clean = (predict(model, torch.from_numpy(arrays[kind]), 128).argmax(1).tolist() for kind in ("pictures", "clean"))
    before = dict(zip(arrays["ids"].tolist(), clean, strict=True))
    for one, pred in zip(told, says, strict=True):
        one |= {"pred": int(pred), "clean_pred": int(before[one["sample"]])}
