"""`image-folder:DIR`: a folder of pictures, decoded when they are needed.

Either one subfolder per class (sorted names are the labels), or a labels.csv with the columns file and one of label,
imagenet_index, class_index, index, the pictures beside it or in images/. A file *classes.json, a list of names or of
{"index", "name"}, gives the whole list of classes; subfolders are then looked up in it by name or wnid.
"""

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.core.arrays import Array, Labels, class_names, little, space
from brinell.core.contracts import Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets._files import existing_folder, unread

__all__ = ["ImageFolder"]

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"))
COLUMNS = ("label", "imagenet_index", "class_index", "index")
Mode = Literal["RGB", "L"]


class Listing(NamedTuple):
    """The files of a folder in order, their labels, and the names of the classes."""

    files: list[Path]
    labels: Labels
    classes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Pictures in folders, or listed in labels.csv."""

    path: str = ""
    """The folder."""
    size: int = 0
    """Bring the shorter side to so many pixels and crop the centre; 0 leaves pictures as they are, all of one size."""
    mode: Mode = "RGB"
    """RGB, or L for grey."""

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size is {self.size}; it must be a number of pixels, or 0")

    def __call__(self) -> Dataset:
        """List the folder and read the size of each picture.

        Raises:
            RequestError: no pictures, a bad labels.csv or classes.json, pictures of several sizes without `size`.
        """
        folder = existing_folder(self.path, "image-folder:DIR")
        listing = _table(folder) if (folder / "labels.csv").is_file() else _tree(folder)
        height, width = (self.size, self.size) if self.size else _one_size(listing.files)
        return Pictures(
            name=folder.resolve().name, listing=listing, height=height, width=width, mode=self.mode, resize=bool(self.size)
        )


class Pictures:
    """The pictures of a listing as a data set. Contents are read on demand, a picture at a time."""

    def __init__(self, *, name: str, listing: Listing, height: int, width: int, mode: Mode, resize: bool) -> None:
        self.name, self.classes = name, listing.classes
        self.domain = Domain(kind="image", shape=(len(mode), height, width), levels=256)
        self._listing, self._mode, self._resize, self._digest = listing, mode, resize, ""

    def __len__(self) -> int:
        return len(self._listing.files)

    def labels(self) -> Labels:
        """(n,) int64: all labels."""
        return self._listing.labels.copy()

    def load(self, indices: Sequence[int]) -> Tensor:
        """(len(indices), *shape) float32 in [0, 1].

        Raises:
            RequestError: a picture that cannot be decoded, or has changed its size.
        """
        x = torch.empty(len(indices), *self.domain.shape)
        for row, index in enumerate(indices):
            x[row] = torch.from_numpy(self._pixels(self._listing.files[index]))
        return x.div_(255)

    def _pixels(self, file: Path) -> Array:
        _, height, width = self.domain.shape
        try:
            with Image.open(file) as picture:
                if picture.mode.startswith(("I", "F")):
                    raise ValueError(f"{picture.mode} pixels, more than 8 bits; convert it")
                image = picture.convert(self._mode)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise unread(file, error) from None
        if self._resize:
            image = _centre(image, height)
        pixels = np.array(image, dtype=np.uint8)
        if pixels.shape[:2] != (height, width):
            raise RequestError(
                f"{file} is {pixels.shape[1]} x {pixels.shape[0]} now, not {width} x {height}: leave the folder alone"
            )
        return np.ascontiguousarray(pixels.reshape(height, width, -1).transpose(2, 0, 1))

    def digest(self) -> str:
        """Hash of the files' bytes, the labels, and how pictures become inputs. File names do not count."""
        if not self._digest:
            hashed = hashlib.blake2b(f"{space(self.domain)} {self._mode} {self._resize}".encode(), digest_size=16)
            hashed.update(little(self._listing.labels))
            for file in self._listing.files:
                try:
                    with file.open("rb") as content:
                        hashed.update(hashlib.file_digest(content, "blake2b").digest())
                except OSError as error:
                    raise unread(file, error) from None
            self._digest = hashed.hexdigest()
        return self._digest


def _centre(image: Image.Image, size: int) -> Image.Image:
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return image.crop((left, top, left + size, top + size))


def _one_size(files: Sequence[Path]) -> tuple[int, int]:
    first: tuple[int, int] | None = None
    for file in files:
        try:
            with Image.open(file) as picture:
                size = picture.size
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise unread(file, error) from None
        first = first or size
        if size != first:
            raise RequestError(
                f"{files[0]} is {first[0]} x {first[1]} and {file} is {size[0]} x {size[1]}: "
                "bring them to one size with the option size=224 (shorter side, then centre crop)"
            )
    assert first is not None  # a listing is never empty
    return first[1], first[0]


def _tree(folder: Path) -> Listing:
    groups = {
        place.name: sorted(file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        for place in sorted(folder.iterdir())
        if place.is_dir() and not place.name.startswith(".")
    }
    groups = {name: files for name, files in groups.items() if files}
    if not groups:
        raise RequestError(f"{folder} has neither a labels.csv nor a subfolder with pictures: give it one subfolder per class")
    classes = _classes(folder)
    lookup = {name: label for label, name in enumerate(groups)} if classes is None else classes.lookup
    if unknown := [name for name in groups if name not in lookup]:
        raise RequestError(
            f"{folder}: the subfolder {unknown[0]!r} is no class of *classes.json: rename it, or take the list away"
        )
    files = [file for group in groups.values() for file in group]
    labels = np.array([lookup[name] for name, group in groups.items() for _ in group], dtype=np.int64)
    return Listing(files, labels, tuple(groups) if classes is None else classes.names)


def _table(folder: Path) -> Listing:
    table = folder / "labels.csv"
    try:
        with table.open(newline="", encoding="utf-8-sig") as text:
            rows = list(csv.DictReader(text, strict=True))
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise unread(table, error) from None
    if not rows:
        raise RequestError(f"{table} lists nothing: give it the columns file and label")
    column = next((name for name in COLUMNS if name in rows[0]), None)
    if column is None or "file" not in rows[0]:
        raise RequestError(
            f"{table} has the columns {', '.join(map(str, rows[0]))}; it needs file and one of {', '.join(COLUMNS)}"
        )
    classes = _classes(folder)
    files = [_picture(folder, row["file"], table) for row in rows]
    texts = [row[column] or "" for row in rows]
    if all(text.strip().isdecimal() for text in texts):
        labels = np.array([int(text) for text in texts], dtype=np.int64)
        named = {label: row["name"] for label, row in zip(labels.tolist(), rows, strict=True) if row.get("name")}
        names = _fill(named, int(labels.max()) + 1) if classes is None else classes.names
        return Listing(files, labels, class_names(names, labels, f"the list of classes of {folder}"))
    lookup = {name: label for label, name in enumerate(sorted(set(texts)))} if classes is None else classes.lookup
    if bad := [text for text in texts if not text or text not in lookup]:
        raise RequestError(f"{table} has the label {bad[0]!r} in column {column}: write class indices, or names of *classes.json")
    return Listing(
        files, np.array([lookup[text] for text in texts], dtype=np.int64), tuple(lookup) if classes is None else classes.names
    )


def _fill(named: Mapping[int, str], classes: int) -> list[str]:
    return [named.get(label, str(label)) for label in range(classes)]


def _picture(folder: Path, name: str | None, table: Path) -> Path:
    for file in (folder / (name or ""), folder / "images" / (name or "")):
        if file.is_file():
            return file
    raise RequestError(f"{table} lists {name!r}, which is neither beside it nor in images/: fetch it, or drop the row")


class _Classes(NamedTuple):
    names: tuple[str, ...]
    lookup: dict[str, int]


def _classes(folder: Path) -> _Classes | None:
    """The list in *classes.json, or None where there is none."""
    found = sorted(folder.glob("*classes.json"))
    if not found:
        return None
    if len(found) > 1:
        raise RequestError(f"{folder} has {found[0].name} and {found[1].name}: leave one list of classes")
    try:
        content: Any = json.loads(found[0].read_text("utf-8"))
        entries = [entry if isinstance(entry, dict) else {"index": index, "name": entry} for index, entry in enumerate(content)]
        named = {int(entry["index"]): str(entry["name"]) for entry in entries}
        lookup = {str(entry[key]): int(entry["index"]) for key in ("name", "wnid") for entry in entries if key in entry}
        classes = _Classes(tuple(_fill(named, max(named) + 1)), lookup)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestError(
            f"{found[0]} is no list of names or of {{index, name}} ({error!r}): mend it, or take it away"
        ) from None
    return classes
