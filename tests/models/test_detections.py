"""Detectors in each form: candidates, raw outputs with a function, lists of boxes, and ONNX files."""

import numpy as np
import pytest
import torch
from torch import nn

from _refusals import refused
from _spots import Final, Spots, spots
from brinell.core.boxes import Objects
from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.models._detections import check_corners
from brinell.models._torch_model import TorchModel
from brinell.models.onnx import Onnx
from brinell.models.torch import TorchModule

DOMAIN = Domain(kind="image", shape=(3, 16, 16))
UNKNOWN = [
    Objects(boxes=np.zeros((0, 4)), labels=np.zeros(0, int), crowd=np.zeros(0, bool))
    for _ in range(2)
]
"""Two pictures without objects."""
SOURCE = "from _spots import Final, Raw, Spots, decode\ndef fails(raw):\n    return raw[:, :1]\n"


class Changed(nn.Module):
    """A detector whose candidates are changed."""

    def __init__(self, change):
        super().__init__()
        self.network, self._change = Spots(), change

    def forward(self, x):
        return self._change(self.network(x))


@pytest.fixture
def inputs():
    """Two pictures."""
    return torch.from_numpy(spots([(0, 0), (3, 1)], [(1, 2)])[0])


def test_a_tensor_of_candidates(inputs):
    model = TorchModel(Spots(), DOMAIN, data_classes=3)
    assert (
        model.info.output == BoxForm(candidates=4, classes=3)
        and model.classes == 28
        and model.access == Access.GRADIENTS
    )
    assert torch.equal(model.predict(inputs), Spots()(inputs).flatten(1))
    boxes = model.info.output.decode(model.predict(inputs), 0.4)
    assert [picture.labels.tolist() for picture in boxes] == [[0, 1], [2]]


def test_lists_of_boxes_give_scores_alone_and_pass_no_second_suppression(inputs):
    model = TorchModel(Final(), DOMAIN, data_classes=3, name="final")
    form = model.info.output
    assert model.access == Access.SCORES and form.limit == 1.0 and form.candidates == 100
    assert any("attacks ask it for scores" in note for note in model.info.notes)
    pictures, decoded = form.decode(model.predict(inputs), 0.06), Spots()(inputs).numpy()
    for picture, candidates in zip(pictures, decoded, strict=True):
        expected = np.sort(candidates[:, 4:].max(1)[candidates[:, 4:].max(1) > 0.06])[::-1]
        assert picture.scores == pytest.approx(expected)


def test_a_raw_output_with_a_function(inputs, tmp_path):
    file = tmp_path / "net.py"
    file.write_text(SOURCE)
    model = TorchModule(path=f"{file}:Raw", decode=f"{file}:decode").open_for(DOMAIN, 3)
    assert torch.allclose(model.predict(inputs), Spots()(inputs).flatten(1))
    assert model.digest() != TorchModel(Spots(), DOMAIN, data_classes=3).digest()
    for decode, message in (
        (f"{file}:other", "other"),
        ("nothing", "names no function of a file"),
        (f"{file}:fails", "gives no boxes"),
    ):
        with pytest.raises(RequestError, match=message):
            TorchModule(path=f"{file}:Raw", decode=decode).open_for(DOMAIN, 3)


def test_candidates_of_another_form_are_refused():
    rows = [
        (
            lambda boxes: torch.cat((boxes[..., :4], 1 + boxes[..., 4:]), 2),
            "return scores from 0 to 1",
        ),
        (lambda boxes: boxes * torch.nan, "NaN or infinity"),
        (lambda boxes: boxes.repeat(1, 3, 1).mT, "along its last axis: return answer.transpose"),
    ]
    for change, message in rows:
        with pytest.raises(RequestError, match=message):
            TorchModel(Changed(change), DOMAIN, data_classes=3)


def test_corners_are_judged_on_real_pictures_where_they_are_shown(inputs):
    rows = [
        (
            lambda boxes: torch.cat((boxes[..., :4] / 16, boxes[..., 4:]), 2),
            "as fractions: multiply them",
        ),
        (lambda boxes: boxes[..., [2, 3, 0, 1, 4, 5, 6]], "% are no corners .* since x1 < x0"),
    ]
    for change, message in rows:
        model = TorchModel(Changed(change), DOMAIN, data_classes=3, name="net")
        candidates = model.info.output.unflatten(model.predict(inputs))
        with pytest.raises(RequestError, match=message):
            check_corners(candidates, UNKNOWN, (16, 16), "net", 0.05)

        # A detector that shows none of them is no worse for it.
        faint = torch.cat((candidates[..., :4], 0.003 * candidates[..., 4:]), 2)
        check_corners(faint, UNKNOWN, (16, 16), "net", 0.05)


def test_a_list_with_a_class_that_the_data_lack_is_refused(inputs):
    model = TorchModel(Final(), DOMAIN, data_classes=2, name="final")
    with pytest.raises(RequestError, check=refused("models._detections.pad_boxes")):
        model.predict(inputs)


def test_onnx_files_with_a_function(inputs, tmp_path_factory):
    for batch in [1, None]:
        for gradients in [False, True]:
            tmp_path = tmp_path_factory.mktemp("case")
            onnx = pytest.importorskip("onnx")
            pytest.importorskip("onnxruntime")
            helper = onnx.helper
            node = helper.make_node(
                "AveragePool", ["x"], ["y"], kernel_shape=[8, 8], strides=[8, 8]
            )
            ports = [
                helper.make_tensor_value_info(name, 1, [batch or "n", 3, side, side])
                for name, side in (("x", 16), ("y", 2))
            ]
            graph = helper.make_graph([node], "net", ports[:1], ports[1:])
            onnx.save(
                helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
                tmp_path / "net.onnx",
            )
            (tmp_path / "net.py").write_text(SOURCE)
            settings = {
                "path": str(tmp_path / "net.onnx"),
                "decode": f"{tmp_path / 'net.py'}:decode",
                "gradients": gradients,
            }
            model = Onnx(**settings)(DOMAIN)
            assert model.info.output == BoxForm(candidates=4, classes=3)
            assert model.access == (Access.GRADIENTS if gradients else Access.SCORES)
            assert torch.allclose(model.predict(inputs), Spots()(inputs).flatten(1), atol=1e-5)
            flipped = Onnx(**settings, bgr=True)(DOMAIN)
            assert torch.allclose(
                flipped.predict(inputs), Spots()(inputs.flip(1)).flatten(1), atol=1e-5
            )
            assert flipped.digest() != model.digest()


@pytest.mark.slow
def test_fastestdet_answers_alike_as_module_and_file(shared):
    folder, decode = shared / "dense" / "detection", "examples/detectors/fastestdet.py:decode"
    domain = Domain(kind="image", shape=(3, 352, 352))
    x = torch.rand(2, 3, 352, 352, generator=torch.Generator().manual_seed(0))
    module = TorchModule(path=f"{folder}/model_det.py:load", decode=decode).open_for(domain, 80)
    expected = module.info.output.unflatten(module.predict(x))
    for gradients in (False, True):
        model = Onnx(
            path=f"{folder}/FastestDet.onnx", decode=decode, bgr=True, gradients=gradients
        )(domain)
        answers = model.info.output.unflatten(model.predict(x))
        assert torch.allclose(answers[..., 4:], expected[..., 4:], atol=1e-4)
        assert torch.allclose(answers[..., :4], expected[..., :4], atol=0.05)
