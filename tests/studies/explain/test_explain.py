"""`brinell explain` end to end on a network that compares the halves of a picture, whose important places are known."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from _browser import check_everywhere, chromium
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.models._torch_model import TorchModel
from brinell.studies.explain import STUDY
from brinell.studies.explain.randomisation import make_shuffled_model
from brinell.studies.explain.result import BLURRED, INVERSE, MEASURES, RANGES, load_maps, load_truths, values

TABLE = STUDY.resolve(STUDY.table)
SIDE, N = 12, 20
DOMAIN = Domain(kind="image", shape=(1, SIDE, SIDE))


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
    """Pictures with a bright square on one half, their labels, and masks of the squares; the last mask is empty."""
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
        truth=f"npz:{files / 'masks.npz'}",
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
    assert rlab.dice.value > random.dice.value + 0.2 and random.dice.low < random.dice.value < random.dice.high
    assert rlab.dice.low is None, "on nearly all samples the mask is the object: the few others say too little of the spread"
    assert rlab.insertion.value - rlab.deletion.value > random.insertion.value - random.deletion.value
    assert rlab.queries == 128 and by_name["grad-cam"].queries == 2 and random.queries == 0
    assert rlab.dice.n == result.n == N - 1 and result.groups == 10
    assert result.facts.left_out == {"whose ground truth is empty or covers everything": 1}


def test_controls_are_computed_from_the_maps(result):
    table = TABLE.read(result.folder)
    names = [method.name for method in result.methods]
    assert names[:3] == [METHODS[0], METHODS[0] + BLURRED, METHODS[0] + INVERSE] and "random" + INVERSE not in names
    plain, inverse = (values(table.rows, name, "insertion") for name in (names[0], names[2]))
    assert (plain >= inverse).all()
    assert {pair.baseline for pair in result.pairs} == set(names[1:])
    pair = next(candidate for candidate in result.pairs if candidate.baseline == "random" and candidate.measure == "dice")
    difference = values(table.rows, METHODS[0], "dice") - values(table.rows, "random", "dice")
    assert pair.difference.value == pytest.approx(np.nanmean(difference)) and pair.difference.low > 0


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
                low, high = RANGES.get(measure, (0, 1))
                assert figure.low is None or low <= figure.low <= figure.high <= high, "no interval leaves what is possible"
    assert load_maps(table.path, [0])[METHODS[0], 0].shape == (SIDE, SIDE)


def test_what_is_said_follows_from_corrected_p_values(result):
    """Property: the headline counts the methods that the column of corrected p-values keeps, whatever the p-values."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = rng.choice([0.001, 0.04, 0.06, 0.5], len(result.pairs))
        pairs = [pair.model_copy(update={"p": p}) for pair, p in zip(result.pairs, p_values, strict=True)]
        (sentence,) = (text for text in result.model_copy(update={"pairs": pairs})._sentences() if "In Dice" in text)
        plain = [pair for pair in pairs if pair.measure == "dice" and "," not in pair.baseline]
        above = [pair.baseline for pair in plain if pair.p <= 0.05 and pair.difference.value > 0]
        alike = sum(pair.p > 0.05 for pair in plain)
        assert [
            name for name in METHODS[1:] if re.search(rf"\babove [^:]*{re.escape(name)}", sentence.partition(" below ")[0])
        ] == above
        assert ("not shown to differ" in sentence) == (alike > 0)


def test_a_few_groups_allow_no_interval(files, tmp_path, subtests):
    """Property: with fewer than six groups no measure has an interval, and the conclusions say so."""
    for number, groups in enumerate([1, 5]):
        with subtests.test(str(groups)):
            folder = tmp_path / str(number)
            folder.mkdir()
            np.savez(folder / "masks.npz", masks=np.load(files / "masks.npz")["masks"], groups=np.arange(N) % groups)
            settings = {"truth": f"npz:{folder / 'masks.npz'}", "method": ("gradient", "centre"), "steps": 2, "copies": 0}
            result = brinell.explain(Halves(), str(files / "data.npz"), samples=N, **settings, out=folder / "run")
            assert result.groups == groups
            for method in result.methods:
                assert all(getattr(method, name) is None or getattr(method, name).low is None for name in MEASURES)
                assert not method.faithful
            noun = "group" if groups == 1 else "groups"
            assert f"Only {groups} {noun} of related samples: how far the means hold" in " ".join(said(result))


def test_a_model_with_scores_gets_the_methods_that_need_scores(files, tmp_path):
    def scores(x):
        left_mean, right = x[..., : SIDE // 2].mean((1, 2, 3)), x[..., SIDE // 2 :].mean((1, 2, 3))
        return np.stack([8 * left_mean, 8 * right], 1)

    result = brinell.explain(scores, str(files / "data.npz"), samples=2, steps=0, copies=0, out=tmp_path / "run")
    names = {method.name.partition(",")[0] for method in result.methods}
    assert {"rlab", "rlab?prior=broad", "rise", "occlusion", "kernel-shap", "centre", "random"} == names
    assert "needs gradients" in result.facts.unfit["gradient"]
    with pytest.raises(RequestError, check=refused("studies.explain.run.build_methods")):
        brinell.explain(scores, str(files / "data.npz"), method="gradient", out=tmp_path / "other")
    with pytest.raises(RequestError, match="weights of .* cannot be shuffled, .*: leave --cascade out$"):
        brinell.explain(scores, str(files / "data.npz"), method="centre", cascade=1, out=tmp_path / "other")


IMPOSSIBLE_REQUESTS = [
    ({"method": "grad-cam?layer=cnov"}, "the network has no layer 'cnov'; its last ones are conv"),
    ({"method": "grad-came"}, "there is no explainer 'grad-came', did you mean 'grad-cam'"),
    ({"truth": "wide.npz"}, r"has shape \(20, 12, 13\), and the data need \(20, 12, 12\)"),
    ({"truth": "masks:."}, "finds files by the names of pictures, and .* has none: use npz:FILE"),
    ({"truth": "mask:x"}, "there is no ground truth 'mask', did you mean 'masks'"),
    ({"truth": "npz:none.npz"}, "there is no none.npz for truth npz"),
    ({"truth": "beat"}, "truth beat is for signals"),
    ({"only": "wrong"}, "no sample remains to explain .* the model gets right"),
]


def test_impossible_requests_are_refused_in_one_line(files, tmp_path, subtests):
    for number, (settings, line) in enumerate(IMPOSSIBLE_REQUESTS):
        with subtests.test(str(line)):
            folder = tmp_path / str(number)
            folder.mkdir()
            if settings.get("truth") == "wide.npz":
                settings = {"truth": f"npz:{files / 'wide.npz'}"}
            with pytest.raises(RequestError, match=line) as error:
                brinell.explain(Halves(), str(files / "data.npz"), **({"method": "centre"} | settings), out=folder / "run")
            assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures in folders by class, with folders of masks and boxes."""
    folder = tmp_path_factory.mktemp("folder")
    x, y, masks = pictures()
    boxes, annotations = [], []
    for index in range(4):
        class_folder = folder / "data" / "ab"[y[index]]
        class_folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * x[index, 0].clip(0, 1)).astype(np.uint8)).save(class_folder / f"p{index}.png")
        for kind in ("masks", "trimaps", "voc"):
            (folder / kind).mkdir(exist_ok=True)
        Image.fromarray(masks[index] * 7).save(folder / "masks" / f"p{index}.png")
        Image.fromarray((2 - masks[index]).astype(np.uint8)).save(folder / "trimaps" / f"p{index}.png")
        rows, columns = np.flatnonzero(masks[index].any(1)), np.flatnonzero(masks[index].any(0))
        x_min, y_min, x_max, y_max = (int(v) for v in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
        boxes.append({"id": index, "file_name": f"p{index}.png", "width": SIDE, "height": SIDE})
        annotations.append({"image_id": index, "bbox": [x_min, y_min, x_max - x_min, y_max - y_min]})
        box = f"<xmin>{x_min + 1}</xmin><ymin>{y_min + 1}</ymin><xmax>{x_max}</xmax><ymax>{y_max}</ymax>"
        size = f"<size><width>{SIDE}</width><height>{SIDE}</height></size>"
        xml = f"<annotation>{size}<object><name>square</name><bndbox>{box}</bndbox></object></annotation>"
        (folder / "voc" / f"p{index}.xml").write_text(xml)
    (folder / "coco.json").write_text(json.dumps({"images": boxes, "annotations": annotations}))
    return folder


TRUTHS = [
    "masks:masks",
    "masks:masks?value=7",
    "masks:trimaps?form=trimap",
    "coco:coco.json",
    "voc:voc",
]


def test_ground_truth_of_pictures_in_every_format(folder, tmp_path, subtests):
    for number, spec in enumerate(TRUTHS):
        with subtests.test(str(spec)):
            place = tmp_path / str(number)
            place.mkdir()
            name, _, path = spec.partition(":")
            result = brinell.explain(
                Halves(),
                f"image-folder:{folder / 'data'}?mode=L",
                truth=f"{name}:{folder / path}",
                method="centre",
                samples=4,
                steps=0,
                copies=0,
                out=place / "run",
            )
            table, (_, _, masks) = TABLE.read(result.folder), pictures()
            assert result.n == 4
            for sample, index in enumerate([0, 2, 1, 3]):  # by folder
                assert np.array_equal(load_truths(table.path, [sample])[sample] == 1, masks[index] == 1)


def test_a_damaged_file_of_ground_truth_is_reported_in_one_line(files, folder, tmp_path, subtests):
    """Some files are read when the study starts, others when their sample is explained."""
    for number, harm in enumerate(["none", "cut", "objects", "xml", "json"]):
        with subtests.test(str(harm)):
            place = tmp_path / str(number)
            place.mkdir()
            archive = (files / "masks.npz").read_bytes()
            data, truth = str(files / "data.npz"), f"npz:{place / 'm.npz'}"
            if harm == "none":
                (place / "m.npz").write_bytes(b"no archive")
            elif harm == "cut":
                (place / "m.npz").write_bytes(archive[: len(archive) // 2])
            elif harm == "objects":
                np.savez(place / "m.npz", masks=np.array([None] * N))
            else:
                data, truth = f"image-folder:{folder / 'data'}?mode=L", f"voc:{place}"
                if harm == "json":
                    (place / "c.json").write_text("[[[")
                    truth = f"coco:{place / 'c.json'}"
                for index in range(4):
                    (place / f"p{index}.xml").write_text("<annotation><size>")
            line = r"damaged or cut short|cannot be read|Python objects|is no XML"
            with pytest.raises(RequestError, match=line) as error:
                brinell.explain(Halves(), data, truth=truth, method="centre", steps=0, copies=0, out=place / "run")
            assert "\n" not in str(error.value) and "allow_pickle" not in str(error.value)


def test_ground_truth_of_signals(tmp_path):
    x = np.zeros((4, 1, 50), np.float32)
    x[:, 0, 20:25] = 1.0
    np.savez(tmp_path / "beats.npz", x=x, y=np.array([0, 1, 0, 1]))
    (tmp_path / "spans.csv").write_text("sample,start,end\n0,0.2,0.25\n0,0.4,0.41\n2,0,0.1\n")
    net = nn.Sequential(nn.Conv1d(1, 2, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    data = f"npz:{tmp_path / 'beats.npz'}?kind=signal&rate=100"
    settings = {"method": ("centre", "grad-cam"), "samples": 4, "steps": 2, "copies": 0}
    result = brinell.explain(net, data, truth=f"spans:{tmp_path / 'spans.csv'}", out=tmp_path / "run", **settings)
    table = TABLE.read(result.folder)
    assert result.n == 2 and result.facts.left_out == {"without ground truth": 2}
    assert np.flatnonzero(load_truths(table.path, [0])[0]).tolist() == [20, 21, 22, 23, 24, 40]
    assert "<svg" in page_of(result)


@pytest.mark.slow
def test_a_blank_map_is_reported_and_excluded_from_the_measures(files, tmp_path):
    plugin_file = tmp_path / "own.py"
    plugin_file.write_text(BLANK.replace("SUM", repr(float(pictures()[0][0].sum()))))
    result = brinell.explain(
        Halves(),
        str(files / "data.npz"),
        truth=f"npz:{files / 'masks.npz'}",
        method=(f"{plugin_file}:Sometimes", "centre"),
        samples=N,
        steps=4,
        copies=0,
        out=tmp_path / "run",
    )
    blank, centre = (method for method in result.methods if "," not in method.name)
    assert (blank.blank, centre.blank) == (1, 0)
    assert blank.dice.n == blank.deletion.n == result.n - 1 and centre.dice.n == result.n
    assert f"is constant on 1 of {result.n} samples" in " ".join(said(result))
    assert page_of(result).count("constant map") == 1


def test_a_map_that_does_not_change_with_the_weights_is_reported(files, tmp_path):
    """A random map does not depend on the model; every map of a network with one weight stays the same too."""
    result = brinell.explain(
        Halves(),
        str(files / "data.npz"),
        method=("random", "gradient"),
        samples=16,
        steps=0,
        copies=2,
        cascade=1,
        out=tmp_path / "run",
    )
    random, gradient = (method for method in result.methods if "," not in method.name)
    assert random.similarity.value == pytest.approx(1) and random.forgets == "no" and random.complexity.value == 0
    assert gradient.similarity.value == pytest.approx(1), "one weight, shuffled, is the same"
    assert random.cascade == [random.similarity] and len(result.facts.cascade) == 1


def layered():
    """A network of a convolution and a layer with constant weights, which shuffling does not change."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 10 * 10, 2, bias=False))
    net[0].weight.data = torch.arange(18.0).reshape(2, 1, 3, 3) - 6
    net[3].weight.data.fill_(0.1)
    return net


def test_layers_are_shuffled_from_the_last_to_the_first():
    net = layered()
    net[3].weight.data = torch.arange(400.0).reshape(2, 200)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    stages = make_shuffled_model(TorchModel(net, DOMAIN, 2), 0, 9)
    assert [list(names) for names in stages.layers] == [["3"], ["0"]]
    unchanged = [
        [torch.equal(a, b) for a, b in zip(before, stages.shuffle(k).info.module.parameters(), strict=True)] for k in range(3)
    ]
    assert unchanged == [[True, True], [True, False], [False, False]]
    for parameter, shuffled in zip(before, stages.shuffle(2).info.module.parameters(), strict=True):
        assert torch.equal(parameter.flatten().sort().values, shuffled.flatten().sort().values)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    parameters = [parameter.clone() for parameter in stages.shuffle(2).info.module.parameters()]
    single = make_shuffled_model(TorchModel(net, DOMAIN, 2), 0)
    assert [list(names) for names in single.layers] == [["3", "0"]]
    assert all(torch.equal(a, b) for a, b in zip(parameters, single.shuffle(1).info.module.parameters(), strict=True))
    assert not torch.equal(parameters[1], make_shuffled_model(TorchModel(net, DOMAIN, 2), 1).shuffle(1).info.module[3].weight)


def test_the_cascade_is_compared_stage_by_stage(files, tmp_path):
    """The last layer has constant weights, so shuffling it changes no map; shuffling the first layer does."""
    settings = {"samples": 16, "steps": 0, "copies": 1, "cascade": 2}
    result = brinell.explain(layered(), str(files / "data.npz"), method=("gradient", "random"), out=tmp_path / "run", **settings)
    gradient, random = (method for method in result.methods if "," not in method.name)
    assert result.facts.cascade == [["3"], ["0"]]
    assert gradient.cascade[0].value == pytest.approx(1) and gradient.cascade[1].high < 0.9
    assert gradient.cascade[1] == gradient.similarity and [stage.value for stage in random.cascade] == pytest.approx([1, 1])
    assert result.methods[1].name == "gradient" + BLURRED and result.methods[1].cascade is None
    assert "and layer 0" in page_of(result)
    assert "With shuffled weights, gradient made a similar map: it shows the input and not the model." in said(result)


def test_maps_of_a_trained_network_change_with_its_weights(files, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2, bias=False))
    half = (torch.arange(SIDE * SIDE) % SIDE < SIDE // 2).float()
    net[1].weight.data = torch.stack([half, 1 - half]) * 0.2
    settings = {"samples": 16, "steps": 0, "copies": 0, "cascade": 1}
    result = brinell.explain(net, str(files / "data.npz"), method="gradient", out=tmp_path / "run", **settings)
    assert result.methods[0].forgets == "yes" and (result.methods[0].similarity.high or 0.0) < 0.4


def test_adversarial_examples_of_a_run(files, tmp_path):
    """The maps of the attack are judged like other methods, and the report links to the page."""
    run = tmp_path / "run"
    data, net = str(files / "data.npz"), f"{files / 'net.py'}:make"
    (files / "net.py").write_text(NETWORK)
    attack = "rlab?distortions=occlusion&patch=4&steps=20&policy=greedy"
    brinell.audit(net, data, attack=attack, norm="l2", eps=6.0, out=run)
    result = brinell.explain(run=str(run), method=("rlab?questions=32", "centre"), steps=3, copies=0)
    names = [method.name for method in result.methods if "," not in method.name]
    assert result.folder == str(run / "explain") and names[-2:] == ["placed", "sensitivity"] and result.n >= 3
    table = TABLE.read(result.folder)
    sample = int(table.rows.sample_id[0])
    placed_map = load_maps(table.path, [sample])["placed", sample]
    assert set(np.unique(placed_map)) == {0.0, 1.0}
    assert (table.rows.prediction != table.rows.label).all(), "the adversarial example is explained"
    assert 'href="explain/report.html#sample-' in (run / "report.html").read_text()
    cost = next(method for method in result.methods if method.name == "placed").queries
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
