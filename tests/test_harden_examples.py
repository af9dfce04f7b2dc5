"""The examples of adversarial training in a user's loop run and train a robust network."""

import importlib.util
import warnings

import pytest
import torch

from brinell.core.user_files import import_file

NEEDS = {
    "harden_loop": (),
    "harden_lightning": ("lightning",),
    "harden_trainer": ("transformers", "accelerate"),
}


@pytest.mark.parametrize("name", NEEDS)
def test_the_example_makes_a_network_hold(name, root):
    for package in NEEDS[name]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed, which examples/{name}.py shows Brinell in")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.default_generator.manual_seed(0)
        warnings.simplefilter("ignore")  # those of the other package about its own
        before, after = import_file(root / "examples" / f"{name}.py").main(epochs=3, eps=0.1)
    assert after > before + 0.25
