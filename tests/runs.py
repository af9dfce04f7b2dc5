"""Finished runs, one a kind and session, as fixtures that give the path of a folder.

The folders are shared by all tests and workers, and read-only: whoever edits takes
`copy_run(audit_run, tmp_path)`. A test that edits in place fails the session.

Most are of `patterns`, whose margins are known: 24 pictures of four classes, and a linear model
that is wrong about two of them. `ROBUST` says how many it is right about, and at which budgets it
is robust for how many.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

import brinell
from _pictures import write_pictures
from _reviews import make_review
from _spots import VANISHING, Spots, entries, spots

EPS = "2/255,6/255"
ATTACKS = ["fgsm", "pgd?steps=3"]
CLASSES = ("first", "second", "third", "fourth")
ROBUST = {"patterns": (22, 18, 10), "lead": (24, 16, 8)}
"""By model the numbers of samples of 24 that are right, and robust at each budget."""
PATTERNS = """import torch
from torch import nn


def patterns(lead="0"):
    network = nn.Linear(64, 4)
    with torch.no_grad():
        network.weight.copy_(torch.eye(4).repeat_interleave(16, 1) * 25.5 / 16)
        network.bias.copy_(torch.tensor([float(lead) / 10, 0.0, 0.0, 0.0]))
    return nn.Sequential(nn.Flatten(), network)
"""
"""Logits that are the mean of two rows each, in tens of 255 levels; class 0 is ahead by `lead`
levels."""


def gaps(n: int = 24) -> np.ndarray:
    """(n,): levels by which the rows of a sample's class are brighter than the next ones; the Linf
    margin is half of it.
    """
    return 2 * (np.arange(n) % 12) - 1


def make_patterns(n: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 1, 8, 8) bytes and (n,) labels: two rows are bright by `gaps`, the next two less, the
    others dark.
    """
    y, order = np.arange(n) % 4, np.random.default_rng(seed)
    means = np.full((n, 4), 70)
    means[np.arange(n), y] = 100 + gaps(n)
    means[np.arange(n), (y + 1) % 4] = 100
    texture = order.permuted(np.tile(np.arange(-15, 16, 2) * 3, (n, 4, 1)), axis=2)
    texture[..., :4] += order.integers(
        0, 2, (n, 4, 4)
    )  # gaps that differ by less than half a level
    return (means[:, :, None] + texture).reshape(n, 1, 8, 8).astype(np.uint8), y


def copy_run(path: Path, folder: Path) -> Path:
    """A copy of a finished run that may be edited, in a folder of the test."""
    return Path(shutil.copytree(path, folder / path.name))


def digest_of(folder: Path) -> str:
    """A digest of all files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"
    ):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


class Runs:
    """The finished folders of a session, made by whichever worker asks first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._used = folder, set[str]()

    def make(self, kind: str, maker: Callable[[Path], Any]) -> Path:
        """The folder of a kind, made by `maker` once."""
        path, note = self.folder / kind / "run", self.folder / f"{kind}.digest"
        with FileLock(self.folder / f"{kind}.lock"):
            if not note.exists():
                shutil.rmtree(path.parent, ignore_errors=True)
                path.parent.mkdir()
                maker(path)
                note.write_text(digest_of(path))
        self._used.add(kind)
        return path

    def check(self) -> None:
        """Fail if somebody changed a folder."""
        changed = [
            kind
            for kind in self._used
            if digest_of(self.folder / kind / "run") != (self.folder / f"{kind}.digest").read_text()
        ]
        assert not changed, (
            f"a test edits a shared run ({', '.join(changed)}): take runs.copy_run(path, tmp_path)"
        )


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory, _environment: Path) -> Iterator[Runs]:
    """Where finished runs lie, one place for all workers."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
    folder.mkdir(exist_ok=True)
    runs = Runs(folder)
    yield runs
    runs.check()


def write_patterns(folder: Path) -> None:
    """Write test.npz, train.npz and model.py."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in (("test", 24), ("train", 96)):
        x, y = make_patterns(n, seed=n)
        np.savez(folder / f"{name}.npz", x=x, y=y, classes=np.array(CLASSES))
    (folder / "model.py").write_text(PATTERNS)


class Specs:
    """Specs of `patterns` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.train = f"npz:{folder / 'test.npz'}", f"npz:{folder / 'train.npz'}"
        self.model = f"torch:{folder / 'model.py'}:patterns"
        self.models = [f"{self.model}?name=patterns", f"{self.model}?args=lead=2&name=lead"]


@pytest.fixture(scope="session")
def patterns(finished_runs: Runs) -> Specs:
    """Data and models of `patterns` in files, as specs."""
    return Specs(finished_runs.make("patterns", write_patterns))


@pytest.fixture(scope="session")
def audit_run(finished_runs: Runs, patterns: Specs) -> Path:
    """An audit of a model by two attacks at two budgets."""
    settings = {"eps": EPS, "attack": ATTACKS}
    return finished_runs.make(
        "audit", lambda out: brinell.audit(patterns.model, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def models_run(finished_runs: Runs, patterns: Specs) -> Path:
    """An audit of two models."""
    settings = {"eps": EPS, "attack": ATTACKS}
    return finished_runs.make(
        "models", lambda out: brinell.audit(patterns.models, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def epsilon_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Budgets of all conditions in two norms, with training samples."""
    settings = {"pairs": 20, "norm": ["linf", "l2"], "train": patterns.train, "allow": 0.1}
    return finished_runs.make(
        "epsilon", lambda out: brinell.epsilon(patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def transfer_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Examples of two models on each other."""
    settings = {"eps": "6/255"}
    return finished_runs.make(
        "transfer",
        lambda out: brinell.transfer(
            model=patterns.models, data=patterns.data, out=out, **settings
        ),
    )


@pytest.fixture(scope="session")
def compare_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Two models by class, and their agreement with each other."""
    settings = {"eps": EPS, "attack": ["fgsm"]}
    return finished_runs.make(
        "compare",
        lambda out: brinell.compare(patterns.models, data=patterns.data, out=out, **settings),
    )


@pytest.fixture(scope="session")
def explain_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Two explanations of twelve samples."""
    settings = {"samples": 12, "method": ["gradient", "occlusion"], "steps": 4}
    return finished_runs.make(
        "explain", lambda out: brinell.explain(patterns.model, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def harden_run(finished_runs: Runs, patterns: Specs) -> Path:
    """A model trained for an epoch, and both audited."""
    settings = {"train": patterns.train, "epochs": 1, "eps": "2/255", "attack": ["fgsm"]}
    return finished_runs.make(
        "harden", lambda out: brinell.harden(patterns.model, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def certify_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Proofs of a linear model, which are exact."""
    settings = {"eps": EPS, "method": ["crown"], "attack": ["fgsm"]}
    return finished_runs.make(
        "certify", lambda out: brinell.certify(patterns.model, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def corrupt_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Two models under two distortions at two severities."""
    settings = {"kind": ["gaussian-noise", "contrast"], "severity": [1, 3]}
    return finished_runs.make(
        "corrupt", lambda out: brinell.corrupt(patterns.models, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def smooth_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Votes under noise."""
    settings = {"method": "smoothing?draws=100&first=20"}
    return finished_runs.make(
        "smooth", lambda out: brinell.certify(patterns.model, patterns.data, out=out, **settings)
    )


@pytest.fixture(scope="session")
def benchmark_run(finished_runs: Runs, patterns: Specs) -> Path:
    """A benchmark set at two severities."""
    settings = {"steps": 20, "refine": 5, "levels": "1,2"}
    return finished_runs.make(
        "benchmark",
        lambda out: brinell.benchmark(patterns.model, patterns.data, out=out, **settings),
    )


@pytest.fixture(scope="session")
def masks_run(finished_runs: Runs) -> Path:
    """An audit of a segmentation of pictures, right about every pixel."""

    def make(out: Path) -> None:
        data, model = write_pictures(out.parent / "pictures", n=24, side=8)
        brinell.audit(model, data, eps="0.05,0.2", attack=["sea?steps=3", "pgd?steps=3"], out=out)

    return finished_runs.make("masks", make)


@pytest.fixture(scope="session")
def boxes_run(finished_runs: Runs) -> Path:
    """An audit of a detector whose objects vanish between the two budgets."""

    def make(out: Path) -> None:
        pictures = [[(n % 4, n % 3), ((n + 2) % 4, (n + 1) % 3)][: n % 3] for n in range(24)]
        x, objects = spots(*pictures)
        data = brinell.data(x, boxes=entries(objects), classes=["red", "green", "blue"])
        eps = [0.98 * VANISHING, 1.02 * VANISHING]
        brinell.audit(Spots(), data, eps=eps, attack=["pgd?steps=1", "pgd?steps=4"], out=out)

    return finished_runs.make("boxes", make)


@pytest.fixture(scope="session")
def review_run(finished_runs: Runs, patterns: Specs) -> Path:
    """A review that one person has finished: differences above 2/255 are seen."""

    def make(out: Path) -> None:
        make_review(out, lambda eps: eps > 2.5 / 255, data=patterns.data, trials=8, eps=EPS)

    return finished_runs.make("review", make)


@pytest.fixture(scope="session")
def unrestricted_run(finished_runs: Runs, patterns: Specs) -> Path:
    """Generated inputs that two models get wrong."""

    def make(out: Path) -> None:
        file = out.parent / "generator.safetensors"
        brinell.train_generator(patterns.train, out=file, steps=30)
        brinell.unrestricted(
            model=patterns.models, data=patterns.data, generator=file, per_class=1, steps=5, out=out
        )

    return finished_runs.make("unrestricted", make)


@pytest.fixture(scope="session")
def claim_run(finished_runs: Runs, audit_run: Path) -> Path:
    """A claim of the audit at its larger budget."""
    return finished_runs.make("claim", lambda out: brinell.claim(audit_run, eps="6/255", out=out))


@pytest.fixture(scope="session")
def board_run(finished_runs: Runs, audit_run: Path, models_run: Path, certify_run: Path) -> Path:
    """A site of two audits and proofs."""
    folders = [audit_run, models_run, certify_run]
    return finished_runs.make("board", lambda out: brinell.board(folders, level="rows", out=out))
