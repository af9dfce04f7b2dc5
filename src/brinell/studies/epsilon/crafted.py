"""Counter-examples without an attack: changes within a budget towards a sample of another class or of the same class.

`x0 + eps * sign(x1)` adds the outline of a sample of another class to a sample. If a person sees the second class, the budget
does not keep the label. `r * x_a + (1 - r) * x_b` interpolates from a sample towards the nearest sample of its class, as far as
the budget allows. If it reaches that sample, an error there is a generalisation error.
"""

from typing import Any

import numpy as np
import torch

from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.group_attack import predict, session
from brinell.studies.epsilon import conditions
from brinell.studies.epsilon.perception import sizes
from brinell.studies.epsilon.records import sample_limits

MOST_CLASSES = 10
"""Largest number of classes with counter-examples."""
USUAL = (0.1, 0.2, 0.3)
"""Usual budgets in Linf, as a share of the range of the data."""


def craft_examples(
    points: Any, facts: dict[str, Any], samples: dict[str, Array], model: Model | None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Craft counter-examples: pictures (k, *shape) and clean inputs by array name, and facts for the manifest.

    Args:
        points: the data (`studies.epsilon.run.Points`).
        facts: facts of the analysis so far.
        samples: arrays of the analysis by sample.
        model: a model that classifies the counter-examples, or None.
    """
    labels, low = points.labels, float(points.domain.bounds()[0].min())
    present = np.unique(labels)[:MOST_CLASSES]
    norm = "linf" if "linf" in facts["norms"] else facts["norms"][0]
    limits = sample_limits(facts, samples, norm)
    recommended = conditions.common_budget(limits, facts["request"]["allow"], norm == "l0").eps
    budgets = conditions.budgets(limits, labels, "class", facts["request"]["allow"], norm == "l0")
    span = float((points.domain.bounds()[1] - points.domain.bounds()[0]).max())
    visible = conditions.select_limits(limits, [conditions.LABEL, conditions.INTERPOLATION])
    sound = conditions.common_budget(visible, facts["request"]["allow"], norm == "l0").eps if visible else np.inf
    usual = (u * span for u in USUAL) if norm == "linf" else ()
    eps = sorted({e for e in (recommended, sound, *usual) if np.isfinite(e) and e > 0})
    shape, records, pictures = points.domain.shape, [], []
    for i, label in enumerate(present.tolist()):
        base_index = int(np.flatnonzero(labels == label)[0])
        base = points.x[base_index].reshape(shape)
        common = {"label": int(label), "sample": base_index, "class_eps": float(budgets[base_index])}
        if norm == "linf" and len(present) > 1:
            second_index = int(np.flatnonzero(labels == present[(i + 1) % len(present)])[0])
            sign = (points.x[second_index].reshape(shape) - low).sign()  # the lower bound may differ from 0
            for budget in eps:
                pictures.append(points.domain.clamp((base + budget * sign)[None])[0])
                pair = {"kind": "between", "second": second_index, "second_label": int(labels[second_index])}
                records.append(common | pair | {"eps": budget})
        second_index = int(samples[f"{norm}.same_at"][base_index])
        if second_index >= 0:
            second = points.x[second_index].reshape(shape)
            gap = float(sizes(norm, (second - base)[None]))
            for budget in eps:
                # L0 has no intermediate inputs: a value has changed or not.
                share = min(1.0, budget / gap) if norm != "l0" else float(budget >= gap)
                pictures.append(base + share * (second - base))
                pair = {"kind": "within", "second": second_index, "second_label": int(label)}
                records.append(common | pair | {"eps": budget, "r": 1 - share, "gap": gap})
    arrays = {"pictures": torch.stack(pictures).numpy()} if pictures else {"pictures": np.zeros((0, *shape), np.float32)}
    clean_ids = np.unique([record[key] for record in records for key in ("sample", "second")]).astype(np.int64)
    arrays |= {"ids": clean_ids, "clean": points.x[torch.from_numpy(clean_ids)].reshape(-1, *shape).numpy()}
    if model is not None and records:
        _add_predictions(model, arrays, records)
    return arrays, {
        "norm": norm,
        "eps": eps,
        "recommended": recommended if np.isfinite(recommended) else None,
        "model": None if model is None else model.name,
        "pictures": records,
    }


def _add_predictions(model: Model, arrays: dict[str, Array], records: list[dict[str, Any]]) -> None:
    with session(model, torch.device("cpu")):
        predictions, clean = (
            predict(model, torch.from_numpy(arrays[kind]), 128).argmax(1).tolist() for kind in ("pictures", "clean")
        )
    before = dict(zip(arrays["ids"].tolist(), clean, strict=True))
    for record, pred in zip(records, predictions, strict=True):
        record |= {"pred": int(pred), "clean_pred": int(before[record["sample"]])}
