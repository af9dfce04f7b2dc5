"""Models that keep state between questions answer differently than a copy that was asked nothing; healthy models do not."""

import functools
import threading

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _defences import Wrapper
from _helpers import mlp
from brinell.core.checks import Code
from brinell.engine.progress import SilentProgress

EPS = 0.12
N = 48
X = torch.rand(N, 6, generator=torch.Generator().manual_seed(1)).numpy()
Y = mlp(6, 3)(torch.as_tensor(X)).argmax(1).numpy()


def audit(model, folder, **settings):
    settings = {"eps": EPS, "attack": "apgd-ce?steps=20", "samples": N} | settings
    return brinell.audit(model, (X, Y), out=folder, **settings)


def check_of(result, code=Code.FRESH):
    return next(check for check in result.models[0].checks if check.code == code)


class Memory(Wrapper):
    """Remembers inputs, and answers a share of those near one of them as it answered that one."""

    def __init__(self, net, radius, share):
        super().__init__(net)
        self.radius, self.share, self.seen = radius, share, []

    def forward(self, x):
        rows = []
        for row, logits in zip(x, self.net(x), strict=True):
            neighbours = [
                answer for row_seen, answer in self.seen if float((row - row_seen).detach().abs().amax()) <= self.radius
            ]
            if not neighbours:
                self.seen.append((row.detach(), logits.detach()))
            rows.append(
                neighbours[0] + 0 * logits
                if neighbours and float(neighbours[0].detach().amax() * 1000) % 1 < self.share
                else logits
            )
        return torch.stack(rows)


class Counter(Wrapper):
    """Becomes stiff after some questions, near the middle of the first value alone."""

    def __init__(self, net, calls, factor):
        super().__init__(net)
        self.calls, self.factor, self.count = calls, factor, 0

    def forward(self, x):
        self.count += 1
        logits = self.net(x)
        return logits * self.factor if self.count > self.calls else logits


class FirstBatch(Wrapper):
    """Centres its inputs by the first batch of several that it is shown."""

    def __init__(self, net, strength):
        super().__init__(net)
        self.strength, self.mean = strength, None

    def forward(self, x):
        if self.mean is None and len(x) > 1:
            self.mean = x.detach().mean(0, keepdim=True)
        return self.net(x if self.mean is None else x - self.strength * (self.mean - 0.5))


class Adaptive(Wrapper):
    """Moves its bias towards the class that it names, a little with each question."""

    def __init__(self, net, rate):
        super().__init__(net)
        self.rate, self.bias = rate, torch.zeros(3)

    def forward(self, x):
        logits = self.net(x) + self.bias
        if not torch.is_grad_enabled():
            self.bias = self.bias + self.rate * logits.detach().softmax(1).mean(0)
        return logits


def stateful(seed):
    """A stateful model with random settings, and its name."""
    rng = np.random.default_rng(seed)
    net, calls, factor = mlp(6, 3), int(rng.integers(6, 60)), float(rng.choice([0.5, 0.9, 1.01, 2.0, 10.0]))
    members = {
        "memory": lambda: Memory(net, EPS * rng.uniform(0.8, 2), 1.0),
        "memory of a tenth": lambda: Memory(net, EPS * rng.uniform(1.2, 2), 0.1),
        "counter": lambda: Counter(net, calls, factor),
        "first batch": lambda: FirstBatch(net, rng.uniform(0.1, 1)),
        "adaptive": lambda: Adaptive(net, 10 ** rng.uniform(-4, -1)),
    }
    name = list(members)[seed % len(members)]
    return name, members[name]()


@pytest.mark.parametrize("seeds", [(2, 3), pytest.param(range(18), marks=pytest.mark.nightly)], ids=len)
def test_a_stateful_model_fails(seeds, tmp_path):
    """A counter and a first batch; at night every kind three times."""
    for seed in seeds:
        name, model = stateful(seed)
        small = {"samples": 16, "attack": "fgsm"} if len(seeds) < 18 else {}
        finding = check_of(audit(model, tmp_path / f"run{seed}", **small))
        assert finding.passed is False, (name, finding.text)


def test_a_healthy_model_passes(tmp_path):
    net = mlp(6, 3)
    for number, model in enumerate(
        (net, functools.partial(lambda scale, x: net(x) * scale, 2.0), nn.Sequential(nn.Dropout(0.5), net))
    ):
        finding = check_of(audit(model, tmp_path / f"{number}", attack="fgsm", samples=12))
        assert finding.passed is True and finding.figure == 0, finding.text


class Rounded(Wrapper):
    """Rounds hidden values in steps of the largest of the batch, as dynamic quantisation does: company matters, not state."""

    def forward(self, x):
        hidden = self.net[:-1](x)
        step = hidden.abs().amax() / 20
        return self.net[-1](hidden + ((hidden / step).round() * step - hidden).detach())


def test_a_model_that_depends_on_its_batch_keeps_no_state(tmp_path):
    audited = audit(Rounded(mlp(6, 3)), tmp_path / "run")
    assert check_of(audited).passed is True, check_of(audited).text
    assert any(check.passed is False for check in audited.models[0].checks)  # what does depend on the batch is said elsewhere


def test_functions_that_remember_fail(tmp_path):
    net, memory = mlp(6, 3), {}

    def predict(x):
        memory.setdefault("questions", []).append(len(x))
        return net(x) * (2.0 if len(memory["questions"]) > 40 else 1.0)

    assert check_of(audit(predict, tmp_path / "run"), Code.WEIGHTS).passed is False


class Handle(Wrapper):
    """A model that holds something that cannot be copied."""

    def __init__(self, net):
        super().__init__(net)
        self.lines = iter(range(3))
        self.handle = threading.local()


def test_a_model_that_cannot_be_copied_is_named(tmp_path):
    result = audit(Handle(mlp(6, 3)), tmp_path / "run")
    finding = check_of(result)
    assert finding.passed is None
    assert "cannot be copied" in finding.text


FACTORY = """
import torch
from torch import nn
COUNT = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        {draw}

    def forward(self, x):
        global COUNT
        COUNT += 1
        return self.net(x) * ({late} if COUNT > 30 else 1.0)


def make():
    return Net()
"""


def test_files_are_opened_again(tmp_path):
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    for number, (late, draw, words) in enumerate(
        (
            (1.0, "", "same answers"),
            (3.0, "", "counts, remembers or adapts"),
            (1.0, "torch.seed(); nn.init.normal_(self.net[2].weight)", "other weights or other code"),
        )
    ):
        file = tmp_path / f"model{number}.py"
        file.write_text(FACTORY.format(late=late, draw=draw))
        settings = {"eps": EPS, "attack": "apgd-ce?steps=10", "out": tmp_path / f"run{number}"}
        finding = check_of(brinell.audit(f"torch:{file}:make", f"npz:{tmp_path}/data.npz", **settings))
        assert finding.passed is (number == 0) and words in finding.text, finding.text


def test_a_saved_source_file_is_no_model_that_learns(tmp_path):
    """The file changes while the run goes on: the weights stay, and the copy says what changed."""
    file = tmp_path / "model.py"
    file.write_text(FACTORY.format(late=1.0, draw=""))
    np.savez(tmp_path / "data.npz", x=X, y=Y)

    class Saving(SilentProgress):
        def stage(self, *args):
            file.write_text(FACTORY.format(late=1.0, draw="").replace("return self.net(x)", "return 2 * self.net(x)"))

    result = brinell.audit(
        f"torch:{file}:make", f"npz:{tmp_path}/data.npz", eps=EPS, attack="fgsm", out=tmp_path / "run", progress=Saving()
    )
    assert check_of(result, Code.WEIGHTS).passed is True
    assert check_of(result).passed is False and "its file changed during the run" in check_of(result).text
