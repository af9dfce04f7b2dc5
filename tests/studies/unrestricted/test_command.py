"""From a data set to a page: a generator that learned for a second, an attack with it, and what its folder holds."""

import json
import shutil

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import brinell
from _mutations import count_refused
from brinell import plugins
from brinell.cli import run as cli
from brinell.store.folder import MANIFEST
from brinell.studies.generator.generator import load
from brinell.studies.unrestricted.records import COLUMNS, Outcome, UnrestrictedRun
from brinell.studies.unrestricted.request import UnrestrictedRequest
from brinell.studies.unrestricted.run import make_plan

JUDGE = '''
import torch
from torch import nn
def judge():
    """Sees in everything what the mean of the image says; made to contest."""
    class Mean(nn.Module):
        def forward(self, x):
            return -(10 * (20 * x.mean((1, 2, 3)))[:, None] - 10 * torch.arange(10.0)).abs()
    return Mean()
'''


@pytest.fixture(autouse=True)
def _work_in_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    file = tmp_path_factory.mktemp("generator") / "digits.safetensors"
    assert cli(["train-generator", "--out", str(file), "--width", "8", "--steps", "320", "--rate", "0.004"]) == 0
    return file


@pytest.fixture(scope="module")
def run_folder(generator, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    assert cli(words(generator, out)) == 0
    return out


def words(generator, out, *options):
    return [
        "unrestricted",
        "--generator",
        str(generator),
        "--per-class",
        "3",
        "--steps",
        "60",
        "--sure",
        "0.5",
        "--out",
        str(out),
        *options,
    ]


def answer(capsys, root, arguments, schema):
    capsys.readouterr()
    assert cli([*arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    answer_json = json.loads(out)
    jsonschema.validate(answer_json, json.loads((root / "docs" / "schema" / f"{schema}.json").read_text()))
    return answer_json


def refusal_line(capsys, arguments):
    capsys.readouterr()
    assert cli([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("brinell: error: ") and err.count("\n") == 1
    return err


def test_what_the_rows_claim_holds(run_folder, generator):
    """Every claim of the records is made anew from the stored inputs."""
    run, loaded_generator = UnrestrictedRun.open(run_folder), load(generator)
    dataset = plugins.build("dataset", "digits", {"split": "train"})()
    model = plugins.build("model", "digits-cnn", {})(dataset.domain)
    rows = run.rows()
    assert len(rows) == 2 * 30 and sorted({row["intended"] for row in rows}) == list(range(10))
    assert pq.read_table(run.file("records", 0)).schema.names == list(COLUMNS)
    fooled_rows = [row for row in rows if row["outcome"] == Outcome.FOOLED]
    assert len(fooled_rows) > 10, "this generator and this model: most searches succeed"
    flat = dataset.load(range(len(dataset))).flatten(1).numpy()
    labels = dataset.labels()
    for row in fooled_rows:
        name = f"{row['attempt']}/{row['model']}/{row['variant']}"
        stored_arrays = run.arrays([name, f"{name}/latent", f"{row['attempt']}/plain"])
        x, plain = (torch.from_numpy(stored_arrays[key])[None] for key in (name, f"{row['attempt']}/plain"))
        assert torch.equal(dataset.domain.round(x.clone()), x) and 0 <= float(x.min()) and float(x.max()) <= 1
        with torch.no_grad():
            assert int(model.predict(x).argmax()) == row["pred"] != row["intended"]
            assert int(model.predict(plain).argmax()) == row["plain_pred"] == row["intended"]
            assert float(loaded_generator.classifier(x).softmax(1)[0, row["intended"]]) == pytest.approx(
                row["aux_probability"], abs=1e-3
            )
            redrawn = loaded_generator.generator(
                torch.from_numpy(stored_arrays[f"{name}/latent"])[None], torch.tensor([row["intended"]])
            )
        noise = 0.1 if row["variant"] == "noise" else 0.0
        assert float((x - redrawn).abs().max()) <= noise + 0.5 / 16 + 1e-5
        size = np.linalg.norm(flat - stored_arrays[name].ravel(), axis=1)
        assert row["l2_same"] == pytest.approx(size[labels == row["intended"]].min(), rel=1e-5)
        assert row["linf_other"] == pytest.approx(
            np.abs(flat - stored_arrays[name].ravel()).max(1)[labels != row["intended"]].min(), rel=1e-5
        )
        anchor = np.linalg.norm(flat - flat[row["l2_same_at"]], axis=1)
        anchor[row["l2_same_at"]] = np.inf
        assert row["l2_anchor_same"] == pytest.approx(anchor[labels == row["intended"]].min(), rel=1e-5)
        assert row["forwards"] == row["backwards"] >= row["queries_to_success"] > 0


def test_attempts_that_were_not_searched_cost_nothing(run_folder):
    for row in UnrestrictedRun.open(run_folder).rows():
        searched = row["outcome"] not in (Outcome.UNCLEAR, Outcome.GENERALISATION)
        assert (row["pred"] is not None) == searched == (row["forwards"] > 0)
        assert row["judge_forwards"] == 1 + searched
        if row["outcome"] == Outcome.GENERALISATION:
            assert row["plain_pred"] != row["intended"] == row["plain_aux"]


def test_the_page_stands_alone(run_folder):
    html = (run_folder / "report.html").read_text(encoding="utf-8")
    assert "Two kinds of failure" in html and html.count("data:image/png;base64") > 40
    assert "http://" not in html and "https://" not in html and html.count("<script") == 1
    finished_attempts = {
        (row["variant"], row["intended"]) for row in UnrestrictedRun.open(run_folder).rows() if row["outcome"] == Outcome.FOOLED
    }
    assert html.count("<h3>Class") == len(finished_attempts) > 5
    assert {path.name for path in (run_folder / "tables").iterdir()} == {"failures.csv", "witnesses.csv", "distances.csv"}


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(run_folder, generator, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("brinell.studies.unrestricted.run.BLOCK", 16)
    out = tmp_path / "run"
    assert cli(words(generator, out)) == 0
    before = UnrestrictedRun.open(out).rows()
    first = UnrestrictedRun.open(out).file("records", 0).stat().st_mtime_ns
    UnrestrictedRun.open(out).file("records", 1).unlink()
    assert "add --resume" in refusal_line(capsys, words(generator, out))
    assert cli(["unrestricted", "--resume", "--out", str(out)]) == 0
    resumed = UnrestrictedRun.open(out)
    assert resumed.file("records", 0).stat().st_mtime_ns == first

    def plainly(rows):
        return [[row["attempt"], row["variant"], row["outcome"], row["pred"], row["forwards"]] for row in rows]

    assert plainly(resumed.rows()) == plainly(before)
    # The same attempts in one block: what becomes of one does not depend on those beside it.
    assert sorted(map(str, plainly(UnrestrictedRun.open(run_folder).rows()))) == sorted(map(str, plainly(before)))
    assert "seed was 0 and is 1" in refusal_line(capsys, words(generator, out, "--seed", "1", "--resume"))


@pytest.mark.slow
def test_judges_contest_and_models_stand_side_by_side(generator, tmp_path, root, capsys):
    (tmp_path / "judge.py").write_text(JUDGE)
    spec = f"torch:{tmp_path / 'judge.py'}:judge"
    answer_json = answer(capsys, root, words(generator, tmp_path / "a", "--judge", spec, "--noise", "0"), "unrestricted")
    assert answer_json["judges"] == ["judge"]
    rows = UnrestrictedRun.open(tmp_path / "a").rows()
    for row in rows:
        agrees = row["plain_judges"] == [row["intended"]] and row["plain_aux"] == row["intended"]
        assert agrees or row["outcome"] == Outcome.UNCLEAR
        if row["outcome"] in (Outcome.FOOLED, Outcome.CONTESTED):
            assert (row["judges"] == [row["intended"]]) == (row["outcome"] == Outcome.FOOLED)
    assert any(row["outcome"] == Outcome.UNCLEAR for row in rows)
    both_judges = answer(
        capsys, root, words(generator, tmp_path / "b", "--model", "digits-cnn", "--model", spec, "--towards", "3"), "unrestricted"
    )
    assert both_judges["towards"] == "3" and both_judges["attempts"] == 27
    rows = UnrestrictedRun.open(tmp_path / "b").rows()
    assert {row["model"] for row in rows} == {"digits-cnn", "judge"} and {row["target"] for row in rows} == {3}
    assert all(row["pred"] == 3 for row in rows if row["outcome"] == Outcome.FOOLED)


BAD_REQUESTS = [
    (["--generator", "none.safetensors"], "there is no generator"),
    (["--towards", "ten"], "there is no class 'ten'"),
    (["--sure", "1.5"], "sure is 1.5"),
    (["--model", "digits-cnn", "--model", "digits-cnn"], "two models are called"),
    (["--per-class", "0"], "per-class is 0"),
]


def test_bad_requests(generator, tmp_path, capsys, subtests):
    for number, (options, message) in enumerate(BAD_REQUESTS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert message in refusal_line(capsys, words(generator, folder / "run", *options))


def test_data_that_do_not_fit(generator, tmp_path, capsys):
    x = np.random.default_rng(0).random((40, 12, 12)).astype(np.float32)
    np.savez(tmp_path / "other.npz", images=x, labels=np.arange(40) % 2)
    np.savez(tmp_path / "poor.npz", images=x, labels=np.minimum(np.arange(40), 1))
    np.savez(tmp_path / "flat.npz", images=np.zeros_like(x), labels=np.arange(40) % 2)
    np.savez(tmp_path / "vector.npz", x=x.reshape(40, -1), y=np.arange(40) % 2)
    assert "train one on this data" in refusal_line(capsys, words(generator, tmp_path / "run", "--data", "npz:other.npz"))
    assert "--generator is missing" in refusal_line(capsys, ["unrestricted"])
    for data, message in (("poor", "too few"), ("flat", "are equal"), ("vector", "draws images")):
        assert message in refusal_line(capsys, ["train-generator", "--out", "g.safetensors", "--data", f"npz:{data}.npz"])
    assert "end it with" in refusal_line(capsys, ["train-generator", "--out", "g.bin"])


def test_damaged_folders(run_folder, tmp_path, capsys):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    UnrestrictedRun.open(copy).file("records", 0).write_bytes(b"half")
    assert "was changed after the run ended" in refusal_line(capsys, ["report", copy])
    (copy / MANIFEST).write_text("{")
    assert "is damaged" in refusal_line(capsys, ["report", copy])


def test_the_cell_names_what_decides_the_rows(generator):
    request = UnrestrictedRequest(generator=str(generator), per_class=1)
    cell = make_plan(request).cell
    assert make_plan(request.model_copy(update={"batch_size": 7})).cell == cell
    for change in ({"seed": 1}, {"noise": 0.2}, {"steps": 7}, {"towards": "1"}, {"judge": ("digits-cnn",)}):
        assert make_plan(request.model_copy(update=change)).cell != cell


def test_a_manifest_of_another_form(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    assert count_refused(40, tmp_path / "run/manifest.json", lambda: brinell.report(tmp_path / "run")) > 20
