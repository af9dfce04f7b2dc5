"""`wfdb:DIR`: heartbeats cut from WFDB records (PhysioNet's format) at their annotations.

Beat annotations become the five AAMI classes N, S, V, F and Q (ANSI/AAMI EC57); annotations that mark no beat are passed over.
The median of each record is taken off, so that the baseline lies at 0, the record brought to one rate (scipy's `resample_poly`),
and a window cut around each R peak. Values are millivolts. Beats whose window leaves the record are passed over. Records take
turns, so that the first samples hold every patient.

A record belongs to one patient; a file of records and patients says which ones share one, and none is then split. `split=ds1` and
`split=ds2` are the two halves of the MIT-BIH arrhythmia database of de Chazal, O'Dwyer & Reilly 2004, Automatic classification of
heartbeats using ECG morphology and heartbeat interval features, without the four records of paced beats. Deviation: record 201 is
left out of ds1, since it is of the same patient as 202, which ds2 holds.

With `rhythm=true` a beat brings its rhythm (`brinell.datasets._rhythm`): the intervals to the beats beside
it, those that are passed over included, and the median of its record, as further channels that no attack changes.

A record that cannot be used (no annotations, no such lead, another rate where none was asked for) is left out and named.
"""

import csv
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from brinell.core import bounded
from brinell.core.contracts import DataInfo, Dataset, Domain, Remark
from brinell.core.domain import Sampling
from brinell.core.errors import RequestError, one_line
from brinell.core.splits import turns
from brinell.datasets._arrays import Arrangement, Array, Labels, StoredArrays
from brinell.datasets._files import csv_file, existing
from brinell.datasets._rhythm import rhythm, with_rhythm

__all__ = ["Wfdb"]

CLASSES = ("N", "S", "V", "F", "Q")
AAMI = dict(zip("NLRBejn", "N" * 7, strict=True)) | dict(zip("AaJS", "S" * 4, strict=True))
AAMI |= {"V": "V", "r": "V", "E": "V", "F": "F", "/": "Q", "f": "Q", "Q": "Q", "?": "Q"}
"""Annotation symbols to classes. Bundle branch blocks and escapes of the upper chambers count as N."""
SPLITS = {
    "ds1": "101 106 108 109 112 114 115 116 118 119 122 124 203 205 207 208 209 215 220 223 230".split(),
    "ds2": "100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234".split(),
}
MILLIVOLTS = {"mv": 1.0, "uv": 1e-3, "µv": 1e-3, "v": 1e3}
LONGEST = 30.0
"""Seconds within which a record is read; the library loops for ever over some damaged annotations."""
FINEST = 100_000
"""Largest denominator of the ratio by which a record is resampled."""


class Beats(NamedTuple):
    """What a record gives."""

    x: Array
    """(n, leads, T) float32, mV."""
    y: Labels
    """(n,) int64."""
    rhythm: Array
    """(n, 3) float32: intervals before and after, and the record's median, s."""


@dataclass(frozen=True, kw_only=True)
class Wfdb:
    """Heartbeats of WFDB records, cut at their annotations, in AAMI classes."""

    path: str = ""
    """The folder of records (.hea, .dat and the annotations)."""
    records: tuple[str, ...] = ()
    """Names of records, joined by +; by default all of the folder."""
    without: tuple[str, ...] = ()
    """Records to leave out: what was trained on, or what is kept for the test."""
    split: Literal["", "ds1", "ds2"] = ""
    """Of MIT-BIH: ds1 to train on, ds2 to test on, no patient in both."""
    patients: str = ""
    """A CSV file with the columns record and patient; a choice of records that splits a patient is then refused."""
    leads: tuple[str, ...] = ("MLII",)
    """Channels by name, joined by +; empty for the first of each record."""
    annotations: str = "atr"
    """Suffix of the annotation files."""
    rate: float = 125.0
    """Values per second to which every record is resampled; 0 leaves them as they are, all at one rate."""
    before: float = 0.5
    """Seconds of the window before the R peak."""
    after: float = 1.0
    """Seconds of the window from the R peak on."""
    most: int = 0
    """At most so many beats of each class, taken from the records in turn; 0 for all."""
    low: tuple[float, ...] = (-5.0,)
    """Lower bound of the values in mV: one for all leads, or one for each, joined by +."""
    high: tuple[float, ...] = (5.0,)
    """Upper bound of the values in mV, like low."""
    rhythm: bool = False
    """Whether the intervals to the beats beside it and the record's median are channels of each beat."""

    def __post_init__(self) -> None:
        if self.rate < 0 or self.before < 0 or self.after <= 0 or self.most < 0:
            raise ValueError("rate, before and most must be 0 or more, after above 0")
        for name in ("records", "without", "leads", "low", "high"):
            # JSON makes lists of them, and nothing after `leads=` a single empty name.
            object.__setattr__(self, name, tuple(value for value in getattr(self, name) if value != ""))
        if any(len(bound) not in (1, max(1, len(self.leads))) for bound in (self.low, self.high)):
            raise ValueError(f"bounds {self.low} to {self.high} for {len(self.leads)} leads: give one for all, or one for each")
        if any(low >= high for low, high in zip(*self.bounds, strict=True)):
            raise ValueError(f"bounds {self.low} to {self.high}: the lower one must be the smaller")
        if self.records and self.split:
            raise ValueError("records= and split= both choose records: give one of them")

    @property
    def bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lower and upper bounds, both for all leads at once or both for each."""
        many = max(len(self.low), len(self.high))
        low, high = (bound * (many // len(bound)) for bound in (self.low, self.high))
        return low, high

    def __call__(self) -> Dataset:
        """Read all annotations and signals.

        Raises:
            RequestError: no record that can be used, a record that is not there, a choice that splits a patient, or the library
                wfdb is missing.
        """
        folder = existing(self.path, "folder", "wfdb:DIR")
        library = _library()
        remarks: list[Remark] = []
        records: dict[str, Beats] = {}
        rate = 0.0
        for name in self._chosen(folder):
            try:
                records[name], rate, lost = _Record(library, folder, name, self).beats(rate)
            except _Unfit as error:
                remarks.append(Remark("record-left-out", str(error)))
                continue
            if lost:
                remarks.append(Remark("beats-left-out", lost))
        if not any(len(beats.y) for beats in records.values()):
            reason = f": {remarks[0].text}" if remarks else ": no annotation marks a beat"
            raise RequestError(f"{folder} has no record with beats that can be used{reason}")
        return _beats_of(folder.resolve().name, records, rate, self, tuple(remarks))

    def _chosen(self, folder: Path) -> list[str]:
        there = sorted(str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.hea"))
        if not there:
            raise RequestError(f"{folder} holds no WFDB record: it has no .hea file")
        if absent := [name for name in (*self.records, *self.without) if name not in there]:
            raise RequestError(f"{folder} has no record {absent[0]!r}; it holds {', '.join(there[:50])}")
        asked = SPLITS[self.split] if self.split else self.records or there
        chosen = [name for name in there if name in asked and name not in self.without]
        if not chosen:
            raise RequestError(f"{folder} has none of the records asked for; it holds {', '.join(there[:50])}")
        if self.patients:
            _check_patients(existing(self.patients, "file", "patients=FILE.csv"), there, chosen)
        return chosen


def _check_patients(table: Path, there: Sequence[str], chosen: Sequence[str]) -> None:
    """Refuse a choice that holds some records of a patient and leaves others."""
    try:
        with csv_file(table) as text:
            patients = {row["record"]: row["patient"] for row in csv.DictReader(text, strict=True)}
    except KeyError as error:
        raise RequestError(f"{table} has no column {error}: it needs record and patient") from None
    if unknown := [name for name in chosen if name not in patients]:
        raise RequestError(f"{table} does not say whose record {unknown[0]} is: add a row")
    whose = {patients[name]: name for name in chosen}
    for name in there:
        if name not in chosen and patients.get(name) in whose:
            raise RequestError(
                f"records {whose[patients[name]]} and {name} are of one patient ({patients[name]}), and only the first was "
                "chosen: name both, or neither"
            )


def _library() -> Any:
    try:
        import wfdb
    except ImportError:
        raise RequestError("WFDB records are read by the library wfdb, which is missing: pip install 'brinell[ecg]'") from None
    return wfdb


class _Unfit(Exception):
    """Why a record is left out, in one line."""

    def __init__(self, name: str, why: str, hint: str = "") -> None:
        super().__init__(f"record {name} {why}: left out" + (f"; {hint}" if hint else ""))


class _Record:
    def __init__(self, library: Any, folder: Path, name: str, settings: Wfdb) -> None:
        self.name, self.settings = name, settings
        path = str(folder / name)
        if not Path(f"{path}.{settings.annotations}").is_file():
            raise _Unfit(name, f"has no annotations ({name}.{settings.annotations})")
        try:
            # The library raises whatever comes its way on a damaged file, and uses its own libraries in ways they warn of.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.header = library.rdheader(path)
                packed = self._packed(folder)
                channels = self._channels()
                with bounded.decoding(f"record {name}", packed), bounded.within(LONGEST, f"record {name}"):
                    self.marks = library.rdann(path, settings.annotations)
                    self.signal = library.rdrecord(path, channels=channels)
        except _Unfit:
            raise
        except Exception as error:
            raise _Unfit(name, f"cannot be read ({one_line(error, 200)})") from None

    def _packed(self, folder: Path) -> int:
        """Bytes of the files that the header names, which must lie beside it and hold what it says."""
        place = (folder / self.name).parent
        files = {str(one) for one in getattr(self.header, "file_name", None) or [] if one}
        for one in files:
            if not bounded.inside(place, one, f"record {self.name}").is_file():
                raise _Unfit(self.name, f"names {one}, which is no file beside it")
        packed = sum((place / one).stat().st_size for one in files)
        said = (self.header.sig_len or 0) * (self.header.n_sig or 0)
        if said < 0 or said > 16 * packed:
            raise _Unfit(self.name, f"says it has {said} values in {packed} bytes")
        return packed

    def _channels(self) -> list[int]:
        names = list(self.header.sig_name or [])
        wanted = self.settings.leads or names[:1]
        if missing := [lead for lead in wanted if lead not in names]:
            raise _Unfit(self.name, f"has no lead {missing[0]}; it has {', '.join(names) or 'none'}", "choose by leads=")
        return [names.index(lead) for lead in wanted]

    def beats(self, others: float) -> tuple[Beats, float, str]:
        """The beats, their rate, and what was lost; `others` is the rate of the records before, 0 for none."""
        rate = self._rate(others)
        x = self._resampled(rate)
        before, after = math.floor(self.settings.before * rate), math.floor(self.settings.after * rate)
        if before + after < 2:
            raise RequestError(f"the window of {self.settings.before:g} + {self.settings.after:g} s holds no beat at {rate:g} Hz")
        classes = [AAMI.get(symbol) for symbol in self.marks.symbol]
        at = np.round(np.asarray(self.marks.sample) * (rate / self.header.fs)).astype(np.int64)
        intervals = self._rhythm(np.array([name is not None for name in classes], dtype=bool))
        kept = [i for i, name in enumerate(classes) if name and before <= at[i] <= x.shape[1] - after]
        windows = np.empty((len(kept), len(x), before + after))
        for row, i in enumerate(kept):
            windows[row] = x[:, at[i] - before : at[i] + after]
        labels = np.array([CLASSES.index(str(classes[i])) for i in kept], dtype=np.int64)
        low, high = (np.array(bound)[:, None] for bound in self.settings.bounds)
        fits = np.asarray(((windows >= low) & (windows <= high)).all((1, 2)))  # NaN, a missing value, is not inside
        lost = (
            f"{int((~fits).sum())} of {len(fits)} beats of record {self.name} have missing values or leave the bounds of "
            f"{low.ravel().tolist()} to {high.ravel().tolist()} mV: left out; widen them by low= and high="
        )
        beats = Beats(windows[fits].astype(np.float32), labels[fits], intervals[kept][fits])
        return beats, rate, "" if fits.all() else lost

    def _rhythm(self, beat: Array) -> Array:
        """(annotations, 3): the rhythm at those that mark a beat."""
        found = np.zeros((len(beat), 3), dtype=np.float32)
        if not self.settings.rhythm or not beat.any():
            return found
        if beat.sum() < 2:
            raise _Unfit(self.name, "has a single beat, and so no rhythm")
        between = np.diff(np.asarray(self.marks.sample)[beat]) / self.header.fs
        if not (between > 0).all():
            raise _Unfit(self.name, "has beats that do not follow each other in time, and so no rhythm")
        before, after = np.append(np.nan, between), np.append(between, np.nan)
        found[beat] = rhythm(before, after, np.zeros(len(before)), f"record {self.name}")
        return found

    def _rate(self, others: float) -> float:
        signal, marks = self.header.fs, self.marks.fs
        if marks and abs(marks - signal) > 1e-6 * signal:
            raise _Unfit(self.name, f"has its signal at {signal:g} and its annotations at {marks:g} values per second")
        rate = self.settings.rate or float(signal)
        if others and rate != others:
            hint = "rate= brings all to one"
            raise _Unfit(self.name, f"has {rate:g} values per second and the ones before {others:g}", hint)
        return rate

    def _resampled(self, rate: float) -> Array:
        """(leads, T) float64 in mV, the median of each lead at 0."""
        units = [str(unit).lower() for unit in self.signal.units]
        if strange := [unit for unit in units if unit not in MILLIVOLTS]:
            raise _Unfit(self.name, f"is in {strange[0]!r}, and not in volts")
        x = self.signal.p_signal.T * np.array([[MILLIVOLTS[unit]] for unit in units])
        if np.isnan(x).all(1).any():
            raise _Unfit(self.name, "has a lead without a single value")
        x = x - np.nanmedian(x, axis=1, keepdims=True)
        ratio = Fraction(rate / self.header.fs).limit_denominator(FINEST)
        if ratio == 1:
            return np.asarray(x)
        from scipy.signal import resample_poly

        # Missing values would spread through the distortion over the whole record: they become 0 and are put back.
        gone = np.isnan(x)
        found = np.asarray(resample_poly(np.where(gone, 0.0, x), ratio.numerator, ratio.denominator, axis=1))
        for lead, places in zip(*np.nonzero(gone), strict=True):
            found[lead, min(found.shape[1] - 1, round(places * float(ratio)))] = np.nan
        return found


def _beats_of(name: str, found: dict[str, Beats], rate: float, settings: Wfdb, remarks: tuple[Remark, ...]) -> StoredArrays:
    """The beats of some records as a data set, in memory; names of records do not count in its digest."""
    x, y, intervals = (np.concatenate(parts) for parts in zip(*found.values(), strict=True))
    record = np.repeat(np.arange(len(found)), [len(beats.y) for beats in found.values()])
    order = turns(record)
    if settings.most:
        order = order[np.sort(np.concatenate([np.flatnonzero(y[order] == label)[: settings.most] for label in np.unique(y)]))]
    low, high = (bound[0] if len(bound) == 1 else bound for bound in settings.bounds)
    domain = Domain(kind="signal", shape=x.shape[1:], low=low, high=high)
    start = -math.floor(settings.before * rate) / rate
    return StoredArrays(
        name=name,
        x=x[order],
        y=y[order],
        arrangement=Arrangement.straight(domain),
        domain=with_rhythm(domain, settings.leads) if settings.rhythm else domain,
        classes=CLASSES,
        divisor=None,
        info=DataInfo(sampling=Sampling(rate=rate, unit="mV", start=start, leads=settings.leads), remarks=remarks),
        groups=np.array(list(found))[record[order]],
        beside=intervals[order] if settings.rhythm else None,
    )
