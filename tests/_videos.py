"""Videos as files, written by PyAV without loss."""

from pathlib import Path
from typing import Any

import numpy as np

Pixels = np.ndarray[Any, Any]


def clip(number: int, frames: int = 24, height: int = 20, width: int = 28) -> Pixels:
    """(frames, height, width, 3) uint8: a bright bar that wanders over noise, down where `number`
    is even, else to the right.
    """
    pixels = (
        np.random.default_rng(number).integers(0, 90, (frames, height, width, 3)).astype(np.uint8)
    )
    for index in range(frames):
        rows = pixels[index] if number % 2 == 0 else pixels[index].transpose(1, 0, 2)
        rows[(index + number) % (len(rows) - 3) :][:4] = 200
    return pixels


def write(file: Path, pixels: Pixels) -> Pixels:
    """The frames in a file, frame by frame as they are (ffv1 in RGB)."""
    import av

    file.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(file), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.height, stream.width, stream.pix_fmt = pixels.shape[1], pixels.shape[2], "bgr0"
        for frame in pixels:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return pixels


def folder(root: Path, count: int = 3, frames: int = 24) -> dict[str, Pixels]:
    """Two classes, down and right, with so many videos each; their frames by name."""
    names = [
        f"{direction}/{number}.mkv" for direction in ("down", "right") for number in range(count)
    ]
    return {
        name: write(root / name, clip(2 * index + (name[0] == "r"), frames))
        for index, name in enumerate(names)
    }


def with_broken_videos(root: Path) -> list[str]:
    """Two good videos and four that give no clip of 8 frames at stride 2; what is said of each, in
    order, nothing of the good.
    """
    folder(root, count=1)
    content = (root / "down" / "0.mkv").read_bytes()
    (root / "down" / "1 empty.mkv").write_bytes(b"")
    (root / "down" / "2 text.mp4").write_text("no video at all\n" * 9)
    (root / "down" / "3 half.mkv").write_bytes(content[: len(content) // 6])
    write(root / "right" / "4 short.mkv", clip(9, 14))
    return [
        "",
        "does not decode",
        "does not decode",
        "half.mkv",
        "",
        "has 14 frames, and a clip of 8 frames at stride 2 needs 15",
    ]


MODEL = '''
"""Which way a bar lies: how much the means of the rows differ, and those of the columns."""

from torch import nn, stack


class Bars(nn.Module):
    def forward(self, x):
        frames = x.mean(1)
        return 40 * stack([frames.mean(3).var(2).mean(1), frames.mean(2).var(2).mean(1)], 1)


def bars():
    return Bars()
'''
