"""Types of the Python calls: a type checker accepts twenty-seven right uses and rejects as many wrong ones."""

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
from brinell.engine.progress import SilentProgress

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
    "place = brinell.transfer(model=[net], data=x, y=y).sources[0].rank; rank: float = place.low if place else 1.0",
    'brinell.transfer([run.folder, "SET"], eps="8/255", shard="1/2", out="s3://b/t")',
    'brinell.explain(net, x, y, method=["rlab"], only="right", steps=4).methods[0].queries',
    'brinell.harden(net, x, y, train=(x, y), optimizer="sgd", recipe="trades+awp").weights',
    "brinell.epsilon((x, y), train=(x, y), norm=('linf', 'l2'), fraction=0.4).notes",
    "passed: bool = brinell.gate(run, robust=0.4, baseline='EARLIER').passed",
    "brinell.verify(run.folder, net, (x, y), replay=3).problems",
    "brinell.compare(run, model_a='a', model_b='b').robust[0].difference",
    "brinell.export(run, 'csv', out='figures').files",
    "brinell.corrupt(net, x, y, kind='published-fog', severity=(1, 2)).payload()",
    "brinell.study([run, 'OTHER'], at=0.1).models[0].rank",
    "brinell.benchmark(net, (x, y), distortions='fog', patch=4, resume=True).levels",
    "brinell.detect(run, 'digits?split=train', detector=['mahalanobis'], fpr=0.1).detectors",
    "brinell.train_agent(out='policy.safetensors', algorithm='none').training_queries",
    "people: list[str] = brinell.review((x, y), norm='l2', eps=[0.1, 0.2], trials=60, resume=True).reviewers",
    "brinell.unrestricted(net, x, y, generator='GENERATOR', judge=['digits-cnn'], towards='3').results[0].total.clear.k",
    "brinell.detect(run, (x, y), progress=SilentProgress()).detectors[0].robust.low",
    "brinell.train_generator(x, y, out='GENERATOR', minutes=1, progress=True).payload()",
    "brinell.train_metric((x, y), out='METRIC', test=(x, y)).payload()",
    "brinell.report(run).payload()",
    "brinell.sign(run.folder, key='KEY').payload()",
)
WRONG = {
    "brinell.audit(1, (x, y))": 'Argument 1 to "audit"',
    "brinell.audit(net, 3.0)": 'Argument 2 to "audit"',
    "brinell.audit(net, x, y, epss=3)": 'Unexpected keyword argument "epss"',
    'brinell.audit(net, x, y, samples="ten")': 'Argument "samples" to "audit"',
    'brinell.audit(net, x, y, select="middle")': 'Argument "select" to "audit"',
    "brinell.audit(net)": 'Missing positional argument "data"',
    "run.robuts(0.1)": '"Audit" has no attribute "robuts"',
    "run.robust(0.1).lowest": '"Rate" has no attribute "lowest"',
    "number: int = run.folder": 'expression has type "str", variable has type "int"',
    'brinell.attack(net, x, y, "apgd", worst="yes")': 'Argument "worst" to "attack"',
    "brinell.transfer(norms='linf')": 'Unexpected keyword argument "norms"',
    "brinell.explain(net, x, y, only='middle')": 'Argument "only" to "explain"',
    "brinell.harden(net, x, y, optimizer='adam')": 'Argument "optimizer" to "harden"',
    "brinell.epsilon()": 'Missing positional argument "data"',
    "text: str = brinell.gate(run, robust=0.4)": 'expression has type "GateResult"',
    "brinell.gate(run, robust='high')": 'Argument "robust" to "gate"',
    "brinell.export(run, 'excel')": 'Argument 2 to "export"',
    "brinell.corrupt(net, x, y, severity='worst')": 'Argument "severity" to "corrupt"',
    "brinell.train_agent(algorithm='none')": 'Missing named argument "out"',
    "brinell.sign(run, key=3)": 'Argument "key" to "sign"',
    "brinell.data(x, y, kind='picture')": 'Argument "kind" to "data"',
    "brinell.verify(run, replay='all')": 'Argument "replay" to "verify"',
    "brinell.compare(run, models='a')": 'Unexpected keyword argument "models"',
    "brinell.study([run, 3])": 'List item 1 has incompatible type "int"',
    "brinell.benchmark({'a': net}, (x, y))": 'Argument 1 to "benchmark"',
    "brinell.detect(run)": 'Missing positional argument "train"',
    "brinell.audit(net, x, y, progress=print)": 'Argument "progress" to "audit"',
}
"""By wrong use, what the type checker says of it."""


@pytest.mark.slow
def test_calls_are_judged_rightly(tmp_path):
    assert len(RIGHT) == len(WRONG) == 27
    file, begin = tmp_path / "calls.py", HEAD.count("\n")
    file.write_text(HEAD + "\n".join([*RIGHT, *WRONG]) + "\n", encoding="utf-8")
    options = ["--no-error-summary", "--hide-error-context", "--config-file=", "--ignore-missing-imports", "--cache-dir"]
    process = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(tmp_path / "cache"), str(file)], capture_output=True, text=True, timeout=500
    )
    messages = {int(line) - begin: text for line, text in re.findall(r"calls\.py:(\d+): error: (.*)", process.stdout)}
    assert list(messages) == list(range(len(RIGHT) + 1, len(RIGHT) + len(WRONG) + 1)), process.stdout + process.stderr
    assert not [(use, text) for (use, reason), text in zip(WRONG.items(), messages.values(), strict=True) if reason not in text]


def test_every_call_has_types_at_run_time():
    bare = []
    for study in register.studies().values():
        if study.call:
            signature = inspect.signature(getattr(brinell, study.name))
            bare += [study.name] if signature.return_annotation is inspect.Signature.empty else []
            bare += [
                f"{study.name} {name}"
                for name, parameter in signature.parameters.items()
                if parameter.annotation is parameter.empty
            ]
    assert not bare
