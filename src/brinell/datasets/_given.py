"""Data as people hold it in Python (arrays, data frames, data sets of torch and Hugging Face, loaders) as inputs and labels.

Nothing is guessed where two readings would give different figures: a dict with two columns of pictures, a loader that draws its
samples, pictures of different sizes are refused in one line that says what to write instead.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as torch_data

from brinell.core.errors import BrinellError, RequestError, one_line
from brinell.datasets._arrays import Array, Rows

INPUTS = ("x", "inputs", "input", "images", "image", "img", "pixel_values", "input_values", "signals", "signal", "audio", "video")
LABELS = ("y", "labels", "label", "targets", "target", "class", "fine_label")
"""Names by which inputs and labels are known in dicts and tables, the surest first."""
FORMS = (
    "(x, y), a dict of arrays, a torch Dataset or DataLoader, a Hugging Face dataset, a spec such as npz:FILE, or brinell.data"
)


@dataclass(frozen=True, kw_only=True)
class Given:
    """Inputs and labels, as far as they can be read off what was given."""

    x: Any
    """(n, *stored) array, or rows that are read on demand."""
    y: Any
    """(n,) labels: numbers, or texts."""
    names: tuple[str, ...] = ()
    """Names of the classes, where the data name them."""
    columns: tuple[str, ...] = ()
    """Names of the columns of a data frame."""
    notes: tuple[str, ...] = ()
    """What was decided where nobody said it."""
    channels_last: bool = False
    """Whether the inputs are known to be pictures with their channels last."""


def read(x: Any, y: Any = None) -> Given:
    """What was given, as inputs and labels.

    Raises:
        RequestError: it is no data, or may be read in several ways.
    """
    if y is None:
        if isinstance(x, tuple) and len(x) == 2:
            x, y = x
        else:
            return _whole(x)
    if isinstance(x, Mapping) or callable(getattr(x, "keys", None)) and not _is_frame(x):
        raise RequestError(f"the inputs are a {type(x).__name__}: name one array of it, (data['x'], data['y'])")
    if not _is_frame(x):
        return Given(x=array(x, "inputs"), y=array(y, "labels"))
    kinds = {str(name): kind.kind for name, kind in x.dtypes.items() if hasattr(kind, "kind")}
    if bad := [str(name) for name in x.columns if kinds.get(str(name), "O") not in "iuf"]:
        raise RequestError(
            f"column {bad[0]!r} of the data frame holds no numbers: encode it, or save the frame and name it table:FILE.csv, "
            "which keeps categories as they are"
        )
    return Given(x=x.to_numpy(dtype=np.float64), y=array(y, "labels"), columns=tuple(map(str, x.columns)))


def _whole(given: Any) -> Given:
    """Data that hold inputs and labels together."""
    if _is_frame(given):
        raise RequestError("a data frame alone does not say which column is the class: give (frame[features], frame['class'])")
    if isinstance(given, np.ndarray | Tensor):
        raise RequestError(f"an array of shape {tuple(given.shape)} has no labels: give (x, y)")
    if isinstance(given, torch_data.DataLoader):
        return _loader(given)
    if hasattr(given, "features") and hasattr(given, "column_names") and not isinstance(given, Mapping):
        return _hugging_face(given)
    if isinstance(given, Mapping):
        return _mapping(given)
    if isinstance(given, torch_data.TensorDataset) and len(given.tensors) == 2:
        return Given(x=array(given.tensors[0], "inputs"), y=array(given.tensors[1], "labels"))
    if isinstance(given, torch_data.IterableDataset):
        return _gathered(given, "the IterableDataset", batched=False)
    pairs = Pairs(given)
    return Given(x=pairs, y=pairs.labels, names=_classes_of(given), channels_last=pairs.pictures)


def _is_frame(x: Any) -> bool:
    return hasattr(x, "dtypes") and hasattr(x, "columns") and hasattr(x, "to_numpy")


def _mapping(given: Mapping[Any, Any]) -> Given:
    if given and all(hasattr(one, "column_names") for one in given.values()):
        raise RequestError(f"this holds the splits {', '.join(map(str, given))}: name one of them, data['{next(iter(given))}']")
    keys = [str(key) for key in given]
    x = given[_column(keys, INPUTS, "the dict", "inputs")]
    return Given(x=array(x, "inputs"), y=array(given[_column(keys, LABELS, "the dict", "labels")], "labels"))


def _column(names: Sequence[str], known: Sequence[str], where: str, what: str) -> str:
    """The only one of `names` that stands for inputs, or for labels."""
    found = [name for name in names if name in known]
    if len(found) != 1:
        many = f"{' and '.join(map(repr, found))} could be the {what} of {where}" if found else f"{where} names no {what}"
        raise RequestError(f"{many}; it has {', '.join(map(str, names)) or 'nothing'}: give (x, y) with the two that count")
    return found[0]


def _hugging_face(given: Any) -> Given:
    if not hasattr(given, "__len__"):
        raise RequestError("a streamed Hugging Face dataset has no length: load it without streaming=True, or a part of it")
    kinds = {name: type(feature).__name__ for name, feature in given.features.items()}
    names = list(kinds)
    pictures = [name for name in names if kinds[name] == "Image"]
    x = pictures[0] if len(pictures) == 1 else _column(names, INPUTS, "the Hugging Face dataset", "inputs")
    labels = [name for name in names if kinds[name] == "ClassLabel"]
    y = labels[0] if len(labels) == 1 else _column(names, LABELS, "the Hugging Face dataset", "labels")
    if kinds[x] == "Audio":
        raise RequestError(f"column {x!r} holds recordings: make an array of their samples, all of one length, and give (x, y)")
    if kinds[y] == "ClassLabel" and given.features[y].names:
        classes = tuple(map(str, given.features[y].names))
    else:
        classes = ()
    pairs = Pairs(given, lambda row: (row[x], row[y]), np.asarray(given[y][:]))
    note = f"inputs are the column {x!r} of the Hugging Face dataset, labels {y!r}"
    return Given(x=pairs, y=pairs.labels, names=classes, notes=(note,), channels_last=pairs.pictures)


def _loader(loader: Any) -> Given:
    """The samples of a DataLoader: those of its data set where it shows all of them as they are, else what it yields."""
    sampler = type(getattr(loader, "sampler", None)).__name__
    plain = loader.collate_fn is torch_data.default_collate and not isinstance(loader.dataset, torch_data.IterableDataset)
    if plain and sampler in ("SequentialSampler", "RandomSampler") and _whole_epoch(loader):
        held = _whole(loader.dataset)
        note = f"the samples of the DataLoader's data set, in its own order and not in that of the {sampler}"
        return held if sampler == "SequentialSampler" else _noted(held, note)
    if sampler != "SequentialSampler" and not isinstance(loader.dataset, torch_data.IterableDataset):
        raise RequestError(
            f"the DataLoader draws its samples by a {sampler}, otherwise each time: give one with shuffle=False, or its data set"
        )
    return _gathered(loader, "the DataLoader", batched=True)


def _whole_epoch(loader: Any) -> bool:
    sampler, n = loader.sampler, len(loader.dataset)
    once = not getattr(sampler, "replacement", False) and len(sampler) == n
    return once and not (loader.drop_last and loader.batch_size and n % loader.batch_size)


def _noted(given: Given, note: str) -> Given:
    return Given(**{**vars(given), "notes": (*given.notes, note)})


def _gathered(source: Iterable[Any], what: str, *, batched: bool) -> Given:
    """Everything that is yielded, kept in memory."""
    parts, labels = [], []
    for item in source:
        found = item
        if isinstance(item, Mapping):
            given = _mapping(item)
            found = given.x, given.y
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise RequestError(f"{what} yields a {type(item).__name__}, and no (inputs, labels): give (x, y)")
        x, y = array(found[0], "inputs"), array(found[1], "labels")
        parts.append(x if batched else x[None])
        labels.append(np.atleast_1d(y))
    if not parts:
        raise RequestError(f"{what} is empty: there is nothing to audit")
    if len(shapes := {part.shape[1:] for part in parts}) > 1:
        raise RequestError(f"{what} yields inputs of different shapes ({_some(shapes)}): bring them to one size")
    return Given(x=np.concatenate(parts), y=np.concatenate(labels), notes=(f"{what} was read once, into memory",))


def _some(shapes: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(shapes)[:3]))


def _classes_of(given: Any) -> tuple[str, ...]:
    """The names of the classes that data sets of torchvision have."""
    names = getattr(given, "classes", None)
    listed = isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names)
    return tuple(names) if listed else ()  # type: ignore[arg-type]


class Pairs(Rows):
    """The inputs of a torch Dataset of (input, label) pairs, or of anything else with a length and items.

    Args:
        pairs: has `__getitem__` and `__len__`.
        pair_of: an item as (input, label); pairs and dicts are read by themselves.
        labels: (n,) where they can be had without reading the items.
    """

    def __init__(self, pairs: Any, pair_of: Callable[[Any], tuple[Any, Any]] | None = None, labels: Array | None = None) -> None:
        if not hasattr(pairs, "__getitem__") or not hasattr(pairs, "__len__") or isinstance(pairs, str | bytes):
            raise RequestError(f"an object of type {type(pairs).__name__} is no data: give {FORMS}")
        if len(pairs) == 0:
            raise RequestError("the data set is empty: there is nothing to audit")
        self._pairs, self._pair_of = pairs, pair_of
        first = self._pair(0)[0]
        self.pictures = not isinstance(first, Tensor | np.ndarray)
        shown = self._input(first, 0)
        super().__init__(len(pairs), shown.shape, shown.dtype)
        self.labels = np.array([_label(self._pair(at)[1], at) for at in range(len(pairs))]) if labels is None else labels

    def row(self, index: int) -> Array:
        """The input of one pair."""
        found = self._input(self._pair(index)[0], index)
        if found.shape != self.shape[1:]:
            raise RequestError(
                f"item {index} of the data set has shape {found.shape}, and item 0 {self.shape[1:]}: give it a transform that "
                "brings all to one size"
            )
        return found

    def _pair(self, index: int) -> tuple[Any, Any]:
        try:
            item = self._pairs[index]
        except BrinellError:
            raise
        except Exception as error:
            raise RequestError(
                f"item {index} of the data set cannot be read ({type(error).__name__}: {one_line(error)})"
            ) from None
        if self._pair_of is not None:
            return self._pair_of(item)
        if isinstance(item, Mapping):
            keys = [str(key) for key in item]
            where = f"item {index} of the data set"
            return item[_column(keys, INPUTS, where, "inputs")], item[_column(keys, LABELS, where, "labels")]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise RequestError(f"item {index} of the data set is no (input, label) pair")
        return item[0], item[1]

    def _input(self, found: Any, index: int) -> Array:
        if isinstance(found, Tensor | np.ndarray):
            return array(found, "inputs")
        if hasattr(found, "getbands") and hasattr(found, "convert"):  # a picture of PIL
            if found.mode not in ("L", "RGB"):
                raise RequestError(f"item {index} of the data set is a picture in mode {found.mode}: convert it to RGB or L")
            return np.asarray(found)
        if isinstance(found, list):
            return array(found, "inputs")
        raise RequestError(f"item {index} of the data set is a {type(found).__name__}: give it a transform to a tensor")


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
        found = np.asarray(x)
    except Exception as error:
        raise RequestError(f"the {what} are no array ({type(error).__name__}: {one_line(error, 120)}): give {FORMS}") from None
    if found.dtype == object and what == "inputs":
        raise RequestError(f"the inputs are a {type(x).__name__} of unequal or unknown things: give one array of numbers")
    if found.dtype == object and all(isinstance(one, str) for one in found.ravel().tolist()):
        found = found.astype(str)
    return found
