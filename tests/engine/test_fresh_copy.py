"""Models that keep state between questions answer differently than in a process that asked nothing;
healthy models do not.
"""

import functools
import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _defences import Wrapper
from _helpers import mlp
from brinell.core.checks import Code
from brinell.core.errors import ModelError
from brinell.core.fresh import FreshProcess
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


def test_a_stateful_model_fails(tmp_path):
    net = mlp(6, 3)
    for number, model in enumerate((Counter(net, 20, 1.01), FirstBatch(net, 0.3))):
        finding = check_of(audit(model, tmp_path / str(number), samples=16, attack="fgsm"))
        assert finding.passed is False, finding.text
    memory = []

    def predict(x):
        memory.append(len(x))
        return net(x) * (2.0 if len(memory) > 40 else 1.0)

    result = audit(predict, tmp_path / "function")
    assert check_of(result, Code.WEIGHTS).passed is False
    assert check_of(result).passed is False, "its closure is that of the copy"


class Store(Wrapper):
    """Answers smoothed over near-duplicates, of which a store keeps the answers; deep copies share
    it.
    """

    def __init__(self, net, radius, smoothness):
        super().__init__(net)
        self.radius, self.smoothness = radius, smoothness
        self.inputs, self.answers = [], []

    def __deepcopy__(self, memo):
        return self

    def memory(self):
        """Inputs and answers so far."""
        return self.inputs, self.answers

    def keep(self, x, answer):
        self.inputs.append(x)
        self.answers.append(answer)

    def forward(self, x):
        return torch.stack(
            [self.smoothed(*pair) for pair in zip(x.detach(), self.net(x), strict=True)]
        )

    def smoothed(self, x, answer):
        inputs, answers = self.memory()
        if inputs:
            distances = (torch.stack(inputs) - x).abs().amax(1)
            if distances.amin() < self.radius:
                neighbour = answers[int(distances.argmin())]
                return self.smoothness * neighbour + (1 - self.smoothness) * answer
        self.keep(x.clone(), answer.detach())
        return answer


SINGLETON = ([], [])


class InModule(Store):
    """The same, with a store that is a global variable."""

    def memory(self):
        return SINGLETON

    def keep(self, x, answer):
        SINGLETON[0].append(x)
        SINGLETON[1].append(answer)


class OnDisk(Store):
    """The same, with a store that is a file."""

    def __init__(self, net, radius, smoothness, folder):
        super().__init__(net, radius, smoothness)
        self.file = folder / "store.txt"

    def memory(self):
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        rows = torch.tensor([[float(word) for word in line.split()] for line in lines])
        return (list(rows[:, :6]), list(rows[:, 6:])) if lines else ([], [])

    def keep(self, x, answer):
        with self.file.open("a") as file:
            file.write(" ".join(str(value) for value in [*x.tolist(), *answer.tolist()]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_copies_share_is_found(tmp_path, seed):
    rng = random.Random(seed)
    settings = {"radius": rng.uniform(1, 2) * EPS, "smoothness": rng.uniform(0.2, 0.95)}
    for name, kind in (("object", Store), ("global", InModule)):
        finding = check_of(
            audit(kind(mlp(6, 3), **settings), tmp_path / name, samples=16, attack="fgsm")
        )
        assert finding.passed is False, (name, settings, finding.text)
    SINGLETON[0].clear()
    SINGLETON[1].clear()


def test_a_store_on_disk_is_named_and_never_passes(tmp_path):
    model = OnDisk(mlp(6, 3), 1.5 * EPS, 0.5, tmp_path)
    finding = check_of(audit(model, tmp_path / "run", samples=8, attack="fgsm"))
    assert finding.passed is not True
    assert finding.passed is False or "store.txt" in finding.text


class Locked(Wrapper):
    """A model that cannot be copied."""

    def __init__(self, net):
        super().__init__(net)
        self.lock = threading.Lock()


class Dying(Wrapper):
    """Ends the process that asks it, if it is not the one in which it was made."""

    def __init__(self, net):
        super().__init__(net)
        self.process = os.getpid()

    def forward(self, x):
        if os.getpid() != self.process:
            os._exit(0)
        return self.net(x)


class Failing(Dying):
    """Fails there."""

    def forward(self, x):
        if os.getpid() != self.process:
            raise RuntimeError("no licence in this process")
        return self.net(x)


def test_what_cannot_be_opened_twice_is_said_and_never_passes(tmp_path):
    for number, (kind, passed, words) in enumerate(
        (
            (Locked, True, "same answers"),
            (Dying, None, "ended, or does not answer"),
            (Failing, None, "no licence in this process"),
        )
    ):
        result = audit(kind(mlp(6, 3)), tmp_path / str(number), samples=12, attack="fgsm")
        finding = check_of(result)
        assert finding.passed is passed and words in finding.text, finding.text
        assert passed or result.models[0].caveat is not None


def test_a_process_ends_with_the_audit_and_answers_once():
    before = set(children())
    process = FreshProcess(lambda facts, x: ({"got": facts}, 2 * x))
    assert len(set(children()) - before) == 1
    facts, numbers = process.ask({"a": [1, "b"]}, torch.as_tensor(X), 60.0)
    assert facts == {"got": {"a": [1, "b"]}, "shared": ""}
    assert torch.equal(numbers, 2 * torch.as_tensor(X))
    process.close()
    assert set(children()) == before
    with pytest.raises(ModelError, match="asked already"):
        process.ask({}, torch.as_tensor(X), 60.0)


def test_a_process_that_is_late_is_ended():
    before, process = set(children()), FreshProcess(lambda facts, x: threading.Event().wait())
    with pytest.raises(ModelError, match="does not answer"):
        process.ask({}, torch.zeros(2), 0.1)
    assert set(children()) == before


def test_what_processes_share_is_seen(tmp_path):
    old = tmp_path / "old"
    old.write_text("weights")
    os.utime(old, (1, 1))

    def read(facts, x):
        (tmp_path / facts["file"]).open(facts["mode"]).close()
        return {}, x

    for file, mode, is_shared in (
        ("old", "r", False),
        ("old", "a", True),
        ("new", "w", True),
        ("late", "r", True),
        ("old", "r+", True),
    ):
        os.utime(old, (1, 1))
        process = FreshProcess(read)
        (tmp_path / "late").write_text("an answer")
        facts, _ = process.ask({"file": file, "mode": mode}, torch.zeros(1), 60.0)
        assert facts["shared"] == (str(tmp_path / file) if is_shared else ""), (file, mode)


def children():
    """Ids of the processes of this one."""
    text = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text()
    return [int(word) for word in text.split()]


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
