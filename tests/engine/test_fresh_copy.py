"""Models that keep state between questions answer differently than a copy that was asked nothing;
healthy models do not.
"""

import functools
import threading

import numpy as np
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


def test_a_stateful_model_fails_and_one_that_cannot_be_copied_is_named(tmp_path):
    net = mlp(6, 3)
    uncopied = Wrapper(net)
    uncopied.lock = threading.local()
    for number, (model, passed) in enumerate(
        ((Counter(net, 20, 1.01), False), (FirstBatch(net, 0.3), False), (uncopied, None))
    ):
        finding = check_of(audit(model, tmp_path / str(number), samples=16, attack="fgsm"))
        assert finding.passed is passed and (
            passed is False or "cannot be copied" in finding.text
        ), finding.text
    memory = []

    def predict(x):
        memory.append(len(x))
        return net(x) * (2.0 if len(memory) > 40 else 1.0)

    assert check_of(audit(predict, tmp_path / "function"), Code.WEIGHTS).passed is False


def test_a_healthy_model_passes(tmp_path):
    net = mlp(6, 3)
    for number, model in enumerate(
        (
            net,
            functools.partial(lambda scale, x: net(x) * scale, 2.0),
            nn.Sequential(nn.Dropout(0.5), net),
        )
    ):
        finding = check_of(audit(model, tmp_path / f"{number}", attack="fgsm", samples=12))
        assert finding.passed is True and finding.figure == 0, finding.text


class Rounded(Wrapper):
    """Rounds hidden values in steps of the largest of the batch, as dynamic quantisation does:
    company matters, not state.
    """

    def forward(self, x):
        hidden = self.net[:-1](x)
        step = hidden.abs().amax() / 20
        return self.net[-1](hidden + ((hidden / step).round() * step - hidden).detach())


def test_a_model_that_depends_on_its_batch_keeps_no_state(tmp_path):
    audited = audit(Rounded(mlp(6, 3)), tmp_path / "run")
    assert check_of(audited).passed is True, check_of(audited).text
    assert any(
        check.passed is False for check in audited.models[0].checks
    )  # what does depend on the batch is said elsewhere


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
            (
                1.0,
                "torch.seed(); nn.init.normal_(self.net[2].weight)",
                "other weights or other code",
            ),
        )
    ):
        file = tmp_path / f"model{number}.py"
        file.write_text(FACTORY.format(late=late, draw=draw))
        settings = {"eps": EPS, "attack": "apgd-ce?steps=10", "out": tmp_path / f"run{number}"}
        finding = check_of(
            brinell.audit(f"torch:{file}:make", f"npz:{tmp_path}/data.npz", **settings)
        )
        assert finding.passed is (number == 0) and words in finding.text, finding.text


def test_a_saved_source_file_is_no_model_that_learns(tmp_path):
    """The file changes while the run goes on: the weights stay, and the copy says what changed."""
    file = tmp_path / "model.py"
    file.write_text(FACTORY.format(late=1.0, draw=""))
    np.savez(tmp_path / "data.npz", x=X, y=Y)

    class Saving(SilentProgress):
        def stage(self, *args):
            file.write_text(
                FACTORY.format(late=1.0, draw="").replace(
                    "return self.net(x)", "return 2 * self.net(x)"
                )
            )

    result = brinell.audit(
        f"torch:{file}:make",
        f"npz:{tmp_path}/data.npz",
        eps=EPS,
        attack="fgsm",
        out=tmp_path / "run",
        progress=Saving(),
    )
    assert check_of(result, Code.WEIGHTS).passed is True
    assert (
        check_of(result).passed is False
        and "its file changed during the run" in check_of(result).text
    )
