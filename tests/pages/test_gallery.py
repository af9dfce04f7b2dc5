"""Examples on the page: which are shown, what stands beside them, and their pictures, decoded again."""

import base64
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from brinell.analysis.masks import Lattice, Placement, Standing
from brinell.pages import gallery, html
from brinell.pages.gallery import changes
from brinell.reports import film as filmstrip
from brinell.reports import pictures
from brinell.store.run import Run

DOMAIN = {"columns": [["age", 0.0, 100.0, False, []], ["<b>", -1.0, 1.0, False, []], ["job", 0.0, 1.0, True, ["cook"]]]}


def images(markup: str) -> list[np.ndarray]:
    """The pictures in a piece of a page."""
    encoded = re.findall(r'src="data:image/\w+;base64,([^"]+)"', markup)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in encoded]


def test_round_after_round_the_closest_of_every_class():
    """Property against a naive choice."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 20))
        rows = SimpleNamespace(
            sample_id=rng.permutation(n), broken=rng.integers(1, 4, n) / 4, label=rng.integers(0, 3, n), n=n
        )  # fmt: skip
        order = sorted(range(n), key=lambda row: (rows.broken[row], rows.sample_id[row]))
        expected: list[int] = []
        queues = {
            label: [row for row in order if rows.label[row] == label] for label in dict.fromkeys(rows.label[order].tolist())
        }
        while any(queues.values()):
            expected += [queue.pop(0) for queue in queues.values() if queue]
        assert gallery._select_rows(rows, 7) == expected[:7], seed


def test_the_closest_example_of_each_sample(synthetic):
    labels = np.arange(30) % 3
    rng = np.random.default_rng(0)
    breaks = rng.random((2, 30)) * 0.5
    rows = synthetic.join(*(synthetic.records(name, labels, [0.1, 0.3], breaks, classes=3) for name in ("a", "b")))
    rows_chosen = gallery._closest(rows, "b", "linf")
    fooled = [row for row in range(len(rows)) if rows.model[row] == "b" and rows.outcome[row] == "broken"]
    by_sample: dict[int, list[int]] = {}
    for row in fooled:
        by_sample.setdefault(int(rows.sample_id[row]), []).append(row)
    expected = [min(group, key=lambda row: (rows.linf[row], rows.broken[row])) for _, group in sorted(by_sample.items())]
    assert rows_chosen.tolist() == expected and len(expected) > 10


def test_an_example_says_what_its_record_says(make):
    """Of three classes one sample each is shown first; sample 8 breaks at 0.05 and was kept."""
    distances = np.full((2, 24), np.inf)
    distances[0, [4, 8, 12]] = 0.25, 0.05, 0.1
    distances[1, 6] = 0.2
    labels = np.arange(24) % 3
    run = Run.open(make({"net": distances}, labels, [0.1, 0.3], ["ant", "bee", "cow"]))
    examples = gallery.gallery(run, run.records(), "net")
    assert [(e.sample_id, e.attack, e.eps, e.label, e.clean_pred, e.adv_pred) for e in examples] == [
        (8, "apgd-ce", "26/255", "cow", "cow", "ant"),
        (12, "apgd-ce", "26/255", "ant", "ant", "bee"),
        (4, "apgd-ce", "76/255", "bee", "bee", "cow"),
        (6, "apgd-dlr", "76/255", "ant", "ant", "bee"),
    ]
    assert [round(e.distance, 4) for e in examples] == [0.05, 0.1, 0.25, 0.2]
    assert {(round(e.clean_confidence, 4), round(e.adv_confidence, 4)) for e in examples} == {(0.9, 0.6)}
    clean, adversarial = run.clean()[8], run.adversarial("net", "apgd-ce", [8])[8]
    assert np.array_equal(images(examples[0].clean)[0], np.rint(255 * clean[0].astype(np.float64)))
    assert np.array_equal(images(examples[0].adversarial)[0], np.rint(255 * adversarial[0].astype(np.float64)))
    delta = adversarial.astype(np.float64) - clean
    assert examples[0].amplification == 5 and np.abs(delta).max() * 5 <= 0.5 < np.abs(delta).max() * 10
    assert np.array_equal(images(examples[0].perturbation)[0], np.rint(255 * (0.5 + 5 * delta[0])))
    for view, title in (("clean", "sample 8, clean, cow"), ("perturbation", "perturbation enlarged 5 times"),
                        ("adversarial", "adversarial, taken for ant")):  # fmt: skip
        assert f'alt="{title}"' in getattr(examples[0], view)
    (run.path / "explain").mkdir()
    (run.path / "explain" / "report.html").write_text('<b id="sample-8"></b>')
    assert [e.explained for e in gallery.gallery(run, run.records(), "net")] == ["explain/report.html#sample-8", "", "", ""]


def test_how_many_examples_fit_a_page(make, tmp_path):
    for shape, models, number in (((1, 8, 8), 1, 12), ((1, 8, 8), 4, 9), ((3, 112, 112), 1, 6), ((3, 128, 112), 9, 3)):
        """Twelve a model, thirty-six in all, a million bytes of pixels, three at least, in rows of three."""
        run = Run.open(make({"net": np.full((2, 30), 0.05)}, np.arange(30) % 3, [0.1], ["a", "b", "c"], shape=shape))
        assert len(gallery.gallery(run, run.records(), "net", models=models)) == number


def test_pictures_decoded():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 3, (3, 5, 4))
    grey = pictures.picture(x[:2], "image", -1.0, 3.0, title="a <b>")
    assert np.array_equal(
        images(pictures.picture(x, "image", -1.0, 3.0, title=""))[0], np.rint((x + 1) / 4 * 255).transpose(1, 2, 0)
    )
    assert np.array_equal(images(grey)[0], np.rint(((x[:2] + 1) / 4 * 255).mean(0))) and 'alt="a &lt;b&gt;"' in grey
    assert images(pictures.picture(x, "image", 0.0, 1.0, title=""))[0].min() == 0
    assert 'class="thumb tiny"' in grey and 'class="thumb"' in pictures.picture(np.zeros((3, 224, 224)), "image", 0, 1, title="t")
    assert images(pictures.picture(np.zeros((3, 224, 100)), "image", 0, 1, title="t"))[0].shape == (112, 50, 3)
    lines = re.findall(
        r'<polyline class="line (s\d)" points="([^"]+)"', pictures.picture(np.eye(4)[None, :, :3][0], "signal", 0, 1, title="")
    )
    assert [style for style, _ in lines] == ["s0", "s1", "s2"]
    assert lines[1][1] == "4.0,86.0 90.0,4.0 176.0,86.0"
    assert pictures.picture(np.zeros(5), "vector", 0.0, 1.0, title="t").count("<polyline") == 1


def test_amplification_is_round_and_fits():
    values = [[0.025], [-8 / 255], [0.9], [0.0], [1e-9], [0.25], [0.2501], [0.05]]
    assert [pictures.amplification(np.array(value), 1.0) for value in values] == [20, 10, 1, 1, 50_000, 2, 1, 10]
    assert pictures.amplification(np.array([0.25]), 4.0) == 5


def test_channels_that_may_not_change_are_told_apart():
    domain = {"columns": [["a", 0, 1, False, []], ["b", 0, 1, True, []], ["c", 0, 1, False, []], ["d", 0, 1, True, []]]}
    x = np.arange(8.0).reshape(4, 2)
    assert gallery.movable(domain, x).tolist() == [[0, 1], [4, 5]] and gallery.fixed(domain, x) == "b 2.5, d 6.5"
    assert gallery.fixed({}, x) == ""


def test_columns_that_moved_in_their_own_units_the_farthest_first():
    listing = changes(DOMAIN, np.array([0.2, 0.5, 3.0]), np.array([0.25, 0.25, 3.0]))
    views = {view: re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text) for view, text in listing.items()}
    assert views == {
        "clean": [("&lt;b&gt;", "0"), ("age", "20")],
        "perturbation": [("&lt;b&gt;", "-0.5"), ("age", "+5")],
        "adversarial": [("&lt;b&gt;", "-0.5"), ("age", "25")],
    }
    domain = {"columns": [[str(index), 0.0, 1.0, False, []] for index in range(9)]}
    short_list = changes(domain, np.zeros(9), np.arange(9) / 9)["clean"]
    assert short_list.count("<dd>") == 5 and short_list.endswith("<dt>and 3 more</dt></dl>") and "<dt>8</dt>" in short_list
    assert "more" not in changes(domain, np.zeros(9), np.arange(9) // 4 / 9)["clean"]


LATTICE = Lattice(lengths=(4, 4), patch=(2, 2), stride=(2, 2))
STANDING = (Standing(patch=0, distortion="fog", severity=1, draw=0), Standing(patch=3, distortion="blur", severity=4, draw=0),
          Standing(patch=1, distortion="fog", severity=3, draw=0))  # fmt: skip
COLOURS = {"blur": (10, 20, 30), "fog": (200, 100, 0)}


def test_masks_by_hand():
    """The clean picture is faded to 0.62 + 0.45 (x - 1/2); each patch is its colour by 45 % at severity 1 to 85 % at 5."""
    placement = Placement(lattice=LATTICE, standing=STANDING, length=2.0)
    clean = np.full((2, 4, 4), 1.0)
    (pixels,) = images(gallery._picture(placement, clean, COLOURS, -1.0, 3.0))
    grey = 255 * 0.62
    for (row, column), (distortion, density) in {(0, 0): ("fog", 0.45), (3, 2): ("blur", 0.75), (1, 3): ("fog", 0.65)}.items():
        expected = [(1 - density) * grey + density * part for part in COLOURS[distortion]]
        assert np.allclose(pixels[row, column], expected, atol=0.51), (row, column)
    assert np.allclose(pixels[2:, :2], grey, atol=0.51)
    assert np.allclose(images(gallery._picture(placement, clean * 3, COLOURS, -1.0, 3.0))[0][2, 0], 255 * 0.845, atol=0.51)
    video = Placement(lattice=Lattice(lengths=(3, 2, 2), patch=(1, 2, 2), stride=(1, 2, 2)), standing=(
        Standing(patch=1, distortion="fog", severity=5, draw=0),), length=1.0)  # fmt: skip
    markup = gallery._picture(video, np.zeros((3, 3, 2, 2)), COLOURS, 0.0, 1.0)
    assert "1 patches, frame 2" in markup and images(markup)[0].shape == (2, 2, 3)
    assert gallery._picture(placement, np.zeros(4), COLOURS, 0.0, 1.0) == ""


def test_spans_of_signals_by_hand():
    lattice = Lattice(lengths=(10,), patch=(2,), stride=(2,))
    standing = (Standing(patch=1, distortion="fog", severity=2, draw=0), Standing(patch=4, distortion="blur", severity=5, draw=0))
    placement = Placement(lattice=lattice, standing=standing, length=1.0)
    markup = gallery._picture(placement, np.arange(10.0)[None], COLOURS, 0.0, 1.0)
    rects = re.findall(
        r'<rect x="(.*?)" y="0" width="(.*?)" height="(.*?)" fill="rgb(.*?)" fill-opacity="(.*?)"><title>(.*?)<', markup
    )
    assert rects == [("36.0", "36.0", "90", "(200, 100, 0)", "0.28", "fog, severity 2"),
                     ("144.0", "36.0", "90", "(10, 20, 30)", "0.42", "blur, severity 5")]  # fmt: skip
    (line,) = re.findall(r'points="([^"]+)"', markup)
    assert line.split()[0] == "0.0,86.0" and line.split()[-1] == "180.0,4.0" and "distortions are placed, 2 patches" in markup


def test_what_a_mask_costs():
    def cost(distance: str, l2: float, queries: int | None, length: float = 2.0) -> str:
        column = np.ma.MaskedArray([0, queries or 0], mask=[True, queries is None])
        records = SimpleNamespace(l2=np.array([0.0, l2]), queries_to_success=column)
        run = SimpleNamespace(manifest={"distance": distance})
        placement = Placement(lattice=LATTICE, standing=STANDING, length=length)
        return gallery._cost(run, records, 1, placement).replace("\u00a0", " ")

    head = "3 of 4 patches, 75.0 % of the input"
    rows = [
        (cost("l2", 2.0, 12), f"{head}; 12 queries to the first success"),
        (cost("l2", 1.0, 1), f"{head}; at 50 % of its strength; 1 query to the first success"),
        (cost("l2", 1.98, None), f"{head}; at 99 % of its strength"),
        (cost("l2", 1.99, None), head),
        (cost("l2", 1.0, None, length=0.0), head),
        (cost("linf", 0.5, None), f"{head}; L2 0.5"),
    ]
    assert [row for row in rows if row[0] != row[1]] == []
    assert [gallery._severities(list(levels)) for levels in ((3, 3), (4, 2, 3))] == [
        "severity\u00a03",
        "severity\u00a02\u2060–\u20604",
    ]


def test_the_legend_of_a_mask():
    placement = Placement(lattice=LATTICE, standing=STANDING, length=2.0)
    run = SimpleNamespace(manifest={"distance": "linf", "data": {"domain": {"low": 0.0, "high": 1.0}}})
    records = SimpleNamespace(l2=np.array([0.5]), queries_to_success=np.ma.MaskedArray([3], mask=[False]))
    figure = (
        gallery._figure(run, records, 0, placement, np.zeros((1, 4, 4)), COLOURS).replace("\u00a0", " ").replace("\u2060", "")
    )
    keys = re.findall(r'background:rgb(.*?)"></i><b>(.*?)</b> (.*?)</li>', figure)
    assert keys == [("(200, 100, 0)", "fog", "on 2, severity 1–3"), ("(10, 20, 30)", "blur", "on 1, severity 4")]
    assert figure.startswith('<div class="mask"><img')
    assert gallery._figure(run, records, 0, placement, np.zeros(4), COLOURS).startswith('<div class="mask bare"><div>')


def test_how_films_are_weighed_and_moved():
    """Strips: half of four frames of three bytes a pixel, three times; two animations: a tenth of at most sixteen frames."""
    assert filmstrip.weight((3, 5, 20, 30)) == 3 * 4 * 1800 // 2 + 2 * 5 * 1800 // 10
    assert filmstrip.weight((1, 40, 200, 50)) == 3 * 4 * 3 * 96 * 50 // 2 + 2 * 16 * 3 * 96 * 50 // 10
    change = np.zeros((2, 9, 2, 2))
    change[0, 7], change[1, 8] = 1, -3
    assert filmstrip.most_changed(np.zeros((2, 9, 2, 2)), change) == [0, 3, 5, 8]
    video = np.random.default_rng(0).random((3, 32, 4, 4))
    (moving,) = re.findall(r'class="motion[^>]*base64,([^"]+)"', filmstrip.film(video, 0, 1, title=""))
    animation = Image.open(io.BytesIO(base64.b64decode(moving)))
    animation.load()
    assert animation.n_frames == 16 and animation.info["duration"] == 100


def test_pages_are_filled_and_saved(tmp_path):
    with pytest.raises(LookupError, match="models"):
        html.fill("brinell.pages", "report.html", {"heat": str})
    path = html.save_page(tmp_path, "<p>page</p>", {"a.csv": "1\n"})
    assert path.read_text() == "<p>page</p>" and (tmp_path / "tables" / "a.csv").read_text() == "1\n"
    assert [html.count_rows(text) for text in ("", "<tr><td></tr><tr>")] == [0, 2]
    assert html._in_markdown("<a>\nb") == "&lt;a> b" and html._in_markdown(3) == 3
