"""The linear model of the answers: exact where answers are linear."""

import pytest
import torch

from brinell.rlab.sensitivity import Posterior


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("energies", ["alike", "different"])
def test_after_every_value_was_asked_about_once_the_mean_is_the_gradient(energies):
    gradient = normal(2, 3, 4)
    posterior = Posterior(2, 3, 4, noise=0)
    if energies == "different":
        posterior.forget(
            torch.arange(2), torch.rand(2, 4, generator=torch.Generator().manual_seed(1)) + 0.1
        )
    for channel in range(3):
        for place in range(4):
            change = torch.zeros(2, 3, 4)
            change[:, channel, place] = 0.5
            posterior.update(torch.arange(2), change, (gradient * change).sum((1, 2)))
    assert torch.allclose(posterior.mean, gradient, atol=1e-6)


def test_an_update_foretells_its_answer_and_leaves_what_is_uncorrelated_alone():
    """By hand: with K = [[1, .5], [.5, 1]] half of what one channel teaches is believed of the
    other, at that place alone.
    """
    covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    posterior = Posterior(2, 2, 3, covariance=covariance, noise=0)
    change = torch.zeros(1, 2, 3)
    change[0, 0, 1] = 2.0
    posterior.update(torch.tensor([1]), change, torch.tensor([3.0]))
    assert posterior.mean[1].tolist() == [[0, 1.5, 0], [0, 0.75, 0]]
    assert not posterior.mean[0].any(), "the other slot learned nothing"


def test_energy_says_where_an_effect_is_looked_for():
    """One answer about two places is shared out in proportion to their energies: 3 to 1."""
    posterior = Posterior(1, 1, 2, noise=0)
    posterior.forget(torch.tensor([0]), torch.tensor([[1.5, 0.5]]))
    posterior.update(torch.tensor([0]), torch.ones(1, 1, 2), torch.tensor([4.0]))
    assert posterior.mean.tolist() == [[[3.0, 1.0]]]


def test_without_noise_any_update_foretells_its_answer():
    covariance = normal(3, 3)
    covariance = covariance @ covariance.T
    posterior, rows = Posterior(4, 3, 5, covariance=covariance, noise=0), torch.tensor([2, 0])
    for step in range(6):
        change, effect = normal(2, 3, 5, seed=step), normal(2, seed=100 + step)
        posterior.update(rows, change, effect)
        assert torch.allclose((posterior.mean[rows] * change).sum((1, 2)), effect, atol=1e-4)


def test_the_mean_is_that_of_bayesian_linear_regression():
    """Known in closed form: C D' (D C D' + noise)^-1 e, where D are the changes and C is the
    covariance of the prior.
    """
    covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
    posterior, row = Posterior(3, 2, 4, covariance=covariance, noise=0.3), torch.tensor([1])
    energy = torch.tensor([[1.5, 0.5, 1.0, 1.0]])
    posterior.forget(row, energy)
    changes, effects = normal(6, 2, 4), normal(6, seed=1)
    for change, effect in zip(changes, effects, strict=True):
        posterior.update(row, change[None], effect[None])
    prior, observed_changes = torch.kron(covariance, torch.diag(energy[0])), changes.flatten(1)
    answered = observed_changes @ prior @ observed_changes.T
    expected = (
        prior
        @ observed_changes.T
        @ torch.linalg.solve(answered + 0.3 * answered.diagonal().diag(), effects)
    )
    assert torch.allclose(posterior.mean[1].flatten(), expected, atol=1e-5)
    posterior.forget(row, energy)
    posterior.update(row, changes[:1], effects[:1])
    single = (prior @ observed_changes[0]) * effects[0] / (1.3 * answered[0, 0])
    assert torch.allclose(posterior.mean[1].flatten(), single, atol=1e-5), (
        "what was forgotten still reduces the covariance"
    )


def test_only_the_last_answers_reduce_the_covariance(monkeypatch):
    """Room for one: an answer about the first place is followed by one about the second, and the
    first is open again.
    """
    monkeypatch.setattr("brinell.rlab.sensitivity.HELD", 2)
    posterior, row = Posterior(1, 1, 2, noise=0), torch.tensor([0])
    first, second = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    for change, effect in ((first, 2.0), (second, 3.0), (first + second, 7.0)):
        posterior.update(row, change, torch.tensor([effect]))
    assert torch.allclose(posterior.mean, torch.tensor([[[4.0, 3.0]]])), (
        "all of the surprise belongs to the place that is open"
    )


def test_the_unit_is_the_measured_root_mean_square_and_is_forgotten():
    posterior = Posterior(1, 1, 2)
    assert posterior.unit.tolist() == [1.0]
    row = torch.tensor([0])
    posterior.update(row, torch.tensor([[[2.0, 0.0]]]), torch.tensor([6.0]))  # 3 units
    posterior.update(row, torch.tensor([[[0.0, 1.0]]]), torch.tensor([4.0]))  # 4 units
    assert posterior.unit.item() == pytest.approx(12.5**0.5)
    posterior.forget(row, torch.ones(1, 2))
    assert posterior.unit.tolist() == [1.0] and not posterior.mean.any()
