"""`video-folder:DIR`: a folder of videos, each with one or several clips, decoded on demand.

The folder holds one subfolder per class, or a labels.csv, as for image-folder; listed files may lie
in videos/. A clip is `frames` frames, every `stride`-th of the video in display order, whatever
their times. Each video is decoded from its beginning, so a clip does not depend on the positions of
key frames. Every clip is decoded only once and kept in memory. Rotation flags are ignored.

A video that does not decode, or is shorter than a clip, is an unreadable sample; `unreadable` lists
these samples with the reason. Needs PyAV: pip install 'brinell[video]'.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from PIL import Image

from brinell.core.bounded import MOST_PIXELS, MOST_SIDE
from brinell.core.data import DataInfo, Dataset
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, SampleError
from brinell.core.settings import Checked, Count, Range
from brinell.core.user_files import existing_path
from brinell.datasets._arrays import Array, LazyRows, StoredArrays
from brinell.datasets._listing import crop_centre, digest_of, listing_of

SUFFIXES = frozenset(
    (
        ".mp4",
        ".avi",
        ".mkv",
        ".mov",
        ".webm",
        ".m4v",
        ".mpg",
        ".mpeg",
        ".wmv",
        ".flv",
        ".ogv",
        ".3gp",
        ".ts",
    )
)
FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,mpeg,mpegts,mpegvideo,asf,flv,ogg"
"""Containers that FFmpeg may recognise, whatever the file is called; none of them refers to
other files."""
OPENING = 20.0
"""Maximum number of seconds for opening a file."""


class UnreadableError(SampleError):
    """A video that gives no clip; other videos may."""


@dataclass(frozen=True, kw_only=True)
class VideoFolder(Checked):
    """Videos in folders, or listed in labels.csv."""

    path: str = ""
    """The folder."""
    frames: Annotated[int, Range("[1, 10000]")] = 16
    """Frames of a clip."""
    stride: Count = 2
    """Distance of a clip's frames in the video; 1 takes consecutive frames."""
    clips: Annotated[int, Range("[1, 10000]")] = 1
    """Number of clips of each video, at even distances; each is a separate sample."""
    size: Annotated[int, Range(f"[0, {MOST_SIDE}]")] = 112
    """Resize the shorter side to this many pixels and crop the centre; 0 keeps the frames
    unchanged, which must have one size.
    """

    def __call__(self) -> Dataset:
        """List the folder.

        Nothing is decoded yet, except that size=0 takes the size of the first video that opens.
        """
        import_av()
        folder = existing_path(self.path, "folder", "video-folder:DIR")
        listing = listing_of(folder, SUFFIXES, "videos", "videos")
        sides = (self.size, self.size) if self.size else _first_size(listing.files)
        domain = Domain(kind="video", shape=(3, self.frames, *sides), levels=256)

        clips = _Clips(listing.files, domain.shape, self)
        settings = f"{domain.text()} {self.frames} {self.stride} {self.clips} {self.size}"
        return StoredArrays(
            name=folder.resolve().name,
            x=clips,
            y=np.repeat(listing.labels, self.clips),
            domain=domain,
            classes=listing.classes,
            divisor=255.0,
            info=DataInfo(unreadable=clips.unreadable),
            digest=lambda: digest_of(settings, [listing.labels], listing.files),
        )


def import_av() -> Any:
    """PyAV, imported on demand; refuses if it is not installed."""
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise RequestError(
            f"video-folder needs PyAV ({error}): pip install 'brinell[video]'"
        ) from None


class _Clips(LazyRows):
    """(n, 3, frames, height, width) uint8: clips of each video, one video after another."""

    def __init__(
        self, files: Sequence[Path], shape: tuple[int, ...], settings: VideoFolder
    ) -> None:
        super().__init__(len(files) * settings.clips, shape, np.dtype(np.uint8))
        self._files, self._settings = files, settings
        self._clips: dict[int, Array] = {}
        self._failures: dict[int, str] = {}

    def unreadable(self, indices: Sequence[int]) -> dict[int, str]:
        """The unreadable ones of these samples, each with the reason in one line.

        Samples that were not decoded before are decoded now.
        """
        for index in indices:
            with suppress(UnreadableError):
                self.row(index)
        return {index: self._failures[index] for index in indices if index in self._failures}

    def row(self, index: int) -> Array:
        """(3, frames, height, width): one clip; raises SampleError if the video cannot be read."""
        if index in self._failures:
            raise UnreadableError(self._failures[index])
        if index not in self._clips:
            try:
                self._clips[index] = self._read(self._files[index // self._settings.clips], index)
            except UnreadableError as error:
                self._failures[index] = str(error)
                raise
        return self._clips[index]

    def _read(self, file: Path, index: int) -> Array:
        """(3, frames, height, width) uint8: the frames of one clip."""
        # Packets are the frames of most formats, and far cheaper to count than to decode.
        with _open_video(file) as container:
            count = sum(1 for packet in container.demux(container.streams.video[0]) if packet.size)

        # A second time where the file promises more frames than it holds.
        for _ in range(2):
            frame_numbers, count, frames = self._frame_numbers(file, count, index), 0, list[Array]()
            for count, frame in enumerate(_decode(file), 1):
                if count - 1 in frame_numbers:
                    frames.append(self._pixels(frame, file))
                if len(frames) == len(frame_numbers):
                    return np.ascontiguousarray(np.stack(frames).transpose(3, 0, 1, 2))
        raise UnreadableError(f"{file} changes while it is read: leave the folder alone")

    def _frame_numbers(self, file: Path, count: int, index: int) -> range:
        """The frames of a clip, in a video of so many frames."""
        settings = self._settings
        span = (settings.frames - 1) * settings.stride + 1
        latest = count - span
        if latest < 0:
            raise UnreadableError(
                f"{file} has {count} frames, and a clip of {settings.frames} "
                f"frames at stride {settings.stride} needs {span}; "
                "take fewer frames, a smaller stride, or leave it out"
            )
        # Middle of the clip's part of the video, of `clips` equal parts.
        start = latest * (2 * (index % settings.clips) + 1) // (2 * settings.clips)
        return range(start, start + span, settings.stride)

    def _pixels(self, frame: Any, file: Path) -> Array:
        """(height, width, 3) uint8."""
        height, width = self.shape[-2:]
        pixels: Array = frame.to_ndarray(format="rgb24")
        if self._settings.size:
            return np.asarray(crop_centre(Image.fromarray(pixels), height))
        if pixels.shape[:2] != (height, width):
            raise RequestError(
                f"{file} is {pixels.shape[1]} x {pixels.shape[0]} and another "
                f"video {width} x {height}: bring them to one size "
                "with the option size=112 (shorter side, then centre crop)"
            )
        return pixels


@contextmanager
def _open_video(file: Path) -> Iterator[Any]:
    """The file as a container of videos of bounded size. It may not refer to another file."""
    av = import_av()
    options = {"protocol_whitelist": "file", "format_whitelist": FORMATS}
    try:
        if not file.is_file():
            raise UnreadableError(f"{file} is no regular file: take it out")
        with av.open(str(file), options=options, timeout=OPENING) as container:
            if not container.streams.video:
                raise UnreadableError(f"{file} holds no video: take it out")
            codec = container.streams.video[0].codec_context
            # Before a frame is decoded, which would take so much memory.
            if (codec.width or 0) * (codec.height or 0) > MOST_PIXELS:
                raise UnreadableError(
                    f"{file} says that it is {codec.width} x {codec.height}, more "
                    "than any video: take it out"
                )
            yield container

    except (av.FFmpegError, OSError, ValueError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableError(
            f"{file} does not decode ({reason}): fetch it again, or take it out"
        ) from None


def _decode(file: Path) -> Iterator[Any]:
    """The frames of a video in order."""
    with _open_video(file) as container:
        for frame in container.decode(container.streams.video[0]):
            if frame.is_corrupt:
                raise UnreadableError(f"{file} is damaged within: fetch it again, or take it out")
            yield frame


def _first_size(files: Sequence[Path]) -> tuple[int, int]:
    """Height and width of the first video that decodes."""
    for file in files:
        with suppress(UnreadableError, StopIteration):
            frame = next(_decode(file))
            return frame.height, frame.width
    raise RequestError(f"{files[0]} does not decode, and no other video does: fetch them again")
