"""What is fitted from answers is what was planted in the model that gave them."""

import pytest
import torch

from _helpers import Recorder, batch_of, threat_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.rlab.distort import variants
from brinell.rlab.prior import LEAST, Prior, describe, fit, likelihood, probe

IMAGE = Domain(kind="image", shape=(3, 12, 12))
GRID = PatchGrid((3, 12, 12), (3, 3))
COVARIANCE = torch.tensor([[1.5, 1.1, 0.0], [1.1, 1.2, 0.0], [0.0, 0.0, 0.3]])


def planted(n, seed=0):
    """Images with one loud quarter each, a gradient that is large there alone, and whose channels
    go together as planted."""
    draw = torch.Generator().manual_seed(seed)
    loud = torch.randint(4, (n,), generator=draw)
    rows, columns = torch.meshgrid(torch.arange(12) // 6, torch.arange(12) // 6, indexing="ij")
    planted_mask = (2 * rows + columns)[None] == loud[:, None, None]
    x = 0.5 + torch.where(planted_mask, 0.15, 0.02)[:, None] * torch.randn(
        n, 3, 12, 12, generator=draw
    )
    free = torch.randn(n, 3, 12, 12, generator=draw)
    mixed = torch.einsum(
        "ce,nehw->nchw", torch.linalg.cholesky(COVARIANCE + 1e-6 * torch.eye(3)), free
    )
    gradient = mixed * torch.where(planted_mask, 3.0, 0.3)[:, None]
    return x.clamp(0, 1), gradient, planted_mask


def probes_of(n=400, probes=20):
    x, gradient, planted_mask = planted(n)
    answered = {"at": 0}

    def logits(inputs):  # the oracle asks sample by sample in the order of the batch
        z = ((inputs - x) * gradient).sum((1, 2, 3)) - 50
        answered["at"] += 1
        return torch.stack([-z, z], 1) / 2

    batch = batch_of(x, torch.zeros(n, dtype=torch.int64))
    model = Recorder(logits, IMAGE)
    ledger = Ledger(
        model, batch, threat_of(torch.inf, "l2", IMAGE, n=n), access=Access.SCORES, batch_size=n
    )
    variant_list = variants([GaussianNoise()], IMAGE, (4, 5), 4)
    probe_results = probe(
        ledger.oracle(),
        batch,
        threat_of(torch.inf, "l2", IMAGE, n=n),
        GRID,
        variant_list,
        Streams.of(0, batch.ids),
        probes=probes,
    )
    return probe_results, x, gradient, planted_mask, ledger


@pytest.fixture(scope="module")
def fitted():
    probes, x, gradient, planted_mask, ledger = probes_of()
    prior = Prior(3, seed=1)
    before = likelihood(prior, probes).mean().item()
    fit(prior, probes, torch.Generator().manual_seed(0), steps=500, batch_size=32)
    return prior, (before, likelihood(prior, probes).mean().item()), probes, planted_mask, ledger


def test_probes_cost_what_they_say_and_tell_what_was_answered(fitted):
    _, _, probes, _, ledger = fitted
    assert ledger.costs.forwards.tolist() == [21] * 400
    assert probes.effect.shape == (400, 20) and probes.moments.shape == (400, 20, 4, 3, 3)
    assert torch.allclose(probes.moments, probes.moments.transpose(3, 4)), (
        "sums of products of two channels"
    )
    assert (probes.patches.sort(2).values.diff(dim=2) > 0).all(), "four different patches"


def test_moments_foretell_the_variance_of_the_effects():
    """With the planted energies and covariance, effects over their predicted deviations have mean
    square 1."""
    probes, _, _, planted_mask, _ = probes_of(n=120, probes=10)
    energy = torch.where(planted_mask, 9.0, 0.09).flatten(1)[:, GRID.members].mean(2)
    trace = torch.einsum("npkce,ce->npk", probes.moments, COVARIANCE)
    variance = (energy.gather(1, probes.patches.flatten(1)).view_as(trace) * trace).sum(2)
    assert (probes.effect.square() / variance).mean().item() == pytest.approx(1.0, abs=0.15)


def test_the_planted_energies_are_recovered(fitted):
    prior, losses, _, _, _ = fitted
    x, _, planted_mask = planted(40, seed=9)
    energy = prior.energies(describe(x, GRID))
    loud = planted_mask.flatten(1)[:, GRID.members].float().mean(2) == 1
    assert energy.mean(1).sub(1).abs().max() < 0.05 and losses[1] < losses[0]
    ratio = energy[loud].mean() / energy[~loud].mean()
    assert ratio > 20, "planted: 100"


def test_the_planted_covariance_is_recovered(fitted):
    prior = fitted[0]
    covariance = prior.channel_covariance().detach()
    assert covariance.trace().item() == pytest.approx(3.0, rel=1e-5)
    assert (covariance - COVARIANCE).abs().max() < 0.2, "the identity is 1.1 away"
    mixed = prior.covariance_for(3)
    assert torch.allclose(mixed, (1 - LEAST) * covariance + LEAST * torch.eye(3))
    assert prior.covariance_for(1) is None and Prior().covariance_for(3) is None


def test_before_it_is_fitted_all_is_alike():
    content = torch.randn(2, 16, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(Prior(3, seed=4).energies(content), torch.ones(2, 16))
    assert torch.equal(Prior(3).channel_covariance(), torch.eye(3))


def test_the_seed_decides_and_nothing_else_does():
    before = torch.get_rng_state()
    first_prior, same_seed, other_seed = Prior(3, seed=1), Prior(3, seed=1), Prior(3, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    first = next(first_prior.network.parameters())
    assert torch.equal(first, next(same_seed.network.parameters())) and not torch.equal(
        first, next(other_seed.network.parameters())
    )
