"""Arrays and tensors of a Python program as a data set: what `brinell.audit(module, (x, y))` is given."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError
from brinell.datasets._arrays import (
    CHANNELS,
    TOLERANCE,
    Arrangement,
    Array,
    Rows,
    StoredArrays,
    blocks,
    check_labels,
    class_names,
    domain_of,
)


class ArrayDataset(StoredArrays):
    """Inputs as the model takes them: (n, D) vectors, (n, C, T) signals, (n, C, H, W) images or (n, C, T, H, W) videos.

    Without a domain, bytes are divided by 255 and anything else must lie in [0, 1]. With one, values are taken as they are.
    A torch Dataset of (input, label) pairs is read item by item whenever inputs are needed, and once at the start for its labels.

    Args:
        x: array, tensor, or a torch Dataset of pairs (then without `y`).
        y: (n,) labels, whole numbers from 0 on.
        classes: names of the classes.
        domain: kind, shape and bounds where they cannot be read off the array.
        name: how reports call it.

    Raises:
        RequestError: values outside the bounds (by more than a millionth of their width), NaN, labels that do not fit.
    """

    def __init__(
        self, x: Any, y: Any = None, classes: Sequence[str] | None = None, domain: Domain | None = None, name: str = "arrays"
    ) -> None:
        if isinstance(x, TensorDataset) and y is None and len(x.tensors) == 2:
            x, y = x.tensors
        if y is None:
            rows: Any = _Pairs(x)
            y = rows.labels
        else:
            rows = _array(x)
        if rows.ndim < 2:
            raise RequestError(f"the array of inputs has shape {rows.shape}; it needs the samples first and then each input")
        labels = check_labels(_array(y), len(rows))
        arrangement = _as_it_is(rows.shape, domain)
        divisor = 1.0
        if domain is None:
            domain, divisor = domain_of(rows, arrangement)
        else:
            _check_bounds(rows, domain)
        super().__init__(
            name=name,
            x=rows,
            y=labels,
            arrangement=arrangement,
            domain=domain,
            classes=class_names(classes, labels),
            divisor=divisor,
        )


class _Pairs(Rows):
    """The inputs of a torch Dataset."""

    def __init__(self, pairs: Any) -> None:
        if not hasattr(pairs, "__getitem__") or not hasattr(pairs, "__len__"):
            raise RequestError(f"a {type(pairs).__name__} is no data: give (x, y), or a torch Dataset with a length")
        if len(pairs) == 0:
            raise RequestError("the torch Dataset is empty: there is nothing to audit")
        self._pairs = pairs
        first = self.row(0)
        super().__init__(len(pairs), first.shape, first.dtype)
        self.labels = np.array([int(pairs[index][1]) for index in range(len(pairs))])

    def row(self, index: int) -> Array:
        """The input of one pair."""
        item = self._pairs[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise RequestError(f"item {index} of the torch Dataset is no (input, label) pair")
        if not isinstance(item[0], Tensor | np.ndarray):
            raise RequestError(
                f"item {index} of the torch Dataset is a {type(item[0]).__name__}: give it a transform to a tensor"
            )
        return _array(item[0])


def _array(x: Any) -> Array:
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x.float() if x.dtype == torch.bfloat16 else x).numpy()
    return np.asarray(x)


def _as_it_is(stored: tuple[int, ...], domain: Domain | None) -> Arrangement:
    axes = tuple(range(len(stored)))
    if domain is not None:
        if stored[1:] != domain.shape:
            raise RequestError(f"inputs of shape {stored[1:]} do not live in a domain of shape {domain.shape}")
        return Arrangement(kind=domain.kind, shape=domain.shape, axes=axes)
    kinds: dict[int, Kind] = {2: "vector", 3: "signal", 4: "image", 5: "video"}
    if len(stored) not in kinds:
        raise RequestError(f"the array of inputs has shape {stored}; give a Domain that says what an input is")
    if len(stored) > 3 and stored[-1] in CHANNELS and stored[1] not in CHANNELS:
        raise RequestError(f"the array of inputs has shape {stored} with channels last: move them first, as torch wants them")
    return Arrangement(kind=kinds[len(stored)], shape=stored[1:], axes=axes)


def _check_bounds(x: Any, domain: Domain) -> None:
    low, high = domain.bounds()
    slack = TOLERANCE * float((high - low).max())
    for rows in blocks(x):
        values = torch.from_numpy(rows.astype(np.float32))
        if not domain.excess(values) <= slack:
            least, most = (float(value) for value in values.aminmax())
            raise RequestError(
                f"inputs reach from {least:g} to {most:g}, outside the bounds {domain.low} to {domain.high} (or hold NaN): "
                "scale them, or give a domain that holds them"
            )
