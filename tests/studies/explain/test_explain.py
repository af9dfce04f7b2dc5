"""`brinell explain` end to end on a network that compares the halves of a picture, whose important
places are known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _browser import check_everywhere, chromium
from _refusals import refused
from brinell.core.errors import RequestError
from brinell.studies.explain import STUDY
from brinell.studies.explain.result import (
    BLURRED,
    INVERSE,
    MEASURES,
    faithful_statements,
    load_arrays,
    values,
)

TABLE = STUDY.table()
SIDE, N = 12, 20


class Halves(nn.Module):
    """Class 0 is bright on the left, class 1 on the right."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        self.conv.weight.data.fill_(1.0)

    def forward(self, x):
        means = torch.relu(self.conv(x)).mean((1, 2)).unflatten(1, (2, -1)).mean(2)
        return 8 * means


def said(result):
    """The sentences and notes of a result."""
    report = result.report()
    return [*report.sentences, *(note.text for note in report.notes)]


def page_of(result):
    return (Path(result.folder) / "report.html").read_text(encoding="utf-8")


def pictures():
    """Pictures with a bright square on one half, their labels, and masks of the squares; the last
    mask is empty.
    """
    rng = np.random.default_rng(0)
    x, masks = 0.1 * rng.random((N, 1, SIDE, SIDE)), np.zeros((N, SIDE, SIDE), np.uint8)
    y = np.arange(N) % 2
    for index in range(N):
        y_min, x_min = int(rng.integers(0, 7)), int(rng.integers(0, 2)) + 6 * int(y[index])
        masks[index, y_min : y_min + 5, x_min : x_min + 4] = 1
    x += 0.9 * masks[:, None]
    masks[N - 1] = 0
    return x.astype(np.float32), y, masks


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    x, y, masks = pictures()
    np.savez(folder / "data.npz", x=x, y=y)
    np.savez(folder / "masks.npz", masks=masks, groups=np.array(list("aabbccddeeffgghhiijj")))
    np.savez(folder / "wide.npz", masks=np.zeros((N, SIDE, SIDE + 1), np.uint8))
    np.savez(folder / "grey.npz", masks=7 * masks)
    archive = (folder / "masks.npz").read_bytes()
    (folder / "cut.npz").write_bytes(archive[: len(archive) // 2])
    return folder


BLANK = """
from brinell.explainers.centre import Centre


class Sometimes(Centre):
    '''The centre map; the map of one sample is constant.'''

    def __call__(self, oracle, batch, domain, rng):
        maps = super().__call__(oracle, batch, domain, rng).clone()
        maps[(batch.x.flatten(1).sum(1) - SUM).abs() < 1e-3] = 0
        return maps
"""
METHODS = ("rlab?questions=128", "occlusion?windows=6", "grad-cam", "gradient", "centre", "random")


@pytest.fixture(scope="module")
def result(files, tmp_path_factory):
    return brinell.explain(
        Halves(),
        str(files / "data.npz"),
        truth=str(files / "masks.npz"),
        method=METHODS,
        samples=N,
        steps=6,
        out=tmp_path_factory.mktemp("made") / "run",
    )


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_in_a_browser(result):
    with chromium() as browser:
        check_everywhere(browser, Path(result.folder) / "report.html")


def test_maps_lie_on_the_important_places(result):
    by_name = {method.name: method for method in result.methods}
    rlab, random = by_name[METHODS[0]], by_name["random"]
    assert (
        rlab.dice.value > random.dice.value + 0.2
        and random.dice.low < random.dice.value < random.dice.high
    )
    assert rlab.dice.low is None, (
        "on nearly all samples the mask is the object: the few others say too little of the spread"
    )
    assert (
        rlab.insertion.value - rlab.deletion.value > random.insertion.value - random.deletion.value
    )
    assert rlab.queries == 128 and by_name["grad-cam"].queries == 2 and random.queries == 0
    assert rlab.dice.n == result.n == N - 1 and result.groups == 10
    assert result.facts.left_out == {"whose ground truth is empty or covers everything": 1}


def test_controls_are_computed_from_the_maps(result):
    table = TABLE.read(result.folder)
    names = [method.name for method in result.methods]
    assert (
        names[:3] == [METHODS[0], METHODS[0] + BLURRED, METHODS[0] + INVERSE]
        and "random" + INVERSE not in names
    )
    plain, inverse = (values(table.rows, name, "insertion") for name in (names[0], names[2]))
    assert (plain >= inverse).all()


def test_every_figure_can_be_computed_from_the_rows(result):
    table = TABLE.read(result.folder)
    assert brinell.open(result.folder) == result
    for method in result.methods:
        for measure in MEASURES:
            column, figure = values(table.rows, method.name, measure), getattr(method, measure)
            assert (figure is None) == bool(np.isnan(column).all())
            if figure is not None:
                assert figure.value == pytest.approx(np.nanmean(column))
                assert figure.low is None or figure.low <= figure.value <= figure.high
                assert figure.low is None or 0 <= figure.low <= figure.high <= 1, (
                    "no interval leaves what is possible"
                )
        assert (
            method.gain is None
            or method.gain.low is None
            or -1 <= method.gain.low <= method.gain.high <= 1
        )
    arrays, (x, _, masks) = load_arrays(table.path, [3]), pictures()
    assert arrays[f"map/{METHODS[0]}/3"].shape == (SIDE, SIDE)
    assert np.array_equal(arrays["input/3"], x[3]) and np.array_equal(arrays["truth/3"], masks[3])


def test_what_is_said_follows_from_corrected_p_values(result):
    """Property: the page names the methods that the p-values keep, whatever they are."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        methods = [
            method
            if method.faithful is None
            else method.model_copy(update={"faithful": bool(rng.integers(2))})
            for method in result.methods
        ]
        changes = {"methods": methods, "statements": faithful_statements(methods, N)}
        sentence = [*result.model_copy(update=changes)._sentences()][-1]
        faithful = [method.name for method in methods if method.faithful]
        if faithful:
            assert sentence.startswith(f"{len(faithful)} of 4 methods") and all(
                name in sentence for name in faithful
            )
        else:
            assert sentence.startswith("None of 4 methods is shown")


def test_a_few_groups_allow_no_interval(files, tmp_path, subtests):
    """Property: with fewer than six groups no measure has an interval, and the conclusions say so."""
    for number, groups in enumerate([1, 5]):
        with subtests.test(str(groups)):
            folder = tmp_path / str(number)
            folder.mkdir()
            np.savez(
                folder / "masks.npz",
                masks=np.load(files / "masks.npz")["masks"],
                groups=np.arange(N) % groups,
            )
            settings = {
                "truth": str(folder / "masks.npz"),
                "method": ("gradient", "centre"),
                "steps": 2,
            }
            result = brinell.explain(
                Halves(), str(files / "data.npz"), samples=N, **settings, out=folder / "run"
            )
            assert result.groups == groups
            for method in result.methods:
                assert all(
                    getattr(method, name) is None or getattr(method, name).low is None
                    for name in MEASURES
                )
                assert not method.faithful
            assert (
                f"Too few groups of related samples ({groups}): no method can be told"
                in " ".join(said(result))
            )


def test_a_model_with_scores_gets_the_methods_that_need_scores(files, tmp_path):
    def scores(x):
        left_mean, right = x[..., : SIDE // 2].mean((1, 2, 3)), x[..., SIDE // 2 :].mean((1, 2, 3))
        return np.stack([8 * left_mean, 8 * right], 1)

    result = brinell.explain(
        scores, str(files / "data.npz"), samples=2, steps=0, out=tmp_path / "run"
    )
    names = {method.name.partition(",")[0] for method in result.methods}
    assert {
        "rlab",
        "rlab?prior=broad",
        "rlab-mask",
        "rise",
        "occlusion",
        "kernel-shap",
        "centre",
        "random",
    } == names
    assert "needs gradients" in result.facts.unfit["gradient"]
    with pytest.raises(RequestError, check=refused("studies.explain.run.build_methods")):
        brinell.explain(scores, str(files / "data.npz"), method="gradient", out=tmp_path / "other")


IMPOSSIBLE_REQUESTS = [
    ({"method": "grad-cam?layer=cnov"}, "the network has no layer 'cnov'; its last ones are conv"),
    ({"method": "grad-came"}, "there is no explainer 'grad-came', did you mean 'grad-cam'"),
    ({"truth": "wide.npz"}, r"have shape \(20, 12, 13\), and the data need \(20, 12, 12\)"),
    ({"truth": "data.npz"}, "has no array 'masks'; it has x, y"),
    ({"truth": "grey.npz"}, "contain 7: write 1 for the object"),
    ({"truth": "cut.npz"}, "damaged or cut short|no zip"),
    ({"truth": "none.npz"}, "none.npz"),
]


def test_impossible_requests_are_refused_in_one_line(files, tmp_path, subtests):
    for number, (settings, line) in enumerate(IMPOSSIBLE_REQUESTS):
        with subtests.test(str(line)):
            folder = tmp_path / str(number)
            folder.mkdir()
            settings = {"method": "centre"} | settings
            if "truth" in settings:
                settings["truth"] = str(files / settings["truth"])
            with pytest.raises(RequestError, match=line) as error:
                brinell.explain(Halves(), str(files / "data.npz"), **settings, out=folder / "run")
            assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_blank_map_is_reported_and_excluded_from_the_measures(files, tmp_path):
    plugin_file = tmp_path / "own.py"
    plugin_file.write_text(BLANK.replace("SUM", repr(float(pictures()[0][0].sum()))))
    result = brinell.explain(
        Halves(),
        str(files / "data.npz"),
        truth=str(files / "masks.npz"),
        method=(f"{plugin_file}:Sometimes", "centre"),
        samples=N,
        steps=4,
        out=tmp_path / "run",
    )
    blank, centre, *_ = [method for method in result.methods if "," not in method.name]
    assert (blank.blank, centre.blank) == (1, 0)
    assert blank.dice.n == blank.deletion.n == result.n - 1 and centre.dice.n == result.n
    assert f"is constant on 1 of {result.n} samples" in " ".join(said(result))
    assert page_of(result).count("constant map") == 1


def test_adversarial_examples_of_a_run(files, tmp_path):
    """The pages of the run and of the maps in it link to each other, and both are repeated."""
    run = tmp_path / "run"
    data, net = str(files / "data.npz"), f"{files / 'net.py'}:make"
    (files / "net.py").write_text(NETWORK)
    brinell.audit(net, data, attack="fgsm", eps=0.5, out=run)
    result = brinell.explain(run=str(run), method=("random", "centre"), samples=4, steps=1)
    names = [method.name for method in result.methods if "," not in method.name]
    assert result.folder == str(run / "explain") and len(names) == 2 and result.n >= 3
    table = TABLE.read(result.folder)
    assert (table.rows.prediction != table.rows.label).all(), "the adversarial example is explained"
    assert 'href="explain/report.html"' in (run / "report.html").read_text()
    assert 'href="../report.html"' in page_of(result) and brinell.verify(result.folder).passed


NETWORK = """
import torch
from torch import nn

class Halves(nn.Module):
    def forward(self, x):
        return 8 * torch.relu(x).mean((1, 2)).unflatten(1, (2, -1)).mean(2)

def make():
    return Halves()
"""
