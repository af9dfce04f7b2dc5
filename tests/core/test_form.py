"""What others wrote is held against a form before anything is made of it, and one line says where it differs."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.core import facts
from brinell.core.form import MOST, Count, Number, Row, Word, wrong

FORM = {
    "name": str,
    "n": Count(1, 10),
    "eps": [Number(0)],
    "stage?": {"cells": {str: str}, "alone": bool},
    "row?": Row(str, (Count(), None)),
    "state?": Word("running", "finished"),
    "rate?": float,
}
GOOD = {"name": "a", "n": 3, "eps": [0, 0.5]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 7}, "name is 7 and must be a text"),
        ({"n": "3"}, "n is '3' and must be a whole number from 1 to 10"),
        ({"n": True}, "n is True and must be a whole number from 1 to 10"),
        ({"n": 11}, "n is 11 and must be a whole number from 1 to 10"),
        ({"n": 3.0}, "n is 3.0 and must be a whole number from 1 to 10"),
        ({"eps": {}}, "eps is {} and must be a list"),
        ({"eps": [0.1, -1]}, "eps[1] is -1 and must be a number of at least 0"),
        ({"eps": [math.nan]}, "eps[0] is nan and must be a number of at least 0"),
        ({"stage": []}, "stage is [] and must be a table"),
        ({"stage": {"cells": {"m": 1}, "alone": True}}, "stage.cells.'m' is 1 and must be a text"),
        ({"stage": {"cells": {}}}, "it does not say stage.alone"),
        ({"row": ["a"]}, "row is ['a'] and must be a list of 2"),
        ({"row": ["a", "b"]}, "row[1] is 'b' and must be a whole number of at least 0 or null"),
        ({"state": "ended"}, "state is 'ended' and must be running or finished"),
        ({"rate": 10**400}, f"rate is {'1' + '0' * 39}... and must be a number"),
    ],
)
def test_one_line_says_where(change, said):
    assert wrong(GOOD | change, FORM) == said


def test_what_has_the_form_passes():
    whole = {"stage": {"cells": {"m": "c"}, "alone": False}, "row": ["a", None], "state": "running", "rate": math.inf, "more": []}
    assert wrong(GOOD, FORM) is None and wrong(GOOD | whole, FORM) is None
    assert wrong({"name": "a", "n": 3}, FORM) == "it does not say eps"
    assert wrong(MOST + 1, int) and wrong([], FORM) == "it is [] and must be a table"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*"abn", "name", "eps", "row"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_anything_gets_one_line_or_none(value):
    for form in (FORM, facts.DATA, facts.HEAD, (FORM, None), [FORM], {str: FORM}):
        said = wrong(json.loads(json.dumps(value)), form)
        assert said is None or (said and "\n" not in said)


DATA = {
    "spec": "d",
    "name": "d",
    "total": 2,
    "digest": "0",
    "n": 2,
    "domain": {"kind": "image", "shape": [3, 4, 4], "low": 0.0, "high": [1.0, 1.0, 1.0], "levels": None},
    "classes": ["a", "b"],
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"high": [1.0, 1.0]}, "another number of channels"),
        ({"shape": []}, "another number of channels"),
        ({"low": 1.0}, "not below the upper one"),
        ({"shape": [3, 4]}, "has 2 axes, and its kind is image"),
    ],
)
def test_a_domain_fits_together(change, said):
    data = DATA | {"domain": DATA["domain"] | change}
    assert wrong(data, facts.DATA) is None
    found = facts.misfit(data)
    assert found is None if said is None else said in found
