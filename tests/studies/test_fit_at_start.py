"""Every study that asks models about data begins with the check whether they fit."""

import json

import numpy as np
import pytest

import brinell
from brinell.core.errors import BrinellWarning
from brinell.engine.plan import model_opener
from brinell.engine.sources import open_data
from brinell.studies import register

CALLS = {
    "corrupt": {"kind": ("gaussian-noise",), "severity": (1,)},
    "explain": {"method": ("gradient",)},
    "benchmark": {"levels": "1", "steps": 5, "refine": 0},
    "certify": {"method": ("interval",), "eps": "0.01", "attack": ("fgsm",)},
    "transfer": {"attack": "fgsm", "eps": "0.05"},
}
"""Cheap calls of studies."""


@pytest.fixture(scope="module")
def network():
    return model_opener("digits-cnn", open_data("digits"))()


def test_all_studies_of_models_and_data_take_expect():
    studies = register.studies()
    verbs = {verb for verb, study in studies.items() if "expect" in study.fields()}
    assert verbs >= {*CALLS, "audit", "doctor", "unrestricted"} and "harden" not in verbs


@pytest.mark.parametrize("verb", np.random.default_rng(11).permutation(sorted(CALLS))[:3].tolist())
def test_a_model_that_is_fed_the_wrong_way_is_named(verb, network, tmp_path):
    data = open_data("digits")
    call = getattr(brinell, verb)
    rng = np.random.default_rng(len(verb))
    low, high = rng.uniform(-2, -0.6), rng.uniform(1, 1.5)

    def squeezed(x):
        return network.predict((x - low) / (high - low))

    settings = CALLS[verb] | {"samples": 60, "data": data}
    with pytest.warns(BrinellWarning, match=r"its own x = \(x \+ "):
        call(model=squeezed, out=tmp_path / "wrong", **settings)
    (text,) = json.loads((tmp_path / "wrong" / "manifest.json").read_text())["fit"].values()
    assert (
        "clean inputs" in text and "clean-accuracy" in (tmp_path / "wrong/report.html").read_text()
    )

    call(model=network, out=tmp_path / "right", **settings)
    assert "fit" not in json.loads((tmp_path / "right" / "manifest.json").read_text())
    with pytest.warns(BrinellWarning, match="points more than the 50.0 % stated"):
        call(model=network, out=tmp_path / "expect", expect=0.5, **settings)
    manifests = [
        json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("right", "expect")
    ]
    asked = [sum(cost["forwards"] for cost in one["probes"].values()) for one in manifests]
    assert manifests[1]["expect"] == 0.5 and asked[0] < asked[1]
    for name in ("right", "expect"):
        verified = brinell.verify(tmp_path / name, model=network, data=data)
        assert not verified.problems and not verified.refusal
