"""Segmentation under attack, on a network of which the worst case of every pixel is known."""

import numpy as np
import pytest
import torch

import brinell
from _pictures import write_pictures
from _refusals import refused
from brinell.core.errors import BrinellError
from brinell.studies.dense.records import TABLE
from brinell.studies.dense.segmentation_analysis import Candidates, miou

EPS = (0.05, 0.2)


class Threshold(torch.nn.Module):
    """Class 1 where the first channel is above a half: an attack turns exactly the pixels that are as near as eps."""

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
    """Pictures, and masks that the network gets right; one mask leaves a row out, another everything."""
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
    return brinell.dense(Threshold(), data, eps=list(EPS), attack="sea?steps=6", out=folder)


def test_the_worst_case_is_found_exactly(result):
    x, masks = pictures()
    valid = int((masks != 255).sum())
    for figure, eps in zip(result.pixel_accuracy[1:], EPS, strict=True):
        assert figure.value == pytest.approx(1 - turned(x, masks, eps) / valid, abs=1e-9)
    assert result.pixel_accuracy[0].value == 1 and result.miou[0].value == 1
    assert result.n == 5 and result.task == "segmentation"


def test_a_picture_without_classes_is_stated_and_not_attacked(result):
    assert any("1 of 5 pictures have no pixel of any class" in note for note in result.notes)
    rows = TABLE.read(result.folder).rows
    assert set(rows.attack[rows.sample_id == 0]) == {"clean"}


def test_inputs_of_smaller_budgets_count_at_larger_ones():
    """Candidates of a set are exchanged only where that lowers its mean IoU, so it never rises."""
    rows = TABLE.of(
        sample_id=np.array([0, 1, 0, 1, 0, 1]),
        attack=np.array(["clean", "clean", "a", "a", "a", "a"], dtype=object),
        eps=np.array([0, 0, 0.1, 0.1, 0.2, 0.2]),
        outcome=np.array(["open"] * 6, dtype=object),
        margin=np.zeros(6),
        distance=np.zeros(6),
        forwards=np.zeros(6),
        backwards=np.zeros(6),
        first_success=np.zeros(6),
        valid=np.full(6, 10),
        wrong=np.array([0, 0, 6, 5, 2, 1]),
        answer=np.array(
            ["[[0,0,10]]", "[[1,1,10]]", "[[0,0,4],[0,1,6]]", "[[1,1,5],[1,0,5]]", "[[0,0,8],[0,1,2]]", "[[1,1,9],[1,0,1]]"],
            dtype=object,
        ),
        seconds=np.zeros(6),
    )
    candidates = Candidates(rows, (0.1, 0.2))
    chosen = candidates.most_wrong()
    assert candidates.right[chosen].sum(1).tolist() == [20, 9, 9]
    values = [miou(candidates.counts[level].sum(0)) for level in candidates.lowest_miou()]
    assert values[0] == 1 and values[1] == values[2] == pytest.approx((4 / 15 + 5 / 16) / 2)


def test_audit_hands_pictures_with_masks_over(tmp_path):
    x, masks = pictures()
    data = brinell.data(x, masks=masks)
    handed = brinell.audit(Threshold(), data, eps="0.2", attack="pgd?steps=3", out=tmp_path / "a")
    assert handed.task == "segmentation" and handed.payload()["miou"][0]["eps"] == 0
    with pytest.raises(BrinellError, check=refused("studies.register.hand_over")):
        brinell.audit(Threshold(), data, targeted="1", out=tmp_path / "b")


def test_a_smaller_map_is_enlarged_and_said(tmp_path):
    x, masks = pictures()
    data = brinell.data(x, masks=masks)
    enlarged = brinell.dense(Coarse(), data, eps="0.1", attack="pgd?steps=2", enlarge="nearest", out=tmp_path / "a")
    assert any("answers maps of 6 x 6 for pictures of 12 x 12: they are enlarged (nearest)" in note for note in enlarged.notes)


def test_probabilities_are_read_as_logits(tmp_path):
    x, masks = pictures()
    read = brinell.dense(Probabilities(), brinell.data(x, masks=masks), eps="0.2", attack="sea?steps=6", out=tmp_path / "a")
    assert any("answers probabilities" in note for note in read.notes)
    assert read.pixel_accuracy[1].value == pytest.approx(1 - turned(x, masks, 0.2) / int((masks != 255).sum()), abs=1e-9)


ATTACKS = ["square?steps=40", "simba?steps=20", "hop-skip-jump?steps=2", "rlab?steps=30", "pgd?steps=3"]


def test_attacks_of_classes_run_unchanged(tmp_path, subtests):
    for number, attack in enumerate(ATTACKS):
        with subtests.test(str(attack)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, masks = pictures(3)
            norm = "l2" if attack.startswith(("simba", "hop", "rlab")) else "linf"
            study = brinell.dense(
                Threshold(),
                brinell.data(x, masks=masks),
                eps="0.2" if norm == "linf" else "2",
                norm=norm,
                attack=attack,
                out=folder / "a",
                criterion="pixels:0.2",
            )
            assert study.pixel_accuracy[1].value < 1


def test_certified_is_at_most_what_attacks_leave(tmp_path):
    x, masks = pictures()
    data = brinell.data(x, masks=masks)
    # Two logits of a pixel move by as much as its first channel, each: the constant is sqrt(2).
    proved = brinell.dense(
        Threshold(), data, norm="l2", eps="0.1,0.5", lipschitz=2**0.5, attack="sea?steps=5", out=tmp_path / "a"
    )
    assert proved.contradictions == 0 and [figure.eps for figure in proved.certified] == [0.1, 0.5]
    for level, certified in enumerate(proved.certified, start=1):
        assert certified.value <= proved.pixel_accuracy[level].value
    false = brinell.dense(Threshold(), data, norm="l2", eps="0.5", lipschitz=0.01, attack="sea?steps=5", out=tmp_path / "b")
    assert false.contradictions > 0, "a constant that does not hold is contradicted"


BAD_REQUESTS = [
    ({"criterion": "most"}, "criterion is 'most': write"),
    ({"criterion": "gone:cat"}, "there is no class 'cat'"),
    ({"lipschitz": 1.0}, "certifies in L2 alone"),
    ({"eps": "0"}, "names no budget above 0"),
    ({"attack": "fast"}, "is a cascade for models that answer one class"),
    ({"attack": "sea?loss=ce"}, "has steps alone"),
    ({"attack": "sparse-rs"}, "does not work on pictures in linf"),
]


def test_requests_that_cannot_be_carried_out(tmp_path, subtests):
    for number, (settings, words) in enumerate(BAD_REQUESTS):
        with subtests.test(str(words)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, masks = pictures()
            with pytest.raises(BrinellError, match=words):
                brinell.dense(Threshold(), brinell.data(x, masks=masks), **settings, out=folder / "a")


def test_models_and_data_that_do_not_fit(tmp_path):
    x, masks = pictures()
    with pytest.raises(BrinellError, match="have one class for each"):
        brinell.audit(Threshold(), (x, np.zeros(5, int)), out=tmp_path / "a")
    with pytest.raises(BrinellError, match="answers one class for each input"):
        brinell.dense(torch.nn.Flatten(), brinell.data(x, masks=masks), out=tmp_path / "a")
    masks[2, 0, 0] = 7
    with pytest.raises(BrinellError, check=refused("engine.dense_outputs.fit_maps")):
        brinell.dense(Threshold(), brinell.data(x, masks=masks), out=tmp_path / "a")


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
        [onnx.numpy_helper.from_array(weight, "weight"), onnx.numpy_helper.from_array(np.array([0.5, -0.5], np.float32), "bias")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


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
            study = brinell.dense(f"onnx:{file}{options}", data, eps="0.2", attack=attack, out=folder / "a")
            exact = 1 - turned(x, masks, 0.2) / int((masks != 255).sum())
            assert study.pixel_accuracy[0].value == 1
            assert (
                study.pixel_accuracy[1].value == pytest.approx(exact) if options else exact <= study.pixel_accuracy[1].value < 1
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
    study = brinell.dense(network(), brinell.data(x, masks=masks), eps="0.1", attack="square?steps=2", out=tmp_path / "a")
    assert {check.code for check in study.checks if not check.passed} == failed


def test_an_attack_that_leaves_more_at_a_larger_budget_is_named(tmp_path):
    x, masks = pictures()
    study = brinell.dense(
        Threshold(), brinell.data(x, masks=masks), eps="0.1,0.2", attack=["pgd?steps=4", "sea?steps=4"], out=tmp_path / "a"
    )
    by_code = {check.code: check for check in study.checks}
    assert by_code["monotone"].passed and by_code["apgd-against-pgd"].passed


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
    with pytest.raises(BrinellError, match="answers a map of 2 x 12 x 12"):
        brinell.attack(model, x.transpose(0, 3, 1, 2), [0] * 5, eps=0.1)
