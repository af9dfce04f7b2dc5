"""`npz:FILE`: the arrays of a NumPy archive.

Inputs are called x, images, clips or beats_uV, labels y or labels, class names classes; the options x= and y= name others. Bytes
become [0, 1]; other numbers must lie in [0, 1] or between the options low= and high=. Channels may be last or first.
Each array is unpacked into a temporary file and mapped, so that an archive may be larger than memory.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.core.arrays import Array, Layout, StoredArrays, arrange, check_labels, class_names, domain_of
from brinell.core.contracts import Dataset
from brinell.core.domain import Kind
from brinell.core.errors import RequestError
from brinell.datasets._files import existing_file, map_npy, spill, unread

__all__ = ["Npz"]

INPUTS = ("x", "images", "clips", "beats_uV")
LABELS = ("y", "labels")


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
    low: float | None = None
    """Smallest value allowed, in the units of the file; by default 0, after dividing bytes by 255."""
    high: float | None = None
    """Largest value allowed, like low; by default 1."""
    levels: int | None = None
    """How many values a stored input can take, 0 for no rounding; by default read off the data."""

    def __call__(self) -> Dataset:
        """Open the archive.

        Raises:
            RequestError: no such file or array, a damaged archive, Python objects, NaN, values outside the bounds, labels that do
                not fit, channels that could be first and last.
        """
        file = existing_file(self.path, "npz:FILE")
        try:
            with zipfile.ZipFile(file) as archive:
                known = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
                x_name, y_name = _pick(self.x, INPUTS, known, file, "x"), _pick(self.y, LABELS, known, file, "y")
                x, y = _array(archive, x_name, file), np.array(_array(archive, y_name, file))
                names = np.array(_array(archive, "classes", file)) if "classes" in known else None
        except (zipfile.BadZipFile, OSError) as error:
            raise unread(file, error) from None
        inputs = f"array {x_name} of {file}"
        arrangement = arrange(x.shape, kind=self.kind, layout=self.layout, what=inputs)
        labels = check_labels(y, len(x), f"array {y_name} of {file}")
        domain, divisor = domain_of(x, arrangement, low=self.low, high=self.high, levels=self.levels, what=inputs)
        return StoredArrays(
            name=file.stem,
            x=x,
            y=labels,
            arrangement=arrangement,
            domain=domain,
            classes=class_names(None if names is None else names.tolist(), labels, f"array classes of {file}"),
            divisor=divisor,
        )


def _pick(asked: str, usual: tuple[str, ...], known: list[str], file: Path, option: str) -> str:
    for name in (asked,) if asked else usual:
        if name in known:
            return name
    wanted = repr(asked) if asked else " or ".join(usual)
    raise RequestError(f"{file} has no array {wanted}; it holds {', '.join(known) or 'none'}: name one by the option {option}=")


def _array(archive: zipfile.ZipFile, name: str, file: Path) -> Array:
    what = f"array {name} of {file}"
    try:
        with archive.open(name + ".npy") as member, spill(member, what) as unpacked:
            return map_npy(unpacked, what)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise unread(what, error) from None
