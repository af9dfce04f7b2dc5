"""JPEG: block edges and lost detail of strong compression, by Pillow's default encoder.

Images of one or three channels are stored as grey or colour; otherwise each channel is stored as a
grey image. The input is rounded to 256 levels first, as the format requires. The frames of a video
are compressed one by one.

Limit: it is weaker than the highest severities of other distortions. At 32 pixels a side the lowest
quality does not reach severity 5, at 224 not severities 4 and 5 (MS-SSIM 0.59 and 0.78). Below
quality 5 the colours are lost too, which that measure hardly detects.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from brinell.core.contracts import Streams
from brinell.distortions._shared import Scale, Scaled, as_jpeg, each_picture


@dataclass(frozen=True, kw_only=True)
class Jpeg(Scaled):
    """Compressed as JPEG and read back."""

    domains = frozenset({"image", "video"})
    versions = 1
    scale = Scale(small=(70, 25, 9, 4, 2), large=(15, 7, 3, 2, 2))
    """Quality, 1 to 100; less is stronger."""

    def distort(self, x: Tensor, quality: Tensor, rng: Streams) -> Tensor:
        """`x` (n, C, H, W), or (n, C, frames, H, W), stored at this quality (n,), 1 to 100."""
        # The channels of each picture beside its height and width: (n, frames, C, H, W) of a video.
        frames_first = x.movedim(1, -3)
        stored = []
        for frames, value in zip(frames_first, quality.round().int().tolist(), strict=True):
            pictures = frames.reshape(-1, *frames.shape[-3:])
            stored.append(each_picture(pictures, partial(as_jpeg, quality=value)))
        return torch.stack(stored).reshape(frames_first.shape).movedim(-3, 1).contiguous()
