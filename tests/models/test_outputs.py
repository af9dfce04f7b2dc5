"""Answers of several parts: the logits are found, or named, or the message lists the parts and the
option.
"""

import itertools
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brinell
from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.inputs import models_of
from brinell.models._maps import MapModel, holds_probabilities
from brinell.models._outputs import pick
from brinell.models._torch_model import TorchModel
from brinell.models.torch import TorchModule

DOMAIN = Domain(kind="vector", shape=(6,))
X = torch.rand(9, 6, generator=torch.Generator().manual_seed(0))
Named = namedtuple("Named", "hidden scores")


@dataclass
class Answer:
    hidden: Tensor
    scores: Tensor
    loss: Tensor | None = None


FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Any], str | int]] = {
    "tuple": (lambda logits, hidden: (logits, hidden), 0),
    "list": (lambda logits, hidden: [hidden, logits], 1),
    "single": (lambda logits, hidden: (logits,), 0),
    "dict": (lambda logits, hidden: {"hidden": hidden, "scores": logits}, "scores"),
    "ordered": (lambda logits, hidden: OrderedDict(hidden=hidden, scores=logits), "scores"),
    "numbered": (lambda logits, hidden: {0: hidden, 1: logits}, 1),
    "dataclass": (lambda logits, hidden: Answer(hidden, logits), "scores"),
    "named tuple": (lambda logits, hidden: Named(hidden, logits), "scores"),
    "by place": (lambda logits, hidden: Named(hidden, logits), 1),
    "object": (lambda logits, hidden: SimpleNamespace(hidden=hidden, scores=logits), "scores"),
    "nested": (lambda logits, hidden: {"out": (hidden, {"scores": logits})}, "out.1.scores"),
    "with a loss": (lambda logits, hidden: (logits.mean(), logits, None, "text", 3), 1),
    "dotted": (
        lambda logits, hidden: {"head.scores": logits, "head.hidden": hidden},
        "head.scores",
    ),
}


class Network(nn.Module):
    def __init__(self, form: Callable[[Tensor, Tensor], Any], hidden: int = 4) -> None:
        super().__init__()
        self.form, self.first, self.last = form, nn.Linear(6, hidden), nn.Linear(hidden, 3)
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.randn(value.shape, generator=rng))

    def forward(self, x: Tensor) -> Any:
        hidden = self.first(x)
        return self.form(self.last(hidden), hidden)


def plain(hidden: int = 4) -> Network:
    return Network(lambda logits, _: logits, hidden)


def test_the_part_of_as_many_columns_as_classes_is_found_or_named() -> None:
    logits = plain()(X)
    data = brinell.data(X, logits.argmax(1))
    for form, (make, output) in FORMS.items():
        for function, by_shape in itertools.product((True, False), repeat=2):
            network = Network(make).eval()
            settings = {} if by_shape else {"output": output}
            (model,) = models_of(
                {"mine": network.forward if function else network}, data, "", **settings
            )
            assert torch.equal(model.predict(X), logits) and model.classes == 3
            place = {"by place": "scores"}.get(form, str(output))
            said = (
                f"mine answers several parts, of which {place} is read: its shape is that of logits"
                in model.info.notes
            )
            assert said == by_shape, model.info.notes
    model = TorchModel(Network(lambda logits, hidden: {"a": hidden, "logits": logits}), DOMAIN)
    assert (model.classes, model.info.notes) == (3, ())


def test_several_candidates_are_listed_with_the_option(tmp_path: Path) -> None:
    rows = [
        (
            lambda logits, hidden: (logits, 2 * logits),
            r"0 \(\d, 3\), 1 \(\d, 3\); several may be the logits: say which by output=PART",
        ),
        (
            lambda logits, hidden: {"a": logits, "b": hidden, "c": -logits},
            r"a \(\d, 3\), b \(\d, 4\), c .*output=PART",
        ),
        (
            lambda logits, hidden: (logits.mean(), logits.mean()),
            r"0 \(\), 1 \(\); none has a row or a map of scores",
        ),
    ]
    data = X, plain()(X).argmax(1)
    for form, words in rows:
        for network in (Network(form), Network(form).forward):
            with pytest.raises(RequestError, match=words):
                brinell.audit(network, data, eps=0.1, out=tmp_path / "run")
    with pytest.raises(
        RequestError, match=r"output is for models in memory; a spec says it itself, .*\?output=0"
    ):
        brinell.audit("digits-cnn", "digits", output=0, out=tmp_path / "run")
    with pytest.raises(RequestError, match="output is 1.5: give a name or a place"):
        brinell.audit(plain(), data, output=1.5, out=tmp_path / "run")


def test_a_part_that_does_not_exist_is_refused() -> None:
    for output in [5, "nowhere", "hidden.3"]:
        with pytest.raises(
            RequestError,
            match=r"answers no part .*its parts are hidden \(2, 4\), scores \(2, 3\): take one",
        ):
            TorchModel(Network(FORMS["dict"][0]), DOMAIN, name="mine", output=output)


def test_a_spec_finds_and_names_the_part_as_well(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, "
        "n):\n        super().__init__()\n"
        "        self.a, self.b, self.n = nn.Linear(6, 4), nn.Linear(4, 3), n\n  "
        "  def forward(self, x):\n"
        "        h = self.a(x)\n        return (h, *[self.b(h)] * self.n)\n"
        "def net():\n    return Net(1)\ndef two():\n    return Net(2)\n"
    )
    assert TorchModule(path=f"{file}:net").open_for(DOMAIN, 3).classes == 3
    models = [
        TorchModule(path=f"{file}:two", output=output).open_for(DOMAIN, 3)
        for output in ("0", "1", "2")
    ]
    assert [model.classes for model in models] == [4, 3, 3] and len(
        {model.digest() for model in models}
    ) == 3
    with pytest.raises(RequestError, match=r"several may be the logits: say which by output=PART"):
        TorchModule(path=f"{file}:two").open_for(DOMAIN, 3)


class Segmentation(nn.Module):
    """Maps of two channels of a picture, in the form of a family of networks."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Any:
        lead = x[:, :1] - 0.5
        return self.form(torch.cat([-lead, lead], 1))


MAPS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "torchvision": (lambda maps: OrderedDict(out=maps, aux=-maps), "out"),
    "transformers": (lambda maps: SimpleNamespace(loss=None, logits=maps[..., ::4, ::4]), "logits"),
    "features": (lambda maps: {"features": maps.repeat(1, 4, 1, 1), "scores": maps}, "scores"),
    "single": (lambda maps: (maps,), "0"),
}


def test_the_map_among_several_parts_is_found() -> None:
    pictures = (
        (torch.rand(2, 8, 8, 3, generator=torch.Generator().manual_seed(0)) * 255)
        .to(torch.uint8)
        .numpy()
    )
    data = brinell.data(pictures, masks=pictures[..., 0] > 127, classes=["dark", "bright"])
    x = data.load([0, 1])
    for form, (make, path) in MAPS.items():
        (model,) = models_of(Segmentation(make), data, "")
        maps = pick(Segmentation(make)(x), path)
        assert maps.shape[-1] == (2 if form == "transformers" else 8)
        assert torch.allclose(
            MapModel(model).predict(x),
            nn.functional.interpolate(maps, (8, 8), mode="bilinear").flatten(1),
        )


def test_smaller_maps_are_enlarged_and_probabilities_become_logits() -> None:
    domain, softmax = Domain(kind="image", shape=(3, 8, 8)), nn.Softmax(1)
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for shrink in (4, 1):
        maps = Segmentation(lambda maps, shrink=shrink: maps[..., ::shrink, ::shrink])
        inner = TorchModel(maps, domain, data_classes=2)
        model, expected = (
            MapModel(inner),
            nn.functional.interpolate(maps(x), (8, 8), mode="bilinear"),
        )
        assert torch.allclose(model.predict(x), expected.flatten(1)) and model.output.shape == (
            2,
            8,
            8,
        )
        assert model.classes == 2 * 8 * 8 and any(
            "enlarged" in note for note in model.info.notes
        ) == (shrink == 4)
        probable = TorchModel(nn.Sequential(maps, softmax), domain, data_classes=2)
        assert holds_probabilities(probable, x) and not holds_probabilities(inner, x)
        logits = MapModel(probable, probabilities=True)
        wanted = nn.functional.interpolate(softmax(maps(x)).log(), (8, 8), mode="bilinear")
        assert torch.allclose(logits.predict(x), wanted.flatten(1), atol=1e-5)
        assert len({model.digest(), logits.digest(), MapModel(probable).digest()}) == 3


def test_maps_without_scores_are_refused_with_the_reason(tmp_path: Path) -> None:
    pictures = torch.zeros(2, 8, 8, 3, dtype=torch.uint8).numpy()
    masks = pictures[..., 0].copy()
    masks[:, 0] = 1
    data = brinell.data(pictures, masks=masks, classes=["dark", "bright"])
    with pytest.raises(RequestError, check=refused("models._torch_model.TorchModel.count_columns")):
        brinell.audit(
            Segmentation(lambda maps: maps.argmax(1)), data, eps=[0.1], out=tmp_path / "run"
        )
