"""A board shows what verification leaves, refuses the rest with a reason, and writes again only
what is new."""

import csv
import html
import json
import os
import re
import shutil

import numpy as np
import pytest

import brinell
from _board import FORGERIES, change_label
from _forger import Forger, whitewash
from _refusals import refused
from brinell.core.errors import BrinellError, RequestError
from brinell.studies.board.arrangement import arrange
from brinell.studies.board.examination import examine
from runs import ATTACKS, EPS


@pytest.fixture(scope="module")
def runs(tmp_path_factory, audit_run, patterns):
    """The audits of two models, one from elsewhere, and proofs of the first, made here, since they
    need the layers of the model.
    """
    folder = tmp_path_factory.mktemp("board") / "runs"
    copy(audit_run, folder / "m0")
    proofs = {"eps": EPS, "method": ["crown"], "attack": ["fgsm"], "out": folder / "proofs"}
    brinell.certify(patterns.model, patterns.data, **proofs)
    brinell.audit(patterns.models[1], patterns.data, eps=EPS, attack=ATTACKS, out=folder / "m1")
    return folder


@pytest.fixture(scope="module")
def site(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board") / "site"
    return folder, brinell.board(str(runs), out=folder, trust=runs)


def copy(run, path):
    shutil.copytree(run, path)
    return path


def pages(folder):
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def rows_of(folder):
    return [
        row
        for file in folder.glob("tasks/*.csv")
        for row in csv.DictReader(file.read_text().splitlines())
    ]


def test_figures_are_those_of_the_runs_and_ranks_those_of_a_comparison(runs, site, tmp_path):
    folder, result = site
    assert (
        result.model_count,
        result.task_count,
        result.folder_count,
        result.verified,
        result.refused,
    ) == (
        2,
        2,
        3,
        3,
        [],
    )
    shares = {(row["model"], row["attacked k"], row["attacked n"]): row for row in rows_of(folder)}
    audits = [brinell.open(runs / name).models[0] for name in ("m0", "m1")]
    for audit in audits:
        for rate in audit.robust_accuracy:
            row = shares[audit.name, str(rate.k), str(rate.n)]
            worst = min(c.robust[audit.eps.index(rate.eps)].value for c in audit.per_class)
            assert float(row["weakest class"]) == worst and re.match(
                r"repeated \d+ of \d+", row["verified"]
            )
    compared = brinell.compare(
        [runs / "m0", runs / "m1"], at=EPS.split(",")[-1], out=tmp_path / "compare"
    )
    for model in compared.models:
        row = shares[model.name, str(model.robust[-1].k), str(model.robust[-1].n)]
        rank = [float(row[name]) for name in ("rank", "rank low", "rank high")]
        assert rank == [model.rank.value, model.rank.low, model.rank.high]
    certified = max(brinell.open(runs / "proofs").certified, key=lambda rate: rate.eps)
    assert certified.value in [float(row["proven"]) for row in rows_of(folder) if row["proven"]]


def test_links_lead_somewhere(site):
    folder, _ = site
    for page in folder.rglob("*.html"):
        for link in re.findall(r'href="([^"#]+)', page.read_text()):
            assert link.startswith("https://") or (page.parent / link).resolve().is_file(), (
                page.name,
                link,
            )


def text_of(page):
    text = html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))
    return text.replace("\u00a0", " ")


def test_the_page_of_a_model_says_what_every_folder_of_it_says(runs, site):
    texts = {
        brinell.open(runs / name).models[0].name: list(map(brinell.open, (runs / name, *more)))
        for name, more in (("m0", [runs / "proofs"]), ("m1", []))
    }
    for page in (site[0] / "models").glob("*.html"):
        (model,) = re.findall(r"<h1>(.*?)</h1>", page.read_text(encoding="utf-8"))
        text = text_of(page)
        assert "Class by class, over all studies" in text and "What is missing" in text
        for result in texts.pop(model):
            assert result.report().sentences[0].replace("\u00a0", " ") in text
        assert "brinell corrupt --data" in text and "word of whoever made" not in text
    assert not texts


def test_each_model_of_a_folder_has_its_own_page_and_claims_are_called_so(models_run, tmp_path):
    copy(models_run, tmp_path / "both")
    brinell.board(str(tmp_path / "both"), level="rows", out=tmp_path / "site")
    models = {model.name: model for model in brinell.open(models_run).models}
    for page in (tmp_path / "site" / "models").glob("*.html"):
        (name,) = re.findall(r"<h1>(.*?) \(claimed\)</h1>", page.read_text(encoding="utf-8"))
        text = text_of(page)
        table = text[text.index("Class by class, over all studies") :]
        for c in models.pop(name).per_class:
            assert f"{100 * c.robust[-1].value:.1f}" in table
        assert "The board repeated none of this" in text
    assert not models


def test_a_board_made_again_says_what_is_there(runs, tmp_path, monkeypatch):
    """What was verified is kept with the user, not with the site, and only of a folder that is the
    same byte for byte."""
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "cache"))
    folder, site = tmp_path / "runs", tmp_path / "site"
    copy(runs / "m0", folder / "m0")
    brinell.board(str(folder), level="rows", out=site)
    before, known = pages(site), list((tmp_path / "cache").rglob("*.json"))
    brinell.board(str(folder), level="rows", out=site)
    assert pages(site) == before and list((tmp_path / "cache").rglob("*.json")) == known
    copy(runs / "m1", folder / "m1")
    assert brinell.board(str(folder), level="rows", out=site).model_count == 2
    shutil.rmtree(folder / "m1")
    brinell.board(str(folder), level="rows", out=site)
    assert pages(site) == before
    file = folder / "m0" / "report.html"
    content, times = file.read_bytes(), file.stat()
    file.write_bytes(content.replace(b"1", b"2", 1))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert brinell.board(str(folder), level="rows", out=site).refused
    assert (site / "refused.csv").is_file()
    file.write_bytes(content)
    brinell.board(str(folder), level="rows", out=site)
    assert pages(site) == before, "the table of what was refused is gone as well"


def test_random_forgeries_are_refused(runs, tmp_path):
    """Every way: nothing of a forged folder is shown, and the reason is a line."""
    for seed, forge in enumerate(FORGERIES):
        path = copy(runs / "m0", tmp_path / f"run{seed}")
        change = forge(path, np.random.default_rng(seed))
        board = brinell.board(
            path,
            level="replay" if forge is change_label else "rows",
            out=tmp_path / f"site{seed}",
        )
        (refusal,) = board.refused
        assert refusal.why and "\n" not in refusal.why and not board.model_count, change


def test_consistent_forgeries_need_a_replay(runs, tmp_path):
    """Rows that hide successes agree with each other; the board says that it has not replayed them,
    and a replay refuses them.
    """
    path = copy(runs / "m0", tmp_path / "run")
    forger = Forger(path)
    samples = {row["sample_id"] for row in forger.select(outcome="broken")}
    whitewash(forger, samples, lambda stage: {"forwards": 1, "backwards": 1})
    forger.delete_inputs(samples)
    forger.save()
    (figures,) = examine(path, "rows", None)
    assert not figures.verified
    with pytest.raises(BrinellError):
        examine(path, "replay", None)


def test_a_folder_that_nobody_repeated_changes_no_row_of_others(runs):
    """A claim with the digests of a verified model and better figures, proofs and names of its own."""
    verified = examine(runs / "m0", "replay", runs)
    changes = {
        "run": "claim",
        "verified": False,
        "data": "other name",
        "certified": verified[0].robust,
    }
    claim = verified[0].model_copy(update=changes)
    alone, joined = (arrange(figures) for figures in (verified, [*verified, claim]))
    for before, after in zip(alone, joined, strict=True):
        assert before.entries == after.entries[:-1] and before.name == after.name
        assert after.entries[-1].rank is None and after.entries[-1].figures.run == "claim"


def test_bad_folders_have_a_row_each(runs, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "empty").mkdir()
    (folder / "file").write_text("x")
    foreign = copy(runs / "m0", folder / "other")
    forger = Forger(foreign)
    forger.manifest["schema"] = 1
    (foreign / "manifest.json").write_text(json.dumps(forger.manifest))
    paths = [str(folder / name) for name in ("empty", "file", "missing", "other")]
    result = brinell.board([*paths, str(runs / "m1")], level="rows", out=tmp_path / "site")
    assert [refusal.run for refusal in result.refused] == sorted(paths) and result.model_count == 1
    reasons = " ".join(refusal.why for refusal in result.refused)
    for text in ("holds no run", "it is a file", "no such folder", "schema 1|digest"):
        assert re.search(text, reasons), text


def test_a_folder_that_is_no_site_is_left_alone(runs, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/mine.txt").write_text("x")
    with pytest.raises(RequestError, check=refused("studies.board.run.carry_out")):
        brinell.board(str(runs / "m0"), level="rows", out=tmp_path / "site")
    with pytest.raises(RequestError, check=refused("studies.board.run.carry_out")):
        brinell.board(str(tmp_path / "site"), level="rows", out=tmp_path / "other")


def test_markup_in_names_stays_text(runs, tmp_path):
    path = copy(runs / "m0", tmp_path / "run<b>")
    forger = Forger(path)
    forger.manifest["data"]["classes"] = [
        "<script>alert(1)</script>",
        *forger.manifest["data"]["classes"][1:],
    ]
    forger.save()
    brinell.board([str(path), str(tmp_path / "<img src=x>")], level="rows", out=tmp_path / "site")
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(r"<script>alert|<img src=x>|run<b>", page.read_text()), page
