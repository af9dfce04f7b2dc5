"""Levels of severity: exact multiples on one path, worked by hand on inputs whose every value is a
patch.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import batch_of, threat_of
from _placing import Lift
from brinell.core import norms
from brinell.core.domain import Domain
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.rlab.distort import CLEAN, variants
from brinell.rlab.episodes import no_outcomes
from brinell.rlab.grading import path


def paths(
    x,
    standing,
    *,
    strength=1.0,
    slope=None,
    eps=100.0,
    patch=1,
    stride=None,
    severities=(1,),
    high=1.0,
):
    """Paths of samples whose flip is `standing` (n, patches)."""
    x = torch.as_tensor(x, dtype=torch.float32)
    domain = Domain(kind="vector", shape=tuple(x.shape[1:]), high=high)
    grid = PatchGrid.over(domain, patch, stride)
    standing = torch.as_tensor(standing, dtype=torch.int16)
    n = len(x)
    results = no_outcomes(torch.full((n,), eps), grid, 1)._replace(
        variant=standing, strength=torch.full((n,), strength)
    )
    if slope is not None:
        results = results._replace(slope=torch.tensor(slope).view(n, 1, -1))
    threat = threat_of(eps, "l2", domain, n)
    variant_list = variants((Lift(),), domain, severities)
    return path(
        batch_of(x, [0] * n),
        threat,
        Streams.of(0, torch.arange(n)),
        grid=grid,
        variants=variant_list,
        results=results,
    )


def distance_at(grades, multiple):
    """The inputs at a multiple of the flip's distance, and whether they were reached."""
    graded = grades.grade(multiple * norms.l2(grades.flip() - grades.clean))
    return graded, (graded.x - grades.clean)[0].tolist()


def test_what_stands_grows_first():
    """Half the strength stands on one value: twice the distance is the distortion itself."""
    grades = paths([[0.5, 0.5, 0.5, 0.5]], [[0, -1, -1, -1]], strength=0.5)
    assert grades.flip()[0].tolist() == pytest.approx([0.55, 0.5, 0.5, 0.5])
    graded, delta = distance_at(grades, 2)
    assert delta == pytest.approx([0.1, 0, 0, 0]) and graded.strength[0].tolist() == pytest.approx(
        [1, 0, 0, 0]
    )
    assert graded.variant[0].tolist() == [0, CLEAN, CLEAN, CLEAN]
    graded, delta = distance_at(grades, 1.5)
    assert delta == pytest.approx([0.075, 0, 0, 0]) and graded.strength[0, 0] == pytest.approx(0.75)


def test_then_patches_are_added_by_promise():
    """A tenth on value 0; the model promises most of value 2, then of 1: twice the distance is four
    patches' worth.
    """
    grades = paths(
        [[0.5, 0.5, 0.5, 0.5, 0.5]], [[0, -1, -1, -1, -1]], slope=[[0.0, 2.0, 3.0, 1.0, -1.0]]
    )
    _, delta = distance_at(grades, 2**0.5)
    assert delta == pytest.approx([0.1, 0, 0.1, 0, 0])
    graded, delta = distance_at(grades, 2)
    assert delta == pytest.approx([0.1, 0.1, 0.1, 0.1, 0]) and bool(graded.reached)
    # 0.01 (1 + 1 + t**2) = 0.01 * 1.6**2 has the root t**2 = 0.56.
    graded, delta = distance_at(grades, 1.6)
    assert delta == pytest.approx([0.1, 0.56**0.5 / 10, 0.1, 0, 0])
    assert graded.strength[0].tolist() == pytest.approx([1, 0.56**0.5, 1, 0, 0])


def test_then_everything_grows_up_to_the_bounds():
    """Two values with room for 0.2 and 0.5: all that is there is reached, and no more."""
    grades, flip = paths([[0.8, 0.5]], [[0, 0]]), 0.02**0.5
    graded, delta = distance_at(grades, 2)
    assert delta == pytest.approx([0.2, 0.2]) and graded.strength[0].tolist() == pytest.approx(
        [2, 2]
    )
    graded, delta = distance_at(grades, 0.13**0.5 / flip)
    assert delta == pytest.approx([0.2, 0.3]) and bool(graded.reached)
    _, delta = distance_at(grades, 0.28999**0.5 / flip)
    assert delta == pytest.approx([0.2, 0.5], abs=1e-4)
    graded, delta = distance_at(grades, 4)
    assert not bool(graded.reached) and delta == [0, 0] and graded.strength[0].tolist() == [0, 0]


def test_the_flip_is_what_the_cap_left():
    """An assignment of length 0.2 fitted to 0.1 stands at half its strength."""
    grades = paths([[0.5, 0.5, 0.5, 0.5]], [[0, 0, 0, 0]], eps=0.1)
    assert grades.fraction()[0].item() == pytest.approx(0.5)
    assert (grades.flip() - grades.clean)[0].tolist() == pytest.approx([0.05] * 4)
    assert distance_at(grades, 2)[1] == pytest.approx([0.1] * 4)


def test_a_patch_that_no_filter_changes_comes_last_and_stays_empty():
    grades = paths([[0.5, 1.0, 0.5]], [[0, -1, -1]], slope=[[0.0, 9.0, 1.0]])
    graded, delta = distance_at(grades, 2**0.5)
    assert delta == pytest.approx([0.1, 0, 0.1]) and graded.variant[0].tolist() == [0, CLEAN, 0]


def test_units_of_the_data():
    grades = paths([[5.0, 5.0]], [[0, -1]], high=10.0)
    assert distance_at(grades, 2**0.5)[1] == pytest.approx([1.0, 1.0])


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), overlap=st.booleans(), strength=st.floats(0.2, 1.0))
def test_every_level_is_at_its_multiple(seed, overlap, strength):
    """Exact distances, in the bounds, masks within the patches; without overlap what was touched
    stays touched.
    """
    rng = Streams.of(seed, torch.arange(3))
    x = rng.uniform(12)
    grid = (3, 2 if overlap else 3)
    count = len(PatchGrid.over(Domain(kind="vector", shape=(12,)), *grid))
    standing = rng.fold("s").integers(3, count) - 1
    standing[:, 0] = standing[:, 0].clamp_min(0)
    slope = rng.fold("g").normal(12).tolist()
    grades = paths(
        x,
        standing,
        strength=strength,
        slope=slope,
        patch=grid[0],
        stride=grid[1],
        severities=(1, 3),
    )
    flip = norms.l2(grades.flip() - x)
    before = torch.zeros(3, dtype=torch.bool), torch.zeros_like(x, dtype=torch.bool)
    for multiple in (1.0, 1.3, 2.0, 3.0, 5.0, 30.0):
        graded = grades.grade(multiple * flip)
        delta = graded.x - x
        close = torch.isclose(norms.l2(delta), multiple * flip, rtol=2e-5, atol=1e-6)
        assert bool((close | ~graded.reached).all())
        assert bool((delta[~graded.reached] == 0).all()) and bool(
            (graded.x >= 0).all() and (graded.x <= 1).all()
        )
        change = grades.inputs(grades.last) - x
        farthest = norms.l2(torch.where(change > 0, 1 - x, x) * (change.abs() > 1e-6))
        assert bool((~graded.reached | (multiple * flip <= farthest * 1.0001) | overlap).all())
        assert bool((graded.reached | (multiple * flip >= farthest * 0.999)).all())
        if multiple > 1 and not overlap:
            assert not bool((graded.reached & ~before[0] & (multiple > 1.3)).any()), (
                "a level is reached beyond one that is not"
            )
            assert bool(((delta != 0) | ~before[1] | ~graded.reached[:, None]).all()), (
                "a value went back"
            )
        before = graded.reached, (delta != 0) & graded.reached[:, None]
