"""Models and data sets by MAITE's protocols give the figures of the same network and arrays, and
other tasks are refused."""

import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.core.errors import BrinellError
from brinell.core.maite import metadata_of
from brinell.inputs import models_of, open_dataset

SHAPE, COUNT, CLASSES = (3, 4, 5), 30, 4
QUICK = {"eps": [0.02, 0.1], "attack": "square?steps=20"}


class Data:
    """A data set by the protocol; `convert` makes an image of an array in [0, 1]."""

    def __init__(self, x, targets, names, convert):
        self.metadata = {
            "id": "shapes",
            **({"index2label": dict(enumerate(names))} if names else {}),
        }
        self._x, self._targets, self._convert = x, targets, convert

    def __len__(self):
        return len(self._x)

    def __getitem__(self, index):
        return self._convert(self._x[index]), self._targets[index], {"id": index}


class Linear:
    """A model by the protocol, whose scores are in an order of its own."""

    def __init__(self, weights, names, order, convert, is_form=lambda batch: True):
        self.metadata = {
            "id": "linear",
            **({"index2label": {k: names[j] for k, j in enumerate(order)}} if names else {}),
        }
        self._weights, self._order, self._convert, self._is_form = weights, order, convert, is_form

    def __call__(self, batch):
        if not self._is_form(batch):
            raise TypeError("another form of a batch")
        return [self._convert(self._scores(image)) for image in batch]

    def _scores(self, image):
        x = np.asarray(image)
        x = x / 255 if x.dtype == np.uint8 else x
        scores = np.exp((self._weights @ x.reshape(-1).astype(np.float64))[self._order])
        return scores / scores.sum()


def members(seed):
    """Random data and weights, the right labels, and an order of the model's classes."""
    rng = np.random.default_rng(seed)
    x = np.rint(rng.random((COUNT, *SHAPE)) * 255) / 255
    weights = rng.normal(size=(CLASSES, np.prod(SHAPE)))
    weights -= weights.mean(1, keepdims=True)
    labels = (x.reshape(COUNT, -1) @ weights.T).argmax(1)
    return rng, x.astype(np.float32), weights, labels, rng.permutation(CLASSES)


def network(weights):
    """The same scores as a module."""
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(int(np.prod(SHAPE)), CLASSES, bias=False), nn.Softmax(1)
    )
    net[1].weight.data = torch.from_numpy(weights).float()
    return net


IMAGES = {
    "bytes": lambda x: np.rint(x * 255).astype(np.uint8),
    "floats": lambda x: x,
    "tensors": torch.from_numpy,
    "bytes in tensors": lambda x: torch.from_numpy(np.rint(x * 255).astype(np.uint8)),
}
FORMS = {
    "any": lambda batch: True,
    "arrays": lambda batch: isinstance(batch, list) and isinstance(batch[0], np.ndarray),
    "tensors": lambda batch: isinstance(batch, list) and isinstance(batch[0], torch.Tensor),
    "batch": lambda batch: isinstance(batch, torch.Tensor),
}
ANSWERS = {
    "arrays": lambda scores: scores,
    "tensors": torch.from_numpy,
    "lists": lambda scores: scores.tolist(),
}


def test_answers_are_those_of_the_network(subtests):
    """Whatever the type of images, batches, targets and answers, and the order of the model's
    classes."""
    names = [f"kind {letter}" for letter in "abcd"]
    for seed in range(12):
        rng, x, weights, labels, order = members(seed)
        images, form, answer = (
            list(options.values())[rng.integers(len(options))]
            for options in (IMAGES, FORMS, ANSWERS)
        )
        targets = np.eye(CLASSES)[labels]
        if rng.random() < 0.5:  # pseudo-probabilities
            targets = 0.7 * targets + 0.3 * rng.dirichlet(np.ones(CLASSES), COUNT)
        with subtests.test(seed=seed):
            data = open_dataset(Data(x, targets, names, images))
            (model,) = models_of(
                Linear(weights, names, order, answer, form), data, "", answers="probabilities"
            )
            batch = data.load(range(COUNT))
            assert (
                torch.allclose(batch, torch.from_numpy(x), atol=1e-6)
                and data.labels().tolist() == labels.tolist()
            )
            assert data.classes == tuple(names) and model.name == "linear"
            expected = network(weights)(torch.from_numpy(x))
            assert torch.allclose(model.predict(batch).softmax(1), expected, atol=1e-4)


def test_an_audit_by_the_protocol(tmp_path):
    _, x, weights, labels, order = members(0)
    data = Data(x, np.eye(CLASSES)[labels], [*"abcd"], IMAGES["floats"])
    result = brinell.audit(
        model=Linear(weights, [*"abcd"], order, ANSWERS["arrays"]),
        data=data,
        out=tmp_path / "run",
        **QUICK,
    )
    assert (
        result.models[0].name == "linear"
        and result.clean().value == 1 > result.robust(eps=0.1).value
    )


def test_the_model_is_asked_for_scores_alone():
    _, x, weights, labels, order = members(0)
    data = open_dataset(Data(x, np.eye(CLASSES)[labels], [], IMAGES["floats"]))
    (model,) = models_of(Linear(weights, [], np.arange(CLASSES), ANSWERS["arrays"]), data, "")
    assert model.access.name == "SCORES" and model.name == "linear" and data.name == "shapes"
    assert data.classes == ("0", "1", "2", "3") and data.domain.shape == SHAPE


def test_a_module_by_the_protocol_is_asked_by_the_protocol():
    """Its index2label would be lost otherwise, and with it the order of the classes."""
    _, x, weights, labels, order = members(1)
    names = ["a", "b", "c", "d"]

    class Module(nn.Module):
        metadata = {"id": "module", "index2label": {k: names[j] for k, j in enumerate(order)}}

        def __init__(self):
            super().__init__()
            self.inner = network(weights)

        def forward(self, batch):
            return self.inner(torch.stack(list(batch)))[:, order]

    data = open_dataset(Data(x, np.eye(CLASSES)[labels], names, IMAGES["tensors"]))
    (model,) = models_of(Module(), data, "")
    assert model.predict(data.load(range(COUNT))).argmax(1).tolist() == labels.tolist()
    assert model.info.class_names == tuple(names)


class Detections:
    """A target of object detection."""

    boxes, labels, scores = np.zeros((1, 4)), np.zeros(1), np.ones((1, 2))


class Track:
    """A target of tracking."""

    frame_tracks = [()]


@pytest.mark.parametrize(
    ("target", "task"), [(Detections(), "object detection"), (Track(), "tracking")]
)
def test_other_tasks_are_refused(target, task):
    _, x, _, labels, _ = members(0)
    message = (
        f"is one of {task} .*Brinell audits classifiers alone so far: give a model "
        "and data of maite.protocols.image_class"
    )
    with pytest.raises(BrinellError, match=message) as refusal:
        brinell.audit(model="digits-cnn", data=Data(x, [target] * COUNT, [], IMAGES["floats"]))
    assert "\n" not in str(refusal.value)

    class Detector:
        metadata = {"id": "detector"}

        def __call__(self, batch):
            return [target for _ in batch]

    with pytest.raises(BrinellError, match=message):
        brinell.audit(Detector(), (x, labels))


def test_targets_without_a_class(subtests):
    rows = [
        (lambda labels: [np.ones(CLASSES)] * COUNT, "names no single class"),
        (lambda labels: [np.zeros(CLASSES)] * COUNT, "names no single class"),
        (lambda labels: [np.full(CLASSES, np.nan)] * COUNT, "a finite number per class"),
        (
            lambda labels: [np.eye(CLASSES + index % 2)[0] for index in range(COUNT)],
            "the targets have 4 to 5 scores",
        ),
        (lambda labels: labels.tolist(), "one row of scores"),
    ]
    for targets, problem in rows:
        with subtests.test(problem=problem):
            _, x, _, labels, _ = members(0)
            with pytest.raises(BrinellError, match=problem):
                open_dataset(Data(x, targets(labels), [], IMAGES["floats"]))


def test_answers_by_another_protocol(subtests):
    rows = [
        (lambda batch: [np.ones(CLASSES)], "answers 3 images with 1 targets of 4 scores"),
        (lambda batch: None, "answers 3 images with 0 targets of no scores"),
        (
            lambda batch: [np.ones(CLASSES + index) for index in range(len(batch))],
            "with 3 targets of 4, 5, 6 scores",
        ),
        (lambda batch: [np.ones((2, 2)) for _ in batch], "one row of scores"),
        (lambda batch: batch.no_such, r"takes no list of arrays of shape \(3, 4, 5\)"),
    ]
    for answer, problem in rows:
        with subtests.test(problem=problem):
            _, x, _, labels, _ = members(0)

            model = Mock(
                side_effect=answer, metadata={"id": "other"}, spec=["__call__", "metadata"]
            )
            with pytest.raises(BrinellError, match=problem):
                models_of(model, open_dataset((x, labels)), "")


def test_names_that_do_not_fit():
    _, x, weights, labels, order = members(0)
    with pytest.raises(
        BrinellError, match="index2label names 3 classes, and the targets have 4 scores"
    ):
        open_dataset(Data(x, np.eye(CLASSES)[labels], ["a", "b", "c"], IMAGES["floats"]))
    data = open_dataset(Data(x, np.eye(CLASSES)[labels], ["a", "b", "c", "d"], IMAGES["floats"]))
    with pytest.raises(BrinellError, match="cat"):
        models_of(Linear(weights, ["a", "b", "c", "cat"], order, ANSWERS["arrays"]), data, "")


def test_settings_that_the_protocol_has_no_room_for(subtests):
    for setting in [{"mean": 0.5}, {"output": 0}, {"answers": "labels"}]:
        with subtests.test(setting=setting):
            _, x, weights, labels, order = members(0)
            with pytest.raises(BrinellError, match="by MAITE's protocol"):
                models_of(
                    Linear(weights, [], order, ANSWERS["arrays"]),
                    open_dataset((x, labels)),
                    "",
                    **setting,
                )


def test_other_metadata_is_none_of_maites(subtests):
    for metadata in [None, {}, {"id": 3}, "id"]:
        with subtests.test(metadata=metadata):
            function = type(
                "F",
                (),
                {
                    "metadata": metadata,
                    "__call__": lambda self, x: x.reshape(len(x), -1)[:, :CLASSES],
                },
            )
            assert metadata_of(function()) is None


@pytest.mark.slow
def test_maite_is_never_imported():
    code = (
        "import sys; sys.modules['maite'] = None\nimport brinell.inputs, "
        "brinell.datasets._memory, brinell.models._maite"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_protocols_of_maite_itself():
    """The classes of these tests are MAITE's by its own check, and so are ours by its utilities."""
    protocols = pytest.importorskip(
        "maite.protocols.image_classification", reason="maite is not installed"
    )
    tasks = pytest.importorskip("maite.tasks")
    _, x, weights, labels, order = members(3)
    names = ["a", "b", "c", "d"]
    data = Data(x, np.eye(CLASSES)[labels], names, IMAGES["bytes"])
    model = Linear(weights, names, np.arange(CLASSES), ANSWERS["arrays"])
    assert isinstance(data, protocols.Dataset) and isinstance(model, protocols.Model)
    predictions, _ = tasks.predict(model=model, dataset=data)
    dataset = open_dataset(data)
    (ours,) = models_of(model, dataset, "")
    scores = ours.predict(dataset.load(range(COUNT))).numpy()
    np.testing.assert_allclose(
        scores, np.stack([row for batch in predictions for row in batch]), rtol=1e-6
    )
