"""`npz:FILE`: the arrays of a NumPy archive.

Inputs are called x, images, clips or beats_uV, labels y or labels, class names classes; the options
x= and y= name other arrays. Bytes are scaled to [0, 1]; other numbers are divided by divide=, or by
the number divide of the archive, and must then lie in [0, 1] or between the options low= and high=.
Channels may be last or first. For signals, fs (values per second) and r_index (the value at second
0) are read if the archive has them. Heartbeats may come with their rhythm (`rhythm=BEFORE+AFTER`,
`brinell.datasets._rhythm`): further channels, which no attack changes.
"""

import io
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from brinell.core import bounded
from brinell.core.bounded import MOST_CLASSES
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Kind, Sampling
from brinell.core.errors import RequestError
from brinell.core.settings import Checked, Positive
from brinell.core.splits import turns
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import (
    Arrangement,
    Array,
    Layout,
    StoredArrays,
    arrange,
    domain_of,
    reading_note,
)
from brinell.datasets._files import npz_array, read_error
from brinell.datasets._labels import check_labels, class_names, encode_labels
from brinell.datasets._rhythm import rhythm, with_rhythm

INPUTS = ("x", "images", "clips", "beats_uV")
LABELS = ("y", "labels")
SIGNALS = {
    "beats",
    "beat",
    "ecg",
    "eeg",
    "emg",
    "ppg",
    "signal",
    "signals",
    "audio",
    "wave",
    "waves",
    "waveforms",
    "heartbeats",
}
"""Words in the name of an array that holds signals."""
NUMBER_BYTES = 10_000
"""Maximum size of an array of one number in bytes, its header included."""
NUMBERS = ("fs", "r_index", "divide")
"""Single numbers that an archive may hold."""


class _Arrays(NamedTuple):
    """What is read from an archive."""

    x_name: str
    y_name: str
    x: Array
    y: Array
    names: Array | None
    """Names of the classes."""
    groups: Array | None
    """The group of each input."""
    beat_intervals: list[Array]
    """Intervals before and after each beat, or nothing."""
    numbers: dict[str, float]
    """Single numbers by name."""


@dataclass(frozen=True, kw_only=True)
class Npz(Checked):
    """Inputs and labels from an .npz archive."""

    path: str = ""
    """The archive."""
    x: str = ""
    """Name of the array of inputs; by default x, images, clips or beats_uV."""
    y: str = ""
    """Name of the array of labels; by default y or labels."""
    kind: Kind | None = None
    """Kind of the inputs; by default vector, image or video by the number of axes, and signal
    for an array named ecg, beats or alike, or with a sampling rate fs."""
    layout: Layout | None = None
    """Position of the channels; by default the axis of size 1, 3 or 4 (for a signal, the first
    axis)."""
    divide: Positive | None = None
    """Divisor of the stored values: 1000 converts microvolts to millivolts; by default the
    archive's divide, 255 for bytes."""
    low: float | None = None
    """Smallest value allowed, after the division; by default 0, and bytes are divided by 255."""
    high: float | None = None
    """Largest value allowed, like low; by default 1."""
    levels: int | None = None
    """Number of values that a stored input can take, 0 for no rounding; by default inferred from
    the data."""
    groups: str = ""
    """Array of each input's group, such as its patient; groups take turns, so that the first
    samples contain all of them."""
    only: tuple[str, ...] = ()
    """Groups to use, joined by +; by default all."""
    rate: float | None = None
    """Values per second of a signal; by default the archive's fs, if present."""
    unit: str = ""
    """Unit of a signal's values, after the division."""
    rhythm: tuple[str, ...] = ()
    """Two arrays of seconds, since the previous beat and until the next one, joined by +: they and
    the median of all intervals of the beat's group become channels that no attack changes.
    """

    def __post_init__(self) -> None:
        """Refuse options that need another one."""
        super().__post_init__()
        if self.only and not self.groups:
            raise ValueError("only= chooses groups: name their array by groups=")
        if self.rhythm and (len(self.rhythm) != 2 or not self.groups):
            raise ValueError(
                "rhythm= names two arrays, BEFORE+AFTER, and groups= the one "
                "that says which recording a beat is of"
            )

    def __call__(self) -> Dataset:
        """Open the archive."""
        file = existing_path(self.path, "file", "npz:FILE")
        arrays = self._read(file)
        x, groups, numbers = arrays.x, arrays.groups, arrays.numbers

        inputs = f"array {arrays.x_name} of {file}"
        words = set(arrays.x_name.lower().replace("-", "_").split("_"))
        has_rate = "fs" in numbers or bool(words & SIGNALS)
        arrangement = arrange(
            x.shape,
            kind=self.kind,
            layout=self.layout,
            dtype=x.dtype,
            named_signal=has_rate,
            subject=inputs,
        )
        names = None if arrays.names is None else arrays.names.tolist()
        y, class_texts, notes = encode_labels(arrays.y, names)
        labels = check_labels(y, len(x), f"array {arrays.y_name} of {file}")

        divide = self._divisor(numbers, file)
        domain, divisor = domain_of(
            x,
            arrangement,
            low=self.low,
            high=self.high,
            levels=self.levels,
            divide=divide,
            subject=inputs,
        )
        if self.kind is None and self.layout is None and not has_rate:
            notes += reading_note(x, arrangement)

        rows = None if groups is None else self._rows(groups, len(x), file)
        fixed_channels = None
        if arrays.beat_intervals and groups is not None:
            if arrangement.kind != "signal":
                raise RequestError(
                    f"{inputs} holds {arrangement.kind}s; a rhythm is for "
                    "signals: give the option kind=signal"
                )
            # Before groups are chosen: a recording's median is that of all its beats.
            before, after = arrays.beat_intervals
            source = f"rhythm={'+'.join(self.rhythm)} of {file}"
            fixed_channels = rhythm(before, after, groups, source)[rows]
            domain = with_rhythm(domain)

        return StoredArrays(
            name=file.stem,
            x=x if rows is None else x[rows],
            y=labels if rows is None else labels[rows],
            groups=None if groups is None else groups[rows],
            arrangement=arrangement,
            domain=domain,
            classes=class_names(class_texts, labels, f"array classes of {file}"),
            divisor=divisor,
            info=DataInfo(sampling=self._sampling(arrangement, numbers, file), notes=notes),
            fixed_channels=fixed_channels,
        )

    def _divisor(self, numbers: dict[str, float], file: Path) -> float | None:
        """The number by which values are divided: of the option, or else of the file."""
        divide = numbers.get("divide") if self.divide is None else self.divide
        if divide is not None and not divide > 0:
            raise RequestError(f"array divide of {file} is {divide:g}: it must be above 0")
        return divide

    def _read(self, file: Path) -> _Arrays:
        """The arrays of the archive that the options name, and no others."""
        try:
            with zipfile.ZipFile(file) as archive:
                entries = [name for name in archive.namelist() if name.endswith(".npy")]
                names_in_archive = [name.removesuffix(".npy") for name in entries]
                pick = partial(_pick, names=names_in_archive, file=file)
                small = partial(_small, archive, file=file)

                x_name = pick(self.x, INPUTS, option="x")
                y_name = pick(self.y, LABELS, option="y")
                x = npz_array(archive, x_name, file)
                y = small(y_name, most_rows=len(x))
                most = max(len(x), MOST_CLASSES)

                names = small("classes", most_rows=most) if "classes" in names_in_archive else None
                groups = None
                if self.groups:
                    groups = small(pick(self.groups, usual=(), option="groups"), most_rows=most)
                beat_intervals = [
                    small(pick(name, usual=(), option="rhythm"), most_rows=most)
                    for name in self.rhythm
                ]
                numbers = {
                    name: _number(archive, name, file)
                    for name in NUMBERS
                    if name in names_in_archive
                }
        except RequestError:
            raise
        except Exception as error:
            # Of a damaged archive the library raises whatever comes its way.
            raise read_error(file, error) from None
        return _Arrays(x_name, y_name, x, y, names, groups, beat_intervals, numbers)

    def _rows(self, groups: Array, n: int, file: Path) -> Array:
        """The rows of the groups in use, in the order in which groups take turns."""
        subject = f"array {self.groups} of {file}"
        if groups.shape != (n,):
            raise RequestError(
                f"{subject} has shape {groups.shape}; it must name a group for "
                f"each of the {n} inputs"
            )
        texts = groups.astype(str)
        if absent := sorted(set(self.only) - set(texts)):
            raise RequestError(
                f"{subject} has no group {absent[0]!r}; it holds "
                f"{', '.join(sorted(set(texts))[:50])}"
            )

        rows = np.flatnonzero(np.isin(texts, self.only)) if self.only else np.arange(n)
        # Groups take turns, so that the first samples are of all of them.
        return rows[turns(groups[rows])]

    def _sampling(
        self, arrangement: Arrangement, numbers: dict[str, float], file: Path
    ) -> Sampling | None:
        """Recording metadata of signals, by options or else by the archive; None without a rate."""
        rate = numbers.get("fs") if self.rate is None else self.rate
        if arrangement.kind != "signal" or rate is None:
            return None
        try:
            return Sampling(
                rate=rate, unit=self.unit, start=-numbers.get("r_index", 0.0) / (rate or 1.0)
            )
        except ValueError as error:
            raise RequestError(f"{file}: {error}; give the option rate=") from None


def _pick(requested: str, usual: tuple[str, ...], names: list[str], file: Path, option: str) -> str:
    """The name of an array: the requested one, or the first of the usual ones."""
    for name in (requested,) if requested else usual:
        if name in names:
            return name
    if option == "y" and not requested and len(names) == 1:
        raise RequestError(f"{file} holds {names[0]} alone, and no labels: save them too, as y")
    expected = repr(requested) if requested else " or ".join(usual)
    raise RequestError(
        f"{file} has no array {expected}; it holds {', '.join(names) or 'none'}: "
        f"name one by the option {option}="
    )


def _small(archive: zipfile.ZipFile, name: str, file: Path, most_rows: int) -> Array:
    """An array that is read into memory, with at most `most_rows` values."""
    values = npz_array(archive, name, file)
    # A damaged or hostile file may declare any size: only what such an array needs is read.
    if (
        len(values) > most_rows
        or values.nbytes > bounded.IN_MEMORY
        and values.nbytes > 1000 * most_rows
    ):
        raise RequestError(
            f"array {name} of {file} has shape {values.shape}, where at most "
            f"{most_rows} values belong: see what it is"
        )
    return np.array(values)


def _number(archive: zipfile.ZipFile, name: str, file: Path) -> float:
    """A single number of an archive."""
    try:
        with archive.open(name + ".npy") as member:
            content = io.BytesIO(member.read(NUMBER_BYTES))
        return float(np.lib.format.read_array(content, allow_pickle=False).item())
    except Exception as error:
        raise RequestError(
            f"array {name} of {file} is no single number ({error}): correct it, or remove it"
        ) from None
