"""The attacks without gradients on a real network: what was measured must come again."""

import pytest

from _helpers import load_network, run_attack
from brinell import plugins


@pytest.mark.parametrize(
    ("spec", "norm", "eps", "least"),
    [
        pytest.param("simba", "l2", 2.0, 6, marks=pytest.mark.nightly),
        ("sparse-rs", "l0", 60.0, 7),
        pytest.param("sparse-rs", "patch", 8.0, 5, marks=pytest.mark.nightly),
        pytest.param("hop-skip-jump", "l2", 3.0, 4, marks=pytest.mark.nightly),
    ],
)
def test_an_undefended_network_falls(root, shared, spec, norm, eps, least):
    """ResNet-20 of CIFAR-10, eight images that it gets right, 200 queries each."""
    model, x, y = load_network(root, shared, "cifar10", "resnet20", "cifar10_weights/resnet20", 10)
    name, _, settings = plugins.parse(spec)
    ledger = run_attack(
        plugins.build("attack", name, settings), model, x[:8], y[:8], eps, norm, queries=200
    )
    assert len(x) >= 8
    assert ledger.fooled.sum() >= least and ledger.costs.forwards.max() <= 200
