"""An attack in a child process finds the same examples, gets only its samples and the oracle, and may fail."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from _helpers import Recorder, batch_of, mlp, rows_of, run_audit, threat_of
from brinell import plugins
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, RequestError
from brinell.core.frames import HEAD, Pipe, PipeError
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.isolation import attack as isolated_attack
from brinell.store.run import Run

CUBE = Domain(kind="vector", shape=(6,))
ATTACK = '''
import os
import sys
import time
from dataclasses import dataclass
from typing import ClassVar

import torch

from brinell.core.contracts import Access, Extras, Remark
from brinell.core.losses import cross_entropy


def weighed(logits, y, weight):
    """A loss of this file's own: no other process knows it."""
    return cross_entropy(logits, y) * weight + logits.logsumexp(1)


@dataclass(frozen=True, kw_only=True)
class Own:
    """All that the oracle answers is asked for; `how` is what goes wrong."""

    how: str = ""
    steps: int = 3

    access: ClassVar = Access.GRADIENTS
    distances: ClassVar = frozenset({"linf"})
    domains: ClassVar = frozenset({"vector"})
    family: ClassVar = "budgeted"
    targeted: ClassVar = True

    def cost(self, classes):
        return 4 * self.steps, 4 * self.steps

    def __call__(self, oracle, batch, threat, rng):
        if self.how == "exit":
            sys.exit(0)
        if self.how == "end":
            os._exit(0)
        if self.how == "hang":
            time.sleep(1000)
        if self.how == "raise":
            raise KeyError("a reason")
        if self.how == "garbage":
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b"\\xff" * 64)
                except OSError:
                    pass
            time.sleep(1000)
        if self.how == "far":
            oracle.scores(batch.ids, batch.x + 0.5)
        if self.how == "endless":
            while True:
                oracle.scores(batch.ids, batch.x)
        if self.how == "look":
            said = [name for name in os.environ if "TOKEN" in name]
            try:
                with open(os.environ.get("HOME", "/tmp") + "/left-behind", "w") as file:
                    file.write("x" * 100)
                said.append("a file was written")
            except OSError:
                pass
            open_ = [os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")]
            said += [one for one in open_ if not one.startswith(("/dev/null", "/proc/")) and "pipe:" not in one]
            return Extras(remarks=[Remark("seen", ", ".join(said) or "nothing")])
        x = batch.x + 0.1 * threat.eps[:, None] * rng.fold(1).uniform(6)
        x = threat.project(x, batch.x)
        for _ in range(self.steps):
            seen = oracle.gradient(batch.ids, x, weighed, torch.arange(len(x)) + 1.0)
            plain = oracle.gradient(batch.ids, x)
            lead = oracle.differences(batch.ids, x, torch.zeros(len(x), 1, dtype=torch.int64))
            value = oracle.loss(batch.ids, x, cross_entropy)
            step = (seen.grad + plain.grad + lead.grad[:, 0]) * (1 + value[:, None].sigmoid())
            x = threat.project(x + 0.5 * threat.eps[:, None] * step.sign(), batch.x)
            if not oracle.active(batch.ids).any() or not oracle.affordable(batch.ids).all():
                break
        return Extras(remarks=[Remark("own", "a remark")], arrays={"last": x}, legend={"last": "the last inputs"})
'''


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("attack") / "own.py"
    file.write_text(ATTACK)
    return f"{file}:Own"


def data() -> tuple[Any, Any]:
    x = np.random.default_rng(0).uniform(0.2, 0.8, (12, 6)).astype(np.float32)
    return x, mlp()(torch.from_numpy(x)).argmax(1).numpy()


def model() -> Recorder:
    return Recorder(mlp(), CUBE, classes=3)


def rows(run: Run) -> Any:
    return rows_of(run.records())


@pytest.mark.slow
@pytest.mark.parametrize("targeted", [None, pytest.param("1", marks=pytest.mark.nightly)])
def test_the_records_are_the_same(attack: str, tmp_path: Path, targeted: str | None) -> None:
    x, y = data()
    settings = {"eps": "0.05:0.2:3", "attack": (attack,), "batch_size": 5, "targeted": targeted}
    plain = run_audit(tmp_path / "plain", model(), x, y, in_process=True, **settings)
    isolated = run_audit(tmp_path / "apart", model(), x, y, **settings)
    assert rows(plain) == rows(isolated) and (plain.records().outcome == "fooled").any()
    samples = range(len(x))
    expected, examples = (run.adversarial("recorder", attack, samples) for run in (plain, isolated))
    assert expected.keys() == examples.keys() and all((expected[sample] == examples[sample]).all() for sample in expected)
    expected, examples = (run.extras("recorder", attack, samples) for run in (plain, isolated))
    assert expected.keys() == examples.keys() and all(
        (expected[sample]["last"] == examples[sample]["last"]).all() for sample in expected
    )
    assert plain.manifest["stages"] == isolated.manifest["stages"] and plain.manifest["remarks"] == isolated.manifest["remarks"]
    # A run that was begun the one way goes on the other way, with nothing to do.
    resumed = run_audit(tmp_path / "plain", model(), x, y, resume=True, **settings)
    assert rows(resumed) == rows(isolated)


BUILT_IN = ("apgd:APGD?steps=5", "fab:FAB?steps=3&restarts=1", "square:Square?steps=20", "hop_skip_jump:HopSkipJump?steps=2")


@pytest.mark.nightly
def test_attacks_of_all_kinds_find_the_same(tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests) -> None:
    """Named by their modules they count as files."""
    for spec in BUILT_IN:
        with subtests.test(str((spec,))):
            tmp_path = tmp_path_factory.mktemp("row")
            x, y = data()
            settings = {"eps": "0.05:0.2:3", "attack": (f"brinell.attacks.{spec}",)}
            plain, isolated = (
                run_audit(tmp_path / str(here), model(), x, y, in_process=here, **settings) for here in (True, False)
            )
            assert rows(plain) == rows(isolated)


def run_one(attack: str, mode: str) -> Any:
    x, y = data()
    recorder, attack_ = model(), plugins.build("attack", attack, {"how": mode})
    batch = batch_of(x, y)
    threat = threat_of(0.1, "linf", CUBE, n=len(x))
    ledger = Ledger(recorder, batch, threat, access=attack_.access)  # type: ignore[arg-type]
    try:
        return attack_(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, batch.ids))
    finally:
        assert not attack_._process.running or mode == "look"


@pytest.mark.slow
def test_a_child_that_fails_is_one_line(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContractError, match="ended without an answer .exit code 0.; nothing of it is recorded"):
        run_one(attack, "end")
    with pytest.raises(ContractError, match="ended with KeyError: 'a reason'; nothing"):
        run_one(attack, "raise")


@pytest.mark.nightly
def test_children_that_fail_otherwise(attack: str, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for mode, message in [
        ("exit", "ended with SystemExit"),
        ("hang", "its time is over"),
        ("garbage", "it sent a head of 18446744073709551615 bytes"),
        ("far", "left the b"),
        ("endless", "more often than the 12 times that it declares"),
    ]:
        with subtests.test(str((mode, message))):
            monkeypatch.setattr(isolated_attack, "GROUP_SECONDS", 3.0)
            with pytest.raises(ContractError, match=message):
                run_one(attack, mode)


@pytest.mark.slow
def test_the_child_has_no_token_no_file_and_may_write_none(attack: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BRINELL_TOKEN", "secret")
    with (tmp_path / "records").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        assert [remark.text for remark in run_one(attack, "look").remarks] == ["nothing"]


@pytest.mark.slow
def test_what_cannot_be_built_is_one_line(attack: str) -> None:
    with pytest.raises(RequestError, match="has no option 'stops', did you mean 'steps'"):
        plugins.build("attack", attack, {"stops": 3})


@pytest.mark.slow
def test_the_parent_imports_nothing_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("import os\nos._exit(0)\n")
    assert cli(["audit", "--attack", f"{file}:Own", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "failed: it ended without an answer (exit code 0)" in error and error.count("\n") == 1


# Frames, with this process on both ends


@pytest.fixture
def ends() -> Any:
    first, second = os.pipe(), os.pipe()
    yield Pipe(first[0], second[1], most=1000, seconds=5.0), Pipe(second[0], first[1], most=1000, seconds=5.0)
    for descriptor in (*first, *second):
        try:
            os.close(descriptor)
        except OSError:
            pass


def test_frames_bring_arrays_back(ends: Any) -> None:
    first, second = ends
    sent = {"x": torch.randn(3, 2), "n": torch.tensor([-5, 2**60]), "b": torch.tensor(True), "none": torch.zeros(0, 4)}
    first.send("hello", {"a": [1, None, "ü"]}, sent)
    frame = second.receive()
    assert (frame.op, frame.fields) == ("hello", {"a": [1, None, "ü"]}) and frame.arrays.keys() == sent.keys()
    assert all(torch.equal(frame.arrays[name], sent[name]) and frame.arrays[name].dtype == sent[name].dtype for name in sent)


def test_forged_frames_are_refused(ends: Any, subtests: pytest.Subtests) -> None:
    for raw, message in [
        ((HEAD + 1).to_bytes(8, "little"), "head of"),
        (b"\x02\0\0\0\0\0\0\0{x", "no JSON"),
        (b"\x02\0\0\0\0\0\0\0[]", "it is no table"),
        ('{"op":"a","fields":{},"arrays":{"x":["|O",[1]]}}', "must be <f4"),
        ('{"op":"a","fields":{},"arrays":{"x":["<f4",[-1]]}}', "whole numbers of at least 0"),
        ('{"op":"a","fields":{},"arrays":{"x":["<f4",[100000,100000]]}}', "40000000000 bytes, and 1000 are the most"),
        ('{"op":7,"fields":{},"arrays":{}}', "op is 7"),
        ("[" * 5000, "no JSON"),
    ]:
        with subtests.test(str((raw, message))):
            first, second = ends
            if isinstance(raw, str):
                raw = len(raw).to_bytes(8, "little") + raw.encode()
            os.write(first._writer, raw)
            with pytest.raises(PipeError, match=message):
                second.receive()


def test_silence_has_an_end(ends: Any) -> None:
    first, second = ends
    second.remaining = 0.2
    with pytest.raises(PipeError, match="its time is over"):
        second.receive()
    os.close(first._writer)
    second.remaining = 1.0
    with pytest.raises(PipeError, match="ended without"):
        second.receive()


def test_questions_that_make_no_sense(subtests: pytest.Subtests) -> None:
    for op, arrays, message in [
        ("scores", {}, "without the ids"),
        ("scores", {"ids": torch.tensor([12])}, "none of its group"),
        ("scores", {"ids": torch.tensor([-1])}, "none of its group"),
        ("scores", {"ids": torch.tensor([0])}, "another shape"),
        ("scores", {"ids": torch.tensor([0]), "x": torch.zeros(1, 5)}, "another shape"),
        ("scores", {"ids": torch.tensor([0]), "x": torch.zeros(1, 6, dtype=torch.float64)}, "another shape or type"),
        ("differences", {"ids": torch.tensor([0]), "x": torch.zeros(1, 6)}, "without classes"),
        (
            "differences",
            {"ids": torch.tensor([0]), "x": torch.zeros(1, 6), "classes": torch.tensor([[7]])},
            "class that there is not",
        ),
        ("gradient", {"ids": torch.tensor([0]), "x": torch.zeros(1, 6), "extra0": torch.tensor(1.0)}, "not a row for each"),
        ("weights", {"ids": torch.tensor([0]), "x": torch.zeros(1, 6)}, "which no oracle answers"),
    ]:
        with subtests.test(str((op, arrays, message))):
            from brinell.core.frames import Frame
            from brinell.isolation.oracle import OracleProxy

            x, y = data()
            batch = batch_of(x, y)
            ledger = Ledger(model(), batch, threat_of(0.1, "linf", CUBE, n=len(x)))  # type: ignore[arg-type]
            talk = OracleProxy(ledger.oracle(), batch, 5)
            fields = {"loss": False, "extra": int("extra0" in arrays)}
            with pytest.raises(PipeError, match=message):
                talk.answer(Frame(op, fields, arrays), lambda **_: (x, x))
            assert int(ledger.costs.forwards.sum()) == 0
