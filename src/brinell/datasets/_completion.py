"""Options that complete a spec of an archive: names of arrays, kind, position of channels, scale and bounds, read off the arrays.

A proposal is what makes the archive open: `npz` opens it before it is shown.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.record import Array
from brinell.core.suggestions import nearest_names

SIGNALS = ("beats", "beat", "ecg", "eeg", "emg", "ppg", "signal", "signals", "audio", "wave", "waves", "waveforms", "heartbeats")
"""Words in the name of an array that holds signals."""
LABEL_NAMES = ("y", "labels", "targets", "classes_of_samples")
SHORTEST_SIGNAL = 32
"""Fewest values per channel that make a row a signal by its smoothness alone."""
SMOOTH = 0.5
"""Largest ratio of the mean step between neighbours to the deviation, in a signal that is sampled finely enough."""
SAMPLE = 256
"""Number of inputs that are looked at, fewer of large ones."""
VALUES = 1 << 22
"""Number of values that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An array of an archive as its header has it."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


def headers(archive: zipfile.ZipFile) -> Iterator[Stored]:
    """The arrays of an archive, without their content; those that cannot be read are left out."""
    for entry in archive.namelist():
        if not entry.endswith(".npy"):
            continue
        try:
            with archive.open(entry) as member:
                version = np.lib.format.read_magic(member)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
        except Exception:  # of a damaged archive the library raises whatever comes its way
            continue
        yield Stored(name=entry.removesuffix(".npy"), shape=tuple(shape), dtype=dtype)


def choose_arrays(arrays: list[Stored], x: str, y: str) -> dict[str, str]:
    """The options x and y: the arrays that were named, else the largest and one with labels for its rows; empty if none has."""
    names = {array.name for array in arrays}
    inputs = [array for array in arrays if len(array.shape) > 1 and array.dtype.kind in "biuf" and len(array.shape) < 6]
    inputs.sort(key=lambda array: -math.prod(array.shape))
    inputs_array = next((array for array in arrays if array.name == x), None) or next(iter(inputs), None)
    if inputs_array is None:
        return {}
    rows = inputs_array.shape[:1]
    labels = [array for array in arrays if array.shape[:1] == rows and array.name != inputs_array.name and _may_be_labels(array)]
    neighbours = [array for array in labels if nearest_names(array.name, LABEL_NAMES)]
    label = y if y in names else next((array.name for array in neighbours or labels), "")
    return {"x": inputs_array.name, "y": label} if label else {}


def _may_be_labels(array: Stored) -> bool:
    """True for one number per sample, or one row of numbers per sample."""
    return array.dtype.kind in "biuf" and (len(array.shape) == 1 or (len(array.shape) == 2 and array.shape[1] <= 1000))


def is_named_signal(name: str, members: Mapping[str, Any]) -> bool:
    """True if the name of the array, or a sampling rate in the archive, says that it holds signals."""
    words = name.lower().replace("-", "_").split("_")
    return "fs" in members or bool(set(words) & set(SIGNALS))


def complete(x: Array, name: str, members: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Options beyond those that were given: kind, layout, and the scale or bounds that hold the values.

    Args:
        x: (n, *stored) the inputs.
        name: name of their array.
        members: names of all arrays of the archive.
        settings: the user's options, by name; unset ones are missing.
    """
    head = np.asarray(x[: max(2, min(SAMPLE, VALUES // max(1, math.prod(x.shape[1:]))))], dtype=np.float64)
    kind = settings.get("kind") or _kind(head, name, members)
    options = {} if kind is None or "kind" in settings else {"kind": kind}
    if "layout" not in settings and (layout := _layout(head.shape, kind)):
        options["layout"] = layout
    return options | _bounds(x, kind, settings)


def _kind(x: Array, name: str, members: Mapping[str, Any]) -> str | None:
    """`signal` for rows that are named so or change smoothly; None where the number of axes tells the kind."""
    if x.ndim not in (2, 3):
        return None
    if is_named_signal(name, members):
        return "signal"
    long, narrow = max(x.shape[1:]), min(x.shape[1:]) if x.ndim == 3 else 1
    if long < SHORTEST_SIGNAL or 4 * narrow > long:
        return None
    axis = 1 + int(np.argmax(x.shape[1:]))
    steps = np.abs(np.diff(x, axis=axis)).mean()
    return "signal" if x.ndim == 3 or steps < SMOOTH * x.std() else None


def _layout(shape: tuple[int, ...], kind: str | None) -> str | None:
    """Position of the channels where sizes alone leave it open or read it wrongly; None where nothing has to be said."""
    if kind == "signal":
        return "last" if len(shape) == 3 and shape[1] > shape[2] else None
    if len(shape) != 4 or kind not in (None, "image"):
        return None
    first, last = shape[1], shape[3]
    if (first in (1, 3, 4)) != (last in (1, 3, 4)):
        return None
    return "first" if first < last else "last" if last < first else None


def _bounds(x: Array, kind: str | None, settings: Mapping[str, Any]) -> dict[str, str]:
    """The divisor or the bounds that hold all values; none where those that were given do, and for bytes."""
    if x.dtype == np.uint8 and not {"low", "high", "divide"} & settings.keys():
        return {}
    low, high = float(np.min(x)), float(np.max(x))
    divide = float(settings.get("divide", 1.0))
    if not math.isfinite(high - low) or (low / divide >= settings.get("low", 0.0) and high / divide <= settings.get("high", 1.0)):
        return {}
    picture = kind in ("image", "video") or (kind is None and x.ndim > 2)
    if picture and low >= 0 and high <= 255 and not {"low", "high", "divide"} & settings.keys():
        return {"divide": "255"}
    return {"low": f"{_outward(low / divide, -1):g}", "high": f"{_outward(high / divide, 1):g}"}


def _outward(value: float, sign: int) -> float:
    """The value rounded away from the others to two digits."""
    if value == 0 or sign * value < 0 and abs(value) < 1e-12:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return sign * math.ceil(sign * value / unit - 1e-9) * unit
