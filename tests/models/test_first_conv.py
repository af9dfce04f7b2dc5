"""The gradient to a first convolution's input: that of autograd, whatever the shape, and nothing else changed."""

from unittest.mock import Mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from brinell.core.domain import Domain
from brinell.models import _first_conv as first_conv
from brinell.models._first_conv import FastGradient, input_gradient
from brinell.models._torch_model import TorchModel


def test_by_hand():
    """One weight a phase: y is the weighted sum of a block of 2 x 2, so each value gets its weight times the gradient."""
    weight = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    grad = torch.tensor([[[[10.0, 100.0]]]])
    assert input_gradient(grad, weight, (2, 5), 2, (0, 0)).tolist() == [
        [[[10.0, 20.0, 100.0, 200.0, 0.0], [30.0, 40.0, 300.0, 400.0, 0.0]]]
    ]


@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 4),
    out=st.integers(1, 5),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 4),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    size=st.tuples(st.integers(5, 12), st.integers(5, 12)),
)
def test_it_is_the_gradient_of_autograd(channels, out, kernel, stride, padding, size):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, channels, *size, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(out, channels, *kernel, generator=rng, dtype=torch.float64)
    y = F.conv2d(x, weight, stride=stride, padding=padding)
    grad = torch.randn(y.shape, generator=rng, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, grad)
    torch.testing.assert_close(input_gradient(grad, weight, size, stride, padding), expected, rtol=1e-12, atol=1e-12)


def network(stride=2, channels=3):
    kernel, padding = (4, 1) if stride == 2 else (stride, 0) if stride > 2 else (3, 1)
    first = nn.Conv2d(channels, 8, kernel, stride, padding)
    net = nn.Sequential(first, nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
    net.extend([nn.Flatten(), nn.Linear(8 * (12 // stride) ** 2, 4)])
    rng = torch.Generator().manual_seed(0)
    for weights in net.parameters():
        nn.init.normal_(weights, std=0.2, generator=rng)
    return net


def gradients(net, x, of, *, fast):
    leaf = x.clone().requires_grad_()
    if fast:
        with FastGradient():
            value = net(leaf).logsumexp(1).sum()
    else:
        value = net(leaf).logsumexp(1).sum()
    return torch.autograd.grad(value, [leaf, *of])


def test_a_network_has_the_gradients_that_it_has_without(subtests):
    """To the input and to every weight, with an activation that writes into the convolution's output."""
    for stride, channels in [(2, 3), (4, 1), (1, 1), (1, 3)]:
        with subtests.test(stride=stride):
            x = torch.rand(5, channels, 12, 12, generator=torch.Generator().manual_seed(1))
            net = network(stride, channels)
            for fast, plain in zip(
                gradients(net, x, net.parameters(), fast=True), gradients(net, x, net.parameters(), fast=False), strict=True
            ):
                torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)


def test_gradients_of_gradients():
    """A defence may take gradients inside the model."""
    x = torch.rand(3, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    net = network(2, 1)
    net[1], net[3] = nn.Softplus(), nn.Softplus()

    def second(fast):
        leaf = x.clone().requires_grad_()
        value = net(leaf).logsumexp(1).sum() if not fast else _under(net, leaf).logsumexp(1).sum()
        (first,) = torch.autograd.grad(value, leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [leaf, net[0].weight])

    for fast, plain in zip(second(True), second(False), strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)


def _under(net, x):
    with FastGradient():
        return net(x)


def test_a_target_takes_it_where_it_pays(monkeypatch, subtests):
    """Its gradient is that of the module, and the other way is asked as often as it pays: not at all without gradients."""
    rows = [
        (nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3)), (1, 8, 8), 1),
        (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 3)), (3, 8, 8), 0),
        (nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Flatten(), nn.Linear(4 * 16, 3)), (3, 8, 8), 0),
        (nn.Sequential(nn.Conv2d(3, 4, 4, 2, 3, dilation=2), nn.Flatten(), nn.Linear(4 * 16, 3)), (3, 8, 8), 0),
        (nn.Sequential(nn.Conv2d(4, 4, 4, 2, 1, groups=4), nn.Flatten(), nn.Linear(4 * 16, 3)), (4, 8, 8), 0),
        (nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.Flatten(), nn.Linear(4 * 64, 3)), (3, 8, 8), 0),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), (1, 8, 8), 0),
    ]
    for net, kind, times in rows:
        with subtests.test(net=net):
            gradient = Mock(wraps=first_conv.input_gradient)
            monkeypatch.setattr(first_conv, "input_gradient", gradient)
            model = TorchModel(net, Domain(kind="image", shape=kind))
            x = torch.rand(3, *kind, generator=torch.Generator().manual_seed(0)).requires_grad_()
            with torch.no_grad():
                model.predict(x)
            gradients = torch.autograd.grad(model.predict(x).logsumexp(1).sum(), x)
            expected = torch.autograd.grad(net(x).logsumexp(1).sum(), x)
            torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-6)
            assert gradient.call_count == times
            monkeypatch.undo()
