"""`brinell certify --method smoothing` on linear models, whose probabilities under noise and radii
are known."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import brinell
from brinell.analysis.sequences import ValueCounts, lower_end
from brinell.core.errors import RequestError
from brinell.core.intervals import clopper_pearson_low
from brinell.store.folder import PAGE
from brinell.store.proofs import TABLE
from brinell.studies.certify.smoothing import Smoothing

SIGMA = 0.5


def smooth(net, data, eps=None, out=None, samples=None, batch_size=None, **settings):
    """The smoothed model, with noise of SIGMA."""
    texts = "&".join(f"{name}={value}" for name, value in ({"sigma": SIGMA} | settings).items())
    return brinell.certify(
        net,
        data,
        method=f"smoothing?{texts}",
        eps=eps,
        samples=samples,
        batch_size=batch_size,
        out=out,
    )


@pytest.fixture(scope="module")
def linear():
    """A linear model of two classes, inputs far from the bounds, labels, and the exact distance
    (negative if misclassified)."""
    generator = torch.Generator().manual_seed(1)
    net = nn.Linear(6, 2).eval()
    net.weight.data, net.bias.data = torch.randn(2, 6, generator=generator), torch.zeros(2)
    x = torch.randn(60, 6, generator=generator)
    weight = (net.weight[1] - net.weight[0]).detach().double()
    distance = (x.double() @ weight) / weight.norm()
    y = (distance > 0).long()
    y[:5] = 1 - y[:5]
    return (
        net,
        brinell.data(x.numpy(), y.numpy(), kind="vector", bounds=(-100, 100)),
        distance.abs().numpy(),
        y.numpy(),
    )


def test_radii_come_near_the_true_distance_from_below(linear, tmp_path):
    net, data, distance, y = linear
    result = smooth(net, data, draws=4000, eps="0:1:5", samples=60, out=tmp_path / "run")
    rows = TABLE.read(tmp_path / "run").rows
    outcome, radius, low = (
        column.reshape(60, 5) for column in (rows.outcome, rows.proven_at, rows.margin)
    )
    radius, low = (np.nan_to_num(column[:, 0]) for column in (radius, low))
    limit = SIGMA * stats.norm.ppf(0.001 ** (1 / 4000))
    # Each radius may be too large with a probability of 0.001; of 60 none is, but for what one of
    # them may.
    assert (radius > distance + 1e-9).sum() <= 1
    told = (distance > 0.1) & (np.arange(60) >= 5)
    assert (radius[told] > np.minimum(distance[told], limit) * 0.75 - 0.08).all()
    share = stats.norm.cdf(distance / SIGMA)
    assert -0.07 < (low - share)[told].min() and (low - share)[told].max() < 0.02
    assert set(outcome[:5][distance[:5] > 0.1].ravel()) == {"wrong"}
    assert (
        result.n == 60 and result.models[0].name.startswith("smoothed ") and result.distance == "l2"
    )
    assert [rate.eps for rate in result.certified] == [0, 0.25, 0.5, 0.75, 1] and not result.robust
    values = [rate.k for rate in result.certified]
    assert values == [
        int(((radius > 0) & (radius >= level)).sum()) for level in (0, 0.25, 0.5, 0.75, 1)
    ]
    assert (tmp_path / "run" / PAGE).exists()


def test_neither_batches_nor_order_change_the_counts(linear, tmp_path):
    net, data, _, _ = linear
    for name, size in (("one", 7), ("two", 300)):
        smooth(net, data, draws=300, samples=30, batch_size=size, out=tmp_path / name)
    first, second = (TABLE.read(tmp_path / name).rows for name in ("one", "two"))
    assert (first.outcome == second.outcome).all() and np.array_equal(
        first.margin, second.margin, equal_nan=True
    )


def test_labels_alone_are_enough(linear, tmp_path):
    net, data, _, _ = linear

    def labels(x):
        return net(torch.as_tensor(x)).argmax(1).numpy()

    scores = smooth(net, data, draws=200, samples=20, out=tmp_path / "scores")
    alone = smooth(labels, data, draws=200, samples=20, out=tmp_path / "labels")
    assert [rate.k for rate in alone.certified] == [rate.k for rate in scores.certified]


def test_a_sample_at_the_boundary_abstains(tmp_path):
    net = nn.Linear(2, 2).eval()
    net.weight.data, net.bias.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.zeros(2)
    data = brinell.data(
        np.zeros((4, 2), np.float32), np.zeros(4, int), kind="vector", bounds=(-10, 10)
    )
    result = smooth(net, data, draws=500, out=tmp_path / "run")
    assert result.open[0].k == 4 and result.certified[0].k == result.clean.k == 0


COUNTS = [
    (1, 1, 0.05),
    (99, 100, 0.001),
    (100, 100, 0.001),
    (5012, 10_000, 0.01),
    (3, 40, 0.4),
]


def test_the_exact_bound_is_that_of_the_beta_distribution(subtests):
    for k, n, alpha in COUNTS:
        with subtests.test(str(k)):
            assert clopper_pearson_low(k, n, alpha) == pytest.approx(
                stats.beta.ppf(alpha, k, n - k + 1), rel=1e-7
            )
            assert clopper_pearson_low(0, n, alpha) == 0


def test_what_makes_no_sense_is_refused(linear, tmp_path):
    net, data, _, _ = linear
    for settings, message in (
        ({"sigma": 0}, "sigma"),
        ({"draws": 9}, "9 draws cannot tell any class at alpha 0.001: 10 are the least"),
        ({"draws": 200, "eps": "3"}, "prove at most 0.913: take sigma=1.65.*, or more draws"),
        ({"alpha": 0.7}, "alpha"),
        ({"eps": "0"}, "names no budget above 0"),
    ):
        with pytest.raises(RequestError, match=message):
            smooth(net, data, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_gate_judges_the_proven_share(linear, tmp_path):
    net, data, _, _ = linear
    folder = tmp_path / "run"
    result = smooth(net, data, draws=500, eps="0:0.5:3", samples=60, out=folder)
    for share, passed in (
        (result.certified[1].low - 0.01, True),
        (result.certified[1].low + 0.01, False),
    ):
        assert brinell.gate(folder, certified=share, eps=0.25).passed is passed
    assert "has no robust accuracy" in brinell.gate(folder, robust=0.1).checks[0].text


def test_draws_end_once_the_radius_is_decided(linear, tmp_path):
    """The same samples are certified as by a fixed plan where the radius is clearly smaller than the
    distance, or larger; no radius is too large.
    """
    net, data, distance, _ = linear
    eps = 0.5
    smooth(net, data, draws=4000, eps=str(eps), samples=60, out=tmp_path / "fixed")
    smooth(net, data, draws=4000, eps=str(eps), samples=60, early="true", out=tmp_path / "early")
    fixed, early = (TABLE.read(tmp_path / name).rows for name in ("fixed", "early"))
    is_clear = np.repeat(np.abs(distance - eps) > 0.2, 2) & np.repeat(distance > 0.2, 2)
    assert is_clear.sum() > 60 and (fixed.outcome == early.outcome)[is_clear].all()
    radius = np.nan_to_num(early.proven_at.reshape(60, 2)[:, 0])
    assert (radius > distance + 1e-9).sum() <= 1


def test_how_many_draws_decide():
    """Draws by a known probability: a twentieth of the plan on the mean of clear inputs, and a wrong
    proof at most as often as alpha says.
    """
    rng = np.random.default_rng(0)

    def count_with(share):
        return lambda noisy: np.array([k := rng.binomial(len(noisy), share), len(noisy) - k])

    method = Smoothing(sigma=SIGMA, draws=10_000, early=True, alpha=0.05, first=10)
    x = torch.zeros(3)
    radius = 0.25
    limit = stats.norm.cdf(radius / SIGMA)
    draws = [
        method.bound(count_with(limit + change), x, 0, 0, (0.0, radius)).draws
        for change in (0.2, 0.25, 0.3)
        for _ in range(20)
    ]
    assert np.mean(draws) < 10_000 / 20
    few = Smoothing(sigma=SIGMA, draws=500, early=True, alpha=0.05, first=10)
    bounds = [few.bound(count_with(limit), x, 0, 0, (radius,)) for _ in range(200)]
    assert sum(few.radius(bound.low) >= radius for bound in bounds) <= 200 * 0.05 + 10
    assert few.largest < Smoothing(sigma=SIGMA, draws=500, alpha=0.05).largest


def test_what_all_draws_will_hardly_prove_is_given_up():
    """It is seldom given up where all draws prove it with even odds, and soon where the class is a
    little too rare.
    """
    rng = np.random.default_rng(1)

    def count_with(share):
        return lambda noisy: np.array([k := rng.binomial(len(noisy), share), len(noisy) - k])

    method = Smoothing(sigma=SIGMA, draws=2000, early=True, alpha=0.01)
    radius = SIGMA
    limit = stats.norm.cdf(1)
    hits = round(method._provable(limit) * 2001)
    for k, is_proof in ((hits, True), (hits - 1, False)):
        low = lower_end(ValueCounts(2000 - k, 0, k), 0.01)
        assert (low >= limit) is np.bool_(is_proof)

    outcomes = {}
    for share in (hits / 2000, limit - 0.03):
        bounds = [
            method.bound(count_with(share), torch.zeros(3), 0, 0, (radius,)) for _ in range(100)
        ]
        proven = np.array([method.radius(bound.low) >= radius for bound in bounds])
        draws = np.array([bound.draws for bound in bounds])
        outcomes[share] = (proven.mean(), (~proven & (draws < 2000)).mean(), draws.mean())
    at_even_odds, too_rare = outcomes.values()
    assert at_even_odds[1] <= 0.03 and 0.3 < at_even_odds[0] < 0.9
    assert too_rare[0] == 0 and too_rare[1] > 0.9 and too_rare[2] < 1000


def test_the_class_is_chosen_by_few_draws_where_it_leads():
    rng = np.random.default_rng(2)
    method = Smoothing(sigma=SIGMA, draws=500, early=True, first=100)
    for share, most in ((0.95, 16), (0.75, 40), (0.5, 100)):
        votes = [
            method._votes(
                lambda x, p=share: rng.multinomial(len(x), [1 - p, p]), torch.zeros(2), ""
            )
            for _ in range(100)
        ]
        sizes = np.array([count.sum() for count in votes])
        assert sizes.min() >= 16 and sizes.max() <= 100 and sizes.mean() <= most * 1.1
        right = np.mean([count.argmax() == 1 for count in votes])
        assert right >= 0.96 or share == 0.5
