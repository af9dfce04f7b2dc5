"""`brinell smooth` on linear models, whose probabilities under noise and radii are known."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import brinell
from brinell.core.errors import RequestError
from brinell.core.intervals import clopper_pearson_low
from brinell.store.folder import PAGE
from brinell.studies.smooth import STUDY

SIGMA = 0.5
TABLE = STUDY.resolve(STUDY.table)


@pytest.fixture(scope="module")
def linear():
    """A linear model of two classes, inputs far from the bounds, labels, and the exact distance (negative if misclassified)."""
    generator = torch.Generator().manual_seed(1)
    net = nn.Linear(6, 2).eval()
    net.weight.data, net.bias.data = torch.randn(2, 6, generator=generator), torch.zeros(2)
    x = torch.randn(60, 6, generator=generator)
    weight = (net.weight[1] - net.weight[0]).detach().double()
    distance = (x.double() @ weight) / weight.norm()
    y = (distance > 0).long()
    y[:5] = 1 - y[:5]
    return net, brinell.data(x.numpy(), y.numpy(), kind="vector", bounds=(-100, 100)), distance.abs().numpy(), y.numpy()


def test_radii_come_near_the_true_distance_from_below(linear, tmp_path):
    net, data, distance, y = linear
    result = brinell.smooth(net, data, sigma=SIGMA, draws=4000, eps="0:1:5", samples=60, out=tmp_path / "run")
    rows = TABLE.read(tmp_path / "run").rows
    limit = SIGMA * stats.norm.ppf(0.001 ** (1 / 4000))
    # Each radius may be too large with a probability of 0.001; of 60 none is, but for what one of them may.
    assert (rows.radius > distance + 1e-9).sum() <= 1
    told = distance > 0.1
    assert (rows.radius[told] > np.minimum(distance[told], limit) * 0.75 - 0.08).all()
    assert (rows.prediction[told] == np.where(np.arange(60) < 5, 1 - y, y)[told]).all()
    share = stats.norm.cdf(distance / SIGMA)
    assert abs((rows.count / 4000 - share)[told]).max() < 0.04
    assert result.n == 60 and result.queries == 60 * 4100 and result.request.alpha == 0.001
    assert [rate.eps for rate in result.certified] == [0, 0.25, 0.5, 0.75, 1]
    values = [rate.k for rate in result.certified]
    assert values == sorted(values, reverse=True)
    right = (np.arange(60) >= 5) & (rows.radius > 0)
    assert values == [int((right & (rows.radius >= level)).sum()) for level in (0, 0.25, 0.5, 0.75, 1)]
    assert (tmp_path / "run" / PAGE).exists()


def test_neither_batches_nor_order_change_the_counts(linear, tmp_path):
    net, data, _, _ = linear
    for name, size in (("one", 7), ("two", 300)):
        brinell.smooth(net, data, sigma=SIGMA, draws=300, samples=30, batch_size=size, out=tmp_path / name)
    first, second = (TABLE.read(tmp_path / name).rows for name in ("one", "two"))
    assert (first.count == second.count).all() and (first.prediction == second.prediction).all()


def test_labels_alone_are_enough(linear, tmp_path):
    net, data, _, _ = linear

    def labels(x):
        return net(torch.as_tensor(x)).argmax(1).numpy()

    scores = brinell.smooth(net, data, sigma=SIGMA, draws=200, samples=20, out=tmp_path / "scores")
    alone = brinell.smooth(labels, data, sigma=SIGMA, draws=200, samples=20, out=tmp_path / "labels")
    assert [rate.k for rate in alone.certified] == [rate.k for rate in scores.certified]


def test_a_sample_at_the_boundary_abstains(tmp_path):
    net = nn.Linear(2, 2).eval()
    net.weight.data, net.bias.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.zeros(2)
    data = brinell.data(np.zeros((4, 2), np.float32), np.zeros(4, int), kind="vector", bounds=(-10, 10))
    result = brinell.smooth(net, data, sigma=SIGMA, draws=500, out=tmp_path / "run")
    assert result.abstained == 4 and result.certified[0].k == 0 and result.median_radius is None


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
            assert clopper_pearson_low(k, n, alpha) == pytest.approx(stats.beta.ppf(alpha, k, n - k + 1), rel=1e-7)
            assert clopper_pearson_low(0, n, alpha) == 0


def test_what_makes_no_sense_is_refused(linear, tmp_path):
    net, data, _, _ = linear
    for settings, message in (
        ({"sigma": 0}, "sigma"),
        ({"draws": 9}, "9 draws cannot tell any class at alpha 0.001: --draws 10"),
        ({"draws": 200, "eps": "3"}, "prove at most 0.456: take --sigma 1.65.*, or more draws"),
        ({"alpha": 0.7}, "alpha"),
        ({"eps": "0"}, "names no radius above 0"),
    ):
        with pytest.raises(RequestError, match=message):
            brinell.smooth(net, data, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_gate_judges_the_proven_share(linear, tmp_path):
    net, data, _, _ = linear
    folder = tmp_path / "run"
    result = brinell.smooth(net, data, sigma=SIGMA, draws=500, eps="0:0.5:3", samples=60, out=folder)
    for share, passed in ((result.certified[1].low - 0.01, True), (result.certified[1].low + 0.01, False)):
        assert brinell.gate(folder, certified=share, eps=0.25).passed is passed
    assert "has no robust accuracy" in brinell.gate(folder, robust=0.1).checks[0].text
