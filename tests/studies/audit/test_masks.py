"""Segmentation under attack, on a network of which the worst case of every pixel is known."""

import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium
from _pictures import write_pictures
from _refusals import refused
from brinell.core.errors import BrinellError
from brinell.studies import register

EPS = (0.05, 0.2)


class Threshold(torch.nn.Module):
    """Class 1 where the first channel is above a half: an attack turns exactly the pixels that are
    as near as eps.
    """

    def forward(self, x):
        lead = x[:, :1] - 0.5
        return torch.cat([-lead, lead], 1)


class Coarse(Threshold):
    """The same on every second pixel."""

    def forward(self, x):
        return super().forward(x)[:, :, ::2, ::2]


class Probabilities(Threshold):
    """The same after a softmax."""

    def forward(self, x):
        return (20 * super().forward(x)).softmax(1)


def pictures(n=5, side=12):
    """Pictures, and masks that the network gets right; one mask leaves a row out, another
    everything.
    """
    x = np.random.default_rng(0).integers(0, 256, (n, side, side, 3)).astype(np.uint8)
    masks = (x[..., 0] > 127).astype(np.uint8)
    masks[0], masks[1, 0] = 255, 255
    return x, masks


def turned(x, masks, eps):
    """How many valid pixels an attack within eps can turn."""
    value = x[..., 0] / np.float32(255)
    near = np.where(masks == 1, value - eps <= 0.5, value + eps > 0.5)
    return int((near & (masks != 255)).sum())


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    x, masks = pictures()
    folder = tmp_path_factory.mktemp("dense") / "study"
    data = brinell.data(x, masks=masks, classes=["dark", "bright"])
    return brinell.audit(Threshold(), data, eps=list(EPS), attack="sea?steps=6", out=folder)


def test_the_worst_case_is_found_exactly(result):
    x, masks = pictures()
    valid = int((masks != 255).sum())
    for figure, eps in zip(result.robust_accuracy, EPS, strict=True):
        assert figure.value == pytest.approx(1 - turned(x, masks, eps) / valid, abs=1e-9)
    assert result.clean_accuracy.value == 1 and result.figures[0].values[0].value == 1
    assert result.n == 5 and result.facts.task == "segmentation"


def test_a_picture_without_classes_is_stated_and_not_attacked(result):
    assert any("1 of 5 pictures have no pixel of any class" in note for note in result.notes)
    rows = register.load("audit pictures").table().read(result.folder).rows
    assert set(rows.attack[rows.sample_id == 0]) == {"clean"}


def test_a_smaller_map_is_enlarged_and_said(tmp_path):
    x, masks = pictures()
    data = brinell.data(x, masks=masks)
    enlarged = brinell.audit(Coarse(), data, eps="0.1", attack="pgd?steps=2", out=tmp_path / "a")
    assert any(
        "answers maps of 6 x 6 for pictures of 12 x 12: they are enlarged" in note
        for note in enlarged.notes
    )


def test_probabilities_are_read_as_logits(tmp_path):
    x, masks = pictures()
    read = brinell.audit(
        Probabilities(),
        brinell.data(x, masks=masks),
        eps="0.2",
        attack="sea?steps=6",
        out=tmp_path / "a",
    )
    assert any("answers probabilities" in note for note in read.notes)
    assert read.robust_accuracy[0].value == pytest.approx(
        1 - turned(x, masks, 0.2) / int((masks != 255).sum()), abs=1e-9
    )


ATTACKS = [
    "square?steps=40",
    "simba?steps=20",
    "hop-skip-jump?steps=2",
    "rlab?steps=30",
    "pgd?steps=3",
]


@pytest.mark.slow
def test_attacks_of_classes_run_unchanged(tmp_path, subtests):
    for number, attack in enumerate(ATTACKS):
        with subtests.test(str(attack)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, masks = pictures(3)
            norm = "l2" if attack.startswith(("simba", "hop", "rlab")) else "linf"
            study = brinell.audit(
                Threshold(),
                brinell.data(x, masks=masks),
                eps="0.2" if norm == "linf" else "2",
                norm=norm,
                attack=attack,
                out=folder / "a",
                criterion="pixels:0.2",
            )
            assert study.robust_accuracy[0].value < 1


BAD_REQUESTS = [
    ({"criterion": "most"}, "criterion is 'most': write"),
    ({"criterion": "gone:cat"}, "there is no class 'cat'"),
    ({"norm": "l1"}, "are attacked in linf or l2"),
    ({"targeted": "1"}, "targeted"),
    ({"precision": "tf32"}, "precision"),
    ({"certify": True}, "certify"),
    ({"model": [Threshold(), Threshold()]}, "one by one"),
    ({"eps": "0"}, "names no budget above 0"),
    ({"attack": "standard"}, "is a cascade for models that answer one class"),
    ({"attack": "sea?loss=ce"}, "has steps alone"),
    ({"attack": "sparse-rs"}, "cannot attack Threshold: it works in"),
]


def test_requests_that_cannot_be_carried_out(tmp_path, subtests):
    for number, (settings, words) in enumerate(BAD_REQUESTS):
        with subtests.test(str(words)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, masks = pictures()
            with pytest.raises(BrinellError, match=words):
                brinell.audit(
                    **{"model": Threshold(), "data": brinell.data(x, masks=masks)} | settings,
                    out=folder / "a",
                )


def test_models_and_data_that_do_not_fit(tmp_path):
    x, masks = pictures()
    with pytest.raises(BrinellError, match="answers one class for each input"):
        brinell.audit(torch.nn.Flatten(), brinell.data(x, masks=masks), out=tmp_path / "a")
    masks[2, 0, 0] = 7
    with pytest.raises(BrinellError, check=refused("engine.tasks.fit_maps")):
        brinell.audit(Threshold(), brinell.data(x, masks=masks), out=tmp_path / "a")


def write_onnx(file):
    """The network as a file with one convolution."""
    onnx = pytest.importorskip("onnx")
    weight = np.zeros((2, 3, 1, 1), np.float32)
    weight[:, 0, 0, 0] = -1, 1
    helper, shape = onnx.helper, ["n", 3, 12, 12]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "weight", "bias"], ["map"])],
        "threshold",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("map", onnx.TensorProto.FLOAT, ["n", 2, 12, 12])],
        [
            onnx.numpy_helper.from_array(weight, "weight"),
            onnx.numpy_helper.from_array(np.array([0.5, -0.5], np.float32), "bias"),
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file
    )


def test_maps_in_onnx(tmp_path, subtests):
    for number, options in enumerate(["", "?gradients=true"]):
        with subtests.test(str(options)):
            folder = tmp_path / str(number)
            folder.mkdir()
            pytest.importorskip("onnxruntime")
            x, masks = pictures()
            file = folder / "threshold.onnx"
            write_onnx(file)
            attack = "sea?steps=6" if options else "square?steps=60"
            data = brinell.data(x, masks=masks)
            study = brinell.audit(
                f"onnx:{file}{options}", data, eps="0.2", attack=attack, out=folder / "a"
            )
            exact = 1 - turned(x, masks, 0.2) / int((masks != 255).sum())
            assert study.clean_accuracy.value == 1
            assert (
                study.robust_accuracy[0].value == pytest.approx(exact)
                if options
                else exact <= study.robust_accuracy[0].value < 1
            )


class Argmax(Threshold):
    """The class of each pixel alone."""

    def forward(self, x):
        return torch.nn.functional.one_hot(super().forward(x).argmax(1), 2).movedim(-1, 1).float()


class Steep(Threshold):
    """Logits so large that float32 rounds every probability to 1."""

    def forward(self, x):
        return 1e6 * super().forward(x)


class Detached(Threshold):
    """A gradient that leads nowhere."""

    def forward(self, x):
        return super().forward(x.round() + 0 * x)


NETWORKS = [
    (Threshold, set()),
    (Argmax, {"argmax", "gradient"}),
    (Steep, set()),
    (Detached, {"argmax", "gradient"}),
]


@pytest.mark.parametrize(("network", "failed"), NETWORKS)
def test_checks_find_what_hides_the_gradient(network, failed, tmp_path):
    x, masks = (values[1:] for values in pictures())  # the checks look at the first picture
    study = brinell.audit(
        network(),
        brinell.data(x, masks=masks),
        eps="0.1",
        attack="square?steps=2",
        out=tmp_path / "a",
    )
    assert {check.code for check in study.checks if not check.passed} == failed and len(
        study.cautions()
    ) == len(failed)


class Exchanged(Threshold):
    """The classes in the other order."""

    def forward(self, x):
        return super().forward(x).flip(1)


def test_a_mistake_in_the_answers_is_said_first(tmp_path):
    x, masks = pictures()
    study = brinell.audit(
        Exchanged(),
        brinell.data(x, masks=masks),
        eps="0.1",
        attack="pgd?steps=2",
        out=tmp_path / "a",
    )
    assert study.clean_accuracy.value == 0 and str(study).startswith(
        "Do not rely on the figures: without an attack 0 % of the pixels"
    )
    assert "with its classes in another order (0 is 1, 1 is 0)" in study.cautions()[0]


def test_calls_that_need_labels_refuse_masks_and_maps(tmp_path):
    x, masks = pictures()
    data, model = brinell.data(x, masks=masks), Threshold()
    spec, network = write_pictures(tmp_path / "pictures")
    for verb in ("corrupt", "certify", "harden"):
        settings = {"train": data} if verb == "harden" else {}
        with pytest.raises(BrinellError, check=refused("engine.sources.check_labelled")):
            getattr(brinell, verb)(model, data, **settings, out=tmp_path / verb)
    with pytest.raises(BrinellError, check=refused("engine.sources.check_labelled")):
        brinell.corrupt(network, spec, out=tmp_path / "spec")
    with pytest.raises(BrinellError, match="answers masks of 2 x 12 x 12"):
        brinell.attack(model, x.transpose(0, 3, 1, 2), [0] * 5, eps=0.1)


def test_a_gate_judges_pixels_and_a_board_has_no_place_for_them(result, tmp_path):
    rate = result.robust_accuracy[-1]
    verdict = brinell.gate(result, robust=rate.value)
    assert rate.low is None and "too few for an interval" in verdict.failures[0].text
    board = brinell.board(result, out=tmp_path / "site")
    assert "gives no robust accuracy" in board.refused[0].why


@pytest.mark.browser
@pytest.mark.slow
def test_the_pages_in_a_browser(masks_run, boxes_run):
    with chromium() as browser:
        for run in (masks_run, boxes_run):
            check_everywhere(browser, run / "report.html")
