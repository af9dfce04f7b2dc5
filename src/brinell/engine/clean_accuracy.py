"""The check of clean accuracy before any attack: does the model get its inputs in the form of its training?

A model that is shown inputs without the normalisation that it was trained with, or whose classes are in another order than the
labels, is wrong on clean inputs, and its robust accuracy is low for a reason that has nothing to do with attacks. The check
compares clean accuracy with chance, with the same answers under a permutation or shift of the classes, and with the answers to
the same inputs in other forms and of the model in another state. Limits and blind spots: docs/reference/checks.md.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import comb

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.class_names import NEVER, option_text
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.model_states import candidate_states
from brinell.engine.shard import predict

SAMPLES = 64
"""Number of samples on which other forms are tried, spread over the classes."""
STRIDE = 4
"""Every `STRIDE`-th of these samples is tried first; the others only in forms that gain on those."""
MIN_GAIN = 2
"""Minimum number of additional correct answers among the samples tried first."""
MIN_SAMPLES = 12
"""Fewest samples with which accuracy is compared with chance."""
MIN_PIXELS = 64
"""A vector of at least this many values, and without named columns, may be an image."""
SIGNIFICANCE = 1e-3
"""Largest probability of a permutation's gains by chance, at which it is proposed."""
MAX_LISTED = 4
"""Number of pairs of classes that a message lists."""
NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "CIFAR-10 (deviations of single images)": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    "MNIST": ((0.1307,), (0.3081,)),
}
"""Common means and standard deviations per channel, for inputs in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """A form of the inputs (n, *shape): mean subtracted, divided by std, channels reversed, or values reordered."""

    text: str
    """Description of the form, as a clause after «inputs»."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    reverse_channels: bool = False
    """True if the channels are reversed, after the normalisation."""
    reorder: Callable[[Tensor], Tensor] | None = None
    """Function that reorders the values; the other settings then do not apply."""
    remedy: str = ""
    """Advice to the user, if no setting of the model applies the form."""
    state: Callable[[], AbstractContextManager[None]] = nullcontext
    """Puts the model into the state in which it is asked, until the context ends."""

    def __call__(self, x: Tensor) -> Tensor:
        """The inputs in this form."""
        if self.reorder is not None:
            return self.reorder(x)
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean, std = (torch.tensor(value, device=x.device, dtype=x.dtype).reshape(shape) for value in (self.mean, self.std))
        x = (x - mean) / std
        return x.flip(1) if self.reverse_channels else x

    def advice(self, spec: str) -> str:
        """Advice for a model that is more accurate in this form; `spec` names the model and is empty for a model in memory."""
        if self.remedy:
            return self.remedy
        kind, scaled = spec.partition(":")[0], self.mean != (0.0,) or self.std != (1.0,)
        if kind == "onnx" and not self.reverse_channels:
            return f"write mean={_joined(self.mean)}&std={_joined(self.std)} in the model's options"
        if not spec:
            fields = {"mean": [*self.mean], "std": [*self.std], "axis": -3} if scaled else {}
            fields |= {"flip_axis": -3} if self.reverse_channels else {}
            if len(self.mean) == 1 and scaled:
                fields = fields | {"mean": self.mean[0], "std": self.std[0]}
                del fields["axis"]
            return f"give preprocessing={fields!r}"
        steps = [f"(x - mean) / std with mean {_joined(self.mean, ', ')} and std {_joined(self.std, ', ')}"] if scaled else []
        steps += ["x.flip(1)"] if self.reverse_channels else []
        return f"let the model begin with {' and then '.join(steps)}"


def input_forms(domain: Domain) -> list[InputForm]:
    """Candidate forms for inputs of this domain."""
    channels, picture = domain.shape[0], domain.kind in ("image", "video")
    flat = domain.kind == "vector" and not domain.columns and channels >= MIN_PIXELS
    forms = _scales(domain) if picture or flat else []
    if not picture:
        return forms
    if channels == 3:
        forms.append(InputForm(text="whose channels are in the order BGR", reverse_channels=True))
    if domain.kind == "image" and domain.shape[1] == domain.shape[2]:
        remedy = "swap height and width of the pictures in the data"
        forms.append(
            InputForm(
                text="whose rows and columns are swapped", reorder=lambda x: x.transpose(-1, -2).contiguous(), remedy=remedy
            )
        )
    if domain.kind == "image" and channels > 1:
        last = (*domain.shape[1:], channels)
        forms.append(
            InputForm(
                text="whose channels were last and read as if they were first",
                reorder=lambda x: x.reshape(-1, *last).permute(0, 3, 1, 2).contiguous(),
                remedy="bring the channels first by transpose(0, 3, 1, 2), not by reshape",
            )
        )
    return forms


def _scales(domain: Domain) -> list[InputForm]:
    """Forms with other scales, with common normalisations, and with the inverses of these."""
    low, high = (float(bound) if isinstance(bound, int | float) else None for bound in (domain.low, domain.high))
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    usual = {name: statistics for name, statistics in NORMALISATIONS.items() if len(statistics[0]) == channels} | {
        "0.5": ((0.5,), (0.5,))
    }
    inverse = [
        InputForm(
            text=f"from which the normalisation by mean and deviation of {name} was taken away again",
            mean=tuple(-m / s for m, s in zip(mean, std, strict=True)),
            std=tuple(1 / s for s in std),
            remedy="normalise once: leave out mean, std or preprocessing, or give the data as they were before",
        )
        for name, (mean, std) in usual.items()
    ]
    if (low, high) == (0.0, 255.0):
        return [InputForm(text="divided by 255", std=(255.0,)), *(_scaled(form, 255.0) for form in _normal(usual))]
    if (low, high) != (0.0, 1.0):
        return inverse if bool((domain.bounds()[0] < 0).any()) else []
    forms = [InputForm(text="multiplied by 255", std=(1 / 255,)), *_normal(usual)]
    forms.append(InputForm(text="with light and dark swapped", mean=(1.0,), std=(-1.0,)))
    if channels == 3:
        forms += [
            InputForm(
                text=f"in the order BGR, normalised by mean and deviation of {name}", mean=mean, std=std, reverse_channels=True
            )
            for name, (mean, std) in usual.items()
        ]
        mean = NORMALISATIONS["ImageNet"][0]
        scale = tuple(1 / 255 for _ in mean)
        forms.append(
            InputForm(
                text="from 0 to 255 in the order BGR, less the mean of ImageNet", mean=mean, std=scale, reverse_channels=True
            )
        )
    return forms + inverse


def _normal(usual: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]) -> list[InputForm]:
    """Input forms normalised by the published means and deviations of data sets."""
    return [
        InputForm(text=f"normalised by mean and deviation of {name}", mean=mean, std=std) for name, (mean, std) in usual.items()
    ]


def _scaled(form: InputForm, factor: float) -> InputForm:
    """The form with mean and deviation multiplied by a factor."""
    return replace(form, mean=tuple(factor * value for value in form.mean), std=tuple(factor * value for value in form.std))


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

    Costs nothing if the model is right on nearly all samples; otherwise up to 20 forwards on each of 16 samples, and one on each
    of 48 more for each form that gains there.

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
    by_labels = _relabelled(pred, labels, classes, model.classes)
    by_form, forwards = _in_other_forms(model, is_correct, labels, load, spec, batch_size)
    rate, cause = by_form if by_form[0] >= by_labels[0] else by_labels
    if rate:
        return _failed(f"{summary}, and {cause}", cause, k / n, None), forwards
    chance = float(_chance(pred, labels, model.classes))
    if low > chance:
        return Finding(
            code=Code.CLEAN, passed=True, text=f"{summary}, and chance is {chance:.3f}", figure=k / n, limit=chance
        ), forwards
    if n >= MIN_SAMPLES and high < (1 + chance) / 2:
        cause = f"its answers agree with the labels no more often than by chance ({chance:.3f})"
        text = f"{summary}: {cause}; look for other weights, other data, another order of classes or inputs prepared otherwise"
        return _failed(text, cause, k / n, chance), forwards
    text = f"cannot tell with {n} sample{'s' * (n != 1)}: {summary}, and chance is {chance:.3f}"
    return Finding(code=Code.CLEAN, passed=None, text=text, figure=k / n, limit=chance), forwards


def _data_fault(domain: Domain, load: Callable[[Array], Tensor], labels: Array, is_correct: Array) -> str:
    """A clause if the inputs cannot tell the classes apart, whatever the model; empty if they can, or the model is right."""
    index = spread_by_class(labels, SAMPLES)
    if len(index) < MIN_SAMPLES or len(np.unique(labels[index])) < 2 or is_correct[index].mean() > 0.5:
        return ""
    x = load(index).flatten(1)
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


def _far_better(correct: int, improved: int, n: int) -> bool:
    """True if `improved` of `n` is significantly more than `correct` of `n`: their intervals do not overlap."""
    interval, improved_interval = wilson(correct, n), wilson(improved, n)
    return interval is not None and improved_interval is not None and improved_interval.low > interval.high


def _chance(pred: Array, labels: Array, classes: int) -> float:
    """Expected accuracy of answers independent of the inputs; 1 / classes if all labels are of one class."""
    if len(np.unique(labels)) < 2:
        return 1 / classes
    count = int(max(pred.max(), labels.max())) + 1
    predicted, true = (np.bincount(values.clip(0), minlength=count) / len(values) for values in (pred, labels))
    return float(predicted @ true)


def _relabelled(pred: Array, labels: Array, classes: Sequence[str], count: int) -> tuple[float, str]:
    """Accuracy under a shift or permutation of the labels that fits far better, with a clause; 0 if there is none."""
    n, k = len(labels), int((pred == labels).sum())
    shifted, by = max((int((pred == labels + by).sum()), by) for by in (1, -1))
    permutation, matches, wins, losses = _permuted(pred, labels)
    if not _far_better(k, max(shifted, matches), n) and _sign_test(wins, losses) > SIGNIFICANCE:
        return 0.0, ""
    if shifted >= matches and _far_better(k, shifted, n):
        counted = "from 1 and the model counts its own from 0" if by < 0 else "from 0 and the model has another class before"
        return shifted / n, (
            f"the class answered is the label {'plus' if by > 0 else 'minus'} 1 on {shifted}: the labels seem to be counted "
            f"{counted}; {'add 1 to' if by > 0 else 'take 1 from'} the labels"
        )
    swaps = [(label, answer) for answer, label in sorted(permutation.items()) if label != answer]
    listing = ", ".join(f"{answer} is the label {_name(classes, label)}" for label, answer in swaps[:MAX_LISTED])
    remainder = f" and {len(swaps) - MAX_LISTED} more" if len(swaps) > MAX_LISTED else ""
    return matches / n, (
        f"with the classes in another order right on {matches} (the model's class {listing}{remainder}): "
        f"{_order_remedy(permutation, classes, count)}"
    )


def _order_remedy(permutation: dict[int, int], classes: Sequence[str], count: int) -> str:
    """What to do about classes in another order: the option that names the model's classes as it seems to count them."""
    free = {*range(count)} - {*permutation, *permutation.values()}  # nothing speaks against their own places
    labels_of = {answer: answer for answer in free} | permutation
    spare = iter([label for label in range(max(count, len(classes))) if label not in labels_of.values()])
    names = [_name(classes, labels_of[answer] if answer in labels_of else next(spare)) for answer in range(count)]
    text = option_text(names)
    advice = "bring the labels, or the list of classes, into the model's order"
    return f"{advice}; a spec of a model takes the option {text}" if text else advice


def _name(classes: Sequence[str], index: int) -> str:
    """Name of a class, or its number if it has none."""
    return classes[index] if index < len(classes) else str(index)


def _sign_test(wins: int, losses: int) -> float:
    """The probability of at least so many wins in wins + losses fair games."""
    games = wins + losses
    return float(sum(comb(games, count) for count in range(wins, games + 1)) / 2**games)


def _permuted(pred: Array, labels: Array) -> tuple[dict[int, int], int, int, int]:
    """Fit a permutation of the classes to the answers; return it with the number of samples on which it is right.

    The last two numbers count the samples on which only the permutation is right, and only the order as it is.

    The count is cross-validated: each half of the samples is judged by the permutation fitted to the other half, so that many
    classes with few samples do not inflate it. The returned permutation maps answers to labels and is fitted to all samples.
    """
    order = np.lexsort((np.arange(len(labels)), labels))
    halves = order[::2], order[1::2]
    matches, wins, losses = 0, 0, 0
    for fit_half, test_half in (halves, halves[::-1]):
        permutation = _match(pred[fit_half], labels[fit_half])
        permuted = np.array([permutation.get(answer, NEVER) for answer in pred[test_half].tolist()], dtype=np.int64)
        before, after = pred[test_half] == labels[test_half], permuted == labels[test_half]
        matches += int(after.sum())
        wins += int((after & ~before).sum())
        losses += int((before & ~after).sum())
    return _match(pred, labels), matches, wins, losses


def _match(pred: Array, labels: Array) -> dict[int, int]:
    """Match answers to labels one to one, greedily by the frequency of the pairs."""
    pairs, counts = np.unique(np.stack([pred, labels]), axis=1, return_counts=True)
    mapping: dict[int, int] = {}
    used: set[int] = set()
    for row in np.argsort(-counts, kind="stable"):
        answer, true = int(pairs[0, row]), int(pairs[1, row])
        if answer not in mapping and true not in used:
            mapping[answer] = true
            used.add(true)
    return mapping


def _in_other_forms(
    model: Model, is_correct: Array, labels: Array, load: Callable[[Array], Tensor], spec: str, batch_size: int
) -> tuple[tuple[float, str], int]:
    """Accuracy in another form of the inputs that is far better, with a clause for the message; 0 if there is none.

    The second value is the number of forwards.
    """
    index = spread_by_class(labels, SAMPLES)
    correct, n = int(is_correct[index].sum()), len(index)
    forms = input_forms(model.domain) + [
        InputForm(text=state.text, remedy=state.remedy, state=state.applied) for state in candidate_states(model)
    ]
    if not forms or not _far_better(correct, n, n):
        return (0.0, ""), 0
    x, y = load(index), labels[index]
    first, forwards = np.arange(n) % STRIDE == 0, 0
    improvements: list[tuple[int, float, InputForm]] = []
    for form in forms:
        forwards += int(first.sum())
        log_probs = _log_probs(model, form, x[first], batch_size)
        if log_probs is None or (log_probs.argmax(1) == y[first]).sum() < is_correct[index][first].sum() + MIN_GAIN:
            continue
        forwards += int((~first).sum())
        remaining_log_probs = _log_probs(model, form, x[~first], batch_size)
        if remaining_log_probs is None:
            continue
        all_log_probs = np.empty((n, log_probs.shape[1]))
        all_log_probs[first], all_log_probs[~first] = log_probs, remaining_log_probs
        matches = int((all_log_probs.argmax(1) == y).sum())
        if _far_better(correct, matches, n):
            improvements.append((matches, float(all_log_probs[np.arange(n), y].mean()), form))
    if not improvements:
        return (0.0, ""), forwards
    improvements.sort(key=lambda improvement: (-improvement[0], -improvement[1]))
    matches, _, form = improvements[0]
    runners_up = [
        f"on {improvement[0]} {improvement[2].text}" for improvement in improvements[1:2] if improvement[0] >= matches - 2
    ]
    also = f" (and {runners_up[0]}; its authors know which it was)" if runners_up else ""
    text = f"of {n} it is right on {correct}, on {matches} with inputs {form.text}{also}: {form.advice(spec)}"
    return (matches / n, text), forwards


def _log_probs(model: Model, form: InputForm, x: Tensor, batch_size: int) -> Array | None:
    """(n, classes) log-probabilities in a form; None if the model fails on the inputs or returns NaN or infinity."""
    try:
        with form.state():
            logits = predict(model, form(x), batch_size)
    except ModelError:
        return None
    return logits.log_softmax(1).cpu().numpy() if bool(torch.isfinite(logits).all()) else None


def spread_by_class(labels: Array, count: int) -> Array:
    """Positions of at most `count` samples, evenly spaced in the order of the classes."""
    order = np.lexsort((np.arange(len(labels)), labels))
    return np.asarray(order[np.linspace(0, len(order) - 1, min(len(order), count)).astype(int)])


def _joined(values: tuple[float, ...], separator: str = "+") -> str:
    """The values as text with six digits."""
    return separator.join(f"{value:.6g}" for value in values)
