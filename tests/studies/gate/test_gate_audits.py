"""A gate that audits first, and ends once it is decided."""

from dataclasses import fields

import numpy as np
import pytest

import brinell
from _helpers import threshold
from brinell.analysis.sequences import decide
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.engine.waves import wave_ends
from brinell.store.run import Run

RNG = np.random.default_rng(76)
X = RNG.uniform(0.1, 0.55, (60, 2)).astype(np.float32)
Y = np.zeros(len(X), dtype=int)
MODEL = threshold(0.5)
SETTINGS = {"attack": ("pgd?steps=3", "square?steps=10"), "eps": 0.1, "seed": 3, "device": "cpu"}


def gate(folder, robust, **settings):
    settings = SETTINGS | {"without_checks": True, "until_decided": True} | settings
    return brinell.gate(model=MODEL, data=(X, Y), out=folder, robust=robust, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of all samples, which the gate audits without looks."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    verdict = gate(folder, 0.0, until_decided=False)
    run = Run.open(folder)
    assert verdict.passed and len(np.unique(run.rows.sample_id)) == 60
    return run


def rows_within(run, ids):
    records = run.rows
    inside = np.isin(records.sample_id, ids)
    order = np.lexsort((records.attack[inside], records.sample_id[inside]))
    names = [field.name for field in fields(records) if field.name != "seconds"]
    return {
        name: np.ma.filled(getattr(records, name)[inside][order], -9).tolist() for name in names
    }


@pytest.mark.slow
def test_it_ends_at_the_first_look_that_decides_and_its_rows_are_a_prefix(whole, tmp_path):
    """Thresholds at random: outcome, exit code, number of samples and rows follow from the rows of
    the whole run.
    """
    rng = np.random.default_rng(1)
    outcomes = set()
    for number, robust in enumerate([*rng.uniform(0.05, 0.9, 5), 0.72]):
        folder = tmp_path / str(number)
        verdict = gate(folder, round(float(robust), 3))
        run = Run.open(folder)
        ids = np.unique(run.rows.sample_id)
        assert len(ids) in wave_ends(60) and rows_within(run, ids) == rows_within(whole, ids)

        rate = brinell.open(folder).robust_accuracy[-1]
        decision = decide(rate.k, rate.n, round(float(robust), 3))
        assert rate.n == len(ids) and (decision != "undecided" or len(ids) == 60)
        assert verdict.passed is (decision == "passes")
        assert verdict.undecided is (decision == "undecided")
        code = {"passes": 0, "fails": 1, "undecided": 4}[decision]
        assert verdict.exit_code == code
        word = {"passes": "gate passed", "fails": "gate failed", "undecided": "gate undecided"}
        assert next(iter(verdict.lines())).startswith(word[decision])
        outcomes.add(code)
    assert outcomes == {0, 1, 4}


def test_one_command(tmp_path, capsys):
    words = ["gate", "--data", "digits", "--model", "digits-cnn", "--samples", "60"]
    words += ["--eps", "0.1", "--attack", "fgsm", "--without-checks", "--until-decided"]
    folder = tmp_path / "run"
    assert cli([*words, "--robust", "0.1", "--out", str(folder)]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("gate passed") and f"--out {folder}" in output.err
    assert 24 <= brinell.open(folder).n < 60
    # The folder is gated like any other, and stays what it is.
    assert cli(["gate", str(folder), "--robust", "0.1", "--without-checks"]) == 0
    assert cli(["gate", str(folder), "--robust", "0.99", "--without-checks"]) == 1
    assert cli([*words, "--robust", "0.1", "--out", str(folder)]) == 2, "it holds a run"


def test_a_run_that_its_time_cut_short_is_undecided(tmp_path):
    for robust, code in ((0.1, 4), (1.0, 1)):
        settings = {"minutes": 1e-5, "until_decided": robust < 1}
        verdict = gate(tmp_path / str(robust), robust, **settings)
        assert verdict.exit_code == code and verdict.undecided is (code == 4)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"data": "digits", "robust": 0.1}, "name a run, or "),
        ({"robust": 0.1}, "name a run, or "),
        ({"run": "RUN", "robust": 0.1, "samples": 5}, "RUN is audited already: leave out samples"),
        ({"run": "RUN", "robust": 0.1, "out": "OTHER"}, "RUN is audited already: leave out out"),
        ({"run": "RUN", "clean": 0.1, "until_decided": True}, "add robust"),
        (
            {"data": "digits", "model": "digits-cnn", "certified": 0.1},
            "certified is for a run: audit with certify",
        ),
        ({"data": "digits", "model": "digits-cnn", "unmet": 0.1}, "the audit has none"),
        (
            {
                "data": "digits",
                "model": "digits-cnn",
                "eps": 0.1,
                "robust": 0.9,
                "samples": 20,
                "until_decided": True,
            },
            "20 samples cannot decide whether robust accuracy reaches 0.9: even if all are robust",
        ),
    ],
)
def test_refusals(settings, line):
    with pytest.raises(RequestError) as error:
        brinell.gate(**settings)
    assert line in str(error.value).replace("--", "") and "\n" not in str(error.value)
