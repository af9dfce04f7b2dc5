"""Corruption errors from records: by severity and kind, their means relative to a reference, per class, placed beside whole.

Hendrycks & Dietterich 2019, section 4.2: CE is the sum of a model's errors over the severities divided by that of the reference,
mCE its mean over the fifteen kinds; the relative ones first subtract the errors on clean inputs from both.
"""

from collections.abc import Sequence

import numpy as np

from brinell.analysis.attainable import Attainable, attainable, pairs, sentences, smallest_mcnemar, smallest_mean
from brinell.analysis.inference import Order, holm, order
from brinell.analysis.means import mean_difference, pseudo_values
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.robust_accuracy import class_name, rate
from brinell.core.record import Array
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.corruption.records import Answers
from brinell.studies.corruption.results import (
    ClassLoss,
    CorruptModel,
    CorruptResult,
    End,
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
UNCHANGED = 1e-6
"""Euclidean length up to which a sample counts as unchanged."""
UNDEFINED = Error(value=None, low=None, high=None)


class _Errors:
    """Errors of every model as arrays: (models, n) on clean inputs, and (models, kinds, severities, n)."""

    def __init__(self, corruption: Folder[Answers]) -> None:
        facts, answers = corruption.manifest, corruption.rows
        self.names = [str(model["name"]) for model in facts["models"]]
        self.kinds, self.severities = [str(kind) for kind in facts["kinds"]], [int(severity) for severity in facts["severities"]]
        self.parts = {(name, kind, s): rows for (name, kind, s), rows in _split(answers).items()}
        self.clean = np.stack([self._wrong(name, CLEAN, 0) for name in self.names])
        self.labels = self.parts[self.names[0], CLEAN, 0].label
        self.wrong: Array = np.stack(
            [[[self._wrong(name, kind, s) for s in self.severities] for kind in self.kinds] for name in self.names]
        )
        sizes = [max(float(self.parts[self.names[0], kind, s].l2.max()) for s in self.severities) for kind in self.kinds]
        self.active = [number for number, size in enumerate(sizes) if size > UNCHANGED]
        """The kinds that change any sample."""

    def _wrong(self, name: str, kind: str, severity: int) -> Array:
        """(n,) bool: samples that a model misclassifies under a corruption."""
        answers = self.parts[name, kind, severity]
        return np.asarray(answers.pred != answers.label)


def _split(answers: Answers) -> dict[tuple[str, str, int], Answers]:
    """The rows by model, kind and severity, each in the order of the samples."""
    keys = np.char.add(np.char.add(answers.model.astype(str), "\0"), answers.kind.astype(str))
    _, number = np.unique(keys, return_inverse=True)
    group = number * 10 + answers.severity
    order = np.lexsort((answers.sample_id, group))
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0])
    parts = {}
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        part = rows.take(answers, order[start:end])
        parts[str(part.model[0]), str(part.kind[0]), int(part.severity[0])] = part
    return parts


def summarise(corruption: Folder[Answers]) -> CorruptResult:
    """Summarise a corruption folder."""
    facts = corruption.manifest
    errors = _Errors(corruption)
    reference = facts["request"]["reference"]
    base = None if reference is None else errors.names.index(reference)
    notes = _notes(errors, base, int(facts["request"]["placed"]))
    models = [_model(errors, number, base, facts) for number in range(len(errors.names))]
    levels = [_level(errors, name, kind, s) for name in errors.names for kind in errors.kinds for s in errors.severities]
    placed = [level.placed.n for level in levels if level.placed is not None]
    possible = families(len(errors.active), errors.clean.shape[1], len(placed), max(placed, default=0))
    headline = next((model for model in models if model.model != reference), models[0])
    return CorruptResult(
        folder=str(corruption.path),
        data=str(facts["data"]["name"]),
        n=errors.clean.shape[1],
        reference=reference,
        mce=headline.mce,
        kinds=_correct_p_values(levels),
        models=models,
        attainable=possible,
        notes=[*notes, *sentences(possible)],
    )


def families(kinds: int, n: int, cells: int, placed: int) -> list[Attainable]:
    """The comparisons of a study: of `kinds` corruptions on `n` samples, and of `cells` with `placed` corruptions each."""
    order_of_kinds = attainable("corruption can be shown to cost more than another", pairs(kinds), "samples", n, smallest_mean)
    cost = attainable("cost of placement can be shown", cells, "placed samples", placed, smallest_mcnemar)
    return [order_of_kinds] * (kinds > 1) + [cost] * (cells > 0)


def _notes(errors: _Errors, base: int | None, placed: int) -> list[str]:
    """Notes on what no mean includes, on the reference, and on the scope of the mean corruption error."""
    notes = []
    if inert := [kind for number, kind in enumerate(errors.kinds) if number not in errors.active]:
        notes.append(
            f"{', '.join(inert)} changes none of these samples at any severity: the means are over the other "
            f"{len(errors.active)} of {len(errors.kinds)} corruptions"
        )
    perfect: list[str] = []
    if base is None:
        notes.append("without --reference there is no mean corruption error")
    else:
        perfect = [errors.kinds[number] for number in errors.active if not errors.wrong[base, number].any()]
        if perfect:
            others = [
                k
                for k in range(len(errors.names))
                if k != base and all(errors.wrong[k, number].any() for number in errors.active)
            ]
            cure = f"choose {errors.names[others[0]]} as the reference" if others else "take more samples, or leave that kind out"
            notes.append(
                f"{errors.names[base]} makes no error under {', '.join(perfect)}: the corruption error and its mean are "
                f"undefined; {cure}"
            )
    missing = [kind for kind in FIFTEEN if kind not in [errors.kinds[number] for number in errors.active]]
    if base is not None and not perfect and (missing or len(errors.severities) < 5):
        scope = f"{len(FIFTEEN) - len(missing)} of the {len(FIFTEEN)} published kinds at severities {errors.severities}"
        notes.append(f"the mean corruption error is over {scope}, and does not compare with published ones")
    return [*notes, *([_without_placement(errors)] if placed and _without_placement(errors) else [])]


def _without_placement(errors: _Errors) -> str:
    """A note on the cells in which nothing was placed; empty if there are none."""
    cells = [(name, kind, s) for name in errors.names for kind in errors.kinds for s in errors.severities]
    empty = [cell for cell in cells if np.ma.getmaskarray(errors.parts[cell].placed).all()]
    if not empty:
        return ""
    kinds = ", ".join(dict.fromkeys(kind for _, kind, _ in empty))
    return (
        f"in {len(empty)} of {len(cells)} cells nothing was placed ({kinds}): the corruption changes no sample that the model "
        f"classifies correctly; figures of placement are over the other {len(cells) - len(empty)}"
    )


def _model(errors: _Errors, number: int, base: int | None, facts: object) -> CorruptModel:
    assert isinstance(facts, dict)
    wrong, clean = errors.wrong[number].sum(1).astype(np.float64), errors.clean[number]
    ces: Array | None = None
    relatives: Array | None = None
    if base is not None:
        severities = len(errors.severities)
        reference, reference_clean = errors.wrong[base].sum(1).astype(np.float64), errors.clean[base]
        ces = np.stack([pseudo_values(*pair) for pair in zip(wrong, reference, strict=True)])
        excess, reference_excess = wrong - severities * clean, reference - severities * reference_clean
        relatives = np.stack([pseudo_values(*pair) for pair in zip(excess, reference_excess, strict=True)])
    members = [i for i in errors.active if errors.kinds[i] in FIFTEEN]
    names = [str(name) for name in facts["data"]["classes"]]
    ordered = _order(errors, number)
    return CorruptModel(
        model=errors.names[number],
        clean=rate(int((~clean).sum()), len(clean)),
        accuracy=float(1 - errors.wrong[number, errors.active].mean()) if errors.active else None,
        most=_end(errors, ordered, -1),
        least=_end(errors, ordered, 1),
        mce=_error(None if ces is None or not members else ces[members].mean(0)),
        relative_mce=_error(None if relatives is None or not members else relatives[members].mean(0)),
        kinds=[
            KindResult(
                kind=kind,
                active=i in errors.active,
                accuracy=float(1 - errors.wrong[number, i].mean()),
                ce=_error(None if ces is None else ces[i]),
                relative_ce=_error(None if relatives is None else relatives[i]),
            )
            for i, kind in enumerate(errors.kinds)
        ],
        per_class=[_class(errors, number, int(index), names) for index in np.unique(errors.labels)],
    )


def _order(errors: _Errors, number: int) -> Order:
    """The corruptions that change a sample, in order of the accuracy of a model, compared on the same samples."""
    accuracies = 1 - errors.wrong[number, errors.active].mean(1)

    def compare(i: int, j: int) -> float:
        """P-value of two corruptions."""
        difference = mean_difference(accuracies[i] - accuracies[j])
        return 1.0 if difference is None else difference.p

    return order(accuracies.mean(1), compare)


def _end(errors: _Errors, ordered: Order, sign: int) -> End | None:
    """The corruption with the largest (`sign` 1) or smallest (-1) accuracy; None with fewer than two, or if all are equal."""
    if len(ordered.values) < 2 or np.ptp(ordered.values) == 0:
        return None
    kinds, index = [errors.kinds[i] for i in errors.active], int((sign * ordered.values).argmax())
    return End(kind=kinds[index], rivals=[kinds[i] for i in ordered.rivals(index)])


def _error(values: Array | None) -> Error:
    """A ratio of errors with its interval, from the pseudo-values (n,) of the samples."""
    estimate = None if values is None or not np.isfinite(values).all() else mean_difference(values)
    if estimate is None:
        return UNDEFINED
    low, high = estimate.interval or (None, None)
    return Error(value=estimate.value, low=low, high=high)


def _correct_p_values(levels: Sequence[Level]) -> list[Level]:
    """The levels with their p-values corrected for the number of comparisons (Holm)."""
    corrected = iter(holm([level.p for level in levels if level.p is not None]))
    return [level if level.p is None else level.model_copy(update={"p": next(corrected)}) for level in levels]


def _class(errors: _Errors, number: int, index: int, names: Sequence[str]) -> ClassLoss:
    """Accuracy of one class on clean and corrupted inputs."""
    members = errors.labels == index
    return ClassLoss(
        class_=index,
        name=class_name(names, index),
        n=int(members.sum()),
        clean=rate(int((~errors.clean[number, members]).sum()), int(members.sum())),
        accuracy=float(1 - errors.wrong[number, errors.active][..., members].mean()) if errors.active else None,
    )


def _level(errors: _Errors, name: str, kind: str, severity: int) -> Level:
    """Figures of one corruption at one severity."""
    answers = errors.parts[name, kind, severity]
    right = answers.pred == answers.label
    attempted = ~np.ma.getmaskarray(answers.placed)
    placed = uniform = cost = low = high = p = None
    if attempted.any():
        right_placed, right_uniform = ~np.ma.getdata(answers.placed)[attempted], right[attempted]
        n = int(attempted.sum())
        both_right, only_placed = int((right_placed & right_uniform).sum()), int((right_placed & ~right_uniform).sum())
        only_uniform, both_wrong = int((~right_placed & right_uniform).sum()), int((~right_placed & ~right_uniform).sum())
        placed, uniform = rate(int(right_placed.sum()), n), rate(int(right_uniform.sum()), n)
        cost = (only_placed - only_uniform) / n
        low, high = paired_difference(both_right, only_placed, only_uniform, both_wrong) or (None, None)
        p = mcnemar(only_placed, only_uniform)
    return Level(
        model=name,
        kind=kind,
        severity=severity,
        accuracy=rate(int(right.sum()), len(answers)),
        median_l2=float(np.median(answers.l2)) if len(answers) else None,
        placed=placed,
        uniform=uniform,
        cost=cost,
        low=low,
        high=high,
        p=p,
    )
