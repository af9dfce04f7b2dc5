"""Runs with known answers: records and manifest made from the distance at which each stage breaks
each sample.
"""

from typing import Any

import numpy as np

from brinell.core.checks import Code
from brinell.core.record import COLUMNS, SCHEMA_VERSION, Records

TWO_STAGES = ("apgd-ce", "apgd-dlr")


CODES = (
    *list(Code)[: list(Code).index(Code.BLACK_BOX)],
    Code.PLATEAU,
    Code.WEIGHTS,
    Code.FRESH,
)


def manifest(
    models: list[str],
    eps: list[float],
    n: int,
    classes: list[str],
    stages: tuple[str, ...] = TWO_STAGES,
    shape: tuple[int, ...] = (1, 8, 8),
    kind: str = "image",
    **changes: Any,
) -> dict[str, Any]:
    value = {
        "schema": SCHEMA_VERSION,
        "brinell": "0.1.0",
        "revision": "0123456789abcdef+dirty",
        "cell": "c" * 24,
        "created": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:05:06+00:00",
        "command": "brinell audit --data digits --model " + " --model ".join(models),
        "request": {"attack": list(stages)},
        "seed": 0,
        "data": {
            "spec": "digits",
            "name": "digits",
            "digest": "d" * 32,
            "n": n,
            "total": n,
            "domain": {"kind": kind, "shape": list(shape), "low": 0.0, "high": 1.0, "levels": 256},
            "classes": classes,
        },
        "models": [
            {
                "name": name,
                "spec": name,
                "digest": "m" * 32,
                "architecture": "CNN",
                "parameters": 12345,
                "classes": len(classes),
                "access": "gradients",
            }
            for name in models
        ],
        "distance": "linf",
        "eps": eps,
        "eps_text": [f"{round(e * 255)}/255" for e in eps],
        "stages": [
            {
                "name": stage,
                "attack": "apgd",
                "settings": {"steps": 100},
                "family": "budgeted",
                "access": "gradients",
            }
            for stage in stages
        ],
        "skipped": [],
        "warnings": [],
        "checks": {
            name: [{"code": code, "passed": True, "text": "fine"} for code in CODES]
            for name in models
        },
        "versions": {"python": "3.11", "torch": "2.14", "numpy": "2.4"},
        "hardware": {"device": "cpu", "cpu": "a processor", "threads": 2, "cores": 2},
        "seconds": dict.fromkeys(models, 12.5),
    }
    return value | changes


def records(
    model: str,
    labels: np.ndarray,
    eps: list[float],
    breaks: np.ndarray,
    stages: tuple[str, ...] = TWO_STAGES,
    classes: int = 10,
) -> Records:
    """Rows as a finished run writes them.

    `breaks` is (stages, samples): the distance at which each stage breaks each sample; 0 in the
    first row: wrong from the start.
    """
    levels = np.array([budget for budget in eps if budget > 0])
    wrong = breaks[0] == 0
    wrong_class = (labels + 1) % classes
    parts = [_clean(model, labels, wrong, wrong_class)]
    before = np.where(wrong, 0, len(levels))
    for stage, distance in zip(stages, breaks, strict=True):
        samples = np.flatnonzero(before > 0)
        lowest = np.minimum((distance[:, None] > levels + 1e-12).sum(1), before)
        parts.append(
            _attacked(
                model,
                stage,
                labels,
                wrong_class,
                levels,
                samples,
                before[samples] - 1,
                lowest[samples],
                distance,
            )
        )
        before = np.minimum(before, lowest)
    return Records(
        **{
            name: np.ma.concatenate([p[name] for p in parts])
            if c.null
            else np.concatenate([p[name] for p in parts])
            for name, c in COLUMNS.items()
        }
    )


def _clean(
    model: str, labels: np.ndarray, wrong: np.ndarray, wrong_class: np.ndarray
) -> dict[str, np.ndarray]:
    n = len(labels)
    columns = _empty(n) | {
        "model": np.full(n, model, object),
        "sample_id": np.arange(n),
        "label": labels.astype(np.int32),
        "clean_pred": np.where(wrong, wrong_class, labels).astype(np.int32),
        "clean_confidence": np.full(n, 0.9, np.float32),
        "attack": np.full(n, "clean", object),
        "distance": np.full(n, "linf", object),
        "outcome": np.where(wrong, "misclassified", "correct").astype(object),
        "forwards": np.ones(n, np.int64),
        "unit": np.ones(n),
        "margin": np.ma.MaskedArray(np.full(n, -1, np.float32), mask=np.zeros(n, bool)),
    }
    return columns


def _attacked(
    model: str,
    stage: str,
    labels: np.ndarray,
    wrong_class: np.ndarray,
    levels: np.ndarray,
    samples: np.ndarray,
    attacked: np.ndarray,
    lowest: np.ndarray,
    distance: np.ndarray,
) -> dict[str, np.ndarray]:
    """Rows of the samples attacked at the levels `attacked`, and broken down to the levels
    `lowest`."""
    n, broken = len(samples), lowest <= attacked

    def found(values: Any, dtype: Any) -> np.ndarray:
        """A column of what only broken samples have."""
        return np.ma.MaskedArray(
            np.broadcast_to(np.where(broken, values, 0), n).astype(dtype), mask=~broken
        )

    size = np.where(np.isfinite(distance), distance, 0.0)[samples]
    attacks = 1 + (broken & (lowest > 0))
    return _empty(n) | {
        "model": np.full(n, model, object),
        "sample_id": samples,
        "label": labels[samples].astype(np.int32),
        "clean_pred": labels[samples].astype(np.int32),
        "clean_confidence": np.full(n, 0.9, np.float32),
        "attack": np.full(n, stage, object),
        "distance": np.full(n, "linf", object),
        "unit": np.ones(n),
        "attacked": np.ma.MaskedArray(levels[attacked], mask=np.zeros(n, bool)),
        "broken": found(np.append(levels, 0)[lowest], np.float64),
        "outcome": np.where(broken, "broken", "survived").astype(object),
        "adv_pred": found(wrong_class[samples], np.int32),
        "adv_confidence": found(0.6, np.float32),
        "adv_margin": found(0.5, np.float32),
        "margin": np.ma.MaskedArray(np.full(n, -0.5, np.float32), mask=broken & (lowest == 0)),
        "linf": found(size, np.float32),
        "l2": found(size * 8, np.float32),
        "l1": found(size * 64, np.float32),
        "l0": found(64, np.float32),
        "quantised_pred": found(wrong_class[samples], np.int32),
        "quantised_within": found(True, np.bool_),
        "forwards": 100 * attacks,
        "backwards": 100 * attacks,
        "judge_forwards": np.where(broken, 2, 0).astype(np.int64),
        "surrogate_passes": np.zeros(n, np.int64),
        "queries_to_success": found(1 + samples % 97, np.int64),
        "seconds": 0.01 * attacks,
    }


def _empty(n: int) -> dict[str, np.ndarray]:
    types = {"string": object, "bool": np.bool_}
    values: dict[str, np.ndarray] = {}
    for name, column in COLUMNS.items():
        kind = types.get(column.kind, column.kind)
        zeros = np.zeros(n, kind)
        values[name] = np.ma.MaskedArray(zeros, mask=np.ones(n, bool)) if column.null else zeros
    return values


def join(*parts: Records) -> Records:
    return Records(
        **{
            name: np.ma.concatenate([getattr(p, name) for p in parts])
            if c.null
            else np.concatenate([getattr(p, name) for p in parts])
            for name, c in COLUMNS.items()
        }
    )


def change(rows: Records, rows_to_change: np.ndarray, **columns: Any) -> Records:
    """`rows` with other values in some columns where `where` holds."""
    new = {name: getattr(rows, name).copy() for name in COLUMNS}
    for name, value in columns.items():
        new[name][rows_to_change] = value
    return Records(**new)


def keep(rows: Records, selection: np.ndarray) -> Records:
    return Records(**{name: getattr(rows, name)[selection] for name in COLUMNS})
