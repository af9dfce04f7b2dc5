"""The check of clean accuracy before any attack: does the model get its inputs in the form of its training?

A model that is shown inputs without the normalisation that it was trained with, or whose classes are in another order than the
labels, is wrong on clean inputs, and its robust accuracy is low for a reason that has nothing to do with attacks. The check
compares clean accuracy with chance, with the same answers under other labels, and with the answers to the same inputs in other
forms and of the model in another state, alone and in pairs. It proposes only what makes the model right; otherwise it says
whether the labels belong to the inputs. Limits and blind spots: docs/reference/checks.md.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.input_forms import InputForm, input_forms, paired_forms, state_forms
from brinell.engine.relabelling import LEAST_RATE, far_better, relabelled, sign_test
from brinell.engine.shard import predict

SAMPLES = 64
"""Number of samples on which other forms are tried, spread over the classes."""
STRIDE = 4
"""Every `STRIDE`-th of these samples is tried first; the others only in forms that gain on those."""
MIN_GAIN = 2
"""Minimum number of additional correct answers among the samples tried first."""
MIN_SAMPLES = 12
"""Fewest samples with which accuracy is compared with chance."""
PAIR_SIGNIFICANCE = 1e-2
"""Largest probability of the gains of a pair of forms over the better single form by chance, at which the pair is proposed."""
COMPARED = 256
"""Number of samples on which a pair of forms is compared with the better single form."""
SOLVED = 0.9
"""Accuracy in a single form from which on pairs are not tried."""
LOW = 0.5
"""Accuracy from which on pairs of forms are not tried."""
LEAST_FORM_RATE = 0.4
"""Least accuracy in another form, at which it is proposed; half of it for more than `MANY_CLASSES` classes."""
MANY_CLASSES = 50
"""Number of classes above which less accuracy is asked for."""
NEIGHBOURS = 500
"""Number of inputs whose nearest neighbours are looked at."""
MIN_NEIGHBOURS = 100
"""Fewest inputs by whose neighbours labels are called unrelated to inputs."""
RELATED, UNRELATED = 5.0, 3.0
"""Deviations above chance of labels shared with the nearest neighbour, from and up to which they belong to the inputs or not."""
MOST_VALUES = 4096
"""Most values of an input that count in a distance to a neighbour."""


def check_clean_accuracy(
    model: Model,
    pred: Array,
    labels: Array,
    load: Callable[[Array], Tensor],
    *,
    spec: str = "",
    classes: Sequence[str] = (),
    batch_size: int = 128,
) -> tuple[Finding, int]:
    """Check clean accuracy; return the finding and the number of forwards.

    Costs nothing if the model is right on nearly all samples; otherwise one forward on each of 16 samples for each form, and one
    on each of 48 more for each form that gains there. Pairs of forms are tried if less than half is right.

    Args:
        model: the model.
        pred: (n,) classes predicted for the clean inputs, n at least 1.
        labels: (n,) their labels.
        load: maps positions (m,) among the samples to inputs (m, *shape) on the model's device.
        spec: the spec of the model; empty for a model in memory.
        classes: names of the classes of the data.
        batch_size: the most inputs shown to the model at once.
    """
    is_correct, n = pred == labels, len(labels)
    k = int(is_correct.sum())
    low, high = wilson(k, n) or (0.0, 1.0)
    summary = f"right on {k} of {n} clean inputs"
    if fault := _data_fault(model.domain, load, labels, is_correct):
        return _failed(f"{summary}: {fault}; look at the data, not at the model", fault, k / n, None), 0
    by_labels = relabelled(pred, labels, classes, model.classes)
    search = _Search(model, is_correct, labels, load, spec, batch_size)
    by_form = search.best()
    rate, cause = by_form if by_form[0] >= by_labels[0] else by_labels
    if not rate and low <= float(_chance(pred, labels, model.classes)):
        rate, cause = search.best_relabelled(classes)
    forwards = search.forwards
    if rate:
        return _failed(f"{summary}, and {cause}", cause, k / n, None), forwards
    chance = float(_chance(pred, labels, model.classes))
    if low > chance:
        return Finding(
            code=Code.CLEAN, passed=True, text=f"{summary}, and chance is {chance:.3f}", figure=k / n, limit=chance
        ), forwards
    if n >= MIN_SAMPLES and high < (1 + chance) / 2:
        cause = f"its answers agree with the labels no more often than by chance ({chance:.3f})"
        text = f"{summary}, near chance: {cause}, however inputs and classes are arranged; {_suspect(load, labels)}"
        if classes and len(classes) != model.classes:
            text += f"; the model tells {model.classes} classes apart, and the data {len(classes)}"
        return _failed(text, cause, k / n, chance), forwards
    text = f"cannot tell with {n} sample{'s' * (n != 1)}: {summary}, and chance is {chance:.3f}"
    return Finding(code=Code.CLEAN, passed=None, text=text, figure=k / n, limit=chance), forwards


def _data_fault(domain: Domain, load: Callable[[Array], Tensor], labels: Array, is_correct: Array) -> str:
    """A clause if the inputs cannot tell the classes apart, whatever the model; empty if they can, or the model is right."""
    index = spread_by_class(labels, SAMPLES)
    if len(index) < MIN_SAMPLES or is_correct[index].mean() > LOW:
        return ""
    if len(np.unique(labels)) < 2:
        return f"all {len(labels)} labels are {labels[0]}, so that nothing shows whether the model tells classes apart"
    loaded = load(index)
    second_reading = load(index[::STRIDE])
    if changed := int((loaded[::STRIDE] != second_reading).flatten(1).any(1).sum()):
        return (
            f"the data set answers differently each time: {changed} of {len(second_reading)} inputs changed between two readings"
        )
    x = loaded.flatten(1)
    if bool((x == x[:1]).all()):
        return f"all of {len(index)} inputs compared are the same, and their labels differ"
    if domain.kind in ("image", "video") and bool((x == x[:, :1]).all()):
        return f"each of {len(index)} pictures compared has one value everywhere"
    values, groups = np.unique(x.cpu().numpy(), axis=0, return_inverse=True)
    mixed = sum(len(set(labels[index][groups.ravel() == group])) > 1 for group in range(len(values)))
    if 2 * len(values) <= len(index) and mixed:
        return f"of {len(index)} inputs compared only {len(values)} differ, and {mixed} of them have several labels"
    return ""


def _failed(text: str, cause: str, figure: float, limit: float | None) -> Finding:
    """The failed check of clean accuracy."""
    return Finding(code=Code.CLEAN, passed=False, text=text, figure=figure, limit=limit, cause=f"on clean inputs {cause}")


def _chance(pred: Array, labels: Array, classes: int) -> float:
    """Expected accuracy of answers independent of the inputs; 1 / classes if all labels are of one class."""
    if len(np.unique(labels)) < 2:
        return 1 / classes
    count = int(max(pred.max(), labels.max())) + 1
    predicted, true = (np.bincount(values.clip(0), minlength=count) / len(values) for values in (pred, labels))
    return float(predicted @ true)


def _suspect(load: Callable[[Array], Tensor], labels: Array) -> str:
    """A clause that names the data or the model as the fault, by the labels of inputs that are nearest to each other."""
    index = spread_by_class(labels, NEIGHBOURS)
    y, n = labels[index], len(index)
    x = load(index).flatten(1).float().cpu()
    x = x[:, :: -(-x.shape[1] // MOST_VALUES)]
    distances = torch.cdist(x, x) + torch.diag(torch.full((n,), torch.inf))
    agreeing = int((y[distances.argmin(1).numpy()] == y).sum())
    _, counts = np.unique(y, return_counts=True)
    chance = float((counts * (counts - 1)).sum() / max(1, n * (n - 1)))
    deviation = max(1e-9, (n * chance * (1 - chance)) ** 0.5)
    score = (agreeing - n * chance) / deviation
    if score > RELATED:
        return (
            f"inputs that are alike share their labels ({agreeing} of {n}), so that the labels belong to the inputs: it is the "
            "model that does not know these classes"
        )
    if n >= MIN_NEIGHBOURS and score < UNRELATED:
        return (
            f"nor do inputs that are alike share their labels ({agreeing} of {n}): look at the data, whose labels may not belong "
            "to the inputs"
        )
    return "nothing that was tried tells whether it is the data or the model"


class _Trial(NamedTuple):
    """A form that makes the model far better."""

    matches: int
    """Number of samples on which the model is right."""
    log_prob: float
    """Mean log-probability of the labels."""
    form: InputForm
    pred: Array
    """(n,) classes predicted in this form."""


class _Search:
    """The search for another form of the inputs in which the model is right."""

    def __init__(
        self, model: Model, is_correct: Array, labels: Array, load: Callable[[Array], Tensor], spec: str, batch_size: int
    ) -> None:
        index = spread_by_class(labels, SAMPLES)
        self._model, self._spec, self._batch_size, self.forwards = model, spec, batch_size, 0
        self._is_correct, self._y = is_correct[index], labels[index]
        self._first = np.arange(len(index)) % STRIDE == 0
        self._load, self._index, self._labels = load, index, labels
        self._x: Tensor | None = None
        self._forms: list[InputForm] = []

    def best(self) -> tuple[float, str]:
        """Accuracy in the form in which the model is far better, with a clause for the message; 0 if there is none."""
        correct, n = int(self._is_correct.sum()), len(self._y)
        if not far_better(correct, n, n):
            return 0.0, ""
        states = state_forms(self._model)
        self._forms = [*input_forms(self._model.domain), *states]
        if not self._forms:
            return 0.0, ""
        self._x = self._load(self._index)
        trials = self._try(self._forms)
        if correct < LOW * n and (not trials or trials[0].matches < SOLVED * n):
            pairs = self._try(paired_forms(self._model.domain, states))
            trials = pairs if pairs and (not trials or self._is_better(pairs[0], trials[0])) else trials
        if not trials:
            return 0.0, ""
        matches, _, form, _ = trials[0]
        runners_up = [f"on {trial.matches} {trial.form.text}" for trial in trials[1:2] if trial.matches >= matches - 2]
        also = f" (and {runners_up[0]}; its authors know which it was)" if runners_up else ""
        text = f"of {n} it is right on {correct}, on {matches} with inputs {form.text}{also}: {self._advice(form)}"
        return matches / n, text

    def _advice(self, form: InputForm) -> str:
        """Advice to the user on how to give the model inputs in this form."""
        return form.advice(self._spec, self._model.domain, self._model.info.preprocessing)

    def best_relabelled(self, classes: Sequence[str]) -> tuple[float, str]:
        """Accuracy in a form with other labels besides, with a clause for the message; 0 if there is none."""
        best: tuple[float, str] = (0.0, "")
        correct, n = int(self._is_correct.sum()), len(self._y)
        if self._x is None:
            return best
        for form in self._forms:
            self.forwards += len(self._y)
            log_probs = _log_probs(self._model, form, self._x, self._batch_size)
            if log_probs is None:
                continue
            rate, clause = relabelled(log_probs.argmax(1), self._y, classes, self._model.classes)
            if rate > max(best[0], LEAST_RATE) and far_better(correct, round(rate * n), n):
                best = rate, f"with inputs {form.text} {clause}; and {self._advice(form)}"
        return best

    def _try(self, forms: Sequence[InputForm]) -> list[_Trial]:
        """The forms in which the model is far better, the best first."""
        assert self._x is not None
        x, y, first = self._x, self._y, self._first
        correct, n, trials = int(self._is_correct.sum()), len(self._y), list[_Trial]()
        for form in forms:
            self.forwards += int(first.sum())
            log_probs = _log_probs(self._model, form, x[first], self._batch_size)
            if log_probs is None or (log_probs.argmax(1) == y[first]).sum() < self._is_correct[first].sum() + MIN_GAIN:
                continue
            self.forwards += int((~first).sum())
            remaining_log_probs = _log_probs(self._model, form, x[~first], self._batch_size)
            if remaining_log_probs is None:
                continue
            all_log_probs = np.empty((n, log_probs.shape[1]))
            all_log_probs[first], all_log_probs[~first] = log_probs, remaining_log_probs
            pred = all_log_probs.argmax(1)
            matches = int((pred == y).sum())
            if far_better(correct, matches, n) and self._is_right(pred, matches):
                trials.append(_Trial(matches, float(all_log_probs[np.arange(n), y].mean()), form, pred))
        return sorted(trials, key=lambda trial: (-trial.matches, -trial.log_prob))

    def _is_right(self, pred: Array, matches: int) -> bool:
        """True if more answers are correct than chance explains."""
        n, interval = len(self._y), wilson(matches, len(self._y))
        least = LEAST_FORM_RATE / (2 if self._model.classes > MANY_CLASSES else 1)
        return interval is not None and matches >= least * n and interval.low > _chance(pred, self._y, self._model.classes)

    def _is_better(self, pair: _Trial, single: _Trial) -> bool:
        """True if the gain of a pair over a single form is larger than chance explains, on enough samples to tell."""
        if pair.matches <= single.matches:
            return False
        index = spread_by_class(self._labels, COMPARED)
        x, y = self._load(index), self._labels[index]
        self.forwards += 2 * len(index)
        right, right_alone = (self._is_correct_in(trial.form, x, y) for trial in (pair, single))
        return sign_test(int((right & ~right_alone).sum()), int((right_alone & ~right).sum())) <= PAIR_SIGNIFICANCE

    def _is_correct_in(self, form: InputForm, x: Tensor, y: Array) -> Array:
        """(n,) bool: samples on which the model is right in a form; none if it fails."""
        log_probs = _log_probs(self._model, form, x, self._batch_size)
        return np.zeros(len(y), dtype=bool) if log_probs is None else np.asarray(log_probs.argmax(1) == y)


def _log_probs(model: Model, form: InputForm, x: Tensor, batch_size: int) -> Array | None:
    """(n, classes) log-probabilities in a form; None if the model fails on the inputs or returns NaN or infinity."""
    try:
        with form.state():
            logits = predict(model, form(x), batch_size)
    except ModelError:
        return None
    return logits.log_softmax(1).cpu().numpy() if bool(torch.isfinite(logits).all()) else None


def spread_by_class(labels: Array, count: int) -> Array:
    """Positions of at most `count` samples in the order of the classes: as many of each class, as far as it has them."""
    order = np.lexsort((np.arange(len(labels)), labels))
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    if len(order) <= count or len(sizes) >= count:
        return np.asarray(order[np.linspace(0, len(order) - 1, min(len(order), count)).astype(int)])
    quotas = np.zeros(len(sizes), dtype=np.int64)
    while (missing := count - int(quotas.sum())) > 0:
        open_classes = np.flatnonzero(quotas < sizes)
        share = max(1, missing // len(open_classes))
        classes = open_classes[: missing // share]
        quotas[classes] = np.minimum(sizes[classes], quotas[classes] + share)
    places = [
        start + np.linspace(0, size - 1, quota).astype(int) for start, size, quota in zip(starts, sizes, quotas, strict=True)
    ]
    return np.asarray(order[np.concatenate(places)])
