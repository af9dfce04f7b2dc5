"""The shortest way to a plane inside a box, against linear programs, bisection and answers by hand."""

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq, linprog

from brinell.attacks._hyperplane import PROJECT
from brinell.core import norms

SIZE = {"linf": norms.linf, "l2": norms.l2, "l1": norms.l1}
NORMS = sorted(PROJECT)
UNIT = (torch.tensor(0.0), torch.tensor(1.0))


def project(norm, x, w, gap, low=0.0, high=1.0):
    """One sample in, its perturbation out, in float64 for the comparison."""
    tensors = [
        torch.as_tensor(np.asarray(value, dtype=np.float32)) for value in (x, w, gap, low, high)
    ]
    return (
        PROJECT[norm](tensors[0][None], tensors[1][None], tensors[2][None], *tensors[3:])[0]
        .double()
        .numpy()
    )


def smallest(norm, x, w, gap, low, high):
    """The size of the smallest perturbation that closes the gap, by a solver that knows nothing of
    Newton."""
    n, least, most = len(x), low - x, high - x
    if norm == "l2":
        side = np.sign(gap)

        def short(t):
            return np.clip(t * side * w, least, most) @ w * side - abs(gap)

        top = 1.0
        while short(top) < 0 and top < 1e12:
            top *= 2
        return np.linalg.norm(
            np.clip(brentq(short, 0, top, xtol=1e-300, rtol=1e-14) * side * w, least, most)
        )
    if norm == "linf":
        # Variables delta and t with -t <= delta <= t.
        around = np.block([[np.eye(n), -np.ones((n, 1))], [-np.eye(n), -np.ones((n, 1))]])
        cost, plane, bounds = (
            np.r_[np.zeros(n), 1.0],
            np.r_[w, 0.0],
            [*zip(least, most, strict=True), (0, None)],
        )
        solution = linprog(cost, around, np.zeros(2 * n), plane[None], [gap], bounds)
    else:
        # Variables up and down with delta = up - down.
        bounds = [(0, value) for value in (*most, *-least)]
        solution = linprog(np.ones(2 * n), None, None, np.r_[w, -w][None], [gap], bounds)
    assert solution.status == 0
    return solution.fun


# By hand


def test_by_hand(subtests):
    for norm, x, w, gap, expected in [
        ("linf", [0.5, 0.5, 0.5], [1.0, -2.0, 0.0], 0.3, [0.1, -0.1, 0.0]),
        ("linf", [0.5, 0.5, 0.5], [1.0, -2.0, 0.0], -0.3, [-0.1, 0.1, 0.0]),
        # The second value has no room beyond 0.05: the first must close 0.2.
        ("linf", [0.5, 0.05, 0.5], [1.0, -2.0, 0.0], 0.3, [0.2, -0.05, 0.0]),
        ("l2", [0.5, 0.5, 0.5], [3.0, -4.0, 0.0], 0.5, [0.06, -0.08, 0.0]),
        ("l2", [0.5, 0.02, 0.5], [3.0, -4.0, 0.0], 0.5, [0.14, -0.02, 0.0]),
        ("l1", [0.5, 0.5, 0.5], [3.0, -4.0, 1.0], 0.4, [0.0, -0.1, 0.0]),
        ("l1", [0.5, 0.05, 0.5], [3.0, -4.0, 1.0], 0.5, [0.1, -0.05, 0.0]),
        # 0.5 + 2 * 0.5 is all that the box holds: the nearest corner.
        ("linf", [0.5, 0.5, 0.5], [1.0, -2.0, 0.0], 9.0, [0.5, -0.5, 0.0]),
        ("l2", [0.5, 0.5, 0.5], [1.0, -2.0, 0.0], 9.0, [0.5, -0.5, 0.0]),
        ("l1", [0.5, 0.5, 0.5], [1.0, -2.0, 0.0], -9.0, [-0.5, 0.5, 0.0]),
    ]:
        with subtests.test(norm=norm, x=x, w=w):
            np.testing.assert_allclose(project(norm, x, w, gap), expected, atol=1e-6)


def test_the_length_of_the_normal_does_not_matter(subtests):
    for norm in NORMS:
        for scale in [1e-25, 1e25]:
            with subtests.test(norm=norm, scale=scale):
                rng = torch.Generator().manual_seed(0)
                x, w, gap = (
                    torch.rand(5, 40, generator=rng),
                    torch.randn(5, 40, generator=rng),
                    torch.linspace(-3, 3, 5),
                )
                torch.testing.assert_close(
                    PROJECT[norm](x, w * scale, gap * scale, *UNIT), PROJECT[norm](x, w, gap, *UNIT)
                )


# Against solvers


def real(low, high):
    """Multiples of 1/1024, so that what the solver and we are given is the same number."""
    return st.integers(low * 1024, high * 1024).map(lambda v: v / 1024)


dimensions = st.shared(st.integers(1, 7), key="dimension")
points = dimensions.flatmap(lambda n: hnp.arrays(np.float64, n, elements=real(0, 1)))
normals = dimensions.flatmap(lambda n: hnp.arrays(np.float64, n, elements=real(-2, 2)))


@pytest.mark.parametrize("norm", NORMS)
@given(points, normals, st.floats(-1.3, 1.3))
@example(np.array([0.0, 1.0, 0.5]), np.array([-1.0, 1.0, 1.0]), 0.5)
def test_on_the_plane_in_the_box_and_smallest(norm, x, w, share):
    """`share` of the way to the farthest corner: beyond 1 the plane misses the box."""
    assume(np.abs(w).max() > 0)
    low, high = -np.ones_like(x), np.linspace(1, 3, len(x))
    x = low + x * (high - low)
    corner = np.where(share * w > 0, high - x, np.where(w == 0, 0, low - x))
    reach = abs(corner @ w)
    gap = share * reach
    delta = project(norm, x, w, gap, low, high)
    assert (x + delta >= low - 1e-5).all() and (x + delta <= high + 1e-5).all()
    assert (delta[w == 0] == 0).all()
    if abs(share) > 1 or reach == 0:
        np.testing.assert_allclose(delta, corner, atol=1e-5)
        return
    assert delta @ w == pytest.approx(gap, rel=1e-4, abs=1e-5)
    if 1e-3 < abs(share) < 0.999:
        size = SIZE[norm](torch.from_numpy(delta)[None]).item()
        assert size == pytest.approx(smallest(norm, x, w, gap, low, high), rel=1e-3, abs=1e-5)
