"""The shipped checker over every attack that is discovered, with no list of names kept by hand."""

import pytest

from brinell import plugins
from brinell.testing import check_attack

# Settings that keep a check short where the defaults take many steps. An attack that is not named
# here is checked as it is.
SHORTER = {
    # Clean-up and slots that take another sample: tests/rlab.
    "rlab": {"steps": 14, "refine": 3, "draws": 3, "slots": 24, "clean_up": False},
    "apgd": {"steps": 12},
    "boundary-walk": {"steps": 2, "restarts": 2},
    "apgd-map": {"steps": 20},
    "pgd": {"steps": 8},
    "fab": {"steps": 6, "targets": 1},
    "fmn": {"steps": 10},
    "ddn": {"steps": 60, "init_norm": 0.2},
    "sigma-zero": {"steps": 60},
    "sparse-pgd": {"steps": 60},
    "square": {"steps": 40},
    "simba": {"steps": 40},
    "patch-apgd": {"candidates": 8, "places": 2, "steps": 6},
    "pgd-estimated": {"steps": 12, "pairs": 2},
    "sparse-rs": {"steps": 40},
    "cgba": {"steps": 2, "samples": 10, "starts": 10},
    "hop-skip-jump": {"steps": 2, "samples": 10, "starts": 10, "gamma": 20.0},
    "ray-s": {"steps": 40},
}
SLOW = {
    *(
        "cgba",
        "ddn",
        "hop-skip-jump",
        "pgd-estimated",
        "ray-s",
        "rlab",
        "simba",
        "sparse-rs",
        "square",
    ),
}
"""Attacks whose whole checks take more than half a second; on images alone, in one distance,
they are always made."""
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
    # The projected gradient of sparse-pgd is weak by itself: it moves only the values of its mask.
    ("simba", {"steps": 40, "basis": "dct", "loss": "ce"}),
    ("sparse-rs", {"steps": 50, "loss": "ce"}),
]


@pytest.mark.parametrize("name", sorted(set(plugins.names("attack")) - SLOW))
def test_attack(name):
    check_attack(plugins.load("attack", name), **SHORTER.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SLOW))
@pytest.mark.nightly
def test_attack_that_takes_long(name):
    check_attack(plugins.load("attack", name), **SHORTER[name])


@pytest.mark.parametrize("name", sorted(SLOW))
def test_attack_on_images_in_one_distance(name):
    plugin = plugins.load("attack", name)
    of_one = {
        "domains": frozenset({"image"}),
        "distances": frozenset({sorted(plugin.distances)[-1]}),
        "__doc__": plugin.__doc__,
    }
    check_attack(type(plugin.__name__, (plugin,), of_one), **SHORTER[name])


@pytest.mark.slow
def test_attacks_with_other_settings():
    for name, settings in VARIANTS:
        check_attack(plugins.load("attack", name), **settings)
