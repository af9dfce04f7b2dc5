"""`wfdb:DIR`: heartbeats cut from WFDB records (PhysioNet's format) at their annotations, or whole
records with a label.

Beat annotations become the five AAMI classes N, S, V, F and Q (ANSI/AAMI EC57); other annotations
are ignored. The median of each record is subtracted, so that the baseline lies at 0. The record is
resampled to one rate (scipy's `resample_poly`), and a window is cut around each R peak. Values are
millivolts. Beats whose window exceeds the record are left out. Records take turns, so that the
first samples contain every patient.

A record belongs to one patient. `split=ds1` and `split=ds2` are the two halves of the MIT-BIH
arrhythmia database of de Chazal, O'Dwyer & Reilly 2004, Automatic classification of heartbeats
using ECG morphology and heartbeat interval features, without the four records of paced beats.
Deviation: record 201 is left out of ds1, since its patient is that of record 202, which is in ds2.

With `rhythm=true` a beat comes with its rhythm (`brinell.datasets._rhythm`): the intervals to the
adjacent beats, including those that are left out, and the median of its record, as further channels
that no attack changes.

With `label=` a sample is a record from its start, with the label that its header or a table gives
it; without the lead MLII all leads count, which must be the same in all records. Classes (names, or
numbers in their order) take turns.

A record that cannot be used (no annotations, no such lead, another rate although none was
requested) is left out and named.
"""

import csv
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from brinell.core import bounded
from brinell.core.checks import BEATS_LEFT_OUT, RECORD_LEFT_OUT
from brinell.core.data import DataInfo, Dataset, Remark
from brinell.core.domain import Domain, Sampling
from brinell.core.errors import RequestError, one_line
from brinell.core.settings import Checked, NotNegative, Positive, Whole
from brinell.core.splits import turns
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Arrangement, Array, StoredArrays
from brinell.datasets._files import csv_file
from brinell.datasets._labels import Labels
from brinell.datasets._rhythm import rhythm, with_rhythm

CLASSES = ("N", "S", "V", "F", "Q")
AAMI = dict(zip("NLRBejn", "N" * 7, strict=True)) | dict(zip("AaJS", "S" * 4, strict=True))
AAMI |= {"V": "V", "r": "V", "E": "V", "F": "F", "/": "Q", "f": "Q", "Q": "Q", "?": "Q"}
"""Classes by annotation symbol. Bundle branch blocks and atrial escape beats count as N."""
SPLITS = {
    "ds1": (
        "101 106 108 109 112 114 115 116 118 119 122 124 203 205 207 208 209 215 220 223 230"
    ).split(),
    "ds2": (
        "100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234"
    ).split(),
}
MILLIVOLTS = {"mv": 1.0, "uv": 1e-3, "µv": 1e-3, "v": 1e3}
MOST_HEADER = 1 << 20
"""Largest size of a header in bytes."""
FINEST = 100_000
"""Largest denominator of the ratio by which a record is resampled."""


class Beats(NamedTuple):
    """Beats of a record."""

    x: Array
    """(n, leads, T) float32, mV."""
    y: Labels
    """(n,) int64."""
    rhythm: Array
    """(n, 3) float32: intervals before and after, and the record's median, s."""


class _Sample(NamedTuple):
    """A record as one sample."""

    x: Array
    """(leads, T) float32, mV."""
    label: str
    leads: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Wfdb(Checked):
    """Heartbeats of WFDB records in AAMI classes, or whole records with a label."""

    path: str = ""
    """The folder of records (.hea, .dat and the annotations)."""
    records: tuple[str, ...] = ()
    """Names of records, joined by +; by default all of the folder."""
    without: tuple[str, ...] = ()
    """Records to leave out, such as those of the training or of the test."""
    split: Literal["", "ds1", "ds2"] = ""
    """Half of MIT-BIH: ds1 to train on, ds2 to test on, no patient in both."""
    leads: tuple[str, ...] = ("MLII",)
    """Channels by name, joined by +; empty for the first channel of each record."""
    annotations: str = "atr"
    """Suffix of the annotation files."""
    rate: NotNegative = 125.0
    """Values per second to which every record is resampled; 0 keeps the rates, which must be the
    same."""
    before: NotNegative = 0.5
    """Seconds of the window before the R peak."""
    after: Positive = 1.0
    """Seconds of the window after the R peak."""
    most: Whole = 0
    """Maximum number of beats of each class, taken from the records in turn; 0 for all."""
    low: tuple[float, ...] = (-5.0,)
    """Lower bound of the values in mV: one number for all leads, or one for each, joined by +."""
    high: tuple[float, ...] = (5.0,)
    """Upper bound of the values in mV, like low."""
    label: str = ""
    """The label of each record, which then is one sample: a name in the comments of its header,
    such as Dx, or FILE.csv:COLUMN of a table that has the records' names in another column."""
    seconds: NotNegative = 0.0
    """Seconds from the start of each record that has a label; 0 for those of the shortest."""
    rhythm: bool = False
    """True adds the intervals to the adjacent beats and the record's median as channels of each
    beat."""

    def __post_init__(self) -> None:
        """Refuse bounds that do not fit the leads, and options that exclude each other."""
        super().__post_init__()
        for name in ("records", "without", "leads", "low", "high"):
            # JSON makes lists of them, and nothing after `leads=` a single empty name.
            object.__setattr__(
                self, name, tuple(value for value in getattr(self, name) if value != "")
            )

        if any(len(bound) not in (1, max(1, len(self.leads))) for bound in (self.low, self.high)):
            raise ValueError(
                f"bounds {self.low} to {self.high} for {len(self.leads)} leads: "
                "give one for all, or one for each"
            )
        if any(low >= high for low, high in zip(*self.bounds, strict=True)):
            raise ValueError(f"bounds {self.low} to {self.high}: the lower one must be the smaller")

        if self.label and self.rhythm:
            raise ValueError(
                "rhythm= is for beats, and label= makes a sample of each record: leave one out"
            )
        if self.records and self.split:
            raise ValueError("records= and split= both choose records: give one of them")

    @property
    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lower and upper bounds, one number each, or one for each lead."""
        count = max(len(self.low), len(self.high))
        low = self.low * (count // len(self.low))
        high = self.high * (count // len(self.high))
        return low, high

    def __call__(self) -> Dataset:
        """Read all annotations and signals."""
        folder = existing_path(self.path, "folder", "wfdb:DIR")
        try:
            import wfdb as library
        except ImportError:
            raise RequestError(
                "WFDB records are read by the library wfdb, which is absent: pip "
                "install 'brinell[ecg]'"
            ) from None

        remarks: list[Remark] = []
        records: dict[str, Beats] = {}
        samples: dict[str, _Sample] = {}
        rate = 0.0
        names = self._choose_records(folder)
        table = _labels_of_table(self.label, names) if ".csv:" in self.label else {}
        for name in names:
            lost_text = ""
            try:
                record = _Record(library, folder, name, self)
                if self.label:
                    samples[name], rate = record.sample(
                        rate, next(iter(samples.values()), None), table
                    )
                else:
                    records[name], rate, lost_text = record.beats(rate)
            except Exception as error:
                # On a damaged file the library raises whatever comes its way.
                is_named = isinstance(error, _UnusableRecordError)
                text = (
                    str(error)
                    if is_named
                    else f"record {name} cannot be read ({one_line(error, 200)}): left out"
                )
                remarks.append(Remark(RECORD_LEFT_OUT, text))
            if lost_text:
                remarks.append(Remark(BEATS_LEFT_OUT, lost_text))

        if samples:
            return _samples_of(folder.resolve().name, samples, rate, self, tuple(remarks))
        if not any(len(beats.y) for beats in records.values()):
            reason = f": {remarks[0].text}" if remarks else ": no annotation marks a beat"
            raise RequestError(
                f"{folder} has no record with "
                f"{'a label' if self.label else 'beats'} that can be used{reason}"
            )
        return _beats_of(folder.resolve().name, records, rate, self, tuple(remarks))

    def _choose_records(self, folder: Path) -> list[str]:
        """The names of the records to read, sorted."""
        available = sorted(
            str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.hea")
        )
        if not available:
            raise RequestError(f"{folder} holds no WFDB record: it has no .hea file")
        if absent := [name for name in (*self.records, *self.without) if name not in available]:
            raise RequestError(
                f"{folder} has no record {absent[0]!r}; it holds {', '.join(available[:50])}"
            )

        requested = SPLITS[self.split] if self.split else self.records or available
        names = [name for name in available if name in requested and name not in self.without]
        if not names:
            raise RequestError(
                f"{folder} has none of the records asked for; it holds {', '.join(available[:50])}"
            )
        return names


class _UnusableRecordError(Exception):
    """The reason why a record is left out, in one line."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        super().__init__(f"record {name} {reason}: left out" + (f"; {hint}" if hint else ""))


class _Record:
    """A record of a folder: its header, its signal, and the annotations of its beats."""

    def __init__(self, library: Any, folder: Path, name: str, settings: Wfdb) -> None:
        self.name, self.settings = name, settings
        path = str(folder / name)
        if not settings.label and not Path(f"{path}.{settings.annotations}").is_file():
            hint = "write label= where the header or a table says the class of a record"
            raise _UnusableRecordError(
                name, f"has no annotations ({name}.{settings.annotations})", hint
            )

        with warnings.catch_warnings():
            # The library uses its own libraries in ways they warn of.
            warnings.simplefilter("ignore")
            with bounded.decoding(
                f"record {name}", len(bounded.read(Path(f"{path}.hea"), MOST_HEADER))
            ):
                self.header = library.rdheader(path)
            packed = self._packed(folder)
            channels = self._channels()
            with bounded.decoding(f"record {name}", packed):
                self.marks: Any = (
                    None if settings.label else library.rdann(path, settings.annotations)
                )
                self.signal = library.rdrecord(path, channels=channels)

    def _packed(self, folder: Path) -> int:
        """Size in bytes of the files that the header names.

        Missing files, and headers that state too many values, are refused.
        """
        if hasattr(self.header, "segments"):  # they are headers, and name files of their own
            raise _UnusableRecordError(self.name, "consists of segments")

        place = (folder / self.name).parent
        files = {str(name) for name in getattr(self.header, "file_name", None) or [] if name}
        for name in files:
            if not bounded.path_inside(place, name, f"record {self.name}").is_file():
                raise _UnusableRecordError(
                    self.name, f"names {name}, which is not a file in its folder"
                )
        packed = sum((place / name).stat().st_size for name in files)
        declared = (self.header.sig_len or 0) * (self.header.n_sig or 0)
        # Even compressed formats spend some bits on a value.
        if declared < 0 or declared > 16 * packed:
            raise _UnusableRecordError(
                self.name, f"says it has {declared} values in {packed} bytes"
            )
        return packed

    def _channels(self) -> list[int]:
        """The places of the leads in the record."""
        names = list(self.header.sig_name or [])
        leads = self.settings.leads or names[:1]
        # The default is a lead of beats: a whole record without it is used with all of its leads.
        if self.settings.label and leads == Wfdb.leads and leads[0] not in names:
            leads = tuple(names)
        if missing := [lead for lead in leads if lead not in names]:
            raise _UnusableRecordError(
                self.name,
                f"has no lead {missing[0]}; it has {', '.join(names) or 'none'}",
                "choose by leads=",
            )
        return [names.index(lead) for lead in leads]

    def sample(
        self, earlier_rate: float, first: "_Sample | None", table: Mapping[str, str]
    ) -> tuple["_Sample", float]:
        """The record from its start with its label, and its rate.

        Args:
            earlier_rate: the rate of the previous records, 0 for the first.
            first: the first record that was used.
            table: labels by the names of records; empty if the header has the label.
        """
        label = self._label(table)
        rate = self._rate(earlier_rate)
        leads = tuple(self.signal.sig_name)
        if first is not None and leads != first.leads:
            raise _UnusableRecordError(
                self.name,
                f"has the leads {', '.join(leads)}, and the first {', '.join(first.leads)}",
            )

        x = self._resampled(rate)
        if self.settings.seconds:
            if x.shape[1] < (length := round(self.settings.seconds * rate)):
                raise _UnusableRecordError(
                    self.name, f"has {x.shape[1] / rate:g} s", "take fewer by seconds="
                )
            x = x[:, :length]
        low = np.array(self.settings.bounds[0])[:, None]
        high = np.array(self.settings.bounds[1])[:, None]
        # NaN, a missing value, is not inside.
        if not bool(((x >= low) & (x <= high)).all()):
            bounds = f"the bounds of {low.ravel().tolist()} to {high.ravel().tolist()} mV"
            raise _UnusableRecordError(
                self.name, f"has missing values or leaves {bounds}", "widen them by low= and high="
            )
        return _Sample(x.astype(np.float32), label, leads), rate

    def _label(self, table: Mapping[str, str]) -> str:
        """The label of the record, from a table or else from a comment of its header."""
        name = self.settings.label
        values = []
        for comment in self.header.comments or []:
            key, colon, value = comment.partition(":")
            if colon and key.strip().casefold() == name.casefold():
                values.append(value.strip())
        label = table.get(self.name, "") if table else ",".join(values)
        if not label or "," in label:
            raise _UnusableRecordError(
                self.name,
                f"has {'several labels' if label else 'no label'} by {name} ({label or 'nothing'})",
            )
        return label

    def beats(self, earlier_rate: float) -> tuple[Beats, float, str]:
        """The beats, their rate, and a message about beats that are left out, or an empty text.

        `earlier_rate` is the rate of the previous records, 0 for the first.
        """
        rate = self._rate(earlier_rate)
        x = self._resampled(rate)
        before, after = (
            math.floor(self.settings.before * rate),
            math.floor(self.settings.after * rate),
        )
        if before + after < 2:
            window = f"{self.settings.before:g} + {self.settings.after:g} s"
            raise _UnusableRecordError(
                self.name, f"has {rate:g} values per second, and a window of {window} holds no beat"
            )

        # Annotations of other kinds than beats have no class.
        classes = [AAMI.get(symbol) for symbol in self.marks.symbol]
        positions = np.round(np.asarray(self.marks.sample) * (rate / self.header.fs)).astype(
            np.int64
        )
        intervals = self._rhythm(np.array([name is not None for name in classes], dtype=bool))
        beats_inside = [
            i
            for i, name in enumerate(classes)
            if name and before <= positions[i] <= x.shape[1] - after
        ]
        windows = np.empty((len(beats_inside), len(x), before + after))
        for row, i in enumerate(beats_inside):
            windows[row] = x[:, positions[i] - before : positions[i] + after]
        labels = np.array([CLASSES.index(str(classes[i])) for i in beats_inside], dtype=np.int64)
        low, high = (np.array(bound)[:, None] for bound in self.settings.bounds)
        # NaN, a missing value, is not inside.
        fits = np.asarray(((windows >= low) & (windows <= high)).all((1, 2)))
        lost_text = (
            f"{int((~fits).sum())} of {len(fits)} beats of record {self.name} "
            "have missing values or leave the bounds of "
            f"{low.ravel().tolist()} to {high.ravel().tolist()} mV: left out; "
            "widen them by low= and high="
        )
        beats = Beats(windows[fits].astype(np.float32), labels[fits], intervals[beats_inside][fits])
        return beats, rate, "" if fits.all() else lost_text

    def _rhythm(self, beat: Array) -> Array:
        """(annotations, 3): the rhythm of the annotations that mark a beat."""
        rhythms = np.zeros((len(beat), 3), dtype=np.float32)
        if not self.settings.rhythm or not beat.any():
            return rhythms
        if beat.sum() < 2:
            raise _UnusableRecordError(self.name, "has a single beat, and so no rhythm")

        intervals = np.diff(np.asarray(self.marks.sample)[beat]) / self.header.fs
        if not (intervals > 0).all():
            raise _UnusableRecordError(
                self.name, "has beats that do not follow each other in time, and so no rhythm"
            )
        before, after = np.append(np.nan, intervals), np.append(intervals, np.nan)
        rhythms[beat] = rhythm(before, after, np.zeros(len(before)), f"record {self.name}")
        return rhythms

    def _rate(self, earlier_rate: float) -> float:
        """Values per second of this record, after a check that they are those of the others."""
        signal, marks = self.header.fs, self.marks and self.marks.fs
        # Annotations at another rate would mark other places of the signal.
        if marks and abs(marks - signal) > 1e-6 * signal:
            raise _UnusableRecordError(
                self.name,
                f"has its signal at {signal:g} and its annotations at {marks:g} values per second",
            )

        rate = self.settings.rate or float(signal)
        if earlier_rate and rate != earlier_rate:
            hint = "rate= brings all to one"
            raise _UnusableRecordError(
                self.name,
                f"has {rate:g} values per second and the ones before {earlier_rate:g}",
                hint,
            )
        return rate

    def _resampled(self, rate: float) -> Array:
        """(leads, T) float64 in mV, the median of each lead at 0."""
        units = [str(unit).lower() for unit in self.signal.units]
        if unknown_units := [unit for unit in units if unit not in MILLIVOLTS]:
            raise _UnusableRecordError(self.name, f"is in {unknown_units[0]!r}, and not in volts")
        x = self.signal.p_signal.T * np.array([[MILLIVOLTS[unit]] for unit in units])
        if np.isnan(x).all(1).any():
            raise _UnusableRecordError(self.name, "has a lead without a single value")

        x = x - np.nanmedian(x, axis=1, keepdims=True)
        ratio = Fraction(rate / self.header.fs).limit_denominator(FINEST)
        if ratio == 1:
            return np.asarray(x)
        from scipy.signal import resample_poly

        # Missing values would spread through the distortion over the whole record: they become 0
        # and are put back.
        missing = np.isnan(x)
        resampled = np.asarray(
            resample_poly(np.where(missing, 0.0, x), ratio.numerator, ratio.denominator, axis=1)
        )
        for lead, places in zip(*np.nonzero(missing), strict=True):
            resampled[lead, min(resampled.shape[1] - 1, round(places * float(ratio)))] = np.nan
        return resampled


def _beats_of(
    name: str,
    beats_by_record: dict[str, Beats],
    rate: float,
    settings: Wfdb,
    remarks: tuple[Remark, ...],
) -> StoredArrays:
    """The beats of several records as a data set; names of records do not count in its digest."""
    x, y, intervals = (
        np.concatenate(parts) for parts in zip(*beats_by_record.values(), strict=True)
    )

    record = np.repeat(
        np.arange(len(beats_by_record)), [len(beats.y) for beats in beats_by_record.values()]
    )

    # Records take turns, so that the first samples contain all of them.
    order, start = _order(record, y, settings.most), -math.floor(settings.before * rate) / rate
    domain = _domain(x, settings)
    return StoredArrays(
        name=name,
        x=x[order],
        y=y[order],
        groups=np.array(list(beats_by_record))[record[order]],
        domain=with_rhythm(domain, settings.leads) if settings.rhythm else domain,
        arrangement=Arrangement.identity(domain),
        classes=CLASSES,
        divisor=None,
        info=DataInfo(
            sampling=Sampling(rate=rate, unit="mV", start=start, leads=settings.leads),
            remarks=remarks,
        ),
        fixed_channels=intervals[order] if settings.rhythm else None,
    )


def _order(groups: Array, labels: Labels, most: int) -> Array:
    """The order in which groups take turns, with at most so many samples of a class; 0 for all."""
    order = turns(groups)

    # Each class keeps its first samples in this order.
    by_class = (
        [np.flatnonzero(labels[order] == label)[:most] for label in np.unique(labels)]
        if most
        else []
    )
    return order[np.sort(np.concatenate(by_class))] if most else order


def _domain(x: Array, settings: Wfdb) -> Domain:
    """The domain of signals in mV, with one bound for all leads where they are the same."""
    low, high = settings.bounds
    return Domain(
        kind="signal",
        shape=x.shape[1:],
        low=low[0] if len(low) == 1 else low,
        high=high[0] if len(high) == 1 else high,
    )


def _labels_of_table(text: str, names: Sequence[str]) -> dict[str, str]:
    """The labels of records by name, from FILE.csv:COLUMN.

    The column of the records is the one that holds their names.
    """
    path, _, column = text.rpartition(":")
    with csv_file(existing_path(path, "file", "label=FILE.csv:COLUMN")) as content:
        rows = list(csv.DictReader(content, strict=True))
    if not rows or column not in rows[0]:
        raise RequestError(
            f"{path} has no column {column!r}; it has "
            f"{', '.join(map(str, rows[0])) if rows else 'no row'}"
        )

    for key in rows[0]:
        labels = {
            # Tables name a record, or one of its files.
            re.sub(r"\.(hea|dat|mat)$", "", row[key] or ""): (row[column] or "").strip()
            for row in rows
        }
        # The whole name of a record in a subfolder counts for more than its last part.
        if matches := {
            name: labels[part]
            for name in names
            for part in (Path(name).name, name)
            if part in labels
        }:
            return matches
    raise RequestError(
        f"{path} has no column with the names of records, such as {names[0]}: add one"
    )


def _samples_of(
    name: str, samples: dict[str, _Sample], rate: float, settings: Wfdb, remarks: tuple[Remark, ...]
) -> StoredArrays:
    """Records with labels as a data set; numbers and names of classes count in their order."""
    # Labels that are numbers count as such: 2 before 10.
    classes = sorted(
        {sample.label for sample in samples.values()},
        key=lambda label: (label.isdecimal() * len(label), label),
    )
    labels = np.array([classes.index(sample.label) for sample in samples.values()], dtype=np.int64)

    # Classes take turns. All records are cut to the length of the shortest.
    order, leads = _order(labels, labels, settings.most), next(iter(samples.values())).leads
    length = min(sample.x.shape[1] for sample in samples.values())
    x = np.stack([sample.x[:, :length] for sample in samples.values()])[order]
    names = tuple(np.array(list(samples))[order].tolist())
    return StoredArrays(
        name=name,
        x=x,
        y=labels[order],
        domain=_domain(x, settings),
        classes=tuple(classes),
        divisor=None,
        info=DataInfo(
            sampling=Sampling(rate=rate, unit="mV", leads=leads), remarks=remarks, names=names
        ),
    )
