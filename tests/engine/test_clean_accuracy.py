"""Each planted mismatch between the inputs and the training of a model is named; healthy models raise no alarm."""

import numpy as np
import pytest
import torch

from _helpers import Recorder, load_network, run_audit, undo_form
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.checks import Code
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.engine.clean_accuracy import MIN_GAIN, SAMPLES, STRIDE, check_clean_accuracy, spread_by_class
from brinell.engine.input_forms import input_forms, paired_forms
from brinell.engine.relabelling import relabelled

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
    template = torch.rand(domain.shape, generator=rng)
    transposed = template.transpose(-1, -2) if template.ndim == 3 else template.roll(9)
    templates = torch.stack(
        [template, template.flip(0 if len(template) == 3 else -1), transposed, 0.5 * template, 0.4 + 0.3 * template]
    )
    y = torch.arange(n) % CLASSES
    x = (templates[y] + 0.05 * torch.randn(n, *domain.shape, generator=rng)).clamp(0, 1)
    low, high = domain.bounds()

    def base(z):
        return -20 * (z[:, None] - templates[None]).flatten(2).square().sum(2)

    return low + (high - low) * x, y.numpy(), lambda z: base((z - low) / (high - low))


def check(function, x, y, domain, spec="", classes=CLASSES):
    model = Recorder(function, domain, classes)
    pred = model.predict(x).argmax(1).numpy()
    queries = model.queries
    finding, forwards = check_clean_accuracy(model, pred, y, lambda index: x[torch.as_tensor(index)], spec=spec)
    assert forwards == model.queries - queries, "every forward is counted"
    return finding, forwards


PLANTED = [(domain, form) for domain in (COLOUR, GREY, BYTES, FLAT, NORMALISED) for form in input_forms(domain)]


def test_inputs_in_another_form_are_named(subtests):
    for domain, form in PLANTED:
        with subtests.test(str((domain, form))):
            x, y, base = data(domain)
            finding, forwards = check(lambda z: base(undo_form(form, z)), x, y, domain)
            assert finding.code == Code.CLEAN and finding.passed is False
            # Which of the data's normalisations it was cannot be told from 64 samples: their means and deviations are alike.
            assert f"with inputs {form.text.split(' of ')[0]}" in finding.text or f"on {SAMPLES} with inputs" in finding.text
            assert 0 < forwards <= (len(input_forms(domain)) + len(paired_forms(domain, []))) * SAMPLES


def test_what_a_picture_can_have_been():
    texts = " | ".join(form.text for form in input_forms(COLOUR))
    for word in ("255", "ImageNet", "CIFAR-10", "0.5", "BGR", "rows and columns", "channels were last"):
        assert word in texts
    assert "MNIST" in " ".join(form.text for form in input_forms(GREY)) and "MNIST" in " ".join(
        form.text for form in input_forms(FLAT)
    )
    signal = " | ".join(form.text for form in input_forms(Domain(kind="signal", shape=(1, 9), low=-5.0, high=5.0)))
    assert "microvolts" in signal and "upside down" in signal and "ImageNet" not in signal


def test_the_advice_is_what_the_model_takes():
    form = next(form for form in input_forms(COLOUR) if form.text.endswith("of ImageNet") and not form.reverse_channels)
    assert form.advice("onnx:net.onnx", COLOUR) == ("write mean=0.485+0.456+0.406&std=0.229+0.224+0.225 in the model's options")
    assert form.advice("", COLOUR) == "give mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]"
    advice = form.advice("torch:net.py:make", COLOUR)
    assert advice.startswith("let the model begin with (x - mean) / std with mean 0.485, 0.456, 0.406")
    reverse = next(form for form in input_forms(COLOUR) if form.reverse_channels)
    assert reverse.advice("torch:net.py:make", COLOUR).endswith("x.flip(1)")


STATED = [
    {},
    {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "axis": -3},
    {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "axis": -3},
    {"std": 0.5},
    {"mean": [0.4, 0.5, 0.6], "axis": -3, "flip_axis": -3},
]
AFFINE = [form for form in (*input_forms(COLOUR), *paired_forms(COLOUR, [])) if not form.remedy and form.reorder is None]


def test_the_advice_takes_the_place_of_what_is_given(subtests):
    """Typed alone, it prepares the inputs as the form and then the given preprocessing do."""
    for stated in STATED:
        with subtests.test(str((stated,))):
            from torch import nn

            from brinell.inputs import preparation
            from brinell.models._torch_model import TorchModel

            x = data(COLOUR)[0]
            given = TorchModel(nn.Flatten(), COLOUR, preprocessing=stated)
            for form in (form for form in AFFINE if form.first is None or form.first.is_affine):
                advice = form.advice("", COLOUR, given.info.preprocessing)
                settings = {"preprocessing": None, "mean": None, "std": None}
                if "leave out" not in advice:
                    typed = advice.split("give ", 1)[1].split(", in place")[0].split(" (the given")[0]
                    settings |= eval(f"dict({typed})")
                advised = TorchModel(nn.Flatten(), COLOUR, preprocessing=preparation(**settings, domain=COLOUR))
                expected = given.predict(form(x))
                assert torch.allclose(advised.predict(x), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())), advice


def test_means_in_units_of_bytes_are_named():
    from torch import nn

    from brinell.models._torch_model import TorchModel

    class Normalised(nn.Module):
        """A network that was trained on inputs normalised by ImageNet's mean and std."""

        def forward(self, z):
            return base(z * std + mean)

    x, y, base = data(COLOUR)
    mean, std = (torch.tensor(numbers).reshape(3, 1, 1) for numbers in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    model = TorchModel(Normalised(), COLOUR, CLASSES, preprocessing=STATED[2])
    pred = model.predict(x).argmax(1).numpy()
    finding, _ = check_clean_accuracy(model, pred, y, lambda index: x[torch.as_tensor(index)])
    line = (
        "mean and std are in units of 0..255, give mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225] (the given ones divided"
    )
    assert finding.passed is False and line in finding.text, finding.text


@pytest.mark.parametrize("rare", [1, 3])
def test_a_place_that_few_samples_show_is_no_fact(rare):
    names = [f"name-{label}" for label in range(10)]
    order = np.random.default_rng(0).permutation(10)
    for few in ((3,), (3, 5)):
        y = np.repeat(np.arange(10), [rare if label in few else 8 for label in range(10)])
        rate, clause = relabelled(order[y], y, names, 10)
        assert rate > 0.9 and ("class_names=" in clause) == (len(few) == 1), clause  # the last place follows from all others
        for label in few if len(few) > 1 else ():
            stated = clause.split("right on")[1].split(":")[0]
            assert f"name-{label}" not in stated, "it is no fact"
            assert f"{order[label]} (likely name-{label}, {rare} sample" in clause
            assert "too few samples tell 2 of its 10 places" in clause


def test_classes_in_another_order_are_named(subtests):
    for order, line in [
        (lambda y: (y + 1) % CLASSES, "the model's class 0 is the label 4, 1 is the label 0, 2 is the label 1, 3 is the label 2"),
        (lambda y: np.array([3, 0, 4, 1, 2])[y], "with the classes in another order right on"),
        (lambda y: np.array([0, 1, 2, 4, 3])[y], "the model's class 3 is the label 4, 4 is the label 3"),
    ]:
        with subtests.test(str((order, line))):
            x, y, base = data(COLOUR, n=200)
            finding, _ = check(lambda z: base(z)[:, np.argsort(order(np.arange(CLASSES)))], x, y, COLOUR)
            assert finding.passed is False and line in finding.text


@pytest.mark.parametrize(("by", "line"), [(1, "take 1 from the labels"), (-1, "add 1 to the labels")])
def test_labels_that_are_shifted_by_one(by, line):
    x, y, base = data(COLOUR)
    x, y = x[y != CLASSES - 1], y[y != CLASSES - 1]
    if by < 0:
        x, y = x[y > 0], y[y > 0]
    finding, _ = check(base, x, y + by, COLOUR)
    assert finding.passed is False and line in finding.text


def test_a_permutation_of_many_classes_is_not_made_up():
    """A model that guesses among 500 classes looks good under the permutation that its own answers show, and is not."""
    rng = np.random.default_rng(0)
    y = rng.permutation(500)[:200]
    logits = torch.from_numpy(rng.normal(size=(200, 500))).float()
    x = torch.arange(200)[:, None].expand(-1, 64).float() / 200
    finding, _ = check(lambda z: logits[(z[:, 0] * 200).round().long().clamp(0, 199)], x, y, FLAT, classes=500)
    assert finding.passed is False and "no more often than by chance" in finding.text and "another order" not in finding.cause


def test_a_constant_answer_is_chance_however_the_classes_lie():
    x, _, _ = data(COLOUR, n=600)
    y = (np.arange(600) % 10 == 0).astype(int)
    finding, _ = check(lambda z: torch.tensor([[1.0, 0.0]]).expand(len(z), -1), x, y, COLOUR, classes=2)
    assert finding.passed is False and finding.figure == finding.limit == pytest.approx(0.9)


def test_few_samples_and_one_class_cannot_tell():
    x, y, base = data(COLOUR)
    assert check(base, x[:3], np.array([0, 2, 1]), COLOUR)[0].passed is None
    is_class = y == 2
    assert check(base, x[is_class], y[is_class], COLOUR)[0].passed is True
    assert check(lambda z: base(z).roll(2, 1), x[is_class], y[is_class], COLOUR)[0].passed is False


def test_a_model_that_is_right_costs_nothing_and_a_poor_one_is_no_alarm():
    x, y, base = data(COLOUR)
    finding, forwards = check(base, x, y, COLOUR)
    assert (finding.passed, forwards) == (True, 0)
    poor = np.where(np.arange(N) % 3, y, (y + 1 + np.arange(N) % (CLASSES - 1)) % CLASSES)
    finding, forwards = check(base, x, poor, COLOUR)
    first = SAMPLES // STRIDE
    assert finding.passed is True and forwards == (len(input_forms(COLOUR)) + 1) * first


def test_a_form_on_which_the_model_fails_is_left_out():
    x, y, base = data(COLOUR)

    def narrow(z):
        if float(z.max()) > 1 or float(z.min()) < 0:
            raise ModelError("outside")
        return base(z.flip(1))

    finding, _ = check(narrow, x, y, COLOUR)
    assert finding.passed is False and "BGR" in finding.text


def test_the_samples_shown_are_of_every_class():
    labels = np.repeat(np.arange(8), 100)
    index = spread_by_class(labels, SAMPLES)
    assert sorted(set(labels[index])) == list(range(8)) and len(set(index.tolist())) == SAMPLES
    assert sorted(set(labels[index[::STRIDE]])) == list(range(8)) and MIN_GAIN >= 1


def test_an_audit_says_so_before_anything_else(tmp_path):
    x, y, base = data(COLOUR)
    form = input_forms(COLOUR)[0]
    model = Recorder(lambda z: base(undo_form(form, z)), COLOUR, CLASSES)
    run = run_audit(tmp_path / "run", model, x, y, attack="fgsm", eps="4/255")
    result = summarise_model(run.manifest, run.records(), "run", "recorder")
    assert [check.code for check in result.checks if check.passed is False][0] == Code.CLEAN
    assert result.verdict.startswith("Do not rely on")
    assert any(form.text in check.text for check in result.checks if check.code == Code.CLEAN)
    assert any(warning.code == Code.CLEAN for warning in result.warnings)
    probe_forwards = run.manifest["probes"]["recorder"]["forwards"]
    attack_forwards = int((run.records().forwards + run.records().judge_forwards).sum())
    assert model.queries == probe_forwards + attack_forwards


def test_a_model_that_is_never_right_is_told_why(tmp_path):
    x, y, base = data(COLOUR)
    run = run_audit(
        tmp_path / "run", Recorder(lambda z: base(z).roll(1, 1), COLOUR, CLASSES), x[y < 4], y[y < 4], attack="fgsm", eps="4/255"
    )
    result = summarise_model(run.manifest, run.records(), "run", "recorder")
    assert result.clean_accuracy.k == 0
    assert "misclassifies every clean input" in result.verdict
    assert any("label plus 1" in check.text for check in result.checks if check.code == Code.CLEAN)


@pytest.mark.slow
def test_healthy_networks_raise_no_alarm(root, shared, subtests):
    for set_, factory, weights in [
        ("mnist", "lenet5", "mnist_weights/lenet5_clean"),
        ("cifar10", "resnet2b", "cifar10_robust_weights/resnet2b"),
        ("cifar10", "captum_cnn", "cifar10_weights/captum_cnn_plain"),
    ]:
        with subtests.test(str((set_, factory, weights))):
            model, _, _ = load_network(root, shared, set_, factory, weights, 1)
            from brinell.datasets.npz import Npz

            dataset = Npz(path=str(shared / set_ / f"{set_}_test.npz"))()
            x, y = dataset.load(range(200)), dataset.labels()[:200]
            with model.info.session(torch.device("cpu")), torch.no_grad():
                pred = model.predict(x).argmax(1).numpy()
                assert check_clean_accuracy(model, pred, y, lambda index: x[torch.as_tensor(index)])[0].passed is True


def test_clean_accuracy_does_not_depend_on_the_scale_of_the_logits(tmp_path_factory, subtests):
    for scale in [1e-30, 1e30]:
        with subtests.test(str((scale,))):
            tmp_path = tmp_path_factory.mktemp("row")
            x = np.linspace(0.0, 1.0, 40, dtype=np.float32).reshape(-1, 1).repeat(2, 1)
            y = (x[:, 0] > 0.5).astype(np.int64)
            model = Recorder(lambda inputs: scale * torch.stack([0.5 - inputs[:, 0], inputs[:, 0] - 0.5], 1))
            run = run_audit(tmp_path / "run", model, x, y, eps="0.1", attack=("fgsm",))
            records = run.records()
            assert (records.clean_pred == records.label).all()


PAIRS = [
    ("multiplied by 255", "BGR"),
    ("normalised by", "channels were last"),
    ("normalised by", "rows and columns"),
    ("light and dark", "channels were last"),
]


def test_two_faults_at_once_are_named_together(subtests):
    for words in PAIRS:
        with subtests.test(str((words,))):
            x, y, base = data(COLOUR, n=300)
            forms = [next(form for form in input_forms(COLOUR) if word in form.text) for word in words]

            def behind(z):  # the scale is the last that a user would apply
                for form in forms:
                    z = undo_form(form, z)
                return base(z)

            finding, _ = check(behind, x, y, COLOUR)
            assert finding.passed is False and all(word.split()[0] in finding.text for word in words), finding.text


def test_another_form_and_another_order_of_classes():
    x, y, base = data(COLOUR, n=300)
    form = next(form for form in input_forms(COLOUR) if "multiplied by 255" in form.text)
    order = np.array([3, 0, 4, 1, 2])
    finding, _ = check(lambda z: base(undo_form(form, z))[:, np.argsort(order)], x, y, COLOUR)
    assert finding.passed is False and "multiplied by 255" in finding.text and "another order" in finding.text


def test_class_0_written_last_is_named():
    x, y, base = data(COLOUR, n=300)
    finding, _ = check(
        lambda z: torch.cat([base(z), torch.full((len(z), 1), -1e9)], 1), x, np.where(y == 0, 5, y), COLOUR, classes=6
    )
    assert finding.passed is False and "take the remainder of the labels (y % 5)" in finding.text


def test_labels_that_say_nothing_are_the_fault_of_the_data():
    x, y, base = data(COLOUR, n=300)
    finding, _ = check(lambda z: base(z).roll(1, 1), x, np.full(300, 2), COLOUR)
    assert "all 300 labels are 2" in finding.text and "look at the data, not at the model" in finding.text
    finding, _ = check(base, x, np.random.default_rng(0).permutation(y), COLOUR)
    assert finding.passed is False and "near chance" in finding.text and "look at the data, whose labels may not" in finding.text
    assert "model" not in finding.text.replace("however", "")


def test_a_model_that_knows_nothing_is_named_where_labels_belong_to_inputs():
    x, y, _ = data(COLOUR, n=300)
    weights = torch.randn(108, CLASSES, generator=torch.Generator().manual_seed(3))
    finding, _ = check(lambda z: (z.flatten(1) * 1e4).sin() @ weights, x, y, COLOUR)
    assert finding.passed is False and "near chance" in finding.text and "it is the model that does not know" in finding.text


def test_data_that_are_drawn_anew_are_named():
    x, y, base = data(COLOUR, n=100)
    model = Recorder(lambda z: base(z).roll(1, 1), COLOUR, CLASSES)
    pred = model.predict(x).argmax(1).numpy()
    finding, forwards = check_clean_accuracy(model, pred, y, lambda index: torch.rand(len(index), 3, 6, 6))
    assert "the data set answers differently each time" in finding.text and not forwards


def test_rare_classes_count_as_much_as_common_ones():
    """Answers that are all of the common class hide a fault from the plain count."""
    x, y, base = data(COLOUR, n=1500)
    keep = (y == 0) | (np.arange(1500) % 25 < 5) & (np.arange(1500) % 50 < 5)
    form = next(form for form in input_forms(COLOUR) if "multiplied by 255" in form.text)
    finding, _ = check(lambda z: base(undo_form(form, z)), x[keep], y[keep], COLOUR)
    assert (y[keep] == 0).mean() > 0.6 and finding.passed is False and "multiplied by 255" in finding.text


UNITS = Domain(kind="signal", shape=(1, 60), low=-5.0, high=5.0)


def test_signals_in_another_unit_are_named(subtests):
    for form in input_forms(UNITS):
        with subtests.test(str((form,))):
            rng = torch.Generator().manual_seed(0)
            templates = torch.randn(CLASSES, 1, 60, generator=rng)
            y = torch.arange(200) % CLASSES
            x = (templates[y] + 0.1 * torch.randn(200, 1, 60, generator=rng)).clamp(-5, 5)
            expected = form(templates)
            finding, _ = check(
                lambda z: -(z[:, None] - expected[None]).flatten(2).square().sum(2) / expected.var(), x, y.numpy(), UNITS
            )
            assert finding.passed or "with inputs" in finding.text


def test_a_model_that_needs_float64_is_told_so():
    from torch import nn

    from brinell.models._torch_model import TorchModel

    class Coarse(nn.Module):
        """A network whose float32 loses what tells the classes apart."""

        def __init__(self, weights):
            super().__init__()
            self.weights = nn.Parameter(weights)

        def forward(self, z):
            return ((z.flatten(1) + 1e8) - 1e8) @ self.weights

    x = torch.rand(200, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(108, CLASSES, generator=torch.Generator().manual_seed(1))
    model = TorchModel(Coarse(weights - weights.mean(0)), COLOUR, CLASSES)
    y = (x.flatten(1).double() @ (weights - weights.mean(0)).double()).argmax(1).numpy()
    pred = model.predict(x).argmax(1).numpy()
    finding, _ = check_clean_accuracy(model, pred, y, lambda index: x[torch.as_tensor(index)])
    assert finding.passed is False and "computed in float64" in finding.text and "model.double()" in finding.text
    assert model.module.weights.dtype == torch.float32
