"""The synthetic corruptions: what each does, by hand, on pictures of random shapes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell import plugins
from brinell.core.streams import Streams
from brinell.distortions._shared import suite_of
from brinell.distortions._synthetic import CORNERS, INNER, cell_means, cells, drawn, inside, turned
from brinell.distortions.synthetic_glitched import BANDS, Glitched
from brinell.distortions.synthetic_mosaic import Mosaic
from brinell.distortions.synthetic_vertical_lines import FILLED

NAMES = [name for name in plugins.names("distortion") if suite_of(plugins.build("distortion", name, {})) == "synthetic"]
SHAPES = st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(1, 40), st.integers(1, 40))


def distort_with(name, x, parameter, seed=0):
    distortion = plugins.build("distortion", f"synthetic-{name}", {})
    return distortion.distort(x, torch.full((len(x),), float(parameter)), Streams.of(seed, torch.arange(len(x))))


def pictures(*shape, n=4, seed=0):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


def test_the_list_is_that_of_the_paper():
    kinds = ("geometric-shapes", "glitched", "luminance-checkerboard", "mosaic", "stickers", "vertical-lines")
    assert [f"synthetic-{kind}" for kind in kinds] == sorted(NAMES)
    suites = {suite_of(plugins.build("distortion", name, {})) for name in plugins.names("distortion")}
    assert suites == {"calibrated", "published", "synthetic"} and suite_of(object()) == "calibrated"


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(shape=SHAPES, severity=st.integers(1, 5), seed=st.integers(0, 2**31), level=st.sampled_from([0.0, 0.5, 1.0, None]))
def test_any_picture_by_itself(name, shape, severity, seed, level):
    x = pictures(*shape, seed=seed) if level is None else torch.full((4, *shape), level)
    distortion, levels, draw = (
        plugins.build("distortion", name, {}),
        torch.full((4,), severity),
        torch.zeros(4, dtype=torch.int64),
    )
    rng = Streams.of(seed, torch.arange(4))
    out = distortion(x, levels, rng, draw)
    assert out.shape == x.shape and out.dtype == x.dtype and out.min() >= 0 and out.max() <= 1
    assert torch.equal(out, distortion(x, levels, rng, draw)), "the stream decides, and nothing else"
    rows = torch.tensor([2, 0])
    assert torch.allclose(distortion(x[rows], levels[:2], rng.select(rows), draw[:2]), out[rows], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, side=st.floats(1, 50))
def test_a_mosaic_keeps_the_mean_of_every_tile(shape, side):
    x = pictures(*shape)
    out = distort_with("mosaic", x, side)
    (rows, down), (columns, right) = (cells(length, side, x.device) for length in shape[1:])
    assert down == min(shape[1], max(1, round(shape[1] / side)))
    index = (rows[:, None] * right + columns)[None]
    assert torch.allclose(cell_means(out, index, down * right), cell_means(x, index, down * right), atol=1e-5)
    if side == 1:
        assert torch.allclose(out, x, atol=1e-6), "a tile of one pixel is its own mean"


def test_a_mosaic_replaces_what_is_in_a_tile():
    x = pictures(3, 24, 24)
    flat = x.reshape(4, 3, 4, 6, 4, 6).mean((3, 5), keepdim=True).expand(4, 3, 4, 6, 4, 6).reshape(x.shape)
    assert torch.allclose(distort_with("mosaic", x, 6), distort_with("mosaic", flat, 6), atol=1e-5)
    for level in (0.0, 1.0):
        assert torch.equal(distort_with("mosaic", torch.full((1, 3, 24, 24), level), 6), torch.full((1, 3, 24, 24), level))
    grey = distort_with("mosaic", torch.full((4, 3, 24, 24), 0.5), 6) - 0.5
    assert grey.abs().amax() <= 0.5 and grey.std() > 0.05
    assert len(Mosaic.scale.small) == 5


@settings(max_examples=30, deadline=None)
@given(shape=SHAPES, distance=st.floats(1, 20), level=st.floats(0.1, 1))
def test_lines_over_one_colour_are_that_colour_between_black_gaps(shape, distance, level):
    out = distort_with("vertical-lines", torch.full((2, *shape), level), distance)
    assert float(out.max()) <= level + 1e-6 and float(out.min()) >= -1e-6
    # On the whole, black takes 1 - FILLED of the width.
    large = distort_with("vertical-lines", torch.full((2, 1, 8, 600), level), distance)
    assert float(large.mean()) == pytest.approx(FILLED * level, rel=0.06)


def test_pieces_of_lines_have_one_colour():
    out = distort_with("vertical-lines", pictures(1, 60, 60, n=1), 10.0)[0, 0]
    bright = out[out > 0]
    values = bright.mul(1e5).round().unique(return_counts=True)[1]
    # Pieces are 8 by 20 pixels. Pixels at seams are darker, and those inside one piece equal.
    assert int(values.sort(descending=True).values[:20].sum()) > 0.6 * 60 * 60 and len(values) < 60 * 60


@settings(max_examples=40, deadline=None)
@given(shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 40), st.integers(2, 40)), share=st.floats(0, 1))
def test_a_glitch_moves_whole_bands_and_nothing_else(shape, share):
    column = torch.arange(shape[2]) / shape[2]
    x = column.expand(2, *shape).contiguous()
    out = distort_with("glitched", x, share)
    bands = min(BANDS, shape[1])
    hit = (out != x).any(1).any(2)
    band = torch.arange(shape[1]) * bands // shape[1]
    for picture in hit:
        assert len(set(band[picture].tolist())) <= max(1, round(share * bands)), "no more bands than the share"
    # Below the stripe a shifted row holds the same values in another order.
    last = torch.tensor([int((band == number).nonzero()[-1, 0]) for number in range(bands)])
    tall = last[[int((band == number).sum()) > 1 for number in range(bands)]]
    assert torch.equal(out[:, :, tall].sort(-1).values, x[:, :, tall].sort(-1).values)


def test_a_glitch_takes_channels_apart():
    x = (torch.arange(40) / 40).expand(1, 3, 32, 40).contiguous()
    rows = distort_with("glitched", x, 1.0)[0, :, 1::2]  # every band of two rows has its stripe on the first
    shifts = (rows[..., 0] * 40).round().long()  # where the first column came from
    assert torch.equal((shifts[1] - shifts[2]) % 40, torch.full((16,), 2)), "5 % of 40 pixels"
    assert torch.equal((shifts[0] - shifts[1]) % 40, torch.full((16,), 2))
    assert Glitched.scale.small[0] == 1 / 16


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, share=st.floats(0, 1), level=st.floats(0, 1))
def test_fields_of_the_checkerboard_move_by_half_to_all_of_the_share(shape, share, level):
    out = distort_with("luminance-checkerboard", torch.full((2, *shape), level), share)
    up, down = out[out > level + 1e-6] - level, level - out[out < level - 1e-6]
    for change, room in ((up, 1 - level), (down, level)):
        if len(change) and room > 1e-3:
            assert float(change.max()) <= share * room + 1e-5 and float(change.min()) >= share * room / 2 - 1e-5


def test_neighbouring_fields_of_the_checkerboard_differ():
    # Five fields of eight pixels along a side; those at the edge are cut.
    out = distort_with("luminance-checkerboard", torch.full((3, 1, 40, 40), 0.5), 0.5)[:, 0]
    for picture in (out > 0.5).long():
        edges = (picture.diff(dim=1) != 0).nonzero()[:, 1].unique()
        assert torch.equal(edges.diff(), torch.full((len(edges) - 1,), 8)) and len(edges) in (4, 5)
        assert torch.equal(picture[:, :32], 1 - picture[:, 8:]) and torch.equal(picture[:32], 1 - picture[8:])


def test_every_outline_has_area_one(subtests):
    for corners in CORNERS:
        with subtests.test(corners=corners):
            grid = (torch.arange(1600) + 0.5) / 1600 * 4 - 2
            shape = inside(torch.tensor(corners), grid[None, :], grid[:, None])
            assert float(shape.double().mean() * 16) == pytest.approx(1, rel=0.005)
            # The farthest point: the corner of a polygon of area 1, the tip of a star, the rim of a disc.
            farthest = float(torch.hypot(grid[None, :], grid[:, None])[shape].max())
            tips = {3: (1.5 * math.sin(2 * math.pi / 3)) ** -0.5, 4: 0.5**0.5, 5: (5 * INNER * math.sin(math.pi / 5)) ** -0.5}
            assert farthest == pytest.approx(tips.get(corners, math.pi**-0.5), abs=0.01)


@pytest.mark.parametrize(("name", "count"), [("geometric-shapes", 24), ("stickers", 8)])
@pytest.mark.parametrize("shape", [(1, 60, 60), (3, 40, 90)], ids=str)
def test_what_is_hidden_has_the_area_that_was_asked_for(name, count, shape):
    x = torch.full((60, *shape), -1.0)  # no colour is negative
    hidden = (distort_with(name, x, 0.05) >= 0).all(1)
    # Some overlap, and some stick out.
    share = float(hidden.float().mean())
    assert 0.035 < share < 0.05
    assert torch.equal(distort_with(name, x, 0.0), x) or float((distort_with(name, x, 0.0) >= 0).float().mean()) < 1e-3
    less, more = ((distort_with(name, x, area) >= 0).all(1) for area in (0.02, 0.2))
    assert float(less.float().mean()) < share < float(more.float().mean()) and count > 0


def test_a_sticker_has_a_white_rim():
    x = torch.zeros(1, 3, 200, 200)
    out = distort_with("stickers", x, 0.1)[0]
    white, hidden = (out == 1).all(0), (out > 0).any(0)
    edge = hidden & ((torch.roll(~hidden, 1, 0)) | (torch.roll(~hidden, 1, 1)))
    assert float(white[edge].float().mean()) > 0.85 and float(white[hidden].float().mean()) < 0.6


def test_drawn_pictures_by_hand():
    numbers = torch.tensor([[0.2, 0.6, 0.9, 0.5, 0.5, 0.0]])  # one channel, a disc of radius 0.15 in the middle
    right, down = torch.tensor([0.0, 0.5, 1.0, 1.0]), torch.tensor([0.0, 0.5, 1.0, 0.0])
    assert torch.allclose(drawn(numbers, right, down)[:, 0], torch.tensor([0.2, 0.9, 0.6, 0.4]))


def test_places_are_shares_of_the_picture():
    right, down = turned(torch.tensor([[0.25, 0.5, 0.0]]), torch.tensor([1.0]), torch.zeros(1, 1, 40, 10))
    # The middle is at row 10 and column 5, and the unit the side of a square as large as the picture: 20.
    assert float(right[0, 10, 5]) == pytest.approx(0.5 / 20) and float(down[0, 10, 5]) == pytest.approx(0.5 / 20)
