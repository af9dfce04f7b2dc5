"""Each way of asking a model otherwise than it was trained is planted and named; healthy models raise no alarm."""

import numpy as np
import pytest
import torch

from _helpers import Recorder, audited, opened
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.engine.clean_accuracy import EVERY, GAIN, SHOWN, check, forms, spread

COLOUR = Domain(kind="image", shape=(3, 6, 6))
GREY = Domain(kind="image", shape=(1, 6, 6))
BYTES = Domain(kind="image", shape=(3, 6, 6), low=0, high=255, levels=256)
FLAT = Domain(kind="vector", shape=(64,))
NORMALISED = Domain(kind="image", shape=(3, 6, 6), low=-3.0, high=3.0)
CLASSES, N = 5, 80


def data(domain, n=N, seed=0):
    """Inputs near one template for each class, and a model of [0, 1] that knows the templates.

    The templates differ in brightness, in contrast and in the order of values, so that every change of form mixes them up.
    """
    rng = torch.Generator().manual_seed(seed)
    one = torch.rand(domain.shape, generator=rng)
    turned = one.transpose(-1, -2) if one.ndim == 3 else one.roll(9)
    templates = torch.stack([one, one.flip(0 if len(one) == 3 else -1), turned, 0.5 * one, 0.4 + 0.3 * one])
    y = torch.arange(n) % CLASSES
    x = (templates[y] + 0.05 * torch.randn(n, *domain.shape, generator=rng)).clamp(0, 1)
    low, high = domain.bounds()

    def base(z):
        return -20 * (z[:, None] - templates[None]).flatten(2).square().sum(2)

    return low + (high - low) * x, y.numpy(), lambda z: base((z - low) / (high - low))


def undone(form, z):
    """What a form was made of."""
    if form.order is not None:
        if "rows and columns" in form.text:
            return z.transpose(-1, -2)
        return z.permute(0, 2, 3, 1).reshape(z.shape)
    z = z.flip(1) if form.flip else z
    shape = (1, -1, *[1] * (z.ndim - 2))
    return z * torch.tensor(form.std).reshape(shape) + torch.tensor(form.mean).reshape(shape)


def looked(function, x, y, domain, spec="", classes=CLASSES):
    model = Recorder(function, domain, classes)
    pred = model.predict(x).argmax(1).numpy()
    before = model.seen
    found, forwards = check(model, pred, y, lambda at: x[torch.as_tensor(at)], spec=spec)
    assert forwards == model.seen - before, "every forward is counted"
    return found, forwards


PLANTED = [(domain, form) for domain in (COLOUR, GREY, BYTES, FLAT, NORMALISED) for form in forms(domain)]


@pytest.mark.parametrize(("domain", "form"), PLANTED, ids=lambda one: getattr(one, "text", "") or f"{one.shape} {one.high:g}")
def test_inputs_in_another_form_are_named(domain, form):
    x, y, base = data(domain)
    found, forwards = looked(lambda z: base(undone(form, z)), x, y, domain)
    assert found.code == Code.CLEAN and found.passed is False
    # Which of the data's normalisations it was cannot be told from 64 samples: their means and deviations are alike.
    assert f"with inputs {form.text.split(' of ')[0]}" in found.text
    assert 0 < forwards <= len(forms(domain)) * SHOWN


def test_what_a_picture_can_have_been():
    texts = " | ".join(form.text for form in forms(COLOUR))
    for word in ("255", "ImageNet", "CIFAR-10", "0.5", "BGR", "rows and columns", "channels were last"):
        assert word in texts
    assert "MNIST" in " ".join(form.text for form in forms(GREY)) and "MNIST" in " ".join(form.text for form in forms(FLAT))
    assert not forms(Domain(kind="signal", shape=(1, 9), low=0.0, high=5.0)), "millivolts have no usual normalisation"


def test_the_advice_is_what_the_model_takes():
    form = next(form for form in forms(COLOUR) if form.text.endswith("of ImageNet") and not form.flip)
    assert form.advice("onnx:net.onnx") == ("write mean=0.485+0.456+0.406&std=0.229+0.224+0.225 in the model's options")
    assert form.advice("") == "give preprocessing={'mean': [0.485, 0.456, 0.406], 'std': [0.229, 0.224, 0.225], 'axis': -3}"
    assert form.advice("torch:net.py:make").startswith("let the model begin with (x - mean) / std with mean 0.485, 0.456, 0.406")
    reverse = next(form for form in forms(COLOUR) if form.flip)
    assert reverse.advice("torch:net.py:make").endswith("x.flip(1)")


@pytest.mark.parametrize(
    ("order", "line"),
    [
        (lambda y: (y + 1) % CLASSES, "the model's class 0 is the label 4, 1 is the label 0, 2 is the label 1, 3 is the label 2"),
        (lambda y: np.array([3, 0, 4, 1, 2])[y], "with the classes in another order right on"),
        (lambda y: np.array([0, 1, 2, 4, 3])[y], "the model's class 3 is the label 4, 4 is the label 3"),
    ],
)
def test_classes_in_another_order_are_named(order, line):
    x, y, base = data(COLOUR, n=200)
    found, _ = looked(lambda z: base(z)[:, np.argsort(order(np.arange(CLASSES)))], x, y, COLOUR)
    assert found.passed is False and line in found.text


@pytest.mark.parametrize(("by", "line"), [(1, "take 1 from the labels"), (-1, "add 1 to the labels")])
def test_labels_that_are_shifted_by_one(by, line):
    x, y, base = data(COLOUR)
    x, y = x[y != CLASSES - 1], y[y != CLASSES - 1]
    if by < 0:
        x, y = x[y > 0], y[y > 0]
    found, _ = looked(base, x, y + by, COLOUR)
    assert found.passed is False and line in found.text


def test_a_permutation_of_many_classes_is_not_made_up():
    """A model that guesses among 500 classes looks good under the permutation that its own answers show, and is not."""
    rng = np.random.default_rng(0)
    y = rng.permutation(500)[:200]
    logits = torch.from_numpy(rng.normal(size=(200, 500))).float()
    x = torch.arange(200)[:, None].expand(-1, 64).float() / 200
    found, _ = looked(lambda z: logits[(z[:, 0] * 200).round().long().clamp(0, 199)], x, y, FLAT, classes=500)
    assert found.passed is False and "no more often than by chance" in found.text and "another order" not in found.cause


def test_a_constant_answer_is_chance_however_the_classes_lie():
    x, _, _ = data(COLOUR, n=600)
    y = (np.arange(600) % 10 == 0).astype(int)
    found, _ = looked(lambda z: torch.tensor([[1.0, 0.0]]).expand(len(z), -1), x, y, COLOUR, classes=2)
    assert found.passed is False and found.figure == found.limit == pytest.approx(0.9)


def test_few_samples_and_one_class_cannot_tell():
    x, y, base = data(COLOUR)
    assert looked(base, x[:3], np.array([0, 2, 1]), COLOUR)[0].passed is None
    one = y == 2
    assert looked(base, x[one], y[one], COLOUR)[0].passed is True
    assert looked(lambda z: base(z).roll(2, 1), x[one], y[one], COLOUR)[0].passed is False


def test_a_model_that_is_right_costs_nothing_and_a_poor_one_is_no_alarm():
    x, y, base = data(COLOUR)
    found, forwards = looked(base, x, y, COLOUR)
    assert (found.passed, forwards) == (True, 0)
    poor = np.where(np.arange(N) % 2, y, (y + 1 + np.arange(N) % (CLASSES - 1)) % CLASSES)
    found, forwards = looked(base, x, poor, COLOUR)
    first = SHOWN // EVERY
    assert found.passed is True and forwards == len(forms(COLOUR)) * first


def test_a_form_on_which_the_model_fails_is_left_out():
    x, y, base = data(COLOUR)

    def narrow(z):
        if float(z.max()) > 1 or float(z.min()) < 0:
            raise ModelError("outside")
        return base(z.flip(1))

    found, _ = looked(narrow, x, y, COLOUR)
    assert found.passed is False and "BGR" in found.text


def test_the_samples_shown_are_of_every_class():
    labels = np.repeat(np.arange(8), 100)
    at = spread(labels, SHOWN)
    assert sorted(set(labels[at])) == list(range(8)) and len(set(at.tolist())) == SHOWN
    assert sorted(set(labels[at[::EVERY]])) == list(range(8)) and GAIN >= 1


def test_an_audit_says_so_before_anything_else(tmp_path):
    x, y, base = data(COLOUR)
    form = forms(COLOUR)[0]
    model = Recorder(lambda z: base(undone(form, z)), COLOUR, CLASSES)
    run = audited(tmp_path / "run", model, x, y, attack="fgsm", eps="4/255")
    result = summarise_model(run.manifest, run.records(), "run", "recorder")
    assert [check.code for check in result.checks if check.passed is False][0] == Code.CLEAN
    assert result.verdict.startswith("Do not rely on") and form.text in result.verdict
    assert any(warning.code == Code.CLEAN for warning in result.warnings)
    spent = run.manifest["probes"]["recorder"]["forwards"]
    every = int((run.records().forwards + run.records().judge_forwards).sum())
    assert model.seen == spent + every


def test_a_model_that_is_never_right_is_told_why(tmp_path):
    x, y, base = data(COLOUR)
    run = audited(
        tmp_path / "run", Recorder(lambda z: base(z).roll(1, 1), COLOUR, CLASSES), x[y < 4], y[y < 4], attack="fgsm", eps="4/255"
    )
    result = summarise_model(run.manifest, run.records(), "run", "recorder")
    assert result.clean_accuracy.k == 0
    assert "the model is right on no sample, so nothing was attacked: on clean inputs" in result.verdict
    assert "label plus 1" in result.verdict


@pytest.mark.parametrize(
    ("set_", "factory", "weights"),
    [
        ("mnist", "lenet5", "mnist_weights/lenet5_clean"),
        ("cifar10", "resnet2b", "cifar10_robust_weights/resnet2b"),
        ("cifar10", "captum_cnn", "cifar10_weights/captum_cnn_plain"),
    ],
)
def test_healthy_networks_raise_no_alarm(root, shared, set_, factory, weights):
    model, _, _ = opened(root, shared, set_, factory, weights, 1)
    from brinell.datasets.npz import Npz

    dataset = Npz(path=str(shared / set_ / f"{set_}_test.npz"))()
    x, y = dataset.load(range(200)), dataset.labels()[:200]
    with model.info.session(torch.device("cpu")), torch.no_grad():
        pred = model.predict(x).argmax(1).numpy()
        assert check(model, pred, y, lambda at: x[torch.as_tensor(at)])[0].passed is True
