"""A number of the whole batch, by which a network scales or decides, is bounded or refused by name."""

import numpy as np
import pytest
import torch

import brinell
from _helpers import mlp
from brinell.core.errors import RequestError

NETWORK = mlp(features=16, classes=3).eval()


class Scaled(torch.nn.Module):
    """A network behind a function of it and its input."""

    def __init__(self, function):
        super().__init__()
        self.network, self.function = NETWORK, function

    def forward(self, x):
        return self.function(self.network(x.flatten(1)))


FUNCTIONS = {
    "standardised": (lambda z: (z - z.mean()) / z.std(), "operation (mean|std|var)"),
    "decided": (lambda z: 2 * z if z.mean() > 0.5 else z, "operation mean"),
    "read": (lambda z: z * (1 + float(z.sum())), "operation sum"),
    "divided": (lambda z: z / z.abs().max(), "operation max"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_of_a_batch_are_refused_by_name(name, tmp_path):
    function, text = FUNCTIONS[name]
    x = np.random.default_rng(0).uniform(size=(12, 1, 4, 4)).astype(np.float32)
    model = Scaled(function).eval()
    y = NETWORK(torch.from_numpy(x).flatten(1)).argmax(1).numpy()
    with pytest.raises(RequestError, match=text):
        brinell.certify(model, (x, y), eps="0.01", out=tmp_path / "run", method=("interval",))
