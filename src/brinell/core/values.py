"""Arrays of any library as NumPy arrays: what can be represented faithfully is, and everything else
is refused with a remedy.

Accepted are NumPy arrays in any layout and order of bytes, tensors of any device and floating type,
lists of numbers, and what NumPy converts to such arrays. Refused are masks that hide values,
sparse, nested, quantised and complex arrays, tensors without values, dates, records and objects.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import BrinellError, RequestError, one_line
from brinell.core.record import Array

FORMS = (
    "(x, y), a dict of arrays, a torch Dataset or DataLoader, a Hugging Face "
    "dataset, a spec such as npz:FILE, or brinell.data"
)
SEQUENCES = (list, tuple, range, int, float, complex, str, bytes, memoryview)
PROTOCOLS = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__")
"""Types that NumPy converts, and what arrays of other libraries offer; anything else it would
read item by item, without end."""
NUMBERS = "biuf"
"""Kinds of NumPy types that hold real numbers."""
TEXTS = "US"
"""Kinds of NumPy types that hold texts."""


def as_array(x: Any, role: str) -> Array:
    """The values as an array of real numbers in the machine's order of bytes; labels may be texts
    as well.

    Args:
        x: an array, a tensor, a list, or anything else that NumPy converts.
        role: inputs, labels, or the name of a setting; it names the values in messages.
    """
    values = _numpy(as_strided(x, role) if isinstance(x, Tensor) else x, role)

    # Texts of different lengths in a list of objects are one array of texts.
    if (
        values.dtype == object
        and values.size
        and all(isinstance(value, str) for value in values.ravel().tolist())
    ):
        values = values.astype(str)

    if values.dtype.kind not in NUMBERS + (TEXTS if role == "labels" else ""):
        raise RequestError(
            f"the {role} have type {values.dtype}, {type(x).__name__}: give one "
            "array of real numbers"
        )

    # Torch knows neither numbers of 80 bits nor another order of bytes.
    kind = np.dtype(np.float64) if values.dtype == np.longdouble else values.dtype.newbyteorder("=")
    return values.astype(kind, copy=False)


def as_tensor(x: Any, role: str) -> Tensor:
    """The values as a dense tensor of real numbers.

    Tensors stay on their device, everything else is copied from an array.
    """
    values = (
        as_strided(x, role).detach()
        if isinstance(x, Tensor)
        else torch.from_numpy(np.array(as_array(x, role), order="C"))
    )

    # Torch computes little with these types.
    return (
        values.to(torch.int64)
        if values.dtype in (torch.uint16, torch.uint32, torch.uint64)
        else values
    )


def as_strided(x: Tensor, role: str) -> Tensor:
    """The tensor itself, after a check that its values are real numbers that lie in memory."""
    if obstacle := obstacle_of(x):
        raise RequestError(
            f"the {role} are {obstacle[0]}, and dense real numbers are needed: give {obstacle[1]}"
        )
    return x


def obstacle_of(x: Tensor) -> tuple[str, str] | None:
    """Why a tensor is not a dense array of real numbers, and what to pass; None if it is."""
    if x.is_quantized:
        return "quantised", "x.dequantize()"
    if x.is_nested or x.layout != torch.strided:
        return ("nested", "x.to_padded_tensor(0)") if x.is_nested else ("sparse", "x.to_dense()")
    if x.is_meta:
        return "on the meta device, without values", "a tensor on cpu or cuda"
    return ("complex", "x.real or x.abs()") if x.is_complex() else None


def _numpy(x: Any, role: str) -> Array:
    """The values as NumPy converts them, in a type of NumPy."""
    if isinstance(x, Tensor):
        # NumPy has no bfloat16 and no float8, so these become float32.
        x = x.detach().cpu()
        return np.asarray(
            x.float()
            if x.is_floating_point() and x.dtype not in (torch.float64, torch.float16)
            else x
        )
    if type(x).__module__.startswith("scipy.sparse"):
        raise RequestError(f"the {role} are sparse, and dense numbers are needed: give x.toarray()")
    if not isinstance(x, SEQUENCES) and not any(hasattr(x, protocol) for protocol in PROTOCOLS):
        raise RequestError(
            f"the {role} are no array but an object of type {type(x).__name__}: give {FORMS}"
        )

    try:
        values: Array = np.asanyarray(_parts(x, role))
        if isinstance(values, np.ma.MaskedArray) and (
            masked := int(np.ma.getmaskarray(values).sum())
        ):
            raise RequestError(
                f"{masked} values of the {role} are masked, and a model has no "
                "answer to those: give x.filled(0), or leave "
                "their samples out"
            )
        return np.asarray(values)
    except BrinellError:
        raise
    except Exception as error:
        raise RequestError(
            f"the {role} are no array ({type(error).__name__}: "
            f"{one_line(error, 120)}): give {FORMS}"
        ) from None


def _parts(x: Any, role: str) -> Any:
    """The value, with the arrays within lists checked one by one.

    NumPy drops masks and units of arrays that it joins.
    """
    if not isinstance(x, list | tuple):
        return x
    return [
        _parts(part, role) if isinstance(part, list | tuple) else _part(part, role) for part in x
    ]


def _part(x: Any, role: str) -> Any:
    """An element of a list: an array of any library becomes a NumPy array; numbers and
    texts stay.
    """
    is_plain = isinstance(x, np.generic) or type(x) is np.ndarray
    return (
        as_array(x, role)
        if not is_plain and any(hasattr(x, protocol) for protocol in PROTOCOLS)
        else x
    )
