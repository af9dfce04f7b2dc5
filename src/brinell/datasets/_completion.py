"""Options that complete a spec of an archive: names of arrays, kind, position of channels, scale and bounds, read off the arrays.

A proposal is what makes the archive open: `npz` opens it before it is shown.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.core.domain import Kind
from brinell.core.errors import RequestError
from brinell.core.record import Array
from brinell.core.suggestions import nearest_names
from brinell.datasets._advice import DARK, Outline, advise, head_of, outward
from brinell.datasets._arrays import span
from brinell.datasets._axes import Layout, arrange, looks_like_signals

SIGNALS = ("beats", "beat", "ecg", "eeg", "emg", "ppg", "signal", "signals", "audio", "wave", "waves", "waveforms", "heartbeats")
"""Words in the name of an array that holds signals."""
LABEL_NAMES = ("y", "labels", "targets", "classes_of_samples")


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


def complete(x: Array, name: str, members: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Options beyond those that were given (kind, layout, and the scale or bounds that hold the values), and a further choice.

    Args:
        x: (n, *stored) the inputs.
        name: name of their array.
        members: names of all arrays of the archive.
        settings: the user's options, by name; unset ones are missing.
    """
    options: dict[str, str] = {}
    kind: Kind | None = settings.get("kind")
    layout: Layout | None = settings.get("layout")
    is_signal = is_named_signal(name, members)
    try:
        arrangement = arrange(x.shape, kind=kind, layout=layout, dtype=x.dtype, named_signal=is_signal)
    except RequestError:
        if x.ndim != 4 or x.shape[1] == x.shape[3] or layout is not None:
            raise
        layout = "first" if x.shape[1] < x.shape[3] else "last"
        options["layout"] = layout
        arrangement = arrange(x.shape, kind=kind, layout=layout)
    head = head_of(x)
    if kind is None and arrangement.kind != "signal" and looks_like_signals(head, arrangement.kind):
        kind = "signal"
        options["kind"] = kind
        arrangement = arrange(x.shape, kind=kind, layout=layout)
    scale, choice = _scale(x, Outline(kind=arrangement.kind, span=span(x), dtype=x.dtype, head=head), settings)
    scale = {key: value for key, value in scale.items() if key not in settings or key in ("low", "high")}
    if arrangement.kind == "signal" and kind is None and scale and not is_signal:
        options["kind"] = "signal"
    return options | scale, choice


def _scale(x: Array, outline: Outline, settings: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """The divisor or the bounds that hold all values, and a further choice; none where those that were given do."""
    stated = {"low", "high", "divide"} & settings.keys()
    low, high = outline.span.minimum, outline.span.maximum
    if stated:
        divide = float(settings.get("divide", 1.0))
        if low / divide >= settings.get("low", 0.0) and high / divide <= settings.get("high", 1.0):
            return {}, ""
        return {"low": f"{outward(low / divide, -1):g}", "high": f"{outward(high / divide, 1):g}"}, ""
    if (0 <= low and high <= 1 and x.dtype != np.uint8) or (x.dtype == np.uint8 and not 0 < high <= DARK):
        return {}, ""
    advice = advise(outline)
    return advice.in_spec(), advice.in_spec_as_they_are
