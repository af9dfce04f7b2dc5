"""A model in a process of its own answers, and gives gradients, as it does in the process that asks;
its code reaches neither that process nor files outside a folder of its own.
"""

import multiprocessing
import random
from contextlib import ExitStack

import pytest
import torch

from _refusals import refused
from brinell import plugins
from brinell.core.confinement import confine
from brinell.core.domain import Domain
from brinell.core.errors import BatchError, ModelError
from brinell.core.model import ask
from brinell.engine import model_process
from brinell.engine.consistency import CallRecorder
from brinell.engine.context import FetchRecorder
from brinell.engine.deciding import ClassTensors
from brinell.engine.model_process import Code, open_model, running
from brinell.models._answers import LogitModel
from brinell.models._straight_through import StraightThrough

DOMAIN, N, CLASSES = Domain(kind="image", shape=(2, 3, 3)), 6, 4
LAYERS = (
    "nn.Linear(W, W)",
    "nn.BatchNorm1d(W)",
    "nn.ReLU()",
    "nn.Tanh()",
    "Apply(lambda x: torch.round(x * 4) / 4)",
    "Apply(lambda x: x + (x > 0.1).float())",
    "Apply(lambda x: x.detach() * 0.5 + x)",
    "Apply(lambda x: x.to(torch.bfloat16).float())",
)
ENDS = ("", ".softmax(1)", ".log_softmax(1)", ".double()", ".detach()", ".sigmoid()")
TEXT = """
import torch
from torch import nn
W = 18
class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential({layers}, nn.Linear(W, 4))
    def forward(self, x):
        return self.body(x.flatten(1)){end}
def make():
    torch.manual_seed({seed})
    return Net()
"""


def open_net(folder, text, place):
    (folder / "net.py").write_text(text)
    with running(place):
        return open_model(f"torch:{folder / 'net.py'}:make", DOMAIN, CLASSES)


def outcome(model, recorders, x):
    """All that a question shows: the answer, the gradient, and what contexts record."""
    leaf = x.clone().requires_grad_()
    with ExitStack() as contexts:
        for recorder in recorders:
            contexts.enter_context(recorder)
        answer = model.predict(leaf)
    values = [answer.detach()]
    for recorder in recorders:
        facts, arrays = recorder.outcome(answer)
        values += [torch.tensor(list(repr(facts).encode())), *arrays]
    for number in range(2 * answer.requires_grad):
        values += torch.autograd.grad(answer[:, number].sum(), leaf, retain_graph=True)
    return values


def members(rng):
    """Contexts around a question, as checks and repairs make them."""
    yield [CallRecorder(), FetchRecorder()]
    yield [StraightThrough(attach=rng.random() < 0.5, decide=rng.random() < 0.5)]
    yield [ClassTensors(N, CLASSES, rng.choice([None, None, 3]))]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_model_elsewhere_is_the_model(tmp_path, seed):
    rng = random.Random(seed)
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        layers = ", ".join(rng.choices(LAYERS, k=4))
        text = TEXT.format(layers=layers, end=rng.choice(ENDS), seed=rng.randrange(99))
        model = open_net(folder, text, Code.TOGETHER)
        elsewhere = open_net(folder, text, Code.APART)
        assert elsewhere.digest() == model.digest()
        for name in ("name", "classes", "access", "domain"):
            assert getattr(elsewhere, name) == getattr(model, name)
        assert elsewhere.info.parameters == model.info.parameters

        x = torch.rand(N, *DOMAIN.shape, generator=torch.Generator().manual_seed(seed))
        with model.info.session(x.device), elsewhere.info.session(x.device):
            for recorders, copies in zip(members(rng), members(random.Random(9)), strict=True):
                for first, second in zip(recorders, copies, strict=True):
                    vars(second).update(settings_of(first))
                pairs = zip(
                    outcome(model, recorders, x), outcome(elsewhere, copies, x), strict=True
                )
                assert all(torch.equal(first, second) for first, second in pairs), (text, copies)
            if ".softmax" in text:
                pair = [outcome(LogitModel(m, "probabilities"), [], x) for m in (model, elsewhere)]
                assert all(map(torch.equal, *pair)), text
            assert torch.equal(model.info.features(x), elsewhere.info.features(x))


def settings_of(recorder):
    """The arguments of a recorder, by the names of its attributes."""
    names = ("_attach", "_decide", "only")
    return {name: value for name, value in vars(recorder).items() if name in names}


def test_code_of_a_model_stays_in_its_process(tmp_path):
    outside = tmp_path / "outside"
    text = TEXT.format(layers="nn.ReLU()", end="", seed=1) + (
        "import brinell.core.model\nbrinell.core.model.ask = None\n"
        f"try:\n    open({str(outside)!r}, 'w').write('x')\nexcept OSError:\n    pass\n"
        "import tempfile\ntempfile.NamedTemporaryFile('w').write('x')\n"
    )
    model = open_net(tmp_path, text, Code.APART)
    assert len(ask(model, torch.rand(N, *DOMAIN.shape))) == N
    with pytest.raises(BatchError):
        ask(model, torch.rand(N, 7))
    # Where Landlock is, nothing outside was written.
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        is_confined = pool.apply(confine, (tmp_path,))
    assert outside.exists() != is_confined


SILENT = (
    "while len(x) > 2: pass",
    "len(x) > 2 and os._exit(0)",
    "len(x) > 2 and os.kill(os.getpid(), 11)",
    "len(x) > 2 and os.closerange(3, 99)",
)
"""Statements by which a model does not answer."""


@pytest.mark.parametrize("statement", SILENT)
def test_a_model_that_does_not_answer_is_ended(tmp_path, monkeypatch, statement):
    text = TEXT.format(layers="nn.ReLU()", end="", seed=1)
    text = f"import os\n{text}".replace("        return", f"        {statement}\n        return")
    model = open_net(tmp_path, text, Code.APART)
    monkeypatch.setattr(model_process, "PATIENCE", 2.0)
    for _ in range(2):
        with pytest.raises(ModelError, check=refused("core.fresh.OtherProcess.ask")):
            model.predict(torch.rand(N, *DOMAIN.shape))


def test_other_code_does_not_run_where_a_stranger_is_judged(tmp_path):
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    rng = random.Random(0)
    for kind in rng.sample(sorted(set(plugins.FOLDERS) - {"model"}), 3):
        with running(Code.APART), pytest.raises(plugins.ForeignCodeError):
            plugins.load(kind, f"{tmp_path / 'mine.py'}:Mine")
    assert not (tmp_path / "ran").exists()
