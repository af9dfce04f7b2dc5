"""Tests of the rule by which the classes of a model and of the data are matched."""

import random

import pytest

from _refusals import refused
from brinell.core.class_names import (
    NEVER,
    check_names,
    check_unique,
    match_classes,
    names_of_mapping,
    option_text,
    own_order,
)
from brinell.core.errors import ModelError, RequestError

WORDS = (
    "cat",
    "dog",
    "hot dog",
    "tiger shark",
    "fly",
    "box",
    "glass",
    "Persian_cat",
    "ice-cream",
    "goose",
    "crane",
    "ox",
)


def order(model, data, count=None, present=None):
    """The order in which a model's answers are taken."""
    count = count or len(model)
    return match_classes(
        "net", model, data, count, range(len(data)) if present is None else present
    ).order


def test_known_orders(subtests):
    for model, data, expected in [
        (("cat", "dog"), ("cat", "dog"), ()),
        (("cat", "dog", "frog"), ("dog", "frog", "cat"), (1, 2, 0)),
        (("cat", "dog", "frog"), ("frog", "cat"), (2, 0, 1)),
        (("Persian_cat", "hot dog"), ("HOT-DOG", "persian cat"), (1, 0)),
        (("tench, Tinca tinca", "shark"), ("shark", "Tench"), (1, 0)),
        (("a", "A"), ("A", "a"), (1, 0)),
        (("projectile, missile", "missile"), ("MISSILE", "projectile"), (1, 0)),
        (("LABEL_0", "LABEL_1"), ("cat", "dog"), ()),
        (("cat", "dog"), ("0", "1"), ()),
        (("-1", "1"), ("-1", "1"), ()),
        (("1", "-1"), ("-1", "1"), (1, 0)),
        (("-1", "1"), ("0", "1"), ()),
        (("3", "0", "1", "2"), ("0", "1", "2", "3"), (1, 2, 3, 0)),
        (("class 0", "class 1"), ("0", "1"), ()),
    ]:
        with subtests.test(model=model, data=data, expected=expected):
            assert order(model, data) == expected


def test_numbers_of_an_estimator_are_values_and_gaps_are_never_answered():
    assert order(("1", "2", "5"), tuple("012345"), present=[1, 2, 5]) == (
        NEVER,
        0,
        1,
        NEVER,
        NEVER,
        2,
    )
    with pytest.raises(ModelError, check=refused("core.class_names.match_classes")):
        order(("1", "2", "5"), tuple("012"), present=[0, 1, 2])


def test_folders_named_by_numbers_count_the_answers_of_a_model_without_names():
    assert order((), ("0", "1", "10", "2"), count=11)[:4] == (0, 1, 10, 2)
    assert order((), ("3", "7"), count=10) == (3, 7, 0, 1, 2, 4, 5, 6, 8, 9)
    assert order((), ("1", "2", "3"), count=3) == ()


def test_what_places_decide_is_told():
    assert (
        "the data set names no classes"
        in match_classes("net", ("cat", "dog"), ("0", "1"), 2, range(2)).note
    )
    assert "net names no classes" in match_classes("net", (), ("cat", "dog"), 10, range(2)).note
    assert match_classes("net", (), ("cat", "dog"), 2, range(2)).note == ""
    assert (
        "-1, 1 of net are taken for the labels 0, 1"
        in match_classes("net", ("-1", "1"), ("0", "1"), 2, range(2)).note
    )


def test_long_lists_in_other_words_are_one_list():
    model = [f"word{letter}{other}" for letter in "abcde" for other in "abcde"]
    data = [*model[:24], "quite another"]
    match = match_classes("net", model, data, 25, range(25))
    assert match.order == () and "1 of 25 classes, such as 'quite another'" in match.note
    with pytest.raises(ModelError, match="has no 'quite another'"):
        order(model, [*reversed(data)])


def test_names_that_do_not_cover_each_other_are_refused(subtests):
    for model, data, message in [
        (("cat", "dog"), ("cat", "bird"), "it has no 'bird'.*class_names="),
        (("cat", "cat", "dog"), ("dog", "cat"), "2 classes of model net match 'cat'"),
        (("cat", "dog"), ("CAT", "Cat"), "two classes of the data"),
        (("cat", "dog"), ("cat", "dog", "bird"), "it has no 'bird'"),
        (("1", "2"), ("0", "1"), "tells the classes 1, 2 apart"),
    ]:
        with subtests.test(model=model, data=data, message=message):
            with pytest.raises(ModelError, match=message):
                order(model, data)


def spellings(name, rng):
    """One of the ways in which people write a name."""
    mark = rng.choice([" ", "_", "-", ""])
    text = name.replace(" ", mark).replace("_", mark).replace("-", mark)
    return rng.choice([str, str.upper, str.title])(text)


def test_every_order_subset_and_spelling_is_matched(subtests):
    for seed in range(100):
        with subtests.test(seed=seed):
            check_matches(random.Random(seed))


def check_matches(rng):
    """Classes of a model that the data name otherwise, in another order, some of them, and with a
    stranger."""
    model = rng.sample(WORDS, rng.randint(2, len(WORDS)))
    data = rng.sample(model, rng.randint(2, len(model)))
    places = order(model, [spellings(name, rng) for name in data])
    places = places or tuple(range(len(model)))
    assert sorted(places) == list(range(len(model))), "a permutation"
    assert [model[place] for place in places[: len(data)]] == data
    assert own_order([model[place] for place in places], places) == tuple(model)
    stranger = [*data, "zebra"]
    rng.shuffle(stranger)
    with pytest.raises(ModelError, match="it has no 'zebra'"):
        order(model, stranger)
    without = [label for label, name in enumerate(stranger) if name != "zebra"]
    places = order(model, stranger, present=without) or tuple(range(len(model)))
    assert places[stranger.index("zebra")] == NEVER, "a class without a sample is never answered"
    assert [model[places[label]] for label in without] == [stranger[label] for label in without]


def test_lists_of_a_model():
    assert names_of_mapping("id2label", {"1": "dog", "0": "cat"}, {"cat": 0, "dog": 1}) == (
        "cat",
        "dog",
    )
    assert names_of_mapping("id2label", {0: "cat"}, {"LABEL_0": 0}) == ("cat",)
    with pytest.raises(
        RequestError, match="contradict each other: 'cat' is 0 in one and 1 in the other"
    ):
        names_of_mapping("id2label", {0: "cat", 1: "dog"}, {"cat": 1, "dog": 0})
    with pytest.raises(RequestError, match="number them from 0 to 1"):
        names_of_mapping("id2label", {0: "cat", 2: "dog"})
    with pytest.raises(RequestError, match="name 3 classes, and the model answers 2 numbers"):
        check_names("they", ("a", "b", "c"), 2)
    with pytest.raises(RequestError, match="leave class 1 without a name"):
        check_names("they", ("a", " "), 2)
    with pytest.raises(RequestError, check=refused("core.class_names.check_unique")):
        check_unique(("a", "b", "a"), "the list")
    assert option_text(("a", "b")) == "class_names=a+b" and option_text(("a+b", "c")) == ""
