import re

import pytest

from _helpers import distance
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.engine.eps_grid import check_budgets, parse_eps


def test_reads(subtests):
    for text, values, texts in [
        ("8/255", [8 / 255], ["8/255"]),
        ("0.3", [0.3], ["0.3"]),
        ("0", [0.0], ["0"]),
        ("1/255,2/255", [1 / 255, 2 / 255], ["1/255", "2/255"]),
        (" 2/255 , 1 / 255 ", [1 / 255, 2 / 255], ["1/255", "2/255"]),
        ("0:8/255:9", [i / 255 for i in range(9)], ["0", *(f"{i}/255" for i in range(1, 9))]),
        (
            "0:8/255:5",
            [0, 2 / 255, 4 / 255, 6 / 255, 8 / 255],
            ["0", "2/255", "4/255", "6/255", "8/255"],
        ),
        ("0:3/255:3", [0, 1.5 / 255, 3 / 255], ["0", "1.5/255", "3/255"]),
        ("0:1:3", [0, 0.5, 1.0], ["0", "0.5", "1"]),
        ("0.1,1e-2", [0.01, 0.1], ["0.01", "0.1"]),
        # Distinct and ascending, whatever the order and however often a budget is named.
        ("0.3,8/255,0.3,0:8/255:2", [0, 8 / 255, 0.3], ["0", "8/255", "0.3"]),
        ("2/4,0.5", [0.5], ["2/4"]),
    ]:
        with subtests.test(str((text, values, texts))):
            budgets = parse_eps(text)
            assert budgets.values == pytest.approx(values, abs=1e-15)
            assert list(budgets.texts) == texts


def test_points_are_exact():
    """Each point is the float nearest to the fraction, so that it is the same budget as when
    written alone."""
    swept = parse_eps("0:8/255:9").values
    assert swept == tuple(parse_eps(f"{i}/255").values[0] for i in range(9))


def test_refuses(subtests):
    for text, message in [
        ("eight", "eps 'eight' is no number: write 0.3, 8/255"),
        ("", "is no number"),
        ("1,", "is no number"),
        ("8/0", "is no number"),
        ("1/2/3", "is no number"),
        ("nan", "is no number"),
        ("inf", "is no number"),
        ("1e400", "is no number"),
        ("1e999999999", "is no number"),
        ("-1/255", "eps '-1/255' is negative: a budget is 0 or more"),
        ("0.1,-0.2", "is negative"),
        ("-0.1:0.1:3", "is negative"),
        ("0:1", "has 2 parts: write from:to:points"),
        ("0:1:2:3", "has 4 parts"),
        ("0:1:x", "the number of points is an integer of at least 2"),
        ("0:1:1", "at least 2"),
        ("0:1:2.5", "at least 2"),
        ("0:1:²", "at least 2"),
        ("0:1:-3", "at least 2"),
        ("1:0:3", "does not rise"),
        ("1:1:3", "does not rise"),
    ]:
        with subtests.test(str((text, message))):
            with pytest.raises(RequestError, match=message.replace("(", r"\(")):
                parse_eps(text)


def test_a_decimal_comma_is_recognised(subtests):
    for text in ["0,03", "1,5", "0.1, 0,25", "0,03,0,1"]:
        with subtests.test(str((text,))):
            with pytest.raises(
                RequestError, match="may be a decimal comma: write [01].(03|5|25), or"
            ):
                parse_eps(text)
    for text, values in {"1e-8,3e-8": [1e-8, 3e-8], "1e-2,5E-2": [0.01, 0.05]}.items():
        assert list(parse_eps(text).values) == values


UNIT = Domain(kind="image", shape=(1, 8, 8), levels=256)
BYTES = Domain(kind="image", shape=(1, 8, 8), low=0, high=255, levels=256)
FLOATS = Domain(kind="image", shape=(1, 8, 8), low=0, high=255)


def test_a_budget_that_makes_no_sense_is_refused(subtests):
    for text, norm, domain, line in [
        ("8", "linf", UNIT, "did you mean 8/255"),
        ("2", "linf", UNIT, "did you mean 2/255"),
        ("300", "linf", BYTES, "did you mean 8/255 of the range"),
        ("8/255", "linf", BYTES, "for 8/255 of the range write 8"),
        ("0.03", "linf", BYTES, "for 0.03 of the range write 7.65"),
        ("0:0.3:4", "linf", BYTES, "for 0.3 of the range write 76.5"),
        ("0.3", "linf", FLOATS, "for 0.3 of the range write 76.5"),
        ("0.5", "l2", BYTES, "for 0.5 of the range write 127.5"),
        ("8/255", "l1", BYTES, "for 8/255 of the range write 8"),
        (
            "0.001",
            "linf",
            Domain(kind="signal", shape=(1, 9), low=-5.0, high=5.0),
            "for 0.001 of the range write 0.01",
        ),
        ("9", "l2", UNIT, "is more than any change can be, 8, for the data lie in 0 to 1"),
        ("65", "l1", UNIT, "is more than any change can be, 64"),
        ("8/255", "l0", UNIT, "changes no value"),
        ("65", "l0", UNIT, "more than the 64 values"),
        ("0.5", "pixels", UNIT, "budgets are numbers of pixels there"),
        ("65", "pixels", UNIT, "more than the 64 pixels"),
        ("0.02", "patch", UNIT, "budgets are numbers of places along a side there"),
        ("9", "patch", UNIT, "more than the 8 places along a side"),
    ]:
        with subtests.test(str((text, norm, domain, line))):
            with pytest.raises(RequestError, match=re.escape(line)):
                check_budgets(parse_eps(text), distance(norm), domain)


def test_other_budgets_are_taken():
    signal = Domain(kind="signal", shape=(1, 9), low=-5.0, high=5.0)
    for text, norm, domain in [
        ("8/255", "linf", UNIT),
        ("8", "linf", BYTES),
        ("1", "linf", UNIT),
        ("0", "linf", BYTES),
        ("8/255", "l2", UNIT),
        ("128", "l2", BYTES),
        ("4", "l2", UNIT),
        ("40", "l1", UNIT),
        ("1", "l0", UNIT),
        ("1e-05", "linf", UNIT),
        ("0.1", "linf", signal),
    ]:
        check_budgets(parse_eps(text), distance(norm), domain)


def test_a_grid_has_a_ceiling(subtests):
    for text in ["0:1:100000000", "0:1:" + "9" * 5000, ",".join(["0.1"] * 10_001)]:
        with subtests.test(str((text,))):
            with pytest.raises(RequestError, match="more than 10000 points|lists 10001 budgets"):
                parse_eps(text)
