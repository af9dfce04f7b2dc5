"""What a type checker knows of the Python calls: twenty right uses and twenty wrong ones, each judged rightly."""

import inspect
import re
import subprocess
import sys

import pytest

import brinell
from brinell.studies import register

HEAD = """\
import numpy as np
import torch

import brinell

net = torch.nn.Linear(2, 2)
x, y = np.zeros((4, 2)), np.zeros(4, dtype=np.int64)
run = brinell.audit(net, x, y, eps=8 / 255)
"""
RIGHT = (
    'brinell.audit(net, (x, y), eps=[0.1, 0.2], norm=2, samples=100, device=torch.device("cpu"))',
    'brinell.audit({"a": net, "b": "digits-cnn"}, "digits", attack=["fgsm", "pgd?steps=3"], progress=False)',
    "low: float | None = run.robust(8 / 255).low",
    "folder: str = run.folder",
    'brinell.attack(net, torch.zeros(4, 2), torch.zeros(4), "apgd", eps=0.1).success',
    'brinell.audit(net, brinell.data(x, y, classes=["a", "b"], kind="vector"))',
    "rank: float = brinell.transfer(model=[net], data=x, y=y).sources[0].rank.low  # type: ignore[union-attr]",
    'brinell.transfer([run.folder, "SET"], eps="8/255", shard="1/2", out="s3://b/t")',
    'brinell.explain(net, x, y, method=["rlab"], only="right", steps=4).methods[0].queries',
    'brinell.harden(net, x, y, train=(x, y), optimizer="sgd", recipe="trades+awp").weights',
    "brinell.epsilon((x, y), train=(x, y), norm=('linf', 'l2'), fraction=0.4).notes",
    "passed: bool = brinell.gate(run, robust=0.4, baseline='EARLIER').passed",
    "brinell.verify(run.folder, net, (x, y), rerun=3).problems",
    "brinell.compare(run, model_a='a', model_b='b').robust[0].difference",
    "brinell.export(run, 'csv', out='figures').files",
    "brinell.corrupt(net, x, y, kind='published-fog', severity=(1, 2)).payload()",
    "brinell.study([run, 'OTHER'], at=0.1).models[0].rank",
    "brinell.benchmark(net, (x, y), distortions='fog', patch=4, resume=True).levels",
    "brinell.detect(run, 'digits?split=train', detector=['mahalanobis'], fpr=0.1).detectors",
    "brinell.train_agent(out='policy.safetensors', algorithm='none').training_queries",
)
WRONG = (
    "brinell.audit(1, (x, y))",
    "brinell.audit(net, 3.0)",
    "brinell.audit(net, x, y, epss=3)",
    'brinell.audit(net, x, y, samples="ten")',
    'brinell.audit(net, x, y, select="middle")',
    "brinell.audit(net)",
    "run.robuts(0.1)",
    "run.robust(0.1).lowest",
    "number: int = run.folder",
    'brinell.attack(net, x, y, "apgd", worst="yes")',
    "brinell.transfer(norms='linf')",
    "brinell.explain(net, x, y, only='middle')",
    "brinell.harden(net, x, y, optimizer='adam')",
    "brinell.epsilon()",
    "text: str = brinell.gate(run, robust=0.4)",
    "brinell.gate(run, robust='high')",
    "brinell.export(run, 'excel')",
    "brinell.corrupt(net, x, y, severity='worst')",
    "brinell.train_agent(algorithm='none')",
    "brinell.sign(run, key=3)",
)


@pytest.mark.slow
def test_forty_calls_are_judged_rightly(tmp_path):
    assert len(RIGHT) == len(WRONG) == 20
    file, begin = tmp_path / "calls.py", HEAD.count("\n")
    file.write_text(HEAD + "\n".join([*RIGHT, *WRONG]) + "\n", encoding="utf-8")
    options = ["--no-error-summary", "--hide-error-context", "--config-file=", "--ignore-missing-imports", "--cache-dir"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(tmp_path / "cache"), str(file)], capture_output=True, text=True, timeout=500
    )
    lines = {int(number) - begin for number in re.findall(r"calls\.py:(\d+): error", done.stdout)}
    assert lines == set(range(len(RIGHT) + 1, len(RIGHT) + len(WRONG) + 1)), done.stdout + done.stderr


def test_every_call_has_types_at_run_time():
    bare = []
    for study in register.studies().values():
        if study.call:
            signature = inspect.signature(getattr(brinell, study.name))
            bare += [study.name] if signature.return_annotation is inspect.Signature.empty else []
            bare += [f"{study.name} {name}" for name, one in signature.parameters.items() if one.annotation is one.empty]
    assert not bare
