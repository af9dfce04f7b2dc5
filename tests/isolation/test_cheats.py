"""Plug-ins that cheat: each is refused in one line, or the figures are those that an honest judge computes."""

import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from _helpers import Recorder, batch_of, mlp, run_audit, threat_of
from brinell import plugins
from brinell.cli import run as cli
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError
from brinell.core.frames import KINDS, Pipe
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.isolation.attack import AttackProperties, IsolatedAttack
from brinell.isolation.process import PluginProcess
from brinell.rlab.variants import distorted
from brinell.store.run import Run

CUBE = Domain(kind="vector", shape=(6,))
EPS = [0.05, 0.125, 0.2]
ATTACK = """
import atexit, ctypes, gc, os, signal, subprocess, sys, threading, time
from dataclasses import dataclass
import numpy as np
import torch
import brinell.core.ledger, brinell.core.criterion, brinell.core.norms, brinell.engine.plugin_server as server
from brinell import plugins
from brinell.attacks.pgd import PGD
from brinell.core.contracts import Access, Extras, Remark
from brinell.core.frames import Pipe

OUT = {out!r}

def pipe():
    return next(one for one in gc.get_objects() if isinstance(one, Pipe))

def attempt(function, *arguments, **settings):
    try:
        return function(*arguments, **settings)
    except Exception:
        pass

{top}

@dataclass(frozen=True, kw_only=True)
class Cheat(PGD):
    steps: int = 4
{body}
    def __call__(self, oracle, batch, threat, rng):
        scope = globals() | locals()
        exec({before!r}, scope)
        result = PGD.__call__(self, oracle, batch, threat, rng)
        scope["result"] = result
        exec({after!r}, scope)
        return scope["result"]
"""


@dataclass(frozen=True)
class Cheat:
    """Code of an attack at import, in its class, and before and after the honest attack."""

    top: str = ""
    body: str = ""
    before: str = ""
    after: str = ""

    def text(self, out: Path) -> str:
        body = "".join(f"    {line}\n" for line in self.body.splitlines())
        return ATTACK.format(out=str(out), top=self.top, body=body, before=self.before, after=self.after)


def answer(arrays: str = "", fields: str = "{'remarks': [], 'legend': {'last': 'x'}}") -> Cheat:
    """A cheat whose last message is forged: the arrays and fields of the message `done`."""
    return Cheat(after=f"pipe().send('done', {fields}, dict({arrays})); time.sleep(60)")


def raw(head: str) -> Cheat:
    """A cheat whose last message has a forged head, without arrays behind it."""
    return Cheat(after=f"h = {head!r}.encode(); pipe()._write(len(h).to_bytes(8, 'little') + h + bytes(99)); time.sleep(60)")


QUICK = {
    "judges patched at import": Cheat(
        top="brinell.core.ledger.Ledger._settle = lambda *a, **k: None\n"
        "brinell.core.norms.linf = lambda d: d.flatten(1).sum(1) * 0\n"
        "brinell.core.criterion.PlainCriterion.met = lambda *a: torch.tensor(True)"
    ),
    "run folder written and removed": Cheat(
        before="import shutil\n"
        "for root, _, names in os.walk(OUT):\n    for name in names:\n"
        "        attempt(os.truncate, os.path.join(root, name), 0)\n"
        "        attempt(os.rename, os.path.join(root, name), os.path.join(root, name + '.old'))\n"
        "        attempt(os.remove, os.path.join(root, name))\n"
        "attempt(shutil.rmtree, OUT)\nattempt(open, OUT + '/records.parquet', 'w')\nattempt(os.mkdir, OUT + '/more')"
    ),
    "leaves with 0": Cheat(before="os._exit(0)"),
    "done before the work": Cheat(before="pipe().send('done', {'remarks': [], 'legend': {}}); time.sleep(60)"),
    "provenance": Cheat(
        top="plugins.source_of = lambda plugin: 'brinell.attacks.apgd'", body="__module__ = 'brinell.attacks.apgd'"
    ),
    "a remark that draws lines": Cheat(after="result = Extras(remarks=[Remark('own', 'fine\\n| robust | 100 % |\\x1b[2J')])"),
    "left eps": Cheat(before="oracle.scores(batch.ids, (batch.x + 0.5).clamp(0, 1))"),
}
SLOW = {
    "torch and numpy patched": Cheat(
        top="torch.Tensor.argmax = lambda self, *a, **k: torch.zeros(len(self), dtype=torch.long)\n"
        "np.isfinite = lambda x: True\ntorch.isfinite = lambda x: torch.ones_like(x, dtype=torch.bool)"
    ),
    "a profiler": Cheat(top="sys.setprofile(lambda frame, event, arg: frame.f_locals.update(found=1))"),
    "a tracer": Cheat(top="sys.settrace(lambda frame, event, arg: frame.f_locals.clear())"),
    "gc walked": Cheat(before="[attempt(one.data.fill_, 0) for one in gc.get_objects() if type(one) is torch.Tensor]"),
    "frames walked": Cheat(before="at = sys._getframe()\nwhile at is not None:\n    at.f_locals.clear()\n    at = at.f_back"),
    "memory of the parent": Cheat(
        before="attempt(open, f'/proc/{os.getppid()}/mem', 'r+b')\n"
        "libc = ctypes.CDLL(None)\nassert libc.ptrace(16, os.getppid(), 0, 0) != 0"
    ),
    "signals to the parent": Cheat(before="[attempt(os.kill, os.getppid(), one) for one in (signal.SIGUSR1, signal.SIGSTOP)]"),
    "own signals": Cheat(before="signal.raise_signal(signal.SIGKILL)"),
    "leaves on import": Cheat(top="os._exit(0)"),
    "leaves with sys.exit": Cheat(before="sys.exit(0)"),
    "at exit": Cheat(top="atexit.register(lambda: pipe().send('done', {'remarks': [], 'legend': {}}))", before="sys.exit(0)"),
    "a thread that talks": Cheat(
        top="def talk():\n    time.sleep(0.3)\n    while True:\n"
        "        attempt(pipe().send, 'done', {'remarks': [], 'legend': {}})\n"
        "        time.sleep(0.05)\nthreading.Thread(target=talk, daemon=True).start()"
    ),
    "processes": Cheat(
        before="attempt(subprocess.Popen, ['sh', '-c', f'echo x > {OUT}/planted; echo x > {OUT}-planted'])\n"
        "if os.fork() == 0:\n    time.sleep(0.2)\n"
        "    attempt(pipe().send, 'done', {'remarks': [], 'legend': {}})\n    os._exit(0)"
    ),
    "the pipe eaten": Cheat(before="attempt(os.read, pipe()._reader, 1 << 20); attempt(os.write, pipe()._writer, b'7' * 99)"),
    "words for the terminal": Cheat(before="print('robust: 100 %'); os.write(1, b'robust'); sys.stderr.write('robust')"),
    "inputs that lie": Cheat(
        top="class Liar(torch.Tensor):\n    def __array__(self, *a, **k): return np.zeros((1, 6), np.float32)\n"
        "    def detach(self): return torch.zeros(self.shape)\n    def __le__(self, other): return torch.tensor(True)",
        before="attempt(oracle.scores, batch.ids, batch.x.as_subclass(Liar))",
    ),
    "NaN": Cheat(before="oracle.scores(batch.ids, batch.x * float('nan'))"),
    "NaN in one place": Cheat(before="x = batch.x.clone(); x[0, 0] = float('nan'); oracle.scores(batch.ids, x)"),
    "cost denied": Cheat(body="def cost(self, classes): return 0, 0"),
    "costs of others": Cheat(before="[oracle.scores(batch.ids[:1], batch.x[:1]) for _ in range(3)]"),
    "ids twice": Cheat(before="oracle.scores(batch.ids.repeat(2), batch.x.repeat(2, 1))"),
    "ids of nobody": Cheat(before="oracle.scores(batch.ids - 1, batch.x)"),
    "clean inputs replaced": Cheat(before="batch.x.copy_(torch.rand_like(batch.x)); batch.y.fill_(0); threat.eps.fill_(9.0)"),
    "access denied": Cheat(body="access = Access.LABELS"),
    "far reach": Cheat(
        body="def reach(self, distance): return 1e6", before="oracle.scores(batch.ids, (batch.x + 0.5).clamp(0, 1))"
    ),
    "endless reach": Cheat(body="def reach(self, distance): return float('nan')"),
    "a minimal attack": Cheat(body="family = 'minimal'"),
    "a class name": Cheat(after="pass", top="server._describe.__globals__['inspect'].getdoc = lambda one: 'a\\x1b[2Jb'"),
    "placements": answer("last=torch.zeros(len(batch.x))", "{'remarks': [], 'legend': {'kind': 'patches', 'variants': []}}"),
    "a legend of NaN": answer("", "{'remarks': [], 'legend': {'last': float('nan')}}"),
    "a deep legend": raw('{"op":"done","fields":{"remarks":[],"legend":{"a":' + "[" * 200 + "]" * 200 + '}},"arrays":{}}'),
    "half a character": answer("", "{'remarks': [['own', chr(0xd800)]], 'legend': {}}"),
    "extras without rows": answer("last=torch.tensor(1.0)"),
    "extras of too few": answer("last=torch.zeros(1)"),
    "truth of seven": raw('{"op":"done","fields":{"remarks":[],"legend":{"a":1}},"arrays":{"a":["|b1",[99]]}}').__class__(
        after='h = b\'{"op":"done","fields":{"remarks":[],"legend":{"a":1}},"arrays":{"a":["|b1",[5]]}}\'\n'
        "pipe()._write(len(h).to_bytes(8, 'little') + h + bytes([7] * 5)); time.sleep(60)"
    ),
    "an array of no size": raw(
        '{"op":"done","fields":{"remarks":[],"legend":{"a":1}},"arrays":{"a":["<f4",[0,9007199254740992,9007199254740992]]}}'
    ),
    "an array of many axes": raw('{"op":"done","fields":{"remarks":[],"legend":{}},"arrays":{"a":["<f4",[' + "1," * 80 + "1]]}}"),
}


def data() -> tuple[Any, Any]:
    """Inputs so far apart that none is within the budgets of two."""
    rng, x = np.random.default_rng(0), np.zeros((0, 6), np.float32)
    while len(x) < 10:
        drawn = rng.uniform(0.2, 0.8, (1, 6)).astype(np.float32)
        x = np.concatenate([x, drawn]) if np.abs(x - drawn).max(1).min(initial=1) > 2 * EPS[-1] else x
    return x, mlp()(torch.from_numpy(x)).argmax(1).numpy()


def judge(run: Run, calls: list[Any], attack: str) -> None:
    """Compute outcomes and costs again, from the stored inputs and from what the model was asked during the attack."""
    x, y = data()
    network, records = mlp(), run.records()
    rows = np.flatnonzero(records.attack == attack)
    stored = run.adversarial("recorder", attack, range(len(x)))
    asked = torch.cat([torch.zeros(0, 6), *calls])
    wrong = network(asked).topk(2).values.diff(dim=1).abs()[:, 0] > 1e-4
    for row in rows:
        sample, eps = int(records.sample_id[row]), float(records.eps[row])
        if records.outcome[row] == "fooled":
            input_ = torch.from_numpy(stored[sample])
            assert input_.min() >= 0 and input_.max() <= 1 and (input_ - torch.from_numpy(x[sample])).abs().max() <= eps + 1e-6
            assert int(network(input_[None]).argmax()) != y[sample]
        if records.outcome[row] == "survived":
            near = (asked - torch.from_numpy(x[sample])).abs().amax(1) <= eps
            assert not (near & wrong & (network(asked).argmax(1) != y[sample])).any()
    file = attack.partition(":")[0]
    assert file in json.dumps(run.manifest["stages"])
    texts = run.manifest["remarks"].get("recorder", {}).get(attack, {})
    assert all(text.isprintable() for text in [*texts, *texts.values()])


@pytest.mark.parametrize(
    "names", [pytest.param(QUICK, marks=pytest.mark.slow), pytest.param(SLOW, marks=pytest.mark.nightly)], ids=len
)
def test_no_attack_gives_a_false_figure(
    names: dict[str, Cheat],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    subtests: pytest.Subtests,
) -> None:
    call = IsolatedAttack.__call__
    for name in names:
        with subtests.test(name):
            tmp_path = tmp_path_factory.mktemp("row")
            file, out = tmp_path / "cheat.py", tmp_path / "run"
            file.write_text((QUICK | SLOW)[name].text(out))
            (x, y), recorder, attack = data(), Recorder(mlp(), CUBE, classes=3), f"{file}:Cheat"
            calls: list[Any] = []

            def watch(self: Any, *arguments: Any) -> Any:
                before = len(recorder.calls)
                try:
                    return call(self, *arguments)
                finally:
                    calls.extend(recorder.calls[before:])

            monkeypatch.setattr(IsolatedAttack, "__call__", watch)
            try:
                run = run_audit(out, recorder, x, y, eps=",".join(map(str, EPS)), attack=(attack,))
            except BrinellError as error:
                assert str(error).isprintable()
                if (out / "manifest.json").exists():
                    judge(Run.open(out), calls, attack)  # the groups before the one that was refused
            else:
                judge(run, calls, attack)
                records = run.records()
                # And more for the shrinking to lower budgets.
                assert int(records.forwards[records.attack == attack].sum()) >= sum(map(len, calls))
            assert "robust" not in "".join(capfd.readouterr())
            assert {path.name for path in tmp_path.iterdir()} <= {"cheat.py", "run"} and not list(out.rglob("*planted*"))


# Random messages, with a thread of this process in place of the child

PROPERTIES = {"name": "A", "summary": "", "defaults": {}, "settings": {}, "access": 3, "domains": ["vector"]}
PROPERTIES |= {"distances": ["linf"], "family": "budgeted", "targeted": False, "reach": {}}
OPS = ("scores", "labels", "loss", "gradient", "differences", "active", "stopped", "affordable", "done", "value", "failed")


def draw_value(rng: random.Random, depth: int = 0) -> Any:
    """A random value from JSON."""
    kind = rng.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [draw_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {rng.choice(("remarks", "legend", "cost", "a\n")): draw_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return rng.choice([None, True, 0, -1, 2**70, 0.5, float("nan"), float("inf"), "", "a", "\x1b[2J", "a\nb", "\ud800", "linf"])


def draw_message(rng: random.Random) -> bytes:
    """A message that is in part as it should be."""
    op = rng.choice(OPS)
    fields: Any = rng.choice(
        [{"loss": False, "extra": 0}, {"remarks": [], "legend": {"a": 1}}, draw_value(rng), {"why": draw_value(rng)}]
    )
    n = rng.choice([1, 4])
    arrays = {
        "ids": ("<i8", [n], np.array([rng.randrange(-1, 5) if rng.random() < 0.1 else i for i in range(n)], np.int64).tobytes())
    }
    inputs = (
        np.random.default_rng(rng.randrange(1000)).uniform(-0.01 if rng.random() < 0.1 else 0.25, 0.75, (n, 6)).astype(np.float32)
    )
    arrays["x"] = ("<f4", [n, 6], inputs.tobytes())
    if rng.random() < 0.3:
        kind = rng.choice([*KINDS, "|O"])
        shape = [rng.choice([0, 1, 4, 6, 2**53, -1, 2.5]) for _ in range(rng.randrange(4))]
        arrays[rng.choice(("ids", "x", "classes", "a", "", "../a", "\n"))] = (kind, shape, rng.randbytes(rng.choice([0, 4, 96])))
    head = json.dumps({"op": op, "fields": fields, "arrays": {name: [kind, shape] for name, (kind, shape, _) in arrays.items()}})
    content = head.encode()
    if rng.random() < 0.05:
        content = rng.randbytes(20)
    return len(content).to_bytes(8, "little") + content + b"".join(part for _, _, part in arrays.values())


@contextmanager
def far_end(patch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A process without a child, and the descriptors at the far end of its pipe."""
    first, second = os.pipe(), os.pipe()
    process = PluginProcess("attack", "a.py:A", {}, AttackProperties)
    patch.setattr(process, "end", lambda: None)
    process._pipe = Pipe(first[0], second[1], most=1 << 20, seconds=5.0)
    yield process, second[0], first[1]
    for descriptor in (*first, *second):
        try:
            os.close(descriptor)
        except OSError:
            pass


def hear(seed: int, process: Any, writer: int) -> None:
    """Answer random messages, and judge what came of them."""
    rng, (x, y) = random.Random(seed), data()
    x, y = x[:4], y[:4]
    messages = b"".join(draw_message(rng) for _ in range(rng.randrange(1, 12)))

    def speak() -> None:
        os.write(writer, messages)
        os.close(writer)

    recorder, attack = Recorder(mlp(), CUBE, classes=3), IsolatedAttack(process, dict(PROPERTIES), "a")
    attack._costs[3] = (8, 8)
    batch, threat = batch_of(x, y), threat_of(0.3, "linf", CUBE, n=4)
    ledger = Ledger(recorder, batch, threat)  # type: ignore[arg-type]
    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    speaker.join(10)
    try:
        attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, batch.ids))
    except BrinellError as error:
        assert str(error).isprintable()
    else:
        assert int(ledger.costs.forwards.sum()) == recorder.queries
    for sample in ledger.fooled.nonzero()[:, 0].tolist():
        found = ledger.best.closest[sample]
        assert (found - batch.x[sample]).abs().max() <= 0.3 + 1e-6 and int(mlp()(found[None]).argmax()) != y[sample]


@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 1000), marks=pytest.mark.nightly)], ids=len)
def test_random_messages_give_no_false_figure(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        with far_end(monkeypatch) as (process, _, writer):
            hear(seed, process, writer)


# Distortions, detectors and explainers, whose answers depend on their inputs alone

OTHERS = """
import os, time
from dataclasses import dataclass
import numpy as np
import torch
from brinell.detectors.feature_squeezing import FeatureSqueezing
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.explainers.gradient import Gradient

CALLS, SEEN = [0], []

def alter(answer, x):
    CALLS[0] += 1
    {how}
    return answer

@dataclass(frozen=True, kw_only=True)
class OwnDistortion(GaussianNoise):
    def __call__(self, x, severity, rng, draw):
        return alter(super().__call__(x, severity, rng, draw), x)

@dataclass(frozen=True, kw_only=True)
class OwnDetector(FeatureSqueezing):
    def fit(self, x, labels, model):
        score = super().fit(x, labels, model)
        return lambda x: alter(score(x), x)

@dataclass(frozen=True, kw_only=True)
class OwnExplainer(Gradient):
    def __call__(self, oracle, batch, domain, rng):
        return alter(super().__call__(oracle, batch, domain, rng), batch.x)
"""
HOWS = {
    "honest": "",
    "counts its calls": "if CALLS[0] > 2: return answer * 0",
    "remembers": "near = [old for seen, old in SEEN if seen.shape == x.shape and (seen - x).abs().max() < 0.2]\n"
    "    SEEN.append((x, answer))\n    if near: return near[0]",
    "asks whether gradients are wanted": "if x.requires_grad: answer = answer * 0.5",
    "takes the clock": "answer = answer * (time.time() % 1)",
    "takes its process": "answer = answer * (os.getpid() % 7 + 1) / 8",
    "looks at the whole batch": "answer = answer * (len(x) > 2)",
    "NaN": "answer = answer * float('nan')",
    "another shape": "answer = answer[:1]",
    "another type": "answer = answer.double()",
    "leaves": "os._exit(0)",
}


def write_other(tmp_path: Path, name: str) -> Path:
    file = tmp_path / "other.py"
    file.write_text(OTHERS.replace("{how}", HOWS[name]))
    return file


def answers_of(kind: str, file: Path) -> list[Any]:
    """What a plug-in answers about inputs that come twice: in order, then the other way around in other batches."""
    x, y = (torch.as_tensor(value) for value in data())
    image = Domain(kind="image", shape=(1, 6, 6))
    if kind == "distortion":
        x = torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0))
        distortion, rng = plugins.build(kind, f"{file}:OwnDistortion", {}), Streams.of(0, torch.arange(8))
        score = lambda rows: distorted(distortion, x[rows], 3, rng.select(rows), domain=image).flatten(1).sum(1)  # noqa: E731
    else:
        x = torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0))
        model = Recorder(mlp(36), image, classes=3)
        suspicion = plugins.build(kind, f"{file}:OwnDetector", {}).fit(x, torch.zeros(8).long(), model)
        score = lambda rows: suspicion(x[rows].requires_grad_(bool(rows[0] % 2))).detach()  # noqa: E731
    parts = [torch.arange(3), torch.arange(3, 8), torch.tensor([7, 1, 0]), torch.tensor([6, 5, 4, 3, 2])]
    found = [dict(zip(rows.tolist(), score(rows).tolist(), strict=True)) for rows in parts]
    return [found[0] | found[1], found[2] | found[3]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["detector", "distortion"])
@pytest.mark.parametrize(
    "names", [("honest", "counts its calls"), pytest.param(tuple(HOWS)[2:], marks=pytest.mark.nightly)], ids=len
)
def test_answers_depend_on_inputs_alone(kind: str, names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        file = write_other(tmp_path, name)
        try:
            first, second = answers_of(kind, file)
        except BrinellError as error:
            assert name != "honest" and str(error).isprintable()
        else:
            assert all(first[row] == pytest.approx(second[row], rel=1e-3, abs=1e-3) for row in first), name


@pytest.mark.nightly
def test_maps_depend_on_inputs_alone(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for name in [name for name in HOWS if name != "asks whether gradients are wanted"]:
        with subtests.test(str((name,))):
            tmp_path = tmp_path_factory.mktemp("row")
            file = write_other(tmp_path, name)
            code = cli(
                ["explain", "--samples", "12", "--method", f"{file}:OwnExplainer", "--out", str(tmp_path / "out"), "--quiet"]
            )
            error = capsys.readouterr().err
            assert (code == 0) == (name == "honest") and (code == 0 or error.count("\n") == 1), error
