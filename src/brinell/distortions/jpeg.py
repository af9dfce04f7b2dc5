"""JPEG: block edges and lost detail of strong compression, by Pillow's encoder at its default subsampling.

Pictures of one or three channels are stored as grey or colour; of others, each channel as a grey
picture of its own. The input is rounded to 256 levels first, as the format demands. The frames of a
video are compressed one by one.

What it cannot be: as strong as the highest severities of the others. At 32 pixels a side the lowest
quality stays short of severity 5, at 224 of severities 4 and 5 (MS-SSIM 0.59 and 0.78). Below
quality 5 the colours go too, which that measure hardly sees.
"""

import io
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled

__all__ = ["Jpeg"]


@dataclass(frozen=True, kw_only=True)
class Jpeg(Scaled):
    """Compressed as JPEG and read back."""

    domains = frozenset({"image", "video"})
    versions = 1
    scale = Scale(small=(70, 25, 9, 4, 2), large=(15, 7, 3, 2, 2))
    """Quality, 1 to 100; less is stronger."""

    def distort(self, x: Tensor, quality: Tensor, rng: Streams) -> Tensor:
        """`x` compressed with this quality (n,), rounded to a whole number."""
        channels = x.shape[1] if x.shape[1] == 3 else 1
        frames = x.movedim(1, -3).reshape(len(x), -1, channels, *x.shape[-2:])  # each plane alone where there are not three
        pixels = (frames.movedim(2, -1) * 255).round().to("cpu", torch.uint8).numpy()
        stored = [_compress(pixels[row], round(value)) for row, value in enumerate(quality.tolist())]
        back = torch.from_numpy(np.stack(stored)).to(x.device, torch.float32).div_(255).movedim(-1, 2)
        shape = (len(x), *x.movedim(1, -3).shape[1:])
        return back.reshape(shape).movedim(-3, 1).contiguous()


def _compress(frames: np.ndarray, quality: int) -> np.ndarray:
    """(frames, height, width, 1 or 3) uint8 as they come back from the encoder."""
    back = np.empty_like(frames)
    for index, pixels in enumerate(frames):
        file = io.BytesIO()
        Image.fromarray(pixels if pixels.shape[-1] == 3 else pixels[..., 0]).save(file, "JPEG", quality=quality)
        back[index] = np.asarray(Image.open(file, formats=["JPEG"])).reshape(pixels.shape)
    return back
