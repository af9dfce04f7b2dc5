"""The attacks without gradients on a real network: what was measured must come again."""

import pytest

from _helpers import fight, opened
from brinell import plugins


@pytest.mark.parametrize(
    ("spec", "norm", "eps", "least"),
    [
        ("simba", "l2", 2.0, 8),
        ("simba?basis=dct", "l2", 2.0, 5),
        ("bandits", "l2", 2.0, 8),
        ("nes", "l2", 2.0, 8),
        ("bandits", "linf", 8 / 255, 8),
        ("nes", "linf", 8 / 255, 8),
        ("sparse-rs", "l0", 60.0, 9),
        ("sparse-rs?form=patch", "l0", 192.0, 7),
        ("hop-skip-jump", "l2", 3.0, 7),
    ],
)
def test_an_undefended_network_falls(root, shared, spec, norm, eps, least):
    """ResNet-20 of CIFAR-10, ten images that it gets right, 250 queries each."""
    target, x, y = opened(root, shared, "cifar10", "resnet20", "cifar10_weights/resnet20", 11)
    name, _, settings = plugins.parse(spec)
    ledger = fight(plugins.build("attack", name, settings), target, x[:10], y[:10], eps, norm, queries=250)
    assert ledger.fooled.sum() >= least and ledger.forwards.max() <= 250
