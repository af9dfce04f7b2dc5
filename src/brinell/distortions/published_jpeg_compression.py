"""JPEG compression as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019,
section 3).
"""

from dataclasses import dataclass

from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published
from brinell.distortions._shared import as_jpeg, each_picture


@dataclass(frozen=True, kw_only=True)
class JpegCompression(Published):
    """Stored as JPEG of a quality and read back, by Pillow's encoder."""

    versions = 1
    small = (80, 65, 58, 50, 40)
    large = (25, 18, 15, 10, 7)

    def distort(self, x: Tensor, quality: int, rng: Streams) -> Tensor:
        return each_picture(x, lambda picture: as_jpeg(picture, quality))
