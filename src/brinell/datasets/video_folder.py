"""`video-folder:DIR`: a folder of videos, each giving one clip or several, decoded when they are needed.

One subfolder per class, or a labels.csv, as for image-folder; files of the list may lie in videos/. A clip is `frames` frames,
every `stride`-th of the video, counted as they are shown, whatever their times. Each video is decoded from its beginning, so that
a clip does not depend on where key frames lie, and every clip only once: it is kept in a temporary file. A flag that the camera
was held sideways is ignored.

A video that does not decode, or is shorter than a clip, is a sample that cannot be read; `unreadable` says which and why.
Needs PyAV: pip install 'brinell[video]'.
"""

import importlib
import math
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from brinell.core.bounded import MOST_PIXELS, MOST_SIDE
from brinell.core.contracts import DataInfo, Dataset, Domain, Streams
from brinell.core.errors import RequestError, SampleError
from brinell.core.settings import at_least, at_most
from brinell.datasets._arrays import Array, Rows, StoredArrays
from brinell.datasets._files import existing, unread
from brinell.datasets._listing import centre, listing_of

__all__ = ["VideoFolder"]

SUFFIXES = frozenset((".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".ogv", ".3gp", ".ts"))
FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo,asf,flv,ogg"
"""Containers that FFmpeg may find in a file, whatever the file is called; none of them names other files."""
OPENING = 20.0
"""Seconds within which a file must open."""
Sampling = Literal["uniform", "random"]


class UnreadableError(SampleError):
    """A video that gives no clip; the others may."""


@dataclass(frozen=True, kw_only=True)
class VideoFolder:
    """Videos in folders, or listed in labels.csv."""

    path: str = ""
    """The folder."""
    frames: int = 16
    """Frames of a clip."""
    stride: int = 2
    """From one frame of a clip to the next in the video; 1 takes consecutive ones."""
    clips: int = 1
    """Clips of each video, each a sample of its own."""
    sampling: Sampling = "uniform"
    """uniform: the middle of the video, or places at even distances; random: anywhere."""
    seed: int = 0
    """Of random sampling."""
    size: int = 112
    """Bring the shorter side to so many pixels and crop the centre; 0 leaves frames as they are, all videos of one size."""

    def __post_init__(self) -> None:
        at_least(self, frames=1, stride=1, clips=1, seed=0, size=0)
        at_most(self, frames=10_000, clips=10_000, size=MOST_SIDE)

    def __call__(self) -> Dataset:
        """List the folder. Nothing is decoded yet, but with size=0 the first video that opens says how large all are.

        Raises:
            RequestError: no PyAV, no videos, a bad labels.csv or classes.json.
        """
        library()
        folder = existing(self.path, "folder", "video-folder:DIR")
        listing = listing_of(folder, SUFFIXES, "videos", "videos")
        sides = (self.size, self.size) if self.size else _first_size(listing.files)
        domain = Domain(kind="video", shape=(3, self.frames, *sides), levels=256)
        clips = _Clips(listing.files, domain.shape, self)
        how = f"{domain.text()} {self.frames} {self.stride} {self.clips} {self.sampling} {self.seed} {self.size}"
        return StoredArrays(
            name=folder.resolve().name,
            x=clips,
            y=np.repeat(listing.labels, self.clips),
            domain=domain,
            classes=listing.classes,
            divisor=255.0,
            info=DataInfo(unreadable=clips.unreadable),
            digest=lambda: listing.digest(how),
        )


def library() -> Any:
    """PyAV, imported when it is needed, if it is installed."""
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise RequestError(f"video-folder needs PyAV ({error}): pip install 'brinell[video]'") from None


class _Clips(Rows):
    """(n, 3, frames, height, width) uint8: `settings.clips` of each video, side by side."""

    def __init__(self, files: Sequence[Path], shape: tuple[int, ...], settings: VideoFolder) -> None:
        super().__init__(len(files) * settings.clips, shape, np.dtype(np.uint8))
        self._files, self._settings = files, settings
        self._kept: set[int] = set()
        self._failed: dict[int, str] = {}
        self._file = tempfile.TemporaryFile()
        weakref.finalize(self, self._file.close)

    def unreadable(self, indices: Sequence[int]) -> dict[int, str]:
        """Which of these samples cannot be read, and why in one line. Decodes those that were not decoded before.

        Raises:
            RequestError: what concerns all: videos of several sizes without `size`, no space for the clips.
        """
        for index in indices:
            self._decoded(index)
        return {index: self._failed[index] for index in indices if index in self._failed}

    def row(self, index: int) -> Array:
        """(3, frames, height, width): one clip; a SampleError where the video cannot be read."""
        self._decoded(index)
        if index in self._failed:
            raise UnreadableError(self._failed[index])
        size = math.prod(self.shape[1:])
        self._file.seek(index * size)
        return np.frombuffer(self._file.read(size), np.uint8).reshape(self.shape[1:])

    def _decoded(self, index: int) -> None:
        """Take care that a clip lies in the temporary file, or that it is known why it cannot."""
        if index in self._kept or index in self._failed:
            return
        try:
            clip = self._read(self._files[index // self._settings.clips], index)
        except UnreadableError as error:
            self._failed[index] = str(error)
            return
        try:
            self._file.seek(index * clip.nbytes)
            self._file.write(clip.tobytes())
            self._file.flush()
        except OSError as error:
            raise unread("the clips", error) from None
        self._kept.add(index)

    def _read(self, file: Path, index: int) -> Array:
        """(3, frames, height, width) uint8."""
        count = _frame_count(file)
        for _ in range(2):  # a second time where the file promises more frames than it holds
            wanted, count, frames = self._wanted(file, count, index), 0, list[Array]()
            for count, frame in enumerate(_decode(file), 1):
                if count - 1 in wanted:
                    frames.append(self._pixels(frame, file))
                if len(frames) == len(wanted):
                    return np.ascontiguousarray(np.stack(frames).transpose(3, 0, 1, 2))
        raise UnreadableError(f"{file} changes while it is read: leave the folder alone")

    def _wanted(self, file: Path, count: int, index: int) -> range:
        """Numbers of the frames that this clip takes out of `count`."""
        own = self._settings
        spans = (own.frames - 1) * own.stride + 1
        latest = count - spans
        if latest < 0:
            raise UnreadableError(
                f"{file} is too short: {count} frames, and a clip of {own.frames} at stride {own.stride} spans {spans}; "
                "take fewer frames, a smaller stride, or leave it out"
            )
        if own.sampling == "random":
            start = int(Streams.of(own.seed, torch.tensor([index])).fold("clip").integers(latest + 1))
        else:
            start = latest * (2 * (index % own.clips) + 1) // (2 * own.clips)
        return range(start, start + spans, own.stride)

    def _pixels(self, frame: Any, file: Path) -> Array:
        """(height, width, 3) uint8."""
        height, width = self.shape[-2:]
        pixels: Array = frame.to_ndarray(format="rgb24")
        if self._settings.size:
            return np.asarray(centre(Image.fromarray(pixels), height))
        if pixels.shape[:2] != (height, width):
            raise RequestError(
                f"{file} is {pixels.shape[1]} x {pixels.shape[0]} and another video {width} x {height}: bring them to one size "
                "with the option size=112 (shorter side, then centre crop)"
            )
        return pixels


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The file as a container of videos of bounded size. It may name no other file, least of all one elsewhere."""
    av = library()
    options = {"protocol_whitelist": "file", "format_whitelist": FORMATS}
    try:
        if not file.is_file():
            raise UnreadableError(f"{file} is no regular file: take it out")
        with av.open(str(file), options=options, timeout=OPENING) as container:
            if not container.streams.video:
                raise UnreadableError(f"{file} holds no video: take it out")
            codec = container.streams.video[0].codec_context
            if (codec.width or 0) * (codec.height or 0) > MOST_PIXELS:
                raise UnreadableError(f"{file} says that it is {codec.width} x {codec.height}, more than any video: take it out")
            yield container
    except (av.FFmpegError, OSError, ValueError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableError(f"{file} does not decode ({reason}): fetch it again, or take it out") from None


def _frame_count(file: Path) -> int:
    """How many frames there are, by the packets in the file: right for most formats, and far cheaper than to decode them."""
    with _opened(file) as container:
        return sum(1 for packet in container.demux(container.streams.video[0]) if packet.size)


def _decode(file: Path) -> Iterator[Any]:
    with _opened(file) as container:
        for frame in container.decode(container.streams.video[0]):
            if frame.is_corrupt:
                raise UnreadableError(f"{file} is damaged within: fetch it again, or take it out")
            yield frame


def _first_size(files: Sequence[Path]) -> tuple[int, int]:
    why: UnreadableError | None = None
    for file in files:
        try:
            if (frame := next(_decode(file), None)) is not None:
                return frame.height, frame.width
        except UnreadableError as error:
            why = why or error
    raise RequestError(str(why or f"{files[0]} holds no frame: take it out"))
