"""The most frequent mistakes, in one table: what is seen of each, and the line to type.

A mistake is about a path, about stored values outside their bounds, or about answers to clean
inputs. One about answers fits where the change that it names makes the model far better on the
samples at hand. If two explanations fit as well, both are named. Anything else is refused plainly.
"""

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """A mistake that fits."""

    evidence: str
    line: str
    rate: float = 1.0
    """Share of the samples on which the model is right once the mistake is mended."""

    def __str__(self) -> str:
        return f"{self.evidence}: {self.line}"


# Paths

TORCH = (".pt", ".pth", ".ckpt", ".bin", ".pth.tar", ".safetensors")
"""Endings of files that torch and safetensors write."""
MODULE_STATE, MOST_BYTES = (b"_modules", b"_parameters"), 1 << 24
"""Names that the pickle of a module has in its first bytes, and a state dict not."""


def _is_whole_module(path: Path) -> bool:
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


class PathRow(NamedTuple):
    """A mistake about a path where data or a model are expected."""

    kind: Literal["dataset", "model"]
    endings: tuple[str, ...]
    evidence: str
    line: str
    holds: Callable[[Path], bool] = lambda path: True


SAVE_ARRAYS = "save inputs and labels by numpy.savez('FILE.npz', x=inputs, y=labels)"
PATHS = (
    PathRow("dataset", (".npy",), "it holds one array and no labels", SAVE_ARRAYS),
    PathRow(
        "dataset",
        (".pt", ".pth", ".pkl", ".pickle", ".h5", ".mat", ".safetensors"),
        "such files are not read",
        SAVE_ARRAYS,
    ),
    PathRow(
        "dataset",
        (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z"),
        "it is packed",
        "unpack it, and name what it holds",
    ),
    PathRow(
        "dataset",
        (".png", ".jpg", ".jpeg"),
        "it is one picture",
        "name the folder that holds a folder for each class",
    ),
    PathRow(
        "model",
        TORCH,
        "it is a TorchScript program",
        "let def net() in model.py return torch.jit.load('{path}'), and write model.py:net",
        lambda path: path.is_file() and content_of(path) == PROGRAM,
    ),
    PathRow(
        "model",
        TORCH,
        "it is a pickle of a whole module, which runs code when it is loaded, so it never is",
        "where the module is at hand, call "
        "safetensors.torch.save_file(model.state_dict(), '{stem}.safetensors'), "
        "and write "
        "model.py:FACTORY?weights={stem}.safetensors",
        _is_whole_module,
    ),
    PathRow(
        "model",
        TORCH,
        "it holds weights, which do not say which network they belong to",
        "write model.py:FACTORY?weights={path}, where FACTORY is a function in "
        "model.py that returns the network",
    ),
    PathRow(
        "model",
        (".pt2",),
        "a program is opened by code of yours",
        "let def net() in model.py return torch.export.load('{path}'), and write model.py:net",
    ),
    PathRow(
        "model",
        (".pkl", ".pickle", ".joblib"),
        "a pickle runs code when it is loaded, so none is",
        "save the model by skops.io.dump and name FILE.skops",
    ),
    PathRow(
        "model",
        (".h5", ".keras", ".tflite", ".pb"),
        "it is of TensorFlow, which is not opened here",
        "make it {stem}.onnx by python -m tf2onnx.convert, or hand brinell.audit "
        "a function from Python",
    ),
)


def mistake_of_path(kind: str, path: Path) -> Mistake | None:
    """The mistake that keeps a path from being the data, or the model."""
    for row in PATHS:
        if row.kind == kind and path.name.lower().endswith(row.endings) and row.holds(path):
            return Mistake(
                row.evidence,
                row.line.format(path=path, stem=path.parent / path.name.partition(".")[0]),
            )
    return None


# Stored values outside their bounds

TOPS = (1, 3, 7, 15, 16, 31, 63, 100, 127, 255, 1023, 4095, 65535)
"""Largest values that whole numbers are made to take."""
OVERSHOOT = 0.1
"""Share of [0, 1] by which resized pictures leave it."""


class Values(NamedTuple):
    """Stored values outside their bounds."""

    low: float
    high: float
    integral: bool
    kind: Kind
    is_wave: bool
    """True for values that change smoothly along one axis, as signals do."""

    @property
    def top(self) -> float:
        """The largest absolute value."""
        return max(-self.low, self.high)


class ValueRow(NamedTuple):
    """A mistake about stored values."""

    fits: Callable[[Values], bool]
    evidence: str
    options: Callable[[Values], dict[str, Any]]
    """The options of the data that mend it."""
    line: str = "write {options}"


VALUES = (
    ValueRow(
        lambda v: v.is_wave and v.low < 0 and v.top <= 1,
        "they lie in [-1, 1], as sound does",
        lambda v: {"kind": "signal", "low": -1, "high": 1},
    ),
    ValueRow(
        lambda v: v.is_wave and v.top > 1,
        "they look like signals in their own unit",
        lambda v: {
            "kind": "signal",
            "low": -_twice(v.top) if v.low < 0 else 0,
            "high": _twice(v.top),
        },
    ),
    ValueRow(
        lambda v: not v.is_wave and v.integral and 0 <= v.low and v.high <= 127,
        "they are whole numbers up to {high:g}",
        lambda v: {"divide": next(top for top in TOPS if v.high <= top)},
        "write {options}; for dark pictures of 8 bits, divide by 255",
    ),
    ValueRow(
        lambda v: (
            not v.is_wave and 0 <= v.low and 127 < v.high <= (TOPS[-1] if v.integral else 255)
        ),
        "they reach from 0 to {high:g}, as pictures of 8 bits or more",
        lambda v: {"divide": next(top for top in TOPS if v.high <= top)},
    ),
    ValueRow(
        lambda v: not v.is_wave and v.kind != "vector" and v.low < -0.2 and v.top <= 1,
        "they lie in [-1, 1]",
        lambda v: {"low": -1, "high": 1},
    ),
    ValueRow(
        lambda v: (
            not v.is_wave and v.kind in ("image", "video") and v.low < -0.2 and 1 < v.top <= 10
        ),
        "they look normalised",
        lambda v: {"low": -math.ceil(v.top), "high": math.ceil(v.top)},
        "take the normalisation out of the data, or write {options} for a model "
        "that takes them as they are",
    ),
    ValueRow(
        lambda v: (
            not (v.is_wave or v.integral) and v.low >= -OVERSHOOT and 0.5 < v.high <= 1 + OVERSHOOT
        ),
        "they leave 0 to 1 a little, as resized pictures do",
        lambda v: {
            "low": math.floor(100 * min(v.low, 0)) / 100,
            "high": math.ceil(100 * max(v.high, 1)) / 100,
        },
        "write {options}, or clip them",
    ),
    ValueRow(
        lambda v: v.kind == "vector" and not v.is_wave and not v.integral,
        "where each column has a range of its own",
        lambda v: {},
        "write brinell.data(x, y, bounds='columns'), or save them as FILE.csv "
        "and write table:FILE.csv",
    ),
)


def _twice(top: float) -> float:
    return float(f"{2 * top:.0e}")


def explain(error: BoundsError, write: Callable[[Mapping[str, Any]], str]) -> RequestError:
    """The refusal of values outside their bounds, with the mistakes that explain it.

    `write` writes options of data down, as a spec or as a call of `brinell.data`.
    """
    facts, is_wave = (
        error.facts,
        looks_like_signals(error.x, error.kind) and error.x.dtype.kind != "u",
    )
    values = Values(facts.minimum, facts.maximum, facts.integral, error.kind, is_wave)
    lines = []
    for row in VALUES:
        if row.fits(values):
            options = {
                name: f"{value:.6g}" if name != "kind" else value
                for name, value in row.options(values).items()
            }
            lines.append(
                f"{row.evidence.format(high=values.high)}: "
                f"{row.line.format(options=write(options))}"
            )
    return RequestError(error.problem, remedy="; or ".join(lines[:2])) if lines else error


# Answers to clean inputs

LEAST_RATE = 0.4
"""Least accuracy with a mistake mended, at which it is named."""
MOST_LISTED = 4
MIN_PIXELS = 64
"""Number of values from which a vector without named columns may be a picture."""


@dataclass
class Answers:
    """The answers of a model to clean inputs, and what it answers when they are changed."""

    model: "Model"
    pred: Array
    """(n,) classes predicted."""
    labels: Array
    """(n,)."""
    index: Array
    """(m,) positions of the samples on which changes are tried."""
    x: "Tensor"
    """(m, *shape): their inputs."""
    classes: Sequence[str] = ()
    """Names of the classes of the data."""
    spec: str = ""
    """The spec of the model; empty for a model in memory."""
    batch_size: int = 128
    forwards: int = 0

    def changed(
        self, change: Callable[["Tensor"], "Tensor"], text: str, line: str
    ) -> Mistake | None:
        """The mistake, if the model is far better with the inputs changed."""
        self.forwards += len(self.index)
        pred = self._predict(change(self.x))
        return _if_far_better(
            self.pred[self.index], pred, self.labels[self.index], self.model.classes, text, line
        )

    def _predict(self, x: "Tensor") -> Array:
        """(n,) classes; none where the model fails."""
        import torch

        from brinell.core.model import ask

        try:
            with torch.no_grad():
                logits = torch.cat(
                    [ask(self.model, part) for part in torch.split(x, self.batch_size)]
                )
        except ModelError:
            return np.full(len(x), NEVER)
        return (
            logits.argmax(1).cpu().numpy()
            if bool(torch.isfinite(logits).all())
            else np.full(len(x), NEVER)
        )


def _if_far_better(
    pred: Array, mended: Array, labels: Array, classes: int, text: str, line: str
) -> Mistake | None:
    """The mistake, if answers (n,) with it mended are right far more often, and more often than by
    chance.
    """
    n, correct, k = len(labels), int((pred == labels).sum()), int((mended == labels).sum())
    interval = wilson(k, n)
    if k < LEAST_RATE * n or interval is None or interval.low <= chance(mended, labels, classes):
        return None
    mistake = Mistake(f"of {n} samples it is right on {correct}, and on {k} {text}", line, k / n)
    return mistake if is_far_better(correct, k, n) else None


def chance(pred: Array, labels: Array, classes: int) -> float:
    """Expected accuracy of answers independent of the inputs; 1 / classes if all labels are of one
    class.
    """
    if len(np.unique(labels)) < 2:
        return 1 / classes
    count = int(max(pred.max(), labels.max())) + 1
    predicted, true = (
        np.bincount(values.clip(0), minlength=count) / len(values) for values in (pred, labels)
    )
    return float(predicted @ true)


def is_far_better(correct: int, improved: int, n: int) -> bool:
    """True if `improved` of `n` is significantly more than `correct` of `n`: their intervals do not
    overlap.
    """
    interval, improved_interval = wilson(correct, n), wilson(improved, n)
    return (
        interval is not None
        and improved_interval is not None
        and improved_interval.low > interval.high
    )


def _scaled(
    text: str, mean: tuple[float, ...], std: tuple[float, ...], *, of_bytes: bool | None = None
) -> Callable[[Answers], Mistake | None]:
    """True of a model that wants (u - mean) / std of pictures u in [0, 1]; `of_bytes`: only in [0,
    255], or not.
    """

    def entry(answers: Answers) -> Mistake | None:
        domain = answers.model.domain
        is_flat = domain.kind == "vector" and not domain.columns and domain.shape[0] >= MIN_PIXELS
        channels = 1 if is_flat else domain.shape[0]
        if (
            not (domain.kind in ("image", "video") or is_flat)
            or isinstance(domain.low, tuple)
            or isinstance(domain.high, tuple)
        ):
            return None
        is_bytes = (domain.low, domain.high) == (0, 255)
        if len(mean) not in (1, channels) or domain.low < 0 or of_bytes not in (None, is_bytes):
            return None
        low, width = float(domain.low), float(domain.high) - float(domain.low)
        means, stds = [low + width * value for value in mean], [width * value for value in std]
        line, shape = _begin(answers, means, stds), (1, -1, *[1] * (answers.x.ndim - 2))
        center, scale = (answers.x.new_tensor(values).reshape(shape) for values in (means, stds))
        return answers.changed(lambda x: (x - center) / scale, f"with inputs {text}", line)

    return entry


def _begin(answers: Answers, mean: Sequence[float], std: Sequence[float]) -> str:
    """How a model is made to begin with (x - mean) / std."""
    means, stds = ([float(f"{value:.6g}") for value in values] for values in (mean, std))
    if answers.spec.startswith("onnx:"):
        return (
            "write "
            f"mean={'+'.join(f'{m:g}' for m in means)}&std={'+'.join(f'{s:g}' for s in stds)} "
            "in the model's options"
        )
    if not answers.spec:
        return (
            f"give mean={means if len(means) > 1 else means[0]}, "
            f"std={stds if len(stds) > 1 else stds[0]}"
        )
    if not any(means) and len(stds) == 1:
        return (
            "let the model begin with x = x "
            f"{f'* {1 / stds[0]:g}' if stds[0] < 1 else f'/ {stds[0]:g}'}"
        )
    return (
        "let the model begin with x = (x - mean) / std, mean "
        f"{', '.join(map(str, means))} and std {', '.join(map(str, stds))}"
    )


def _changed(
    kind: str,
    change: Callable[["Tensor"], "Tensor"],
    text: str,
    code: str,
    first: str = "",
    *,
    channels: int = 0,
) -> Callable[[Answers], Mistake | None]:
    """True of a model that wants inputs of a kind, and of so many channels, changed as the code
    says.
    """

    def entry(answers: Answers) -> Mistake | None:
        domain = answers.model.domain
        fits = domain.kind == kind and channels in (0, domain.shape[0]) and not domain.columns
        return (
            answers.changed(change, text, f"{first}let the model begin with x = {code}")
            if fits
            else None
        )

    return entry


def _shifted(step: int, text: str, line: str) -> Callable[[Answers], Mistake | None]:
    """True of labels that the model numbers otherwise."""

    def entry(answers: Answers) -> Mistake | None:
        pred, labels = answers.pred, answers.labels
        fits = labels.max() > 1 and labels.min() + step >= 0
        return (
            _if_far_better(pred, pred - step, labels, answers.model.classes, text, line)
            if fits
            else None
        )

    return entry


def _in_another_order(answers: Answers) -> Mistake | None:
    """Classes of the model in another order, judged by halves: each by the order that fits the
    other, so that none is made up.
    """
    pred, y, n = answers.pred, answers.labels, len(answers.labels)
    halves = np.lexsort((np.arange(n), y))[::2], np.lexsort((np.arange(n), y))[1::2]
    orders = [_match(pred[half], y[half]) for half in halves]
    mended = np.empty(n, dtype=np.int64)
    for half, order in zip(halves, reversed(orders), strict=True):
        mended[half] = [order.get(answer, NEVER) for answer in pred[half].tolist()]
    order = _match(pred, y)
    if len({label - answer for answer, label in order.items()}) == 1:
        return None
    names = [
        answers.classes[label] if label < len(answers.classes) else str(label)
        for label in range(int(y.max()) + 1)
    ]
    swaps = [
        f"{answer} is {names[label]}" for answer, label in sorted(order.items()) if answer != label
    ]
    listing = ", ".join(swaps[:MOST_LISTED]) + (
        f" and {len(swaps) - MOST_LISTED} more" if len(swaps) > MOST_LISTED else ""
    )
    is_known = sorted(order) == list(range(answers.model.classes)) and all(
        half == order for half in orders
    )
    option = option_text([names[order[answer]] for answer in sorted(order)]) if is_known else ""
    line = (
        "name the model's classes by its option "
        f"{option or 'class_names=, as it is documented where the model comes from'}"
    )
    return _if_far_better(
        pred,
        mended,
        y,
        answers.model.classes,
        f"with its classes in another order ({listing})",
        line,
    )


def _match(pred: Array, labels: Array) -> dict[int, int]:
    """Answers matched to labels one to one, greedily by the frequency of the pairs."""
    pairs, counts = np.unique(np.stack([pred, labels]), axis=1, return_counts=True)
    order: dict[int, int] = {}
    for row in np.argsort(-counts, kind="stable"):
        answer, label = int(pairs[0, row]), int(pairs[1, row])
        if answer not in order and label not in order.values():
            order[answer] = label
    return order


NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "MNIST": ((0.1307,), (0.3081,)),
    "[-1, 1]": ((0.5,), (0.5,)),
}
"""Usual means and standard deviations per channel, for pictures in [0, 1]."""

ANSWERS = (
    _scaled("divided by 255", (0.0,), (1.0,), of_bytes=True),
    _scaled("from 0 to 255", (0.0,), (1 / 255,), of_bytes=False),
    _scaled("from 0 to 16", (0.0,), (1 / 16,)),
    *(
        _scaled(f"normalised by mean and std of {name}", mean, std)
        for name, (mean, std) in NORMALISATIONS.items()
    ),
    _changed(
        "image", lambda x: x.flip(1), "with channels in the order BGR", "x.flip(1)", channels=3
    ),
    _changed(
        "signal",
        lambda x: x * 1000,
        "with inputs multiplied by 1000",
        "x * 1000",
        "give the signals in microvolts, or ",
    ),
    _changed(
        "signal",
        lambda x: x / 1000,
        "with inputs divided by 1000",
        "x / 1000",
        "give the signals in millivolts (divide=1000), or ",
    ),
    _changed(
        "signal",
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8),
        "with signals of mean 0 and deviation 1 each",
        "(x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8)",
    ),
    _shifted(-1, "with the label minus 1", "take 1 from the labels (y - 1)"),
    _shifted(1, "with the label plus 1", "add 1 to the labels (y + 1)"),
    _in_another_order,
)


def mistakes_of(answers: Answers) -> list[Mistake]:
    """The best explanation of wrong answers, and one that explains them as well."""
    explanations = sorted(
        filter(None, (entry(answers) for entry in ANSWERS)), key=lambda mistake: -mistake.rate
    )
    return [mistake for mistake in explanations if mistake.rate >= explanations[0].rate - AS_GOOD][
        :2
    ]
