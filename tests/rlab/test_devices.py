"""RLAB on a device: what is computed for many slots at once there is what the processor computes
for one after the other.
"""

import pytest
import torch

from _environments import predicted
from _helpers import mlp
from _second_device import NAME, second_device
from brinell import plugins
from brinell.core.contracts import reach_of
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.model import Access, ModelInfo
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.distortions.gaussian_blur import GaussianBlur
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.rlab import memory, sensitivity
from brinell.rlab.distort import DistortedInputs, variants
from brinell.rlab.sensitivity import Posterior

IMAGES = Domain(kind="image", shape=(1, 4, 4))
DISTORTIONS = (GaussianNoise(), GaussianBlur())


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# The linear models


def answers_of(device, surrogates):
    """Means, expectations and variances of three slots that had different numbers of answers, one
    of them two samples."""
    model = Posterior(
        3,
        2,
        5,
        surrogates=surrogates,
        covariance=torch.tensor([[1.0, 0.4], [0.4, 1.0]]),
        device=device,
    )
    every = torch.arange(3, device=device)
    if surrogates:
        model.follow(every, normal(3, surrogates, 2, 5, seed=9).to(device))
    questions = [[0, 1, 2], [2, 0], [1], [0, 1, 2], [2, 1, 0], [0, 2], [0, 1, 2]]
    for number, slots in enumerate(questions):
        if number == 4:
            model.forget(torch.tensor([1], device=device), torch.full((1, 5), 0.5, device=device))
        change, effect = (
            normal(len(slots), 2, 5, seed=number),
            normal(len(slots), seed=100 + number),
        )
        model.update(torch.tensor(slots, device=device), change.to(device), effect.to(device))
    return [
        values.cpu()
        for values in (model.mean, *predicted(model, every, normal(3, 2, 5, seed=50).to(device)))
    ]


@pytest.mark.parametrize("surrogates", [0, 2])
@pytest.mark.parametrize("kept", [0, 3, 128])
def test_models_of_many_slots_learn_what_each_learns_by_itself(monkeypatch, surrogates, kept):
    """Whether all answers are kept, the last three or none."""
    monkeypatch.setattr(sensitivity, "ANSWERS", kept)
    expected = answers_of("cpu", surrogates)
    with second_device() as reads:
        actual = answers_of(NAME, surrogates)
    assert sum(reads.values()) == 3, "the answers of this test alone"
    for values, value in zip(actual, expected, strict=True):
        torch.testing.assert_close(values, value, rtol=1e-5, atol=1e-6)


def test_a_new_sample_forgets_on_a_device_too():
    with second_device():
        used, fresh = Posterior(2, 1, 4, device=NAME), Posterior(2, 1, 4, device=NAME)
        rows, ones = torch.arange(2, device=NAME), torch.ones(2, 4, device=NAME)
        used.update(rows, normal(2, 1, 4, seed=0).to(NAME), torch.ones(2, device=NAME))
        used.forget(rows, ones)
        change, effect = normal(2, 1, 4, seed=1).to(NAME), torch.ones(2, device=NAME)
        for model in (used, fresh):
            model.update(rows, change, effect)
        assert torch.equal(used.mean, fresh.mean)


# The distorted inputs


def inputs_of(device):
    """All distorted inputs, of samples that came at different times."""
    x, streams = (
        Streams.of(0, torch.arange(6)).uniform(1, 4, 4).to(device),
        Streams.of(0, torch.arange(6, device=device)),
    )
    inputs = DistortedInputs(6, IMAGES, variants(DISTORTIONS, IMAGES, (1, 4), 2), x.device)
    for rows in ([2, 4], [0, 1, 3, 5], [4]):
        index = torch.tensor(rows, device=device)
        inputs.put(index, x[index], streams.select(index))
    every = torch.arange(len(inputs.variants), device=device)
    return torch.stack(
        [inputs.inputs(torch.full_like(every, row), every) for row in range(6)]
    ).cpu()


def test_inputs_that_are_made_together_are_those_made_one_by_one():
    expected = inputs_of("cpu")
    with second_device():
        actual = inputs_of(NAME)
    assert torch.equal(actual, expected)


# Whole attacks


class Network:
    name, info, access, classes, domain = "network", ModelInfo(), Access.GRADIENTS, 3, IMAGES

    def __init__(self, device):
        self.module = mlp(16).to(device)

    def predict(self, x):
        return self.module(x)


def attacked(device, options, eps, queries=None, n=3):
    """What an attack found and spent."""
    model = Network(device)
    _, _, options = plugins.parse(f"rlab?{options}")
    attack = plugins.build("attack", "rlab", options)
    x = torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(1)).to(device) * 0.5 + 0.25
    with torch.no_grad():
        batch = Batch(ids=torch.arange(n, device=device), x=x, y=model.predict(x).argmax(1))
    threat = Threat(
        distance=plugins.build("distance", "l2", {}),
        eps=torch.full((n,), eps, device=device),
        domain=IMAGES,
    )
    ledger = Ledger(
        model, batch, threat, access=attack.access, queries=queries, reach=reach_of(attack, "l2")
    )
    extras = attack(ledger.oracle(), ledger.batch, ledger.threat, Streams.of(0, batch.ids))
    placed = torch.as_tensor(extras.arrays["patches"])
    return [
        values.cpu()
        for values in (
            ledger.best.first_success,
            ledger.best.distance,
            ledger.costs.forwards,
            placed,
        )
    ]


def compare(options, eps, queries=None, n=3):
    """Check that an attack on the device is that on the processor; how many samples it fooled."""
    expected = attacked("cpu", options, eps, queries, n)
    with second_device():
        actual = attacked(NAME, options, eps, queries, n)
    assert all(map(torch.equal, actual, expected))
    return int((expected[0] > 0).sum())


SETTINGS = {
    "success": ("steps=6&draws=2", 2.0, None),
    "few slots": ("steps=5&slots=2&draws=2&clean_up=false", 2.0, None),
    "few queries": ("steps=20&draws=2", 2.0, 7),
    "learned content": ("steps=20&draws=2&learned=true", 0.5, None),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_attacks_on_a_device_find_what_they_find_on_the_processor(name):
    assert compare(*SETTINGS[name])


def test_a_memory_is_fitted_on_the_device_of_the_samples(monkeypatch):
    monkeypatch.setattr(memory, "FEWEST", 6)
    with second_device():
        *_, forwards, _ = attacked(NAME, "steps=6&draws=2&memory=0.5", 0.5, n=6)
    assert (forwards >= 1).all()


@pytest.mark.slow
def test_long_attacks_too(subtests):
    """Those that get stuck, too."""
    for options, eps in (
        ("steps=40&slots=4", 0.8),
        ("steps=120&patch=2&stride=2", 0.05),
        ("steps=40&slots=4&distortions=gaussian-noise+gaussian-blur&draws=2", 1.0),
    ):
        with subtests.test(options):
            compare(options, eps, n=6)
