"""A name misspelled at random suggests the name that was meant, a synonym the word of the vocabulary, and nonsense nothing."""

import dataclasses
import random
import string

import pytest

import brinell
from brinell import plugins
from brinell.calls import signature_of
from brinell.core.errors import RequestError
from brinell.core.suggestions import nearest_names, suggestion
from brinell.engine.attack_names import ALIASES, CASCADES, PRESETS
from brinell.studies import register

SETTINGS = {verb: list(signature_of(study).parameters) for verb, study in register.studies().items()}
VOCABULARIES = {
    **{f"{kind} plugins": plugins.names(kind) for kind in plugins.FOLDERS},
    "attacks and cascades": [*plugins.names("attack"), *PRESETS, *CASCADES, *ALIASES],
    **{f"settings of {verb}": names for verb, names in SETTINGS.items()},
    "settings of PGD": [field.name for field in dataclasses.fields(plugins.load("attack", "pgd"))],
    "verbs": list(register.entries()),
}


def misspell(name: str, rng: random.Random) -> str:
    """The name with one slip: letters swapped, dropped, added or replaced, another case, or other marks between the words."""
    at = rng.randrange(len(name))
    letter = rng.choice(string.ascii_lowercase)
    return rng.choice(
        [
            name[:at] + name[at + 1 : at + 2] + name[at : at + 1] + name[at + 2 :],
            name[:at] + name[at + 1 :],
            name[:at] + letter + name[at:],
            name[:at] + letter + name[at + 1 :],
            rng.choice([name.upper(), name.title(), name.swapcase()]),
            name.translate(str.maketrans({"-": "_", "_": "-"})),
            name.replace("-", rng.choice(["", " "])).replace("_", ""),
            "--" + name,
        ]
    )


def test_misspelled_names_suggest_the_original(subtests):
    for vocabulary in VOCABULARIES:
        with subtests.test(vocabulary=vocabulary):
            names, rng = VOCABULARIES[vocabulary], random.Random(vocabulary)
            for name in (word for word in names for _ in range(4) if len(word) > 2):
                typed = misspell(name, rng)
                if typed in names:
                    continue
                nearest = nearest_names(typed, names)
                ambiguous = len(name) <= 4 and len(nearest) == 3  # short names have many neighbours, and three are suggested
                assert name in nearest or ambiguous, (typed, nearest)


def test_synonyms_and_parts_suggest_the_name_of_the_vocabulary(subtests):
    for typed, vocabulary, meant in [
        ("epsilon", SETTINGS["audit"], "eps"),
        ("n_samples", SETTINGS["audit"], "samples"),
        ("random_state", SETTINGS["audit"], "seed"),
        ("Batch-Size", SETTINGS["audit"], "batch_size"),
        ("distance", SETTINGS["audit"], "norm"),
        ("labels", SETTINGS["audit"], "y"),
        ("max_queries", SETTINGS["audit"], "queries"),
        ("learning_rate", SETTINGS["harden"], "rate"),
        ("num_epochs", SETTINGS["harden"], "epochs"),
        ("defense", SETTINGS["harden"], "recipe"),
        ("num_steps", VOCABULARIES["settings of PGD"], "steps"),
        ("lr", VOCABULARIES["settings of PGD"], "step_size"),
        ("iters", VOCABULARIES["settings of PGD"], "steps"),
        ("epsilion", SETTINGS["audit"], "eps"),
        ("ngfsm", plugins.names("defence"), "n-fgsm"),
        ("AutoAttack", VOCABULARIES["attacks and cascades"], "autoattack"),
        ("carlini-wagner", plugins.names("attack"), "cw"),
        ("euclidean", plugins.names("distance"), "l2"),
        ("imagefolder", plugins.names("dataset"), "image-folder"),
        ("csv", plugins.names("dataset"), "table"),
        ("GradCAM", plugins.names("explainer"), "grad-cam"),
        ("evaluate", list(register.entries()), "audit"),
        ("noise", plugins.names("distortion"), "gaussian-noise"),
    ]:
        with subtests.test(typed=typed, vocabulary=vocabulary, meant=meant):
            assert meant in nearest_names(typed, vocabulary)


def test_nothing_near_suggests_nothing():
    rng = random.Random(0)
    for vocabulary in ("attacks and cascades", "settings of audit", "settings of PGD"):
        for _ in range(6):
            nonsense = "".join(rng.choices("jkqvwxz", k=rng.randint(6, 12)))
            assert suggestion(nonsense, VOCABULARIES[vocabulary]) == "", nonsense
    assert suggestion("", ["eps"]) == suggestion("-", ["eps"]) == suggestion("q", ["steps", "loss"]) == ""


def test_python_calls_suggest_their_own_keywords(subtests):
    for call, message in [
        (lambda: brinell.audit(epsilon=0.1), "there is no setting 'epsilon', did you mean 'eps'"),
        (lambda: brinell.audit(num_steps=3), r'a setting of the attack: attack="pgd\?steps=VALUE"'),
        (lambda: brinell.attack(None, epsilon=0.1), "attack has no parameter 'epsilon', did you mean 'eps'"),
        (lambda: brinell.data([], labels=[]), "data has no parameter 'labels', did you mean 'y'"),
    ]:
        with subtests.test(call=call, message=message):
            with pytest.raises(RequestError, match=message):
                call()


def test_unknown_calls_are_suggested():
    with pytest.raises(AttributeError, match="did you mean 'audit'"):
        brinell.evaluate  # noqa: B018
