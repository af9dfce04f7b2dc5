"""A model whose code changes settings of torch: they are as before after each question, and the run says what it changed."""

import random

import numpy as np
import torch
from torch import nn

import brinell
from brinell.core.domain import Domain
from brinell.core.errors import ModelError
from brinell.core.model import ask
from brinell.core.torch_settings import SETTINGS, kept_settings
from brinell.models._callable import CallableModel
from brinell.models._torch_model import TorchModel

OTHERS = {
    "the default type": lambda: torch.set_default_dtype(torch.float64),
    "the default device": lambda: torch.set_default_device("meta"),
    "the number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "the recording of gradients": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "the precision of products": lambda: torch.set_float32_matmul_precision("medium"),
    "automatic half precision": lambda: torch.set_autocast_enabled("cpu", True),
    "automatic half precision on GPUs": lambda: torch.set_autocast_enabled("cuda", True),
    "the kernels of cuDNN": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "the search for anomalies": lambda: torch.autograd.set_detect_anomaly(True),
}
IMAGE = Domain(kind="image", shape=(1, 8, 8))


def values():
    """All settings, as they are."""
    return {name: read() for name, (read, _) in SETTINGS.items()}


class Net(nn.Module):
    """A network that changes settings at some of its questions, and may fail then."""

    def __init__(self, names, questions=None, error=None):
        super().__init__()
        self.head, self.names, self.questions, self.error, self.asked = nn.Linear(64, 3), names, questions, error, 0

    def forward(self, x):
        logits = self.head(x.flatten(1))
        self.asked += 1
        if self.questions is None or self.asked in self.questions:
            for name in self.names:
                OTHERS[name]()
            if self.error:
                raise self.error
        return logits


def test_every_setting_has_another_value_here():
    assert OTHERS.keys() == SETTINGS.keys()
    before = values()
    with kept_settings() as changes:
        for change in OTHERS.values():
            change()
        assert all(read() != before[name] for name, (read, _) in SETTINGS.items())
    assert values() == before and len(changes) == len(SETTINGS)


def test_settings_are_set_back_after_each_question(subtests):
    for seed in range(12):
        with subtests.test(seed=seed):
            rng, before = random.Random(seed), values()
            names = rng.sample(sorted(OTHERS), rng.choice([1, 2, 5]))
            error = rng.choice([None, ValueError("no"), SystemExit(0)])
            net = Net(names, questions={rng.choice([3, 4])}, error=error)
            with torch.no_grad():
                model = TorchModel(net, IMAGE) if rng.random() < 0.5 else CallableModel(net, IMAGE, classes=3, name="net")
            assert values() == before
            for _ in range(5):
                try:
                    ask(model, torch.rand(2, 1, 8, 8))
                except ModelError as failure:
                    assert error is not None and "\n" not in str(failure)
                assert values() == before
            if error is None and net.asked > 4:
                restored = "the precision of products"  # by the session of a torch model, before it is compared
                assert all(any(name in change for change in model.info.changes) for name in names if name != restored)


def test_an_audit_says_what_the_model_changed(tmp_path):
    names, before = ["the number of threads", "deterministic algorithms"], values()
    data = (torch.rand(6, 1, 8, 8), torch.arange(6) % 3)
    brinell.audit(Net(names, questions=range(5, 10**6)), data, eps=0.1, attack="fgsm", out=tmp_path / "run")
    text = (tmp_path / "run" / "manifest.json").read_text()
    assert "the model changed settings of torch, which were set back: " in text and values() == before
    assert all(f"{name} from" in text for name in names)


def test_a_factory_that_changes_settings_leaves_them_as_they_were(tmp_path):
    before = values()
    (tmp_path / "net.py").write_text(
        "import torch\ntorch.set_num_threads(torch.get_num_threads() + 1)\n"
        "def net():\n    torch.set_default_dtype(torch.float64)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))\n"
    )
    data = tmp_path / "data.npz"
    np.savez(data, x=np.random.default_rng(0).random((6, 1, 8, 8), np.float32), y=np.arange(6) % 3)
    brinell.audit(f"torch:{tmp_path / 'net.py'}:net", f"npz:{data}", eps=0.1, attack="fgsm", out=tmp_path / "run")
    text = (tmp_path / "run" / "manifest.json").read_text()
    assert "the default type from" in text and "the number of threads from" in text and values() == before
