"""From a data set to a page: a generator that learned for a second, an attack with it, and what its
folder holds.
"""

import shutil

import numpy as np
import pytest
import torch

import brinell
from _browser import check_everywhere, chromium
from _mutations import count_refused
from brinell import plugins
from brinell.cli import run as cli
from brinell.core.errors import ModelError
from brinell.core.record import columns_of
from brinell.store.files import read_arrays
from brinell.store.parquet import load_rows
from brinell.studies.generator.generator import load
from brinell.studies.unrestricted import result, run
from brinell.studies.unrestricted.result import (
    PLAIN,
    AttemptOutcome,
    AttemptRows,
    example_file,
    example_name,
)

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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("brinell.studies.generator.run.WIDTHS", (8, 8))
        patch.setattr("brinell.studies.generator.run.RATE", 0.004)
        assert cli(["train", "generator", "--out", str(file), "--steps", "320"]) == 0
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
        "--class-probability",
        "0.5",
        "--out",
        str(out),
        *options,
    ]


def rows_of(folder):
    """The rows of a folder as dicts."""
    table = load_rows(AttemptRows, folder / "rows.parquet")
    columns = {name: getattr(table, name).tolist() for name in columns_of(AttemptRows)}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def refusal_line(capsys, arguments):
    capsys.readouterr()
    assert cli([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("brinell: error: ") and err.count("\n") == 1
    return err


@pytest.mark.slow
def test_what_the_rows_claim_holds(run_folder, generator):
    """Every claim of the records is made anew from the stored inputs."""
    loaded_generator = load(generator)
    dataset = plugins.build("dataset", "digits", {"split": "train"})()
    model = plugins.build("model", "digits-cnn", {})(dataset.domain)
    rows = rows_of(run_folder)
    plain = {row["attempt"]: row for row in rows if row["variant"] == PLAIN}
    assert len(plain) == 30 and sorted({row["intended"] for row in rows}) == list(range(10))
    fooled_rows = [row for row in rows if row["outcome"] == AttemptOutcome.FOOLED]
    assert len(fooled_rows) > 10, "this generator and this model: most searches succeed"
    flat, labels = dataset.load(range(len(dataset))).flatten(1).numpy(), dataset.labels()
    arrays = read_arrays(run_folder / example_file(0))
    for row in fooled_rows:
        name = example_name(row["attempt"], row["model"], row["variant"])
        x, start = (
            torch.from_numpy(arrays[key])[None] for key in (name, example_name(row["attempt"]))
        )
        assert (
            torch.equal(dataset.domain.round(x.clone()), x)
            and 0 <= float(x.min())
            and float(x.max()) <= 1
        )
        with torch.no_grad():
            assert int(model.predict(x).argmax()) == row["pred"] != row["intended"]
            assert (
                int(model.predict(start).argmax())
                == plain[row["attempt"]]["pred"]
                == row["intended"]
            )
            assert float(
                loaded_generator.classifier(x).softmax(1)[0, row["intended"]]
            ) == pytest.approx(row["aux_probability"], abs=1e-3)
            redrawn = loaded_generator.generator(
                torch.from_numpy(arrays[f"{name}/latent"])[None], torch.tensor([row["intended"]])
            )
        noise = 0.1 if row["variant"] == "noise" else 0.0
        assert float((x - redrawn).abs().max()) <= noise + 0.5 / 16 + 1e-5
        size = np.linalg.norm(flat - arrays[name].ravel(), axis=1)
        assert row["l2_same"] == pytest.approx(size[labels == row["intended"]].min(), rel=1e-5)
        assert (arrays[f"reference/{row['l2_same_at']}"].ravel() == flat[row["l2_same_at"]]).all()
        assert row["l2_other"] == pytest.approx(size[labels != row["intended"]].min(), rel=1e-5)
        assert row["forwards"] == row["backwards"] > 0


def test_what_is_searched_is_clear_and_right(run_folder):
    rows = rows_of(run_folder)
    clear = [row["attempt"] for row in rows if row["outcome"] == AttemptOutcome.CLEAR]
    for variant in ("latent", "noise"):
        assert [row["attempt"] for row in rows if row["variant"] == variant] == clear
    for row in rows:
        if row["outcome"] in (AttemptOutcome.CLEAR, AttemptOutcome.GENERALISATION):
            assert row["aux"] == row["intended"] and (row["pred"] == row["intended"]) == (
                row["outcome"] == AttemptOutcome.CLEAR
            )


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_stands_alone(run_folder):
    html = (run_folder / "report.html").read_text(encoding="utf-8")
    assert "Before and after the search" in html and html.count("data:image/png;base64") > 40
    names = {"outcomes", "classes", "witnesses"}
    assert {path.stem for path in (run_folder / "tables").iterdir()} == names
    with chromium() as browser:
        check_everywhere(browser, run_folder / "report.html")


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(run_folder, generator, tmp_path, monkeypatch, capsys):
    for module in (run, result):
        monkeypatch.setattr(module, "PIECE", 16)
    out, make_piece = tmp_path / "run", run._Attack.make_piece

    def stop(attack, start):
        if start:
            raise ModelError("the machine is switched off")
        return make_piece(attack, start)

    with monkeypatch.context() as patch:
        patch.setattr(run._Attack, "make_piece", stop)
        assert cli(words(generator, out)) != 0
    starts = []
    monkeypatch.setattr(
        run._Attack,
        "make_piece",
        lambda attack, start: starts.append(start) or make_piece(attack, start),
    )
    assert cli(["unrestricted", "--resume", "--out", str(out)]) == 0 and starts == [16]

    def plainly(folder):
        return sorted(
            str([row[name] for name in ("attempt", "variant", "outcome", "pred", "forwards")])
            for row in rows_of(folder)
        )

    # The same attempts in one piece: what becomes of one does not depend on those beside it.
    assert plainly(out) == plainly(run_folder)
    assert "seed was 0 and is 1" in refusal_line(
        capsys, words(generator, out, "--seed", "1", "--resume")
    )


@pytest.mark.slow
def test_judges_contest_and_models_stand_side_by_side(generator, tmp_path):
    (tmp_path / "judge.py").write_text(JUDGE)
    spec = f"{tmp_path / 'judge.py'}:judge"
    assert cli(words(generator, tmp_path / "a", "--judge", spec, "--noise", "0")) == 0
    assert brinell.open(tmp_path / "a").facts.judges == ["judge"]
    rows = rows_of(tmp_path / "a")
    for row in rows:
        agree = row["judges"] == str(row["intended"]) and row["aux"] == row["intended"]
        assert agree or row["outcome"] in (
            AttemptOutcome.UNCLEAR,
            AttemptOutcome.CONTESTED,
            AttemptOutcome.SURVIVED,
        )
        if row["outcome"] in (AttemptOutcome.FOOLED, AttemptOutcome.CONTESTED):
            assert (row["judges"] == str(row["intended"])) == (
                row["outcome"] == AttemptOutcome.FOOLED
            )
    assert any(row["outcome"] == AttemptOutcome.UNCLEAR for row in rows)
    assert cli(words(generator, tmp_path / "b", "--model", "digits-cnn", "--model", spec)) == 0
    both = brinell.open(tmp_path / "b")
    assert both.attempts == 30 and both.names == ["digits-cnn", "judge"]


BAD_REQUESTS = [
    (["--generator", "none.safetensors"], "there is no generator"),
    (["--class-probability", "1.5"], "class-probability is 1.5"),
    (["--model", "digits-cnn", "--model", "digits-cnn"], "two models are called"),
    (["--per-class", "0"], "per-class is 0"),
]


def test_bad_requests(generator, tmp_path, capsys, subtests):
    for number, (options, message) in enumerate(BAD_REQUESTS):
        with subtests.test(str(message)):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert message in refusal_line(capsys, words(generator, folder / "run", *options))


@pytest.mark.slow
def test_data_that_do_not_fit(tmp_path, capsys):
    x = np.random.default_rng(0).random((40, 12, 12)).astype(np.float32)
    np.savez(tmp_path / "poor.npz", images=x, labels=np.minimum(np.arange(40), 1))
    np.savez(tmp_path / "flat.npz", images=np.zeros_like(x), labels=np.arange(40) % 2)
    np.savez(tmp_path / "vector.npz", x=x.reshape(40, -1), y=np.arange(40) % 2)
    assert "--generator is missing" in refusal_line(capsys, ["unrestricted"])
    for data, message in (("poor", "too few"), ("flat", "are equal"), ("vector", "draws images")):
        assert message in refusal_line(
            capsys, ["train", "generator", "--out", "g.safetensors", "--data", f"npz:{data}.npz"]
        )
    assert "end it with" in refusal_line(capsys, ["train", "generator", "--out", "g.bin"])


def test_a_damaged_folder(run_folder, tmp_path, capsys):
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    (copy / example_file(0)).write_bytes(b"half")
    assert "was changed after the run ended" in refusal_line(capsys, ["report", copy])


def test_a_manifest_of_another_form(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "run")
    assert (
        count_refused(40, tmp_path / "run/manifest.json", lambda: brinell.report(tmp_path / "run"))
        > 20
    )
