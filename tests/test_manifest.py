"""A manifest from outside is validated against a model before use, and one line says where it
differs."""

import json
import math
from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from brinell.manifest import (
    MOST,
    Amount,
    Content,
    Count,
    DataFacts,
    GrowingManifest,
    Listing,
    Number,
    TableOf,
    abbreviate,
    fault,
    misfit,
)


class Stage(Content):
    cells: TableOf[str]
    single: bool


class FullManifest(Content):
    name: str
    n: Annotated[int, Field(ge=1, le=10)]
    eps: Listing[Amount]
    stage: Stage = Stage(cells={}, single=False)
    row: Annotated[tuple[str, Count | None], Field(strict=False)] = ("", None)
    state: Literal["running", "finished"] = "running"
    rate: float = 0.0
    bound: Number | Listing[Number] = 0.0
    count: Count = 0
    least: Number = 0.0
    names: TableOf[Count] = {}


GOOD = {"name": "a", "n": 3, "eps": [0, 0.5]}


def test_one_line_says_where(subtests):
    rows = [
        ({"name": 7}, "name is 7: input should be a valid string"),
        ({"n": "3"}, "n is '3': input should be a valid integer"),
        ({"n": True}, "n is True: input should be a valid integer"),
        ({"n": 11}, "n is 11: input should be less than or equal to 10"),
        ({"n": 3.0}, "n is 3.0: input should be a valid integer"),
        ({"count": MOST + 1}, f"count is {MOST + 1}: input should be less than or equal to {MOST}"),
        ({"eps": {}}, "eps is {}: input should be a valid list"),
        ({"eps": [0.1, -1]}, "eps[1] is -1: input should be greater than or equal to 0"),
        ({"least": math.nan}, "least is nan: input should be a finite number"),
        (
            {"stage": {"cells": {"m": 1}, "single": True}},
            "stage.cells.m is 1: input should be a valid string",
        ),
        (
            {"stage": {"cells": {"\x1b": 1}, "single": True}},
            "stage.cells.'\\x1b' is 1: input should be a valid string",
        ),
        ({"stage": {"cells": {}}}, "stage.single is {'cells': {}}: field required"),
        ({"row": ["a"]}, "row[1] is ['a']: field required"),
        ({"state": "ended"}, "state is 'ended': input should be 'running' or 'finished'"),
        ({"bound": [0, "x"]}, "bound.float is [0, 'x']"),
        ({"rate": 10**400}, "rate is 1000"),
    ]
    for change, line in rows:
        with subtests.test(change=change):
            problem = fault(GOOD | change, FullManifest)
            assert problem.startswith(line) and len(problem) < 200, problem


def test_what_has_the_form_passes():
    manifest = {
        "stage": {"cells": {"m": "c"}, "single": False},
        "row": ["a", None],
        "state": "running",
        "rate": math.inf,
        "more": [],
    }
    assert (
        fault(GOOD, FullManifest) is None
        and fault(GOOD | manifest | {"count": MOST, "bound": [1, 2.0]}, FullManifest) is None
    )
    assert (
        fault({"name": "a", "n": 3}, FullManifest) == "eps is {'n': 3, 'name': 'a'}: field required"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*"abn", "name", "eps", "row"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=40)
@given(JSON)
def test_anything_gets_one_line_or_none(value):
    for model in (FullManifest, DataFacts, GrowingManifest, Stage):
        for content in (value, GOOD | {"names": {"a": value}, "eps": value}):
            line = fault(json.loads(json.dumps(content)), model)
            assert line is None or (line and "\n" not in line)


@pytest.mark.parametrize(
    "change", [{"eps": ["x"] * 10**6}, {"names": dict.fromkeys(map(str, range(10**6)), "x")}]
)
def test_many_faults_cost_no_more_than_one(change):
    """A million messages would cost more than the second that a test may take."""
    assert "input should be a" in fault(GOOD | change, FullManifest)


def test_deep_and_odd_texts_are_shown_in_one_short_line():
    deep = []
    for _ in range(900):
        deep = [deep]
    for value in (deep, ["\ud800"], ["\x1b[2J\n" * 50], {"a": deep}, [1] * 10**6):
        line = fault(GOOD | {"name": value}, FullManifest)
        assert line is not None and line.isprintable() and len(line) < 200
        assert len(abbreviate(value)) <= 43
    assert fault(GOOD | {"names": {"\ud800": "x"}}, FullManifest)


def test_a_misfit_is_said_as_it_is():
    assert str(misfit("has {braces} and 100 %").message()) == "has {braces} and 100 %"


DATA = {
    "spec": "d",
    "name": "d",
    "total": 2,
    "digest": "0",
    "n": 2,
    "domain": {
        "kind": "image",
        "shape": [3, 4, 4],
        "low": 0.0,
        "high": [1.0, 1.0, 1.0],
        "levels": None,
    },
    "classes": ["a", "b"],
}


def test_a_domain_fits_together(subtests):
    rows = [
        ({}, None),
        (
            {"high": [1.0, 1.0]},
            "domain has bounds for another number of channels than its shape has",
        ),
        ({"shape": []}, "domain has bounds for another number of channels than its shape has"),
        ({"low": 1.0}, "domain has a lower bound that is not below the upper one"),
        ({"shape": [3, 4]}, "domain has 2 axes, and its kind is image"),
        ({"columns": [["a", 0, 1.0, False, [], ""]]}, None),
        (
            {"columns": [["a", 0, 1.0, 0, [], ""]]},
            "domain.columns[0][3] is 0: input should be a valid boolean",
        ),
        ({"levels": 1}, "domain.levels is 1: input should be greater than or equal to 2"),
    ]
    for change, line in rows:
        with subtests.test(change=change):
            assert fault(DATA | {"domain": DATA["domain"] | change}, DataFacts) == line
