"""A planted fault of a network's state or of the data is named alone, and a merely bad network gets no false advice."""

import pytest
import torch
from torch import nn

from _helpers import load_network, undo_form
from brinell.core.domain import Domain
from brinell.datasets.npz import Npz
from brinell.engine.clean_accuracy import check_clean_accuracy
from brinell.engine.input_forms import input_forms
from brinell.models._torch_model import TorchModel

COUNT = 200
STATE_WORDS = ("running means", "take train() out")


@pytest.fixture(scope="module")
def network(root, shared):
    """A network of CIFAR-10 with batch norms, and inputs with labels."""
    model, _, _ = load_network(root, shared, "cifar10", "resnet20", "cifar10_weights/resnet20", 1)
    dataset = Npz(path=str(shared / "cifar10" / "cifar10_test.npz"))()
    return model, dataset.load(range(COUNT)), dataset.labels()[:COUNT]


def diagnose(model, x, y):
    """The finding on a model."""
    with model.info.session(torch.device("cpu")), torch.no_grad():
        pred = model.predict(x).argmax(1).numpy()
        return check_clean_accuracy(model, pred, y, lambda index: x[torch.as_tensor(index)])[0]


class Reads(nn.Module):
    """A network behind the inverse of a form, so that it is right on inputs in that form."""

    def __init__(self, inner, form):
        super().__init__()
        self.inner, self.form = inner, form

    def forward(self, z):
        return self.inner(undo_form(self.form, z))


FORMS = input_forms(Domain(kind="image", shape=(3, 32, 32)))


@pytest.mark.nightly
def test_a_network_that_expects_another_form_is_told_this_form(network, subtests):
    """Means and deviations of different sets are alike: one of the same kind is as good, and no state or data is blamed."""
    for form in FORMS:
        with subtests.test(str((form,))):
            model, x, y = network
            finding = diagnose(TorchModel(Reads(model.module, form), model.domain, 10), x, y)
            assert not any(word in finding.text for word in (*STATE_WORDS, "look at the data"))
            if finding.passed:  # this network is right in that form, too
                assert finding.figure > 0.5
            else:
                assert f"inputs {form.text.split(' of ')[0]}" in finding.text


class Trains(nn.Module):
    """A network with a forward pass that puts it into training mode, and much dropout."""

    def __init__(self, inner):
        super().__init__()
        self.drop, self.inner = nn.Dropout(0.95), inner

    def forward(self, x):
        self.drop.train()
        return self.inner(self.drop(x))


@pytest.mark.slow
def test_batch_norms_without_their_buffers_are_named(network):
    import copy

    model, x, y = network
    module = copy.deepcopy(model.module)
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for part in norms:
        part.reset_running_stats()
    before = [buffer.clone() for buffer in module.buffers()]
    finding = diagnose(TorchModel(module, model.domain, 10), x, y)
    assert finding.passed is False and "running means" in finding.text and f"of {len(norms)} batch norms" in finding.text
    assert all(torch.equal(a, b) for a, b in zip(before, module.buffers(), strict=True)), "the buffers are as before"


def test_a_forward_pass_in_training_mode_is_named(network):
    model, x, y = network
    module = Trains(model.module)
    finding = diagnose(TorchModel(module, model.domain, 10), x, y)
    assert finding.passed is False and "take train() out" in finding.text
    assert "train" not in module.__dict__


def test_data_that_tell_no_classes_apart_are_named(network, subtests):
    for fault in ["all of", "one value", "only"]:
        with subtests.test(str((fault,))):
            model, x, y = network
            grey = x.mean((1, 2, 3), keepdim=True).expand_as(x)
            planted = {"all of": x[:1].expand_as(x), "one value": grey, "only": x[:5].repeat(40, 1, 1, 1)}
            finding = diagnose(model, planted[fault].contiguous(), y)
            assert finding.passed is False and fault in finding.text and "look at the data" in finding.text


def test_a_merely_bad_network_gets_no_advice_on_its_state_or_form(network, subtests):
    for seed in range(3):
        with subtests.test(str((seed,))):
            _, x, y = network
            norms = [nn.BatchNorm2d(8)] * (seed % 2)
            module = nn.Sequential(nn.Conv2d(3, 8, 3, 2), *norms, nn.ReLU(), nn.Flatten(), nn.Linear(1800, 10))
            rng = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for part in module.parameters():
                    part.copy_(0.1 * torch.randn(part.shape, generator=rng))
            finding = diagnose(TorchModel(module, Domain(kind="image", shape=(3, 32, 32)), 10), x, y)
            assert "of 64 it is right" not in finding.text and "look at the data" not in finding.text
            assert not any(word in finding.text for word in STATE_WORDS)
