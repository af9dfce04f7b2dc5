"""What the linear model knows of an input: distances and predictions are those of the input."""

import pytest
import torch

from _helpers import batch_of, threat_of
from _placing import linear
from brinell.attacks.rlab import RLAB
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions.brightness import Brightness
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.distort import variants
from brinell.rlab.episodes import FIRST, PATIENT, START
from brinell.rlab.projection import Projection

CASES = [
    ("image", (3, 10, 13), (4, 3)),
    ("image", (1, 8, 8), (2, 2)),
    ("signal", (2, 17), (5,)),
    ("video", (3, 4, 6, 5), (2, 3, 4)),
    ("vector", (11,), (3,)),
]
"""Kinds of data, shapes and patches, most of which are cut off at an edge."""


def projection_of(kind, shape, patch, distortion=SignedPatch, stride=None, learned=False):
    grid = PatchGrid(shape, patch, stride)
    offered = variants((distortion(),), Domain(kind=kind, shape=shape), draws=2)
    return Projection.of(grid, offered, learned=learned)


@pytest.mark.parametrize(("kind", "shape", "patch"), CASES)
def test_constants_on_patches_keep_their_products_and_lengths(kind, shape, patch):
    projection = projection_of(kind, shape, patch)
    lattice = projection.lattice
    assert projection.constant and len(lattice) == len(projection.grid)
    generator = torch.Generator().manual_seed(len(shape))
    constants = torch.randn(5, lattice.channels, lattice.places, generator=generator)
    x = projection.spread(constants).view(5, *shape)
    gradient = torch.randn(1, *shape, generator=generator)

    projected = projection.project(x).flatten(1)
    assert torch.allclose(projected, constants.flatten(1), atol=1e-5)
    assert torch.allclose(projected.norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-5)
    effects = (projected * projection.project(gradient).flatten(1)).sum(1)
    assert torch.allclose(effects, (x * gradient).flatten(1).sum(1), atol=1e-4)


@pytest.mark.parametrize(
    "other",
    [{"distortion": GaussianNoise}, {"distortion": Brightness}, {"stride": (2, 2)}]
    + [{"learned": True}],
)
def test_values_stay_apart_where_content_differs_within_a_patch(other):
    projection = projection_of("image", (3, 8, 8), (4, 4), **other)
    x = torch.rand(2, 3, 8, 8)
    assert not projection.constant and projection.project(x) is x


class Fine(SignedPatch):
    """The same content; that it is constant is not said."""

    constant = False


def ratio_to_the_shortest(distortion, steps=120):
    """The mean distance that RLAB finds without a budget, over the shortest one that constants on
    patches allow, for linear models with random weights."""
    domain = Domain(kind="image", shape=(1, 32, 32))
    shape = PatchGrid(domain.shape, (2, 2))
    ratios = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(domain.shape, generator=generator)
        model = linear(weights, -0.5 * float(weights.sum()) - 2, domain=domain)
        ledger, x = open_ledger(model, torch.full((2, *domain.shape), 0.5))
        rlab = RLAB(
            distortions=(distortion,), patch=2, policy="greedy", steps=steps, clean_up=False
        )
        rlab(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(seed, ledger.batch.ids))
        projected = Projection(shape, constant=True).project(weights[None])
        shortest = 2 / float(projected.norm())
        ratios.append(float(ledger.best.distance.mean()) / shortest)
        assert int(ledger.costs.forwards.max()) <= 1 + steps and len(x) == len(ledger.batch)
    return sum(ratios) / len(ratios)


def open_ledger(model, x):
    batch = batch_of(x, torch.zeros(len(x), dtype=torch.int64))
    threat = threat_of(torch.inf, "l2", model.domain, n=len(x))
    return Ledger(model, batch, threat, access=Access.SCORES), x


def test_a_model_of_patches_finds_what_a_model_of_values_finds():
    """What is not constant on patches is never asked about, so nothing is lost without it."""
    by_patch = ratio_to_the_shortest(SignedPatch())
    assert 1 <= by_patch < 2.5
    assert by_patch == pytest.approx(ratio_to_the_shortest(Fine()), rel=0.01)


def sizes_of(steps, patch=2, **settings):
    """The L2 distances of all inputs that a model is shown which nothing fools."""
    domain = Domain(kind="image", shape=(3, 24, 24))
    generator = torch.Generator().manual_seed(5)
    weights = 1e-3 * torch.randn(domain.shape, generator=generator)
    model = linear(weights, -0.5 * float(weights.sum()) - 1.0, domain=domain)
    ledger, x = open_ledger(model, torch.full((1, *domain.shape), 0.5))
    rlab = RLAB(distortions=(SignedPatch(),), patch=patch, steps=steps, clean_up=False, **settings)
    rlab(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, ledger.batch.ids))
    return torch.stack([(call - x).norm() for call in model.calls])


def test_without_a_budget_the_first_queries_are_near_and_the_last_anywhere():
    sizes = sizes_of(PATIENT)
    assert sizes[0] == 0
    assert float(sizes[1 : FIRST + 1].max()) <= START * 1728**0.5 + 1e-5
    assert float(sizes[PATIENT // 2 :].max()) > 2


@pytest.mark.parametrize(
    "settings", [{"steps": 9}, {"steps": PATIENT, "refine": 0}, {"steps": PATIENT, "patch": 6}]
)
def test_where_any_success_counts_all_of_the_bounds_is_open_from_the_first_step_on(settings):
    assert float(sizes_of(**settings)[1]) > 0.5
