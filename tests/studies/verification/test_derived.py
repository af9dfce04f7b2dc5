"""What derives from a forged folder, and what lies unnamed in an honest one, is not proved."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import brinell
from _forger import Forger, whitewash
from brinell.core.errors import BrinellError
from brinell.store.parquet import write_table
from brinell.studies.register import study_of, write_page

RNG = np.random.default_rng(75)


def status_of(folder, trust):
    """The status of a folder, `refused` where an error ends its verification."""
    try:
        return str(brinell.verify(folder, trust=trust, replay=24).status)
    except BrinellError:
        return "refused"


@pytest.fixture
def folders(audit_run, tmp_path):
    """A copy of an honest run, and a forged one, in which broken samples are robust."""
    honest, forged = (shutil.copytree(audit_run, tmp_path / name) for name in ("honest", "forged"))
    forger = Forger(forged)
    samples = sorted({row["sample_id"] for row in forger.select(outcome="broken")})[:8]
    whitewash(forger, samples, lambda stage: {"forwards": 4, "backwards": 3})
    forger.delete_inputs(samples)
    forger.save()
    return honest, forged


def list_again(folder):
    """Write the manifest of a folder again, so that it lists all files that are there."""
    layout = study_of(folder).layout
    layout.save(folder, json.loads((folder / "manifest.json").read_text()))


def test_a_claim_about_a_forged_run_elsewhere_is_not_proved(folders, tmp_path):
    honest, forged = folders
    assert status_of(honest, tmp_path) == "proved" and status_of(forged, tmp_path) == "refused"
    brinell.claim(forged, out=tmp_path / "claim")
    shutil.copytree(tmp_path / "claim", honest / "claim")
    assert status_of(honest, tmp_path) == "refused"
    shutil.rmtree(honest / "claim")
    brinell.claim(honest, out=honest / "claim")
    assert status_of(honest, tmp_path) == "proved"


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_folder_that_a_claim_holds_and_does_not_name_is_refused(folders, tmp_path, is_listed):
    honest, forged = folders
    claim = tmp_path / "claim"
    brinell.claim(honest, out=claim)
    place = "/".join(RNG.choice(["audit", "x", "records"], int(RNG.integers(1, 3))).tolist())
    shutil.copytree(forged, claim / place)
    if is_listed:
        list_again(claim)
    assert status_of(claim, tmp_path) == "refused"


@pytest.mark.slow
def test_an_audit_by_forged_budgets_is_not_proved(tmp_path):
    """The budgets come from a study whose rows are false, and every digest is made anew."""
    study, run = tmp_path / "epsilon", tmp_path / "run"
    settings = {"norm": "linf", "data": "digits"}
    brinell.epsilon(**settings, samples=200, out=study)
    for name, factor in (("honest", 1.0), ("forged", float(RNG.uniform(0.2, 0.6)))):
        for file in study.glob("*.parquet"):
            table = pq.read_table(file)
            columns = {
                column: pc.multiply(table[column], factor).cast(table.schema.field(column).type)
                if pa.types.is_floating(table.schema.field(column).type)
                else table[column]
                for column in table.column_names
            }
            write_table(file, pa.table(columns, table.schema))
        list_again(study)
        write_page(study)
        audit = {"eps": f"recommended:{study}", "attack": "fgsm", "samples": 16}
        brinell.audit("digits-cnn", "digits", **audit, out=run / name)
        expected = "proved" if name == "honest" else "refused"
        assert status_of(run / name, tmp_path) == expected
