"""A replay repeats runs whose later stages depend on what earlier ones found."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brinell


class Detached(nn.Module):
    """The decision of a network that nobody can look into, and scores that are computed from the
    mean of the input alone."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.hidden = rng.normal(size=(6, 16)), rng.normal(size=(16, 4))

    def forward(self, x):
        first, second = self.hidden
        scores = np.tanh((x.detach().numpy() - 0.5) @ first) @ second
        label = F.one_hot(torch.from_numpy(scores.argmax(1)), 4).float()
        return label * (4 + 4 * x.mean(1, keepdim=True)) + 0.1 * x[:, :4]


@pytest.mark.slow
def test_a_run_whose_waiting_stages_found_more_is_proved(tmp_path):
    model, x = Detached().eval(), torch.rand(64, 6, generator=torch.Generator().manual_seed(1))
    data = (x.numpy(), model(x).argmax(1).numpy())
    attacks = ["fgsm", "apgd-ce?steps=5", "ray-s?steps=200&when=detached"]
    figures = brinell.audit(
        model, data, eps="0.1,0.2", attack=attacks, out=tmp_path / "run"
    ).payload()
    assert "boundary-margin" in {warning["code"] for warning in figures["warnings"]}
    assert (
        figures["models"][0]["stages"][-1]["accuracy"]
        < figures["models"][0]["stages"][-2]["accuracy"]
    )
    result = brinell.verify(tmp_path / "run", model, data, replay=64)
    assert result.passed, result.problems
