"""Classifiers of scikit-learn as targets: which answers, in which order, and what is refused."""

import sys
import zipfile

import numpy as np
import pytest
import sklearn
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from _lazy import library
from brinell.core.domain import Column, Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.engine.sources import build_source
from brinell.engine.spelling import expand_spec
from brinell.models.sklearn import FORESTS, Answering, Sklearn, forest_probabilities
from brinell.testing import check_model

skops = library("skops.io")

TREE = "sklearn.tree._tree.Tree"
DATA, NAMES = load_wine().data, np.array(["red", "rose", "white"])[load_wine().target]
COLUMNS = tuple(
    Column(str(index), float(low), float(high))
    for index, (low, high) in enumerate(zip(DATA.min(0), DATA.max(0), strict=True))
)
DOMAIN = Domain(kind="vector", shape=(13,), columns=COLUMNS)
X = torch.from_numpy((DATA - DATA.min(0)) / np.ptp(DATA, 0)).float()


def open_model(spec):
    return build_source("model", expand_spec("model", spec))(DOMAIN)


@pytest.fixture
def saved(tmp_path):
    """Saves an estimator and opens it as a model."""

    def saved(estimator, domain=DOMAIN, **options):
        skops.dump(estimator, tmp_path / "model.skops")
        return Sklearn(path=str(tmp_path / "model.skops"), **options)(domain)

    return saved


def test_probabilities_become_logits(saved):
    estimator = LogisticRegression(max_iter=20).fit(StandardScaler().fit_transform(DATA), NAMES)
    pipeline = make_pipeline(StandardScaler().fit(DATA), estimator)
    model = saved(pipeline)
    check_model(model)
    assert (
        model.access == Access.SCORES
        and model.info.class_names == ("red", "rose", "white")
        and model.classes == 3
    )
    assert model.name == "model" and model.info.architecture == "Pipeline"
    logits = model.predict(X)
    assert torch.allclose(
        logits.softmax(1).double(), torch.from_numpy(pipeline.predict_proba(DATA)), atol=1e-5
    )
    assert NAMES[logits.argmax(1).numpy()[0]] == pipeline.predict(DATA)[0]


def test_a_forest_is_sure_of_what_all_trees_say(saved):
    forest = RandomForestClassifier(5, random_state=0, n_jobs=-1).fit(DATA, NAMES)
    model = saved(forest, trusted=(TREE,))
    check_model(model)
    logits = model.predict(X)
    assert (
        torch.isfinite(logits).all()
        and (logits.argmax(1).numpy() == forest.predict_proba(DATA).argmax(1)).mean() == 1
    )
    assert model.model.module.function.estimator.n_jobs == 1, "one thread"


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_trees_that_are_asked_directly_answer_like_their_forest(kind):
    rng = np.random.default_rng(3)
    for classes in rng.integers(2, 9, 4).tolist():
        x = rng.normal(size=(60, 5))
        depth = None if rng.integers(2) else 3
        forest = kind(7, max_depth=depth, random_state=0).fit(x, rng.integers(classes, size=60))
        rows = rng.normal(size=(30, 5))
        assert f"{kind.__module__}.{kind.__name__}" in FORESTS
        assert (forest_probabilities(forest, rows) == forest.predict_proba(rows)).all()
        places = Answering(forest, "predict", lambda values: values)(rows)
        assert (forest.classes_[places] == forest.predict(rows)).all()


def test_two_classes_of_one_score(saved):
    y = NAMES == "red"
    estimator = LogisticRegression().fit(DATA[:, :3], y)
    domain = Domain(kind="vector", shape=(3,), low=0.0, high=2000.0)
    model = saved(estimator, domain, answers="decision")
    x = torch.from_numpy(DATA[:, :3]).float()
    assert model.info.class_names == ("False", "True")
    # Of logistic regression the softmax of what stands for the score is the probability.
    assert torch.allclose(
        model.predict(x).softmax(1)[:, 1].double(),
        torch.from_numpy(estimator.predict_proba(DATA[:, :3])[:, 1]),
        atol=1e-5,
    )


def test_the_decision_function_and_labels_alone(saved, tmp_path):
    estimator = LinearSVC(max_iter=20000).fit(StandardScaler().fit_transform(DATA), NAMES)
    model = saved(make_pipeline(StandardScaler().fit(DATA), estimator))
    expected = torch.from_numpy(
        estimator.decision_function(StandardScaler().fit_transform(DATA))
    ).float()
    assert torch.allclose(model.predict(X), expected, atol=1e-4)
    labels = Sklearn(path=str(tmp_path / "model.skops"), answers="labels")(DOMAIN)
    check_model(labels)
    assert labels.access == Access.LABELS and torch.equal(
        labels.predict(X).argmax(1), expected.argmax(1)
    )
    repetition = Sklearn(path=str(tmp_path / "model.skops"))(DOMAIN)
    assert model.digest() == repetition.digest() != labels.digest()
    with pytest.raises(
        RequestError, match=r"model cannot take the data, arrays of shape \(n, 5\).*features"
    ):
        Sklearn(path=str(tmp_path / "model.skops"))(Domain(kind="vector", shape=(5,)))


def test_pictures_are_flattened(saved):
    x = np.random.default_rng(0).random((40, 1, 4, 4))
    estimator = LogisticRegression().fit(x.reshape(40, 16), np.arange(40) % 2)
    domain = Domain(kind="image", shape=(1, 4, 4))
    model = saved(estimator, domain)
    check_model(model)
    probabilities = model.predict(torch.from_numpy(x).float()).softmax(1)
    assert torch.allclose(
        probabilities.double(),
        torch.from_numpy(estimator.predict_proba(x.reshape(40, 16))),
        atol=1e-5,
    )


def test_a_pipeline_over_named_columns_gets_names_and_texts(saved, monkeypatch):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(
        {"job": ["cook", "baker", "cook", "baker"], "age": [20.0, 60.0, 40.0, 50.0]}
    )
    encode = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["job"]), remainder="passthrough"
    )
    estimator = make_pipeline(encode, LogisticRegression()).fit(table, [0, 1, 0, 1])
    # The data has the columns in another order, and one more.
    columns = (
        Column("age", 20.0, 60.0),
        Column("zip", fixed=True),
        Column("job", fixed=True, values=("baker", "cook")),
    )
    domain = Domain(kind="vector", shape=(3,), low=0.0, high=(1.0, 9.0, 1.0), columns=columns)
    x = torch.tensor([[0.0, 5.0, 1.0], [1.0, 5.0, 0.0], [0.5, 5.0, 1.0], [0.75, 5.0, 0.0]])
    probabilities = saved(estimator, domain).predict(x).softmax(1).double()
    assert torch.allclose(
        probabilities, torch.from_numpy(estimator.predict_proba(table)), atol=1e-5
    )
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        with pytest.raises(
            RequestError,
            match="^pandas is not installed, in which model takes the texts of categories",
        ):
            saved(estimator, domain)
    other_domain = Domain(kind="vector", shape=(1,), columns=(Column("age"),))
    with pytest.raises(
        RequestError, match="was fitted with a column 'job', which the data has not: it has age"
    ):
        saved(estimator, other_domain)


def test_types_that_nobody_trusts_are_not_made(saved):
    forest = RandomForestClassifier(2, random_state=0).fit(DATA, NAMES)
    with pytest.raises(
        RequestError, match=rf"does not trust by default \({TREE}\): .* write (.*trusted={TREE})$"
    ) as refusal:
        saved(forest)
    assert open_model(str(refusal.value).rpartition("write ")[2]).classes == 3, "as it is printed"
    with pytest.raises(RequestError, match=rf"trusted=other.Type\+{TREE}$"):
        saved(forest, trusted=("other.Type",))


def test_another_version_is_named_as_the_cause(saved, tmp_path):
    """Where the file fails; a file of another version that works is no cause for anything."""
    saved(LogisticRegression().fit(X.numpy(), NAMES))
    with zipfile.ZipFile(tmp_path / "model.skops") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    version = f'\\"{sklearn.__version__}\\"'
    for change, words in (("1.0.2", ""), ("1.0.2", '"coef_"'), (sklearn.__version__, '"coef_"')):
        schema = parts["schema.json"].decode().replace(version, f'\\"{change}\\"')
        schema = schema.replace(words, '"old_coef_"') if words else schema
        with zipfile.ZipFile(tmp_path / "old.skops", "w") as archive:
            for name, content in (parts | {"schema.json": schema.encode()}).items():
                archive.writestr(name, content)
        if not words:
            assert "model was" not in "".join(open_model(str(tmp_path / "model.skops")).info.notes)
            assert "old was saved by scikit-learn 1.0.2, and" in "".join(
                open_model(str(tmp_path / "old.skops")).info.notes
            )
            continue
        with pytest.raises(RequestError) as error:
            open_model(str(tmp_path / "old.skops"))
        assert ("saved by scikit-learn 1.0.2, and" in str(error.value)) == (change == "1.0.2")


def test_what_is_no_classifier(saved, tmp_path):
    with pytest.raises(RequestError, match="holds a Ridge, which is no fitted classifier"):
        saved(Ridge().fit(DATA, load_wine().target))
    with pytest.raises(RequestError, match="LogisticRegression, which is no fitted classifier"):
        saved(LogisticRegression())
    with pytest.raises(
        RequestError, match="its LinearSVC has no predict_proba: leave answers= out"
    ):
        saved(LinearSVC().fit(X.numpy(), NAMES), answers="probabilities")
    with pytest.raises(
        RequestError, match="6 scores for 4 classes: it must be a classifier of one label"
    ):
        four = np.arange(len(X)) % 4
        saved(SVC(decision_function_shape="ovo").fit(X.numpy(), four))
    multi_output = RandomForestClassifier(2).fit(DATA, np.stack([NAMES, NAMES], 1))
    with pytest.raises(RequestError, match="of several labels each"):
        saved(multi_output, trusted=(TREE,))


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    file = tmp_path / "model.skops"
    with pytest.raises(RequestError, match="there is no file .*: check the path"):
        Sklearn(path=str(file))(DOMAIN)
    with pytest.raises(RequestError, match="write sklearn:FILE.skops"):
        Sklearn()(DOMAIN)
    file.write_bytes(b"PK no archive")
    with pytest.raises(RequestError, match="damaged or no skops file"):
        Sklearn(path=str(file))(DOMAIN)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(RequestError, match=r"pip install 'brinell\[sklearn\]'$"):
        Sklearn(path=str(file))(DOMAIN)
