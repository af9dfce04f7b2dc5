import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brinell.analysis.distributions import quantile


def test_quantile_counts_failures_as_infinity():
    values = np.array([3.0, 1.0, 2.0])
    assert quantile(values, 0, 0.5) == 2.0
    assert quantile(values, 2, 0.5) == 3.0
    assert quantile(values, 3, 0.5) == 3.0
    assert quantile(values, 4, 0.5) == math.inf
    assert quantile(np.array([]), 3, 0.5) == math.inf
    assert quantile(np.array([]), 0, 0.5) is None


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 30), st.floats(0, 1))
def test_quantile_is_numpys_inverted_cdf(values, failures, q):
    quantile_value = quantile(np.array(values), failures, q)
    all_values = [*values, *[math.inf] * failures]
    if not all_values:
        assert quantile_value is None
    else:
        below = sum(v <= quantile_value for v in all_values)
        assert below >= q * len(all_values) - 1e-6
        assert quantile_value in all_values


@pytest.mark.parametrize("bad", [(np.array([1.0]), 0, 1.5), (np.array([1.0]), -1, 0.5), (np.array([np.nan]), 0, 0.5)])
def test_quantile_refuses(bad):
    with pytest.raises(ValueError, match="quantile"):
        quantile(*bad)
