"""Queries in VNN-LIB: random formulas in both forms mean what they say; what cannot be read is
refused in one line.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _refusals import refused
from brinell.bounds._queries import read_query
from brinell.bounds._verifiers import robustness_query
from brinell.core.errors import RequestError

INPUTS, OUTPUTS = 2, 3
RELATIONS = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "!=": lambda a, b: a != b,
}
NUMBERS = st.integers(-4, 4).map(lambda k: k / 2)


def input_name(k, form):
    return f"X_{k}" if form == 1 else f"X[0,{k}]"


def output_name(k, form):
    return f"Y_{k}" if form == 1 else f"Y[{k}]"


terms = st.recursive(
    st.one_of(
        NUMBERS.map(lambda v: ("number", v)),
        st.integers(0, OUTPUTS - 1).map(lambda k: ("output", k)),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("+-"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("*"), NUMBERS, inner),
    ),
    max_leaves=4,
)
atoms = st.one_of(
    st.tuples(st.just("relation"), st.sampled_from(sorted(RELATIONS)), terms, terms),
    st.tuples(
        st.just("bound"),
        st.sampled_from(["<=", ">=", "<", ">"]),
        st.integers(0, INPUTS - 1),
        NUMBERS,
    ),
)
formulas = st.recursive(
    atoms,
    lambda inner: st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, max_size=3)),
    max_leaves=6,
)


def term_text(term, form):
    match term:
        case ("number", value):
            return repr(value)
        case ("output", k):
            return output_name(k, form)
        case ("*", factor, inner):
            return f"(* {factor!r} {term_text(inner, form)})"
        case (sign, parts):
            return f"({sign} {' '.join(term_text(part, form) for part in parts)})"


def term_value(term, y):
    match term:
        case ("number", value):
            return value
        case ("output", k):
            return y[k]
        case ("*", factor, inner):
            return factor * term_value(inner, y)
        case ("+", parts):
            return sum(term_value(part, y) for part in parts)
        case ("-", [only]):
            return -term_value(only, y)
        case ("-", [first, *others]):
            return term_value(first, y) - sum(term_value(part, y) for part in others)


def text_of(formula, form):
    match formula:
        case ("relation", relation, left, right):
            return f"({relation} {term_text(left, form)} {term_text(right, form)})"
        case ("bound", relation, k, value):
            return f"({relation} {input_name(k, form)} {value!r})"
        case (word, parts):
            return f"({word} {' '.join(text_of(part, form) for part in parts)})"


def value_of(formula, x, y):
    match formula:
        case ("relation", relation, left, right):
            return RELATIONS[relation](term_value(left, y), term_value(right, y))
        case ("bound", relation, k, value):
            return RELATIONS[relation](x[k], value)
        case ("and", parts):
            return all(value_of(part, x, y) for part in parts)
        case ("or", parts):
            return any(value_of(part, x, y) for part in parts)


def declarations(form):
    if form == 2:
        return (
            "(vnnlib-version <2.0>)\n(declare-network f (declare-input X float32 "
            "[1,2]) (declare-output Y Real [3]))"
        )
    names = [*(f"X_{k}" for k in range(INPUTS)), *(f"Y_{k}" for k in range(OUTPUTS))]
    return "; a comment\n" + "\n".join(f"(declare-const {name} Real)" for name in names)


BOX = [
    ("bound", relation, k, value)
    for k in range(INPUTS)
    for relation, value in ((">=", -2.0), ("<=", 2.0))
]


@settings(max_examples=60)
@given(st.lists(formulas, min_size=1, max_size=3), st.integers(1, 2))
def test_a_query_holds_where_its_formula_does(tmp_path_factory, parts, form):
    path = tmp_path_factory.getbasetemp() / "query.vnnlib"
    asserted = "\n".join(f"(assert {text_of(part, form)})" for part in [*BOX, *parts])
    path.write_text(f"{declarations(form)}\n{asserted}\n")
    try:
        query = read_query(path)
        cases = query.cases
    except RequestError as error:
        assert "contradict each other" in str(error)
        cases = ()
    rng = np.random.default_rng(len(asserted))
    x, y = (rng.integers(-5, 6, (60, n)) / 2 for n in (INPUTS, OUTPUTS))
    expected = [
        all(value_of(part, *point) for part in [*BOX, *parts]) for point in zip(x, y, strict=True)
    ]
    held = np.any([case.holds(x, y) for case in cases], axis=0) if cases else np.zeros(len(x), bool)
    assert held.tolist() == expected


ROBUST = """; two lines
(vnnlib-version <2.0>)
(declare-network N (declare-input X Real [1,1,2]) (declare-output Y Real [1,3]))
(assert (>= X[0,0,0] -0.5))
(assert (<= X[0,0,0] 0.00001))
(assert (>= X[0,0,1] 1.0))
(assert (<= X[0,0,1] 2.0))
(assert (or (>= Y[0,0] Y[0,1]) (>= Y[0,2] Y[0,1])))
"""


def test_a_question_of_robustness_as_text(tmp_path):
    """Class 1 of three in a box of shape (1, 2): the text by hand, and what is read back asks for
    an error in the box.
    """
    low, high = np.array([[-0.5, 1.0]]), np.array([[1e-5, 2.0]])
    assert robustness_query(low, high, 1, 3, "two\n lines") == ROBUST
    (tmp_path / "q.vnnlib").write_text(ROBUST)
    cases = read_query(tmp_path / "q.vnnlib").cases
    x = np.array([[-0.5, 1.5], [1e-5, 2.0], [0.1, 1.5], [0.0, 0.9], [0.0, 1.5]])
    y = np.array(
        [[1.0, 1.0, 0.0], [0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 0.5]]
    )
    held = np.any([case.holds(x, y) for case in cases], axis=0)
    assert held.tolist() == [True, True, False, False, False]


def test_the_slack_is_that_of_the_tightest_constraint(tmp_path):
    path = tmp_path / "q.vnnlib"
    box = "\n".join(f"(assert {text_of(part, 1)})" for part in BOX)
    path.write_text(f"{declarations(1)}\n{box}\n(assert (and (<= (* 2 Y_0) 3) (>= Y_1 Y_2)))")
    (case,) = read_query(path).cases
    assert case.slack(np.array([[1.0, 5.0, 4.5], [2.0, 5.0, 4.0]])).tolist() == [0.5, -1.0]


REFUSED = {
    "(assert (<= X_0": "ends with 2 open parentheses",
    ")": "closes a parenthesis that is not open (line 11",
    "hello": "has 'hello' outside of parentheses (line 11",
    "(assert (<= X_0 (* X_0 X_0)))": "multiplies variables",
    "(assert (<= X_0 X_1))": "ties X_0 to X_1",
    "(assert (<= X_0 Y_1))": "inputs may have bounds only",
    "(assert (<= X_7 1))": "uses 'X_7', which is no number",
    "(assert (xor (<= X_0 1) (<= X_1 1)))": "formulas are and, or",
    "(assert (<= X_0 (/ Y_0 2)))": "where a number is due",
    "(push 1)": "statement 'push'",
    "(assert (and (<= X_0 0) (>= X_0 1)))": "contradict each other",
    "(declare-const Z_0 Real)": "declares 'Z_0'",
}


def test_what_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "q.vnnlib"
    box = "\n".join(f"(assert {text_of(part, 1)})" for part in BOX)
    for text, message in REFUSED.items():
        path.write_text(f"{declarations(1)}\n{box}\n{text}\n")
        with pytest.raises(RequestError) as failure:
            read_query(path)
        assert message in str(failure.value) and "\n" not in str(failure.value)


WORDS = [
    "(",
    ")",
    "and",
    "or",
    "assert",
    "<=",
    "!=",
    "*",
    "+",
    "-",
    "0",
    "-1e-400",
    "1e999",
    "nan",
    "X_0",
    "Y_2",
    "X[0,1]",
    "Y[9]",
]


@settings(max_examples=150)
@given(st.lists(formulas, max_size=2), st.integers(1, 2), st.data())
def test_a_text_that_was_changed_anywhere_is_read_or_refused_in_one_line(
    tmp_path_factory, parts, form, data
):
    """Statements of the grammar, with words put in, taken out and repeated."""
    path = tmp_path_factory.getbasetemp() / "changed.vnnlib"
    text = f"{declarations(form)}\n" + "\n".join(
        f"(assert {text_of(part, form)})" for part in [*BOX, *parts]
    )
    words = text.replace("(", " ( ").replace(")", " ) ").split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.one_of(
                st.lists(st.sampled_from(WORDS), max_size=3), st.just(words[place : place + 2] * 2)
            )
        )
    path.write_text(" ".join(words))
    try:
        query = read_query(path)
    except RequestError as error:
        assert "\n" not in str(error) and str(path) in str(error)
    else:
        for case in query.cases:
            values = [case.low, case.high, case.a.ravel(), case.b]
            assert np.isfinite(np.concatenate(values)).all() and (case.low <= case.high).all()


def test_what_is_too_large_or_no_file_is_refused(tmp_path):
    path = tmp_path / "q.vnnlib"
    choices = "(assert (or (<= Y_0 1) (<= Y_1 1)))\n"
    box = "\n".join(f"(assert {text_of(part, 1)})" for part in BOX)
    for content in (
        f"{declarations(1)}\n(assert (<= X_0 1))",
        declarations(2) + declarations(2).partition("\n")[2],
        declarations(1) + box + choices * 14,
        "(declare-network f (declare-input X Real [99999999]) (declare-output Y Real [1]))",
        "(" * 50_000 + ")" * 50_000,
    ):
        path.write_text(content)
        with pytest.raises(RequestError, check=refused("bounds._queries._Reader.refuse")):
            read_query(path)
    path.write_bytes(b"\xff\xfe\x00")
    for file, message in (
        (path, "no query in VNN-LIB"),
        (tmp_path / "none.vnnlib", "no such file"),
        ("/dev/zero", "no regular file"),
    ):
        with pytest.raises(RequestError, match=message):
            read_query(Path(file))
