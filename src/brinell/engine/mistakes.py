"""The most frequent mistakes, in one table: what is seen of each, and the line to type.

A mistake is about a path, or about stored values outside their bounds. If two explanations fit as
well, both are named. Anything else is refused plainly. What is wrong with the form of inputs and
labels shows in answers to clean inputs (`engine.fit`).
"""

import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from brinell.core import bounded
from brinell.core.domain import Kind
from brinell.core.errors import RequestError
from brinell.core.file_content import PICKLE, PROGRAM, TENSORS, content_of
from brinell.datasets._arrays import BoundsError, looks_like_signals

# Paths

TORCH = (".pt", ".pth", ".ckpt", ".bin", ".pth.tar", ".safetensors")
"""Endings of files that torch and safetensors write."""
MODULE_STATE = (b"_modules", b"_parameters")
MOST_BYTES = 1 << 24
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


def mistake_of_path(kind: str, path: Path) -> str:
    """The mistake that keeps a path from being the data or the model, and the line to type; empty
    for none.
    """
    for row in PATHS:
        if row.kind == kind and path.name.lower().endswith(row.endings) and row.holds(path):
            stem = path.parent / path.name.partition(".")[0]
            return f"{row.evidence}: {row.line.format(path=path, stem=stem)}"
    return ""


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

    @property
    def twice(self) -> float:
        """Twice the largest absolute value, to one digit."""
        return float(f"{2 * self.top:.0e}")


class ValueRow(NamedTuple):
    """A mistake about stored values."""

    fits: Callable[[Values], bool]
    evidence: str
    options: Callable[[Values], dict[str, Any]]
    """The options of the data that mend it."""
    line: str = "write {options}"


# Below -0.2 values lie farther out than resized pictures, which overshoot.
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
            "low": -v.twice if v.low < 0 else 0,
            "high": v.twice,
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


def explain(error: BoundsError, write: Callable[[Mapping[str, Any]], str]) -> RequestError:
    """The refusal of values outside their bounds, with the mistakes that explain it.

    `write` writes options of data down, as a spec or as a call of `brinell.data`.
    """
    facts = error.facts
    # Whole numbers without a sign (dtype kind u) are pictures, however smooth they are.
    is_wave = looks_like_signals(error.x, error.kind) and error.x.dtype.kind != "u"
    values = Values(facts.minimum, facts.maximum, facts.integral, error.kind, is_wave)

    lines, remedy = list[str](), ""
    for row in VALUES:
        if not row.fits(values):
            continue
        options = row.options(values)
        texts = {name: v if name == "kind" else f"{v:.6g}" for name, v in options.items()}
        remedy = write(texts)
        line = row.line.format(options=remedy)
        lines.append(f"{row.evidence.format(high=values.high)}: {line}")
    # A single explanation can be mended; the caller knows the text that the remedy replaces.
    instead = ("", remedy) if len(lines) == 1 else None
    return (
        RequestError(error.problem, remedy="; or ".join(lines[:2]), instead=instead)
        if lines
        else error
    )
