import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _helpers import VECTOR, Recorder, batch_of, distance, threat_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.oracle import Batch
from brinell.core.threat import tolerance

NORMS = ["linf", "l2", "l1"]


def test_tolerance():
    """One part in 10**5 of eps, and at least a millionth of the bounds or what float32 can be off."""
    eps = torch.tensor([0.0, 0.01, 1.0, 100.0])
    assert tolerance(eps, distance("linf"), VECTOR).tolist() == pytest.approx(
        [1e-6, 1e-6, 1e-5, 1e-3]
    )
    bytes_ = Domain(kind="vector", shape=(2,), high=255.0)
    assert tolerance(eps, distance("linf"), bytes_).tolist() == pytest.approx(
        [2.55e-4, 2.55e-4, 2.55e-4, 1e-3]
    )
    wide = Domain(kind="vector", shape=(4096,))
    assert tolerance(eps[:1], distance("l2"), wide).item() == pytest.approx(64 * 2.0**-23)
    assert tolerance(eps[:1], distance("l1"), wide).item() == pytest.approx(4096 * 2.0**-23)


def test_projects_onto_the_ball_and_into_the_box():
    threat = threat_of([0.2])
    x = threat.project(torch.tensor([[1.5, 0.1]]), torch.tensor([[0.9, 0.5]]))
    torch.testing.assert_close(x, torch.tensor([[1.0, 0.3]]))


def test_eps_zero_gives_the_clean_input_back():
    x, x0 = torch.rand(2, 20, 2, generator=torch.Generator().manual_seed(0))
    assert not [
        norm
        for norm in (*NORMS, "l0")
        if not torch.equal(threat_of(0.0, norm, n=20).project(x, x0), x0)
    ]


BOUNDS = [(0.0, 1.0), (0.0, 255.0), (-1.0, 1.0), (-2.5, 3.1), (-5000.3, 5000.3)]


@given(
    st.sampled_from([*NORMS, "l0"]),
    st.sampled_from(BOUNDS),
    st.floats(1e-4, 0.3),
    st.integers(0, 500),
)
def test_what_is_projected_may_be_asked(norm, bounds, share, seed):
    """The ledger takes every input that a threat has projected: rounding at this scale is within
    the tolerances.
    """
    low, high = bounds
    domain = Domain(kind="image", shape=(3, 5, 5), low=low, high=high)
    rng = torch.Generator().manual_seed(seed)
    x0 = domain.clamp(low + (high - low) * torch.rand(4, 3, 5, 5, generator=rng) * 1.1)
    x = x0 + (high - low) * torch.randn(4, 3, 5, 5, generator=rng)
    threat = threat_of(share * (high - low), norm, domain=domain, n=4)
    model = Recorder(lambda x: x.flatten(1)[:, :2], domain=domain)
    batch = Batch(ids=torch.arange(4), x=x0, y=torch.zeros(4, dtype=torch.int64))
    Ledger(model, batch, threat).oracle().scores(batch.ids, threat.project(x, x0))


def test_select():
    threat = threat_of([0.1, 0.2, 0.3])
    assert threat.select(torch.tensor([True, False, True])).eps.tolist() == pytest.approx(
        [0.1, 0.3]
    )
    batch = batch_of([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]], [0, 1, 0])
    selection = batch.select(torch.tensor([2, 0]))
    assert (
        selection.ids.tolist() == [2, 0]
        and selection.y.tolist() == [0, 0]
        and selection.x[0, 0] == batch.x[2, 0]
    )
