"""Pixelate as ImageNet-C and CIFAR-10-C define it (Hendrycks & Dietterich 2019, section 3)."""

from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._published import Published
from brinell.distortions._shared import each_picture


@dataclass(frozen=True, kw_only=True)
class Pixelate(Published):
    """Shrunk to a share of its sides by means over boxes, and enlarged again without smoothing."""

    versions = 1
    small = (0.95, 0.9, 0.85, 0.75, 0.65)
    large = (0.6, 0.5, 0.4, 0.3, 0.25)

    def distort(self, x: Tensor, share: float, rng: Streams) -> Tensor:
        height, width = x.shape[-2:]
        size = max(1, int(width * share)), max(1, int(height * share))
        # CIFAR-10-C enlarges by boxes, which mean two pixels where they meet; ImageNet-C shows the
        # nearest one.
        enlargement = Image.Resampling.BOX if share in self.small else Image.Resampling.NEAREST

        def change(picture: Image.Image) -> Image.Image:
            small = picture.resize(size, Image.Resampling.BOX)
            return small.resize((width, height), enlargement)

        return each_picture(x, change)
