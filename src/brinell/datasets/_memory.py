"""Objects of a Python program as a data set: what `brinell.audit(model, (x, y))` and `brinell.data`
accept.

`_read` recognises an object (arrays, a data frame, a dict, a data set of torch, of MAITE or of
Hugging Face, a loader) as inputs and labels; `from_arrays` numbers the labels, finds the channels
and the domain, and returns an `ArrayDataset`. Input that can be read in two ways with different
figures is refused: a dict with two columns of pictures, a loader that draws its samples, pictures
of different sizes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from torch import Tensor
from torch.utils import data as torch_data

from brinell.core.boxes import Objects
from brinell.core.data import DataInfo, Truth
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, is_foreign, one_line, short
from brinell.core.maite import metadata_of, scores_of
from brinell.core.settings import MOST_COUNT
from brinell.core.values import FORMS, as_array
from brinell.datasets._arrays import (
    AXES,
    TOLERANCE,
    Arrangement,
    Array,
    Layout,
    LazyRows,
    StoredArrays,
    arrange,
    blocks,
    domain_of,
    kind_of,
    reading_note,
)
from brinell.datasets._boxes import check_objects, make_objects, object_truth
from brinell.datasets._columns import fill, vectors_of
from brinell.datasets._labels import MULTI_LABEL, check_labels, class_names, encode_labels
from brinell.datasets._masks import check_masks, mask_truth

Missing = Literal["refuse", "skip", "keep"]
Bounds = Literal["columns"] | tuple[Any, Any]

INPUTS = (
    "x",
    "inputs",
    "input",
    "images",
    "image",
    "img",
    "pixel_values",
    "input_values",
    "signals",
    "signal",
    "audio",
    "video",
)
LABELS = ("y", "labels", "label", "targets", "target", "class", "fine_label")
"""Names of inputs and labels in dicts and tables, the most reliable first."""
REPEATED = 16
"""Number of items that are read twice, by which a data set with random transforms is recognised."""


class ArrayDataset(StoredArrays):
    """Inputs that were given in Python.

    A torch Dataset is read item by item whenever inputs are needed.
    """

    def user_layout(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs in the order of axes of the user's arrays, for the user's function."""
        axes = self._arrangement.axes
        # Grey pictures without an axis for their channels.
        if len(axes) == x.ndim - 1:
            return x.squeeze(1)
        return x.permute(sorted(range(len(axes)), key=axes.__getitem__))

    @property
    def byte_scale(self) -> float | None:
        """Bytes per unit of the domain, if the inputs are stored as bytes; None for other types."""
        return (self._divisor or 1.0) if self._x.dtype == np.uint8 else None


def from_arrays(
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
    masks: Any = None,
    boxes: Any = None,
    missing: Missing = "refuse",
) -> ArrayDataset:
    """A data set of objects in memory; the arguments are those of `brinell.data`.

    Without bounds, bytes are divided by 255 and anything else must lie in [0, 1]. With bounds,
    values are taken unchanged. Columns with separate bounds are scaled to [0, 1], so a budget is a
    share of a column's range; the model gets the columns in their original units, as with
    `table:FILE`. A `domain` states kind, shape and bounds by itself.
    """
    if masks is not None or boxes is not None:
        x = as_array(x, "inputs")
        # The truth lies in the pictures: none has a class as a whole.
        y = np.zeros(len(x), dtype=np.int64)
    _check_options(classes, missing, divide)
    objects = None if boxes is None else _objects_of(boxes, len(x))
    masks = None if masks is None else _masks_of(masks, len(x))
    classes = _classes_of_truth(classes, masks, objects)

    source = _read(x, y)
    if missing == "skip":
        source = _complete(source)
    codes, names, label_notes = encode_labels(source.labels, classes, source.classes)
    # An object that says where the channels of its pictures are decides if the user says nothing.
    if source.layout and domain is None and kind is None and layout is None:
        kind, layout = "image", source.layout
    arrangement = _arrange(source.inputs, domain, kind, layout)
    labels = check_labels(codes, len(source.inputs))

    inputs, arrangement, domain, divisor, notes = _scale(
        source,
        arrangement,
        domain,
        bounds,
        divide,
        missing,
        is_open=kind is None and layout is None,
    )
    truth, parts = _truth_of(masks, objects, domain, len(names or ()))
    return ArrayDataset(
        name=name,
        x=inputs,
        y=labels,
        arrangement=arrangement,
        domain=domain,
        classes=class_names(names, labels),
        divisor=divisor,
        info=DataInfo(notes=notes + label_notes, truth=truth),
        truth=parts,
    )


def _check_options(classes: Any, missing: Any, divide: Any) -> None:
    """Refuse values of options that no data could have."""
    if classes is not None and (isinstance(classes, str) or not isinstance(classes, Sequence)):
        raise RequestError(
            f"classes is {short(classes)}: give the names in a list, in the order "
            "of the model's answers"
        )
    if missing not in get_args(Missing):
        raise RequestError(f"missing is {short(missing)}: it is {', '.join(get_args(Missing))}")
    if divide is not None and not (_is_number(divide) and divide > 0):
        raise RequestError(f"divide is {short(divide)}: give a number above 0, such as 255")


def _classes_of_truth(
    classes: Sequence[str] | None, masks: Array | None, objects: Sequence[Objects] | None
) -> Sequence[str] | None:
    """Names of the classes, where none are given the numbers up to the largest in the truth."""
    if objects is not None and classes is None:
        largest = max((int(entry.labels.max()) for entry in objects if len(entry)), default=0)
        classes = [str(label) for label in range(largest + 1)]
    return classes if masks is None else check_masks(list(masks), classes, "masks")


def _masks_of(masks: Any, count: int) -> Array:
    """(n, height, width): the masks of so many pictures."""
    array = as_array(masks, "masks")
    if array.ndim != 3 or len(array) != count:
        raise RequestError(
            f"masks have shape {array.shape} for {count} pictures: give one "
            "(height, width) for each picture"
        )
    return array


def _truth_of(
    masks: Array | None, objects: Sequence[Objects] | None, domain: Domain, classes: int
) -> tuple[Truth | None, list[Array]]:
    """The truth of a data set, None without one, and the arrays that its digest covers."""
    if objects is not None:
        return _truth_of_objects(objects, domain, classes)
    if masks is None:
        return None, []

    if domain.kind != "image" or domain.shape[1:] != masks.shape[1:]:
        raise RequestError(
            f"masks have {masks.shape[2]} x {masks.shape[1]} pixels, and "
            f"inputs are {domain.kind}s of shape {domain.shape}: "
            "give each picture a mask of its own size"
        )
    stored = masks.astype(np.uint8)
    return mask_truth(stored), [stored]


def _truth_of_objects(
    objects: Sequence[Objects], domain: Domain, classes: int
) -> tuple[Truth, list[Array]]:
    """The truth of a data set, and the arrays that its digest covers."""
    if domain.kind != "image":
        raise RequestError(
            f"inputs are {domain.kind}s of shape {domain.shape}, and boxes are of pictures"
        )

    size = (domain.shape[1], domain.shape[2])
    # Boxes are checked against the pictures as they are audited.
    checked = [
        check_objects(entry, size, classes, f"picture {number}")
        for number, entry in enumerate(objects)
    ]
    parts = [array for entry in checked for array in (entry.boxes, entry.labels, entry.crowd)]
    return object_truth(checked, "boxes"), parts


def _scale(
    source: "_Source",
    arrangement: Arrangement,
    domain: Domain | None,
    bounds: Any,
    divide: float | None,
    missing: Missing,
    *,
    is_open: bool,
) -> tuple[Any, Arrangement, Domain, float, tuple[str, ...]]:
    """The inputs in their domain: the one given, one of columns, or one of plain values.

    Returns:
        Inputs, their arrangement, their domain, the number by which they are divided, and notes on
            them; one of them says what the axes alone decided, if the reading `is_open`.
    """
    inputs = source.inputs
    # Two numbers for a vector may be one range for all columns, or the bounds of two columns.
    pair = _pair_of(bounds)
    has_bounds_by_column = arrangement.kind == "vector" and bounds is not None and pair is None
    by_column = source.columns is not None or has_bounds_by_column
    if divide is not None and (domain is not None or by_column):
        raise RequestError(
            "divide is for inputs of one scale without a domain: divide the inputs, or leave it out"
        )

    # A domain says all of it: nothing is scaled.
    if domain is not None:
        _check_bounds(inputs, domain)
        return inputs, arrangement, domain, 1.0, source.notes
    if by_column:
        inputs, domain, notes = _scale_columns(source, bounds, missing)
        return inputs, Arrangement.identity(domain), domain, 1.0, source.notes + notes
    if bounds is not None and pair is None:
        raise RequestError(
            f"bounds of {arrangement.kind}s are two numbers, (low, high), and not "
            f"{str(bounds)[:60]}"
        )
    low, high = pair or (None, None)
    domain, divisor = domain_of(inputs, arrangement, low=low, high=high, divide=divide)
    notes = reading_note(inputs, arrangement) if is_open else ()
    return inputs, arrangement, domain, divisor, source.notes + notes


def _scale_columns(
    source: "_Source", bounds: Any, missing: Missing
) -> tuple[Array, Domain, tuple[str, ...]]:
    """Columns with separate bounds as vectors in [0, 1], their domain, and notes."""
    columns = source.columns
    # Columns of an array have no names: they are known by their numbers.
    if columns is None:
        values = np.asarray(source.inputs[:], dtype=np.float64)
        columns = {str(number): column for number, column in enumerate(values.T)}

    empty = {name: _is_empty(column) for name, column in columns.items()}
    for name, holes in empty.items():
        if missing == "refuse" and holes.any():
            raise RequestError(
                f"column {name!r} has no value in {int(holes.sum())} of "
                f"{len(holes)} rows: fill it, or write "
                "brinell.data(x, y, missing='keep'), which gives the model "
                "NaN, or missing='skip', which leaves rows out"
            )
        # A number stands where one is missing; the model is told by NaN.
        columns[name] = fill(columns[name], holes, f"column {name}")

    bounds_of = _bounds_of_columns(list(columns), _plain(bounds))
    vectors, domain, notes = vectors_of(
        columns, bounds_of, fixed=(), subject="the array of inputs", missing=empty
    )
    note = (
        "budgets are shares of each column's range, and the model is asked in the columns' own "
        "units"
    )
    return vectors, domain, (note, *notes)


def _objects_of(boxes: Any, count: int) -> list[Objects]:
    """The objects of each picture, from a dict or a pair of boxes and labels each."""
    if not isinstance(boxes, list | tuple) or len(boxes) != count:
        amount = len(boxes) if hasattr(boxes, "__len__") else f"a {type(boxes).__name__}"
        raise RequestError(
            f"boxes hold {amount} for {count} pictures: give a list with boxes "
            "and labels for each picture"
        )

    objects = []
    for number, entry in enumerate(boxes):
        if isinstance(entry, Mapping) and {"boxes", "labels"} <= entry.keys():
            parts = entry["boxes"], entry["labels"], entry.get("crowd")
        elif isinstance(entry, tuple | list) and len(entry) == 2:
            parts = entry[0], entry[1], None
        else:
            raise RequestError(
                f"the objects of picture {number} are {short(entry)}: give a dict "
                "with boxes and labels"
            )
        objects.append(make_objects(*parts, f"picture {number}"))
    return objects


def _arrange(
    x: "Array | LazyRows", domain: Domain | None, kind: Kind | None, layout: Layout | None
) -> Arrangement:
    """The arrangement of the inputs, as the user states it or else as their shape shows."""
    if len(x.shape) < 2 or 0 in x.shape:
        reason = (
            "is empty: give at least one sample"
            if 0 in x.shape
            else "needs the samples first and then each input"
        )
        raise RequestError(f"the array of inputs has shape {x.shape}; it {reason}")
    if domain is not None:
        # A domain states the order of the axes, so that nothing is arranged.
        if x.shape[1:] != domain.shape:
            raise RequestError(
                f"inputs of shape {x.shape[1:]} do not live in a domain of shape {domain.shape}"
            )
        return Arrangement.identity(domain)

    if kind not in (None, *AXES):
        raise RequestError(f"kind is {short(kind)}; it is one of {', '.join(AXES)}")
    if layout not in (None, "first", "last"):
        raise RequestError(f"layout is {short(layout)}; it is first or last")
    if kind is None and kind_of(x.shape, x.dtype) is None:
        raise RequestError(
            f"the array of inputs has shape {x.shape}; give a Domain that says what an input is"
        )
    return arrange(x.shape, kind=kind, layout=layout, dtype=x.dtype)


def _is_number(value: Any) -> bool:
    """True for a real number, not a bool, that float holds."""
    with suppress(OverflowError, TypeError):
        return (
            isinstance(value, int | float | np.number)
            and not isinstance(value, bool)
            and math.isfinite(value)
        )
    return False


def _is_pair(bounds: Any) -> bool:
    """True for two numbers, which may be arrays without axes."""
    return (
        isinstance(bounds, tuple | list)
        and len(bounds) == 2
        and all(_is_number(end) or (hasattr(end, "ndim") and end.ndim == 0) for end in bounds)
    )


def _plain(bounds: Any) -> Any:
    """Bounds in lists rather than arrays."""
    return bounds.tolist() if isinstance(bounds, np.ndarray | Tensor) else bounds


def _pair_of(bounds: Any) -> tuple[float, float] | None:
    """The two numbers that bounds are; None for anything else."""
    plain = _plain(bounds)
    return (float(plain[0]), float(plain[1])) if _is_pair(plain) else None


def _check_bounds(x: "Array | LazyRows", domain: Domain) -> None:
    """Refuse inputs that do not lie in the domain."""
    import torch

    low, high = domain.bounds()
    slack = TOLERANCE * float((high - low).max())
    for rows in blocks(x):
        values = torch.from_numpy(rows.astype(np.float32))
        # The comparison is turned so that NaN is refused too.
        if not domain.excess(values) <= slack:
            minimum, maximum = (float(value) for value in values.aminmax())
            raise RequestError(
                f"inputs reach from {minimum:g} to {maximum:g}, outside the "
                f"bounds {domain.low} to {domain.high} (or hold NaN): "
                "scale them, or give a domain that holds them"
            )


def _bounds_of_columns(names: list[str], bounds: Any) -> dict[str, tuple[float, float]]:
    """The bounds of columns, where some are given."""
    if bounds is None or (isinstance(bounds, str) and bounds == "columns"):
        return {}

    try:
        # Arrays of one value for each column, or one value for all.
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), len(names)).tolist()
            for end in bounds
        )
    except (TypeError, ValueError):
        raise RequestError(
            "bounds are (low, high), each a number or one for each of "
            f"{len(names)} columns, or 'columns'"
        ) from None
    return dict(zip(names, zip(low, high, strict=True), strict=True))


# What was given, as inputs and labels


class _Source(NamedTuple):
    """Inputs and labels, with the facts that the object states about them."""

    inputs: Any
    """(n, *stored) array, or rows that are read on demand."""
    labels: Any
    """(n,) numbers or texts."""
    classes: tuple[str, ...] = ()
    """Names of the classes, where the object has any."""
    columns: dict[str, Array] | None = None
    """The columns of a data frame."""
    notes: tuple[str, ...] = ()
    """Decisions that were made because the user left them open."""
    layout: Layout | None = None
    """The place of the channels of images, if the object says so: last in pictures of PIL, first
    by MAITE's protocol."""


def _read(x: Any, y: Any = None) -> _Source:
    """Recognise an object by its type, or `x` and `y` as inputs and labels.

    Objects with several readings are refused.
    """
    if y is None and isinstance(x, tuple) and len(x) == 2:
        x, y = x
    elif y is None:
        return _read_object(x)
    if hasattr(x, "dtypes") and hasattr(x, "to_numpy"):  # a data frame
        # The columns hold the values; the array stands for their number and shape.
        # Only their number counts here.
        return _Source(np.empty(x.shape, np.float32), _labels(y), columns=_columns_of_frame(x))
    if isinstance(x, Mapping) or callable(getattr(x, "keys", None)):
        raise RequestError(
            f"the inputs are a {type(x).__name__}: name one array of it, (data['x'], data['y'])"
        )
    return _Source(as_array(x, "inputs"), _labels(y))


def _columns_of_frame(frame: Any) -> dict[str, Array]:
    """The columns of a data frame: numbers, truth values, or texts of anything else.

    NaN or None stands where there is no value.
    """
    columns = {}
    for place, name in enumerate(map(str, frame.columns)):
        column = frame.iloc[:, place]
        kind, holes = getattr(column.dtype, "kind", "O"), column.isna().to_numpy()
        # Truth values with holes between them are no array of truth values.
        if kind in "iuf" or (kind == "b" and not holes.any()):
            columns[name] = column.to_numpy(
                dtype=bool if kind == "b" else np.float64,
                **{"na_value": np.nan} if holes.any() else {},
            )
            continue

        values = column.to_numpy(dtype=object)
        is_bool = kind == "b" or (
            kind == "O" and all(isinstance(value, bool | np.bool_) for value in values[~holes])
        )

        columns[name] = np.array(
            [
                None if hole else bool(v) if is_bool else str(v)
                for v, hole in zip(values, holes, strict=True)
            ]
        )
    return columns


def _is_empty(column: Array) -> Array:
    """(n,) bool: rows of a column without a value."""
    return (
        np.isnan(column)
        if column.dtype.kind == "f"
        else np.array([value is None for value in column.tolist()], dtype=bool)
    )


def _complete(source: "_Source") -> "_Source":
    """The rows of columns, or of a numeric table, that miss no value."""
    columns = (
        np.asarray(source.inputs).reshape(len(source.inputs), -1).T
        if source.columns is None
        else source.columns.values()
    )

    # A row is left out as a whole: labels and all columns stay together.
    holes = np.any([_is_empty(column) for column in columns], axis=0)
    if holes.all():
        raise RequestError("every row misses a value: there is nothing to audit")

    remaining_columns = (
        {name: column[~holes] for name, column in source.columns.items()}
        if source.columns is not None
        else None
    )
    note = (f"{int(holes.sum())} of {len(holes)} rows miss values: skipped",) if holes.any() else ()
    return source._replace(
        inputs=source.inputs[~holes],
        labels=source.labels[~holes],
        columns=remaining_columns,
        notes=source.notes + note,
    )


def _read_object(data: Any) -> _Source:
    """An object that holds inputs and labels together."""
    if hasattr(data, "dtypes") and hasattr(data, "to_numpy"):
        raise RequestError(
            "a data frame alone does not say which column is the class: give "
            "(frame[features], frame['class'])"
        )

    if isinstance(data, np.ndarray | Tensor):
        raise RequestError(f"an array of shape {tuple(data.shape)} has no labels: give (x, y)")
    if isinstance(data, torch_data.DataLoader):
        return _read_loader(data)
    if isinstance(data, Mapping):
        if data and all(hasattr(split, "column_names") for split in data.values()):
            splits = list(map(str, data))
            raise RequestError(
                f"this holds the splits {', '.join(splits)}: name one of them, data['{splits[0]}']"
            )
        return _read(*_columns_of(data, "the dict"))

    # By their form: neither pandas nor the library of Hugging Face need be installed.
    if hasattr(data, "features") and hasattr(data, "column_names"):
        return _read_hugging_face(data)
    if isinstance(data, torch_data.TensorDataset) and len(data.tensors) == 2:
        return _read(*data.tensors)
    if isinstance(data, torch_data.IterableDataset):
        raise RequestError(
            "an IterableDataset has no length and no places: give its arrays as (x, y)"
        )

    if (metadata := metadata_of(data)) is not None:
        return _read_maite(data, metadata.classes)
    # Anything with a length and items, as a map-style data set of torch has them.
    items = Items(data)
    return _Source(items, items.labels, classes=_names_in(data), layout=items.layout)


def _names_in(data: Any) -> tuple[str, ...]:
    """Names of the classes of a torch data set; empty if it states none.

    Those of a subset or a loader are the names of its data set.
    """
    while isinstance(data, torch_data.Subset | torch_data.DataLoader):
        data = data.dataset
    # An attribute of a foreign object may be code that fails.
    with suppress(Exception):
        if isinstance(data, torch_data.ConcatDataset):
            joined = {_names_in(part) for part in data.datasets}
            return joined.pop() if len(joined) == 1 else ()

        names = getattr(data, "classes", None)
        if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
            return tuple(names)
        numbers = dict(getattr(data, "class_to_idx", {}))
        if sorted(numbers.values()) == list(range(len(numbers))):
            return tuple(sorted(numbers, key=numbers.__getitem__))
    return ()


def _read_maite(dataset: Any, names: tuple[str, ...]) -> _Source:
    """A data set by MAITE's protocol, whose classes have these names, or none."""

    def pair_of(item: Any) -> tuple[Any, Any]:
        if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[2], Mapping):
            raise RequestError(
                "the data set has MAITE's metadata, and its items are not "
                "(image, target, metadata): give such items"
            )
        return item[0], item[1]

    # Without labels: they are read below, since a target holds scores.
    items = Items(dataset, pair_of, np.empty(0))
    # Every target is read here: soft ones are noticed, and errors come before the audit.
    targets = [
        _class_of(items.pair(index)[1], f"the target of item {index}")
        for index in range(len(items))
    ]
    if len(lengths := {count for _, count, _ in targets}) > 1:
        raise RequestError(
            f"the targets have {min(lengths)} to {max(lengths)} scores: give one for each class"
        )
    count = lengths.pop()
    if names and len(names) != count:
        raise RequestError(
            f"index2label names {len(names)} classes, and the targets have "
            f"{count} scores: name every class"
        )

    soft = sum(is_soft for _, _, is_soft in targets)
    notes = (
        (
            f"{soft} of {len(targets)} targets are distributions over classes: "
            "the largest score counts",
        )
        if soft
        else ()
    )
    return _Source(
        items,
        np.array([label for label, _, _ in targets]),
        classes=names or tuple(map(str, range(count))),
        notes=notes,
        layout="first",
    )


def _class_of(target: Any, subject: str) -> tuple[int, int, bool]:
    """The class of a target, the number of classes, and whether the target is a distribution.

    The class is that of the largest score; a distribution has scores for several.
    """
    scores = scores_of(target, subject)
    largest = np.flatnonzero(scores == scores.max())
    if len(largest) > 1 or scores[largest[0]] <= 0:
        raise RequestError(
            f"{subject} is {short(scores.tolist())}, which names no single class: {MULTI_LABEL}"
        )
    return int(largest[0]), len(scores), int(np.count_nonzero(scores)) > 1


def _columns_of(mapping: Mapping[Any, Any], subject: str) -> tuple[Any, Any]:
    """The inputs and the labels of a dict, by the usual names of them."""
    names = [str(key) for key in mapping]
    return mapping[_column(names, INPUTS, subject, "inputs")], mapping[
        _column(names, LABELS, subject, "labels")
    ]


def _column(names: Sequence[str], usual: Sequence[str], subject: str, role: str) -> str:
    """The only name among the usual ones; refuses none, and several."""
    candidates = [name for name in names if name in usual]
    if len(candidates) != 1:
        ambiguous = f"{' and '.join(map(repr, candidates))} could be the {role} of {subject}"
        problem = ambiguous if candidates else f"{subject} names no {role}"
        raise RequestError(
            f"{problem}; it has {', '.join(names) or 'nothing'}: give (x, y) with "
            "the two that count"
        )
    return candidates[0]


def _read_hugging_face(dataset: Any) -> _Source:
    """A data set of Hugging Face, whose columns of pictures and of classes have types."""
    if not hasattr(dataset, "__len__"):
        raise RequestError(
            "a streamed Hugging Face dataset has no length: load it without "
            "streaming=True, or a part of it"
        )
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}

    def column_of(kind: str, usual: Sequence[str], role: str) -> str:
        """The only column of this kind, else the one with a usual name."""
        # The types of Hugging Face decide before the names of columns.
        typed = [name for name in kinds if kinds[name] == kind]
        return (
            typed[0]
            if len(typed) == 1
            else _column(list(kinds), usual, "the Hugging Face dataset", role)
        )

    x, y = column_of("Image", INPUTS, "inputs"), column_of("ClassLabel", LABELS, "labels")
    if kinds[x] == "Audio":
        raise RequestError(
            f"column {x!r} holds recordings: make an array of their samples, all "
            "of one length, and give (x, y)"
        )

    items = Items(dataset, lambda row: (row[x], row[y]), np.asarray(dataset[y][:]))
    note = f"inputs are the column {x!r} of the Hugging Face dataset, labels {y!r}"
    classes = tuple(map(str, dataset.features[y].names or ())) if kinds[y] == "ClassLabel" else ()
    return _Source(items, items.labels, classes=classes, notes=(note,), layout=items.layout)


def _read_loader(loader: Any) -> _Source:
    """The samples of a DataLoader's data set, in its own order."""
    sampler = type(loader.sampler).__name__
    # An audit goes by positions: a sampler that repeats or a collate function that changes has
    # none.
    is_plain = loader.collate_fn is torch_data.default_collate and sampler in (
        "SequentialSampler",
        "RandomSampler",
    )
    if (
        not is_plain
        or getattr(loader.sampler, "replacement", False)
        or not hasattr(loader.dataset, "__len__")
    ):
        raise RequestError(
            f"the DataLoader draws its samples by a {sampler}, or changes them: "
            "give its data set, or their arrays as (x, y)"
        )

    source = _read_object(loader.dataset)
    note = (
        "the samples of the DataLoader's data set, in its own order and not in that "
        f"of the {sampler}"
    )
    return (
        source if sampler == "SequentialSampler" else source._replace(notes=(*source.notes, note))
    )


class Items(LazyRows):
    """The inputs of a torch Dataset of (input, label) pairs, or of another object with items."""

    def __init__(
        self,
        items: Any,
        pair_of: Callable[[Any], tuple[Any, Any]] | None = None,
        labels: Array | None = None,
    ) -> None:
        if (
            not hasattr(items, "__getitem__")
            or not hasattr(items, "__len__")
            or isinstance(items, str | bytes)
        ):
            raise RequestError(f"an object of type {type(items).__name__} is no data: give {FORMS}")
        try:
            count = len(items)
        except Exception as error:
            raise RequestError(
                f"the length of the data set cannot be read ({one_line(error)})"
            ) from None
        if not 0 < count <= MOST_COUNT:
            problem = (
                f"has {count:,} samples: at most {MOST_COUNT:,} are read"
                if count
                else "is empty: there is nothing to audit"
            )
            raise RequestError(f"the data set {problem}")

        self._items, self._pair_of = items, pair_of
        first = self.pair(0)[0]
        # Anything but an array is a picture of PIL.
        self.layout: Layout | None = None if isinstance(first, Tensor | np.ndarray) else "last"
        example = _input(first, 0)
        super().__init__(count, example.shape, example.dtype)
        self.labels = (
            _labels([self.pair(index)[1] for index in range(count)]) if labels is None else labels
        )
        self._check_repeatable(labels is None)

    def _check_repeatable(self, labelled: bool) -> None:
        """Refuse items that are drawn anew each time they are read, as random augmentation does.

        With `labelled`, their labels are compared too.
        """
        indices = range(0, len(self), max(1, len(self) // REPEATED))[:REPEATED]
        changed = 0
        # Random augmentation would make every question one about another input.
        for index in indices:
            (x, _), (x_again, y_again) = self.pair(index), self.pair(index)
            equal = np.array_equal(_input(x, index), _input(x_again, index), equal_nan=True)
            changed += not (
                equal and (not labelled or np.array_equal(_labels(y_again), self.labels[index]))
            )

        if changed:
            raise RequestError(
                f"the data set answers differently each time: {changed} of "
                f"{len(indices)} items changed between two readings; "
                "take random transforms (crops, flips, noise) out of it, since "
                "an audit asks for each input several times"
            )

    def row(self, index: int) -> Array:
        """The input of one item."""
        x = _input(self.pair(index)[0], index)
        if x.shape != self.shape[1:]:
            raise RequestError(
                f"item {index} of the data set has shape {x.shape}, and item 0 "
                f"{self.shape[1:]}: give it a transform that "
                "brings all to one size"
            )
        return x

    def pair(self, index: int) -> tuple[Any, Any]:
        """One item of a map-style data set as input and label."""
        subject = f"item {index} of the data set"
        try:
            item = self._items[index]
        # Code of a data set may raise anything; what is Brinell's own is passed on.
        except BaseException as error:
            if not is_foreign(error):
                raise
            raise RequestError(
                f"{subject} cannot be read ({type(error).__name__}: {one_line(error)})"
            ) from None

        if self._pair_of is not None:
            return self._pair_of(item)
        if isinstance(item, Mapping):
            return _columns_of(item, subject)
        if not isinstance(item, tuple | list) or len(item) != 2:
            parts = (
                f" of {len(item)} part{'s' * (len(item) != 1)}"
                if isinstance(item, tuple | list)
                else ""
            )
            raise RequestError(
                f"{subject} is a {type(item).__name__}{parts}, and no (input, "
                "label) pair: give a data set or loader of (x, y)"
            )
        return item[0], item[1]


def _labels(y: Any) -> Array:
    """Labels as an array.

    Lists of different lengths, which hold the classes of each sample, are refused.
    """
    # Ragged lists are several labels for a sample, which an array would not show.
    rows = (
        [len(row) for row in y if isinstance(row, list | tuple | set)]
        if isinstance(y, list | tuple)
        else []
    )

    if len(set(rows)) > 1 and len(rows) == len(y):
        raise RequestError(
            f"the labels name {min(rows)} to {max(rows)} classes for a sample: {MULTI_LABEL}"
        )
    return as_array(y, "labels")


def _input(x: Any, index: int) -> Array:
    """The input of an item as an array: of a picture of PIL, an array, a tensor or a list."""
    if hasattr(x, "getbands") and hasattr(x, "convert"):  # a picture of PIL
        if x.mode not in ("L", "RGB"):
            raise RequestError(
                f"item {index} of the data set is a picture in mode {x.mode}: "
                "convert it to RGB or L"
            )
        return np.asarray(x)
    if isinstance(x, Tensor | np.ndarray | list):
        return as_array(x, "inputs")
    raise RequestError(
        f"item {index} of the data set is a {type(x).__name__}: give it a transform to a tensor"
    )
