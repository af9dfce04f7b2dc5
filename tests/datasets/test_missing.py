"""Tables with missing values: what the model gets, what attacks leave alone, and what is left out."""

import numpy as np
import pytest
import torch

import brinell
from brinell.core.errors import BrinellError
from brinell.datasets.table import TabularFile
from brinell.store.run import Run

pandas = pytest.importorskip("pandas")


def make_frame(rng, n=40):
    """Columns of all types, of which a quarter of the values is missing."""
    frame = pandas.DataFrame(
        {
            "size": rng.normal(size=n),
            "town": rng.choice(["Rome", "Bern"], n).astype(object),
            "count": pandas.array(rng.integers(0, 9, n), dtype="Int64"),
            "member": pandas.array(rng.random(n) < 0.5, dtype="boolean"),
        }
    )
    for name in frame.columns:
        frame.loc[rng.random(n) < 0.25, name] = None
    return frame


class Recorder(torch.nn.Module):
    """A linear model that takes 0 for what is missing, and remembers what it is asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def forward(self, x):
        self.asked.append(x.detach())
        lead = torch.nan_to_num(x)[:, :1]
        return torch.cat([-lead, lead], 1)


def test_a_model_gets_nan_and_the_values_that_the_frame_holds():
    rng = np.random.default_rng(3)
    frame = make_frame(rng)
    data = brinell.data(frame, rng.integers(0, 2, len(frame)), missing="keep")
    model = Recorder()
    (wrapped,) = brinell.inputs.models_of(model, data, "")
    wrapped.predict(data.load(range(len(frame))))
    x = model.asked[-1].numpy()
    assert x.shape == frame.shape and (np.isnan(x) == frame.isna().to_numpy()).all()
    codes = {"Bern": 0, "Rome": 1, True: 1, False: 0}
    for place, name in enumerate(frame.columns):
        values = [codes.get(value, value) for value in frame[name].dropna()]
        np.testing.assert_allclose(
            x[~np.isnan(x[:, place]), place], np.asarray(values, float), rtol=1e-5, atol=1e-6
        )


def test_attacks_leave_missing_values_alone_and_runs_verify(tmp_path, subtests):
    for seed, (norm, attack) in enumerate(
        (("linf", "square?steps=30"), ("l2", "pgd?steps=5"), ("l2", "hop-skip-jump?steps=2"))
    ):
        with subtests.test(attack):
            rng = np.random.default_rng(seed)
            frame = make_frame(rng)[["size", "count"]]
            y = (np.nan_to_num(frame["size"].to_numpy(dtype=float)) > 0).astype(int)
            data, out = brinell.data(frame, y, missing="keep"), tmp_path / attack[:3]
            result = brinell.audit(Recorder(), data, eps=[0.3], norm=norm, attack=attack, out=out)
            assert 0 < result.robust(0.3).value < result.clean().value == 1
            run = Run.open(out)
            records = run.rows
            ids = records.sample_id[records.outcome == "broken"].tolist()
            stored = run.adversarial("Recorder", run.manifest["stages"][0]["name"], ids)
            changed = np.stack([stored[sample] for sample in ids]) != data.load(ids).numpy()
            assert (
                changed[:, 0].all()
                and not changed[:, :2][frame.isna().to_numpy()[ids]].any()
                and not changed[:, 2:].any()
            )
            assert brinell.verify(out, Recorder(), data, trust=out).status != "refused"


def test_rows_are_kept_or_skipped_alike_from_frames_and_files(tmp_path):
    rng = np.random.default_rng(5)
    frame, file = make_frame(rng), tmp_path / "people.csv"
    y = rng.integers(0, 2, len(frame))
    frame.assign(label=y).to_csv(file, index=False)
    complete = int(frame.notna().all(axis=1).sum())
    for missing, n in (("keep", len(frame)), ("skip", complete)):
        data, from_file = (
            brinell.data(frame, y, missing=missing),
            TabularFile(path=str(file), missing=missing)(),
        )
        assert len(data) == len(from_file) == n
        assert torch.equal(data.load(range(n)), from_file.load(range(n)))
        assert data.domain.shape == ((8,) if missing == "keep" else (4,))
    with pytest.raises(BrinellError, match="has no value in any row"):
        brinell.data(frame.assign(size=np.nan), y, missing="keep")
    frame.assign(label=[None, *y[1:]]).to_csv(file, index=False)
    with pytest.raises(BrinellError, match="column label of .* has no value in line 2"):
        TabularFile(path=str(file), missing="keep")()


def test_an_estimator_that_imputes_is_as_accurate_as_by_itself(tmp_path):
    compose, impute, pipeline, preprocessing, linear = (
        pytest.importorskip(f"sklearn.{name}")
        for name in ("compose", "impute", "pipeline", "preprocessing", "linear_model")
    )
    rng = np.random.default_rng(7)
    frame = make_frame(rng, 120)[["size", "town"]]
    frame["town"] = frame["town"].where(frame["town"].notna(), np.nan)
    y = np.where(frame["size"].fillna(0) + (frame["town"] == "Rome") > 0.5, "large", "small")
    numbers = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler())
    texts = pipeline.make_pipeline(
        impute.SimpleImputer(strategy="most_frequent"), preprocessing.OneHotEncoder()
    )
    columns = compose.make_column_transformer((numbers, ["size"]), (texts, ["town"]))
    estimator = pipeline.make_pipeline(columns, linear.LogisticRegression()).fit(frame, y)
    data = brinell.data(frame, y, missing="keep")
    result = brinell.audit(
        estimator, data, eps=[0.05], attack="square?steps=2", samples="all", out=tmp_path / "run"
    )
    assert result.clean().value == pytest.approx(estimator.score(frame, y))
