"""Is the model asked as it was trained? The check of clean accuracy, before anything is attacked.

A model that is shown inputs without the normalisation that it was trained with, or whose classes are in another order than the
labels, is wrong on clean inputs, and its robust accuracy is low for a reason that has nothing to do with attacks. Clean accuracy
is held against chance, against the same answers with the classes in another order or shifted by one, and against the answers to
the same inputs in other forms. How the limits were found, and what they cannot see: docs/checks.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.intervals import wilson
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.shard import predict

SHOWN = 64
"""Samples that are shown in other forms, spread over the classes."""
EVERY = 4
"""One of so many of them is shown first, and the others only in forms that gain there."""
GAIN = 2
"""On how many of these more a form must be right."""
FEWEST = 12
"""With fewer samples nothing is told of chance."""
FLAT = 64
"""A vector of as many values, and without columns, may be a picture."""
NAMED = 4
"""How many pairs of classes a line names."""
USUAL: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "CIFAR-10 (deviations of single images)": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.201)),
    "MNIST": ((0.1307,), (0.3081,)),
}
"""Means and deviations by which inputs in [0, 1] are usually normalised, per channel."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Another form in which inputs (n, *shape) may be given to a model: less `mean`, divided by `std`, channels reversed."""

    text: str
    """What is done to them, in a clause that follows «inputs»."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    flip: bool = False
    """Whether the channels are reversed, after the rest."""
    order: Callable[[Tensor], Tensor] | None = None
    """Another order of the values; then the other settings are as they are."""
    remedy: str = ""
    """What to do, where no setting does it."""

    def __call__(self, x: Tensor) -> Tensor:
        """The inputs in this form."""
        if self.order is not None:
            return self.order(x)
        shape = (1, -1, *[1] * (x.ndim - 2))
        mean, std = (torch.tensor(value, device=x.device, dtype=x.dtype).reshape(shape) for value in (self.mean, self.std))
        x = (x - mean) / std
        return x.flip(1) if self.flip else x

    def advice(self, spec: str) -> str:
        """What to do about a model that is better so; `spec` names it, empty where it is in memory."""
        if self.remedy:
            return self.remedy
        kind, scaled = spec.partition(":")[0], self.mean != (0.0,) or self.std != (1.0,)
        if kind == "onnx" and not self.flip:
            return f"write mean={_joined(self.mean)}&std={_joined(self.std)} in the model's options"
        if not spec:
            fields = {"mean": [*self.mean], "std": [*self.std], "axis": -3} if scaled else {}
            fields |= {"flip_axis": -3} if self.flip else {}
            if len(self.mean) == 1 and scaled:
                fields = fields | {"mean": self.mean[0], "std": self.std[0]}
                del fields["axis"]
            return f"give preprocessing={fields!r}"
        steps = [f"(x - mean) / std with mean {_joined(self.mean, ', ')} and std {_joined(self.std, ', ')}"] if scaled else []
        steps += ["x.flip(1)"] if self.flip else []
        return f"let the model begin with {' and then '.join(steps)}"


def forms(domain: Domain) -> list[Form]:
    """The forms that make sense for inputs of this domain."""
    channels, picture = domain.shape[0], domain.kind in ("image", "video")
    flat = domain.kind == "vector" and not domain.columns and channels >= FLAT
    found = _scales(domain) if picture or flat else []
    if not picture:
        return found
    if channels == 3:
        found.append(Form(text="whose channels are in the order BGR", flip=True))
    if domain.kind == "image" and domain.shape[1] == domain.shape[2]:
        turned = "swap height and width of the pictures in the data"
        found.append(
            Form(text="whose rows and columns are swapped", order=lambda x: x.transpose(-1, -2).contiguous(), remedy=turned)
        )
    if domain.kind == "image" and channels > 1:
        last = (*domain.shape[1:], channels)
        found.append(
            Form(
                text="whose channels were last and read as if they were first",
                order=lambda x: x.reshape(-1, *last).permute(0, 3, 1, 2).contiguous(),
                remedy="bring the channels first by transpose(0, 3, 1, 2), not by reshape",
            )
        )
    return found


def _scales(domain: Domain) -> list[Form]:
    """Other scales of the values, and the usual normalisations, forth and back."""
    low, high = (float(bound) if isinstance(bound, int | float) else None for bound in (domain.low, domain.high))
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    usual = {name: both for name, both in USUAL.items() if len(both[0]) == channels} | {"0.5": ((0.5,), (0.5,))}
    back = [
        Form(
            text=f"from which the normalisation by mean and deviation of {name} was taken away again",
            mean=tuple(-m / s for m, s in zip(mean, std, strict=True)),
            std=tuple(1 / s for s in std),
            remedy="normalise once: leave out mean, std or preprocessing, or give the data as they were before",
        )
        for name, (mean, std) in usual.items()
    ]
    if (low, high) == (0.0, 255.0):
        return [Form(text="divided by 255", std=(255.0,)), *(_scaled(form, 255.0) for form in _normal(usual))]
    if (low, high) != (0.0, 1.0):
        return back if bool((domain.bounds()[0] < 0).any()) else []
    found = [Form(text="multiplied by 255", std=(1 / 255,)), *_normal(usual)]
    found.append(Form(text="with light and dark swapped", mean=(1.0,), std=(-1.0,)))
    if channels == 3:
        mean, std = USUAL["ImageNet"]
        found.append(Form(text="in the order BGR, normalised by mean and deviation of ImageNet", mean=mean, std=std, flip=True))
        whole = tuple(1 / 255 for _ in mean)
        found.append(Form(text="from 0 to 255 in the order BGR, less the mean of ImageNet", mean=mean, std=whole, flip=True))
    return found + back


def _normal(usual: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]) -> list[Form]:
    return [Form(text=f"normalised by mean and deviation of {name}", mean=mean, std=std) for name, (mean, std) in usual.items()]


def _scaled(form: Form, by: float) -> Form:
    return replace(form, mean=tuple(by * value for value in form.mean), std=tuple(by * value for value in form.std))


def check(
    model: Model,
    pred: Array,
    labels: Array,
    load: Callable[[Array], Tensor],
    *,
    spec: str = "",
    classes: Sequence[str] = (),
    batch_size: int = 128,
) -> tuple[Finding, int]:
    """The check of clean accuracy, and the forwards that it took.

    Costs nothing where the model is right on nearly all samples, and else up to 16 forwards on each of 16 samples, and one on
    each of 48 more for a form that gains there.

    Args:
        model: the model.
        pred: (n,) classes predicted for the clean inputs, n at least 1.
        labels: (n,) their labels.
        load: positions (m,) among them to inputs (m, *shape) on the model's device.
        spec: names the model; empty where it is in memory.
        classes: what the data calls its classes.
        batch_size: the most inputs shown to the model at once.
    """
    right, n = pred == labels, len(labels)
    k = int(right.sum())
    least, most = wilson(k, n) or (0.0, 1.0)
    told = f"right on {k} of {n} clean inputs"
    by_labels = _relabelled(pred, labels, classes)
    by_form, forwards = _in_other_forms(model, right, labels, load, spec, batch_size)
    rate, cause = by_form if by_form[0] >= by_labels[0] else by_labels
    if rate:
        return _failed(f"{told}, and {cause}", cause, k / n, None), forwards
    chance = float(_chance(pred, labels, model.classes))
    if least > chance:
        return Finding(
            code=Code.CLEAN, passed=True, text=f"{told}, and chance is {chance:.3f}", figure=k / n, limit=chance
        ), forwards
    if n >= FEWEST and most < (1 + chance) / 2:
        cause = f"its answers agree with the labels no more often than by chance ({chance:.3f})"
        text = f"{told}: {cause}; look for other weights, other data, another order of classes or inputs prepared otherwise"
        return _failed(text, cause, k / n, chance), forwards
    text = f"cannot tell with {n} sample{'s' * (n != 1)}: {told}, and chance is {chance:.3f}"
    return Finding(code=Code.CLEAN, passed=None, text=text, figure=k / n, limit=chance), forwards


def _failed(text: str, cause: str, figure: float, limit: float | None) -> Finding:
    return Finding(code=Code.CLEAN, passed=False, text=text, figure=figure, limit=limit, cause=f"on clean inputs {cause}")


def _far_better(now: int, then: int, n: int) -> bool:
    """Whether `then` of `n` is more than `now` of them beyond doubt: their intervals lie apart."""
    one, other = wilson(now, n), wilson(then, n)
    return one is not None and other is not None and other.low > one.high


def _chance(pred: Array, labels: Array, classes: int) -> float:
    """How often answers that know nothing of the inputs would agree with the labels; of one class alone, one of all."""
    if len(np.unique(labels)) < 2:
        return 1 / classes
    most = int(max(pred.max(), labels.max())) + 1
    said, true = (np.bincount(values.clip(0), minlength=most) / len(values) for values in (pred, labels))
    return float(said @ true)


def _relabelled(pred: Array, labels: Array, classes: Sequence[str]) -> tuple[float, str]:
    """On which share the model is right where other labels fit its answers far better, and the clause; 0 where none do."""
    n, k = len(labels), int((pred == labels).sum())
    shifted, by = max((int((pred == labels + by).sum()), by) for by in (1, -1))
    fitted, hits = _permuted(pred, labels)
    if not _far_better(k, max(shifted, hits), n):
        return 0.0, ""
    if shifted >= hits:
        counted = "from 1 and the model counts its own from 0" if by < 0 else "from 0 and the model has another class before"
        return shifted / n, (
            f"the class answered is the label {'plus' if by > 0 else 'minus'} 1 on {shifted}: the labels seem to be counted "
            f"{counted}; {'add 1 to' if by > 0 else 'take 1 from'} the labels"
        )
    moved = [(here, there) for there, here in sorted(fitted.items()) if here != there]
    named = ", ".join(f"{there} is the label {_name(classes, here)}" for here, there in moved[:NAMED])
    more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    return hits / n, (
        f"with the classes in another order right on {hits} (the model's class {named}{more}): bring the labels, or the list of "
        "classes, into the model's order"
    )


def _name(classes: Sequence[str], at: int) -> str:
    return classes[at] if at < len(classes) else str(at)


def _permuted(pred: Array, labels: Array) -> tuple[dict[int, int], int]:
    """A permutation of the classes, by what each is answered as most, and how many samples it is right on.

    Each half of the samples is judged by the permutation that the other half shows, so that many classes and few samples make no
    permutation look good. The first value maps answers to labels, by all samples.
    """
    order = np.lexsort((np.arange(len(labels)), labels))
    halves = order[::2], order[1::2]
    hits = 0
    for one, other in (halves, halves[::-1]):
        fitted = _match(pred[one], labels[one])
        hits += sum(fitted.get(int(p), -1) == t for p, t in zip(pred[other], labels[other], strict=True))
    return _match(pred, labels), hits


def _match(pred: Array, labels: Array) -> dict[int, int]:
    """Answers to labels, one to one, the most frequent pairs first."""
    pairs, counts = np.unique(np.stack([pred, labels]), axis=1, return_counts=True)
    found: dict[int, int] = {}
    taken: set[int] = set()
    for at in np.argsort(-counts, kind="stable"):
        said, true = int(pairs[0, at]), int(pairs[1, at])
        if said not in found and true not in taken:
            found[said] = true
            taken.add(true)
    return found


def _in_other_forms(
    model: Model, right: Array, labels: Array, load: Callable[[Array], Tensor], spec: str, batch_size: int
) -> tuple[tuple[float, str], int]:
    """On which share the model is right where it is far better on inputs in another form, and the clause; 0 where it is not.

    The second value are the forwards.
    """
    at = spread(labels, SHOWN)
    now, n = int(right[at].sum()), len(at)
    tried = forms(model.domain)
    if not tried or not _far_better(now, n, n):
        return (0.0, ""), 0
    x, y = load(at), labels[at]
    first, forwards = np.arange(n) % EVERY == 0, 0
    better: list[tuple[int, float, Form]] = []
    for form in tried:
        forwards += int(first.sum())
        found = _answers(model, form(x[first]), batch_size)
        if found is None or (found.argmax(1) == y[first]).sum() < right[at][first].sum() + GAIN:
            continue
        forwards += int((~first).sum())
        rest = _answers(model, form(x[~first]), batch_size)
        if rest is None:
            continue
        every = np.empty((n, found.shape[1]))
        every[first], every[~first] = found, rest
        hits = int((every.argmax(1) == y).sum())
        if _far_better(now, hits, n):
            better.append((hits, float(every[np.arange(n), y].mean()), form))
    if not better:
        return (0.0, ""), forwards
    better.sort(key=lambda one: (-one[0], -one[1]))
    hits, _, form = better[0]
    others = [f"on {one[0]} {one[2].text}" for one in better[1:2] if one[0] >= hits - 2]
    also = f" (and {others[0]}; its authors know which it was)" if others else ""
    text = f"of {n} it is right on {now}, on {hits} with inputs {form.text}{also}: {form.advice(spec)}"
    return (hits / n, text), forwards


def _answers(model: Model, x: Tensor, batch_size: int) -> Array | None:
    """(n, classes) logarithms of probabilities; none where the model fails on such inputs, or answers what is no number."""
    try:
        logits = predict(model, x, batch_size)
    except ModelError:
        return None
    return logits.log_softmax(1).cpu().numpy() if bool(torch.isfinite(logits).all()) else None


def spread(labels: Array, most: int) -> Array:
    """Positions of at most `most` samples, spread evenly over all in the order of their classes."""
    order = np.lexsort((np.arange(len(labels)), labels))
    return np.asarray(order[np.linspace(0, len(order) - 1, min(len(order), most)).astype(int)])


def _joined(values: tuple[float, ...], by: str = "+") -> str:
    return by.join(f"{value:.6g}" for value in values)
