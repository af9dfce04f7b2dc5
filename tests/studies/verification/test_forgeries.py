"""Forged runs with consistent digests, tables and pages do not verify.

Each forgery raises or lowers a figure, or hides a cost or a failure. Verification queries the model
again and attacks all robust samples again, so the result does not depend on a draw.
"""

import shutil

import pytest

import brinell
from _cli import audit_arguments
from _forger import Forger, survive, whitewash
from _helpers import workspace
from _refusals import refused
from brinell.analysis.spot_checks import miss_probability
from brinell.cli import run as cli
from brinell.core.checks import Code
from brinell.core.errors import RequestError
from brinell.store.run import Run
from brinell.studies.verification.run import verify_files

SAMPLES = 24
"""Number of samples of the run."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    work = workspace(tmp_path_factory.mktemp("work"), n=SAMPLES)
    assert cli(audit_arguments(work, work / "honest")) == 0
    return work / "honest"


def hide(forger, count, *, arrays):
    """Make samples robust in every stage."""
    samples = sorted({row["sample_id"] for row in forger.select(outcome="broken")})[:count]
    once = {"forwards": 1, "backwards": 1}
    whitewash(
        forger, samples, lambda stage: once if stage == "fgsm" else {"forwards": 4, "backwards": 3}
    )
    if arrays:
        forger.delete_inputs(samples)


def forge_failure_without_input(forger):
    row = forger.first()
    forger.delete_inputs([row["sample_id"]], "fgsm")
    survive(row)


def remove_stage(forger):
    name = forger.manifest["stages"][-1]["name"]
    stem = forger.stem(name)
    forger.manifest["stages"].pop()
    forger.rows = [row for row in forger.rows if row["attack"] != name]
    for file in (forger.path / "arrays").glob(f"{stem}*"):
        file.unlink()


def add_part(forger):
    """Add a second part of a stage behind the rows, with the same samples, all robust."""
    attack = forger.first()["attack"]
    twins = [dict(row) for row in forger.select(attack)]
    for row in twins:
        if row["outcome"] == "broken":
            survive(row)
    forger.rows += twins


def state_randomness(forger):
    """State that the model answers at random, as if its robust samples could not be attacked again."""
    name = forger.manifest["models"][0]["name"]
    hide(forger, 6, arrays=True)
    for check in forger.manifest["checks"][name]:
        if check["code"] == Code.RANDOM:
            check["passed"] = False


def fail_checks(forger):
    """State that checks failed which passed."""
    for checks in forger.manifest["checks"].values():
        for check in checks:
            check["passed"] = False if check["passed"] else check["passed"]


def exchange_audits(forger):
    """Give every second sample the rows of another, so that all sums stay."""
    first, second = sorted({row["sample_id"] for row in forger.select("fgsm", "broken")})[:2]
    for row in forger.rows:
        row["sample_id"] = {first: second, second: first}.get(row["sample_id"], row["sample_id"])
    forger.sort()


def remove_rows(forger):
    forger.rows = [row for row in forger.rows if row["sample_id"] != 3]


def change_request_and_manifest(forger):
    text = (forger.path / "run.toml").read_text()
    (forger.path / "run.toml").write_text(
        text.replace('eps = "0,0.05,0.1,0.2"', 'eps = "0,0.5,1,2"')
    )
    forger.manifest["request"]["eps"] = "0,0.5,1,2"
    forger.manifest["eps_text"] = ["0", "0.5", "1", "2"]


def fail_with_reason(forger):
    """Mark samples as failed, with a reason in the manifest, so that they leave the denominator."""
    samples = sorted({row["sample_id"] for row in forger.select(outcome="broken")})[:2]
    failures = {str(sample): "the server refuses it" for sample in samples}
    forger.manifest["failed"] = {forger.manifest["models"][0]["name"]: {"clean": failures}}
    for row in forger.select(samples=samples):
        survive(row)
        row |= {
            "outcome": "failed",
            "clean_pred": -1,
            "clean_confidence": 0.0,
            "margin": None,
            "forwards": 0,
            "backwards": 0,
        }
    forger.delete_inputs(samples)


def remove_checks(forger):
    forger.manifest["checks"] = {}


FORGERIES = {
    "an attack that failed, its input deleted": forge_failure_without_input,
    "every stage failed on one": lambda f: hide(f, 1, arrays=True),
    "every stage failed on six": lambda f: hide(f, 6, arrays=True),
    "every stage failed, arrays left": lambda f: hide(f, 2, arrays=False),
    "spared": lambda f: f.change("outcome", "spared", attack="fgsm", outcome="survived"),
    "labels are predictions": lambda f: (
        f.change("label", lambda row: row["clean_pred"])
        or f.change("outcome", "correct", attack="clean")
    ),
    "cheaper than it is": lambda f: f.change(
        "forwards", 1, attack="pgd?steps=3", outcome="survived"
    ),
    "failed with a reason": fail_with_reason,
    "a stage removed": remove_stage,
    "a second part": add_part,
    "samples removed": remove_rows,
    "samples exchanged": exchange_audits,
    "another request": change_request_and_manifest,
    "randomness stated": state_randomness,
    "checks failed": fail_checks,
    "every check left out": remove_checks,
}
"""Forgeries that change several things so that they fit each other; tests/forgery changes one
thing at random."""


@pytest.mark.parametrize("part", range(8))
def test_a_forgery_is_refused(honest, tmp_path, part):
    """Two forgeries a case."""
    for forgery in list(FORGERIES)[part::8]:
        copy = shutil.copytree(honest, tmp_path / forgery)
        forger = Forger(copy)
        FORGERIES[forgery](forger)
        forger.save()
        assert cli(["verify", str(copy), "--replay", str(SAMPLES)]) in (1, 2), (
            f"the forgery verifies: {forgery}"
        )


def test_another_version_is_said_and_proves_nothing(honest, tmp_path):
    copy = shutil.copytree(honest, tmp_path / "forged")
    forger = Forger(copy)
    forger.manifest["brinell"] = "0.0.9"
    forger.save()
    result = brinell.verify(copy, trust=copy)
    assert result.exit_code == 4 and "0.0.9" in result.refusal


def test_the_honest_run_verifies(honest):
    result = brinell.verify(honest, replay=SAMPLES)
    assert result.passed and 0 < result.samples < SAMPLES
    assert (
        result.coverage.startswith(f"parabola: {result.samples} of {result.attacked}")
        and result.unverified_claims
    )


def test_how_likely_a_forgery_is_missed():
    assert miss_probability(100, 10, 1) == pytest.approx(0.9)
    assert miss_probability(4, 2, 2) == pytest.approx(1 / 6)
    assert miss_probability(100, 100, 1) == 0


def test_some_of_the_samples_are_replayed_by_default(honest):
    result = brinell.verify(honest)
    assert 8 <= result.samples < result.attacked and result.passed
    result = brinell.verify(honest, replay=1)
    assert result.samples == 1 and result.exit_code == 4 and result.undecided
    result = brinell.verify(honest, replay=0)
    assert result.samples == 0 and result.status == "consistent" and result.exit_code == 4


def test_data_and_model_are_on_trust_unless_they_are_known(honest):
    manifest = Run.open(honest).manifest
    digests = [manifest["data"]["digest"], manifest["models"][0]["digest"]]
    assert brinell.verify(honest, replay=0).premises[0].startswith("on trust: the data")
    assert not any(
        "on trust" in premise
        for premise in brinell.verify(honest, digest=digests, replay=0).premises
    )
    with pytest.raises(RequestError, check=refused("studies.verification.premises.list_premises")):
        brinell.verify(honest, digest=["0123"])


def test_an_honest_folder_agrees_with_itself(honest):
    assert verify_files(honest, "nobody asked").status == "consistent"
