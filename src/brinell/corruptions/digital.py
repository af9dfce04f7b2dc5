"""Light and storage: brightness, contrast, saturation, elastic deformation, coarse pixels, JPEG."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from brinell.core.contracts import Streams
from brinell.core.record import Array
from brinell.corruptions._shared import Published, smoothed

__all__ = ["Brightness", "Contrast", "ElasticTransform", "JpegCompression", "Pixelate", "Saturate"]


@dataclass(frozen=True, kw_only=True)
class Brightness(Published):
    """The value of each pixel (the largest of its channels) raised by so much, hue and saturation kept."""

    versions = 1
    small = (0.05, 0.1, 0.15, 0.2, 0.3)
    large = (0.1, 0.2, 0.3, 0.4, 0.5)

    def distort(self, x: Tensor, more: float, rng: Streams) -> Tensor:
        """`x` brighter."""
        value = x.amax(1, keepdim=True)
        raised = (value + more).clamp(0, 1)
        return torch.where(value > 0, x * raised / value.clamp_min(1e-12), raised)


@dataclass(frozen=True, kw_only=True)
class Saturate(Published):
    """The saturation of each pixel times one number plus another, hue and value kept; what is grey counts as red."""

    versions = 1
    small = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))
    large = ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))

    def distort(self, x: Tensor, parameters: tuple[float, float], rng: Streams) -> Tensor:
        """`x` with more or less colour. A picture of one channel is grey, and shows red as the value that it has."""
        if x.shape[1] != 3:
            return x.clone()
        value, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
        saturation = (value - least) / value.clamp_min(1e-12)
        wanted = (saturation * parameters[0] + parameters[1]).clamp(0, 1)
        coloured = value - (value - x) * wanted / saturation.clamp_min(1e-12)
        red = torch.tensor((0.0, 1.0, 1.0), device=x.device).reshape(1, 3, 1, 1)
        return torch.where(saturation > 0, coloured, value * (1 - wanted * red))


@dataclass(frozen=True, kw_only=True)
class Contrast(Published):
    """The distance of each value from the mean of its channel, times so much."""

    versions = 1
    small = (0.75, 0.5, 0.4, 0.3, 0.15)
    large = (0.4, 0.3, 0.2, 0.1, 0.05)

    def distort(self, x: Tensor, share: float, rng: Streams) -> Tensor:
        """`x` with less contrast."""
        mean = x.mean((2, 3), keepdim=True)
        return (x - mean) * share + mean


@dataclass(frozen=True, kw_only=True)
class JpegCompression(Published):
    """Stored as JPEG of a quality and read back, by Pillow's encoder."""

    versions = 1
    small = (80, 65, 58, 50, 40)
    large = (25, 18, 15, 10, 7)

    def distort(self, x: Tensor, quality: int, rng: Streams) -> Tensor:
        """`x` compressed."""

        def stored(picture: Image.Image) -> Image.Image:
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=quality)
            return Image.open(file, formats=["JPEG"])

        return _each(x, stored)


@dataclass(frozen=True, kw_only=True)
class Pixelate(Published):
    """Shrunk to a share of its sides by means over boxes, and enlarged again without smoothing."""

    versions = 1
    small = (0.95, 0.9, 0.85, 0.75, 0.65)
    large = (0.6, 0.5, 0.4, 0.3, 0.25)

    def distort(self, x: Tensor, share: float, rng: Streams) -> Tensor:
        """`x` in coarse pixels."""
        height, width = x.shape[-2:]
        size = max(1, int(width * share)), max(1, int(height * share))
        # CIFAR-10-C enlarges by boxes, which mean two pixels where they meet; ImageNet-C shows the nearest one.
        again = Image.Resampling.BOX if share in self.small else Image.Resampling.NEAREST
        return _each(x, lambda picture: picture.resize(size, Image.Resampling.BOX).resize((width, height), again))


def _each(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Each picture in 8 bits, changed; of other than one or three channels each channel for itself."""
    n, channels, height, width = x.shape
    together = 3 if channels == 3 else 1
    pixels = x.reshape(-1, together, height, width).movedim(1, -1).mul(255).round().to("cpu", torch.uint8).numpy()
    back: list[Array] = []
    for one in pixels:
        changed = change(Image.fromarray(one if together == 3 else one[..., 0]))
        back.append(np.asarray(changed).reshape(height, width, together))
    return torch.from_numpy(np.stack(back)).to(x.device).movedim(-1, 1).to(x.dtype).div(255).reshape(x.shape)


@dataclass(frozen=True, kw_only=True)
class ElasticTransform(Published):
    """Moved by a random field, at 32 pixels after a random affine map.

    Parameters, in shares of the side: how far the field may move a pixel before it is smoothed, times a factor; the deviation of
    the smoothing; and by how much three points of the picture move, which make the affine map.
    At 224 pixels they are those of the imagecorruptions package, which has no affine map; those of ImageNet-C, whose first two
    severities smooth over the whole picture, hardly deform anything but by their affine map.
    """

    small = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
    large = tuple((0.005 * factor, 0.01, 0) for factor in (12.5, 16.25, 21.25, 25, 30))  # type: ignore[assignment]

    def distort(self, x: Tensor, parameters: tuple[float, float, float], rng: Streams) -> Tensor:
        """`x` deformed."""
        far, deviation, affine = parameters
        height, width = x.shape[-2:]
        if affine:
            x = _affine(x, affine * min(height, width), rng.fold("affine"))
        if not far:
            return x
        fields = rng.fold("field").uniform(2, height, width).mul_(2).sub_(1)
        # Smoothed in units of each side; of pictures that are not square by the mean of both.
        fields = smoothed(fields, deviation * (height + width) / 2, truncate=3.0, mode="symmetric") * far * height
        rows, columns = (torch.arange(side, device=x.device, dtype=x.dtype) for side in (height, width))
        down, right = rows[:, None] + fields[:, 1], columns[None, :] + fields[:, 0]
        grid = torch.stack([(2 * right + 1) / width - 1, (2 * down + 1) / height - 1], -1)
        return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _affine(x: Tensor, most: float, rng: Streams) -> Tensor:
    """Three points about the middle, a third of the shorter side away from it, moved by up to so many pixels each way."""
    n, _, height, width = x.shape
    middle = torch.tensor([height // 2, width // 2], device=x.device, dtype=x.dtype)
    third = min(height, width) // 3
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], device=x.device) * third + middle
    moved = corners + (rng.uniform(3, 2) * 2 - 1) * most
    ones = torch.ones(n, 3, 1, device=x.device)
    # The map from the new picture back to the old one: corners = [moved, 1] @ back.
    back = torch.linalg.lstsq(torch.cat([moved, ones], 2), corners.expand(n, 3, 2)).solution
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    across, down = columns.expand(height, width), rows[:, None].expand(height, width)
    points = torch.stack([across, down, torch.ones_like(across)], -1).to(x.dtype)
    source = points.reshape(-1, 3) @ back
    size = torch.tensor([max(width - 1, 1), max(height - 1, 1)], device=x.device, dtype=x.dtype)
    grid = (2 * source / size - 1).reshape(n, height, width, 2)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=True)
