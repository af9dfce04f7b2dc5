"""A claim says what the rows of its run say, ranks a figure only where the protocols agree, and refuses what does not fit."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import brinell
from _forger import Forger, survive
from _refusals import refused
from brinell.analysis.robust_accuracy import rate
from brinell.core.errors import RequestError
from brinell.engine.attack_names import CASCADES
from brinell.engine.toml import parse_request
from brinell.studies.certify import STUDY as CERTIFY
from brinell.studies.claim.analysis import open_claim
from brinell.studies.claim.ranking import Protocol, find_place, published, rank
from brinell.studies.claim.request import ClaimRequest
from brinell.studies.verification.premises import PUBLISHED


@pytest.fixture
def run(audit_run):
    return audit_run


@pytest.fixture
def proofs(certify_run):
    return certify_run


@pytest.fixture
def claim(claim_run):
    return brinell.open(claim_run)


def test_figures_are_those_of_the_run(run, claim):
    audit = brinell.open(run)
    model = audit.models[0]
    index = model.eps.index(6 / 255)
    assert claim.clean == model.clean_accuracy and claim.robust == model.robust_accuracy[index]
    assert [c.robust for c in claim.per_class] == [c.robust[index] for c in model.per_class]
    assert [level.robust for level in claim.levels] == [rate for rate in model.robust_accuracy if rate.eps > 0]
    assert claim.outcomes.counterexample + claim.outcomes.inconclusive == 24 and claim.certified is None
    assert claim.checks.passed + claim.checks.failed + claim.checks.not_made == len(model.checks)
    assert claim.verified == "consistent" and claim.rank is None


def test_json_holds_what_is_promised(claim):
    content = json.loads((Path(claim.folder) / "claim.json").read_text())
    names = ("model", "data", "distance", "eps", "n", "clean", "robust", "certified", "checks", "verified", "rank")
    assert all(name in content for name in names)


def test_figures_come_from_rows_and_not_from_the_manifest(claim, tmp_path):
    """One row more that is broken lowers the figure, whatever the manifest says."""
    from brinell.studies.claim.records import TABLE

    folder = TABLE.read(claim.folder)
    outcome = folder.rows.outcome.astype(str).copy()
    index = np.flatnonzero(np.isclose(folder.rows.eps, 6 / 255) & (outcome == "open"))[0]
    outcome[index] = "broken"
    rows = type(folder.rows)(**{**vars(folder.rows), "outcome": outcome})
    manifest = {key: value for key, value in folder.manifest.items() if key not in ("files", "verb", "schema", "brinell")}
    TABLE.write(tmp_path / "claim", manifest, rows)
    assert open_claim(tmp_path / "claim").robust.k == claim.robust.k - 1


def test_proofs_bound_each_class_from_below(run, proofs, tmp_path):
    result = brinell.claim(str(run), eps="2/255", proofs=str(proofs), level="rows", out=tmp_path / "claim")
    certified = CERTIFY.resolve(CERTIFY.open)(proofs).certified
    assert [level.certified for level in result.levels] == [rate for rate in certified if rate.eps > 0]
    assert result.outcomes.proof > 0, "nothing was proven, so the test shows nothing"
    assert sum(c.certified.k for c in result.per_class) == result.certified.k <= result.robust.k
    counts = result.outcomes
    assert counts.proof + counts.counterexample + counts.inconclusive == result.n


def test_proof_and_counterexample_of_one_sample_are_refused(run, proofs, tmp_path):
    result = brinell.claim(str(run), eps="2/255", proofs=str(proofs), level="rows", out=tmp_path / "claim")
    assert result.outcomes.proof
    forged = tmp_path / "forged"
    shutil.copytree(proofs, forged)
    table = pq.read_table(forged / "rows.parquet")
    rows = table.to_pylist()
    next(row for row in rows if row["outcome"] in ("broken", "wrong") and row["eps"] > 0)["outcome"] = "certified"
    from brinell.store.parquet import write_table
    from brinell.store.proofs import TABLE

    write_table(forged / "rows.parquet", type(table).from_pylist(rows, table.schema))
    TABLE.layout.save(forged, TABLE.layout.read(forged))
    with pytest.raises(RequestError, match="is proven in .* and has a counterexample in"):
        brinell.claim(str(run), proofs=str(forged), level="rows", out=tmp_path / "other")


def test_refusals(run, proofs, tmp_path):
    with pytest.raises(RequestError, match="eps 0.3 is none"):
        brinell.claim(str(run), eps="0.3", level="rows", out=tmp_path / "a")
    with pytest.raises(RequestError, match="made by brinell certify, and a claim is made of a run"):
        brinell.claim(str(proofs), level="rows", out=tmp_path / "b")
    with pytest.raises(RequestError, match="is no run folder"):
        brinell.claim(str(tmp_path), level="rows", out=tmp_path / "c")
    with pytest.raises(RequestError, match="is no certificate folder"):
        brinell.claim(str(run), proofs=str(run), level="rows", out=tmp_path / "d")
    assert not list(tmp_path.iterdir())


def test_forged_run_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "forged")
    forger = Forger(tmp_path / "forged")
    survive(forger.first())
    forger.save()
    with pytest.raises(RequestError, check=refused("studies.claim.run._verify")):
        brinell.claim(str(tmp_path / "forged"), level="rows", out=tmp_path / "claim")


def test_names_with_markup_stay_text(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    forger = Forger(tmp_path / "run")
    forger.manifest["data"]["classes"][0] = "<script>alert(1)</script>|"
    forger.manifest["data"]["name"] = '"><img src=x onerror=alert(1)>'
    forger.save()
    result = brinell.claim(str(tmp_path / "run"), level="rows", out=tmp_path / "claim")
    assert result.per_class[0].name.startswith("<script>")
    for name in ("report.html", "card.md", "badge.svg"):
        text = (tmp_path / "claim" / name).read_text()
        assert "<script>alert" not in text and "<img" not in text, name


def test_verify_repeats_a_claim(run, claim, tmp_path):
    assert brinell.verify(claim.folder).passed
    forged = tmp_path / "forged"
    shutil.copytree(claim.folder, forged)
    text = (forged / "card.md").read_text()
    (forged / "card.md").write_text(text.replace("10 inconclusive", "11 inconclusive").replace("%", "percent"))
    assert not brinell.verify(forged).passed


# Published entries


def figure(entry):
    """A published figure as a claim about 10,000 samples would have it."""
    return rate(round(100 * entry.autoattack), 10_000, eps=8 / 255)


def protocol(table, **changes):
    """The protocol of a table."""
    facts = {
        "model": "ours",
        "data": table.data,
        "digest": table.digest or "unknown",
        "n": table.n,
        "distance": table.distance,
        "eps": 8 / 255,
        "eps_text": "8/255",
        "per_sample": False,
        "criterion": "misclassified",
        "stages": published().attacks,
        "attacks": "standard cascade",
        "weak": None,
        "caveat": None,
        "proved": True,
    }
    return Protocol(**{**facts, **changes})


CIFAR10 = published().tables[0]


def test_entries_given_back_have_their_own_places():
    assert len(CIFAR10.entries) == 99
    order = sorted(CIFAR10.entries, key=lambda entry: -entry.autoattack)
    for entry in CIFAR10.entries:
        result = rank(figure(entry), protocol(CIFAR10, model=entry.name))
        expected = 1 + sum(rival.autoattack > entry.autoattack for rival in order)
        assert result.comparable and (result.value, result.of) == (expected, 99)
        assert result.low <= result.value <= result.high
        assert order[result.value - 1].autoattack == entry.autoattack


def test_lower_figures_of_others_are_known():
    best = CIFAR10.entries[0]
    assert (best.autoattack, best.external, best.best_known) == (75.28, 73.10, 73.10)
    result = rank(rate(7400, 10_000), protocol(CIFAR10))
    assert (result.value, result.best_known.value, result.of) == (2, 1, 100)


def test_another_protocol_has_no_rank():
    for changes, reason in (
        ({"digest": "0" * 32}, "data: .* either way"),
        ({"eps": 4 / 255, "eps_text": "4/255"}, "eps: 4/255, .* flatters"),
        ({"eps": 16 / 255, "eps_text": "16/255"}, "eps: 16/255, .* lowers"),
        ({"criterion": "targeted at 3"}, "criterion: .* flatters"),
        ({"weak": "FGSM", "stages": ["fgsm"], "attacks": "FGSM"}, "attack: FGSM, .* flatters"),
        ({"caveat": "no checks were made"}, "checks: no checks were made"),
        ({"proved": False}, "verification"),
        ({"distance": "l1"}, "data"),
        ({"per_sample": True}, "recommended"),
    ):
        result = rank(figure(CIFAR10.entries[0]), protocol(CIFAR10, **changes))
        assert not result.comparable and result.value is None and re.search(reason, result.why), reason


def test_fewer_samples_widen_the_ranks():
    small_rank, all_images = rank(rate(60, 100), protocol(CIFAR10, n=100)), rank(rate(6000, 10_000), protocol(CIFAR10))
    assert small_rank.comparable and "either way" in small_rank.why
    assert small_rank.low < all_images.low <= all_images.value == small_rank.value <= all_images.high < small_rank.high


@given(st.integers(1, 10_000), st.data())
def test_places_follow_the_figure(n, data):
    """A higher figure never has a worse place, and a place lies within the places of its interval."""
    first, second = sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2)))
    rivals = [entry.autoattack for entry in CIFAR10.entries]
    lower, higher = (find_place(rate(k, n), rivals) for k in (first, second))
    assert higher.value <= lower.value
    assert 1 <= lower.low <= lower.value <= lower.high <= len(rivals) + 1


def test_facts_of_the_entries():
    assert list(CASCADES["standard"]) == published().attacks
    assert CIFAR10.digest in PUBLISHED and "test images of CIFAR-10" in PUBLISHED[CIFAR10.digest]
    assert [(table.data, table.distance, len(table.entries)) for table in published().tables] == [
        ("cifar10", "linf", 99),
        ("cifar10", "l2", 21),
        ("cifar100", "linf", 38),
        ("imagenet", "linf", 30),
    ]


def test_request():
    assert parse_request(ClaimRequest, {"run": "run"}).level == "replay"
    with pytest.raises(RequestError):
        parse_request(ClaimRequest, {"run": "run", "against": "visprobe"})
