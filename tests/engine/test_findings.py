"""All that an audit finds and spends on twelve small models is what findings.json says of them.

After a change that is meant to be seen, write the file anew with `python -m
tests.engine.test_findings`, and read its diff.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _defences import OneHot, Quantised, Ripples, Scaled, Wrapper, WrongGradient
from _helpers import mlp
from brinell.store.run import Run

FILE = Path(__file__).with_name("findings.json")
X = torch.rand(24, 6, generator=torch.Generator().manual_seed(3))
Y = mlp(6, 3)(X).argmax(1)
CASCADE = (
    "fgsm",
    "apgd-ce?steps=3&gradient=repaired",
    "square?steps=10&alone=true",
    "pgd?steps=2&within=0.5",
)


class Median(Wrapper):
    """Depends on the company of an input."""

    def forward(self, x):
        return self.net(x - 0.5 * x.median(0).values)


class FirstBatch(Wrapper):
    """Keeps the mean of the first batch of several."""

    def __init__(self, net):
        super().__init__(net)
        self.mean = None

    def forward(self, x):
        if self.mean is None and len(x) > 1:
            self.mean = x.detach().mean(0, keepdim=True)
        return self.net(x if self.mean is None else x - 0.4 * (self.mean - 0.5))


class Bonus(Wrapper):
    """Adds to the lead what does not decide."""

    def forward(self, x):
        z = self.net(x)
        return z + 3 * nn.functional.one_hot(z.argmax(1), 3)


class Fragile(Wrapper):
    """Fails on one input, and on those near to another."""

    def forward(self, x):
        if bool((x == X[4]).all(1).any() or ((x - X[9]).abs().amax(1) < 0.03).any()):
            raise ValueError("not this one")
        return self.net(x)


def labels(x):
    """Classes alone."""
    with torch.no_grad():
        return mlp(6, 3)(torch.as_tensor(np.asarray(x))).argmax(1).numpy()


SCORES = {
    "attack": ("hop-skip-jump?steps=1&samples=4&starts=4",),
    "norm": "l2",
    "eps": "0.3",
    "answers": "labels",
}
CASES = {
    "state": (lambda: FirstBatch(mlp(6, 3)), {"attack": ("fgsm", "fab?steps=2")}),
    "healthy": (lambda: mlp(6, 3), {}),
    "probabilities": (
        lambda: nn.Sequential(mlp(6, 3), nn.Softmax(1)),
        {"norm": "l2", "eps": "0.1,0.4", "attack": ("fgsm", "pgd?steps=2&eot=3")},
    ),
    "classes alone": (lambda: labels, SCORES),
    "one-hot": (lambda: OneHot(mlp(6, 3)), {}),
    "quantised": (lambda: Quantised(mlp(6, 3), 4), {}),
    "ripples": (lambda: Ripples(mlp(6, 3)), {"targeted": "random"}),
    "saturated": (lambda: Scaled(mlp(6, 3), 1000.0), {"queries": 9}),
    "opposite": (lambda: WrongGradient(mlp(6, 3), "opposite"), {"criterion": "true<0.2"}),
    "bonus": (lambda: Bonus(mlp(6, 3)), {"reject_class": "2"}),
    "company": (lambda: nn.Sequential(Median(mlp(6, 3)), nn.Identity()), {"batch_size": 5}),
    "fragile": (lambda: Fragile(mlp(6, 3)), {"precision": "tf32"}),
}


def findings(name, out):
    """What the manifest and the rows of an audit say, without times."""
    make, settings = CASES[name]
    brinell.audit(make().eval() if isinstance(make(), nn.Module) else make(), (X, Y), out=out,
                  **({"eps": "0.03,0.06,0.12", "attack": CASCADE} | settings))  # fmt: skip
    run = Run.open(out, thresholds=True)
    manifest, records = run.manifest, run.rows
    facts = {
        key: manifest.get(key)
        for key in (
            "checks",
            "probes",
            "repairs",
            "answers",
            "remarks",
            "warnings",
            "failed",
            "skipped",
        )
    }
    rows = {}
    for stage in dict.fromkeys(records.attack.tolist()):
        part = records.attack == stage
        columns = {
            key: getattr(records, key)[part]
            for key in ("forwards", "backwards", "judge_forwards", "outcome", "adv_pred")
        }
        costs = {
            key: int(columns[key].sum()) for key in ("forwards", "backwards", "judge_forwards")
        }
        outcomes = "".join(map(LETTERS.get, columns["outcome"].astype(str)))
        levels = (
            []
            if stage == "clean"
            else np.searchsorted(manifest["eps"], np.ma.filled(records.broken[part], 9)).tolist()
        )
        rows[stage] = costs | {
            "outcomes": outcomes,
            "levels": "".join(map(str, levels)),
            "adv_pred": "".join(map(str, columns["adv_pred"].compressed())),
        }
    return json.loads(json.dumps(facts | {"rows": rows}).replace(str(out), "RUN"))


LETTERS = {
    "broken": "B",
    "survived": "S",
    "misclassified": "m",
    "spared": "-",
    "failed": "!",
    "correct": "c",
    "unmet": "u",
    "met": "M",
}
NUMBER = re.compile(r"(-?\d+\.\d+(?:e-?\d+)?)")


def differences(actual, expected, place=""):
    """Where two findings differ: fractions by more than rounding on another machine, anything else
    at all.
    """
    if isinstance(actual, dict) and isinstance(expected, dict) and actual.keys() == expected.keys():
        return [
            difference
            for key in actual
            for difference in differences(actual[key], expected[key], f"{place}.{key}")
        ]
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        return [
            difference
            for number, pair in enumerate(zip(actual, expected, strict=True))
            for difference in differences(*pair, f"{place}.{number}")
        ]
    if isinstance(actual, float) and isinstance(expected, float):
        return (
            []
            if actual == pytest.approx(expected, rel=0.02, abs=1e-4)
            else [(place, actual, expected)]
        )
    if isinstance(actual, str) and isinstance(expected, str) and NUMBER.search(expected):
        first, second = NUMBER.split(actual), NUMBER.split(expected)
        equality = first[::2] == second[::2] and all(
            float(a) == pytest.approx(float(b), rel=0.05, abs=0.01)
            for a, b in zip(first[1::2], second[1::2], strict=True)
        )
        return [] if equality else [(place, actual, expected)]
    return [] if actual == expected else [(place, actual, expected)]


@pytest.mark.parametrize("name", CASES)
def test_an_audit_finds_what_it_found(name, tmp_path):
    assert not differences(findings(name, tmp_path / "run"), json.loads(FILE.read_text())[name])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.set_num_threads(1)
        known = {name: findings(name, Path(folder) / name.replace(" ", "-")) for name in CASES}
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    sys.stdout.write(f"{FILE} is written\n")
