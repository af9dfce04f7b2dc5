"""The most frequent mistakes, in one table: the pattern and its evidence, and the line to type.

`find_mistakes` returns the entries that fit a subject: a path, stored values outside their bounds, or the answers of a model that
is wrong on clean inputs. An entry about answers fits where the change that it names makes the model far better on the samples at
hand. Where two explanations fit as well, both are named. What the table does not have is refused plainly.
"""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from brinell.core import bounded
from brinell.core.class_names import NEVER, option_text
from brinell.core.domain import Kind
from brinell.core.errors import ModelError, RequestError
from brinell.core.file_content import PICKLE, PROGRAM, TENSORS, content_of
from brinell.core.intervals import wilson
from brinell.core.record import Array
from brinell.datasets._arrays import BoundsError, looks_like_signals

if TYPE_CHECKING:  # torch's import takes longer than a refusal of a path
    from torch import Tensor

    from brinell.core.model import Model

AS_GOOD = 0.03
"""Difference of rates up to which two explanations are named."""


class Mistake(NamedTuple):
    """An entry of the table that fits."""

    name: str
    """The entry."""
    evidence: str
    """The observation."""
    line: str
    """What to type."""
    rate: float = 1.0
    """Share of the samples on which the model is right once the mistake is mended; 1 where none was asked."""

    def __str__(self) -> str:
        return f"{self.evidence}: {self.line}"


class Evidence(NamedTuple):
    """The traces of a mistake."""

    text: str
    line: Mapping[str, object]
    """The values that fill in the line of the entry."""
    rate: float = 1.0


@dataclass(frozen=True)
class Entry:
    """A mistake that people make."""

    name: str
    evidence: Callable[[Any], Evidence | None]
    """What is seen of it in a subject; None where the pattern does not fit."""
    line: str
    """What to type, filled in from the evidence."""


def find_mistakes(subject: "File | Values | Answers") -> list[Mistake]:
    """The entries that fit a subject, the best explanation first; those that explain it as well follow."""
    mistakes = [
        Mistake(entry.name, evidence.text, entry.line.format(**evidence.line), evidence.rate)
        for entry in TABLES[type(subject)]
        if (evidence := entry.evidence(subject)) is not None
    ]
    mistakes.sort(key=lambda mistake: -mistake.rate)
    return [mistake for mistake in mistakes if mistake.rate >= mistakes[0].rate - AS_GOOD][:2]


# Paths


class File(NamedTuple):
    """A path where data or a model are expected."""

    kind: Literal["dataset", "model"]
    path: Path

    @property
    def line(self) -> dict[str, object]:
        """The values that fill in lines about the path."""
        return {"path": self.path, "stem": self.path.parent / self.path.name.partition(".")[0]}


def _ends(kind: str, text: str, *endings: str) -> Callable[[File], Evidence | None]:
    """True of a path with one of these endings."""

    def evidence(file: File) -> Evidence | None:
        fits = file.kind == kind and file.path.name.lower().endswith(endings)
        return Evidence(text, file.line) if fits else None

    return evidence


def _torch_file(text: str, holds: Callable[[Path], bool]) -> Callable[[File], Evidence | None]:
    """True of a file of torch whose content is of one kind."""

    def evidence(file: File) -> Evidence | None:
        is_torch = file.kind == "model" and file.path.name.lower().endswith(TORCH)
        return Evidence(text, file.line) if is_torch and holds(file.path) else None

    return evidence


TORCH = (".pt", ".pth", ".ckpt", ".bin", ".pth.tar", ".safetensors")
"""Endings of files that torch and safetensors write."""
MODULE_STATE = (b"_modules", b"_parameters")
"""Attributes that every pickled module has, and no state dict."""
MOST_BYTES = 1 << 24
"""Largest number of bytes of a pickle in which names are looked for."""


def is_whole_module(path: Path) -> bool:
    """True for a pickle of a module with its code; nothing of it is loaded."""
    if not path.is_file() or content_of(path) not in (TENSORS, PICKLE):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            content = archive.open(name).read(MOST_BYTES)
    except zipfile.BadZipFile:
        with bounded.open_regular(path) as stream:
            content = stream.read(MOST_BYTES)
    return all(name in content for name in MODULE_STATE)


def _holds_weights(path: Path) -> bool:
    """True for a file of weights, also one that is not there."""
    known = (TENSORS, PICKLE, "tensors in the format safetensors", "a zip archive")
    return not path.is_file() or (content_of(path) in known and not is_whole_module(path))


FILES = (
    Entry(
        "one array without labels",
        _ends("dataset", "it holds one array and no labels", ".npy"),
        "save both by numpy.savez('FILE.npz', x=inputs, y=labels)",
    ),
    Entry(
        "tensors or pickles as data",
        _ends("dataset", "tensors and pickles are not read", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".mat", ".safetensors"),
        "save inputs and labels by numpy.savez('FILE.npz', x=inputs, y=labels)",
    ),
    Entry(
        "packed data",
        _ends("dataset", "it is packed", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z"),
        "unpack it, and name the folder or the file",
    ),
    Entry(
        "one picture",
        _ends("dataset", "it is one picture", ".png", ".jpg", ".jpeg"),
        "name the folder that holds a folder for each class",
    ),
    Entry(
        "weights without their network",
        _torch_file("it holds weights, which do not say which network they belong to", _holds_weights),
        "write model.py:FACTORY?weights={path}, where FACTORY is a function in model.py that returns the network",
    ),
    Entry(
        "a TorchScript program",
        _torch_file("it is a TorchScript program", lambda path: path.is_file() and content_of(path) == PROGRAM),
        "let def net() in model.py return torch.jit.load('{path}'), and write model.py:net",
    ),
    Entry(
        "a pickle of a whole module",
        _torch_file("it is a pickle of a whole module, which runs code when it is loaded, so it never is", is_whole_module),
        "where the module is at hand, call safetensors.torch.save_file(model.state_dict(), '{stem}.safetensors'), and write "
        "model.py:FACTORY?weights={stem}.safetensors",
    ),
    Entry(
        "an exported program",
        _ends("model", "a program is opened by code of yours", ".pt2"),
        "let def net() in model.py return torch.export.load('{path}'), and write model.py:net",
    ),
    Entry(
        "a pickled estimator",
        _ends("model", "a pickle runs code when it is loaded, so none is", ".pkl", ".pickle", ".joblib"),
        "save the model by skops.io.dump and name FILE.skops",
    ),
    Entry(
        "a model of TensorFlow",
        _ends("model", "it is of TensorFlow, which is not opened here", ".h5", ".keras", ".tflite", ".pb"),
        "make it {stem}.onnx by python -m tf2onnx.convert, or hand brinell.audit a function from Python",
    ),
)


# Stored values outside their bounds


class Values:
    """Stored values outside their bounds.

    Args:
        error: the refusal of them.
        write: writes options of data down, as a spec or as a call of `brinell.data`.
        in_memory: True if they were given in Python.
    """

    def __init__(self, error: BoundsError, write: Callable[[Mapping[str, Any]], str], *, in_memory: bool) -> None:
        facts = error.facts
        self.minimum, self.maximum, self.integral = facts.minimum, facts.maximum, facts.integral
        self.kind, self.dtype, self._write, self.in_memory = error.kind, error.x.dtype, write, in_memory
        self.is_wave = looks_like_signals(error.x, error.kind)

    def write(self, options: Mapping[str, Any]) -> str:
        """Options of data as they are typed; whole numbers without a point."""
        return self._write({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in options.items()})


def explain(error: BoundsError, write: Callable[[Mapping[str, Any]], str], *, in_memory: bool = False) -> RequestError:
    """The refusal of values outside their bounds, with the mistakes that explain it."""
    lines = [str(mistake) for mistake in find_mistakes(Values(error, write, in_memory=in_memory))]
    return RequestError(error.problem, remedy="; or ".join(lines)) if lines else error


def _whole(low: float, high: float) -> Callable[[Values], Evidence | None]:
    """True of whole numbers from 0 to a largest value between two."""

    def evidence(values: Values) -> Evidence | None:
        fits = not values.is_wave and values.integral and values.minimum >= 0 and low < values.maximum <= high
        top = next((top for top in TOPS if values.maximum <= top), 0.0)
        text = f"they are whole numbers up to {values.maximum:g}"
        return Evidence(text, {"top": top, "divide": values.write({"divide": top})}) if fits else None

    return evidence


TOPS = (1.0, 3.0, 7.0, 15.0, 16.0, 31.0, 63.0, 100.0, 127.0, 255.0, 1023.0, 4095.0, 65535.0)
"""Largest values that whole numbers are made to take."""
OVERSHOOT = 0.1
"""Share of [0, 1] by which resized pictures leave it."""


def _levels(values: Values) -> Evidence | None:
    """Numbers from 0 to 255 that are no whole ones, such as a mean of pictures."""
    fits = not values.is_wave and not values.integral and values.minimum >= 0 and 127 < values.maximum <= 255
    line = {"divide": values.write({"divide": 255})}
    return Evidence(f"they reach from 0 to {values.maximum:g}, as pictures of 8 bits", line) if fits else None


def _centred(values: Values) -> Evidence | None:
    """Numbers from -1 to 1 that reach both ends."""
    fits = (
        not values.is_wave and values.kind != "vector" and values.minimum >= -1 and values.maximum <= 1 and values.minimum < -0.2
    )
    return Evidence("they lie in [-1, 1]", {"bounds": values.write({"low": -1, "high": 1})}) if fits else None


def _normalised(values: Values) -> Evidence | None:
    """Pictures on both sides of 0, beyond 1."""
    edge = max(-values.minimum, values.maximum)
    fits = not values.is_wave and values.kind in ("image", "video") and values.minimum < -0.2 and 1 < edge <= 10
    top = float(np.ceil(edge))
    return Evidence("they look normalised", {"bounds": values.write({"low": -top, "high": top})}) if fits else None


def _overshot(values: Values) -> Evidence | None:
    """Numbers that leave [0, 1] a little."""
    low, high = min(values.minimum, 0.0), max(values.maximum, 1.0)
    is_near = not values.is_wave and not values.integral and low >= -OVERSHOOT and 0.5 < values.maximum and high <= 1 + OVERSHOOT
    low, high = float(np.floor(100 * low)) / 100, float(np.ceil(100 * high)) / 100
    bounds = values.write({"low": low, "high": high})
    return Evidence("they leave 0 to 1 a little, as resized pictures do", {"bounds": bounds}) if is_near else None


def _waves(values: Values) -> Evidence | None:
    """Signals in their own unit."""
    if not values.is_wave or values.dtype.kind == "u":
        return None
    top = float(f"{2 * max(-values.minimum, values.maximum):.0e}") or 1.0
    options = ({} if values.kind == "signal" else {"kind": "signal"}) | {"low": -top if values.minimum < 0 else 0.0, "high": top}
    return Evidence("they look like signals in their own unit", {"signal": values.write(options)})


def _columns(values: Values) -> Evidence | None:
    """Vectors of real numbers, which columns of a table are."""
    fits = values.kind == "vector" and not values.is_wave and not values.integral and values.maximum > values.minimum
    columns = (
        "write brinell.data(x, y, bounds='columns')" if values.in_memory else "save them as FILE.csv and write table:FILE.csv"
    )
    return Evidence("where each column has a range of its own", {"columns": columns}) if fits else None


VALUES = (
    Entry("whole numbers of fewer than 8 bits", _whole(0, 127), "write {divide}; for dark pictures of 8 bits, divide by 255"),
    Entry("pictures of 8 bits", _whole(127, 255), "write {divide}"),
    Entry("pictures of more than 8 bits", _whole(255, 65535), "write {divide}"),
    Entry("levels of 8 bits that are no whole numbers", _levels, "write {divide}"),
    Entry("values from -1 to 1", _centred, "write {bounds}"),
    Entry(
        "values that are normalised",
        _normalised,
        "take the normalisation out of the data, or write {bounds} for a model that takes them as they are",
    ),
    Entry("values that leave their bounds a little", _overshot, "write {bounds}, or clip them"),
    Entry("signals in their own unit", _waves, "write {signal}"),
    Entry("columns with units of their own", _columns, "{columns}"),
)


# Answers to clean inputs

MIN_GAIN = 2
"""Least number of further right answers among the samples tried first."""
STRIDE = 4
"""Every `STRIDE`-th sample is tried first; the others only where those gain."""
LEAST_RATE = 0.4
"""Least accuracy with a mistake mended, at which it is named."""
SIGNIFICANCE = 1e-3
"""Largest probability by chance of the gains of another order of classes."""
PLACE_SIGNIFICANCE = 0.05
"""Largest probability by chance of a label's answers, at which its place in the model's order counts as known."""
MOST_LISTED = 4
"""Number of classes that a message lists."""
MIN_PIXELS = 64
"""Number of values from which a vector without named columns may be a picture."""


class Answers:
    """The answers of a model to clean inputs, and what it answers when they are changed; counts its forwards.

    Args:
        model: the model.
        pred: (n,) classes predicted.
        labels: (n,) labels.
        load: maps positions (m,) among the samples to inputs (m, *shape).
        index: (m,) positions of the samples on which changes are tried.
        classes: names of the classes of the data.
        spec: the spec of the model; empty for a model in memory.
        batch_size: the most inputs shown to the model at once.
    """

    def __init__(
        self,
        model: "Model",
        pred: Array,
        labels: Array,
        load: Callable[[Array], "Tensor"],
        index: Array,
        *,
        classes: Sequence[str] = (),
        spec: str = "",
        batch_size: int = 128,
    ) -> None:
        self.model, self.pred, self.labels, self.classes, self.spec = model, pred, labels, classes, spec
        self._load, self._index, self._batch_size, self.forwards = load, index, batch_size, 0

    @cached_property
    def x(self) -> "Tensor":
        """(m, *shape): the inputs on which changes are tried."""
        return self._load(self._index)

    def changed(
        self,
        change: Callable[["Tensor"], "Tensor"],
        text: str,
        line: Mapping[str, object],
        state: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Evidence | None:
        """Evidence that the model is far better with the inputs changed, or in another state."""
        y, n = self.labels[self._index], len(self._index)
        right, first = self.pred[self._index] == y, np.arange(n) % STRIDE == 0
        matches = np.zeros(n, dtype=bool)
        for part, least in ((first, int(right[first].sum()) + MIN_GAIN), (~first, 0)):
            self.forwards += int(part.sum())
            with state():
                pred = self._predict(change(self.x[part]))
            matches[part] = pred == y[part]
            if matches[part].sum() < least:
                return None
        k, correct = int(matches.sum()), int(right.sum())
        interval = wilson(k, n)
        is_right = (
            k >= LEAST_RATE * n and interval is not None and interval.low > chance(self.pred, self.labels, self.model.classes)
        )
        text = f"of {n} samples it is right on {correct}, and on {k} {text}"
        return Evidence(text, line, k / n) if is_right and is_far_better(correct, k, n) else None

    def _predict(self, x: "Tensor") -> Array:
        """(n,) classes; none where the model fails."""
        import torch

        from brinell.core.model import ask

        try:
            with torch.no_grad():
                logits = torch.cat([ask(self.model, part) for part in torch.split(x, self._batch_size)])
        except ModelError:
            return np.full(len(x), NEVER)
        return logits.argmax(1).cpu().numpy() if bool(torch.isfinite(logits).all()) else np.full(len(x), NEVER)


def chance(pred: Array, labels: Array, classes: int) -> float:
    """Expected accuracy of answers independent of the inputs; 1 / classes if all labels are of one class."""
    if len(np.unique(labels)) < 2:
        return 1 / classes
    count = int(max(pred.max(), labels.max())) + 1
    predicted, true = (np.bincount(values.clip(0), minlength=count) / len(values) for values in (pred, labels))
    return float(predicted @ true)


def is_far_better(correct: int, improved: int, n: int) -> bool:
    """True if `improved` of `n` is significantly more than `correct` of `n`: their intervals do not overlap."""
    interval, improved_interval = wilson(correct, n), wilson(improved, n)
    return interval is not None and improved_interval is not None and improved_interval.low > interval.high


def _affine(
    text: str, mean: tuple[float, ...], std: tuple[float, ...], *, bytes_of: bool | None = None
) -> Callable[[Answers], Evidence | None]:
    """True of a model that wants (u - mean) / std of pictures u in [0, 1]; `bytes_of`: only in [0, 255], or not."""

    def evidence(answers: Answers) -> Evidence | None:
        domain = answers.model.domain
        is_flat = domain.kind == "vector" and not domain.columns and domain.shape[0] >= MIN_PIXELS
        channels = 1 if is_flat else domain.shape[0]
        if not (domain.kind in ("image", "video") or is_flat) or isinstance(domain.low, tuple) or isinstance(domain.high, tuple):
            return None
        is_bytes = (domain.low, domain.high) == (0, 255)
        if len(mean) not in (1, channels) or domain.low < 0 or bytes_of not in (None, is_bytes):
            return None
        low, width = float(domain.low), float(domain.high) - float(domain.low)
        means, stds = [low + width * value for value in mean], [width * value for value in std]
        return answers.changed(partial(_normalise, mean=means, std=stds), text, {"begin": _begin(answers, means, stds)})

    return evidence


def _normalise(x: "Tensor", mean: Sequence[float], std: Sequence[float]) -> "Tensor":
    """(x - mean) / std, by channel."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    return (x - x.new_tensor(mean).reshape(shape)) / x.new_tensor(std).reshape(shape)


def _begin(answers: Answers, mean: Sequence[float], std: Sequence[float]) -> str:
    """How a model is made to begin with (x - mean) / std."""
    means, stds = ([float(f"{value:.6g}") for value in values] for values in (mean, std))
    if answers.model.info.preprocessing:
        return f"correct the normalisation that is given: the inputs want mean {means} and std {stds} before it"
    if answers.spec.startswith("onnx:"):
        return f"write mean={'+'.join(f'{m:g}' for m in means)}&std={'+'.join(f'{s:g}' for s in stds)} in the model's options"
    if not answers.spec:
        return f"give mean={means if len(means) > 1 else means[0]}, std={stds if len(stds) > 1 else stds[0]}"
    if not any(means) and len(set(stds)) == 1:
        return f"let the model begin with x = x {f'* {1 / stds[0]:g}' if stds[0] < 1 else f'/ {stds[0]:g}'}"
    return f"let the model begin with x = (x - mean) / std, mean {', '.join(map(str, means))} and std {', '.join(map(str, stds))}"


def _twice(answers: Answers) -> Evidence | None:
    """Pictures that were normalised before, where the model does it again."""
    domain = answers.model.domain
    if domain.kind not in ("image", "video") or isinstance(domain.low, tuple) or domain.low >= 0:
        return None
    for name, (mean, std) in NORMALISATIONS.items():
        if len(mean) in (1, domain.shape[0]):
            back = partial(_normalise, mean=[-m / s for m, s in zip(mean, std, strict=True)], std=[1 / s for s in std])
            if evidence := answers.changed(back, f"once the normalisation of {name} is taken away again", {}):
                return evidence
    return None


def _changed(
    kind: Kind, change: Callable[["Tensor"], "Tensor"], text: str, *, channels: int = 0
) -> Callable[[Answers], Evidence | None]:
    """True of a model that wants inputs of a kind, and of so many channels, changed."""

    def evidence(answers: Answers) -> Evidence | None:
        domain = answers.model.domain
        fits = domain.kind == kind and channels in (0, domain.shape[0]) and not domain.columns
        return answers.changed(change, text, {}) if fits else None

    return evidence


def _as_channels_last(x: "Tensor") -> "Tensor":
    """Pictures whose values lie in memory with the channels last, although they are read as if they were first."""
    return x.reshape(len(x), *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2).contiguous()


def _training_mode(answers: Answers) -> Evidence | None:
    """A forward pass that puts the model into training mode."""
    from brinell.engine.model_states import kept_in_evaluation_mode

    module, training = answers.model.info.module, answers.model.info.training
    if module is None or training is None or not training():
        return None
    return answers.changed(lambda x: x, "if it is kept in evaluation mode", {}, partial(kept_in_evaluation_mode, module))


def _new_batch_norms(answers: Answers) -> Evidence | None:
    """Batch norms with the statistics of a new network."""
    from brinell.engine.model_states import by_batch_statistics, untouched_norms

    module = answers.model.info.module
    norms = [] if module is None else untouched_norms(module)
    text = "by the statistics of the batch"
    return answers.changed(lambda x: x, text, {"count": len(norms)}, partial(by_batch_statistics, norms)) if norms else None


def _renumbered(change: Callable[[Array], Array], text: str) -> Callable[[Answers], Evidence | None]:
    """True of labels that the model numbers otherwise."""

    def evidence(answers: Answers) -> Evidence | None:
        y, n = answers.labels, len(answers.labels)
        last, changed = int(y.max()), change(y)
        k, improved = int((answers.pred == y).sum()), int((answers.pred == changed).sum())
        fits = last > 1 and changed.min() >= 0 and improved >= n / 2 and is_far_better(k, improved, n)
        return Evidence(f"{text} on {improved} of {n}", {"last": last}, improved / n) if fits else None

    return evidence


def _in_another_order(answers: Answers) -> Evidence | None:
    """Classes of the model in another order, judged by halves: each by the order that fits the other, so that none is made up."""
    pred, y, n = answers.pred, answers.labels, len(answers.labels)
    halves = np.lexsort((np.arange(n), y))[::2], np.lexsort((np.arange(n), y))[1::2]
    wins = losses = matches = 0
    for half, other in (halves, halves[::-1]):
        order = _match(pred[half], y[half])
        after = np.array([order.get(answer, NEVER) for answer in pred[other].tolist()], dtype=np.int64) == y[other]
        before = pred[other] == y[other]
        matches, wins, losses = (
            matches + int(after.sum()),
            wins + int((after & ~before).sum()),
            losses + int((before & ~after).sum()),
        )
    order = _match(pred, y)
    shifts = {label - answer for answer, label in order.items()}
    if matches < n / 2 or _sign_test(wins, losses) > SIGNIFICANCE or len(shifts) == 1:
        return None
    names = [answers.classes[label] if label < len(answers.classes) else str(label) for label in range(int(y.max()) + 1)]
    swaps = [f"{answer} is {names[label]}" for answer, label in sorted(order.items()) if answer != label]
    listing = ", ".join(swaps[:MOST_LISTED]) + (f" and {len(swaps) - MOST_LISTED} more" if len(swaps) > MOST_LISTED else "")
    is_whole = sorted(order) == list(range(answers.model.classes)) and all(
        _is_known(pred[y == label], answer) for answer, label in order.items()
    )
    option = option_text([names[order[answer]] for answer in sorted(order)]) if is_whole else ""
    line = {"option": option or "class_names=, as it is documented where the model comes from"}
    return Evidence(f"with its classes in another order it is right on {matches} of {n} ({listing})", line, matches / n)


def _match(pred: Array, labels: Array) -> dict[int, int]:
    """Answers matched to labels one to one, greedily by the frequency of the pairs."""
    pairs, counts = np.unique(np.stack([pred, labels]), axis=1, return_counts=True)
    order: dict[int, int] = {}
    for row in np.argsort(-counts, kind="stable"):
        answer, label = int(pairs[0, row]), int(pairs[1, row])
        if answer not in order and label not in order.values():
            order[answer] = label
    return order


def _is_known(pred: Array, answer: int) -> bool:
    """True if samples of one label get an answer significantly more often than any other."""
    answers, counts = np.unique(pred, return_counts=True)
    return _sign_test(int(counts[answers == answer].sum()), int(counts[answers != answer].max(initial=0))) <= PLACE_SIGNIFICANCE


def _sign_test(wins: int, losses: int) -> float:
    """The probability of at least so many wins in wins + losses fair games."""
    games = wins + losses
    return float(sum(comb(games, count) for count in range(wins, games + 1)) / 2**games)


NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "MNIST": ((0.1307,), (0.3081,)),
    "[-1, 1]": ((0.5,), (0.5,)),
}
"""Usual means and standard deviations per channel, for pictures in [0, 1]."""

ANSWERS = (
    Entry("no division by 255", _affine("with inputs divided by 255", (0.0,), (1.0,), bytes_of=True), "{begin}"),
    Entry("a division by 255 too many", _affine("with inputs from 0 to 255", (0.0,), (1 / 255,), bytes_of=False), "{begin}"),
    Entry("inputs from 0 to 16", _affine("with inputs from 0 to 16", (0.0,), (1 / 16,)), "{begin}"),
    *(
        Entry(f"no normalisation of {name}", _affine(f"with inputs normalised by mean and std of {name}", mean, std), "{begin}")
        for name, (mean, std) in NORMALISATIONS.items()
    ),
    Entry(
        "normalised twice", _twice, "normalise once: leave out mean, std or preprocessing, or give the data as they were before"
    ),
    Entry(
        "channels in the order BGR",
        _changed("image", lambda x: x.flip(1), "with channels in the order BGR", channels=3),
        "let the model begin with x = x.flip(1)",
    ),
    Entry(
        "channels last, read as first",
        _changed("image", _as_channels_last, "if the channels were last", channels=3),
        "bring the channels first by transpose(0, 3, 1, 2), not by reshape",
    ),
    Entry(
        "millivolts in place of microvolts",
        _changed("signal", lambda x: x * 1000, "with inputs multiplied by 1000"),
        "give the signals in microvolts, or let the model begin with x = x * 1000",
    ),
    Entry(
        "microvolts in place of millivolts",
        _changed("signal", lambda x: x / 1000, "with inputs divided by 1000"),
        "give the signals in millivolts (divide=1000), or let the model begin with x = x / 1000",
    ),
    Entry(
        "signals that are not standardised",
        _changed(
            "signal",
            lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8),
            "with signals of mean 0 and deviation 1 each",
        ),
        "let the model begin with x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8)",
    ),
    Entry("a model in training mode", _training_mode, "its forward pass puts it into training mode: take train() out of it"),
    Entry(
        "batch norms of a new network",
        _new_batch_norms,
        "{count} batch norms are those of a new network: load running_mean and running_var with the weights",
    ),
    Entry(
        "labels counted from 1",
        _renumbered(lambda y: y - 1, "the class answered is the label minus 1"),
        "take 1 from the labels (y - 1)",
    ),
    Entry(
        "labels counted from 0 for a model with a class before them",
        _renumbered(lambda y: y + 1, "the class answered is the label plus 1"),
        "add 1 to the labels (y + 1)",
    ),
    Entry(
        "class 0 written last",
        _renumbered(
            lambda y: np.where(y.min() > 0, y % max(1, int(y.max())), NEVER),
            "the class answered is the remainder of the label by its largest",
        ),
        "take the remainder (y % {last})",
    ),
    Entry("classes in another order", _in_another_order, "name the model's classes by its option {option}"),
)

TABLES: dict[type, tuple[Entry, ...]] = {File: FILES, Values: VALUES, Answers: ANSWERS}
"""The table, by its subjects."""
