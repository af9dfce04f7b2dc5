"""Objects of a Python program as a data set: what `brinell.audit(model, (x, y))` and `brinell.data` accept.

An object passes through this file in three steps. `read_source` recognises it (arrays, a data frame, a dict, a data set of
torch or Hugging Face, a loader) as inputs and labels. `encode_labels` numbers the labels. `_arrays` finds the channels and the
domain, which `ArrayDataset` then holds. Input that can be read in two ways with different figures is refused with a hint: a
dict with two columns of pictures, a loader that draws its samples, pictures of different sizes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils import data as torch_data

from brinell.core.data import DataInfo
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, is_foreign, one_line, short
from brinell.core.maite import class_of, metadata_of
from brinell.core.settings import MOST_COUNT
from brinell.core.values import FORMS, as_array
from brinell.datasets._advice import head_of
from brinell.datasets._arrays import Array, Bounds, Rows, StoredArrays, fit_domain
from brinell.datasets._axes import Layout, arrange_in_memory, looks_like_signals, reading_note
from brinell.datasets._labels import MULTI_LABEL, check_labels, class_names, code_signs
from brinell.datasets._wrapped import class_names_of

INPUTS = ("x", "inputs", "input", "images", "image", "img", "pixel_values", "input_values", "signals", "signal", "audio", "video")
LABELS = ("y", "labels", "label", "targets", "target", "class", "fine_label")
"""Names of inputs and labels in dicts and tables, the most reliable first."""

REPEATED = 16
"""Number of items that are read twice, by which a data set with random transforms is recognised."""


class ArrayDataset(StoredArrays):
    """Inputs as the model takes them; the arguments are those of `brinell.data`.

    Without bounds, bytes are divided by 255 and anything else must lie in [0, 1]. With bounds, values are taken unchanged.
    Columns with separate bounds are scaled to [0, 1], so a budget is a share of a column's range; the model gets the columns in
    their original units, as with `table:FILE`. A `domain` states kind, shape and bounds by itself. A torch Dataset is read item
    by item whenever inputs are needed, and once at the start for its labels.

    Raises:
        RequestError: values outside the bounds (by more than a millionth of their width), NaN, labels that do not fit, or a
            shape that can be read in two ways.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        classes: Sequence[str] | None = None,
        domain: Domain | None = None,
        name: str = "arrays",
        *,
        kind: Kind | None = None,
        layout: Layout | None = None,
        bounds: Bounds | None = None,
        divide: float | None = None,
    ) -> None:
        source = read_source(x, y)
        codes, names, notes = encode_labels(source, classes)
        if source.layout and (domain, kind, layout) == (None, None, None):
            kind, layout = "image", source.layout
        shape, is_stated = source.inputs.shape, (domain, kind, layout) != (None, None, None)
        arrangement = arrange_in_memory(shape, source.inputs.dtype, domain, kind, layout)
        labels = check_labels(codes, len(source.inputs))
        inputs, domain, divisor, units = fit_domain(source.inputs, arrangement, domain, source.columns, bounds, divide)
        if not is_stated and not source.columns:
            units += reading_note(
                shape, source.inputs.dtype, arrangement, looks_like_signals(head_of(source.inputs), arrangement.kind)
            )
        super().__init__(
            name=name,
            x=inputs,
            y=labels,
            arrangement=arrangement,
            domain=domain,
            classes=class_names(names, labels),
            divisor=divisor,
            info=DataInfo(notes=source.notes + notes + units),
        )

    def user_layout(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs in the order of axes of the user's arrays, as the user's function takes them."""
        axes = self._arrangement.axes
        if len(axes) == x.ndim - 1:  # grey pictures without an axis for their channels
            return x.squeeze(1)
        return x.permute(sorted(range(len(axes)), key=axes.__getitem__))

    @property
    def byte_scale(self) -> float | None:
        """Bytes per unit of the domain, if the inputs are stored as bytes; None for other types."""
        return (self._divisor or 1.0) if self._x.dtype == np.uint8 else None


# What was given, as inputs and labels


class Source(NamedTuple):
    """Inputs and labels, with the facts that the object states about them."""

    inputs: Any
    """(n, *stored) array, or rows that are read on demand."""
    labels: Any
    """(n,) numbers or texts."""
    classes: tuple[str, ...] = ()
    """Names of the classes, where the object has any."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a data frame."""
    notes: tuple[str, ...] = ()
    """Decisions that were made because the user left them open."""
    layout: Layout | None = None
    """Where the channels of images are, if the object says so: last in pictures of PIL, first by MAITE's protocol."""


def read_source(x: Any, y: Any = None) -> Source:
    """Recognise an object by its type, or `x` and `y` as inputs and labels; refuses objects with several readings."""
    if y is None and isinstance(x, tuple) and len(x) == 2:
        x, y = x
    elif y is None:
        return _read_object(x)
    if _is_frame(x):
        return _read_frame(x, y)
    if isinstance(x, Mapping) or callable(getattr(x, "keys", None)):
        raise RequestError(f"the inputs are a {type(x).__name__}: name one array of it, (data['x'], data['y'])")
    return Source(as_array(x, "inputs"), _labels(y))


def _is_frame(x: Any) -> bool:
    return hasattr(x, "dtypes") and hasattr(x, "columns") and hasattr(x, "to_numpy")


def _read_frame(frame: Any, y: Any) -> Source:
    """Inputs and labels of a data frame."""
    kinds = {str(name): dtype.kind for name, dtype in frame.dtypes.items() if hasattr(dtype, "kind")}
    columns = tuple(map(str, frame.columns))
    if bad := [name for name in columns if kinds.get(name, "O") not in "iuf"]:
        raise RequestError(
            f"column {bad[0]!r} of the data frame holds no numbers: encode it, or save the frame and name it table:FILE.csv, "
            "which keeps categories as they are"
        )
    return Source(frame.to_numpy(dtype=np.float64), _labels(y), columns=columns)


def _read_object(data: Any) -> Source:
    """An object that holds inputs and labels together."""
    if _is_frame(data):
        raise RequestError("a data frame alone does not say which column is the class: give (frame[features], frame['class'])")
    if isinstance(data, np.ndarray | Tensor):
        raise RequestError(f"an array of shape {tuple(data.shape)} has no labels: give (x, y)")
    if isinstance(data, torch_data.DataLoader):
        return _read_loader(data)
    if isinstance(data, Mapping):
        return _read_mapping(data)
    if hasattr(data, "features") and hasattr(data, "column_names"):
        return _read_hugging_face(data)
    if isinstance(data, torch_data.TensorDataset) and len(data.tensors) == 2:
        return read_source(*data.tensors)
    if isinstance(data, torch_data.IterableDataset):
        return _read_stream(data, "the IterableDataset", batched=False)
    if (metadata := metadata_of(data)) is not None:
        return _read_maite(data, metadata.classes)
    items = Items(data)
    names, notes = class_names_of(data)
    return Source(items, items.labels, classes=names, notes=notes, layout=items.layout)


def _read_maite(dataset: Any, names: tuple[str, ...]) -> Source:
    """The images and targets of a data set by MAITE's protocol of image classification."""
    items = Items(dataset, _image_and_target, np.empty(0))
    targets = [class_of(items.target(index), f"the target of item {index}", MULTI_LABEL) for index in range(len(items))]
    if len(lengths := {count for _, count, _ in targets}) > 1:
        raise RequestError(f"the targets have {min(lengths)} to {max(lengths)} scores: give one for each class")
    count = lengths.pop()
    if names and len(names) != count:
        raise RequestError(f"index2label names {len(names)} classes, and the targets have {count} scores: name every class")
    soft = sum(is_soft for _, _, is_soft in targets)
    notes = (f"{soft} of {len(targets)} targets are distributions over classes: the largest score counts",) if soft else ()
    return Source(items, np.array([label for label, _, _ in targets]), names or tuple(map(str, range(count))), (), notes, "first")


def _image_and_target(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[2], Mapping):
        raise RequestError("the data set has MAITE's metadata, and its items are not (image, target, metadata): give such items")
    return item[0], item[1]


def _read_mapping(mapping: Mapping[Any, Any]) -> Source:
    """Inputs and labels of a dict."""
    if mapping and all(hasattr(split, "column_names") for split in mapping.values()):
        splits = list(map(str, mapping))
        raise RequestError(f"this holds the splits {', '.join(splits)}: name one of them, data['{splits[0]}']")
    x, y = _columns_of(mapping, "the dict")
    return Source(as_array(x, "inputs"), _labels(y))


def _columns_of(mapping: Mapping[Any, Any], subject: str) -> tuple[Any, Any]:
    """The inputs and the labels in a dict, by the names of its keys."""
    names = [str(key) for key in mapping]
    return mapping[_column(names, INPUTS, subject, "inputs")], mapping[_column(names, LABELS, subject, "labels")]


def _column(names: Sequence[str], usual: Sequence[str], subject: str, role: str) -> str:
    """The only one of `names` that denotes inputs, or labels."""
    candidates = [name for name in names if name in usual]
    if len(candidates) != 1:
        ambiguous = f"{' and '.join(map(repr, candidates))} could be the {role} of {subject}"
        problem = ambiguous if candidates else f"{subject} names no {role}"
        raise RequestError(f"{problem}; it has {', '.join(names) or 'nothing'}: give (x, y) with the two that count")
    return candidates[0]


def _read_hugging_face(dataset: Any) -> Source:
    if not hasattr(dataset, "__len__"):
        raise RequestError("a streamed Hugging Face dataset has no length: load it without streaming=True, or a part of it")
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}

    def column(kind: str, usual: Sequence[str], role: str) -> str:
        """Name of the column of this role."""
        typed = [name for name in kinds if kinds[name] == kind]
        return typed[0] if len(typed) == 1 else _column(list(kinds), usual, "the Hugging Face dataset", role)

    x, y = column("Image", INPUTS, "inputs"), column("ClassLabel", LABELS, "labels")
    if kinds[x] == "Audio":
        raise RequestError(f"column {x!r} holds recordings: make an array of their samples, all of one length, and give (x, y)")
    items = Items(dataset, lambda row: (row[x], row[y]), np.asarray(dataset[y][:]))
    note = f"inputs are the column {x!r} of the Hugging Face dataset, labels {y!r}"
    classes = tuple(map(str, dataset.features[y].names or ())) if kinds[y] == "ClassLabel" else ()
    return Source(items, items.labels, classes=classes, notes=(note,), layout=items.layout)


def _read_loader(loader: Any) -> Source:
    """The samples of a DataLoader: those of its data set if it shows each of them unchanged, else those that it yields."""
    sampler = type(loader.sampler).__name__
    stream = isinstance(loader.dataset, torch_data.IterableDataset)
    if loader.collate_fn is torch_data.default_collate and sampler in ("SequentialSampler", "RandomSampler") and not stream:
        n = _length(loader.dataset)
        is_permutation = _length(loader.sampler) == n and not getattr(loader.sampler, "replacement", False)
        if is_permutation and not (loader.drop_last and loader.batch_size and n % loader.batch_size):
            source = _read_object(loader.dataset)
            note = f"the samples of the DataLoader's data set, in its own order and not in that of the {sampler}"
            return source if sampler == "SequentialSampler" else source._replace(notes=(*source.notes, note))
    if sampler != "SequentialSampler" and not stream:
        raise RequestError(
            f"the DataLoader draws its samples by a {sampler}, in another order each time: give one with shuffle=False, or its "
            "data set"
        )
    source, (names, notes) = _read_stream(loader, "the DataLoader", batched=True), class_names_of(loader.dataset)
    return source._replace(classes=names, notes=(*source.notes, *notes))


def _read_stream(stream: Iterable[Any], subject: str, *, batched: bool) -> Source:
    """All pairs or dicts that a stream yields, in memory."""
    inputs: list[Array] = []
    labels: list[Array] = []
    for item in _items_of(stream, subject):
        if len(inputs) == MOST_COUNT:
            raise RequestError(f"{subject} yields more than {MOST_COUNT:,} items: give a part of it")
        pair = _columns_of(item, "the dict") if isinstance(item, Mapping) else item
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise RequestError(f"{subject} yields {_parts_text(item)}, and no (inputs, labels): give a loader of (x, y)")
        x, y = as_array(pair[0], "inputs"), _labels(pair[1])
        inputs.append(x if batched else x[None])
        labels.append(np.atleast_1d(y))
    if not inputs:
        raise RequestError(f"{subject} is empty: there is nothing to audit")
    if len(shapes := {x.shape[1:] for x in inputs}) > 1:
        shapes_text = ", ".join(map(str, sorted(shapes)[:3]))
        raise RequestError(f"{subject} yields inputs of different shapes ({shapes_text}): bring them to one size")
    return Source(np.concatenate(inputs), np.concatenate(labels), notes=(f"{subject} was read once, into memory",))


def _items_of(stream: Iterable[Any], subject: str) -> Iterator[Any]:
    """The items of a stream, with whatever its code raises as an error of one line."""
    try:
        yield from stream
    except GeneratorExit:
        raise
    except BaseException as error:
        if not is_foreign(error):
            raise
        raise RequestError(f"{subject} cannot be read ({type(error).__name__}: {one_line(error)})") from None


class Items(Rows):
    """The inputs of a torch Dataset of (input, label) pairs, or of another object with a length and items.

    Args:
        items: has `__getitem__` and `__len__`.
        pair_of: converts an item to (input, label); by default pairs and dicts are recognised.
        labels: (n,) labels, if they are known without reading the items.
    """

    def __init__(self, items: Any, pair_of: Callable[[Any], tuple[Any, Any]] | None = None, labels: Array | None = None) -> None:
        if not hasattr(items, "__getitem__") or not hasattr(items, "__len__") or isinstance(items, str | bytes):
            raise RequestError(f"an object of type {type(items).__name__} is no data: give {FORMS}")
        count = _length(items)
        if not 0 < count <= MOST_COUNT:
            problem = (
                f"has {count:,} samples: at most {MOST_COUNT:,} are read" if count else "is empty: there is nothing to audit"
            )
            raise RequestError(f"the data set {problem}")
        self._items, self._pair_of = items, pair_of
        first = self._pair(0)[0]
        self.layout: Layout | None = None if isinstance(first, Tensor | np.ndarray) else "last"
        example = _input(first, 0)
        super().__init__(count, example.shape, example.dtype)
        self.labels = labels if labels is not None else self._read_labels()
        self._check_repeatable(labels is None)

    def _read_labels(self) -> Array:
        return np.array([_label(self._pair(index)[1], index) for index in range(len(self))])

    def _check_repeatable(self, labelled: bool) -> None:
        """Refuse items that are drawn anew each time they are read, as random augmentation does; `labelled` if with labels."""
        indices = range(0, len(self), max(1, len(self) // REPEATED))[:REPEATED]
        changed = 0
        for index in indices:
            (x, _), (x_again, y_again) = self._pair(index), self._pair(index)
            equal = np.array_equal(_input(x, index), _input(x_again, index), equal_nan=True)
            changed += not (equal and (not labelled or _label(y_again, index) == self.labels[index]))
        if changed:
            raise RequestError(
                f"the data set answers differently each time: {changed} of {len(indices)} items changed between two readings; "
                "take random transforms (crops, flips, noise) out of it, since an audit asks for each input several times"
            )

    def row(self, index: int) -> Array:
        """The input of one item."""
        x = _input(self._pair(index)[0], index)
        if x.shape != self.shape[1:]:
            raise RequestError(
                f"item {index} of the data set has shape {x.shape}, and item 0 {self.shape[1:]}: give it a transform that "
                "brings all to one size"
            )
        return x

    def target(self, index: int) -> Any:
        """The label or target of one item."""
        return self._pair(index)[1]

    def _pair(self, index: int) -> tuple[Any, Any]:
        """One item of a map-style data set as input and label."""
        subject = f"item {index} of the data set"
        try:
            item = self._items[index]
        except BaseException as error:
            if not is_foreign(error):
                raise
            raise RequestError(f"{subject} cannot be read ({type(error).__name__}: {one_line(error)})") from None
        if self._pair_of is not None:
            return self._pair_of(item)
        if isinstance(item, Mapping):
            return _columns_of(item, subject)
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise RequestError(
                f"{subject} is {_parts_text(item)}, and no (input, label) pair: give a data set or loader of (x, y)"
            )
        return item[0], item[1]


def _parts_text(item: Any) -> str:
    """Description of an item, such as its type and length."""
    name = type(item).__name__
    return f"a {name} of {len(item)} part{'s' * (len(item) != 1)}" if isinstance(item, tuple | list) else f"a {name}"


def _labels(y: Any) -> Array:
    """Labels as an array; refuses lists of different lengths, which hold the classes of each sample."""
    rows = [len(row) for row in y if isinstance(row, list | tuple | set)] if isinstance(y, list | tuple) else []
    if len(set(rows)) > 1 and len(rows) == len(y):
        raise RequestError(f"the labels name {min(rows)} to {max(rows)} classes for a sample: {MULTI_LABEL}")
    return as_array(y, "labels")


def _length(items: Any) -> int:
    try:
        return len(items)
    except Exception as error:
        raise RequestError(
            f"an object of type {type(items).__name__} has no length ({one_line(error, 100)}): give {FORMS}"
        ) from None


def _input(x: Any, index: int) -> Array:
    if hasattr(x, "getbands") and hasattr(x, "convert"):  # a picture of PIL
        if x.mode not in ("L", "RGB"):
            raise RequestError(f"item {index} of the data set is a picture in mode {x.mode}: convert it to RGB or L")
        return np.asarray(x)
    if isinstance(x, Tensor | np.ndarray | list):
        return as_array(x, "inputs")
    raise RequestError(f"item {index} of the data set is a {type(x).__name__}: give it a transform to a tensor")


def _label(label: Any, index: int) -> int:
    """The label of an item as an integer, of a one-hot row its class."""
    if isinstance(label, list | tuple | np.ndarray | Tensor) and np.size(row := as_array(label, "labels")) > 1:
        if np.count_nonzero(row == 1) != 1 or np.count_nonzero(row) != 1:
            raise RequestError(f"the label of item {index} is {short(label)}: {MULTI_LABEL}")
        return int(row.argmax())
    try:
        number = int(label)
    except Exception as error:
        raise RequestError(f"the label of item {index} is {short(label)} ({one_line(error, 80)}): give whole numbers") from None
    if number != label:
        raise RequestError(f"the label of item {index} is {label}: labels are whole numbers from 0 on")
    return number


def encode_labels(source: Source, classes: Sequence[str] | None) -> tuple[Array, tuple[str, ...] | None, tuple[str, ...]]:
    """The labels as numbers, the names of the classes if known, and notes on the decisions made."""
    if classes is not None and (isinstance(classes, str) or not isinstance(classes, Sequence)):
        raise RequestError(f"classes is {short(classes)}: give the names in a list, in the order of the model's answers")
    if unnamed := [name for name in classes or () if not isinstance(name, str | int | float | bytes | np.generic)]:
        raise RequestError(f"classes holds {short(unnamed[0])}: give each class a name")
    labels, names = np.asarray(source.labels), tuple(map(str, classes)) if classes is not None else source.classes or None
    if labels.dtype.kind not in "US":
        labels, signs = code_signs(labels)
        names = names or signs
        return labels.astype(np.int64) if labels.dtype.kind == "b" else labels, names, ()
    texts = tuple(map(str, np.unique(labels)))
    names_in_order = names or texts
    if missing := [text for text in texts if text not in names_in_order]:
        raise RequestError(
            f"there is a label {missing[0]!r}, and the classes are {', '.join(names_in_order[:8])}: name every class"
        )
    notes = () if names else (f"labels are texts, whose classes count in sorted order: {', '.join(names_in_order[:8])}",)
    return np.array([names_in_order.index(str(label)) for label in labels.ravel()]).reshape(labels.shape), names_in_order, notes
