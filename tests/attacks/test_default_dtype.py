"""A caller whose new tensors are float64 gets the figures of any other."""

import pytest
import torch

import brinell
from _helpers import mlp
from brinell import plugins
from brinell.core.torch_settings import kept_defaults

NORMS = {"linf": 0.1, "l2": 0.5, "l1": 1.0, "l0": 3, "patch": 2}


@pytest.mark.parametrize("part", range(3))
def test_attacks_do_not_depend_on_the_default_type(part):
    net = mlp(features=16, classes=3).eval()
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    y = net(x.flatten(1)).argmax(1)

    def model(inputs):
        return net(inputs.flatten(1))

    for name in sorted(plugins.names("attack"))[part::3]:
        settings = plugins.build("attack", name, {})
        norm = next(norm for norm in NORMS if norm in settings.distances)
        attack = name if name == "fgsm" else f"{name}?steps=4"
        if name == "apgd-map":
            continue  # it is for masks
        call = {"attack": attack, "eps": NORMS[norm], "norm": norm}
        expected = brinell.attack(model, x, y, **call).x_adv
        with kept_defaults():
            torch.set_default_dtype(torch.float64)
            answer = brinell.attack(model, x, y, **call).x_adv
            assert torch.get_default_dtype() == torch.float64
        assert answer.dtype == expected.dtype and torch.equal(answer, expected), name
