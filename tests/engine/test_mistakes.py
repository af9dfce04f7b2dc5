"""Each entry of the table of mistakes is found where the mistake was made, and nowhere else."""

import math
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
from brinell.engine.fit import FormSearch, check_clean_accuracy, line_of
from brinell.engine.forms import CENTRES, WIDTHS, Affine
from brinell.engine.mistakes import mistake_of_path
from brinell.engine.sources import open_data

RNG = np.random.default_rng(0)
N, CLASSES = 120, 5


def test_a_path_of_each_kind_is_named(tmp_path):
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    torch.save(module.state_dict(), tmp_path / "net.pth")
    torch.save(module, tmp_path / "whole.pt")
    torch.save(
        {"epoch": 3, "model": module}, tmp_path / "old.pt", _use_new_zipfile_serialization=False
    )
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as program:
        program.writestr("script/data.pkl", b"")
        program.writestr("script/constants.pkl", b"")
    for kind, path, evidence in (
        ("dataset", "x.npy", "one array and no labels"),
        ("dataset", "x.pt", "such files are not read"),
        ("dataset", "x.tar", "packed"),
        ("dataset", "x.PNG", "one picture"),
        ("model", "net.safetensors", "it holds weights"),
        ("model", "net.pth", "it holds weights"),
        ("model", "net.pth.tar", "it holds weights"),
        ("model", "script.pt", "TorchScript"),
        ("model", "whole.pt", "whole module"),
        ("model", "old.pt", "whole module"),
        ("model", "net.pt2", "a program"),
        ("model", "forest.joblib", "a pickle runs code"),
        ("model", "net.h5", "TensorFlow"),
    ):
        assert evidence in mistake_of_path(kind, tmp_path / path), path
    for kind, path in (
        ("dataset", "x.npz"),
        ("dataset", "x.csv"),
        ("model", "net.onnx"),
        ("model", "a.skops"),
        ("model", "a.py"),
    ):
        assert not mistake_of_path(kind, Path(path))


# Stored values


def pictures(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.random((24, *(shape or (3, 8, 8))))


def waves(top: float) -> np.ndarray[Any, Any]:
    return (top * np.sin(np.linspace(0, 12, 187) + RNG.uniform(0, 6, (24, 1)))).astype("float32")


STORED = (
    (
        lambda: np.round(RNG.choice([16, 100]) * pictures(1, 8, 8)),
        ("divide=", "for dark pictures of 8 bits, divide by 255"),
    ),
    (lambda: np.round(RNG.choice([255, 4095, 65535]) * pictures()), ("divide=",)),
    (lambda: 255 * pictures(), ("divide=255",)),
    (lambda: 2 * pictures() - 1, ("in [-1, 1]",)),
    (lambda: (pictures() - 0.5) / 0.2, ("take the normalisation out",)),
    (lambda: 1.06 * pictures() - 0.03, ("clip them",)),
    (lambda: waves(1.4), ("kind=", "in their own unit")),
    (lambda: waves(0.9), ("kind=", "as sound does")),
    (
        lambda: RNG.normal(size=(24, 6)) * [1, 10, 100, 1e3, 1e4, 1e5],
        ("bounds='columns'", "table:FILE.csv"),
    ),
)
"""Values outside their bounds, and what the refusal of them says."""


def test_values_outside_their_bounds_open_by_the_line_of_their_entry(tmp_path):
    y = np.arange(24) % 3
    for make, says in STORED:
        x = make()
        np.savez(tmp_path / "a.npz", x=x, y=y)
        for source in ("npz", "memory"):
            with pytest.raises(RequestError) as refusal:
                brinell.data(x, y) if source == "memory" else open_data(f"npz:{tmp_path / 'a.npz'}")
            line = str(refusal.value)
            assert all(text in line for text in says), line
            if "write brinell.data(" in line:
                call = line.split("write brinell.data(")[1]
                depth = np.cumsum([{"(": 1, ")": -1}.get(mark, 0) for mark in call])
                call = f"brinell.data({call[: int((depth < 0).argmax()) + 1]}"
                data = eval(call, {"brinell": brinell, "x": x, "y": y})
            else:
                data = open_data("npz:" + line.split("write npz:")[1].split(" ")[0].rstrip(",;"))
            low, high = data.domain.bounds()
            assert bool((data.load(range(24)) >= low).all()) and bool(
                (data.load(range(24)) <= high).all()
            )
            assert "sound" not in line or (float(low), float(high)) == (-1, 1)
    with pytest.raises(
        RequestError,
        match="outside the bounds 0 to 1: give bounds that hold them, or divide the values$",
    ):
        brinell.data(1e6 * pictures(), y)
    assert brinell.data(pictures(), y).domain.high == 1


# Answers

COLOUR = Domain(kind="image", shape=(3, 6, 6))
BYTES = Domain(kind="image", shape=(3, 6, 6), low=0, high=255, levels=256)
GREY = Domain(kind="image", shape=(1, 6, 6))
NORMALISED = Domain(kind="image", shape=(3, 6, 6), low=-3.0, high=3.0)
SIGNALS = Domain(kind="signal", shape=(1, 108), low=-5.0, high=5.0)


def data(domain: Domain, wanted: Any, n: int = N) -> tuple[torch.Tensor, np.ndarray[Any, Any], Any]:
    """Inputs near one template for each class, their labels, and a function that is right on inputs
    changed by `wanted`."""
    rng = torch.Generator().manual_seed(0)
    low, high = domain.bounds()
    template = torch.rand(domain.shape, generator=rng)
    templates = torch.stack(
        [
            template,
            template.flip(0 if len(template) == 3 else -1),
            template.roll(9, -1),
            0.5 * template,
        ]
    )
    templates = low + (high - low) * torch.cat([templates, 0.4 + 0.3 * template[None]])
    if domain.kind == "signal":
        shifts, heights = (
            torch.tensor([4.0, -3.0, 2.0, -4.0, 0.0]),
            torch.tensor([0.2, 0.5, 1.0, 0.3, 2.0]),
        )
        templates = shifts[:, None, None] + heights[:, None, None] * torch.randn(
            CLASSES, *domain.shape, generator=rng
        )
    y = torch.arange(n) % CLASSES
    x = (templates[y] + 0.03 * (high - low) * torch.randn(n, *domain.shape, generator=rng)).clamp(
        low, high
    )
    centres = wanted(templates)

    def answer(z: torch.Tensor) -> torch.Tensor:
        return (
            -20
            * (z[:, None] - centres[None]).flatten(2).square().sum(2)
            / centres.var().square().clamp(min=1e-9).sqrt()
        )

    return x, y.numpy(), answer


def normalise(name: str) -> Any:
    return Affine(CENTRES[name], WIDTHS[name]).apply


WANTED = {
    "divided by 255": (BYTES, lambda z: z / 255),
    "from 0 to 255": (COLOUR, lambda z: z * 255),
    "from 0 to 16": (GREY, lambda z: z * 16),
    "std of ImageNet": (COLOUR, normalise("ImageNet")),
    "std of CIFAR-10": (COLOUR, normalise("CIFAR-10")),
    "std of MNIST": (GREY, normalise("MNIST")),
    "std of [-1, 1]": (GREY, normalise("[-1, 1]")),
    "order BGR": (COLOUR, lambda z: z.flip(1)),
    "multiplied by 1000": (SIGNALS, lambda z: z * 1000),
    "divided by 1000": (SIGNALS, lambda z: z / 1000),
    "mean 0 and deviation 1": (
        SIGNALS,
        lambda z: (z - z.mean(-1, keepdim=True)) / z.std(-1, keepdim=True),
    ),
}
"""Mistakes about inputs: the domain of the data, and what the model wants of its inputs."""


def find(
    answer: Any,
    x: torch.Tensor,
    y: np.ndarray[Any, Any],
    domain: Domain,
    count: int = CLASSES,
    spec: str = "",
    classes: Any = (),
) -> Any:
    """The forms that are better, each with its line, and the finding on the model."""
    model = Recorder(answer, domain, count)
    pred = model.predict(x).argmax(1).numpy()
    search, queries = FormSearch(model, x, y, classes), model.queries
    fit = search.run()
    assert fit.forwards == model.queries - queries, "every forward is counted"
    lines = [(trial.title, line_of(trial, model, spec)) for trial in fit.best]
    return lines, check_clean_accuracy(
        model, pred, y, lambda rows: x[torch.as_tensor(rows)], spec=spec, classes=classes
    )[0]


def test_inputs_in_another_form_are_named():
    for name, (domain, wanted) in WANTED.items():
        x, y, answer = data(domain, wanted)
        mistakes, finding = find(answer, x, y, domain)
        if finding.passed:  # a model that is right as it is needs no other form
            assert not mistakes and finding.figure > 0.9, name
            continue
        # What two normalisations explain as well is named by both.
        titles = [title for title, _ in mistakes]
        is_alike = "std of" in name and any("std of" in title for title in titles)
        assert is_alike or any(name in title for title in titles), (name, mistakes)
        assert finding.passed is False and mistakes[0][1] in finding.text


def test_the_line_is_what_the_model_takes():
    x, y, answer = data(COLOUR, normalise("ImageNet"))
    means = {
        "onnx:net.onnx": "write mean=0.485+0.456+0.406&std=0.229+0.224+0.225",
        "": "give mean=[0.485, 0.456, 0.406], std=[",
    }
    for spec, line in (
        means
        | {
            "torch:net.py:make": "let the model begin with x = (x - x.new_tensor([0.485, 0.456, 0.406"
        }
    ).items():
        lines = [line for _, line in find(answer, x, y, COLOUR, spec=spec)[0]]
        assert any(text.startswith(line) for text in lines), lines


def test_labels_that_are_numbered_otherwise_are_named():
    x, y, answer = data(COLOUR, lambda z: z)
    names = [f"name-{label}" for label in range(6)]
    for function, labels, classes, line in (
        (answer, y + 1, CLASSES + 1, "take 1 from the labels"),
        (
            lambda z: torch.cat([torch.full((len(z), 1), -1e9), answer(z)], 1),
            y,
            CLASSES + 1,
            "add 1 to the labels",
        ),
        (
            lambda z: answer(z)[:, [2, 0, 1, 4, 3]],
            y,
            CLASSES,
            "class_names=name-2+name-0+name-1+name-4+name-3",
        ),
    ):
        mistakes, finding = find(function, x, labels, COLOUR, classes, classes=names[:classes])
        assert line in mistakes[0][1] and line in finding.text, mistakes


def test_an_order_that_the_samples_do_not_settle_is_no_option():
    x, y, answer = data(COLOUR, lambda z: z)
    index = np.flatnonzero((y < 4) | (np.arange(N) == 4))  # one sample of the last class
    mistakes, _ = find(
        lambda z: answer(z)[:, [1, 2, 3, 0, 4]],
        x[index],
        y[index],
        COLOUR,
        classes=[f"n{k}" for k in range(CLASSES)],
    )
    assert "another order" in mistakes[0][0] and "as it is documented" in mistakes[0][1]


def test_a_model_that_is_right_or_merely_bad_gets_no_advice():
    for domain, wanted in ((COLOUR, lambda z: z), (GREY, lambda z: z), (SIGNALS, lambda z: z)):
        x, y, answer = data(domain, wanted)
        assert find(answer, x, y, domain)[1].passed is True
        weights = torch.randn(
            math.prod(domain.shape), CLASSES, generator=torch.Generator().manual_seed(3)
        )
        mistakes, finding = find(
            lambda z, weights=weights: (z.flatten(1) * 1e4).sin() @ weights, x, y, domain
        )
        assert not mistakes and "no more often than by chance" in finding.text
    logits, rows = torch.from_numpy(RNG.normal(size=(200, 500))).float(), torch.arange(200)
    x, domain = rows[:, None].expand(-1, 64).float() / 200, Domain(kind="vector", shape=(64,))
    mistakes, finding = find(
        lambda z: logits[(z[:, 0] * 200).round().long().clamp(0, 199)],
        x,
        RNG.permutation(500)[:200],
        domain,
        500,
    )
    assert not mistakes and finding.passed is False, "an order of many classes is made up"


def test_a_constant_answer_is_named_first_and_no_numbering_explains_it():
    x, y, _ = data(COLOUR, lambda z: z)
    for answer in range(CLASSES):
        constant = torch.eye(CLASSES)[answer : answer + 1]
        for labels in (
            y,
            np.where(np.arange(N) % 9, (answer + 1) % CLASSES, y),
            np.where(np.arange(N) % 9, (answer - 1) % CLASSES, y),
            np.where(np.arange(N) % 10, answer, (answer + 1) % CLASSES),
        ):
            mistakes, finding = find(
                lambda z, constant=constant: constant.expand(len(z), -1), x, labels, COLOUR
            )
            assert (
                not mistakes
                and f"clean inputs: it answers class {answer} to every input" in finding.text
            )
    finding = find(lambda z: torch.eye(CLASSES)[:1].expand(len(z), -1), x, np.full(N, 2), COLOUR)[1]
    assert "all 120 labels are 2" in finding.text
