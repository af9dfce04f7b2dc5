"""What data can show at most: below the smallest number nothing, at it something, by the tests that
studies use.
"""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.analysis.attainable import (
    shortfall,
    smallest_mcnemar,
    smallest_mean,
    smallest_number,
    smallest_rates,
)
from brinell.analysis.inference import compare_groups, holm, significant
from brinell.analysis.means import mean_difference
from brinell.analysis.proportions import mcnemar

EXTREME = {
    "mean": (smallest_mean, lambda n: mean_difference(np.linspace(1, 1.01, n)).p),
    "mcnemar": (smallest_mcnemar, lambda n: mcnemar(n, 0)),
    "groups": (
        smallest_rates,
        lambda n: compare_groups(np.repeat([0.0, 1.0], n), np.repeat([0, 1], n), 0.0, 1.0).p[0, 1],
    ),
}
"""For each test its smallest p-value, and the p-value of the data that are as clear as can be."""


def test_the_smallest_number_is_the_first_with_which_the_clearest_data_are_significant(subtests):
    for name in EXTREME:
        for comparisons in [1, 2, 9, 26, 45]:
            with subtests.test(name=name, comparisons=comparisons):
                smallest_p, clearest = EXTREME[name]
                needed = smallest_number(comparisons, smallest_p)
                for n in range(2, needed + 1):
                    claimed = significant(holm([clearest(n), *[1.0] * (comparisons - 1)])[0])
                    assert claimed == (n == needed), n


@given(st.data())
def test_no_data_have_a_p_value_below_the_smallest(data):
    n = data.draw(st.integers(2, 9))
    values = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=n, max_size=n)))
    assert mean_difference(values).p >= smallest_mean(n) * (1 - 1e-9)
    assert mcnemar(int((values > 0).sum()), int((values < 0).sum())) >= smallest_mcnemar(n) * (
        1 - 1e-9
    )


def test_no_two_groups_have_a_p_value_below_that_of_the_largest_size(subtests):
    """Shares of two groups of any sizes up to the largest."""
    for largest in [2, 5, 8]:
        with subtests.test(largest=largest):
            for n, m in itertools.product(range(1, largest + 1), repeat=2):
                for k, successes in itertools.product(range(n + 1), range(m + 1)):
                    values = np.repeat([1.0, 0.0, 1.0, 0.0], [k, n - k, successes, m - successes])
                    p = compare_groups(values, np.repeat([0, 1], [n, m]), 0.0, 1.0).p[0, 1]
                    assert p >= smallest_rates(largest) * (1 - 1e-9)


def test_eight_groups_and_nine_methods():
    assert shortfall("method can be told from random", 9, "groups", 8, smallest_mean) == (
        "Too few groups (8): no method can be told from random. 9 comparisons need at least 9."
    )
    assert not shortfall("any", 9, "groups", 9, smallest_mean) and not shortfall(
        "any", 0, "groups", 1, smallest_mean
    )
