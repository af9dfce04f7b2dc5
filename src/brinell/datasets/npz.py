"""`npz:FILE`: the arrays of a NumPy archive.

Inputs are called x, images, clips or beats_uV, labels y or labels, class names classes; the options x= and y= name others. Bytes
become [0, 1]; other numbers must lie in [0, 1] or between the options low= and high=, after a division by divide=. Channels may
be last or first. Of signals, fs (values per second) and r_index (the value at second 0) are read where the archive has them.
Heartbeats may bring the rhythm that they stand in (`rhythm=BEFORE+AFTER`, `brinell.datasets._rhythm`): further channels, which no
attack changes. Each array is unpacked into a temporary file and mapped, so that an archive may be larger than memory.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.core import bounded
from brinell.core.bounded import MOST_CLASSES
from brinell.core.contracts import DataInfo, Dataset, Kind
from brinell.core.domain import Sampling
from brinell.core.errors import RequestError
from brinell.core.splits import turns
from brinell.datasets._arrays import (
    Arrangement,
    Array,
    Layout,
    Rows,
    StoredArrays,
    arrange,
    check_labels,
    class_names,
    domain_of,
)
from brinell.datasets._files import existing, npz_array, unread
from brinell.datasets._rhythm import rhythm, with_rhythm

__all__ = ["Npz"]

INPUTS = ("x", "images", "clips", "beats_uV")
LABELS = ("y", "labels")
NUMBER_BYTES = 10_000
"""Bytes of an array of one number at most, its header included."""


@dataclass(frozen=True, kw_only=True)
class Npz:
    """Inputs and labels from an .npz archive."""

    path: str = ""
    """The archive."""
    x: str = ""
    """Name of the array of inputs; by default x, images, clips or beats_uV."""
    y: str = ""
    """Name of the array of labels; by default y or labels."""
    kind: Kind | None = None
    """What an input is; by default vector, image or video by the number of axes."""
    layout: Layout | None = None
    """Where the channels are; by default the axis of size 1, 3 or 4 (of a signal, the first)."""
    divide: float = 1.0
    """What stored values are divided by: 1000 makes millivolts of microvolts."""
    low: float | None = None
    """Smallest value allowed, after the division; by default 0, and bytes are divided by 255."""
    high: float | None = None
    """Largest value allowed, like low; by default 1."""
    levels: int | None = None
    """How many values a stored input can take, 0 for no rounding; by default read off the data."""
    groups: str = ""
    """Name of an array that says whose each input is, such as the patient's; groups take turns: the first samples hold all."""
    only: tuple[str, ...] = ()
    """Which groups, joined by +; by default all."""
    rate: float | None = None
    """Values per second of a signal; by default the archive's fs, where it has one."""
    unit: str = ""
    """Unit of a signal's values, after the division."""
    rhythm: tuple[str, ...] = ()
    """Two arrays of seconds, since the beat before and until the one after, joined by +: they become channels that no attack
    changes, and so does the median of all intervals of the beat's group."""

    def __post_init__(self) -> None:
        if not self.divide > 0:
            raise ValueError(f"divide is {self.divide:g}; it must be above 0")
        if self.only and not self.groups:
            raise ValueError("only= chooses groups: name their array by groups=")
        if self.rhythm and (len(self.rhythm) != 2 or not self.groups):
            raise ValueError("rhythm= names two arrays, BEFORE+AFTER, and groups= the one that says which recording a beat is of")

    def __call__(self) -> Dataset:
        """Open the archive.

        Raises:
            RequestError: no such file, array or group, a damaged archive, Python objects, NaN, values outside the bounds, labels
                that do not fit, channels that could be first and last.
        """
        file = existing(self.path, "file", "npz:FILE")
        try:
            with zipfile.ZipFile(file) as archive:
                known = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
                x_name, y_name = _pick(self.x, INPUTS, known, file, "x"), _pick(self.y, LABELS, known, file, "y")
                x = npz_array(archive, x_name, file)
                y, most = _small(archive, y_name, file, len(x)), max(len(x), MOST_CLASSES)
                names = _small(archive, "classes", file, most) if "classes" in known else None
                groups = _small(archive, _pick(self.groups, (), known, file, "groups"), file, most) if self.groups else None
                intervals = [_small(archive, _pick(name, (), known, file, "rhythm"), file, most) for name in self.rhythm]
                numbers: dict[str, float] = {name: _number(archive, name, file) for name in ("fs", "r_index") if name in known}
        except RequestError:
            raise
        except Exception as error:  # of a damaged archive the library raises whatever comes its way
            raise unread(file, error) from None
        inputs = f"array {x_name} of {file}"
        arrangement = arrange(x.shape, kind=self.kind, layout=self.layout, what=inputs)
        labels = check_labels(y, len(x), f"array {y_name} of {file}")
        domain, divisor = domain_of(
            x, arrangement, low=self.low, high=self.high, levels=self.levels, divide=self.divide, what=inputs
        )
        rows = None if groups is None else self._rows(groups, len(x), file)
        beside = None
        if intervals and groups is not None:
            if arrangement.kind != "signal":
                raise RequestError(f"{inputs} holds {arrangement.kind}s; a rhythm is for signals: give the option kind=signal")
            # Before groups are chosen: a recording's median is that of all its beats.
            before, after = intervals
            beside = rhythm(before, after, groups, f"rhythm={'+'.join(self.rhythm)} of {file}")[rows]
            domain = with_rhythm(domain)
        return StoredArrays(
            name=file.stem,
            x=x if rows is None else _Chosen(x, rows),
            y=labels if rows is None else labels[rows],
            arrangement=arrangement,
            domain=domain,
            classes=class_names(None if names is None else names.tolist(), labels, f"array classes of {file}"),
            divisor=divisor,
            info=DataInfo(sampling=self._sampling(arrangement, numbers, file)),
            groups=None if groups is None else groups[rows],
            beside=beside,
        )

    def _rows(self, groups: Array, n: int, file: Path) -> Array:
        what = f"array {self.groups} of {file}"
        if groups.shape != (n,):
            raise RequestError(f"{what} has shape {groups.shape}; it must name a group for each of the {n} inputs")
        texts = groups.astype(str)
        if absent := sorted(set(self.only) - set(texts)):
            raise RequestError(f"{what} has no group {absent[0]!r}; it holds {', '.join(sorted(set(texts))[:50])}")
        chosen = np.flatnonzero(np.isin(texts, self.only)) if self.only else np.arange(n)
        return chosen[turns(groups[chosen])]

    def _sampling(self, arrangement: Arrangement, numbers: dict[str, float], file: Path) -> Sampling | None:
        rate = numbers.get("fs") if self.rate is None else self.rate
        if arrangement.kind != "signal" or rate is None:
            return None
        try:
            return Sampling(rate=rate, unit=self.unit, start=-numbers.get("r_index", 0.0) / (rate or 1.0))
        except ValueError as error:
            raise RequestError(f"{file}: {error}; give the option rate=") from None


class _Chosen(Rows):
    """Some rows of a stored array in an order of their own."""

    def __init__(self, x: Array, rows: Array) -> None:
        super().__init__(len(rows), x.shape[1:], x.dtype)
        self._x, self._rows, self._mmap = x, rows, getattr(x, "_mmap", None)

    def row(self, index: int) -> Array:
        """One of the rows."""
        return np.asarray(self._x[self._rows[index]])


def _pick(asked: str, usual: tuple[str, ...], known: list[str], file: Path, option: str) -> str:
    for name in (asked,) if asked else usual:
        if name in known:
            return name
    wanted = repr(asked) if asked else " or ".join(usual)
    raise RequestError(f"{file} has no array {wanted}; it holds {', '.join(known) or 'none'}: name one by the option {option}=")


def _small(archive: zipfile.ZipFile, name: str, file: Path, most: int) -> Array:
    """An array that is read into memory, of as many rows as there are inputs, or of classes."""
    found = npz_array(archive, name, file)
    if len(found) > most or found.nbytes > bounded.IN_MEMORY and found.nbytes > 1000 * most:
        raise RequestError(f"array {name} of {file} has shape {found.shape}, where at most {most} values belong: see what it is")
    return np.array(found)


def _number(archive: zipfile.ZipFile, name: str, file: Path) -> float:
    try:
        with archive.open(name + ".npy") as member:
            held = io.BytesIO(member.read(NUMBER_BYTES))
        return float(np.lib.format.read_array(held, allow_pickle=False).item())
    except Exception as error:
        raise RequestError(f"array {name} of {file} is no single number ({error}): correct it, or remove it") from None
