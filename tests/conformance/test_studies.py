"""Every registered study keeps its record: on paper all of them, and in small runs those that leave a folder."""

import numpy as np
import pytest

import brinell
from _hardening import MODEL, samples
from brinell.studies import register
from brinell.testing import check_study
from brinell.testing.studies import check_record, check_settings

SMALL = "digits-cnn?width=4"
EXAMPLES = {
    "audit": {"model": SMALL, "data": "digits", "samples": 20, "eps": "0.1,0.3", "attack": ["fgsm", "pgd?steps=3"]},
    "benchmark": {"model": SMALL, "data": "digits", "samples": 6, "steps": 20, "refine": 5, "levels": "1,2"},
    "corrupt": {"model": SMALL, "samples": 10, "kind": ["published-fog", "gaussian-noise"], "severity": [2], "draws": 100},
    "detect": {"train": "digits?split=train", "detector": ["background"], "fit": 40, "samples": 10, "steps": 5},
    "epsilon": {"data": "digits", "samples": 20, "pairs": 0, "norm": ["linf"], "conditions": ["label"]},
    "explain": {"model": SMALL, "samples": 4, "method": ["gradient", "occlusion"], "steps": 4},
    "harden": {"samples": 10, "epochs": 1, "eps": "0.1", "validation": 20, "attack": ["fgsm"]},
    "study": {"model": [SMALL, f"{SMALL}&seed=1"], "samples": 20, "eps": "0.1,0.3", "attack": ["fgsm"], "draws": 100},
    "transfer": {"model": [SMALL, f"{SMALL}&seed=1"], "samples": 10, "eps": "0.1", "draws": 100},
    "unrestricted": {"model": [SMALL], "per_class": 1, "steps": 5},
}
OF_PEOPLE = {"review"}
"""Studies whose rows are answers of people: their own tests play these."""


def test_every_study_with_rows_has_an_example():
    studies = {verb for verb, study in register.studies().items() if study.layout is not None}
    assert set(EXAMPLES) | OF_PEOPLE == studies


def test_every_record():
    for study in register.studies().values():
        check_record(study)
        check_settings(study)


@pytest.fixture(scope="module")
def needed(tmp_path_factory):
    """What the example of a study needs besides its settings, made on demand."""
    folder = tmp_path_factory.mktemp("needed")

    def audit():
        return str(brinell.audit(SMALL, "digits", samples=20, eps="0.1,0.3", attack="fgsm", out=folder / "run").folder)

    def training():
        (folder / "model.py").write_text(MODEL)
        for name, n in (("train", 256), ("test", 60)):
            x, y = samples(n, n)
            np.savez(folder / f"{name}.npz", x=x, y=y)
        parts = {"data": f"npz:{folder}/test.npz", "train": f"npz:{folder}/train.npz"}
        return parts | {"model": f"torch:{folder}/model.py:network"}

    def generator():
        file = folder / "generator.safetensors"
        brinell.train_generator(out=file, width=8, steps=50, rate=0.004)
        return str(file)

    made = {
        "detect": lambda: {"run": audit()},
        "harden": training,
        "unrestricted": lambda: {"generator": generator()},
    }
    return lambda verb: made.get(verb, dict)()


@pytest.mark.parametrize("verb", EXAMPLES)
def test_small_runs(verb, needed):
    check_study(register.load(verb), EXAMPLES[verb] | needed(verb))
