"""Objects of a Python program as a data set: what `brinell.audit(model, (x, y))` and `brinell.data` accept.

An object takes one way through this file: `read_source` recognises it (arrays, a data frame, a dict, a data set of torch or
Hugging Face, a loader) as inputs and labels, `encode_labels` numbers the labels, and `_arrays` finds the channels and the domain,
which `ArrayDataset` then holds. Nothing is guessed where two readings would give different figures:
a dict with two columns of pictures, a loader that draws its samples, pictures of different sizes are refused in one line that
says what to write instead.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as torch_data

from brinell.core.contracts import DataInfo
from brinell.core.domain import Domain, Kind
from brinell.core.errors import BrinellError, RequestError, one_line
from brinell.datasets._arrays import (
    Array,
    Bounds,
    Layout,
    Rows,
    StoredArrays,
    arrange_axes,
    check_labels,
    class_names,
    fit_domain,
)

INPUTS = ("x", "inputs", "input", "images", "image", "img", "pixel_values", "input_values", "signals", "signal", "audio", "video")
LABELS = ("y", "labels", "label", "targets", "target", "class", "fine_label")
"""Names by which inputs and labels are known in dicts and tables, the surest first."""
FORMS = (
    "(x, y), a dict of arrays, a torch Dataset or DataLoader, a Hugging Face dataset, a spec such as npz:FILE, or brinell.data"
)


class ArrayDataset(StoredArrays):
    """Inputs as the model takes them; the arguments are those of `brinell.data`.

    Without bounds, bytes are divided by 255 and anything else must lie in [0, 1]. With bounds, values are taken as they are.
    Columns with bounds of their own are moved to [0, 1], so that a budget is a share of what a column can be, and the model is
    asked in their own units, as with `table:FILE`. A `domain` says kind, shape and bounds by itself. A torch Dataset is read item
    by item whenever inputs are needed, and once at the start for its labels.

    Raises:
        RequestError: values outside the bounds (by more than a millionth of their width), NaN, labels that do not fit, a shape
            that may be read in two ways.
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
    ) -> None:
        source = read_source(x, y)
        codes, names, notes = encode_labels(source, classes)
        if source.pictures and (domain, kind, layout) == (None, None, None):
            kind, layout = "image", "last"
        arrangement = arrange_axes(source.inputs.shape, domain, kind, layout)
        labels = check_labels(codes, len(source.inputs))
        inputs, domain, divisor, units = fit_domain(source.inputs, arrangement, domain, source.columns, bounds)
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

    def as_given(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs in the order of axes in which the arrays were given, as a function of one's own takes them."""
        axes = self._arrangement.axes
        if len(axes) == x.ndim - 1:  # grey pictures without an axis for their channels
            return x.squeeze(1)
        return x.permute(sorted(range(len(axes)), key=axes.__getitem__))


# What was given, as inputs and labels


class Source(NamedTuple):
    """Inputs and labels, and what the object that holds them says of them."""

    inputs: Any
    """(n, *stored) array, or rows that are read on demand."""
    labels: Any
    """(n,) numbers or texts."""
    classes: tuple[str, ...] = ()
    """Names of the classes, where the object has any."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a data frame."""
    notes: tuple[str, ...] = ()
    """What was decided where nobody said it."""
    pictures: bool = False
    """Whether the inputs are pictures of PIL, whose channels are last."""


def read_source(x: Any, y: Any = None) -> Source:
    """Recognise an object by its type, or `x` and `y` as inputs and labels; what may be read in several ways is refused."""
    if y is None and isinstance(x, tuple) and len(x) == 2:
        x, y = x
    elif y is None:
        return _read_whole(x)
    if _is_frame(x):
        return _read_frame(x, y)
    if isinstance(x, Mapping) or callable(getattr(x, "keys", None)):
        raise RequestError(f"the inputs are a {type(x).__name__}: name one array of it, (data['x'], data['y'])")
    return Source(array(x, "inputs"), array(y, "labels"))


def _is_frame(x: Any) -> bool:
    return hasattr(x, "dtypes") and hasattr(x, "columns") and hasattr(x, "to_numpy")


def _read_frame(frame: Any, y: Any) -> Source:
    kinds = {str(name): dtype.kind for name, dtype in frame.dtypes.items() if hasattr(dtype, "kind")}
    columns = tuple(map(str, frame.columns))
    if bad := [name for name in columns if kinds.get(name, "O") not in "iuf"]:
        raise RequestError(
            f"column {bad[0]!r} of the data frame holds no numbers: encode it, or save the frame and name it table:FILE.csv, "
            "which keeps categories as they are"
        )
    return Source(frame.to_numpy(dtype=np.float64), array(y, "labels"), columns=columns)


def _read_whole(data: Any) -> Source:
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
    items = Items(data)
    names = getattr(data, "classes", None)  # of data sets of torchvision
    listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return Source(items, items.labels, classes=tuple(names or ()) if listed else (), pictures=items.pictures)


def _read_mapping(mapping: Mapping[Any, Any]) -> Source:
    if mapping and all(hasattr(split, "column_names") for split in mapping.values()):
        splits = list(map(str, mapping))
        raise RequestError(f"this holds the splits {', '.join(splits)}: name one of them, data['{splits[0]}']")
    x, y = _columns_of(mapping, "the dict")
    return Source(array(x, "inputs"), array(y, "labels"))


def _columns_of(mapping: Mapping[Any, Any], where: str) -> tuple[Any, Any]:
    """The inputs and the labels in a dict, by the names of its keys."""
    names = [str(key) for key in mapping]
    return mapping[_column(names, INPUTS, where, "inputs")], mapping[_column(names, LABELS, where, "labels")]


def _column(names: Sequence[str], known: Sequence[str], where: str, what: str) -> str:
    """The only one of `names` that stands for inputs, or for labels."""
    candidates = [name for name in names if name in known]
    if len(candidates) != 1:
        several = f"{' and '.join(map(repr, candidates))} could be the {what} of {where}"
        problem = several if candidates else f"{where} names no {what}"
        raise RequestError(f"{problem}; it has {', '.join(names) or 'nothing'}: give (x, y) with the two that count")
    return candidates[0]


def _read_hugging_face(dataset: Any) -> Source:
    if not hasattr(dataset, "__len__"):
        raise RequestError("a streamed Hugging Face dataset has no length: load it without streaming=True, or a part of it")
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}

    def column(kind: str, known: Sequence[str], what: str) -> str:
        typed = [name for name in kinds if kinds[name] == kind]
        return typed[0] if len(typed) == 1 else _column(list(kinds), known, "the Hugging Face dataset", what)

    x, y = column("Image", INPUTS, "inputs"), column("ClassLabel", LABELS, "labels")
    if kinds[x] == "Audio":
        raise RequestError(f"column {x!r} holds recordings: make an array of their samples, all of one length, and give (x, y)")
    items = Items(dataset, lambda row: (row[x], row[y]), np.asarray(dataset[y][:]))
    note = f"inputs are the column {x!r} of the Hugging Face dataset, labels {y!r}"
    classes = tuple(map(str, dataset.features[y].names or ())) if kinds[y] == "ClassLabel" else ()
    return Source(items, items.labels, classes=classes, notes=(note,), pictures=items.pictures)


def _read_loader(loader: Any) -> Source:
    """The samples of a DataLoader: those of its data set where it shows all of them as they are, else what it yields."""
    sampler = type(loader.sampler).__name__
    stream = isinstance(loader.dataset, torch_data.IterableDataset)
    if loader.collate_fn is torch_data.default_collate and sampler in ("SequentialSampler", "RandomSampler") and not stream:
        n = len(loader.dataset)
        once = len(loader.sampler) == n and not getattr(loader.sampler, "replacement", False)
        if once and not (loader.drop_last and loader.batch_size and n % loader.batch_size):
            source = _read_whole(loader.dataset)
            note = f"the samples of the DataLoader's data set, in its own order and not in that of the {sampler}"
            return source if sampler == "SequentialSampler" else source._replace(notes=(*source.notes, note))
    if sampler != "SequentialSampler" and not stream:
        raise RequestError(
            f"the DataLoader draws its samples by a {sampler}, otherwise each time: give one with shuffle=False, or its data set"
        )
    return _read_stream(loader, "the DataLoader", batched=True)


def _read_stream(stream: Iterable[Any], what: str, *, batched: bool) -> Source:
    """Everything that a stream yields as pairs or dicts, in memory."""
    inputs, labels = [], []
    for item in stream:
        pair = _columns_of(item, "the dict") if isinstance(item, Mapping) else item
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise RequestError(f"{what} yields a {type(item).__name__}, and no (inputs, labels): give (x, y)")
        x, y = array(pair[0], "inputs"), array(pair[1], "labels")
        inputs.append(x if batched else x[None])
        labels.append(np.atleast_1d(y))
    if not inputs:
        raise RequestError(f"{what} is empty: there is nothing to audit")
    if len(shapes := {x.shape[1:] for x in inputs}) > 1:
        several = ", ".join(map(str, sorted(shapes)[:3]))
        raise RequestError(f"{what} yields inputs of different shapes ({several}): bring them to one size")
    return Source(np.concatenate(inputs), np.concatenate(labels), notes=(f"{what} was read once, into memory",))


class Items(Rows):
    """The inputs of a torch Dataset of (input, label) pairs, or of anything else with a length and items.

    Args:
        items: has `__getitem__` and `__len__`.
        pair_of: an item as (input, label); pairs and dicts are read by themselves.
        labels: (n,) where they can be had without reading the items.
    """

    def __init__(self, items: Any, pair_of: Callable[[Any], tuple[Any, Any]] | None = None, labels: Array | None = None) -> None:
        if not hasattr(items, "__getitem__") or not hasattr(items, "__len__") or isinstance(items, str | bytes):
            raise RequestError(f"an object of type {type(items).__name__} is no data: give {FORMS}")
        if len(items) == 0:
            raise RequestError("the data set is empty: there is nothing to audit")
        self._items, self._pair_of = items, pair_of
        first = self._pair(0)[0]
        self.pictures = not isinstance(first, Tensor | np.ndarray)
        example = _input(first, 0)
        super().__init__(len(items), example.shape, example.dtype)
        if labels is None:
            labels = np.array([_label(self._pair(index)[1], index) for index in range(len(items))])
        self.labels = labels

    def row(self, index: int) -> Array:
        """The input of one item."""
        x = _input(self._pair(index)[0], index)
        if x.shape != self.shape[1:]:
            raise RequestError(
                f"item {index} of the data set has shape {x.shape}, and item 0 {self.shape[1:]}: give it a transform that "
                "brings all to one size"
            )
        return x

    def _pair(self, index: int) -> tuple[Any, Any]:
        where = f"item {index} of the data set"
        try:
            item = self._items[index]
        except BrinellError:
            raise
        except Exception as error:
            raise RequestError(f"{where} cannot be read ({type(error).__name__}: {one_line(error)})") from None
        if self._pair_of is not None:
            return self._pair_of(item)
        if isinstance(item, Mapping):
            return _columns_of(item, where)
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise RequestError(f"{where} is no (input, label) pair")
        return item[0], item[1]


def _input(x: Any, index: int) -> Array:
    if hasattr(x, "getbands") and hasattr(x, "convert"):  # a picture of PIL
        if x.mode not in ("L", "RGB"):
            raise RequestError(f"item {index} of the data set is a picture in mode {x.mode}: convert it to RGB or L")
        return np.asarray(x)
    if isinstance(x, Tensor | np.ndarray | list):
        return array(x, "inputs")
    raise RequestError(f"item {index} of the data set is a {type(x).__name__}: give it a transform to a tensor")


def _label(label: Any, index: int) -> int:
    try:
        whole = int(label)
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"the label of item {index} is {str(label)[:40]!r} ({one_line(error, 80)}): give whole numbers"
        ) from None
    if whole != label:
        raise RequestError(f"the label of item {index} is {label}: labels are whole numbers from 0 on")
    return whole


def array(x: Any, what: str) -> Array:
    """Arrays of any library, tensors and lists of numbers as numpy arrays; `what` they are, for messages."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x.float() if x.dtype == torch.bfloat16 else x).numpy()
    try:
        values = np.asarray(x)
    except Exception as error:
        raise RequestError(f"the {what} are no array ({type(error).__name__}: {one_line(error, 120)}): give {FORMS}") from None
    if values.dtype == object and what == "inputs":
        raise RequestError(f"the inputs are a {type(x).__name__} of unequal or unknown things: give one array of numbers")
    if values.dtype == object and all(isinstance(value, str) for value in values.ravel().tolist()):
        values = values.astype(str)
    return values


def encode_labels(source: Source, classes: Sequence[str] | None) -> tuple[Array, tuple[str, ...] | None, tuple[str, ...]]:
    """The labels as numbers, the names of the classes where there are any, and what was decided."""
    labels, names = np.asarray(source.labels), tuple(map(str, classes)) if classes is not None else source.classes or None
    if labels.dtype.kind not in "US":
        return labels.astype(np.int64) if labels.dtype.kind == "b" else labels, names, ()
    texts = tuple(map(str, np.unique(labels)))
    known = names or texts
    if missing := [text for text in texts if text not in known]:
        raise RequestError(f"there is a label {missing[0]!r}, and the classes are {', '.join(known[:8])}: name every class")
    notes = () if names else (f"labels are texts, whose classes count in sorted order: {', '.join(known[:8])}",)
    return np.array([known.index(str(label)) for label in labels.ravel()]).reshape(labels.shape), known, notes
