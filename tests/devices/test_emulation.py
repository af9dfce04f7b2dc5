"""The emulated device computes as the processor does, refuses what a GPU refuses, and counts what a
GPU waits for."""

import copy

import pytest
import torch
from torch import nn

from _second_device import NAME, second_device


def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


def test_passes_and_training_steps_are_those_of_the_processor():
    module, x, y = network(), torch.rand(6, 3, 8, 8), torch.arange(6) % 5

    def train(module, x, y):
        x = x.clone().requires_grad_()
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(x), y).backward()
            optimiser.step()
        return module.eval()(x).detach(), x.grad

    expected = train(copy.deepcopy(module), x, y)
    with second_device():
        answers, gradient = train(copy.deepcopy(module).to(NAME), x.to(NAME), y.to(NAME))
        assert answers.device == gradient.device == torch.device(NAME, 0)
        results = answers.cpu(), gradient.cpu()
    assert all(torch.equal(*pair) for pair in zip(results, expected, strict=True))


@pytest.mark.parametrize(
    "mixed",
    [
        lambda here, there: here + there,
        lambda here, there: torch.where(there > 0, there, here),
        lambda here, there: torch.cat([here, there]),
        lambda here, there: here[there > 0],
        lambda here, there: nn.functional.linear(there, here[None].expand(3, 3)),
        lambda here, there: there.numpy(),
    ],
)
def test_a_mixed_call_fails(mixed):
    with second_device():
        here, there = torch.ones(3), torch.ones(3, device=NAME)
        with pytest.raises((RuntimeError, TypeError)):
            mixed(here, there)


def test_reads_are_counted_and_other_operations_are_not():
    with second_device() as reads:
        x = torch.arange(4.0).to(NAME)
        x = (x * 2 - 1).clamp(0, 3)[torch.tensor([3, 1], device=NAME)].sum() + 1
        assert not reads
        for number, read in enumerate(
            (
                x.item,
                x.tolist,
                x.cpu,
                lambda: bool(x > 0),
                lambda: torch.ones(2, device=NAME).nonzero(),
            ),
            1,
        ):
            read()
            assert sum(reads.values()) == number


def test_shapes_that_change_in_place_and_views_are_those_of_the_processor():
    with second_device():
        here, there = torch.arange(6.0)[None], torch.arange(6.0).to(NAME)[None]
        here.squeeze_(0)
        there.squeeze_(0)
        there.view(2, 3).t()[1].add_(10)
        here.view(2, 3).t()[1].add_(10)
        assert there.shape == here.shape and torch.equal(there.cpu(), here)
        assert there.view(2, 3).t().stride() == (1, 3)
