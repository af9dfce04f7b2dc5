"""Ground truth: the position of the object in each sample, from masks, boxes or intervals, by one of these specs.

masks:DIR      PNG pictures named like the samples: 0 is background, 255 is ignored, every other value is the object (Pascal VOC).
               `?form=trimap` reads Oxford Pets: 1 is the object, 2 background, 3 ignored. `?value=15` selects one value.
               Masks and boxes take the same option `size=` as the data that crop their pictures.
npz:FILE       an array `masks` (n, *places) in the order of the data: 1 is the object, 0 background, 255 ignored; an array
               `groups` (n,) of texts names groups of related samples. `?key=NAME` selects another array.
coco:FILE      boxes of a JSON file in COCO's format; the object is their union. Pictures are named like the samples.
voc:DIR        boxes of XML files in Pascal VOC's format, named like the samples.
spans:FILE     intervals of signals, a CSV with the columns sample (its position in the data), start and end, in seconds where the
               data have a rate, else in values.
beat           the QRS complex of heartbeats that are cut around their R peak: `?before=0.06` and `?after=0.06` seconds around it.
               An npz archive needs the numbers `fs` and `r_index` for it; `wfdb:` data know both.
"""

import csv
import io
import json
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
from brinell.core.suggestions import suggestion
from brinell.datasets._boxes import voc_root, voc_rows
from brinell.datasets._files import npz_array, read_error
from brinell.datasets._listing import crop_centre, open_picture
from brinell.explainers._asking import places_of

Box = tuple[float, ...]
"""Left, top, right and bottom, in pixels."""


@dataclass(frozen=True, kw_only=True)
class GroundTruth:
    """Position of the object in each sample."""

    mask: Callable[[int], Array | None]
    """By position of the sample: (*places) uint8, 1 on the object, 0 off it, 255 ignored; None without ground truth."""
    groups: Mapping[int, str] = field(default_factory=dict)
    """Group of related samples, by position of the sample."""

    def group(self, sample: int) -> str:
        """Group of a sample; empty without a group."""
        return self.groups.get(sample, "")


def open_truth(spec: str, dataset: Dataset) -> GroundTruth:
    """Open the ground truth of a data set from a spec.

    Raises:
        RequestError: the spec is unknown, a file is missing or damaged, or masks and inputs differ in size.
    """
    name, path, options = plugins.parse(spec)
    if name not in READERS:
        raise RequestError(f"there is no ground truth {name!r}{suggestion(name, READERS)}: {', '.join(READERS)}")
    reader, option_names = READERS[name]
    if unknown := [key for key in options if key not in option_names]:
        raise RequestError(f"truth {name} has no option {unknown[0]!r}; it has: {', '.join(option_names) or 'none'}")
    if name != "beat" and not Path(path).exists():
        raise RequestError(f"there is no {path or 'path'} for truth {name}: write {name}:{'DIR' if name in DIRS else 'FILE'}")
    with _one_line_errors(spec):
        truth = reader(Path(path), dataset, options)

    def mask(sample: int) -> Array | None:
        """Mask of a sample, with errors in one line."""
        with _one_line_errors(spec):
            return truth.mask(sample)

    return GroundTruth(mask=mask, groups=truth.groups)


@contextmanager
def _one_line_errors(spec: str) -> Iterator[None]:
    """Report errors of reading a file as a `RequestError` of one line."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:  # libraries raise various errors for a damaged file
        raise RequestError(f"truth {spec} cannot be read ({type(error).__name__}: {one_line(error)}): correct the file") from None


def _read_npz(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    """Read ground truth from an array of an NPZ file."""
    key = options.get("key", "masks")
    try:
        with zipfile.ZipFile(path) as archive:
            array_names = [name.removesuffix(".npy") for name in archive.namelist()]
            if key not in array_names:
                raise RequestError(
                    f"{path} has no array {key!r}; it has {', '.join(array_names) or 'none'}: choose one with key="
                )
            masks = npz_array(archive, key, path)
            groups = dict(enumerate(map(str, npz_array(archive, "groups", path)))) if "groups" in array_names else {}
    except zipfile.BadZipFile as error:
        raise read_error(path, error) from None
    expected = (len(dataset), *places_of(dataset.domain))
    if masks.shape != expected:
        raise RequestError(
            f"{key} in {path} has shape {masks.shape}, and the data need {expected}: write one mask for each sample"
        )
    if extra := sorted(set(np.unique(masks).tolist()) - {0, 1, IGNORED}):
        raise RequestError(
            f"{key} in {path} contains {extra[0]}: write 1 for the object, 0 for background, 255 for ignored places"
        )
    return GroundTruth(mask=lambda sample: np.asarray(masks[sample], dtype=np.uint8), groups=groups)


def _read_masks(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    """Read ground truth from PNG masks in a folder; each mask is read when its sample is explained."""
    form, size, value = options.get("form", "binary"), int(options.get("size", 0)), options.get("value")
    if form not in ("binary", "trimap"):
        raise RequestError(f"form is {form!r} in truth masks, not binary or trimap")
    names, places = _picture_names(dataset, "masks"), places_of(dataset.domain)

    def mask(sample: int) -> Array | None:
        """Mask of a sample from its PNG file; None without one."""
        file = _find_file(path, names[sample], ".png")
        if file is None:
            return None
        with open_picture(file) as source:
            if source.mode not in ("P", "L", "1", "I;16", "I"):
                raise RequestError(
                    f"{file} is a picture in mode {source.mode} without class numbers: write masks as grey or palette PNG"
                )
            image = Image.fromarray(np.asarray(source).astype(np.int32).clip(0, 255).astype(np.uint8))
        pixels = np.asarray(crop_centre(image, size, Image.Resampling.NEAREST) if size else image)
        if pixels.shape != places:
            size_text = f"{pixels.shape[1]} x {pixels.shape[0]}, and the inputs are {places[1]} x {places[0]}"
            raise RequestError(f"{file} is {size_text}: crop masks like the inputs, with the same size= as the data")
        if form == "trimap":
            return np.select([pixels == 1, pixels == 2], [1, 0], IGNORED).astype(np.uint8)
        object_ = pixels == int(value) if value else pixels > 0
        return np.where(pixels == IGNORED, IGNORED, object_).astype(np.uint8)

    return GroundTruth(mask=mask)


def _read_coco(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    """Read ground truth from boxes in a COCO annotation file."""
    document = json.loads(bounded.read(path, bounded.MOST_TEXT))
    sizes = {image["id"]: (int(image["width"]), int(image["height"])) for image in document["images"]}
    numbers = {PurePosixPath(str(image["file_name"])).stem: image["id"] for image in document["images"]}
    boxes: dict[Any, list[Box]] = {}
    for annotation in document["annotations"]:
        x_min, y_min, width, height = map(float, annotation["bbox"])
        boxes.setdefault(annotation["image_id"], []).append((x_min, y_min, x_min + width, y_min + height))
    names = _picture_names(dataset, "coco")

    def mask(sample: int) -> Array | None:
        """Mask of a sample from its boxes in COCO JSON; None without boxes."""
        image_id = numbers.get(PurePosixPath(names[sample]).stem)
        if image_id is None or image_id not in boxes:
            return None
        return _fill_boxes(boxes[image_id], sizes[image_id], dataset, options, path)

    return GroundTruth(mask=mask)


def _read_voc(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    """Read ground truth from boxes in Pascal VOC's XML files; each file is read when its sample is explained."""
    names = _picture_names(dataset, "voc")

    def mask(sample: int) -> Array | None:
        """Mask of a sample from its boxes in VOC XML; None without a file."""
        file = _find_file(path, names[sample], ".xml")
        if file is None:
            return None
        root = voc_root(file)
        boxes = [corners for corners, _, _ in voc_rows(root, file)]
        width, height = (int(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        return _fill_boxes(boxes, (width, height), dataset, options, file) if boxes else None

    return GroundTruth(mask=mask)


def _fill_boxes(boxes: Sequence[Box], size: tuple[int, int], dataset: Dataset, options: Mapping[str, str], file: Path) -> Array:
    """Union of boxes (left, top, right, bottom) in pixels of a picture of size (width, height), cropped like the inputs."""
    mask, side = np.zeros((size[1], size[0]), dtype=np.uint8), int(options.get("size", 0))
    for x_min, y_min, x_max, y_max in boxes:
        mask[max(round(y_min), 0) : max(round(y_max), 0), max(round(x_min), 0) : max(round(x_max), 0)] = 1
    if side:
        mask = np.asarray(crop_centre(Image.fromarray(mask), side, Image.Resampling.NEAREST))
    places = places_of(dataset.domain)
    if mask.shape != places:
        size_text = f"{mask.shape[1]} x {mask.shape[0]}, and the inputs are {places[1]} x {places[0]}"
        raise RequestError(
            f"a picture in {file} is {size_text}: use boxes of pictures of that size, or the same size= as the data"
        )
    return mask


def _read_spans(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    """Read ground truth from a CSV file of intervals of signals."""
    length, sampling = _signal_length(dataset, "spans"), dataset.info.sampling
    rate, start = (sampling.rate, sampling.start) if sampling else (1.0, 0.0)
    masks: dict[int, Array] = {}
    with bounded.open_regular(path) as stream:
        lines = csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
        for line in lines:
            mask = masks.setdefault(int(line["sample"]), np.zeros(length, dtype=np.uint8))
            first, last = (round((float(line[end]) - start) * rate) for end in ("start", "end"))
            mask[max(first, 0) : max(last, 0)] = 1
    return GroundTruth(mask=masks.get)


def _read_beat(path: Path, dataset: Dataset, options: Mapping[str, str]) -> GroundTruth:
    """Ground truth of heartbeats: the interval around the R peak at second 0, the same for every sample."""
    length, sampling = _signal_length(dataset, "beat"), dataset.info.sampling
    if sampling is None or not sampling.start < 0:
        missing = "rate and the position of the R peak are" if sampling is None else "position of the R peak is"
        raise RequestError(
            f"truth beat needs signals cut around their R peak, and the {missing} not known of {dataset.name}: store fs (values "
            "per second) and r_index (position of the peak in each beat, one number) in the npz archive beside the beats, load "
            "wfdb: data, or use spans:FILE"
        )
    before, after = (float(options.get(end, 0.06)) for end in ("before", "after"))
    mask = np.zeros(length, dtype=np.uint8)
    first, last = (round((second - sampling.start) * sampling.rate) for second in (-before, after))
    mask[max(first, 0) : last + 1] = 1
    return GroundTruth(mask=lambda sample: mask)


def _signal_length(dataset: Dataset, name: str) -> int:
    """Length of the signals of a data set. Refuses data that are not signals."""
    if dataset.domain.kind != "signal":
        raise RequestError(f"truth {name} is for signals, and {dataset.name} contains {dataset.domain.kind}s: use masks or boxes")
    return dataset.domain.shape[-1]


def _picture_names(dataset: Dataset, name: str) -> Sequence[str]:
    """Relative paths of the pictures of a data set. Refuses data without names of pictures."""
    if dataset.domain.kind != "image" or not dataset.info.names:
        raise RequestError(
            f"truth {name} finds files by the names of pictures, and {dataset.name} has none: use npz:FILE with masks"
        )
    return dataset.info.names


def _find_file(folder: Path, name: str, suffix: str) -> Path | None:
    for file in (folder / PurePosixPath(name).with_suffix(suffix), folder / (PurePosixPath(name).stem + suffix)):
        if file.is_file():
            return file
    return None


Reader = Callable[[Path, Dataset, Mapping[str, str]], GroundTruth]
READERS: dict[str, tuple[Reader, tuple[str, ...]]] = {
    "masks": (_read_masks, ("form", "value", "size")),
    "npz": (_read_npz, ("key",)),
    "coco": (_read_coco, ("size",)),
    "voc": (_read_voc, ("size",)),
    "spans": (_read_spans, ()),
    "beat": (_read_beat, ("before", "after")),
}
DIRS = ("masks", "voc")
