"""A model is judged in full float32 on a GPU, and without cuDNN where its recurrent layers need
that; the settings return."""

import torch
from torch import nn

from _helpers import batch_of, threat_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.losses import margin
from brinell.models._torch_model import TorchModel

PLAIN, REDUCED = ("highest", False), ("high", True)


def settings():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


class Watched(nn.Module):
    """A linear model that notes the settings of torch as it answers."""

    def __init__(self, *, recurrent=False):
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True) if recurrent else nn.Linear(4, 3)
        self.notes = []

    def forward(self, x):
        self.notes.append((settings(), torch.backends.cudnn.enabled))
        return self.layer(x[:, None])[0][:, 0] if isinstance(self.layer, nn.LSTM) else self.layer(x)


def model_of(module):
    return TorchModel(module, Domain(kind="vector", shape=(4,)), name="watched")


def test_full_precision_within_a_session_alone():
    torch.backends.cudnn.allow_tf32 = True
    for recurrent in (False, True):
        module = Watched(recurrent=recurrent)
        model = model_of(module)
        module.notes.clear()
        with model.info.session(torch.device("cpu")):
            model.predict(torch.rand(2, 4))
        assert module.notes == [(PLAIN, not recurrent)]
        assert settings() == ("highest", True) and torch.backends.cudnn.enabled


def test_tf32_for_gradients_away_from_the_boundary_alone():
    module = Watched()
    with torch.no_grad():
        module.layer.weight.copy_(torch.eye(3, 4))
        module.layer.bias.zero_()
    model, x = model_of(module), torch.tensor([[0.9, 0.1, 0.1, 0.0], [0.5, 0.5001, 0.1, 0.0]])
    module.notes.clear()
    with model.info.session(torch.device("cpu")):
        batch = batch_of(x, [0, 0])
        ledger = Ledger(model, batch, threat_of(0.1, domain=model.domain, n=2), precision="tf32")
        ledger.oracle().gradient(batch.ids, x, margin)
    assert [note[0] for note in module.notes] == [REDUCED, PLAIN]
