"""A new plug-in of each kind is one file: dropped into its folder, it is listed, built, checked and
used, and nothing is edited.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import brinell

FILES = {
    "attacks/straight_up.py": '''
"""One step along the sign of the gradient."""

from dataclasses import dataclass

from brinell.core.domain import KINDS
from brinell.core.losses import margin
from brinell.core.model import Access


@dataclass(frozen=True, kw_only=True)
class StraightUp:
    """One step of the whole budget."""

    access = Access.GRADIENTS
    distances = frozenset({"linf"})
    domains = frozenset(KINDS)
    family = "budgeted"
    targeted = False

    def cost(self, classes):
        """A gradient, and a look at where it leads."""
        return 2, 1

    def __call__(self, oracle, batch, threat, rng):
        """Step once."""
        grad = oracle.gradient(batch.ids, batch.x, margin).grad
        active = oracle.active(batch.ids)
        batch, threat, grad = batch.select(active), threat.select(active), grad[active]
        if len(batch):
            step = threat.distance.ascent(grad) * threat.eps[:, None].reshape(-1, *[1] * (grad.ndim - 1))
            oracle.scores(batch.ids, threat.project(batch.x + step, batch.x))
''',
    "distortions/mirror.py": '''
"""Values are mirrored at the middle of their range."""

from dataclasses import dataclass

from brinell.core.domain import KINDS
from brinell.core.model import Access


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A share of the negative is mixed in."""

    access = Access.LABELS
    domains = frozenset(KINDS)

    def draws(self, shape):
        """One version: nothing is random."""
        return 1

    def __call__(self, x, severity, rng, draw):
        """(n, *shape) in [0, 1]."""
        share = 0.1 * severity.reshape(-1, *[1] * (x.ndim - 1))
        return x + share * (1 - 2 * x)
''',
    "detectors/class_means.py": '''
"""Distance to the nearest class mean."""

from dataclasses import dataclass

import torch

from brinell.core.domain import KINDS
from brinell.core.model import Access


@dataclass(frozen=True, kw_only=True)
class ClassMeans:
    """Squared distance to the nearest mean of the clean inputs of a class."""

    access = Access.LABELS
    domains = frozenset(KINDS)

    def fit(self, x, labels, model):
        """Keep the means."""
        means = torch.stack([x[labels == label].mean(0) for label in labels.unique()])
        return lambda x: (x[:, None] - means).square().flatten(2).sum(2).amin(1)
''',
    "datasets/stripes.py": '''
"""Noisy stripes, upright or level."""

from dataclasses import dataclass

import numpy as np
import torch

from brinell.core.contracts import DataInfo
from brinell.core.domain import Domain
from brinell.core.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Stripes:
    """Grey pictures of stripes."""

    seed: int = 0
    """Other seeds, other noise."""

    def __call__(self):
        """All of them, made anew."""
        return Pictures(self.seed)


class Pictures:
    """Forty pictures in memory."""

    name, classes, info = "stripes", ("upright", "level"), DataInfo()
    domain = Domain(kind="image", shape=(1, 6, 6))

    def __init__(self, seed):
        self.seed = seed
        noise = Streams.of(seed, torch.arange(40)).uniform(1, 6, 6)
        stripes = (torch.arange(6) % 2).float().expand(6, 6)
        upright = (torch.arange(40) % 2 == 0).reshape(-1, 1, 1, 1)
        self.x = 0.3 * noise + 0.4 * torch.where(upright, stripes, stripes.T)

    def __len__(self):
        return 40

    def labels(self):
        """(40,) int64."""
        return np.arange(40, dtype=np.int64) % 2

    def load(self, indices):
        """(len(indices), 1, 6, 6) float32."""
        return self.x[list(indices)].clone()

    def digest(self):
        """Of all that it is made from."""
        return f"stripes of seed {self.seed}"
''',
    "models/stripe_filter.py": '''
"""The mean difference of neighbouring columns against that of neighbouring rows."""

from dataclasses import dataclass

import torch

from brinell.core.model import Access, ModelInfo


@dataclass(frozen=True, kw_only=True)
class StripeFilter:
    """A filter for each class."""

    def __call__(self, domain):
        """The filters over pictures of this size."""
        return Filters(domain)


class Filters:
    """Two logits by two filters."""

    name, classes, access, info = "stripe-filter", 2, Access.GRADIENTS, ModelInfo(class_names=("upright", "level"))

    def __init__(self, domain):
        self.domain = domain
        signs = (torch.arange(domain.shape[-1]) % 2 * 2.0 - 1).expand(*domain.shape[-2:])
        self.weight = torch.stack([signs, signs.T])[:, None]

    def predict(self, x):
        """(n, 1, h, w) to (n, 2) logits."""
        return (x[:, None] * self.weight).flatten(2).sum(2)

    def digest(self):
        """The filters are a rule."""
        return "stripe filter, version 1"
''',
}
NAMES = {
    Path(file).parent.name.removesuffix("s"): Path(file).stem.replace("_", "-") for file in FILES
}

PROGRAM = """
import contextlib, io, json

from brinell import plugins
from brinell.cli import run
from brinell.testing import check_attack, check_dataset, check_detector, check_distortion, check_model


def told(words):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(words.split()) == 0, words
    return json.loads(out.getvalue())


listed = told("plugins --json")

check_distortion(plugins.load("distortion", "mirror"))
check_detector(plugins.load("detector", "class-means"))
data = plugins.build("dataset", "stripes", {"seed": "3"})()
check_dataset(data)
check_model(plugins.build("model", "stripe-filter", {})(data.domain))
check_attack(plugins.load("attack", "straight-up"))

audit = "audit --data stripes --model stripe-filter --attack straight-up --attack rlab?distortions=mirror&steps=2"
detect = " --detector class-means --detector-data stripes?seed=1"
print(json.dumps([listed, told(audit + " --eps 0.1,0.5 --samples 20 --out run --json" + detect)]))
"""


@pytest.mark.slow
def test_they_are_listed_checked_and_used(tmp_path):
    """In a copy of the package into which the files have been dropped: one process lists, checks
    and audits.
    """
    shutil.copytree(
        Path(brinell.__file__).parent,
        tmp_path / "brinell",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name, text in FILES.items():
        (tmp_path / "brinell" / name).write_text(text.lstrip())
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    listing, answer = json.loads(process.stdout)
    (audited,) = answer["models"]
    assert set(NAMES.items()) <= {(plugin["kind"], plugin["name"]) for plugin in listing["plugins"]}
    assert audited["clean_accuracy"]["value"] == 1
    assert [stage["attack"] for stage in audited["stages"]][:1] == ["straight-up"]
    assert audited["robust_accuracy"][-1]["value"] < 1
    assert audited["detectors"][0]["detector"] == "class-means"
