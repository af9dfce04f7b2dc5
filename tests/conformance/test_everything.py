"""The shipped checkers over everything that is discovered, with no list of names kept by hand."""

import dataclasses

import pytest

from brinell import plugins
from brinell.core.domain import Domain
from brinell.testing import (
    check_attack,
    check_bound,
    check_dataset,
    check_defence,
    check_detector,
    check_distance,
    check_distortion,
    check_explainer,
    check_model,
)

# Settings that keep a check short where the defaults take many steps. An attack that is not named here is checked as it is.
SHORTER = {
    # Clean-up and slots that take another sample: tests/rlab.
    "rlab": {"steps": 14, "refine": 3, "draws": 3, "slots": 24, "clean_up": False},
    "apgd": {"steps": 12},
    "pgd": {"steps": 8},
    "fab": {"steps": 6, "targets": 1},
    "fmn": {"steps": 10},
    "ddn": {"steps": 60, "init_norm": 0.2},
    "cw": {"steps": 30, "searches": 5, "step_size": 0.003, "init_c": 0.03},
    "ead": {"steps": 80, "searches": 10, "step_size": 0.001, "beta": 0.01},
    "square": {"steps": 80},
    "simba": {"steps": 60},
    "bandits": {"steps": 30},
    "pgd-estimated": {"steps": 12, "pairs": 2},
    "nes": {"steps": 5, "samples": 10},
    "sparse-rs": {"steps": 60},
    "hop-skip-jump": {"steps": 2, "samples": 10, "starts": 10, "gamma": 20.0},
    "ray-s": {"steps": 60},
}
SLOW = {
    *("apgd", "bandits", "cw", "ddn", "ead", "fab", "fmn", "hop-skip-jump", "mi-fgsm", "nes", "pgd", "pgd-estimated", "rlab"),
    *("simba", "sparse-rs", "square"),
}
"""Attacks whose checks take more than two seconds; on images alone, in one distance, most are always made."""
VARIANTS = [
    ("apgd", {"steps": 12, "loss": "dlr"}),
    ("apgd", {"steps": 12, "loss": "margin", "restarts": 2}),
    ("apgd", {"steps": 12, "random_start": False}),
    ("pgd", {"steps": 8, "random_start": False}),
    ("pgd", {"steps": 4, "restarts": 3, "loss": "margin"}),
    ("pgd", {"steps": 5, "step_size": 1.0}),
    ("mi-fgsm", {"steps": 4, "decay": 0.5}),
    ("fgsm", {"loss": "dlr"}),
    ("fab", {"steps": 4, "targets": 0}),
    ("fab", {"steps": 4, "targets": 2, "restarts": 2, "stop_at_eps": True}),
    ("deepfool", {"steps": 5, "candidates": 1}),
    ("simba", {"steps": 40, "basis": "dct", "loss": "ce"}),
    ("sparse-rs", {"steps": 50, "form": "patch", "loss": "ce"}),
]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in plugins.names("attack")]
)
def test_attack(name):
    check_attack(plugins.load("attack", name), **SHORTER.get(name, {}))


@pytest.mark.parametrize("name", sorted(SLOW - {"cw", "ead"}))
def test_attack_on_images_in_one_distance(name):
    plugin = plugins.load("attack", name)
    of_one = {"domains": frozenset({"image"}), "distances": frozenset({sorted(plugin.distances)[-1]}), "__doc__": plugin.__doc__}
    check_attack(type(plugin.__name__, (plugin,), of_one), **SHORTER.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_attack_with_other_settings(name, settings):
    check_attack(plugins.load("attack", name), **settings)


@pytest.mark.parametrize("name", plugins.names("distance"))
def test_distance(name):
    distance = plugins.build("distance", name, {})
    check_distance(distance)
    assert distance.name == name


@pytest.mark.parametrize("name", plugins.names("defence"))
def test_defence(name):
    check_defence(plugins.load("defence", name))


@pytest.mark.parametrize("name", plugins.names("detector"))
def test_detector(name):
    check_detector(plugins.load("detector", name))


@pytest.mark.parametrize("name", plugins.names("explainer"))
def test_explainer(name):
    fewer = {"rise": {"masks": 120}, "kernel-shap": {"subsets": 120, "patches": 27}, "rlab": {"questions": 96}}
    check_explainer(plugins.load("explainer", name), control=name in ("random", "centre"), **fewer.get(name, {}))


def test_explainer_with_other_settings():
    check_explainer(plugins.load("explainer", "rlab"), questions=96, prior="broad")
    check_explainer(plugins.load("explainer", "integrated-gradients"), steps=8, fill="blur")


@pytest.mark.parametrize("name", plugins.names("bound"))
def test_bound(name):
    check_bound(plugins.load("bound", name), **{"beta-crown": {"parts": 40}, "alpha-crown": {"steps": 5}}.get(name, {}))


@pytest.mark.parametrize("name", plugins.names("distortion"))
def test_distortion(name):
    check_distortion(plugins.load("distortion", name))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dead-pixel", {"value": 0.5}),
        ("signed-patch", {"factor": 3.0}),
        ("gradient-sign", {"factor": 0.2}),
        ("mains-hum", {"rate": 360.0, "frequency": 60.0}),
    ],
)
def test_distortion_with_other_settings(name, settings):
    check_distortion(plugins.load("distortion", name), **settings)


def _opens_without_path(kind):
    return [name for name in plugins.names(kind) if name.startswith("digits")]


@pytest.mark.parametrize("name", _opens_without_path("dataset"))
@pytest.mark.parametrize("split", ["test", "train"])
def test_dataset(name, split):
    check_dataset(plugins.build("dataset", name, {"split": split})())


@pytest.mark.parametrize("name", _opens_without_path("model"))
def test_model(name):
    check_model(plugins.build("model", name, {})(Domain(kind="image", shape=(1, 8, 8), levels=17)))


def faults_of_form(plugin):
    """What a plug-in lacks of: frozen, keyword-only, built with no arguments, documented, and repeatable from its settings."""
    instance, fields = plugin(), dataclasses.fields(plugin)
    if instance != plugin(**{field.name: getattr(instance, field.name) for field in fields}):
        yield "not repeatable from its settings"
    if not plugin.__dataclass_params__.frozen:
        yield "not frozen"
    if not all(field.kw_only for field in fields):
        yield "not keyword-only"
    if not plugin.__doc__ or plugin.__doc__.startswith(plugin.__name__ + "("):
        yield "not documented"


@pytest.mark.parametrize("kind", plugins.FOLDERS)
def test_form_of_every_plugin(kind):
    assert not [(name, fault) for name in plugins.names(kind) for fault in faults_of_form(plugins.load(kind, name))]


def test_the_discovered_are_the_shipped():
    # A folder that is no longer found would empty the tests above without failing any.
    assert {"apgd", "fgsm", "pgd"} <= set(plugins.names("attack"))
    assert {"linf", "l2", "l1", "l0"} <= set(plugins.names("distance"))
    assert {"gaussian-noise", "signed-patch"} <= set(plugins.names("distortion"))
    assert {"pgd", "trades", "awp"} <= set(plugins.names("defence"))
    assert {"background", "mahalanobis"} <= set(plugins.names("detector"))
    assert {"rlab", "grad-cam", "random"} <= set(plugins.names("explainer"))
    assert {"digits", "npz"} <= set(plugins.names("dataset"))
    assert {"digits-cnn", "torch"} <= set(plugins.names("model"))
