"""The generator learns what a class looks like, repeatably, and comes back from its file as it was."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from _refusals import refused
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.manifest import DomainFacts
from brinell.studies.generator import TrainGeneratorRequest
from brinell.studies.generator import run as training
from brinell.studies.generator.generator import GenerativeModel, Header, load
from brinell.studies.generator.networks import GAIN, Critic, Generator, fits
from brinell.studies.generator.run import train

IMAGES = Domain(kind="image", shape=(1, 8, 8), low=-1.0, high=3.0)


def halves(n=64):
    """Class 0 is bright above, class 1 below."""
    rng = np.random.default_rng(0)
    x, y = np.full((n, 1, 8, 8), -0.8, np.float32), np.arange(n) % 2
    for image, label in zip(x, y, strict=True):
        image[0, 4 * label : 4 * label + 4] = rng.uniform(1, 2.5)
    return torch.from_numpy(x), torch.from_numpy(y)


def taught(rate=1e-3, **lessons):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"BATCH_SIZE": 32, "LATENT": 4, "WIDTHS": (4, 4), "RATE": rate}.items():
            patch.setattr(training, name, value)
        return train(*halves(), IMAGES, 2, TrainGeneratorRequest(**lessons), lambda message: None)


@pytest.fixture(scope="module")
def learned():
    return taught(steps=200, rate=4e-3)


@pytest.fixture
def generator_file(learned):
    domain, request = DomainFacts.model_validate(IMAGES.to_json()), TrainGeneratorRequest()
    facts = {"data_digest": "-", "latent": 4, "width": 4}
    header = Header(domain=domain, classes=["up", "down"], request=request, **facts)
    generator, classifier, _ = learned
    return GenerativeModel(generator=generator, classifier=classifier, header=header)


def draw_inputs(generator, n=40):
    z = torch.randn(n, generator.latent, generator=torch.Generator().manual_seed(1))
    y = torch.arange(n) % 2
    with torch.no_grad():
        return generator(z, y), y


@pytest.mark.slow
def test_what_is_drawn_shows_the_class_that_was_asked_for(learned):
    generator, classifier, steps = learned
    x, y = draw_inputs(generator)
    assert steps == 200 and float(x.min()) >= IMAGES.low and float(x.max()) <= IMAGES.high
    shown_class = (x[:, 0, 4:].mean((1, 2)) > x[:, 0, :4].mean((1, 2))).long()
    assert float((shown_class == y).float().mean()) >= 0.95
    with torch.no_grad():
        real, labels = halves()
        assert (classifier(real).argmax(1) == labels).all()


def test_the_same_seed_the_same_weights_and_no_other_generator_is_touched():
    before = torch.get_rng_state()
    first, two, other_seed = (
        taught(steps=3, seed=5),
        taught(steps=3, seed=5),
        taught(steps=3, seed=6),
    )
    assert torch.equal(torch.get_rng_state(), before)
    for a, b, c in zip(
        first[0].parameters(), two[0].parameters(), other_seed[0].parameters(), strict=True
    ):
        assert torch.equal(a, b)
        assert a.ndim == 1 or not torch.equal(a, c)


def test_an_input_does_not_depend_on_those_beside_it(learned):
    generator = learned[0]
    z, y = (
        torch.randn(6, 4, generator=torch.Generator().manual_seed(2)),
        torch.tensor([0, 1, 0, 1, 0, 0]),
    )
    with torch.no_grad():
        torch.testing.assert_close(generator(z, y)[4:5], generator(z[4:5], y[4:5]))


def test_the_critic_is_held_to_its_gain():
    with torch.random.fork_rng(devices=[]):
        critic = Critic(IMAGES, 2, width=4)
    with torch.no_grad():
        for layer in critic.bounded:
            layer.weight.mul_(10)
        for _ in range(60):
            critic.bound()
    for layer in critic.bounded:
        assert float(
            torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2)
        ) == pytest.approx(GAIN, rel=0.02)


def test_a_generator_comes_back_from_its_file(generator_file, tmp_path):
    file = tmp_path / "folder" / "kept.safetensors"
    generator_file.save(file)
    loaded = load(file)
    assert (loaded.header, loaded.generator.domain) == (generator_file.header, IMAGES)
    # Weights in float16: the drawings differ by less than a level of an 8-bit picture.
    torch.testing.assert_close(
        draw_inputs(loaded.generator)[0],
        draw_inputs(generator_file.generator)[0],
        atol=4 / 255,
        rtol=0,
    )
    loaded.save(file)
    assert load(file).digest == loaded.digest and not list(file.parent.glob("*.part"))


def test_what_is_no_generator_is_refused(generator_file, tmp_path):
    file = tmp_path / "kept.safetensors"
    with pytest.raises(RequestError, match="there is no generator"):
        load(file)
    file.write_bytes(b"nonsense")
    with pytest.raises(RequestError, match="is no generator"):
        load(file)
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(RequestError, match="is no generator"):
        load(file)
    generator_file.save(file)
    tensors, header = load_file(file), metadata(file)
    save_file(
        tensors
        | {
            "generator.spread.weight": torch.full_like(
                tensors["generator.spread.weight"], torch.nan
            )
        },
        file,
        header,
    )
    with pytest.raises(RequestError, match="NaN"):
        load(file)
    save_file(
        {name: value for name, value in tensors.items() if name != "classifier.name.bias"},
        file,
        header,
    )
    with pytest.raises(RequestError, match="damaged"):
        load(file)
    save_file(
        tensors,
        file,
        {"brinell.generator": header["brinell.generator"].replace('"format":1', '"format":0')},
    )
    with pytest.raises(RequestError, match="another version"):
        load(file)


def metadata(file):
    from safetensors import safe_open

    with safe_open(file, "pt") as stored_tensors:
        return stored_tensors.metadata()


def test_data_of_another_space_are_refused(generator_file):
    generator_file.check(IMAGES, 2)
    for domain, classes in ((IMAGES, 3), (Domain(kind="image", shape=(1, 8, 8)), 2)):
        with pytest.raises(
            RequestError, check=refused("studies.generator.generator.GenerativeModel.check")
        ):
            generator_file.check(domain, classes)


def test_inputs_that_cannot_be_drawn():
    assert fits(IMAGES) == "" and "images" in fits(Domain(kind="vector", shape=(4,)))
    assert "multiples of 4" in fits(Domain(kind="image", shape=(1, 10, 8)))
    with pytest.raises(ValueError, match="steps"):
        TrainGeneratorRequest(steps=0)


def test_three_channels_and_sides_that_differ():
    domain = Domain(kind="image", shape=(3, 12, 8))
    with torch.random.fork_rng(devices=[]):
        generator, critic = (
            Generator(domain, 2, latent=3, width=4).eval(),
            Critic(domain, 2, width=4),
        )
    x = generator(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert x.shape == (2, 3, 12, 8) and critic(x).shape == (2, 2)
