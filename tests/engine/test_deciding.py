"""The scores within a model that decide its class: found, followed, and never taken for granted."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brinell
from _helpers import batch_of, distance, mlp
from brinell.core.checks import DECIDING_SCORES, GOOD
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.engine.context import CheckContext
from brinell.engine.deciding import find_deciding_scores
from brinell.models._torch_model import TorchModel

FEATURES, CLASSES = 6, 4
CUBE = Domain(kind="vector", shape=(FEATURES,))


class Shown(nn.Module):
    """The class of a network, and scores that `show` makes of the inputs (n, 6) and the network's
    logits (n, 4)."""

    def __init__(self, network, show, *, grad=True):
        super().__init__()
        self.network, self.show, self.grad = network, show, grad

    def forward(self, x):
        with torch.set_grad_enabled(self.grad and torch.is_grad_enabled()):
            logits = self.network(x)
        return self.show(x, logits)


def label(z):
    return F.one_hot(z.argmax(1), z.shape[1]).float()


def by_mean(x, z):
    """The label, with a confidence by the mean of the input."""
    return label(z) * (4 + 4 * x.mean(1, keepdim=True)) + 0.1 * x[:, :CLASSES]


def bonus(x, z):
    """A bonus for the leading class that drowns what the network says."""
    return 0.05 * z + label(z) * (2 + 30 * x.mean(1, keepdim=True))


def inputs(seed, n=64):
    return torch.rand(n, FEATURES, generator=torch.Generator().manual_seed(seed))


def find(module, x):
    model = TorchModel(module.eval(), CUBE, name="net")
    batch = batch_of(x, model.predict(x).argmax(1))
    context = CheckContext(
        model, batch, distance("linf"), 0.1, Streams.of(0, batch.ids), batch_size=256
    )
    return model, find_deciding_scores(context), context.costs[0]


def test_the_scores_that_decide_are_found():
    network, x = mlp(FEATURES, CLASSES, 0), inputs(0)
    for show, grad in ((by_mean, True), (bonus, True), (by_mean, False), (bonus, False)):
        _, repair, forwards = find(Shown(network, show, grad=grad), x)
        assert (
            repair is not None
            and repair.substitute == DECIDING_SCORES
            and repair.disagreement <= GOOD
            and forwards > 0
        )
        leaf, column = x.clone().requires_grad_(), network(x).argmax(1)[:, None]
        gradient, true = (
            torch.autograd.grad(answer(leaf).gather(1, column).sum(), leaf)[0]
            for answer in (repair.model.predict, network)
        )
        assert F.cosine_similarity(gradient, true, dim=1).min() > 0.99


def test_scores_that_do_not_decide_are_not_taken():
    """The network within always agrees with the class on these inputs, but a rule decides near the
    boundary."""

    def rounded(x, z):
        steps = (x * 4).round() / 4
        return label(mlp(FEATURES, CLASSES, 1)(steps)) * (4 + x.mean(1, keepdim=True))

    _, repair, _ = find(Shown(nn.Identity(), lambda x, z: rounded(x, z)), inputs(1))
    assert repair is None


def gain(x, z):
    """The logits times a positive number that attacks lower in place of the lead; the lead still
    goes to zero.
    """
    return z * torch.exp(3 * torch.sin(9 * (x[:, 4:5] - x[:, 5:6])))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_scores_that_pass_every_check_are_not_the_only_ones_attacked(seed, tmp_path):
    network, x = mlp(FEATURES, CLASSES, seed).eval(), inputs(seed + 1, 48)
    data = (x.numpy(), network(x).argmax(1).numpy())
    (truth,) = brinell.audit(network, data, eps="0.05", out=tmp_path / "truth").models
    model = Shown(network, gain).eval()
    (audited,) = brinell.audit(model, data, eps="0.05", out=tmp_path / "run").models
    assert "boundary-margin" not in {warning.code for warning in audited.warnings}
    assert audited.robust_accuracy[-1].k <= truth.robust_accuracy[-1].k + 1


def test_scores_that_say_the_same_are_no_others():
    for show in [lambda x, z: z.softmax(1), lambda x, z: 3 * z - 1, lambda x, z: z.log_softmax(1)]:
        _, repair, _ = find(Shown(mlp(FEATURES, CLASSES, 0), show), inputs(0))
        assert repair is None


@pytest.mark.slow
@pytest.mark.nightly
def test_an_audit_follows_them(tmp_path):
    network, x = mlp(FEATURES, CLASSES, 0).eval(), inputs(1, 48)
    y = network(x).argmax(1)
    data = (x.numpy(), y.numpy())
    (truth,) = brinell.audit(network, data, eps="0.05", out=tmp_path / "truth").models
    model = Shown(network, bonus).eval()
    (audited,) = brinell.audit(model, data, eps="0.05", out=tmp_path / "run").models
    assert abs(audited.robust_accuracy[-1].k - truth.robust_accuracy[-1].k) <= 1
    assert "the scores that decide" in audited.verdict
    assert brinell.verify(tmp_path / "run", model, (x.numpy(), y.numpy())).passed


class Hidden(nn.Module):
    """The label of a network that nobody sees, with a confidence by the mean of the input that
    saturates the softmax."""

    def __init__(self, network):
        super().__init__()
        self.functions = [network.forward]

    def forward(self, x):
        with torch.no_grad():
            logits = torch.from_numpy(self.functions[0](x.detach()).numpy())
        return 100 * by_mean(x, logits)


@pytest.mark.slow
def test_a_surrogate_leads_where_the_shown_scores_do_not_decide(tmp_path):
    """Attacks along the network of the decision do as well by its label alone as by its logits."""
    network, x = mlp(FEATURES, CLASSES, 0), inputs(20, 80)
    file = tmp_path / "surrogate.py"
    file.write_text(
        f"from _helpers import mlp\n\n\ndef make():\n    return mlp({FEATURES}, {CLASSES}, 0)\n"
    )
    data, attack = (x, network(x).argmax(1)), "apgd-ce?steps=20"
    settings = {"eps": 0.1, "norm": "linf", "samples": len(x), "progress": False}
    own = brinell.audit(network, data, attack=(attack,), out=tmp_path / "own", **settings).models[0]
    settings |= {"attack": (f"{attack}&gradient=surrogate",), "surrogate": f"torch:{file}:make"}
    for name, answering in (
        ("hidden", Hidden(network).eval()),
        ("labels", lambda x: network(torch.as_tensor(x)).argmax(1).numpy()),
    ):
        result = brinell.audit(answering, data, out=tmp_path / name, **settings).models[0]
        assert result.robust_accuracy[-1].k <= own.robust_accuracy[-1].k + 2
