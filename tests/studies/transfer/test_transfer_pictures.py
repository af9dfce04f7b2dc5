"""Transfer between networks with dense outputs, on networks of which it is known what inputs of the
others do to them."""

import numpy as np
import pytest
import torch

import brinell
from _spots import VANISHING, Spots, entries, spots
from brinell.core.errors import BrinellError
from brinell.store.files import read_arrays
from brinell.studies import register

EPS = 0.1
PICTURES = ([(0, 0), (3, 1)], [])


class Channel(torch.nn.Module):
    """Class 1 where one channel is above a half."""

    channel = 0

    def forward(self, x):
        lead = x[:, self.channel : self.channel + 1] - 0.5
        return torch.cat([-lead, lead], 1)


class Copy(Channel):
    """The same network again."""


class Elsewhere(Channel):
    """A network that looks at the second channel, which the pictures keep far from a half."""

    channel = 1


class Mixture(torch.nn.Module):
    """Three classes by a random linear map of each pixel."""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(3, 3, 1, 1, generator=generator)

    def forward(self, x):
        return torch.nn.functional.conv2d(x - 0.5, self.weight)


class SecondMixture(Mixture):
    """Another one."""


class Faint(Spots):
    """A detector that finds objects which are darker by a tenth, so that they vanish later."""

    def forward(self, x):
        return super().forward(x + 0.1)


def pictures(n=5, side=10):
    """Pictures and masks that the networks of both channels get right; one mask leaves everything
    out.
    """
    x = np.random.default_rng(0).integers(0, 256, (n, side, side, 3)).astype(np.uint8)
    masks = (x[..., 0] > 127).astype(np.uint8)
    x[..., 1] = np.where(masks, 215, 40)
    masks[0] = 255
    return x, masks


def value(result, source, model, name="pixel accuracy", aim="pixels"):
    """A figure of the result."""
    key = (source, aim if source else None, model)
    (cell,) = (cell for cell in result.cells if (cell.source, cell.aim, cell.model) == key)
    return {effect.quantity: effect for effect in cell.figures}[name].value


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    x, masks = pictures()
    data, out = (
        brinell.data(x, masks=masks, classes=["dark", "bright"]),
        tmp_path_factory.mktemp("transfer") / "study",
    )
    return brinell.transfer(
        model=[Channel(), Copy(), Elsewhere()], data=data, eps=EPS, attack="sea?steps=6", out=out
    )


def test_inputs_harm_a_copy_as_much_and_a_network_that_looks_elsewhere_not_at_all(result):
    x, masks = pictures()
    channel, valid = x[..., 0] / np.float32(255), masks != 255
    mistakes = np.where(masks == 1, channel - EPS <= 0.5, channel + EPS > 0.5) & valid
    exact = 1 - mistakes.sum() / valid.sum()
    for source in ("Channel", "Copy"):
        assert (
            value(result, source, "Channel")
            == value(result, source, "Copy")
            == pytest.approx(exact, abs=1e-9)
        )
        assert (
            value(result, source, "Elsewhere")
            == value(result, source, "Elsewhere", "mean IoU")
            == 1
        )
    assert all(value(result, None, model) == 1 for model in result.names)
    assert value(result, "Elsewhere", "Elsewhere") == 1
    assert [cell.white_box for cell in result.cells] == [False] * 3 + [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
        False,
        True,
    ]


def test_changes_are_paired_by_picture(result):
    for cell in result.cells:
        for effect in cell.figures:
            assert effect.change.value <= 0
            for figure in (effect.change, effect):
                assert figure.low is None or figure.low <= figure.value <= figure.high
            if cell.model == "Elsewhere":
                assert effect.change.value == 0 and effect.change.low is None, (
                    "pictures that are all alike give no interval"
                )


def test_figures_come_from_rows_alone(result):
    assert brinell.open(result.folder) == result
    rows = register.load("transfer pictures").table().read(result.folder).rows
    assert len(rows) == 5 * 3 * (1 + 3)
    assert rows.distance.max() <= EPS + 1e-6
    assert "On inputs found on Channel, the pixel accuracy of Copy is" in " ".join(
        result.report().sentences
    )


def test_cells_are_the_answers_to_the_inputs_that_dense_finds(tmp_path, subtests):
    """On the source the figure is that of an audit; elsewhere the stored inputs, shown once more,
    give it.
    """
    for number, seed in enumerate(range(1)):
        with subtests.test(str(seed)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, _ = pictures(3, 6)
            data = brinell.data(
                x, masks=np.random.default_rng(seed).integers(0, 3, x.shape[:3]).astype(np.uint8)
            )
            networks, settings = (
                {"Mixture": Mixture(seed), "SecondMixture": SecondMixture(100 + seed)},
                {"eps": 0.05, "attack": "pgd?steps=3"},
            )
            result = brinell.transfer(
                model=list(networks.values()), data=data, **settings, batch_size=2, out=folder / "a"
            )
            swapped = brinell.transfer(
                model=list(networks.values())[::-1],
                data=data,
                **settings,
                batch_size=2,
                out=folder / "b",
            )
            masks = torch.from_numpy(data.info.truth.load(range(3)).astype(np.int64))
            for number, (source, network) in enumerate(networks.items()):
                study = brinell.audit(network, data, **settings, batch_size=2, out=folder / source)
                assert value(result, source, source) == study.robust_accuracy[0].value
                assert value(result, None, source) == study.clean_accuracy.value
                files = [
                    read_arrays(folder / "a" / "inputs" / f"{number:03d}-{group:04d}.safetensors")
                    for group in range(1)
                ]
                examples = torch.from_numpy(
                    np.stack([files[0][f"pixels-{sample}"] for sample in range(3)])
                )
                for model, target in networks.items():
                    right = (target(examples).argmax(1) == masks).float().mean()
                    assert value(result, source, model) == pytest.approx(float(right), abs=1e-6)
                    assert value(result, source, model) == value(swapped, source, model)


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    x, objects = spots(*PICTURES)
    data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
    settings = {"eps": VANISHING + 0.05, "attack": "pgd?steps=8", "criterion": "missed+false"}
    return brinell.transfer(
        model=[Spots(), Faint()],
        data=data,
        **settings,
        out=tmp_path_factory.mktemp("boxes") / "study",
    )


@pytest.mark.slow
def test_a_detector_that_loses_objects_later_keeps_them_and_its_inputs_harm_the_other(detectors):
    for source in ("Spots", "Faint"):
        assert value(detectors, source, "Spots", "missed", "missed") == 1
        assert value(detectors, source, "Faint", "missed", "missed") == 0
        assert value(detectors, source, "Spots", "recall", "missed") == 0
        assert value(detectors, source, "Faint", "recall", "missed") == 1
    assert value(detectors, None, "Spots", "AP50") == value(detectors, None, "Faint", "AP50") == 1


def test_kinds_of_errors_have_cells_of_their_own(detectors):
    assert [cell.aim for cell in detectors.cells[2:]] == ["missed"] * 2 + ["false"] * 2 + [
        "missed"
    ] * 2 + ["false"] * 2
    for cell in detectors.cells:
        figures = {effect.quantity: effect.value for effect in cell.figures}
        assert sum(
            figures[name] for name in ("recall", "missed", "mislabelled", "misplaced")
        ) == pytest.approx(1)
    assert brinell.open(detectors.folder) == detectors


def test_one_source_is_attacked_where_one_is_named(tmp_path):
    x, masks = pictures(3)
    data, settings = (
        brinell.data(x, masks=masks),
        {"eps": EPS, "attack": "pgd?steps=2", "out": tmp_path / "a"},
    )
    single = brinell.transfer("Copy", model=[Channel(), Copy()], data=data, **settings)
    assert single.facts.sources == ["Copy"] and len(single.cells) == 4


REFUSALS = [
    ({"model": [Channel()]}, "needs two models, and one is named"),
    ({"source": "Third"}, "no model is named 'Third': the models are Channel, Copy"),
    ({"eps": "0.1,0.2"}, "is no single budget"),
    ({"eps": "0"}, "names no budget above 0"),
    ({"attack": "standard"}, "is a cascade for models that answer one class"),
    ({"model": [Channel(), torch.nn.Flatten()]}, "answers one class for each input"),
    ({"norm": "l1"}, "are attacked in linf or l2"),
]


def test_what_cannot_be_carried_out_is_refused(tmp_path, subtests):
    for number, (settings, words) in enumerate(REFUSALS):
        with subtests.test(str(words)):
            folder = tmp_path / str(number)
            folder.mkdir()
            x, masks = pictures(2)
            usual = {
                "model": [Channel(), Copy()],
                "data": brinell.data(x, masks=masks),
                "eps": 0.1,
                "attack": "pgd?steps=2",
            }
            with pytest.raises(BrinellError, match=words):
                brinell.transfer(**usual | settings, out=folder / "a")
            assert not (folder / "a").exists()
