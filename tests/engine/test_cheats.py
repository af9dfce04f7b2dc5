"""Attacks that cheat: each ends the run with one line, or changes nothing that is recorded."""

import pytest

from _helpers import run_in_process, workspace
from brinell.cli import run as cli
from brinell.store.run import Run

CHEAT = """
import gc, sys
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
import torch
from brinell.attacks.fgsm import FGSM
from brinell.core.contracts import Access
import brinell.core.criterion, brinell.core.eot, brinell.core.ledger, brinell.core.norms, brinell.core.threat, brinell.store.rows

def book(oracle):
    return oracle.scores.__closure__[0].cell_contents

def frame():
    at = sys._getframe()
    while at.f_code.co_name != "run_shard":
        at = at.f_back
    return at.f_locals

def module(oracle):
    return book(oracle)._model.info.module

@dataclass(frozen=True, kw_only=True)
class Cheat(FGSM):
    how: str = ""
    def __call__(self, oracle, batch, threat, rng):
        ledger = book(oracle)
        before, _, after = self.how.partition(";;")
        scope = globals() | locals()
        if before.strip():
            exec(before, scope)
        FGSM.__call__(self, oracle, batch, threat, rng)
        if after.strip():
            exec(after, scope)
"""
CHEATS = {
    "inputs through .data": "batch.x.data.add_(0.05)",
    "inputs through numpy": "batch.x.numpy()[:] += 0.05",
    "inputs through detach": "batch.x.detach().data.mul_(0)",
    "inputs through storage": "batch.x.untyped_storage().fill_(0)",
    "inputs through set_": "batch.x.data = batch.x.data + 0.1",
    "inputs afterwards": ";;batch.x.data.add_(0.05)",
    "inputs in the ledger": "ledger._batch.x.data.copy_(torch.rand_like(batch.x))",
    "labels in the ledger": "ledger._batch.y.fill_(1)",
    "labels in the shard": "frame()['group'].label[:] = 1",
    "samples in the shard": "frame()['group'].sample_id[:] = frame()['group'].sample_id[::-1].copy()",
    "levels in the shard": ";;frame()['setting'].levels[:] = 0.9",
    "units in the shard": ";;frame()['group'].unit[:] = 9",
    "budgets in the ledger": "ledger._threat.eps.fill_(9.0); ledger._limit.fill_(9.0)",
    "limit in the ledger": "ledger._limit.fill_(9.0); oracle.scores(batch.ids, batch.x.clone().fill_(0.9))",
    "forwards zeroed": ";;ledger.costs.forwards.zero_()",
    "forwards zeroed before": "oracle.scores(batch.ids, batch.x); ledger.costs.forwards.zero_()",
    "forwards replaced": ";;ledger.costs.forwards = torch.zeros_like(ledger.costs.forwards)",
    "forwards raised": ";;ledger.costs.forwards.add_(100)",
    "costs moved to others": ";;ledger.costs.forwards[0] += 1; ledger.costs.forwards[1] -= 1",
    "backwards zeroed": ";;ledger.costs.backwards.data.zero_()",
    "successes invented": ";;ledger.best.first_success.fill_(1); ledger.best.distance.fill_(0.0)",
    "successes hidden": ";;ledger.best.first_success.zero_(); ledger.best.distance.fill_(float('inf'))",
    "margins lowered": ";;ledger.best.margin.fill_(-9.0)",
    "finds replaced": ";;ledger.best.closest = batch.x.clone()",
    "answers replaced": ";;ledger.best.answer.fill_(3.0)",
    "model asked past the ledger": "ledger._model.predict(batch.x)",
    "model asked past the count": "ledger._batch_size = 1; [ledger._model.predict(batch.x) for _ in range(3)]",
    "weights zeroed": "[p.data.zero_() for p in module(oracle).parameters()]",
    "weights found by gc": "[o.weight.data.mul_(-1) for o in gc.get_objects() if isinstance(o, torch.nn.Linear)]",
    "a hook": "module(oracle).register_forward_hook(lambda m, i, o: -o)",
    "another forward": "m = module(oracle); f = m.forward; m.forward = lambda x: -f(x)",
    "another judge": "brinell.core.norms.linf = lambda d: d.flatten(1).sum(1) * 0",
    "another ledger": "brinell.core.ledger.Ledger._admit = lambda self, ids, x, access: self._look_up(ids)",
    "other costs": ";;ledger.costs = type(ledger.costs)(len(batch), batch.x.device)",
    "other costs before": "oracle.scores(batch.ids, batch.x); ledger.costs = type(ledger.costs)(len(batch), batch.x.device)",
    "other finds": ";;ledger.best = type(ledger.best)(batch.x, 2); ledger.best.first_success.fill_(1)",
    "another criterion": "brinell.core.criterion.Misclassified.met = lambda self, margin, largest: margin < 9",
    "another criterion's parent": "brinell.core.criterion.PlainCriterion.met = lambda self, margin, largest: margin < 9",
    "other averages": "brinell.core.eot.EOT.mean = lambda self, x: torch.rand(len(x), 2)",
    "another torch": "torch.Tensor.argmax = lambda self, *a, **k: torch.zeros(len(self), dtype=torch.long)",
    "another writer": ";;brinell.store.rows.build = lambda *a, **k: None",
    "leaves": "sys.exit(0)",
    "interrupts": "raise KeyboardInterrupt",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = workspace(tmp_path_factory.mktemp("cheats"), n=8)
    (folder / "net.py").write_text(
        "import torch\nfrom torch import nn\ndef net():\n    layer = nn.Linear(2, 2)\n"
        "    layer.weight.data = torch.tensor([[-9.0, 0.0], [9.0, 0.0]])\n    layer.bias.data = torch.tensor([5.4, -5.4])\n"
        "    return layer\n"
    )
    return folder


def arguments(work, method, out):
    (work / f"{out}.py").write_text(CHEAT.replace('how: str = ""', f"how: str = {method!r}"))
    words = [
        "audit",
        "--data",
        f"npz:{work}/data.npz",
        "--model",
        f"torch:{work}/net.py:net",
        "--eps",
        "0.1,0.2",
        "--quiet",
        "--in-process",
    ]
    return [*words, "--attack", f"{work}/{out}.py:Cheat", "--out", str(work / out)]


def test_the_honest_one_is_recorded(work):
    assert cli(arguments(work, ";;", "honest")) == 0
    records = Run.open(work / "honest").records()
    assert {"fooled", "survived"} <= set(records.outcome)


@pytest.mark.slow
def test_no_cheat_gives_a_false_figure(work, subtests):
    """Run in a child process, which the cheat may leave in any state."""
    for name in CHEATS:
        with subtests.test(str((name,))):
            out = "".join(word[:1] for word in name.split()) + str(list(CHEATS).index(name))
            assert run_in_process(arguments(work, CHEATS[name], out)) in (2, 3, 130)
            rows = Run.open(work / out).records() if (work / out / "manifest.json").exists() else None
            assert rows is None or not {"fooled", "survived"} & set(rows.outcome)
