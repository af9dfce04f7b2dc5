"""Small runs of every study that leaves a folder, for tests that loop over the register, finished
once."""

from importlib import import_module
from pkgutil import walk_packages

import numpy as np
import pytest

import brinell
import brinell.studies
from _hardening import MODEL, samples
from _pictures import write_pictures
from brinell.rlab.train import TrainConfig
from brinell.studies import register
from brinell.studies.agent import run as agent_run
from brinell.testing import studies as rules

for module in walk_packages(brinell.studies.__path__, "brinell.studies."):
    import_module(module.name)  # here, so that no test pays for it
SMALL = "digits-cnn?width=4"
EXAMPLES = {
    "audit": {
        "model": SMALL,
        "data": "digits",
        "samples": 20,
        "eps": "0.1,0.3",
        "attack": ["fgsm", "pgd?steps=3"],
    },
    "audit detectors": {
        "model": SMALL,
        "data": "digits",
        "samples": 20,
        "train": "digits?split=train",
        "detector": ["background"],
    },
    "benchmark": {
        "model": SMALL,
        "data": "digits",
        "samples": 6,
        "steps": 20,
        "refine": 5,
        "levels": "1,2",
    },
    "certify": {
        "model": SMALL,
        "samples": 12,
        "eps": "0.01,0.03",
        "method": ["crown"],
        "attack": ["fgsm"],
    },
    "claim": {"eps": "0.1"},
    "compare": {
        "run": [SMALL, f"{SMALL}&seed=1"],
        "samples": 20,
        "eps": "0.1,0.3",
        "attack": ["fgsm"],
    },
    "corrupt": {
        "model": SMALL,
        "samples": 10,
        "kind": ["published-fog", "gaussian-noise"],
        "severity": [5],
    },
    "audit pictures": {"eps": "0.05,0.2", "attack": ["sea?steps=3"]},
    "transfer pictures": {"eps": "0.05", "attack": "sea?steps=3"},
    "epsilon": {"data": "digits", "samples": 20, "pairs": 0, "norm": ["linf"]},
    "explain": {"model": SMALL, "samples": 9, "method": ["gradient", "occlusion"], "steps": 4},
    "harden": {"samples": 10, "epochs": 1, "eps": "0.1", "attack": ["fgsm"]},
    "transfer": {
        "model": [SMALL, f"{SMALL}&seed=1", f"{SMALL}&seed=2"],
        "samples": 10,
        "eps": "0.1",
    },
    "unrestricted": {"model": [SMALL], "per_class": 1, "steps": 5},
}
OF_CLASSES = ["audit", "certify", "corrupt", "epsilon", "explain", "transfer"]
"""Studies of classifiers that need nothing but a model and data."""
REVIEW = {"data": "digits", "trials": 8, "eps": "0.1,0.3"}
AGENT = {"surrogates": 1, "samples": 60, "attack": "rlab?steps=20", "steps": 40, "eps": "2"}
agent_run.CONFIG, agent_run.SURROGATE_STEPS = (
    TrainConfig(probes=2, fits=10, slots=8),
    20,
)  # for tests, a short training


class Needs:
    """Makes what the example of a study needs besides its settings, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.makers = {
            "claim": self.audit,
            "audit pictures": self.pictures,
            "transfer pictures": self.two_networks,
            "audit detectors": self.audit,
            "harden": self.training,
            "unrestricted": self.generator,
        }

    def __call__(self, verb):
        """The settings that an example lacks."""
        return self.makers.get(verb, dict)()

    def audit(self):
        run = self.folder / "run"
        if not run.exists():
            brinell.audit(SMALL, "digits", samples=20, eps="0.1,0.3", attack="fgsm", out=run)
        return {"run": str(run)}

    def pictures(self):
        data, model = write_pictures(self.folder / "pictures")
        return {"data": data, "model": model}

    def two_networks(self):
        data, model = write_pictures(self.folder / "pictures")
        return {"data": data, "model": [f"{model}?name=first", f"{model}?name=second"]}

    def training(self):
        (self.folder / "model.py").write_text(MODEL)
        for name, n in (("train", 256), ("test", 60)):
            x, y = samples(n, n)
            np.savez(self.folder / f"{name}.npz", x=x, y=y)
        parts = {"data": f"npz:{self.folder}/test.npz", "train": f"npz:{self.folder}/train.npz"}
        return parts | {"model": f"torch:{self.folder}/model.py:network"}

    def generator(self):
        file = self.folder / "generator.safetensors"
        if not file.exists():
            brinell.train_generator(out=file, steps=50)
        return {"generator": str(file)}


@pytest.fixture(scope="session")
def finished(request, tmp_path_factory):
    """The finished example of the study that a test names; what it needs is made before."""
    verb, folder = request.param, tmp_path_factory.mktemp("study")
    return rules.finish(register.load(verb), EXAMPLES[verb] | Needs(folder)(verb), folder)
