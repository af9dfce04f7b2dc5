"""Files of a folder with their labels, from subfolders or a list, and pictures that are decoded on
demand.
"""

import csv
import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from brinell.core import bounded
from brinell.core.errors import RequestError
from brinell.datasets._arrays import Array, LazyRows, little_endian_bytes
from brinell.datasets._files import csv_file, read_error
from brinell.datasets._labels import Labels, check_labels, class_names

LONGEST_LABEL = 1000
"""Length in characters from which a label is not read."""
DECODED = 4 * bounded.MOST_PIXELS // bounded.RATIO
"""File size in bytes from which a decoder may use as much memory as the largest picture needs."""
FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
ORIENTATION, SIDEWAYS = 0x0112, 5
"""Tag of EXIF's orientation, and the first of its values by which width and height are swapped."""
COLUMNS = ("label", "imagenet_index", "class_index", "index")


class Listing(NamedTuple):
    """The files of a folder in order, their labels, and the names of the classes."""

    files: list[Path]
    labels: Labels
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def digest_of(settings: str, arrays: Iterable[Array], files: Iterable[Path]) -> str:
    """Hash of a conversion to inputs, of labels or other arrays, and of the bytes of files.

    Names of files do not count.
    """
    hash = hashlib.blake2b(settings.encode(), digest_size=16)
    for array in arrays:
        hash.update(little_endian_bytes(array))

    for file in files:
        # By their content, so that moving a folder changes no digest, and touching a file none
        # either.
        try:
            with bounded.open_regular(file) as content:
                hash.update(hashlib.file_digest(content, "blake2b").digest())
        except OSError as error:
            raise read_error(file, error) from None
    return hash.hexdigest()


def listing_of(folder: Path, suffixes: frozenset[str], subject: str, subfolder: str) -> Listing:
    """The files of a folder with their labels."""
    return (
        _table(folder, subfolder)
        if (folder / "labels.csv").is_file()
        else _tree(folder, suffixes, subject)
    )


def _tree(folder: Path, suffixes: frozenset[str], subject: str) -> Listing:
    """The files of a folder with one subfolder for each class."""
    groups: dict[str, list[Path]] = {}
    hidden: list[Path] = []
    # Folders with numbers as names count in the order of the numbers: 10 after 9.
    for place in sorted(
        folder.glob("[!.]*"),
        key=lambda place: (len(place.name) if place.name.isdecimal() else 0, place.name),
    ):
        visible, hidden_in_place = _files_below(place, suffixes)
        if visible:
            groups[place.name] = visible
            hidden += hidden_in_place
    notes = (f"{len(hidden)} hidden files are left out, such as {hidden[0]}",) if hidden else ()
    if not groups:
        raise RequestError(
            f"{folder} has neither a labels.csv nor a subfolder with {subject}: "
            "give it one subfolder per class"
        )
    classes = classes_of(folder) or Classes.of(groups)
    if unknown := [name for name in groups if name not in classes.lookup]:
        raise RequestError(
            f"{folder}: the subfolder {unknown[0]!r} is no class of "
            "*classes.json: rename it, or take the list away"
        )

    files = [file for group in groups.values() for file in group]
    return Listing(
        files,
        classes.labels(name for name, group in groups.items() for _ in group),
        classes.names,
        notes,
    )


def _files_below(place: Path, suffixes: frozenset[str]) -> tuple[list[Path], list[Path]]:
    """The files below a folder in order, those that are not hidden and those that are."""
    visible: list[Path] = []
    hidden: list[Path] = []
    for file in sorted(place.rglob("*")):
        if file.suffix.lower() in suffixes and file.is_file():
            parts = file.relative_to(place).parts
            (hidden if any(part.startswith(".") for part in parts) else visible).append(file)
    return visible, hidden


def _table(folder: Path, subfolder: str) -> Listing:
    """The files that a labels.csv lists, with their labels."""
    table = folder / "labels.csv"
    with csv_file(table) as text:
        rows = list(csv.DictReader(text, strict=True))
    if not rows:
        raise RequestError(f"{table} lists nothing: give it the columns file and label")
    # ImageNet's list has names and numbers: the first usual column that there is counts.
    column = next((name for name in COLUMNS if name in rows[0]), None)
    if column is None or "file" not in rows[0]:
        raise RequestError(
            f"{table} has the columns {', '.join(map(str, rows[0]))}; it needs "
            f"file and one of {', '.join(COLUMNS)}"
        )
    classes = classes_of(folder)
    files = [_listed_path(folder, row["file"], table, subfolder) for row in rows]
    texts = [row[column] or "" for row in rows]
    if all(text.strip().isdecimal() for text in texts):
        return _listing_of_numbers(files, rows, texts, classes, folder, column)

    # Without a list of classes the labels themselves are it, in sorted order.
    classes = classes or Classes.of(sorted(set(texts)))
    if bad := [text for text in texts if not text or text not in classes.lookup]:
        raise RequestError(
            f"{table} has the label {bad[0]!r} in column {column}: write class "
            "indices, or names of *classes.json"
        )
    return Listing(files, classes.labels(texts), classes.names)


def _listing_of_numbers(
    files: list[Path],
    rows: Sequence[Mapping[str, str]],
    texts: Sequence[str],
    classes: "Classes | None",
    folder: Path,
    column: str,
) -> Listing:
    """The files of a labels.csv whose labels are numbers, with the names that it gives them."""
    # A number of many digits is too large whatever it is, and would take long to read.
    numbers = [int(text) if len(text) < LONGEST_LABEL else bounded.MOST_CLASSES for text in texts]
    labels = np.minimum(np.array(numbers, dtype=object), bounded.MOST_CLASSES).astype(np.int64)
    check_labels(labels, len(labels), f"column {column} of {folder / 'labels.csv'}")

    names_by_label = {
        label: row["name"]
        for label, row in zip(labels.tolist(), rows, strict=True)
        if row.get("name")
    }
    names = classes.names if classes else _fill(names_by_label, int(labels.max()) + 1)
    # ImageNet has two cranes and two maillots.
    source = f"the list of classes of {folder}"
    return Listing(files, labels, class_names(names, labels, source, unique=False))


def _fill(names_by_label: Mapping[int, str], classes: int) -> list[str]:
    """The names of so many classes; the number of a class without a name."""
    return [names_by_label.get(label, str(label)) for label in range(classes)]


def _listed_path(folder: Path, name: str | None, table: Path, subfolder: str) -> Path:
    """The path of a file that a table names, in the folder or its subfolder."""
    for location in (name or "", f"{subfolder}/{name or ''}"):
        if bounded.path_inside(folder, location, table, links=True).is_file():
            return folder / location
    raise RequestError(
        f"{table} lists {name!r}, which is neither beside it nor in {subfolder}/: "
        "fetch it, or drop the row"
    )


class Classes(NamedTuple):
    """The classes of a folder."""

    names: tuple[str, ...]
    lookup: dict[str, int]

    @classmethod
    def of(cls, names: Iterable[str]) -> "Classes":
        """Classes that are counted in the order of their names."""
        names = tuple(names)
        return cls(names, {name: label for label, name in enumerate(names)})

    def labels(self, names: Iterable[str]) -> Labels:
        """(n,) int64: labels of class names."""
        return np.array([self.lookup[name] for name in names], dtype=np.int64)


def classes_of(folder: Path) -> Classes | None:
    """Classes of a `classes.json` in the folder; None without one."""
    files = sorted(folder.glob("*classes.json"))
    if not files:
        return None
    if len(files) > 1:
        raise RequestError(
            f"{folder} has {files[0].name} and {files[1].name}: leave one list of classes"
        )

    try:
        content = bounded.json_of(files[0])
        entries = [
            entry if isinstance(entry, dict) else {"index": index, "name": entry}
            for index, entry in enumerate(content)
        ]
        names_by_label = {int(entry["index"]): str(entry["name"]) for entry in entries}
        if not 0 <= min(names_by_label) <= max(names_by_label) < bounded.MOST_CLASSES:
            raise ValueError(f"indices from {min(names_by_label)} to {max(names_by_label)}")

        # A subfolder may be called by the name of its class, or by its number in WordNet.
        lookup = {
            str(entry[key]): int(entry["index"])
            for key in ("name", "wnid")
            for entry in entries
            if key in entry
        }

        return Classes(tuple(_fill(names_by_label, max(names_by_label) + 1)), lookup)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise RequestError(
            f"{files[0]} is no list of names or of {{index, name}} ({error!r}): "
            "correct it, or remove it"
        ) from None


# Pictures


class PictureFiles(LazyRows):
    """(n, channels, h, w) uint8: pictures, decoded one at a time.

    Args:
        shape: channels (1 for grey, 3 for RGB), height and width.
        fit: crop brings the shorter side to its length and crops the centre, stretch ignores
            proportions; none keeps the pixels, which must have that size.
    """

    def __init__(
        self,
        files: Sequence[Path],
        shape: tuple[int, ...],
        fit: Literal["crop", "stretch", "none"] = "none",
    ) -> None:
        super().__init__(len(files), shape, np.dtype(np.uint8))
        self._files, self._fit = files, fit

    def row(self, index: int) -> Array:
        """(channels, h, w): one picture, upright by its EXIF orientation."""
        file, (channels, height, width) = self._files[index], self.shape[1:]
        with open_picture(file) as original:
            # Pillow would cut the values of 16 or 32 bits off, rather than scale them.
            if original.mode.startswith(("I", "F")):
                raise RequestError(
                    f"{file} has {original.mode} pixels of more than 8 bits: convert it to 8 bits"
                )
            image = ImageOps.exif_transpose(original).convert("RGB" if channels == 3 else "L")
            if self._fit == "crop":
                image = crop_centre(image, height)
            elif self._fit == "stretch" and image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BICUBIC)
            pixels = np.array(image, dtype=np.uint8)

        if pixels.shape[:2] != (height, width):
            raise RequestError(
                f"{file} is {pixels.shape[1]} x {pixels.shape[0]} now, not "
                f"{width} x {height}: leave the folder alone"
            )
        return pixels.reshape(height, width, -1).transpose(2, 0, 1)


def sizes_of(files: Sequence[Path]) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    """Height and width of each picture, upright by its EXIF orientation.

    A note says how many lie on a side.
    """
    sizes, turned = [], 0
    for file in files:
        with open_picture(file) as image:
            orientation = image.getexif().get(ORIENTATION, 1)
            # Pillow gives width and height.
            sizes.append(image.size if orientation >= SIDEWAYS else image.size[::-1])
            turned += orientation != 1

    return sizes, (
        f"{turned} of {len(files)} pictures are turned upright by their EXIF orientation",
    ) if turned else ()


def one_size(
    files: Sequence[Path], sizes: Sequence[tuple[int, int]], remedy: str
) -> tuple[int, int]:
    """The height and width that all pictures share.

    Others are refused, with the option that is the `remedy`.
    """
    for file, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            first = f"{files[0]} is {sizes[0][1]} x {sizes[0][0]}"
            raise RequestError(
                f"{first} and {file} is {size[1]} x {size[0]}: bring them to one "
                f"size with the option {remedy}"
            )

    return sizes[0]


def picture_path(folder: Path, name: str, table: object) -> Path:
    """The path of a picture in images/ that a table names."""
    # Only checked: people link images/ to another disk, so that links may lead out of the folder.
    bounded.path_inside(folder, f"images/{name}", table, links=True)
    path = folder / "images" / name
    if not path.is_file():
        raise RequestError(
            f"{table} lists {name!r}, which is not in {folder}/images: fetch it, or drop its entry"
        )
    return path


@contextmanager
def open_picture(file: Path) -> Iterator[Image.Image]:
    """A picture, opened but not decoded, of bounded size.

    It has a format that Pillow decodes by itself: for the rest it starts other programs, such as an
    interpreter of PostScript.
    """
    with (
        bounded.decoding(file, DECODED),
        warnings.catch_warnings(),
        bounded.open_regular(file) as stream,
    ):
        # Of its size, which is checked here, and of what a damaged file holds.
        warnings.simplefilter("ignore")

        with Image.open(stream, formats=FORMATS) as image:
            width, height = image.size
            if width * height > bounded.MOST_PIXELS:
                raise RequestError(
                    f"{file} is {width} x {height}, more than "
                    f"{bounded.MOST_PIXELS} pixels: make it smaller"
                )
            yield image


def crop_centre(
    image: Image.Image, size: int, resampling: Image.Resampling = Image.Resampling.BILINEAR
) -> Image.Image:
    """A square from the centre, after the shorter side was resized to `size` pixels."""
    scale = size / min(image.size)
    # The longer side grows too, by which a thin picture would become a huge one.
    if size * max(image.size) > bounded.MOST_PIXELS * min(image.size) / size:
        raise ValueError(
            f"{image.size[0]} x {image.size[1]} pixels cannot be brought to "
            f"{size} on the shorter side"
        )

    width, height = (max(size, round(side * scale)) for side in image.size)
    image = image.resize((width, height), resampling)
    left, top = (width - size) // 2, (height - size) // 2
    return image.crop((left, top, left + size, top + size))
