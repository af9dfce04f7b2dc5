"""`brinell explain` end to end on a network that looks at one half of each picture, so that what matters is known."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from _browser import check_everywhere, chromium
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.models._torch_model import TorchModel
from brinell.studies.explain import page
from brinell.studies.explain.analysis import in_words, summarise, values
from brinell.studies.explain.randomisation import forgetful
from brinell.studies.explain.records import BLURRED, INVERSE, MEASURES, TABLE, load_maps, load_truths

SIDE, N = 12, 10
DOMAIN = Domain(kind="image", shape=(1, SIDE, SIDE))


class Halves(nn.Module):
    """Class 0 is bright on the left, class 1 on the right."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        self.conv.weight.data.fill_(1.0)

    def forward(self, x):
        seen = torch.relu(self.conv(x)).mean((1, 2)).unflatten(1, (2, -1)).mean(2)
        return 8 * seen


def pictures():
    """Pictures with a bright square on one half, with labels and masks of the squares; the last has no object."""
    rng = np.random.default_rng(0)
    x, masks = 0.1 * rng.random((N, 1, SIDE, SIDE)), np.zeros((N, SIDE, SIDE), np.uint8)
    y = np.arange(N) % 2
    for at in range(N):
        top, left = int(rng.integers(0, 7)), int(rng.integers(0, 2)) + 6 * int(y[at])
        masks[at, top : top + 5, left : left + 4] = 1
    x += 0.9 * masks[:, None]
    masks[N - 1] = 0
    return x.astype(np.float32), y, masks


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    x, y, masks = pictures()
    np.savez(folder / "data.npz", x=x, y=y)
    np.savez(folder / "masks.npz", masks=masks, groups=np.array(list("aabbccddee")))
    np.savez(folder / "wide.npz", masks=np.zeros((N, SIDE, SIDE + 1), np.uint8))
    return folder


BLANK = """
from brinell.explainers.centre import Centre


class Sometimes(Centre):
    '''The middle, and of the first sample nothing.'''

    def __call__(self, oracle, batch, domain, rng):
        maps = super().__call__(oracle, batch, domain, rng).clone()
        maps[0] = 0
        return maps
"""
FEW = ("rlab?questions=128", "occlusion?windows=6", "grad-cam", "gradient", "centre", "random")


@pytest.fixture(scope="module")
def made(files, tmp_path_factory):
    return brinell.explain(
        Halves(),
        str(files / "data.npz"),
        truth=f"npz:{files / 'masks.npz'}",
        method=FEW,
        samples=N,
        steps=6,
        out=tmp_path_factory.mktemp("made") / "run",
    )


@pytest.mark.browser
def test_the_page_in_a_browser(made):
    with chromium() as browser:
        check_everywhere(browser, Path(made.folder) / "report.html")


def test_what_matters_is_found(made):
    by_name = {one.name: one for one in made.methods}
    own, random = by_name[FEW[0]], by_name["random"]
    assert own.dice.value > random.dice.value + 0.2 and own.dice.low > random.dice.high
    assert own.insertion.value - own.deletion.value > random.insertion.value - random.deletion.value
    assert own.queries == 128 and by_name["grad-cam"].queries == 2 and random.queries == 0
    assert own.dice.n == made.n == N - 1 and made.groups == 5
    assert [(one.count, one.reason) for one in made.left_out] == [(1, "whose ground truth is empty or covers everything")]


def test_controls_are_made_of_the_maps(made):
    held = TABLE.read(made.folder)
    names = [one.name for one in made.methods]
    assert names[:3] == [FEW[0], FEW[0] + BLURRED, FEW[0] + INVERSE] and "random" + INVERSE not in names
    own, inverse = (values(held.rows, name, "insertion") for name in (names[0], names[2]))
    assert (own >= inverse).all()
    assert {pair.other for pair in made.pairs} == set(names[1:])
    pair = next(one for one in made.pairs if one.other == "random" and one.measure == "dice")
    difference = values(held.rows, FEW[0], "dice") - values(held.rows, "random", "dice")
    assert pair.difference.value == pytest.approx(np.nanmean(difference)) and pair.difference.low > 0


def test_every_figure_can_be_computed_from_the_rows(made):
    held = TABLE.read(made.folder)
    assert summarise(held) == made
    for one in made.methods:
        for measure in MEASURES:
            column, figure = values(held.rows, one.name, measure), getattr(one, measure)
            assert (figure is None) == bool(np.isnan(column).all())
            if figure is not None:
                assert figure.value == pytest.approx(np.nanmean(column)) and figure.low <= figure.value <= figure.high
    assert load_maps(held.path, [0])[FEW[0], 0].shape == (SIDE, SIDE)


def test_the_page_shows_every_method_and_says_what_may_be_said(made):
    held = TABLE.read(made.folder)
    text = page.render(held)
    for name in FEW:
        assert f"<b>{name}</b>" in text
    assert text.count("<img") >= (1 + len(FEW)) * made.n
    assert "Of the others nothing is claimed about faithfulness." in " ".join(in_words(made)) and "In Dice" in text


def test_out_of_the_box(tmp_path, root, capsys):
    words = ["explain", "--samples", "3", "--steps", "3", "--copies", "0", "--method", "rlab?questions=32", "--method", "centre"]
    assert cli([*words, "--out", str(tmp_path / "run"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, json.loads((root / "docs" / "schema" / "explain.json").read_text()))
    assert answer["n"] == 3 and answer["methods"][0]["dice"] is None and answer["methods"][0]["deletion"]["n"] == 3
    page = (tmp_path / "run" / "report.html").read_text()
    assert Path(brinell.report(tmp_path / "run")).read_text() == page, "brinell report writes it again"
    assert cli([*words, "--out", str(tmp_path / "run")]) == 2
    assert "holds an explanation: add --resume to go on with it, or choose another --out" in capsys.readouterr().err


def test_a_model_of_scores_gets_what_asks_for_scores(files, tmp_path):
    def scores(x):
        left, right = x[..., : SIDE // 2].mean((1, 2, 3)), x[..., SIDE // 2 :].mean((1, 2, 3))
        return np.stack([8 * left, 8 * right], 1)

    result = brinell.explain(scores, str(files / "data.npz"), samples=2, steps=0, copies=0, out=tmp_path / "run")
    names = {one.name.partition(",")[0] for one in result.methods}
    assert {"rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap", "centre", "random"} == names
    assert "needs gradients" in result.unfit["gradient"]
    with pytest.raises(
        RequestError, match="method gradient cannot explain .*: it needs gradients, and the model gives scores only"
    ):
        brinell.explain(scores, str(files / "data.npz"), method="gradient", out=tmp_path / "other")
    for asked in ({"randomise": True}, {"cascade": 2}):
        with pytest.raises(RequestError, match=f"weights of .* cannot be shuffled, .*: leave out {next(iter(asked))}$"):
            brinell.explain(scores, str(files / "data.npz"), method="centre", **asked, out=tmp_path / "other")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"method": "grad-cam?layer=cnov"}, "the network has no layer 'cnov'; its last ones are conv"),
        ({"method": "grad-came"}, "there is no explainer 'grad-came', did you mean 'grad-cam'"),
        ({"truth": "wide.npz"}, r"has shape \(10, 12, 13\), and the data need \(10, 12, 12\)"),
        ({"truth": "masks:."}, "goes by the names of pictures, and .* has none: give npz:FILE"),
        ({"truth": "mask:x"}, "there is no ground truth 'mask', did you mean 'masks'"),
        ({"truth": "npz:none.npz"}, "there is no none.npz for truth npz"),
        ({"truth": "beat"}, "truth beat is for signals"),
        ({"only": "wrong"}, "no sample is left to explain .* the model gets right"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_in_a_line(settings, line, files, tmp_path):
    if settings.get("truth") == "wide.npz":
        settings = {"truth": f"npz:{files / 'wide.npz'}"}
    with pytest.raises(RequestError, match=line) as caught:
        brinell.explain(Halves(), str(files / "data.npz"), **({"method": "centre"} | settings), out=tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures in folders, with masks and boxes beside."""
    folder = tmp_path_factory.mktemp("folder")
    x, y, masks = pictures()
    boxes, annotations = [], []
    for at in range(4):
        place = folder / "data" / "ab"[y[at]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * x[at, 0].clip(0, 1)).astype(np.uint8)).save(place / f"p{at}.png")
        for kind in ("masks", "trimaps", "voc"):
            (folder / kind).mkdir(exist_ok=True)
        Image.fromarray(masks[at] * 7).save(folder / "masks" / f"p{at}.png")
        Image.fromarray((2 - masks[at]).astype(np.uint8)).save(folder / "trimaps" / f"p{at}.png")
        rows, columns = np.flatnonzero(masks[at].any(1)), np.flatnonzero(masks[at].any(0))
        left, top, right, bottom = (int(v) for v in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
        boxes.append({"id": at, "file_name": f"p{at}.png", "width": SIDE, "height": SIDE})
        annotations.append({"image_id": at, "bbox": [left, top, right - left, bottom - top]})
        box = f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
        size = f"<size><width>{SIDE}</width><height>{SIDE}</height></size>"
        xml = f"<annotation>{size}<object><bndbox>{box}</bndbox></object></annotation>"
        (folder / "voc" / f"p{at}.xml").write_text(xml)
    (folder / "coco.json").write_text(json.dumps({"images": boxes, "annotations": annotations}))
    return folder


@pytest.mark.parametrize("spec", ["masks:masks", "masks:masks?value=7", "masks:trimaps?form=trimap", "coco:coco.json", "voc:voc"])
def test_ground_truth_of_pictures_in_every_form(spec, folder, tmp_path):
    name, _, path = spec.partition(":")
    result = brinell.explain(
        Halves(),
        f"image-folder:{folder / 'data'}?mode=L",
        truth=f"{name}:{folder / path}",
        method="centre",
        samples=4,
        steps=0,
        copies=0,
        out=tmp_path / "run",
    )
    held, (_, _, masks) = TABLE.read(result.folder), pictures()
    assert result.n == 4
    for sample, at in enumerate([0, 2, 1, 3]):  # by folder
        assert np.array_equal(load_truths(held.path, [sample])[sample] == 1, masks[at] == 1)


@pytest.mark.parametrize("harm", ["none", "cut", "objects", "xml", "json"])
def test_a_damaged_file_of_ground_truth_is_told_in_a_line(harm, files, folder, tmp_path):
    """Some are read at once, and some as their sample is explained."""
    whole = (files / "masks.npz").read_bytes()
    data, truth = str(files / "data.npz"), f"npz:{tmp_path / 'm.npz'}"
    if harm == "none":
        (tmp_path / "m.npz").write_bytes(b"no archive")
    elif harm == "cut":
        (tmp_path / "m.npz").write_bytes(whole[: len(whole) // 2])
    elif harm == "objects":
        np.savez(tmp_path / "m.npz", masks=np.array([None] * N))
    else:
        data, truth = f"image-folder:{folder / 'data'}?mode=L", f"voc:{tmp_path}"
        if harm == "json":
            (tmp_path / "c.json").write_text("[[[")
            truth = f"coco:{tmp_path / 'c.json'}"
        for at in range(4):
            (tmp_path / f"p{at}.xml").write_text("<annotation><size>")
    line = r"damaged or cut short|cannot be read|Python objects"
    with pytest.raises(RequestError, match=line) as caught:
        brinell.explain(Halves(), data, truth=truth, method="centre", steps=0, copies=0, out=tmp_path / "run")
    assert "\n" not in str(caught.value) and "allow_pickle" not in str(caught.value)


def test_ground_truth_of_signals(tmp_path):
    x = np.zeros((4, 1, 50), np.float32)
    x[:, 0, 20:25] = 1.0
    np.savez(tmp_path / "beats.npz", x=x, y=np.array([0, 1, 0, 1]))
    (tmp_path / "spans.csv").write_text("sample,start,end\n0,0.2,0.25\n0,0.4,0.41\n2,0,0.1\n")
    net = nn.Sequential(nn.Conv1d(1, 2, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    data = f"npz:{tmp_path / 'beats.npz'}?kind=signal&rate=100"
    settings = {"method": ("centre", "grad-cam"), "samples": 4, "steps": 2, "copies": 0}
    result = brinell.explain(net, data, truth=f"spans:{tmp_path / 'spans.csv'}", out=tmp_path / "run", **settings)
    held = TABLE.read(result.folder)
    assert result.n == 2 and [(one.count, one.reason) for one in result.left_out] == [(2, "without ground truth")]
    assert np.flatnonzero(load_truths(held.path, [0])[0]).tolist() == [20, 21, 22, 23, 24, 40]
    assert "<svg" in page.render(held)


def test_a_blank_map_is_told_and_left_out_of_the_measures(files, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(BLANK)
    result = brinell.explain(
        Halves(),
        str(files / "data.npz"),
        truth=f"npz:{files / 'masks.npz'}",
        method=(f"{own}:Sometimes", "centre"),
        samples=N,
        steps=4,
        copies=0,
        out=tmp_path / "run",
    )
    blank, centre = (one for one in result.methods if "," not in one.name)
    assert (blank.blank, centre.blank) == (1, 0)
    assert blank.dice.n == blank.deletion.n == result.n - 1 and centre.dice.n == result.n
    assert f"is the same everywhere on 1 of {result.n} samples" in " ".join(in_words(result))
    assert page.render(TABLE.read(result.folder)).count("the same everywhere: nothing to see") == 1


def test_a_map_that_does_not_change_with_the_weights_is_told(files, tmp_path):
    """A random map asks nothing of the model, so that it stays the same; of a network with one weight so does every map."""
    result = brinell.explain(
        Halves(),
        str(files / "data.npz"),
        method=("random", "gradient"),
        samples=3,
        steps=0,
        copies=2,
        randomise=True,
        out=tmp_path / "run",
    )
    random, gradient = (one for one in result.methods if "," not in one.name)
    assert random.similarity.value == pytest.approx(1) and random.forgets is False and random.complexity.value == 0
    assert gradient.similarity.value == pytest.approx(1), "one weight, shuffled, is the same"
    assert random.cascade is None and result.cascade == []


def layered():
    """A convolution that is about to be shuffled, and a layer that says the same wherever its weights are."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 10 * 10, 2, bias=False))
    net[0].weight.data = torch.arange(18.0).reshape(2, 1, 3, 3) - 6
    net[3].weight.data.fill_(0.1)
    return net


def test_layers_forget_from_the_last_to_the_first():
    net = layered()
    net[3].weight.data = torch.arange(400.0).reshape(2, 200)
    before = [one.detach().clone() for one in net.parameters()]
    forgets = forgetful(TorchModel(net, DOMAIN, 2), 0, 9)
    assert [list(names) for names in forgets.layers] == [["3"], ["0"]]
    same = [[torch.equal(a, b) for a, b in zip(before, forgets.at(k).info.module.parameters(), strict=True)] for k in range(3)]
    assert same == [[True, True], [True, False], [False, False]]
    for one, shuffled in zip(before, forgets.at(2).info.module.parameters(), strict=True):
        assert torch.equal(one.flatten().sort().values, shuffled.flatten().sort().values)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    whole = [one.clone() for one in forgets.at(2).info.module.parameters()]
    once = forgetful(TorchModel(net, DOMAIN, 2), 0)
    assert [list(names) for names in once.layers] == [["3", "0"]]
    assert all(torch.equal(a, b) for a, b in zip(whole, once.at(1).info.module.parameters(), strict=True))
    assert not torch.equal(whole[1], forgetful(TorchModel(net, DOMAIN, 2), 1).at(1).info.module[3].weight)


def test_the_cascade_is_compared_stage_by_stage(files, tmp_path):
    """The last layer has one weight, so shuffled it leaves every map as it was; the one before it has not."""
    settings = {"samples": 3, "steps": 0, "copies": 1, "cascade": 2}
    result = brinell.explain(layered(), str(files / "data.npz"), method=("gradient", "random"), out=tmp_path / "run", **settings)
    gradient, random = (one for one in result.methods if "," not in one.name)
    assert result.cascade == [["3"], ["0"]]
    assert gradient.cascade[0].value == pytest.approx(1) and gradient.cascade[1].high < 0.9
    assert gradient.cascade[1] == gradient.similarity and [one.value for one in random.cascade] == pytest.approx([1, 1])
    assert result.methods[1].name == "gradient" + BLURRED and result.methods[1].cascade is None
    assert "As the model forgets" in page.render(TABLE.read(result.folder))
    assert "With shuffled weights gradient drew much the same map: it shows the input and not the model." in in_words(result)


def test_a_network_forgets_what_it_learnt(files, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2, bias=False))
    half = (torch.arange(SIDE * SIDE) % SIDE < SIDE // 2).float()
    net[1].weight.data = torch.stack([half, 1 - half]) * 0.2
    settings = {"samples": 4, "steps": 0, "copies": 0, "randomise": True}
    result = brinell.explain(net, str(files / "data.npz"), method="gradient", out=tmp_path / "run", **settings)
    assert result.methods[0].forgets is True and result.methods[0].similarity.high < 0.4


def test_adversarial_examples_of_a_run(files, tmp_path):
    """What the attack left is judged beside the other methods, and the report shows the way to the page."""
    run = tmp_path / "run"
    data, net = str(files / "data.npz"), f"{files / 'net.py'}:make"
    (files / "net.py").write_text(NETWORK)
    attack = "rlab?distortions=occlusion&patch=4&steps=20&policy=greedy"
    brinell.audit(net, data, attack=attack, norm="l2", eps=6.0, out=run)
    result = brinell.explain(run=str(run), method=("rlab?questions=32", "centre"), steps=3, copies=0)
    names = [one.name for one in result.methods if "," not in one.name]
    assert result.folder == str(run / "explain") and names[-2:] == ["placed", "sensitivity"] and result.n >= 3
    held = TABLE.read(result.folder)
    sample = int(held.rows.sample_id[0])
    placed = load_maps(held.path, [sample])["placed", sample]
    assert set(np.unique(placed)) == {0.0, 1.0}
    assert (held.rows.prediction != held.rows.label).all(), "what is explained is the adversarial example"
    assert 'href="explain/report.html#sample-' in (run / "report.html").read_text()
    cost = next(one for one in result.methods if one.name == "placed").queries
    assert cost > 1


NETWORK = """
import torch
from torch import nn

class Halves(nn.Module):
    def forward(self, x):
        return 8 * torch.relu(x).mean((1, 2)).unflatten(1, (2, -1)).mean(2)

def make():
    return Halves()
"""
