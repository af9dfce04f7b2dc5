"""User objects as inputs: each gives a right figure, or one line that says what to do."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import brinell
from _helpers import rows_of
from _refusals import refused
from brinell.core.errors import BrinellError
from brinell.engine.eps_grid import parse_eps
from brinell.engine.texts import eps_text, norm_text, settings_texts
from brinell.inputs import models_of
from brinell.store.run import Run

RNG = torch.Generator().manual_seed(0)
X = torch.rand(24, 3, 5, 5, generator=RNG)
QUICK = {"eps": [0.02, 0.1], "attack": "fgsm"}


def network(seed=1):
    rng = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(75, 3))
    net[1].weight.data = torch.randn(3, 75, generator=rng)
    return net


NET = network()
with torch.no_grad():
    Y = NET(X).argmax(1)


def test_eps(subtests):
    rows = [
        (8 / 255, "8/255"),
        (np.float32(8 / 255), "8/255"),
        (0.3, "0.3"),
        (1, "1.0"),
        (0.2, "0.2"),
        ("0:8/255:9", "0:8/255:9"),
        ([0, 4 / 255, "8/255"], "0.0, 4/255, 8/255"),
        (np.linspace(0, 8 / 255, 3), "0.0, 4/255, 8/255"),
        (torch.tensor([0.5, 1.0]), "0.5, 1.0"),
        ((0.01, 0.03), "0.01, 0.03"),
        (1e-7, "1e-07"),
    ]
    for value, text in rows:
        with subtests.test(value=value):
            assert eps_text(value) == text
            expected = [
                float(number) if not isinstance(number, str) else None
                for number in np.atleast_1d(np.asarray(value, dtype=object)).tolist()
            ]
            if None not in expected:
                assert parse_eps(text).values == pytest.approx(
                    sorted(expected), rel=1e-6, abs=1e-12
                )


def test_what_is_no_eps(subtests):
    for value in [None, True, float("nan"), float("inf"), object(), {"a": 1}, [], [None]]:
        with subtests.test(value=value):
            with pytest.raises(BrinellError, match="^eps is "):
                eps_text(value)


def test_norm(subtests):
    rows = [
        (np.inf, "linf"),
        (2, "l2"),
        (2.0, "l2"),
        (1, "l1"),
        (0, "l0"),
        ("L2", "l2"),
        ("Linf", "linf"),
        ("l_inf", "linf"),
    ]
    rows += [
        ("inf", "linf"),
        ("2", "l2"),
        ("embedding:A/File.pt", "embedding:A/File.pt"),
        (["Linf", 2], ("linf", "l2")),
    ]
    for value, text in rows:
        with subtests.test(value=value):
            assert norm_text(value) == text


def test_other_settings():
    settings = {
        "device": torch.device("cpu"),
        "samples": np.int64(7),
        "seed": torch.tensor(3),
        "queries": None,
    }
    assert settings_texts(settings) == {"device": "cpu", "samples": 7, "seed": 3}
    assert settings_texts({"device": 1}) == {"device": "cuda:1"}


class Dicts:
    """Items of a data set as mappings."""

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return {"image": X[index], "label": int(Y[index])}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


def test_data_in_any_form_are_the_same_data(subtests):
    rows = [
        (X, Y),
        (X.permute(0, 2, 3, 1).numpy(), Y.numpy()),
        {"x": X, "y": Y},
        {"pixel_values": X.numpy(), "labels": Y.tolist()},
        (X.tolist(), Y.tolist()),
        Dicts(),
        DataLoader(TensorDataset(X, Y), batch_size=7),
        DataLoader(TensorDataset(X, Y), batch_size=7, shuffle=True),
        brinell.data(X, Y, layout="first"),
    ]
    for data in rows:
        with subtests.test(data=data):
            dataset = data if hasattr(data, "digest") else brinell.data(data)
            assert torch.allclose(dataset.load(range(24)), X) and torch.equal(
                torch.from_numpy(dataset.labels()), Y
            )
            assert dataset.domain.kind == "image" and dataset.domain.shape == (3, 5, 5)


def test_hugging_face_datasets():
    datasets = pytest.importorskip("datasets")
    picture = pytest.importorskip("PIL.Image")
    pixels = np.arange(4 * 6 * 5 * 3).reshape(4, 6, 5, 3).astype(np.uint8)
    features = datasets.Features(
        {
            "id": datasets.Value("int64"),
            "picture": datasets.Image(),
            "kind": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    rows = {
        "id": [1, 2, 3, 4],
        "picture": [picture.fromarray(picture_pixels) for picture_pixels in pixels],
        "kind": [0, 1, 1, 0],
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    dataset = brinell.data(data)
    assert (
        dataset.classes == ("a", "b")
        and dataset.labels().tolist() == [0, 1, 1, 0]
        and dataset.domain.shape == (3, 6, 5)
    )
    assert torch.equal(
        (dataset.load([2]) * 255).round().byte()[0], torch.from_numpy(pixels[2]).permute(2, 0, 1)
    )
    assert "the column 'picture'" in dataset.info.notes[0]
    with pytest.raises(BrinellError, check=refused("datasets._memory._read_object")):
        brinell.data(datasets.DatasetDict({"test": data}))
    with pytest.raises(BrinellError, check=refused("datasets._memory._column")):
        brinell.data(data.remove_columns("kind"))


def test_pictures_whose_channels_may_lie_anywhere():
    for shape in ((4, 3, 5, 3), (4, 16, 16, 16), (4, 1, 4, 1)):
        with pytest.raises(
            BrinellError, match=r"channels could be first or last: give layout=first or layout=last"
        ):
            brinell.data(np.zeros(shape), [0] * 4)
        assert brinell.data(np.zeros(shape), [0] * 4, layout="last").domain.shape == (
            shape[3],
            shape[1],
            shape[2],
        )
    assert brinell.data(np.zeros((4, 2, 8, 9)), [0] * 4).domain.shape == (2, 8, 9)
    assert brinell.data(np.zeros((4, 8, 9, 2)), [0] * 4).domain.shape == (2, 8, 9)
    grey = brinell.data(np.zeros((4, 8, 8)), [0] * 4)
    assert (
        grey.domain.shape == (1, 8, 8)
        and "give kind=signal for signals of 8 channels" in grey.info.notes[0]
    )
    assert brinell.data(np.zeros((4, 8, 8)), [0] * 4, kind="image").domain.shape == (1, 8, 8)
    assert brinell.data(np.zeros((4, 8, 8)), [0] * 4, kind="signal").domain.kind == "signal"
    with pytest.raises(BrinellError, match=r"frames before channels: write x.swapaxes\(1, 2\)"):
        brinell.data(np.zeros((2, 8, 3, 6, 6)), [0] * 2)


def test_data_that_are_refused(subtests):
    rows = [
        (
            (X * 255, Y),
            r"outside the bounds 0 to 1: .* write brinell.data\(x, y, divide=255\)",
        ),
        ((X * 2 - 1, Y), r"they lie in \[-1, 1\]: write brinell.data\(x, y, bounds=\(-1, 1\)\)"),
        (
            (torch.rand(4, 3, generator=RNG) * 50, [0, 1, 0, 1]),
            r"brinell.data\(x, y, bounds='columns'\)",
        ),
        ({"image": X, "img": X, "label": Y}, "'image' and 'img' could be the inputs of the dict"),
        ({"a": X, "b": Y}, "the dict names no inputs; it has a, b"),
        (X, "has no labels: give"),
        (7, "is no data: give"),
        ("npz:test.npz", r"is a spec, .*: give it to the call, as in brinell.audit\(model, 'npz"),
        (Path("test.npz"), "'test.npz' is a spec, which names data by itself"),
        (DataLoader(TensorDataset(X, Y), sampler=[1, 2, 3]), "draws its samples by a list"),
        (DataLoader(TensorDataset(X, Y), collate_fn=len), "or changes them: give its data set"),
        (Stream(), "has no length and no places: give its arrays"),
        (([[1, 2], [3]], [0, 1]), "the inputs are no array|of unequal"),
        ((X, ["a"] * 23), "23 labels for 24"),
    ]
    for value, words in rows:
        with subtests.test(value=value):
            with pytest.raises(BrinellError, match=words) as error:
                brinell.data(value)
            assert "\n" not in str(error.value)


def test_labels_as_texts():
    names = ["bee", "ant", "ant"] * 8
    dataset = brinell.data(X, names)
    assert dataset.classes == ("ant", "bee") and dataset.labels().tolist() == [1, 0, 0] * 8
    assert "in sorted order: ant, bee" in dataset.info.notes[0]
    dataset = brinell.data(X, names, classes=["bee", "ant"])
    assert dataset.labels().tolist() == [0, 1, 1] * 8 and not dataset.info.notes
    with pytest.raises(BrinellError, match="there is a label 'ant', and the classes are bee, cow"):
        brinell.data(X, names, classes=["bee", "cow"])


@pytest.mark.slow
def test_several_models_from_records_to_verification(tmp_path):
    models = {"first": NET, "second": lambda x: NET((x - 0.0) / 1.0), "other": network(2)}
    result = brinell.audit(models, X[:8], Y[:8], out=tmp_path / "run", eps=0.1, attack="fgsm")
    assert [model_result.name for model_result in result.models] == list(models)
    first, second, third = result.models
    assert (
        first.robust_accuracy == second.robust_accuracy
        and first.clean_accuracy.value == 1 > third.clean_accuracy.value
    )
    page = (tmp_path / "run" / "report.html").read_text()
    assert all(name in page for name in models)
    run = Run.open(tmp_path / "run")
    assert set(run.rows.model.tolist()) == set(models)
    assert brinell.verify(result.folder, models, (X[:8], Y[:8])).passed
    with pytest.raises(
        BrinellError, match="contains first, second, other, but the call gives first"
    ):
        brinell.verify(result.folder, {"first": NET}, (X[:8], Y[:8]))
    models_of_list = models_of([NET, network(2)], brinell.data(X, Y), "")
    assert [model.name for model in models_of_list] == ["Sequential", "Sequential-2"]


def test_a_forest_in_memory_with_columns_in_their_units(tmp_path):
    data = load_breast_cancer()
    forest = RandomForestClassifier(10, random_state=0, n_jobs=2).fit(
        data.data, data.target_names[data.target]
    )
    dataset = brinell.data(data.data[:30], data.target_names[data.target[:30]], bounds="columns")
    result = brinell.audit(forest, dataset, eps=0.1, attack="square?steps=20", out=tmp_path / "run")
    model_result = result.models[0]
    assert model_result.clean_accuracy.k == int(
        (forest.predict(data.data[:30]) == data.target_names[data.target[:30]]).sum()
    )
    assert model_result.robust_accuracy[0].k < model_result.clean_accuracy.k, (
        "columns were not asked in their units"
    )
    assert forest.n_jobs == 2
    assert brinell.verify(result.folder, forest, dataset).passed
    forest.estimators_.pop()
    assert not brinell.verify(result.folder, forest, dataset).passed
    line = LogisticRegression().fit(data.data[:, :1] / 30, data.target)
    dataset = brinell.data(data.data[:30, :1] / 30, data.target[:30])
    labels = models_of(line, dataset, "", answers="labels")[0]
    assert labels.info.answers == "one-hot"


def test_a_data_frame_brings_the_names_of_its_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [20.0, 50.0, 80.0], "flag": [1, 1, 1]})
    dataset = brinell.data(frame, [0, 1, 0])
    assert [column.name for column in dataset.domain.columns] == [
        "age",
        "flag",
    ] and dataset.domain.columns[1].fixed
    assert dataset.domain.in_units(dataset.load([1])).tolist() == [[50.0, 1.0]]
    dataset = brinell.data(frame.assign(job=["b", "a", "b"], on=[True, False, True]), [0, 1, 0])
    job, on = dataset.domain.columns[2:]
    assert (
        job.fixed
        and job.values == ("a", "b")
        and on.fixed
        and dataset.load([0, 1])[:, 2:].tolist() == [[1, 1], [0, 0]]
    )
    with pytest.raises(
        BrinellError, match="column 'age' has no value in 1 of 3 rows.*missing='keep'"
    ):
        brinell.data(frame.assign(age=[20.0, None, 80.0]), [0, 1, 0])
    with pytest.raises(BrinellError, match="does not say which column is the class"):
        brinell.data(frame)


FORMS = {
    "list": list,
    "tuple": tuple,
    "channels": lambda values: torch.tensor(values).reshape(3, 1, 1),
    **{
        name: lambda values, name=name: np.array(values, dtype=name)
        for name in ("float16", "float32", "float64")
    },
    **{
        f"torch {dtype}": lambda values, dtype=dtype: torch.tensor(values, dtype=dtype)
        for dtype in (torch.float16, torch.float64)
    },
    "needs a gradient": lambda values: torch.tensor(values, requires_grad=True),
}
"""Numbers as people hold them."""


def test_mean_and_std_in_any_form_are_the_same_numbers():
    """By themselves and in `preprocessing`, for modules and functions; whole numbers of any type
    too.
    """
    data, faults = brinell.data(X, Y), []
    mean, std = [0.25, 0.5, 0.75], [0.5, 1.0, 2.0]
    axes = (torch.tensor(values)[:, None, None] for values in (mean, std))
    first, second = axes
    models = {"module": NET, "function": lambda x: NET(torch.as_tensor(x))}
    integers = {
        name: lambda values, name=name: np.array(values, dtype=name)
        for name in ("uint8", "int32", "int64")
    }
    rows = [(form, make, mean, std, first, second) for form, make in FORMS.items()]
    rows += [
        (
            form,
            make,
            [0, 1, 2],
            [1, 2, 4],
            *(torch.tensor(v)[:, None, None] for v in ([0, 1, 2], [1, 2, 4])),
        )
        for form, make in integers.items()
    ]
    for form, make, mean, std, subtracted, divisor in rows:
        expected = NET((X - subtracted) / divisor)
        for place, wrap in enumerate(
            (dict, lambda **numbers: {"preprocessing": {**numbers, "axis": -3}})
        ):
            for name, model in models.items():
                plain, subject = (
                    models_of(model, data, "", **wrap(mean=made(mean), std=made(std)))[0]
                    for made in (list, make)
                )
                faults += (
                    []
                    if torch.allclose(subject.predict(X), expected, atol=1e-5)
                    else [(form, name, place)]
                )
                faults += (
                    []
                    if name == "function" or subject.digest() == plain.digest()
                    else [(form, "digest", place)]
                )
    assert not faults


def test_one_number_in_any_form():
    data, faults = brinell.data(X, Y), []
    forms = (
        0.5,
        np.float32(0.5),
        np.float64(0.5),
        np.array(0.5),
        np.array([0.5]),
        torch.tensor(0.5),
        torch.tensor([0.5]),
        [0.5],
        (0.5,),
    )
    for number in forms:
        for settings in (
            {"mean": number, "std": number},
            {"preprocessing": {"mean": number, "std": number}},
        ):
            (model,) = models_of(NET, data, "", **settings)
            faults += (
                []
                if torch.allclose(model.predict(X), NET((X - 0.5) / 0.5), atol=1e-5)
                else [(number, settings)]
            )
    assert not faults


LABELS = {
    **{
        name: lambda y, name=name: y.numpy().astype(name)
        for name in ("uint8", "int8", "int32", "int64", "uint16", "float64", "float32")
    },
    **{
        str(dtype): lambda y, dtype=dtype: y.to(dtype)
        for dtype in (torch.uint8, torch.int32, torch.int64, torch.float32)
    },
    "list": lambda y: y.tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "column": lambda y: y[:, None],
    "one-hot": lambda y: torch.nn.functional.one_hot(y).numpy(),
}


def test_labels_of_any_type_are_the_same_labels():
    faults = []
    for form, make in LABELS.items():
        labels = brinell.data(X, make(Y)).labels()
        faults += [] if labels.dtype == np.int64 and labels.tolist() == Y.tolist() else [form]
    assert not faults


def test_items_whose_rows_of_labels_are_no_classes_are_refused():
    for row in ([1.0, 0.5, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]):
        items = [(x, torch.tensor([1.0, 0.0, 0.0])) for x in X[:3]] + [(X[3], torch.tensor(row))]
        with pytest.raises(BrinellError, match="label"):
            brinell.data(items)


def test_bounds_in_any_form_are_the_same_bounds():
    x, faults = 4 * X - 1, []
    for make in (
        tuple,
        list,
        np.array,
        torch.tensor,
        lambda pair: np.array(pair, dtype=np.float32),
        lambda pair: (np.int64(-1), np.float32(3)),
    ):
        domain = brinell.data(x, Y, bounds=make([-1.0, 3.0])).domain
        faults += [] if (domain.low, domain.high) == (-1, 3) else [domain]
    assert not faults
    columns = brinell.data(
        x.reshape(24, 75), Y, bounds=(np.full(75, -1.5), torch.full((75,), 3.5))
    ).domain.columns
    assert {(column.zero, column.unit) for column in columns} == {(-1.5, 3.5)}


def test_mean_and_std_for_modules_and_functions(subtests):
    rows = [
        ({"mean": [0.1, 0.2, 0.3], "std": np.array([0.5, 0.6, 0.7])}, True),
        ({"mean": torch.tensor([0.1, 0.2, 0.3]).reshape(3, 1, 1), "std": [0.5, 0.6, 0.7]}, True),
        ({"preprocessing": {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "axis": -3}}, True),
        ({"mean": 0.5}, False),
    ]
    for settings, expected in rows:
        with subtests.test(settings=settings):
            mean, std = (
                torch.tensor(values)[:, None, None] for values in ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
            )
            answer = NET((X - mean) / std if expected else X - 0.5)
            for model in (NET, lambda x: NET(x)):
                answers = models_of(model, brinell.data(X, Y), "", **settings)[0].predict(X)
                assert torch.allclose(answers, answer, atol=1e-4)


class Largest(nn.Module):
    def forward(self, x):
        return x.argmax(1)


def test_a_call_in_inference_mode_is_the_same_call(tmp_path):
    settings = {"eps": 0.05, "attack": "fgsm", "samples": 8}
    plain = brinell.audit(NET, (X, Y), **settings, out=tmp_path / "plain")
    with torch.inference_mode():
        assert (
            brinell.audit(NET, (X, Y), **settings, out=tmp_path / "inside").robust_accuracy
            == plain.robust_accuracy
        )
        made_inside = nn.Linear(2, 2)
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(int(max(Y)) + 1))
    assert (
        brinell.audit(lazy, (X, Y), **settings, out=tmp_path / "lazy").models[0].clean_accuracy.n
        == 8
    )
    with pytest.raises(BrinellError, match="weights of inference mode"):
        brinell.audit(made_inside, ([[0.1, 0.2]], [0]), eps=0.1, out=tmp_path / "none")


def test_everything_else_is_one_line(subtests):
    rows = [
        (lambda: brinell.audit(NET, (X, Y), eps=True), "^eps is True: give a number such as 8/255"),
        (
            lambda: brinell.audit(NET, (X, Y), norm=3, eps=0.1),
            "^norm is 3: it is np.inf, 2, 1 or 0",
        ),
        (lambda: brinell.audit(NET, (X, Y), samples="ten"), "samples is 'ten'"),
        (
            lambda: brinell.audit(NET, (X, Y), epsilon=0.1),
            "float is no run.*a budget is given by eps",
        ),
        (lambda: brinell.audit(NET, (X, Y), attack=7), "attack is 7"),
        (
            lambda: brinell.audit(nn.Linear, (X, Y)),
            r"Linear is a class and no model: give an instance, Linear\(...\)",
        ),
        (
            lambda: brinell.audit(7, (X, Y)),
            "an object of type int is no model: give a torch module",
        ),
        (lambda: brinell.audit({}, (X, Y)), "dict of models is empty"),
        (lambda: brinell.audit([], (X, Y)), "list of models is empty"),
        (
            lambda: brinell.audit([NET, "digits-cnn"], (X, Y)),
            "'digits-cnn' is a spec among models in memory",
        ),
        (
            lambda: brinell.audit("digits-cnn", "digits", mean=0.5),
            "mean is for models in memory; a spec says it itself",
        ),
        (
            lambda: brinell.audit(NET, (X, Y), mean=0.5, preprocessing={"mean": 1}),
            "mean and std are given twice",
        ),
        (lambda: brinell.audit(NET, (X, Y), mean="half"), "mean is 'half'"),
        (
            lambda: brinell.audit(NET, (X, Y), attack="apgd-ce, pgd"),
            "there is no attack 'apgd-ce, pgd', did you mean 'apgd-ce'",
        ),
        (
            lambda: brinell.transfer(NET, (X, Y), eps=0.1),
            "an object of type Sequential is no run: give the folder",
        ),
        (
            lambda: brinell.transfer({"a": NET, "b": NET}, (X, Y)),
            "type dict is no run: give the folder",
        ),
        (lambda: brinell.audit((X, Y), NET), r"is a Flatten, and no \(input, label\) pair"),
        (
            lambda: brinell.audit(nn.Sequential(NET, nn.Unflatten(1, (-1, 1, 1))), (X, Y)),
            r"it must give \(1, classes\) logits$",
        ),
        (
            lambda: brinell.audit(NET, (torch.cat([X, X[:, :1]], 1), Y)),
            "no usual shape fits it|let the model begin with",
        ),
        (
            lambda: brinell.audit(NET, (X[:, :1], Y), mean=[1, 2, 3]),
            "mean= has 3 values, .* 1 channels: give one value, or one for each$",
        ),
        (
            lambda: brinell.audit(NET, (X, np.r_[-1, np.asarray(Y)[1:]])),
            rf"drop the samples whose label is below 0 \(1 of {len(Y)}, at 0\)",
        ),
        (
            lambda: brinell.audit(NET, (X, [[0], [1, 2]] * (len(Y) // 2))),
            "1 to 2 classes for a sample: several labels per sample",
        ),
        (
            lambda: brinell.audit(NET, DataLoader([(X[0], 0, 5)] * 4)),
            r"a tuple of 3 parts, and no \(input, label\) pair: give a data set "
            r"or loader of \(x, y\)",
        ),
        (
            lambda: brinell.audit(nn.Sequential(NET, Largest()), (X, Y)),
            "one whole number .*: return the logits before argmax",
        ),
        (lambda: brinell.audit(NET, (X, Y), preprocessing=5), "preprocessing is of type int"),
        (lambda: brinell.audit(RandomForestClassifier(), (X, Y)), "no fitted classifier"),
        (
            lambda: brinell.audit(NET, (X, Y), answers="labels"),
            "Sequential is a torch module, which answers scores",
        ),
        (lambda: brinell.audit(NET, (X, Y), answers="logit-ish"), "answers is 'logit-ish'"),
        (
            lambda: brinell.audit(
                NET, (X, Y), device=torch.device("meta"), resume=True, targeted="no"
            ),
            "no",
        ),
    ]
    for call, words in rows:
        with subtests.test(words=words):
            with pytest.raises(BrinellError, match=words) as error:
                call()
            assert "\n" not in str(error.value) and "pydantic" not in str(error.value)


def test_the_same_call_twice_makes_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"eps": 0.02, "attack": "fgsm"}
    first, second = (brinell.audit(NET, (X[:6], Y[:6]), **settings) for _ in range(2))
    assert first.folder != second.folder
    with pytest.raises(
        BrinellError, match="holds a run: add --resume to go on with it, or choose another --out$"
    ):
        brinell.audit(NET, (X[:6], Y[:6]), out=first.folder, **settings)
    resumed = brinell.audit(NET, (X[:6], Y[:6]), out=first.folder, resume=True, **settings)
    assert rows_of(Run.open(resumed.folder).rows) == rows_of(Run.open(second.folder).rows)


def test_provenance_says_what_repeats_the_run(tmp_path):
    brinell.audit(
        {"mine": NET},
        (X, Y),
        mean=0.5,
        std=[0.2, 0.2, 0.2],
        norm=np.inf,
        out=tmp_path / "run",
        **QUICK,
    )
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    call = (
        "brinell.audit(model={'mine': Sequential}, data=data, mean=0.5, std=[0.2, "
        "0.2, 0.2], norm='linf', eps='0.02, 0.1', "
    )
    call += "attack='fgsm')"
    assert manifest["command"] == f"{call} in Python, with the same objects,"
    text = (tmp_path / "run" / "run.toml").read_text()
    assert text.startswith(f"# {call} in Python, with the same objects, repeats this run\n")
    with pytest.raises(BrinellError, check=refused("engine.sources.build_source")):
        brinell.audit("digits-cnn", "in-memory:arrays", eps=0.1)
