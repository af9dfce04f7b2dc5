"""Ground truth: where the object of each sample is, from masks, boxes or annotated stretches, by one of these specs.

masks:DIR      PNG pictures named like the samples: 0 is background, 255 is ignored, everything else is the object (Pascal VOC).
               `?form=trimap` reads Oxford Pets: 1 is the object, 2 background, 3 ignored. `?value=15` takes one number alone.
               Masks and boxes of pictures that the data cut by `size=` take the same option.
npz:FILE       an array `masks` (n, *places) in the order of the data: 1 is the object, 0 background, 255 ignored; an array
               `groups` (n,) of texts says which samples belong together. `?key=NAME` takes another array.
coco:FILE      boxes of a JSON file in COCO's form; the object is their union. The names of pictures are those of the samples.
voc:DIR        boxes of XML files in Pascal VOC's form, named like the samples.
spans:FILE     stretches of signals, a CSV with the columns sample (its position in the data), start and end, in seconds where the
               data has a rate and else in values.
beat           of heartbeats cut around their R peak, the QRS complex: from `?before=0.06` to `?after=0.06` seconds around it.
"""

import csv
import io
import json
import xml.etree.ElementTree as xml
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image

from brinell import plugins
from brinell.analysis.saliency import IGNORED
from brinell.core import bounded
from brinell.core.contracts import Dataset
from brinell.core.errors import RequestError, one_line
from brinell.core.record import Array
from brinell.datasets._files import npz_array, unread
from brinell.datasets._listing import centre, picture
from brinell.explainers._asking import places_of

Box = tuple[float, ...]
"""Left, top, right and bottom, in pixels."""


@dataclass(frozen=True, kw_only=True)
class GroundTruth:
    """Where the object of each sample is."""

    of: Callable[[int], Array | None]
    """By position of the sample: (*places) uint8, 1 on the object, 0 off it, 255 ignored; None where nothing is known."""
    groups: Mapping[int, str] = field(default_factory=dict)

    def group(self, sample: int) -> str:
        """What the sample belongs together with; empty for itself alone."""
        return self.groups.get(sample, "")


def opened_truth(spec: str, dataset: Dataset) -> GroundTruth:
    """The ground truth that a spec names, for this data.

    Raises:
        RequestError: an unknown spec, a file that is missing or damaged, masks of another size than the inputs.
    """
    name, path, options = plugins.parse(spec)
    if name not in READERS:
        raise RequestError(f"there is no ground truth {name!r}{plugins.nearest(name, READERS)}: {', '.join(READERS)}")
    reader, known = READERS[name]
    if unknown := [key for key in options if key not in known]:
        raise RequestError(f"truth {name} has no option {unknown[0]!r}; it has: {', '.join(known) or 'none'}")
    if name != "beat" and not Path(path).exists():
        raise RequestError(f"there is no {path or 'path'} for truth {name}: write {name}:{'DIR' if name in DIRS else 'FILE'}")
    with _reading(spec):
        found = reader(Path(path), dataset, options)

    def of(sample: int) -> Array | None:
        with _reading(spec):
            return found.of(sample)

    return GroundTruth(of=of, groups=found.groups)


@contextmanager
def _reading(spec: str) -> Iterator[None]:
    """Whatever goes wrong with a file meanwhile is said in one line; some are read as their sample is explained."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:  # of a damaged file the libraries raise whatever comes their way
        raise RequestError(f"truth {spec} cannot be read ({type(error).__name__}: {one_line(error)}): correct the file") from None


def _npz(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    key = options.get("key", "masks")
    try:
        with zipfile.ZipFile(path) as archive:
            held = [name.removesuffix(".npy") for name in archive.namelist()]
            if key not in held:
                raise RequestError(f"{path} has no array {key!r}; it has {', '.join(held) or 'none'}: name one by key=")
            masks = npz_array(archive, key, path)
            groups = dict(enumerate(map(str, npz_array(archive, "groups", path)))) if "groups" in held else {}
    except zipfile.BadZipFile as error:
        raise unread(path, error) from None
    expected = (len(dataset), *places_of(dataset.domain))
    if masks.shape != expected:
        raise RequestError(
            f"{key} in {path} has shape {masks.shape}, and the data need {expected}: give one mask of their size each"
        )
    if extra := sorted(set(np.unique(masks).tolist()) - {0, 1, IGNORED}):
        raise RequestError(f"{key} in {path} holds {extra[0]}: write 1 for the object, 0 for the rest, 255 for what is ignored")
    return GroundTruth(of=lambda sample: np.asarray(masks[sample], dtype=np.uint8), groups=groups)


def _masks(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    form, size, value = options.get("form", "binary"), int(options.get("size", 0)), options.get("value")
    if form not in ("binary", "trimap"):
        raise RequestError(f"form is {form!r} in truth masks, not binary or trimap")
    names, places = _names(dataset, "masks"), places_of(dataset.domain)

    def of(sample: int) -> Array | None:
        file = _beside(path, names[sample], ".png")
        if file is None:
            return None
        with picture(file) as held:
            if held.mode not in ("P", "L", "1", "I;16", "I"):
                raise RequestError(
                    f"{file} is a picture in {held.mode}, not of class numbers: write masks as grey or palette PNG"
                )
            image = Image.fromarray(np.asarray(held).astype(np.int32).clip(0, 255).astype(np.uint8))
        pixels = np.asarray(centre(image, size, Image.Resampling.NEAREST) if size else image)
        if pixels.shape != places:
            told = f"{pixels.shape[1]} x {pixels.shape[0]}, and the inputs are {places[1]} x {places[0]}"
            raise RequestError(f"{file} is {told}: cut masks as the inputs, by size= where the data have it")
        if form == "trimap":
            return np.select([pixels == 1, pixels == 2], [1, 0], IGNORED).astype(np.uint8)
        object_ = pixels == int(value) if value else pixels > 0
        return np.where(pixels == IGNORED, IGNORED, object_).astype(np.uint8)

    return GroundTruth(of=of)


def _coco(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    held = json.loads(bounded.read(path, bounded.MOST_TEXT))
    sizes = {one["id"]: (int(one["width"]), int(one["height"])) for one in held["images"]}
    numbers = {PurePosixPath(str(one["file_name"])).stem: one["id"] for one in held["images"]}
    boxes: dict[Any, list[Box]] = {}
    for one in held["annotations"]:
        left, top, width, height = map(float, one["bbox"])
        boxes.setdefault(one["image_id"], []).append((left, top, left + width, top + height))
    names = _names(dataset, "coco")

    def of(sample: int) -> Array | None:
        number = numbers.get(PurePosixPath(names[sample]).stem)
        return None if number is None or number not in boxes else _filled(boxes[number], sizes[number], dataset, options, path)

    return GroundTruth(of=of)


def _voc(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    names = _names(dataset, "voc")

    def of(sample: int) -> Array | None:
        file = _beside(path, names[sample], ".xml")
        if file is None:
            return None
        root = xml.fromstring(bounded.read(file, bounded.MOST_TEXT))
        size = int(_text(root, "size/width", file)), int(_text(root, "size/height", file))
        boxes = [
            (left - 1, top - 1, right, bottom)  # pixels are counted from 1, both ends included
            for left, top, right, bottom in (
                tuple(float(_text(one, f"bndbox/{side}", file)) for side in ("xmin", "ymin", "xmax", "ymax"))
                for one in root.iter("object")
            )
        ]
        return _filled(boxes, size, dataset, options, file) if boxes else None

    return GroundTruth(of=of)


def _filled(boxes: Sequence[Box], size: tuple[int, int], dataset: Dataset, options: Mapping[str, str], file: Path) -> Array:
    """The union of boxes (left, top, right, bottom) in pixels of a picture of this size (width, height), cut as the inputs."""
    mask, side = np.zeros((size[1], size[0]), dtype=np.uint8), int(options.get("size", 0))
    for left, top, right, bottom in boxes:
        mask[max(round(top), 0) : max(round(bottom), 0), max(round(left), 0) : max(round(right), 0)] = 1
    if side:
        mask = np.asarray(centre(Image.fromarray(mask), side, Image.Resampling.NEAREST))
    places = places_of(dataset.domain)
    if mask.shape != places:
        told = f"{mask.shape[1]} x {mask.shape[0]}, and the inputs are {places[1]} x {places[0]}"
        raise RequestError(f"a picture in {file} is {told}: boxes belong to pictures of that size, or cut by size= as the data")
    return mask


def _spans(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    length, sampling = _length(dataset, "spans"), dataset.info.sampling
    rate, start = (sampling.rate, sampling.start) if sampling else (1.0, 0.0)
    found: dict[int, Array] = {}
    with bounded.opened(path) as stream:
        lines = csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
        for line in lines:
            mask = found.setdefault(int(line["sample"]), np.zeros(length, dtype=np.uint8))
            first, last = (round((float(line[end]) - start) * rate) for end in ("start", "end"))
            mask[max(first, 0) : max(last, 0)] = 1
    return GroundTruth(of=found.get)


def _beat(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    length, sampling = _length(dataset, "beat"), dataset.info.sampling
    if sampling is None or not sampling.start < 0:
        raise RequestError(
            "truth beat needs signals cut around a beat at second 0: wfdb: does, others are annotated by spans:FILE"
        )
    before, after = (float(options.get(end, 0.06)) for end in ("before", "after"))
    mask = np.zeros(length, dtype=np.uint8)
    first, last = (round((second - sampling.start) * sampling.rate) for second in (-before, after))
    mask[max(first, 0) : last + 1] = 1
    return GroundTruth(of=lambda sample: mask)


def _length(dataset: Dataset, name: str) -> int:
    if dataset.domain.kind != "signal":
        raise RequestError(f"truth {name} is for signals, and {dataset.name} holds {dataset.domain.kind}s: give masks or boxes")
    return dataset.domain.shape[-1]


def _names(dataset: Dataset, name: str) -> Sequence[str]:
    if dataset.domain.kind != "image" or not dataset.info.names:
        raise RequestError(f"truth {name} goes by the names of pictures, and {dataset.name} has none: give npz:FILE with masks")
    return dataset.info.names


def _beside(folder: Path, name: str, suffix: str) -> Path | None:
    """The file of a sample: below the folder where the sample lies below its own, or right in it."""
    for file in (folder / PurePosixPath(name).with_suffix(suffix), folder / (PurePosixPath(name).stem + suffix)):
        if file.is_file():
            return file
    return None


def _text(element: xml.Element, path: str, file: Path) -> str:
    found = element.findtext(path)
    if found is None:
        raise RequestError(f"{file} has no {path}: it is no annotation in Pascal VOC's form")
    return found


Reader = Callable[[Path, Dataset, Mapping[str, str]], GroundTruth]
READERS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    "masks": (_masks, ("form", "value", "size")),
    "npz": (_npz, ("key",)),
    "coco": (_coco, ("size",)),
    "voc": (_voc, ("size",)),
    "spans": (_spans, ()),
    "beat": (_beat, ("before", "after")),
}
DIRS = ("masks", "voc")
