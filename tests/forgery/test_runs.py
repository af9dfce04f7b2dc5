"""Random forgeries of a run: each is refused, changes nothing that is shown, or changes what is
marked as a claim.
"""

import json
import shutil

import numpy as np
import pytest

import brinell
from _edits import forge
from _nights import of_tonight
from brinell.core.errors import BrinellError

SAMPLES = 24
SEED = 43


@pytest.fixture
def honest(audit_run):
    return audit_run


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    brinell.audit("digits-cnn", "digits", eps="0.1,0.2", samples=12, out=folder)
    return folder


@pytest.fixture(scope="module")
def patches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patches") / "run"
    brinell.audit(
        "digits-cnn", "digits", norm="l2", eps="1", attack="rlab?steps=5", samples=8, out=folder
    )
    return folder


def shown(folder):
    """Everything that a person is shown of a folder, as far as it can be opened."""
    payload = brinell.open(folder).payload()
    texts = {
        path.name: path.read_bytes()
        for path in [folder / "report.html", *sorted((folder / "tables").glob("*.csv"))]
    }
    return json.dumps(payload).replace(str(folder), ""), texts


def check_edit(honest, folder, seed):
    """Forge a copy of a run and demand that the forgery is noticed."""
    shutil.copytree(honest, folder)
    edit = forge(folder, seed)
    try:
        result = brinell.verify(folder, replay=SAMPLES, trust=folder)
    except BrinellError:
        return
    if result.status == "refused" or edit.target in result.claimed:
        return
    assert result.status == "proved", (seed, edit)
    assert shown(folder) == shown(honest), f"seed {seed}: {edit} is not noticed"


@pytest.mark.parametrize(
    "seeds",
    [range(SEED, SEED + 6), pytest.param(range(SEED + 6, SEED + 50), marks=pytest.mark.slow)],
    ids=len,
)
def test_a_random_edit_is_noticed(honest, tmp_path, seeds):
    for seed in seeds:
        check_edit(honest, tmp_path / str(seed), seed)


@pytest.mark.nightly
def test_many_random_edits_are_noticed(request, tmp_path_factory, subtests):
    """Others each night: without a failure among 150 less than 2 % of edits pass, with 95 %
    confidence.
    """
    for name in ["honest", "digits", "patches"]:
        with subtests.test(name):
            tmp_path = tmp_path_factory.mktemp("row")
            honest = request.getfixturevalue(name)
            for seed in of_tonight(50):
                check_edit(honest, tmp_path / f"run{seed}", seed)
                shutil.rmtree(tmp_path / f"run{seed}")


@pytest.mark.nightly
def test_what_derives_from_a_forged_run_says_so(honest, tmp_path):
    """A claim and a comparison are verified down to the run; they pass only where the run as forged
    does.
    """
    for seed in np.random.SeedSequence().generate_state(12).tolist():
        run = tmp_path / str(seed)
        shutil.copytree(honest, run)
        edit = forge(run, seed)
        for name, derive in (
            ("claim", brinell.claim),
            ("compare", lambda run, out: brinell.compare([run, honest], out=out)),
        ):
            try:
                derive(run, out=tmp_path / f"{seed}-{name}")
                passed = brinell.verify(
                    tmp_path / f"{seed}-{name}", replay=SAMPLES, trust=tmp_path
                ).passed
            except BrinellError:
                continue
            assert not passed or brinell.verify(run, replay=SAMPLES, trust=tmp_path).passed, (
                name,
                seed,
                edit,
            )


def test_an_honest_run_is_proved(honest):
    result = brinell.verify(honest, replay=SAMPLES)
    assert result.passed and result.replayed >= result.samples and not result.deviations
