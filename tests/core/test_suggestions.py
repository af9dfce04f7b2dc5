"""A name misspelled at random suggests the name that was meant, and nonsense suggests nothing."""

import dataclasses
import random
import string

import pytest

import brinell
from brinell import plugins
from brinell.calls import parameters_of
from brinell.core.errors import RequestError
from brinell.core.suggestions import nearest_name, suggestion
from brinell.engine.attack_names import ALIASES, CASCADES, PRESETS
from brinell.studies import register

VOCABULARIES = {
    "attacks and cascades": [*plugins.names("attack"), *PRESETS, *CASCADES, *ALIASES],
    "settings of audit": list(parameters_of(register.load("audit"))),
    "settings of PGD": [field.name for field in dataclasses.fields(plugins.load("attack", "pgd"))],
    "verbs": list(register.commands()),
}


def misspell(name: str, rng: random.Random) -> str:
    """The name with one slip: letters swapped, dropped, added or replaced, another case, or other
    marks between the words.
    """
    index = rng.randrange(len(name))
    letter = rng.choice(string.ascii_lowercase)
    return rng.choice(
        [
            name[:index]
            + name[index + 1 : index + 2]
            + name[index : index + 1]
            + name[index + 2 :],
            name[:index] + name[index + 1 :],
            name[:index] + letter + name[index:],
            name[:index] + letter + name[index + 1 :],
            name.upper(),
            name.translate(str.maketrans({"-": "_", "_": "-"})),
            "--" + name,
        ]
    )


def test_a_misspelled_name_suggests_the_original():
    for vocabulary, names in VOCABULARIES.items():
        rng = random.Random(vocabulary)
        for name in (name for name in names if len(name) > 5):
            typed = misspell(name, rng)
            assert (
                typed in names
                or name == nearest_name(typed, names)
                or nearest_name(typed, names) in typed
            ), (typed, name)


def test_a_longer_or_shorter_word_suggests_the_one_that_begins_like_it():
    for vocabulary, names in VOCABULARIES.items():
        rng = random.Random(vocabulary)
        for name in (name for name in names if len(name) > 3):
            longer = name + "".join(rng.choices("jkqvwxz", k=9))
            assert nearest_name(longer, names), longer  # this name, or one that is nearer still
    assert nearest_name("epsilon", ["norm", "eps"]) == "eps"


def test_nothing_near_suggests_nothing():
    rng = random.Random(0)
    for names in VOCABULARIES.values():
        for _ in range(6):
            nonsense = "".join(rng.choices("jkqvwxz", k=rng.randint(6, 12)))
            assert suggestion(nonsense, names) == "", nonsense
    assert (
        suggestion("", ["eps"])
        == suggestion("-", ["eps"])
        == suggestion("q", ["steps", "loss"])
        == ""
    )


def test_python_calls_suggest_their_own_keywords():
    for call, message in [
        (lambda: brinell.audit(sampels=3), "there is no setting 'sampels', did you mean 'samples'"),
        (
            lambda: brinell.data([], clases=[]),
            "data has no parameter 'clases', did you mean 'classes'",
        ),
    ]:
        with pytest.raises(RequestError, match=message):
            call()
    with pytest.raises(AttributeError, match="did you mean 'audit'"):
        brinell.audits  # noqa: B018
