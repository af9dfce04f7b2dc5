"""Each entry of the table of mistakes is found where the mistake was made, and nowhere else."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _helpers import Recorder
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.datasets.npz import Npz
from brinell.engine.clean_accuracy import check_clean_accuracy
from brinell.engine.mistakes import ANSWERS, FILES, NORMALISATIONS, TABLES, VALUES, Answers, File, find_mistakes
from brinell.engine.sources import open_data
from brinell.models._torch_model import TorchModel

RNG = np.random.default_rng(0)
N, CLASSES = 120, 5


def test_the_table_is_short_and_each_entry_has_a_name_of_its_own():
    entries = [entry for table in TABLES.values() for entry in table]
    assert len({entry.name for entry in entries}) == len(entries) <= 40


# Paths

PATHS = {
    "x.npy": ("dataset", "one array without labels"),
    "x.pt": ("dataset", "tensors or pickles as data"),
    "x.tar": ("dataset", "packed data"),
    "x.PNG": ("dataset", "one picture"),
    "net.safetensors": ("model", "weights without their network"),
    "net.pth": ("model", "weights without their network"),
    "net.pth.tar": ("model", "weights without their network"),
    "script.pt": ("model", "a TorchScript program"),
    "whole.pt": ("model", "a pickle of a whole module"),
    "old.pt": ("model", "a pickle of a whole module"),
    "net.pt2": ("model", "an exported program"),
    "forest.joblib": ("model", "a pickled estimator"),
    "net.h5": ("model", "a model of TensorFlow"),
}


def test_a_path_of_each_kind_is_named_by_its_entry_alone(tmp_path):
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    torch.save(module.state_dict(), tmp_path / "net.pth")
    torch.save(module, tmp_path / "whole.pt")
    torch.save(module, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as program:
        program.writestr("script/data.pkl", b"")
        program.writestr("script/constants.pkl", b"")
    for path, (kind, name) in PATHS.items():
        mistakes = find_mistakes(File(kind, tmp_path / path))
        assert [mistake.name for mistake in mistakes] == [name], path
    assert {name for _, name in PATHS.values()} == {entry.name for entry in FILES}
    for kind, path in (
        ("dataset", "x.npz"),
        ("dataset", "x.csv"),
        ("model", "net.onnx"),
        ("model", "forest.skops"),
        ("model", "a.py"),
    ):
        assert not find_mistakes(File(kind, Path(path)))


# Stored values


def pictures(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.random((24, *(shape or (3, 8, 8))))


def waves(n: int = 24) -> np.ndarray[Any, Any]:
    time = np.linspace(0, 12, 187)
    return 1.4 * np.sin(time + RNG.uniform(0, 6, (n, 1))).astype("float32")


STORED = {
    "whole numbers of fewer than 8 bits": lambda: np.round(16 * pictures(1, 8, 8)),
    "pictures of 8 bits": lambda: np.round(255 * pictures()),
    "pictures of more than 8 bits": lambda: np.round(65535 * pictures()),
    "levels of 8 bits that are no whole numbers": lambda: 255 * pictures(),
    "values from -1 to 1": lambda: 2 * pictures() - 1,
    "values that are normalised": lambda: (pictures() - 0.5) / 0.2,
    "values that leave their bounds a little": lambda: 1.06 * pictures() - 0.03,
    "signals in their own unit": waves,
    "columns with units of their own": lambda: RNG.normal(size=(24, 6)) * [1, 10, 100, 1e3, 1e4, 1e5],
}


def test_values_outside_their_bounds_open_by_the_line_of_their_entry(tmp_path):
    assert STORED.keys() == {entry.name for entry in VALUES}
    y, lines = np.arange(24) % 3, {entry.name: set[str]() for entry in VALUES}
    for name, make in STORED.items():
        x = make()
        x.reshape(-1)[0] = x.max()
        np.savez(tmp_path / "a.npz", x=x, y=y)
        for in_memory in (True, False):
            with pytest.raises(RequestError) as refusal:
                brinell.data(x, y) if in_memory else open_data(f"npz:{tmp_path / 'a.npz'}")
            line = str(refusal.value)
            lines[name].add(line)
            if in_memory:
                call = (
                    "brinell.data("
                    + line.split("write brinell.data(")[1].split(", or clip")[0].split(" for a model")[0].split("; for")[0]
                )
                data = eval(call, {"brinell": brinell, "x": x, "y": y})
            elif "table:" not in line:
                data = open_data("npz:" + line.split("write npz:")[1].split(" ")[0].rstrip(",;"))
            low, high = data.domain.bounds()
            assert bool((data.load(range(24)) >= low).all()) and bool((data.load(range(24)) <= high).all())
    assert all(len(texts) == 2 for texts in lines.values())
    assert "divide=16" in " ".join(lines["whole numbers of fewer than 8 bits"])
    assert "divide=65535" in " ".join(lines["pictures of more than 8 bits"])
    assert "kind=signal" in " ".join(lines["signals in their own unit"])


def test_values_that_the_table_does_not_have_are_refused_plainly(tmp_path):
    np.savez(tmp_path / "a.npz", x=1e6 * pictures(), y=np.arange(24) % 3)
    with pytest.raises(RequestError, match="outside the bounds 0 to 1: give bounds that hold them, or divide the values$"):
        open_data(f"npz:{tmp_path / 'a.npz'}")
    np.savez(tmp_path / "b.npz", x=pictures(), y=np.arange(24) % 3)
    assert Npz(path=str(tmp_path / "b.npz"))().domain.high == 1


def test_dark_bytes_are_divided_only_where_it_is_said():
    x, y = RNG.integers(0, 17, (24, 1, 8, 8)).astype("uint8"), np.arange(24) % 3
    with pytest.raises(RequestError, match=r"divide=16\); for dark pictures of 8 bits, divide by 255"):
        brinell.data(x, y)
    assert float(brinell.data(x, y, divide=255).load([0]).max()) < 0.1


# Answers

COLOUR = Domain(kind="image", shape=(3, 6, 6))
BYTES = Domain(kind="image", shape=(3, 6, 6), low=0, high=255, levels=256)
GREY = Domain(kind="image", shape=(1, 6, 6))
NORMALISED = Domain(kind="image", shape=(3, 6, 6), low=-3.0, high=3.0)
SIGNALS = Domain(kind="signal", shape=(1, 108), low=-5.0, high=5.0)


def data(domain: Domain, wanted: Any, n: int = N) -> tuple[torch.Tensor, np.ndarray[Any, Any], Any]:
    """Inputs near one template for each class, their labels, and a function that is right on inputs changed by `wanted`."""
    rng = torch.Generator().manual_seed(0)
    low, high = domain.bounds()
    template = torch.rand(domain.shape, generator=rng)
    templates = torch.stack([template, template.flip(0 if len(template) == 3 else -1), template.roll(9, -1), 0.5 * template])
    templates = low + (high - low) * torch.cat([templates, 0.4 + 0.3 * template[None]])
    if domain.kind == "signal":
        shifts, heights = torch.tensor([4.0, -3.0, 2.0, -4.0, 0.0]), torch.tensor([0.2, 0.5, 1.0, 0.3, 2.0])
        templates = shifts[:, None, None] + heights[:, None, None] * torch.randn(CLASSES, *domain.shape, generator=rng)
    y = torch.arange(n) % CLASSES
    x = (templates[y] + 0.03 * (high - low) * torch.randn(n, *domain.shape, generator=rng)).clamp(low, high)
    centres = wanted(templates)

    def answer(z: torch.Tensor) -> torch.Tensor:
        return -20 * (z[:, None] - centres[None]).flatten(2).square().sum(2) / centres.var().square().clamp(min=1e-9).sqrt()

    return x, y.numpy(), answer


def normalise(name: str) -> Any:
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in NORMALISATIONS[name])
    return lambda z: (z - mean) / std


def undone(z: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(values).reshape(-1, 1, 1) for values in NORMALISATIONS["ImageNet"])
    return z * std + mean


WANTED = {
    "no division by 255": (BYTES, lambda z: z / 255),
    "a division by 255 too many": (COLOUR, lambda z: z * 255),
    "inputs from 0 to 16": (GREY, lambda z: z * 16),
    "no normalisation of ImageNet": (COLOUR, normalise("ImageNet")),
    "no normalisation of CIFAR-10": (COLOUR, normalise("CIFAR-10")),
    "no normalisation of MNIST": (GREY, normalise("MNIST")),
    "no normalisation of [-1, 1]": (GREY, normalise("[-1, 1]")),
    "normalised twice": (NORMALISED, undone),
    "channels in the order BGR": (COLOUR, lambda z: z.flip(1)),
    "channels last, read as first": (COLOUR, lambda z: z.reshape(-1, 6, 6, 3).permute(0, 3, 1, 2)),
    "millivolts in place of microvolts": (SIGNALS, lambda z: z * 1000),
    "microvolts in place of millivolts": (SIGNALS, lambda z: z / 1000),
    "signals that are not standardised": (SIGNALS, lambda z: (z - z.mean(-1, keepdim=True)) / z.std(-1, keepdim=True)),
}
"""Mistakes about inputs: the domain of the data, and what the model wants of its inputs."""


def find(answer: Any, x: torch.Tensor, y: np.ndarray[Any, Any], domain: Domain, count: int = CLASSES, **settings: Any) -> Any:
    """The mistakes of a model, and the finding on it."""
    model = answer if hasattr(answer, "info") else Recorder(answer, domain, count)
    pred = model.predict(x).argmax(1).numpy()

    def load(index: np.ndarray[Any, Any]) -> torch.Tensor:
        return x[torch.as_tensor(index)]

    answers = Answers(model, pred, y, load, np.arange(min(64, len(y))), **settings)
    queries = getattr(model, "queries", 0)
    mistakes = find_mistakes(answers)
    assert not hasattr(model, "queries") or answers.forwards == model.queries - queries, "every forward is counted"
    return mistakes, check_clean_accuracy(model, pred, y, load, **settings)[0]


def test_inputs_in_another_form_are_named():
    for name, (domain, wanted) in WANTED.items():
        x, y, answer = data(domain, wanted)
        mistakes, finding = find(answer, x, y, domain)
        if finding.passed:  # a model that is right as it is needs no other form
            assert not mistakes and finding.figure > 0.9, name
            continue
        # What two normalisations explain as well is named by both.
        alike = any(mistake.name.startswith("no normalisation") for mistake in mistakes) and "normalisation" in name
        assert name in [mistake.name for mistake in mistakes] or alike, (name, mistakes)
        assert finding.passed is False and str(mistakes[0]) in finding.text


def test_the_line_is_what_the_model_takes():
    x, y, answer = data(COLOUR, normalise("ImageNet"))
    means = {"onnx:net.onnx": "write mean=0.485+0.456+0.406&std=0.229+0.224+0.225", "": "give mean=[0.485, 0.456, 0.406], std=["}
    for spec, line in (means | {"torch:net.py:make": "let the model begin with x = (x - mean) / std"}).items():
        lines = [mistake.line for mistake in find(answer, x, y, COLOUR, spec=spec)[0]]
        assert any(text.startswith(line) for text in lines), lines


def test_labels_that_are_numbered_otherwise_are_named():
    x, y, answer = data(COLOUR, lambda z: z)
    names = [f"name-{label}" for label in range(6)]
    orders = {
        "labels counted from 1": (lambda z: answer(z), y + 1, CLASSES + 1, "take 1 from the labels"),
        "labels counted from 0 for a model with a class before them": (
            lambda z: torch.cat([torch.full((len(z), 1), -1e9), answer(z)], 1),
            y,
            CLASSES + 1,
            "add 1 to the labels",
        ),
        "class 0 written last": (lambda z: answer(z), np.where(y == 0, CLASSES, y), CLASSES + 1, "take the remainder (y % 5)"),
        "classes in another order": (
            lambda z: answer(z)[:, [2, 0, 1, 4, 3]],
            y,
            CLASSES,
            "class_names=name-2+name-0+name-1+name-4+name-3",
        ),
    }
    for name, (function, labels, classes, line) in orders.items():
        mistakes, finding = find(function, x, labels, COLOUR, classes, classes=names[:classes])
        assert mistakes[0].name == name and line in finding.text, (name, mistakes)
    named = {*WANTED, *orders, "a model in training mode", "batch norms of a new network"}
    assert named == {entry.name for entry in ANSWERS}


class Scales(nn.Module):
    """Each value in a unit of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.logspace(-2, 2, x.shape[1])


class Trains(nn.Module):
    """A network with a forward pass that puts it into training mode, and much dropout."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.drop, self.inner = nn.Dropout(0.97), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.drop.train()
        return self.inner(self.drop(x))


def test_states_of_a_network_are_named_and_left_as_they_were():
    x, y, _ = data(COLOUR, lambda z: z, n=300)
    centres = torch.stack([x[y == label].mean(0) for label in range(CLASSES)]).flatten(1)
    head = nn.Linear(108, CLASSES)
    with torch.no_grad():
        head.weight.copy_(2 * centres)
        head.bias.copy_(-centres.square().sum(1))
    right = nn.Sequential(nn.Flatten(), head)
    norm = nn.BatchNorm1d(108, affine=False)
    scaled = nn.Sequential(nn.Flatten(), Scales(), norm, nn.Linear(108, CLASSES))
    flat = (x.flatten(1) - x.flatten(1).mean(0)) / x.flatten(1).std(0)
    middle = torch.stack([flat[y == label].mean(0) for label in range(CLASSES)])
    with torch.no_grad():
        scaled[3].weight.copy_(2 * middle)
        scaled[3].bias.copy_(-middle.square().sum(1))
    for module, name in ((Trains(right), "a model in training mode"), (scaled, "batch norms of a new network")):
        model = TorchModel(module, COLOUR, CLASSES)
        mistakes, finding = find(model, x, y, COLOUR)
        assert finding.passed or [mistake.name for mistake in mistakes] == [name], (name, mistakes)
        assert not finding.passed or name != "a model in training mode"
        assert "train" not in module.__dict__ and bool((norm.running_mean == 0).all())


def test_a_model_that_is_right_or_merely_bad_gets_no_advice():
    for domain, wanted in ((COLOUR, lambda z: z), (GREY, lambda z: z), (SIGNALS, lambda z: z)):
        x, y, answer = data(domain, wanted)
        assert find(answer, x, y, domain)[1].passed is True
        weights = torch.randn(len(x[0].flatten()), CLASSES, generator=torch.Generator().manual_seed(3))
        mistakes, finding = find(lambda z, weights=weights: (z.flatten(1) * 1e4).sin() @ weights, x, y, domain)
        assert not mistakes and "no more often than by chance" in finding.text


def test_an_order_of_many_classes_is_not_made_up():
    y = RNG.permutation(500)[:200]
    logits = torch.from_numpy(RNG.normal(size=(200, 500))).float()
    x = torch.arange(200)[:, None].expand(-1, 64).float() / 200
    domain = Domain(kind="vector", shape=(64,))
    model = Recorder(lambda z: logits[(z[:, 0] * 200).round().long().clamp(0, 199)], domain, 500)
    mistakes, finding = find(model, x, y, domain)
    assert not mistakes and finding.passed is False


def test_a_constant_answer_is_named_first():
    x, y, _ = data(COLOUR, lambda z: z)
    finding = find(lambda z: torch.eye(CLASSES)[:1].expand(len(z), -1), x, y, COLOUR)[1]
    assert finding.text.startswith("right on 24 of 120 clean inputs: it answers class 0 to every input")
    finding = find(lambda z: torch.eye(CLASSES)[:1].expand(len(z), -1), x, np.full(N, 2), COLOUR)[1]
    assert "all 120 labels are 2" in finding.text
