"""Adversarial examples of a report: which are shown, what stands beside them, and their pictures,
decoded again.
"""

import base64
import io
import re
from types import SimpleNamespace

import numpy as np
from PIL import Image

from _helpers import draw_closest
from brinell.analysis.masks import PlacedDistortion, PlacedDistortions
from brinell.reports import examples as shown
from brinell.reports import pictures
from brinell.store.run import Run

DOMAIN = {
    "columns": [
        ["age", 0.0, 100.0, False, []],
        ["<b>", -1.0, 1.0, False, []],
        ["job", 0.0, 1.0, True, ["cook"]],
    ]
}
COLOURS = {"blur": (10, 20, 30), "fog": (200, 100, 0)}
STANDING = tuple(
    PlacedDistortion(patch=p, distortion=d, severity=s)
    for p, d, s in ((0, "fog", 1), (3, "blur", 4), (1, "fog", 3))
)
PLACEMENT = PlacedDistortions.on({"shape": (4, 4), "patch": (2, 2), "stride": (2, 2)}, STANDING)


def images(markup: str) -> list[np.ndarray]:
    """The pictures in a piece of a page."""
    encoded = re.findall(r'src="data:image/\w+;base64,([^"]+)"', markup)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in encoded]


def test_an_example_says_what_its_record_says(make):
    """Of all the attacks on a sample the closest input counts."""
    distances = np.full((2, 24), np.inf)
    distances[0, [4, 8, 12]] = 0.25, 0.05, 0.1
    distances[1, 6] = 0.2
    run = Run.open(make({"net": distances}, np.arange(24) % 3, [0.1, 0.3], ["ant", "bee", "cow"]))
    examples = draw_closest(run, "net")
    assert {sample: example.caption for sample, example in examples.items()} == {
        8: "Sample 8, true class cow: broken within 26/255 by apgd-ce; Linf 0.05",
        12: "Sample 12, true class ant: broken within 26/255 by apgd-ce; Linf 0.1",
        4: "Sample 4, true class bee: broken within 76/255 by apgd-ce; Linf 0.25",
        6: "Sample 6, true class ant: broken within 76/255 by apgd-dlr; Linf 0.2",
    }
    views = examples[8].pictures
    texts = [view.caption.replace("\u00a0", " ") for view in views]
    assert texts == ["cow, 90 % sure", "perturbation × 5", "ant, 60 % sure"]
    clean, adversarial = (
        run.clean()[8].astype(np.float64),
        run.adversarial("net", "apgd-ce", [8])[8].astype(np.float64),
    )
    for view, values in zip(
        views, (clean, 0.5 + 5 * (adversarial - clean), adversarial), strict=True
    ):
        assert np.array_equal(images(view.image)[0], np.rint(255 * values[0]))


def test_every_kind_of_input_has_its_views(make):
    for kind, shape, views in (
        ("signal", (2, 300), 2),
        ("vector", (12,), 3),
        ("video", (3, 5, 20, 30), 3),
        ("image", (4, 9, 9), 3),
    ):
        run = Run.open(
            make(
                {"net": np.full((2, 6), 0.05)},
                np.arange(6) % 2,
                [0.1],
                ["a", "b"],
                kind=kind,
                shape=shape,
            )
        )
        examples = draw_closest(run, "net")
        assert sorted(examples) == [0, 2, 4]
        for example in examples.values():
            assert len(example.pictures) == views and ("touched: " in example.caption) == (
                kind == "signal"
            )
            assert all(view.image for view in example.pictures)


def test_pictures_decoded():
    x = np.random.default_rng(0).uniform(-1, 3, (3, 5, 4))
    grey = pictures.picture(x[:2], "image", -1.0, 3.0, title="a <b>")
    colours = images(pictures.picture(x, "image", -1.0, 3.0, title=""))[0]
    assert np.array_equal(colours, np.rint((x + 1) / 4 * 255).transpose(1, 2, 0))
    assert (
        np.array_equal(images(grey)[0], np.rint(((x[:2] + 1) / 4 * 255).mean(0)))
        and 'alt="a &lt;b&gt;"' in grey
    )
    assert images(pictures.picture(np.zeros((3, 224, 100)), "image", 0, 1, title="t"))[0].shape == (
        112,
        50,
        3,
    )
    values = [[0.025], [-8 / 255], [0.9], [0.0], [1e-9], [0.25], [0.2501], [0.05]]
    assert [pictures.amplification(np.array(value), 1.0) for value in values] == [
        20,
        10,
        1,
        1,
        50_000,
        2,
        1,
        10,
    ]


def test_columns_that_moved_in_their_own_units_the_farthest_first():
    views = shown.changes(DOMAIN, np.array([0.2, 0.5, 3.0]), np.array([0.25, 0.25, 3.0]))
    assert [re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", view) for view in views] == [
        [("&lt;b&gt;", "0"), ("age", "20")],
        [("&lt;b&gt;", "-0.5"), ("age", "+5")],
        [("&lt;b&gt;", "-0.5"), ("age", "25")],
    ]
    domain = {"columns": [[str(index), 0.0, 1.0, False, []] for index in range(9)]}
    first = shown.changes(domain, np.zeros(9), np.arange(9) / 9)[0]
    assert (
        first.count("<dd>") == 5
        and first.endswith("<dt>and 3 more</dt></dl>")
        and "<dt>8</dt>" in first
    )


def test_masks_by_hand():
    """The clean picture is faded to 0.62 + 0.45 (x - 1/2); each patch is its colour by 45 % at
    severity 1 to 85 % at 5.
    """
    (pixels,) = images(shown.draw_mask(PLACEMENT, np.full((2, 4, 4), 1.0), COLOURS, -1.0, 3.0))
    for (row, column), (distortion, density) in {
        (0, 0): ("fog", 0.45),
        (3, 2): ("blur", 0.75),
        (1, 3): ("fog", 0.65),
    }.items():
        expected = [(1 - density) * 255 * 0.62 + density * part for part in COLOURS[distortion]]
        assert np.allclose(pixels[row, column], expected, atol=0.51), (row, column)
    assert np.allclose(pixels[2:, :2], 255 * 0.62, atol=0.51)
    fog = PlacedDistortion(patch=1, distortion="fog", severity=5)
    video = PlacedDistortions.on(
        {"shape": (3, 2, 2), "patch": (1, 2, 2), "stride": (1, 2, 2)}, (fog,)
    )
    assert "1 patch, frame 2" in shown.draw_mask(video, np.zeros((3, 3, 2, 2)), COLOURS, 0.0, 1.0)
    assert shown.draw_mask(PLACEMENT, np.zeros(4), COLOURS, 0.0, 1.0) is None
    spans = PlacedDistortions.on({"shape": (10,), "patch": (2,), "stride": (2,)}, (fog,))
    markup = shown.draw_mask(spans, np.arange(10.0)[None], COLOURS, 0.0, 1.0)
    (start, width, text) = re.search(
        r'<rect fill="rgb.*?x="(.*?)" y=".*?" width="(.*?)".*?<title>(.*?)<', markup
    ).groups()
    left, right = map(float, re.search(r'class="axis" x1="(.*?)" x2="(.*?)"', markup).groups())
    step = (right - left) / 9
    assert text == "fog, severity 5" and np.allclose(
        [float(start), float(width)], [left + 1.5 * step, 2 * step], atol=0.1
    )


def test_what_a_mask_costs():
    def cost(distance: str, l2: float, queries: int | None) -> tuple[list, str]:
        column = np.ma.MaskedArray([queries or 0], mask=[queries is None])
        records = SimpleNamespace(l2=np.array([l2]), queries_to_success=column)
        run = SimpleNamespace(
            manifest={"distance": distance, "data": {"domain": {"low": 0.0, "high": 1.0}}}
        )
        _, legend, text = shown._mask(run, records, 0, PLACEMENT, np.zeros(4), COLOURS)
        return legend, text.replace("\u00a0", " ")

    head = "3 of 4 patches, 75.0 % of the input"
    assert cost("l2", 2.0, 12)[1] == f"{head}; 12 queries to the first success"
    assert cost("l2", 1.0, 1)[1] == f"{head}; 1 query to the first success"
    assert cost("linf", 0.5, None)[1] == f"{head}; L2 0.5"
    legend = [(key, text.replace("\u2060", "")) for key, text in cost("linf", 0.5, None)[0]]
    assert legend == [
        ("rgb(200, 100, 0)", "fog on 2 patches, severity 1–3"),
        ("rgb(10, 20, 30)", "blur on 1 patch, severity 4"),
    ]
