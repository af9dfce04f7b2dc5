"""Rows of tensors that a device holds: chosen without a wait for it, and numbered by lists of the host."""

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.core.norms import per_sample


def write_where(target: Tensor, rows: Tensor, mask: Tensor, values: Tensor) -> None:
    """Write `values` (m, ...) into the rows (m,) of `target` (n, ...), as far as `mask` (m,) bool is True."""
    if target.device.type == "cpu":
        places = mask.nonzero()[:, 0]
        target[rows[places]] = values[places]
    else:  # a selection would be read back
        target[rows] = torch.where(per_sample(mask, values), values, target[rows])


def positions(flags: Sequence[int]) -> list[int]:
    """The positions of the flags that are set."""
    return [position for position, flag in enumerate(flags) if flag]


def select(rows: Tensor, places: list[int]) -> Tensor:
    """The rows (m,) at some positions; `rows` itself for all of them."""
    return rows if len(places) == len(rows) else rows[index(places, rows.device)]


def index(numbers: list[int], device: torch.device) -> Tensor:
    """Numbers as an index on a device, which is not waited for."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)
