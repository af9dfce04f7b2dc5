"""`region=`, an option of any data: the part of inputs that attacks may change.

It is `left,top,right,bottom` in pixels, `start,stop` in values of a signal, or a mask of the shape
of an input, true where attacks may change it: a file of NumPy, or an array in Python.
"""

import copy
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brinell.core import bounded
from brinell.core.data import Dataset
from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError, one_line, short
from brinell.core.region import Region
from brinell.core.user_files import existing_path

MOST_BYTES = 1 << 30
"""Maximum size of a mask in bytes."""
FORMS = {
    "image": "left,top,right,bottom in pixels",
    "video": "left,top,right,bottom in pixels",
    "signal": "start,stop in values",
    "vector": "start,stop in values",
}


def restrict(dataset: Dataset, region: Any) -> Dataset:
    """The same data, of which attacks may change a region alone.

    Args:
        dataset: the data.
        region: a text as it is written behind a spec, numbers, or a mask.
    """
    domain = dataset.domain
    mask = _mask_of(region, domain)
    count, total = int(mask.sum()), mask.size
    if not count:
        raise RequestError(
            f"region {short(region)} holds no value of inputs of shape {domain.shape}, so there is "
            "nothing that an attack may change",
            option="region",
        )

    # Columns of a vector are fixed one by one; other inputs have a box and a mask within it.
    if domain.kind == "vector":
        columns = domain.columns or tuple(Column(str(place)) for place in range(total))
        fixed = [
            column._replace(fixed=column.fixed or not part)
            for column, part in zip(columns, mask.tolist(), strict=True)
        ]
        domain = replace(domain, columns=tuple(fixed))
    else:
        domain = replace(domain, region=Region.of(mask))
    note = f"attacks change only {count} of {total} values of an input, those in the region"
    # A shallow copy: the inputs themselves are shared, and only what may change differs.
    restricted = copy.copy(dataset)
    info = replace(dataset.info, notes=(*dataset.info.notes, note))
    try:
        restricted.__dict__.update(domain=domain, info=info)
        # Data that compute their domain anew would ignore the region: this is found out here.
        assert restricted.domain.text() and restricted.domain is domain
    except (AttributeError, AssertionError):
        raise RequestError(
            f"{dataset.name} is data whose space cannot be restricted: save them by "
            "numpy.savez('FILE.npz', x=inputs, y=labels) and write npz:FILE.npz?region=...",
            option="region",
        ) from None
    return restricted


def _mask_of(region: Any, domain: Domain) -> "np.ndarray[Any, Any]":
    """(*shape) bool: the values of inputs that a region holds."""
    if isinstance(region, str) and region.endswith(".npy"):
        region = _read(existing_path(region, "file", "region=FILE.npy"))
    if isinstance(region, np.ndarray) and region.ndim > 1 or domain.shape == np.shape(region):
        mask = np.asarray(region) != 0
        if mask.shape not in (domain.shape, domain.grid):
            raise RequestError(
                f"the mask region has shape {mask.shape}, and inputs have shape {domain.shape}: "
                f"give one of shape {domain.shape} or {domain.grid}",
                option="region",
            )
        return np.broadcast_to(mask, domain.shape)

    numbers = _numbers(region, domain)
    mask = np.zeros(domain.shape, dtype=bool)
    half = len(numbers) // 2
    # Axes are written from the last to the first: left and right before top and bottom.
    ends = list(zip(numbers[:half], numbers[half:], strict=True))[::-1]
    sides = domain.shape[len(domain.shape) - half :]
    if any(not 0 <= start < stop <= side for (start, stop), side in zip(ends, sides, strict=True)):
        raise RequestError(
            f"region {short(region)} is no part of inputs of shape {domain.shape}: write "
            f"{FORMS[domain.kind]}, the last ones excluded",
            option="region",
        )
    box: tuple[Any, ...] = (..., *(slice(start, stop) for start, stop in ends))
    mask[box] = True
    return mask


def _numbers(region: Any, domain: Domain) -> list[int]:
    """The ends of a box as they were written."""
    parts: Sequence[Any] = region.split(",") if isinstance(region, str) else list(region)
    count = 4 if domain.kind in ("image", "video") else 2

    try:
        numbers = [int(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != count:
        raise RequestError(
            f"region {short(region)} is no region of a {domain.kind}: write "
            f"{FORMS[domain.kind]}, or FILE.npy, a mask of shape {domain.shape}",
            option="region",
        )
    return numbers


def _read(file: Path) -> "np.ndarray[Any, Any]":
    """The mask in a file of NumPy."""
    content = bounded.read(file, MOST_BYTES)
    try:
        return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
    except Exception as error:
        raise RequestError(
            f"{file} holds no mask ({one_line(error)}): save it by numpy.save('FILE.npy', mask)",
            option="region",
        ) from None
