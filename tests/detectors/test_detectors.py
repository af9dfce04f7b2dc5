"""Detectors on inputs whose score can be worked out by hand."""

import pytest
import torch
from torch import nn

from _helpers import Recorder
from _refusals import refused
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.detectors._background import most_frequent
from brinell.detectors.feature_squeezing import median, reduce_bits
from brinell.models._torch_model import TorchModel

IMAGE = Domain(kind="image", shape=(1, 4, 4), levels=256)


def model(module=None, domain=IMAGE):
    return TorchModel(module or nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), domain)


def strokes(n=50):
    """Black pictures with one white row."""
    x = torch.zeros(n, 1, 4, 4)
    x[torch.arange(n), 0, torch.arange(n) % 4] = 1
    return x, torch.arange(n) % 3


def test_background_counts_what_lies_near():
    suspicion = plugins.build("detector", "background", {}).fit(*strokes(), model())
    x = torch.zeros(3, 1, 4, 4)
    x[1, 0, 0, :3] = 0.3
    x[2, 0, 0, :3] = 0.7  # far enough away to be a stroke
    assert suspicion(x).tolist() == [0.0, 3 / 16, 0.0]
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(suspicion(leaf).sum(), leaf)
    assert (gradient[1, 0, 0, :3] > 0).all() and gradient.abs().sum() == gradient[1, 0, 0, :3].sum()


def test_no_background():
    x = torch.rand(50, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(RequestError, check=refused("detectors.background.Background.fit")):
        plugins.build("detector", "background", {}).fit(
            x, torch.zeros(50, dtype=torch.int64), model()
        )


def test_the_most_frequent_value_of_each_channel():
    x = torch.cat([torch.full((4, 1, 2, 2), 0.2), torch.ones(4, 1, 2, 2)], 1)
    x[0, :, 0, 0] = 0.5
    mode, share = most_frequent(x, Domain(kind="image", shape=(2, 2, 2), levels=256))
    torch.testing.assert_close(mode.flatten(), torch.tensor([0.2, 1.0]))
    assert share == pytest.approx(15 / 16)


def test_bits_by_hand():
    x = torch.tensor([0.0, 0.2, 0.4, 0.6, 1.0]).reshape(1, 1, 1, 5)
    domain = Domain(kind="image", shape=(1, 1, 5), levels=256)
    torch.testing.assert_close(reduce_bits(x, 1, domain).flatten(), torch.tensor([0.0, 0, 0, 1, 1]))
    torch.testing.assert_close(
        reduce_bits(x, 2, domain).flatten(), torch.tensor([0, 1 / 3, 1 / 3, 2 / 3, 1])
    )
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(reduce_bits(leaf, 1, domain).sum(), leaf)
    assert (gradient == 1).all()


def test_median_by_hand():
    signal = torch.tensor([[[0.0, 9.0, 1.0, 2.0]]])
    torch.testing.assert_close(median(signal, 3).flatten(), torch.tensor([0.0, 1.0, 2.0, 2.0]))
    image = torch.zeros(1, 1, 3, 3)
    image[0, 0, 1, 1] = 1
    assert median(image, 3).sum() == 0, "a single bright pixel goes"


class Cut(nn.Module):
    """Two classes by one pixel, with a threshold that one bit hides."""

    def forward(self, x):
        lead = 40 * (x.flatten(1)[:, 0] - 0.3)
        return torch.stack([-lead, lead], 1)


def test_squeezing_sees_an_answer_that_hangs_on_fine_levels():
    x, _ = strokes()
    labels = (x[:, 0, 0, 0] > 0.3).long()
    suspicion = plugins.build("detector", "feature-squeezing", {"window": 1}).fit(
        x, labels, model(Cut())
    )
    changed = x.clone()
    changed[:, 0, 0, 0] = 0.4  # one bit makes 0 of it
    assert suspicion(x).max() < 0.01 and suspicion(changed).min() > 1.9


def test_mahalanobis_by_hand():
    """Features are the inputs: two classes around -1 and 1 with spread 0.5 along the first axis,
    0.1 along the second.
    """
    domain = Domain(kind="vector", shape=(2,), low=-10.0, high=10.0)
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(4000) % 2
    x = torch.randn(4000, 2, generator=rng) * torch.tensor([0.5, 0.1]) + torch.stack(
        [2.0 * labels - 1, 0.0 * labels], 1
    )
    last = nn.Linear(2, 2)
    last.weight.data[:, 1] = 0  # the answers say nothing about the second axis, and features do
    detector, inputs = (
        plugins.build("detector", "mahalanobis", {"shrinkage": 1e-4}),
        [[1.0, 0.0], [-1.5, 0.0], [1.0, 0.3]],
    )
    score = detector.fit(x, labels, model(last, domain))(torch.tensor(inputs))
    torch.testing.assert_close(score, torch.tensor([0.0, 1.0, 3.0]), atol=0.12, rtol=0.05)
    # Of a model that shows no features the answers are taken: here the first axis alone, which says
    # as much of the second input.
    answers = detector.fit(
        x, labels, Recorder(lambda x: torch.stack([x[:, 0], 0.01 * x[:, 1]], 1), domain)
    )
    torch.testing.assert_close(
        answers(torch.tensor(inputs))[:2], torch.tensor([0.0, 1.0]), atol=0.12, rtol=0.05
    )


def test_features_are_what_the_last_linear_layer_is_given():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3))
    network = model(module)
    x = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.features(x), module[:3](x))
    torch.testing.assert_close(model(Cut()).features(x), Cut()(x))
