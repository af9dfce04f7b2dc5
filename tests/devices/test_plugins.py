"""Every plug-in that computes runs on a second device, mixes no devices, and leaves the rows that
it leaves on the processor."""

import pytest

import brinell
from _second_device import NAME, second_device
from _study_examples import EXAMPLES, SMALL, Needs
from brinell import calls, plugins
from brinell.engine.progress import SilentProgress
from brinell.studies import register
from brinell.testing.studies import rows_match, rows_of

pytestmark = pytest.mark.slow
DIGITS = {"model": SMALL, "data": "digits"}
SHORT = {"apgd-map", "sea", "rlab"}
"""Attacks on maps, and one that the verbs cover."""


def rows_on(device, verb, settings, folder):
    with second_device():
        calls.call_of(register.load(verb))(
            **settings, device=device, out=folder, progress=SilentProgress()
        )
    return rows_of(folder)


def check(verb, settings, folder):
    rows = [rows_on(device, verb, settings, folder / device) for device in ("cpu", NAME)]
    assert rows_match(*rows)


def attacks(norm, part):
    names = [
        name
        for name in plugins.names("attack")
        if norm in plugins.load("attack", name).distances and name not in SHORT
    ]
    return [
        f"{name}?steps=3" if "steps" in plugins.describe("attack", name)[1] else name
        for name in names
    ][part::2]


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_attacks(norm, part, tmp_path):
    eps = {"linf": "0.2", "l2": "1", "l1": "4"}[norm]
    check(
        "audit",
        DIGITS
        | {"samples": 5, "eps": eps, "norm": norm, "attack": attacks(norm, part), "queries": 60},
        tmp_path,
    )


def test_distortions(tmp_path):
    kinds = [
        name
        for name in plugins.names("distortion")
        if "image" in plugins.load("distortion", name).domains
    ]
    check("corrupt", DIGITS | {"samples": 4, "kind": kinds, "severity": [2]}, tmp_path)


def test_explainers(tmp_path):
    check(
        "explain",
        DIGITS | {"samples": 2, "method": list(plugins.names("explainer")), "steps": 2},
        tmp_path,
    )


def test_detectors(tmp_path):
    settings = {"detector_data": "digits?split=train", "detector": list(plugins.names("detector"))}
    rows = []
    for device in ("cpu", NAME):
        folder = tmp_path / device
        with second_device() as reads:
            brinell.audit(
                SMALL,
                "digits",
                samples=4,
                eps="0.3",
                attack="fgsm",
                device=device,
                out=folder,
                **settings,
            )
        assert bool(reads) == (device == NAME)
        rows.append(rows_of(folder / "detectors"))
    assert rows_match(*rows)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [name for name in plugins.names("defence") if name != "benchmark-set"]
)
def test_defences(name, tmp_path):
    recipe = f"{name}+trades" if name == "awp" else name
    check("harden", EXAMPLES["harden"] | Needs(tmp_path)("harden") | {"recipe": recipe}, tmp_path)
