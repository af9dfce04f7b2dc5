"""The part of inputs that attacks may change: a box, or a mask within it."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class Region(NamedTuple):
    """The values of inputs that attacks may change: attacks see the box alone."""

    box: tuple[tuple[int, int], ...]
    """First position and the one after the last, along each axis behind the channels."""
    mask: str = ""
    """The values within the box (channels, *box), as hexadecimal digits of their bits; empty for
    all."""

    @classmethod
    def of(cls, mask: "np.ndarray[Any, Any]") -> "Region":
        """The region of a mask (channels, *grid) of which some value is true."""
        places = np.argwhere(mask.any(0))
        box = tuple(zip(places.min(0).tolist(), (places.max(0) + 1).tolist(), strict=True))
        inner = mask[(slice(None), *(slice(*ends) for ends in box))]
        return cls(box, "" if inner.all() else np.packbits(inner).tobytes().hex())

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Region":
        """The region from JSON, as `Domain.to_json` has it."""
        return cls(tuple((start, stop) for start, stop in fields["box"]), fields["mask"])

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the box."""
        return tuple(stop - start for start, stop in self.box)

    @property
    def places(self) -> tuple[Any, ...]:
        """The index of the box in inputs (..., channels, *grid)."""
        return (..., *(slice(start, stop) for start, stop in self.box))

    def merge(self, whole: "Tensor", x: "Tensor") -> "Tensor":
        """Inputs (n, channels, *grid) with the values of x (n, channels, *box) in the region."""
        import torch

        if self.mask:
            mask = bits(self.mask, tuple(x.shape[1:])).to(x.device)
            x = torch.where(mask, x, whole[self.places])
        merged = whole.clone()
        merged[self.places] = x
        return merged


@functools.lru_cache(maxsize=4)
def bits(text: str, shape: tuple[int, ...]) -> "Tensor":
    """(*shape) bool: the values of a mask that was written as hexadecimal digits."""
    import torch

    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    flat = np.unpackbits(packed, count=int(np.prod(shape))).astype(bool)
    return torch.from_numpy(flat.reshape(shape))
