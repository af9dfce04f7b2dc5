"""Corruption errors from records: by severity and kind, their means relative to a reference, per class, placed beside whole.

Hendrycks & Dietterich 2019, section 4.2: CE is the sum of a model's errors over the severities divided by that of the reference,
mCE its mean over the fifteen kinds; the relative ones first subtract the errors on clean inputs from both.
"""

from collections.abc import Sequence

import numpy as np

from brinell.analysis.ranks import percentile_interval
from brinell.analysis.robust_accuracy import class_name, mean, rate
from brinell.analysis.stats import mcnemar, paired_difference
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.corruption.records import Answers
from brinell.studies.corruption.results import (
    ClassLoss,
    CorruptModel,
    CorruptResult,
    Error,
    KindResult,
    Level,
)

CLEAN = "clean"
FIFTEEN = tuple(
    f"published-{name}"
    for name in (
        *("gaussian-noise", "shot-noise", "impulse-noise", "defocus-blur", "glass-blur", "motion-blur", "zoom-blur"),
        *("snow", "frost", "fog", "brightness", "contrast", "elastic-transform", "pixelate", "jpeg-compression"),
    )
)
"""The kinds over which the mean corruption error is taken."""
NOTHING = Error(value=None, low=None, high=None)


class _Errors:
    """Errors of every model as numbers: on clean inputs (models, n), and (models, kinds, severities, n)."""

    def __init__(self, corruption: Folder[Answers]) -> None:
        facts, answers = corruption.manifest, corruption.rows
        self.names = [str(one["name"]) for one in facts["models"]]
        self.kinds, self.severities = [str(kind) for kind in facts["kinds"]], [int(one) for one in facts["severities"]]
        self.parts = {(name, kind, s): one for (name, kind, s), one in _split(answers).items()}
        self.clean = np.stack([self._wrong(name, CLEAN, 0) for name in self.names])
        self.labels = self.parts[self.names[0], CLEAN, 0].label
        self.wrong: Array = np.stack(
            [[[self._wrong(name, kind, s) for s in self.severities] for kind in self.kinds] for name in self.names]
        )

    def _wrong(self, name: str, kind: str, severity: int) -> Array:
        mine = self.parts[name, kind, severity]
        return np.asarray(mine.pred != mine.label)


def _split(answers: Answers) -> dict[tuple[str, str, int], Answers]:
    """The rows by model, kind and severity, each in the order of the samples."""
    keys = np.char.add(np.char.add(answers.model.astype(str), "\0"), answers.kind.astype(str))
    _, number = np.unique(keys, return_inverse=True)
    group = number * 10 + answers.severity
    order = np.lexsort((answers.sample_id, group))
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0])
    found = {}
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        mine = rows.take(answers, order[start:end])
        found[str(mine.model[0]), str(mine.kind[0]), int(mine.severity[0])] = mine
    return found


def summarise(corruption: Folder[Answers]) -> CorruptResult:
    """The folder in figures."""
    facts = corruption.manifest
    errors = _Errors(corruption)
    reference = facts["request"]["reference"]
    base = None if reference is None else errors.names.index(reference)
    notes = _notes(errors, base)
    models = [_model(errors, at, base, facts) for at in range(len(errors.names))]
    shown = next((one for one in models if one.model != reference), models[0])
    return CorruptResult(
        folder=str(corruption.path),
        data=str(facts["data"]["name"]),
        n=errors.clean.shape[1],
        reference=reference,
        mce=shown.mce,
        kinds=[_level(errors, name, kind, s) for name in errors.names for kind in errors.kinds for s in errors.severities],
        models=models,
        notes=notes,
    )


def _notes(errors: _Errors, base: int | None) -> list[str]:
    notes = []
    if base is None:
        notes.append("no --reference is named, so there is no mean corruption error")
    else:
        perfect = [kind for kind, wrong in zip(errors.kinds, errors.wrong[base], strict=True) if not wrong.any()]
        if perfect:
            notes.append(
                f"{errors.names[base]} makes no error under {', '.join(perfect)}: the corruption error is undefined there, and "
                "with it the mean; name a reference that errs"
            )
    left = [kind for kind in FIFTEEN if kind not in errors.kinds]
    if base is not None and (left or len(errors.severities) < 5):
        what = f"{len(FIFTEEN) - len(left)} of the {len(FIFTEEN)} published kinds at severities {errors.severities}"
        notes.append(f"the mean corruption error is over {what}, and does not compare with published ones")
    return notes


def _model(errors: _Errors, at: int, base: int | None, facts: object) -> CorruptModel:
    assert isinstance(facts, dict)
    n = errors.clean.shape[1]
    draws, seed = int(facts["request"]["draws"]), int(facts["request"]["seed"])
    weights = np.concatenate([np.ones((1, n)), np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws)]).astype(
        np.float32
    )
    own, clean = _sums(weights, errors.wrong[at], errors.clean[at])
    ces = relatives = None
    if base is not None:
        theirs, clean_of = _sums(weights, errors.wrong[base], errors.clean[base])
        severities = len(errors.severities)
        with np.errstate(divide="ignore", invalid="ignore"):
            ces = own / theirs
            relatives = (own - severities * clean[:, None]) / (theirs - severities * clean_of[:, None])
    members = [i for i, kind in enumerate(errors.kinds) if kind in FIFTEEN]
    names = [str(name) for name in facts["data"]["classes"]]
    return CorruptModel(
        model=errors.names[at],
        clean=rate(int((~errors.clean[at]).sum()), n),
        accuracy=float(1 - errors.wrong[at].mean()) if errors.wrong[at].size else None,
        mce=_error(None if ces is None or not members else ces[:, members].mean(1)),
        relative_mce=_error(None if relatives is None or not members else relatives[:, members].mean(1)),
        kinds=[
            KindResult(
                kind=kind,
                accuracy=float(1 - errors.wrong[at, i].mean()),
                ce=_error(None if ces is None else ces[:, i]),
                relative_ce=_error(None if relatives is None else relatives[:, i]),
            )
            for i, kind in enumerate(errors.kinds)
        ],
        per_class=[_class(errors, at, int(index), names) for index in np.unique(errors.labels)],
    )


def _sums(weights: Array, wrong: Array, clean: Array) -> tuple[Array, Array]:
    """(draws, kinds) errors summed over the severities, and (draws,) those on clean inputs, as shares of the samples."""
    n = len(clean)
    return weights @ wrong.sum(1).T.astype(np.float32) / n, weights @ clean.astype(np.float32) / n


def _error(draws: Array | None) -> Error:
    """The first of the draws is the value itself."""
    if draws is None or not np.isfinite(draws[0]):
        return NOTHING
    low, high = percentile_interval(draws[1:], float(draws[0]))
    return Error(value=float(draws[0]), low=low, high=high)


def _class(errors: _Errors, at: int, index: int, names: Sequence[str]) -> ClassLoss:
    mine = errors.labels == index
    return ClassLoss(
        class_=index,
        name=class_name(names, index),
        n=int(mine.sum()),
        clean=rate(int((~errors.clean[at, mine]).sum()), int(mine.sum())),
        accuracy=mean([float(1 - errors.wrong[at][..., mine].mean())]),
    )


def _level(errors: _Errors, name: str, kind: str, severity: int) -> Level:
    mine = errors.parts[name, kind, severity]
    right = mine.pred == mine.label
    tried = ~np.ma.getmaskarray(mine.placed)
    placed = uniform = cost = low = high = p = None
    if tried.any():
        stayed, whole = ~np.ma.getdata(mine.placed)[tried], right[tried]
        n = int(tried.sum())
        both, first = int((stayed & whole).sum()), int((stayed & ~whole).sum())
        second, neither = int((~stayed & whole).sum()), int((~stayed & ~whole).sum())
        placed, uniform = rate(int(stayed.sum()), n), rate(int(whole.sum()), n)
        cost = (first - second) / n
        low, high = paired_difference(both, first, second, neither) or (None, None)
        p = mcnemar(first, second)
    return Level(
        model=name,
        kind=kind,
        severity=severity,
        accuracy=rate(int(right.sum()), len(mine)),
        median_l2=float(np.median(mine.l2)) if len(mine) else None,
        placed=placed,
        uniform=uniform,
        cost=cost,
        low=low,
        high=high,
        p=p,
    )
