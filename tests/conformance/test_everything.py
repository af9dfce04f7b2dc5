"""The shipped checkers over everything that is discovered, with no list of names kept by hand."""

import dataclasses

import pytest
import torch._dynamo  # noqa: F401 - Adam imports it at its first use, and whichever test is first would pay for it

from brinell import plugins
from brinell.core.domain import Domain
from brinell.testing import (
    bounds,
    check_bound,
    check_dataset,
    check_defence,
    check_detector,
    check_distance,
    check_explainer,
    check_model,
)


def test_distances():
    for name in plugins.names("distance"):
        distance = plugins.build("distance", name, {})
        check_distance(distance)
        assert distance.name == name


def test_defences():
    for name in plugins.names("defence"):
        check_defence(
            plugins.load("defence", name), **{"rlab": {"steps": 4, "draws": 2}}.get(name, {})
        )


def test_detectors():
    for name in plugins.names("detector"):
        check_detector(plugins.load("detector", name))


@pytest.mark.parametrize("name", plugins.names("explainer"))
def test_explainer(name):
    fewer = {
        "rise": {"masks": 120},
        "kernel-shap": {"subsets": 120, "patches": 27},
        "rlab": {"questions": 96},
        "rlab-mask": {"steps": 20},
    }
    # Noise fools no model of this problem, so the attack has no mask there; tests/shown has one.
    without_finding = ("random", "centre", "rlab-mask")
    check_explainer(
        plugins.load("explainer", name), control=name in without_finding, **fewer.get(name, {})
    )


def test_explainer_with_other_settings():
    check_explainer(plugins.load("explainer", "rlab"), questions=96, prior="broad")
    check_explainer(plugins.load("explainer", "integrated-gradients"), steps=8, fill="blur")


@pytest.fixture(scope="module")
def layered_problems():
    """Networks and what descent finds in them, which all checks of bounds in a process share."""
    return [bounds._layered_problem(number) for number in range(bounds.LAYERED)]


@pytest.mark.usefixtures("layered_problems")
@pytest.mark.parametrize("name", sorted(set(plugins.names("bound")) - {"beta-crown"}))
def test_bound(name):
    check_bound(plugins.load("bound", name), **{"alpha-crown": {"steps": 5}}.get(name, {}))


@pytest.mark.usefixtures("layered_problems")
def test_bound_of_parts_on_two_networks(monkeypatch):
    monkeypatch.setattr(bounds, "LINES", 5)
    monkeypatch.setattr(bounds, "LAYERED", 2)
    check_bound(plugins.load("bound", "beta-crown"), parts=3, steps=1)


@pytest.mark.slow
def test_bound_of_parts():
    check_bound(plugins.load("bound", "beta-crown"), parts=40)


def _opens_without_path(kind):
    return [name for name in plugins.names(kind) if name.startswith("digits")]


def test_datasets():
    for name in _opens_without_path("dataset"):
        for split in ("test", "train"):
            check_dataset(plugins.build("dataset", name, {"split": split})())


def test_models():
    for name in _opens_without_path("model"):
        check_model(
            plugins.build("model", name, {})(Domain(kind="image", shape=(1, 8, 8), levels=17))
        )


def faults_of_form(plugin):
    """What a plug-in lacks of: frozen, keyword-only, built with no arguments, documented, and
    repeatable from its settings.
    """
    instance, fields = plugin(), dataclasses.fields(plugin)
    if instance != plugin(**{field.name: getattr(instance, field.name) for field in fields}):
        yield "not repeatable from its settings"
    if not plugin.__dataclass_params__.frozen:
        yield "not frozen"
    if not all(field.kw_only for field in fields):
        yield "not keyword-only"
    if not plugin.__doc__ or plugin.__doc__.startswith(plugin.__name__ + "("):
        yield "not documented"


def test_form_of_every_plugin():
    names = [(kind, name) for kind in plugins.FOLDERS for name in plugins.names(kind)]
    assert not [
        (kind, name, fault)
        for kind, name in names
        for fault in faults_of_form(plugins.load(kind, name))
    ]


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
