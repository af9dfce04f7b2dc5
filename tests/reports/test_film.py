"""Videos on the page: which frames stand there, what is marked, and how much it weighs."""

import base64
import io
import re

import numpy as np
from PIL import Image

from brinell.reports import film as filmstrip
from brinell.reports.film import film
from brinell.reports.pictures import picture


def video(frames: int = 10, side: int = 12, channels: int = 3) -> np.ndarray:
    """Every frame of one shade of its own: its number as a share of the number of frames."""
    return np.broadcast_to(
        (np.arange(frames) / frames)[None, :, None, None], (channels, frames, side, side)
    ).copy()


def images(html: str) -> list[Image.Image]:
    encoded_images = re.findall(r'src="data:image/(?:png|webp);base64,([^"]+)"', html)
    return [Image.open(io.BytesIO(base64.b64decode(encoded))) for encoded in encoded_images]


def test_a_strip_holds_a_frame_of_each_quarter() -> None:
    html = picture(video(), "video", 0, 1, title="a <hand>")
    (strip,) = images(html)
    assert strip.size == (4 * 12 + 3, 12)
    shades = [strip.getpixel((13 * level + 5, 5))[0] for level in range(4)]
    assert shades == [round(255 * level / 10) for level in (0, 3, 6, 8)]
    assert "a &lt;hand&gt;, frames 1, 4, 7, 9 of 10" in html and "<hand>" not in html


def test_touched_places_are_surrounded_by_a_line() -> None:
    clean = video()
    changed = clean.copy()
    changed[1, 3, 2:8, 4:10] += 0.3  # one channel, one frame
    changed[:, 0] += 0.01  # hardly seen
    (strip,) = images(film(changed, 0, 1, title="", clean=clean))
    marked = (np.asarray(strip.convert("RGB")) == filmstrip.MARK).all(2)
    assert not marked[:, :13].any() and not marked[:, 26:].any()
    line = np.zeros((12, 12), bool)
    line[2:8, 4:10] = True
    line[3:7, 5:9] = False
    assert np.array_equal(marked[:, 13:25], line)
    (fully_changed,) = images(film(clean * 0 + 1, 0, 1, title="", clean=clean * 0))
    edge = (np.asarray(fully_changed.convert("RGB"))[:, :12] == filmstrip.MARK).all(2)
    assert edge[0].all() and edge[:, 0].all() and not edge[1:-1, 1:-1].any(), (
        "a frame that changed all over"
    )


def test_the_frames_that_changed_most_are_shown() -> None:
    clean = video()
    changed = clean.copy()
    changed[0, 1, 3, 3] += 0.2
    changed[2, 2, 3, 3] -= 0.4
    changed[:, 9] += 0.01
    change = np.square(changed - clean).sum((0, 2, 3))
    assert filmstrip.frames_to_show(change) == [2, 3, 6, 9], "of three, three, two and two frames"
    (strip,) = images(film(changed, 0, 1, title="", frames=(2, 9)))
    assert strip.size == (25, 12) and strip.getpixel((20, 5))[0] == round(255 * 0.91)


def test_numbers_of_frames() -> None:
    for frames, shown in ((1, 1), (3, 3), (16, 4), (50, 4)):
        (strip,) = images(picture(video(frames), "video", 0, 1, title=""))
        assert strip.width == 12 * shown + shown - 1


def test_other_bounds_channels_and_sizes() -> None:
    (grey,) = images(picture(video(channels=1) * 4 - 2, "video", -2, 2, title=""))
    assert grey.getpixel((13 + 5, 5)) == (round(255 * 0.3),) * 3
    large = np.zeros((3, 5, 200, 100))
    (strip,) = images(picture(large, "video", 0, 1, title=""))
    assert strip.size == (4 * 48 + 3, 96)


def test_a_page_of_films_stays_small() -> None:
    """Even of noise, which does not compress: the three films of each of six examples are 4 MB."""
    noise = np.random.default_rng(0).random((3, 16, 200, 200))
    assert 6 * 3 * len(film(noise, 0, 1, title="")) < 4e6
