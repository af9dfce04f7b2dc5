"""Models whose answers depend on company, place, mode or time are named as such; healthy ones, and noise, are not."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

import brinell
from _defences import Around, Noisy, OneHot
from _helpers import VECTOR, Recorder, batch_of, distance, mlp
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, ModelInfo
from brinell.core.threat import Threat
from brinell.engine import consistency
from brinell.models._torch_model import TorchModel

SIX = Domain(kind="vector", shape=(6,))
X = torch.rand(24, 6, generator=torch.Generator().manual_seed(3))
Y = mlp(6, 3)(X).argmax(1)
OURS = (Code.PLACE, Code.COMPANY, Code.MODE, Code.DRIFT)


def probed(module, x=X, batch_size=128, access=Access.GRADIENTS, domain=SIX, between=0):
    """The findings by code, with the model and its ledger."""
    model = TorchModel(module, domain, 3)
    model.access = access
    batch = batch_of(x, [0] * len(x))
    threat = Threat(distance=distance("linf"), eps=torch.ones(len(x)), domain=domain)
    ledger = Ledger(model, batch, threat, access=access, batch_size=batch_size)
    oracle = ledger.oracle()
    with model.session():
        if access == Access.LABELS:
            early = [nn.functional.one_hot(oracle.labels(batch.ids, x), 3).float() for _ in range(2)]
        else:
            early = [oracle.scores(batch.ids, x) for _ in range(2)]
        gradients = oracle.gradient(batch.ids, x).logits if access == Access.GRADIENTS else None
        if gradients is not None:
            early = [early[0], gradients, oracle.gradient(batch.ids, x).logits]
            for _ in range(between):
                oracle.scores(batch.ids, x)
        before = int(ledger.costs.forwards.sum())
        found = consistency.probe(oracle, batch, model, early, batch_size=batch_size, gradients=gradients)
    return {one.code: one for one in found}, int(ledger.costs.forwards.sum()) - before


def failed(found):
    return {code for code, one in found.items() if one.passed is False}


class BatchNormed(Around):
    """Normalises by the batch, as batch norm does that was left in training mode."""

    def forward(self, x):
        return self.net(nn.functional.batch_norm(x, None, None, training=True))


class Trains(Around):
    """Puts itself in training mode in its forward pass."""

    def __init__(self, net):
        super().__init__(net)
        self.norm = nn.BatchNorm1d(6, momentum=0.5)

    def forward(self, x):
        self.train()
        return self.net(self.norm(x))


class Median(Around):
    """Subtracts what the median input of the batch has, which no function of torch is known for."""

    def forward(self, x):
        return self.net(x - 0.5 * x.median(0).values)


class ByRow(Around):
    """Adds the same noise in the same row of each call."""

    def forward(self, x):
        logits = self.net(x)
        return logits + 0.3 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))


class Drifting(Around):
    """Grows colder with each call."""

    def __init__(self, net, by=0.998):
        super().__init__(net)
        self.by, self.calls = by, 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * self.by**self.calls


class Jumps(Around):
    """Answers otherwise from some call on."""

    def __init__(self, net, at):
        super().__init__(net)
        self.at, self.calls = at, 0

    def forward(self, x):
        self.calls += 1
        return self.net(x) * (1 if self.calls < self.at else -1)


class ByGradient(Around):
    """Hides behind another model while gradients are asked for."""

    def forward(self, x):
        return self.net(x) if not torch.is_grad_enabled() else self.net(1 - x)


class Learns(Around):
    """Moves a weight with each call, by so little that no two calls differ visibly."""

    def forward(self, x):
        with torch.no_grad():
            self.net[3].bias[0] += 1e-9
            self.net[3].bias.data[1] += 1e-7
        return self.net(x)


PLANTED = {
    "batch norm": (BatchNormed, {Code.COMPANY}),
    "median of the batch": (Median, {Code.COMPANY}),
    "noise by row": (ByRow, {Code.PLACE}),
    "drift": (Drifting, {Code.DRIFT}),
    "jump": (lambda net: Jumps(net, 5), {Code.DRIFT}),
    "another model for gradients": (ByGradient, {Code.MODE}),
}


@pytest.mark.parametrize("batch_size", [128, 24, 7, 2])
@pytest.mark.parametrize("name", PLANTED)
def test_each_dependence_is_named(name, batch_size):
    if name == "jump" and batch_size < 24:
        pytest.skip("its fifth call is among the first answers, which is for random-answers")
    defence, codes = PLANTED[name]
    between = 10 if name == "drift" else 0  # as many calls as the other checks make
    assert failed(probed(defence(mlp(6, 3)), batch_size=batch_size, between=between)[0]) == codes


@pytest.mark.parametrize("batch_size", [128, 2])
def test_modules_put_in_training_mode_are_named(batch_size):
    found, _ = probed(Trains(mlp(6, 3)), batch_size=batch_size)
    assert failed(found) == {Code.COMPANY, Code.MODE}
    assert "the model, net, net.0 and 4 more" in found[Code.MODE].text
    assert "batch norm in training mode" in found[Code.COMPANY].text and "--batch-size 1" in found[Code.COMPANY].text


def test_the_cause_is_told_where_it_is_known():
    texts = [probed(defence(mlp(6, 3)))[0][Code.COMPANY].text for defence in (BatchNormed, Median)]
    assert ["it normalises by the batch" in text for text in texts] == [True, False]


def test_a_model_that_fails_alone_is_named():
    class Strict(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(6, 3)

        def forward(self, x):
            if len(x) == 1:
                raise ValueError("expected more than 1 value per channel")
            return self.net(x)

    found, _ = probed(Strict())
    assert failed(found) == {Code.COMPANY} and "fails on one alone" in found[Code.COMPANY].text


@pytest.mark.parametrize("defence", [Around, OneHot])
@pytest.mark.parametrize("batch_size", [128, 24, 7, 2, 1])
def test_healthy_models_pass_and_cost_little(defence, batch_size):
    found, spent = probed(defence(mlp(6, 3)), batch_size=batch_size)
    assert [found[code].passed for code in OURS] == [True] * 4
    assert spent == {1: 24}.get(batch_size, 3 * 24 + 8)


@pytest.mark.parametrize("access", [Access.SCORES, Access.LABELS])
def test_without_gradients_the_same(access):
    healthy, _ = probed(mlp(6, 3), access=access)
    assert failed(healthy) == set() and healthy[Code.COMPANY].passed
    assert failed(probed(BatchNormed(mlp(6, 3)), access=access)[0]) == {Code.COMPANY}


def test_batch_size_one_makes_the_batch_no_matter():
    """A batch of one is normalised to nothing by batch norm, and is a classifier of its own all the same: no attack can gain."""
    found, _ = probed(Median(mlp(6, 3)), batch_size=1)
    assert failed(found) == set() and "alone" in found[Code.COMPANY].text


@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_noise_is_no_drift_and_no_company(scale):
    """Random answers have a check and a remedy of their own; nothing else is said of them."""
    found, spent = probed(Noisy(mlp(6, 3), scale))
    assert [found[code].passed for code in OURS] == [None, None, True, None] and spent == 48
    assert "random-answers" in found[Code.DRIFT].text


def test_half_precision_is_allowed_its_rounding():
    class Half(Around):
        """Rounds by company, as kernels in bfloat16 do."""

        def forward(self, x):
            logits = self.net(x.bfloat16().float())
            return (logits * (1 + 0.01 * (len(x) % 2))).bfloat16().float()

    assert failed(probed(Half(mlp(6, 3)), x=X[:23])[0]) == set()

    class Full(Around):
        def forward(self, x):
            return self.net(x) * (1 + 0.01 * (len(x) % 2))

    assert failed(probed(Full(mlp(6, 3)), x=X[:23])[0]) == {Code.COMPANY}


def test_logarithms_of_probabilities_near_zero_are_no_difference():
    logs = torch.tensor([[0.0, -80.0], [0.0, -60.0]])
    assert consistency.apart(logs, torch.tensor([[0.0, -70.0], [0.0, -60.0]])).amax() < 1e-25
    assert consistency.apart(logs + 1, logs + 2).amax() > 0.01


def test_one_sample_has_no_company():
    found, _ = probed(mlp(6, 3), x=X[:1])
    assert found[Code.COMPANY].passed is None and not failed(found)


def test_a_model_that_is_no_module_has_no_mode():
    model = Recorder(lambda x: torch.stack([x[:, 0], -x[:, 0]], 1), VECTOR)
    batch = batch_of(torch.rand(4, 2), [0] * 4)
    oracle = Ledger(model, batch, Threat(distance=distance("linf"), eps=torch.ones(4), domain=VECTOR)).oracle()
    early = [oracle.scores(batch.ids, batch.x) for _ in range(2)]
    found = {one.code: one for one in consistency.probe(oracle, batch, model, early, batch_size=4)}
    assert found[Code.MODE].passed is None and found[Code.COMPANY].passed


@pytest.mark.parametrize("stays", [False, True])
def test_a_model_that_answers_otherwise_on_another_device_is_named(stays):
    """A model moves by its session; what stays behind answers otherwise. The device of the audit is one in name only here."""
    model = Recorder(lambda x: torch.stack([x[:, 0], -x[:, 0]], 1), VECTOR)

    @contextmanager
    def session(device):
        before = model.function
        model.function = (lambda x: torch.stack([-x[:, 0], x[:, 0]], 1)) if stays else before
        yield
        model.function = before

    class Device:
        type = "other"

    class Here(torch.Tensor):
        def to(self, device):
            return self.as_subclass(torch.Tensor)

    model.info = ModelInfo(session=session)
    x = torch.rand(4, 2).as_subclass(Here)
    found = consistency.elsewhere(model, x, Device(), torch.device("cpu"))
    assert found.passed is not stays and ("4 classes changed" in found.text) == stays
    assert consistency.elsewhere(model, x, torch.device("cpu"), torch.device("cpu")).passed is None


# In a run


def audited(module, out, x=X, **more):
    given = {"eps": "0.05", "attack": ("apgd-ce?steps=5", "square?steps=50"), "batch_size": 8}
    return brinell.audit(module, (x, Y), out=out, **(given | more)).models[0]


def states(result):
    return {check.code: check.passed for check in result.checks}


def test_a_healthy_run_says_so(tmp_path):
    result = audited(mlp(6, 3), tmp_path / "run")
    assert [states(result)[code] for code in (*OURS, Code.WEIGHTS)] == [True] * 5


@pytest.mark.parametrize(("defence", "code"), [(Median, Code.COMPANY), (ByRow, Code.PLACE), (ByGradient, Code.MODE)])
def test_the_headline_is_marked(tmp_path, defence, code):
    result = audited(defence(mlp(6, 3)), tmp_path / "run")
    assert states(result)[code] is False and code in str(result.caveat) and result.complete


def test_batch_norm_in_training_mode_is_marked_or_refused(tmp_path):
    """Pictures can be normalised alone, vectors cannot; that shows when the model is opened."""

    class Pictures(Trains):
        def __init__(self):
            super().__init__(mlp(6, 3))
            self.norm = nn.BatchNorm2d(1)

    result = audited(Pictures(), tmp_path / "run", x=X.reshape(-1, 1, 2, 3))
    assert [states(result)[code] for code in (Code.COMPANY, Code.MODE, Code.WEIGHTS)] == [False] * 3
    with pytest.raises(RequestError, match="batch norm is in training mode in its forward pass"):
        audited(Trains(mlp(6, 3)), tmp_path / "other")


def test_weights_that_change_while_they_are_asked_are_named(tmp_path):
    result = audited(Learns(mlp(6, 3)), tmp_path / "run")
    assert states(result)[Code.WEIGHTS] is False and states(result)[Code.RANDOM], "no two calls differ visibly"
    assert "changed-weights" in str(result.caveat)


def test_a_late_jump_is_seen_at_the_end(tmp_path):
    result = audited(Jumps(mlp(6, 3), 150), tmp_path / "run")
    assert states(result)[Code.DRIFT] is False
    (told,) = [one.text for one in result.warnings if one.code == Code.DRIFT]
    assert "at the end the model answers 16 of 16 clean inputs otherwise" in told
