"""What is special about each explainer: values worked by hand, and what they cost."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from _refusals import refused
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.explainers import grad_cam, kernel_shap, rlab
from brinell.explainers._asking import blurred, class_evidence
from brinell.explainers._cells import Cells, covariance
from brinell.models._torch_model import TorchModel

FILE = Path(__file__).parent / "values.json"
IMAGE = Domain(kind="image", shape=(1, 8, 8))


class Counted(nn.Module):
    """Logits of a network, with the sizes of the batches that it was shown."""

    def __init__(self, net):
        super().__init__()
        self.net, self.sizes = net, []

    def forward(self, x):
        self.sizes.append(len(x))
        return self.net(x)


def linear(domain, weight):
    net = nn.Sequential(nn.Flatten(), nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    net[1].weight.data = weight
    return Counted(net)


def explain(explainer, net, domain, x, y=None, batch_size=128, classes=2):
    """Maps of inputs by an explainer, with the ledger that counted."""
    net.eval()
    model = TorchModel(net, domain, classes, name="net")
    batch = Batch(
        ids=torch.arange(len(x)), x=x, y=torch.zeros(len(x), dtype=torch.int64) if y is None else y
    )
    anywhere = torch.full((len(x),), torch.inf)
    threat = Threat(distance=plugins.build("distance", "linf", {}), eps=anywhere, domain=domain)
    ledger = Ledger(
        model, batch, threat, access=explainer.access, batch_size=batch_size, minimal=True
    )
    attached = explainer.attach(net, domain) if hasattr(explainer, "attach") else explainer
    return attached(
        ledger.oracle(), ledger.batch, domain, Streams.of(0, torch.arange(len(x)))
    ), ledger


def build(name, **settings):
    return plugins.build("explainer", name, settings)


def inputs(n, domain=IMAGE, seed=0):
    return Streams.of(seed, torch.arange(n)).uniform(*domain.shape)


def test_gradient_of_a_linear_model_is_its_weights():
    weight = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    maps, ledger = explain(build("gradient"), linear(IMAGE, weight), IMAGE, inputs(3))
    assert torch.allclose(maps, weight[0].abs().reshape(1, 8, 8).expand(3, 8, 8))
    assert ledger.costs.forwards.tolist() == ledger.costs.backwards.tolist() == [1, 1, 1]


def test_integrated_gradients_add_up_to_the_change_of_the_logit():
    net = Counted(nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 2)))
    x = inputs(3)
    model = TorchModel(net.eval(), IMAGE, 2, name="net")
    threat = Threat(
        distance=plugins.build("distance", "linf", {}),
        eps=torch.full((3,), torch.inf),
        domain=IMAGE,
    )
    batch = Batch(ids=torch.arange(3), x=x, y=torch.tensor([0, 1, 0]))
    ledger = Ledger(model, batch, threat, minimal=True)
    attributions = build("integrated-gradients", steps=200).attributions(
        ledger.oracle(), batch, IMAGE
    )
    with torch.no_grad():
        change = (net(x) - net(torch.zeros_like(x))).gather(1, batch.y[:, None])[:, 0]
    assert torch.allclose(attributions.flatten(1).sum(1), change, atol=1e-3)


def test_occlusion_points_at_the_only_pixel_that_matters():
    weight = torch.zeros(2, 64)
    weight[0, 8 * 2 + 5] = 9.0  # row 2, column 5
    x = torch.zeros(2, 1, 8, 8)
    x[:, 0, 2, 5] = 1.0
    maps, ledger = explain(build("occlusion", windows=8), linear(IMAGE, weight), IMAGE, x)
    assert maps[0].flatten().argmax() == 8 * 2 + 5
    assert maps[0, 7, 0] == pytest.approx(0, abs=1e-6)
    assert ledger.costs.forwards.tolist() == [50, 50], (
        "49 windows of two by two, and the clean input"
    )


def test_shapley_values_of_an_additive_game_are_its_parts():
    worth = torch.tensor([[0.5, -0.2, 0.1, 0.9]])
    subsets = torch.tensor(
        [[[1, 0, 0, 0], [0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1.0]]]
    )
    values = torch.cat(
        [torch.tensor([[0.3, 0.3 + 1.3]]), 0.3 + (subsets * worth[:, None]).sum(2)], 1
    )
    assert torch.allclose(kernel_shap._shapley(subsets, values, 1e-9), worth, atol=1e-5)


def test_shapley_values_of_a_product_share_it():
    # Worth 1 if both of the first two players are there: they get a half each, the third nothing.
    subsets = [[1, 0, 0], [0, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 1, 0]]
    subset_masks = torch.tensor([subsets], dtype=torch.float32)
    values = torch.cat([torch.tensor([[0.0, 1.0]]), subset_masks[..., 0] * subset_masks[..., 1]], 1)
    assert torch.allclose(
        kernel_shap._shapley(subset_masks, values, 1e-9), torch.tensor([[0.5, 0.5, 0.0]]), atol=1e-5
    )


class Tiny(nn.Module):
    """Two channels, x and 2x; class 0 has the mean of the first minus half that of the second,
    class 1 the opposite.
    """

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1, bias=False)
        self.conv.weight.data = torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1)

    def forward(self, x):
        a, b = self.conv(x).mean((2, 3)).unbind(1)
        return torch.stack([3 * a - b, b - 3 * a], 1)


def test_grad_cam_by_hand():
    # Channel weights are 3/64 and -1/64, so the map is relu(3 x - 2 x) / 64 = x / 64; of the other
    # class nothing is left.
    x = inputs(2)
    maps, ledger = explain(build("grad-cam"), Tiny(), IMAGE, x, torch.tensor([0, 1]))
    assert torch.allclose(maps[0], x[0, 0] / 64, atol=1e-6)
    assert torch.equal(maps[1], torch.zeros(8, 8))
    assert ledger.costs.forwards.tolist() == ledger.costs.backwards.tolist() == [1, 1]


class Pooled(Tiny):
    """The same, and a convolution behind the pooling, which sees one place alone."""

    def __init__(self):
        super().__init__()
        self.last = nn.Conv2d(2, 2, 1, bias=False)
        self.last.weight.data = torch.tensor([[3.0, -1.0], [-3.0, 1.0]]).reshape(2, 2, 1, 1)

    def forward(self, x):
        return self.last(self.conv(x).mean((2, 3), keepdim=True))[:, :, 0, 0]


def test_grad_cam_does_not_look_behind_the_pooling():
    x = inputs(2)
    maps, ledger = explain(build("grad-cam"), Pooled(), IMAGE, x, torch.tensor([0, 1]))
    assert torch.allclose(maps[0], x[0, 0] / 64, atol=1e-6)
    assert ledger.costs.forwards.tolist() == [2, 1], (
        "the first sample is asked about once more, to see which layer fits"
    )
    assert torch.equal(
        maps, explain(build("grad-cam", layer="conv"), Pooled(), IMAGE, x, torch.tensor([0, 1]))[0]
    )


def test_grad_cam_names_the_layers_where_one_is_missing():
    with pytest.raises(RequestError, match="no layer 'cnov'; its last ones are conv"):
        build("grad-cam", layer="cnov").attach(Tiny(), IMAGE)
    with pytest.raises(RequestError, match="no convolution"):
        build("grad-cam").attach(nn.Linear(2, 2), IMAGE)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        y = self.norm1(x)
        return self.norm2(x + self.attn(y, y, y, need_weights=False)[0])


class Transformer(nn.Module):
    """Tokens of 2 x 2 pixels behind a class token, which alone is read."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 2, 2)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens[:, 0])


def test_grad_cam_of_a_transformer_puts_its_tokens_back():
    net = Transformer()
    assert grad_cam.usual_layers(net) == ("blocks.1.norm1",)
    maps, _ = explain(build("grad-cam"), net, IMAGE, inputs(2))
    assert maps.shape == (2, 8, 8)
    tokens = torch.arange(17.0).reshape(1, 17, 1)
    assert (
        grad_cam.on_grid(tokens, (8, 8), "x")[0, 0].tolist()
        == (torch.arange(16.0) + 1).reshape(4, 4).tolist()
    )
    with pytest.raises(RequestError, check=refused("explainers.grad_cam.on_grid")):
        grad_cam.on_grid(torch.zeros(1, 5), (8, 8), "x")


def test_a_fitted_prior_finds_what_a_linear_game_is_made_of():
    """Each of 36 cells is worth what it is worth; with little noise the answers say so, with much
    they are smoothed.
    """
    cells = Cells((6, 6), (6, 6))
    domain = Domain(kind="image", shape=(1, 6, 6))
    priors = [
        covariance(torch.zeros(1, 1, 6, 6), domain, cells, (length,), 0)[0]
        for length in (0.04, 0.3)
    ]
    rng = torch.Generator().manual_seed(0)
    masks = (torch.rand(200, 36, generator=rng) < 0.5).float()
    centred_masks = masks - masks.mean(0)
    worth = torch.zeros(36)
    worth[[3, 20]] = torch.tensor([2.0, -1.0])
    fitted_worth = rlab.fit_worth(centred_masks, centred_masks @ worth, priors)
    assert torch.allclose(fitted_worth, worth, atol=0.15)
    smooth = torch.linalg.cholesky(priors[1]) @ torch.randn(36, generator=rng)
    noisy = centred_masks @ smooth + 3 * torch.randn(200, generator=rng)
    close = torch.corrcoef(
        torch.stack([rlab.fit_worth(centred_masks, noisy - noisy.mean(), priors), smooth])
    )[0, 1]
    rough = torch.corrcoef(
        torch.stack([rlab.fit_worth(centred_masks, noisy - noisy.mean(), priors[:1]), smooth])
    )[0, 1]
    assert close > 0.9 and close > rough


def test_the_same_cells_look_alike_and_far_ones_do_not():
    x = torch.zeros(1, 1, 8, 8)
    x[..., :4] = 1.0
    cells = Cells.over(IMAGE, 64)
    similarities = covariance(x, IMAGE, cells, (0.25,), 0.5)[0]
    assert (
        torch.allclose(similarities, similarities.T)
        and torch.linalg.eigvalsh(similarities).min() > 0
    )
    assert similarities[0, 1] > similarities[0, 2] > similarities[0, 3], (
        "nearer cells are more alike"
    )
    assert similarities[3, 4] < similarities[3, 2] / 5, "across the edge they are not"


def test_what_is_hidden_is_blurred_within_the_bounds_and_a_constant_stays():
    x = torch.full((1, 1, 8, 8), 0.3)
    assert torch.allclose(blurred(x, IMAGE), x, atol=1e-6)
    vector = Domain(kind="vector", shape=(3,), low=(0.0, -1.0, 2.0), high=(1.0, 1.0, 4.0))
    assert blurred(torch.zeros(1, 3), vector).tolist() == [[0.5, 0.0, 3.0]]


def test_cost_and_full_batches(subtests):
    for name, settings, queries in (
        ("rlab", {}, 256),
        ("rlab", {"prior": "broad"}, 256),
        ("rise", {}, 500),
        ("kernel-shap", {}, 500),
        ("occlusion", {}, 50),
    ):
        with subtests.test(name=name, settings=settings):
            net = linear(IMAGE, torch.randn(2, 64, generator=torch.Generator().manual_seed(1)))
            _, ledger = explain(build(name, **settings), net, IMAGE, inputs(6), batch_size=24)
            assert ledger.costs.forwards.tolist() == [queries] * 6
            assert (
                sum(net.sizes) == int(ledger.costs.forwards.sum())
                and sum(net.sizes) / (24 * len(net.sizes)) >= 0.85
            )


def maps_of(name):
    """Two sums over the map of each of two inputs, by place, for a small network with a
    convolution."""
    net, rng = (
        nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(192, 4)),
        torch.Generator(),
    )
    rng.manual_seed(5)
    for parameter in net.parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=rng)
    maps, _ = explain(build(name), Counted(net), IMAGE, inputs(2), torch.tensor([1, 3]), classes=4)
    place = torch.arange(64.0)
    return (
        (maps.flatten(1) @ torch.stack([torch.ones(64), torch.cos(1.3 * place)], 1))
        .flatten()
        .tolist()
    )


def test_the_maps_are_those_of_the_measurements():
    """Sums over the maps of a small network, held in values.json: other maps make results of two
    versions differ.
    """
    maps = {name: maps_of(name) for name in plugins.names("explainer")}
    expected = json.loads(FILE.read_text())
    assert sorted(expected) == sorted(maps), (
        "write values.json anew: python tests/explainers/test_explainers.py"
    )
    assert not [
        name
        for name, values in expected.items()
        if maps[name] != pytest.approx(values, rel=1e-2, abs=1e-4)
    ]


def test_evidence_by_hand():
    logits, y = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, -3.0]]), torch.tensor([2, 0])
    assert class_evidence(logits, y).tolist() == [3.0, 1.0] and class_evidence(
        logits + 7, y
    ).tolist() == [3.0, 1.0]


if __name__ == "__main__":
    sums = {
        name: [round(value, 5) for value in maps_of(name)] for name in plugins.names("explainer")
    }
    FILE.write_text(
        "{\n" + ",\n".join(f'"{name}": {values}' for name, values in sums.items()) + "\n}\n"
    )
