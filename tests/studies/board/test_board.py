"""A board shows what verification leaves, refuses the rest with a reason, and writes again only what is new."""

import csv
import json
import re
import shutil

import numpy as np
import pytest

import brinell
from _board import FORGERIES
from _forger import Forger, whitewash
from _refusals import refused
from brinell.core.errors import RequestError
from brinell.studies.board.analysis import Figures, arrange, compare_entries
from brinell.studies.board.examination import LABELS, REPLAY, examine
from runs import ATTACKS, EPS


@pytest.fixture(scope="module")
def runs(tmp_path_factory, audit_run, certify_run, patterns):
    """The audits of two models, and proofs of the first."""
    folder = tmp_path_factory.mktemp("board") / "runs"
    copy(audit_run, folder / "m0")
    copy(certify_run, folder / "proofs")
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
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_figures_are_those_of_the_runs(runs, site):
    folder, result = site
    assert (result.models, result.tasks, result.runs, result.refused) == (2, 2, 3, [])
    rows = {
        (row["model"], row["digest"], row["eps"]): row
        for file in folder.glob("tasks/*.json")
        for row in json.loads(file.read_text())
    }
    for number in range(2):
        audit = brinell.open(runs / f"m{number}").models[0]
        digest = json.loads((runs / f"m{number}/manifest.json").read_text())["models"][0]["digest"]
        for rate in audit.robust_accuracy:
            row = rows[audit.model, digest, rate.eps]
            assert (row["attacked value"], row["attacked k"], row["attacked n"]) == (rate.value, rate.k, rate.n)
            worst = min(c.robust[audit.eps.index(rate.eps)].value for c in audit.per_class)
            assert row["weakest class value"] == worst and row["verified"] == LABELS


def test_proofs_stand_beside_attacks(runs, site):
    folder, _ = site
    from brinell.studies.certify import STUDY

    certified = STUDY.resolve(STUDY.open)(runs / "proofs").certified[-1]
    proofs = [
        row for file in folder.glob("tasks/*.json") for row in json.loads(file.read_text()) if row["proven value"] is not None
    ]
    assert max((row["eps"], row["proven value"]) for row in proofs) == (6 / 255, certified.value)


def test_pairs_are_those_of_compare(runs, site, tmp_path):
    folder, _ = site
    (file,) = folder.glob("compare/*.json")
    compared = brinell.compare([runs / "m0", runs / "m1"], out=tmp_path / "compare")
    by_eps = {pair.eps: pair for pair in compared.pairs[0].robust}
    for row in json.loads(file.read_text()):
        pair = by_eps[row["eps"]]
        assert {row["only_a"], row["only_b"]} == {pair.only_a, pair.only_b} and row["p"] == pair.p and row["n"] == pair.n


def test_tables_as_csv_and_json_agree(site):
    folder, _ = site
    files = sorted(folder.rglob("*.csv"))
    assert len(files) > 6
    for file in files:
        with file.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        objects = json.loads(file.with_suffix(".json").read_text())
        assert [list(row) for row in rows] == [list(entry) for entry in objects] and len(rows) == len(objects)


def test_links_lead_somewhere(site):
    folder, _ = site
    for page in folder.rglob("*.html"):
        for link in re.findall(r'href="([^"#]+)', page.read_text()):
            assert link.startswith("https://") or (page.parent / link).resolve().is_file(), (page.name, link)


def test_a_new_run_changes_only_its_own_pages(runs, patterns, tmp_path):
    folder, site = tmp_path / "runs", tmp_path / "site"
    for number in range(2):
        copy(runs / f"m{number}", folder / f"m{number}")
    brinell.board(str(folder), out=site)
    before = pages(site)
    stamps = {name: (site / name).stat().st_mtime_ns for name in before}
    assert brinell.board(str(folder), out=site).written == 0
    brinell.audit(patterns.model, patterns.data, eps="0.1", attack=["fgsm"], out=folder / "new")
    result = brinell.board(str(folder), out=site)
    assert result.tasks == 3
    changed = {name for name in pages(site) if not name.startswith(".") and (site / name).stat().st_mtime_ns != stamps.get(name)}
    allowed = r"(index|models)\.(html|csv|json)|tasks/test-linf-0-1-.*|models/patterns-.*"
    assert changed and all(re.fullmatch(allowed, name) for name in changed)
    assert sum(name.startswith("models/") for name in changed) <= 3, "the page of the other model was written again"
    shutil.rmtree(folder / "new")
    brinell.board(str(folder), out=site)
    after = pages(site)
    assert {name: text for name, text in after.items() if name[0] != "."} == {n: t for n, t in before.items() if n[0] != "."}


def test_random_forgeries_are_refused(runs, tmp_path):
    """Every way: nothing of a forged folder is shown, and the reason is a line."""
    for seed, forge in enumerate(FORGERIES):
        path = copy(runs / "m0", tmp_path / f"run{seed}")
        change = forge(path, np.random.default_rng(seed))
        outcome = examine(str(path), "rows", None)
        assert outcome.get("why") and "\n" not in outcome["why"], change


def test_consistent_forgeries_need_a_replay(runs, tmp_path):
    """Rows that hide successes agree with each other; the board says that it has not replayed them, and a replay refuses them."""
    path = copy(runs / "m0", tmp_path / "run")
    forger = Forger(path)
    samples = {row["sample_id"] for row in forger.select(outcome="broken")}
    whitewash(forger, samples, lambda stage: {"forwards": 1, "backwards": 1})
    forger.delete_inputs(samples)
    forger.save()
    (figures,) = examine(str(path), "rows", None)["figures"]
    assert figures["level"] == LABELS != REPLAY
    assert "why" in examine(str(path), "replay", None)


def test_replay_is_named_on_the_page(runs, tmp_path):
    result = brinell.board(str(runs / "m0"), level="replay", out=tmp_path / "site", trust=runs)
    assert result.runs == 1 and REPLAY in (tmp_path / "site/index.html").read_text()


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
    result = brinell.board([*paths, str(runs / "m1")], out=tmp_path / "site")
    assert [refusal.run for refusal in result.refused] == sorted(paths) and result.models == 1
    reasons = " ".join(refusal.why for refusal in result.refused)
    for text in ("holds no run", "it is a file", "no such folder", "schema 1|digest"):
        assert re.search(text, reasons), text


def test_a_folder_that_is_no_site_is_left_alone(runs, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/mine.txt").write_text("x")
    with pytest.raises(RequestError, check=refused("studies.board.run._check_site")):
        brinell.board(str(runs / "m0"), out=tmp_path / "site")
    with pytest.raises(RequestError, check=refused("studies.board.run.carry_out")):
        brinell.board(str(tmp_path / "site"), out=tmp_path / "other")


def test_markup_in_names_stays_text(runs, tmp_path):
    path = copy(runs / "m0", tmp_path / "run<b>")
    forger = Forger(path)
    forger.manifest["data"]["classes"] = ["<script>alert(1)</script>", *forger.manifest["data"]["classes"][1:]]
    forger.save()
    brinell.board([str(path), str(tmp_path / "<img src=x>")], out=tmp_path / "site")
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(r"<script>alert|<img src=x>|run<b>", page.read_text()), page


def test_claims_are_checked_against_their_run(runs, tmp_path):
    run = copy(runs / "m0", tmp_path / "in/run")
    brinell.claim(str(run))
    assert brinell.board(str(tmp_path / "in"), out=tmp_path / "a").refused == []
    shutil.move(run / "claim", tmp_path / "in/claim")
    shutil.rmtree(run)
    (refusal,) = brinell.board(str(tmp_path / "in"), out=tmp_path / "b").refused
    assert "no run there or around the claim" in refusal.why


# Arrangement


def figures(runs, **changes):
    (entry,) = examine(str(runs / "m0"), "rows", None)["figures"]
    return Figures.model_validate({**entry, **changes})


def test_equal_names_with_other_digests_are_two_models(runs):
    site = arrange([figures(runs), figures(runs, digest="f" * 32, run="other")])
    assert len(site.models) == 2 and len({model.slug for model in site.models}) == 2
    assert any("other digests" in note for note in site.notes)


def test_mixed_protocols_are_said(runs):
    site = arrange([figures(runs), figures(runs, digest="f" * 32, attacks="other", run="other")])
    assert any("attacked differently" in note for note in site.notes)


def test_more_samples_count_before_a_lower_figure(runs):
    honest = figures(runs)
    small_rates = [rate.model_copy(update={"n": 10, "k": 0, "value": 0.0}) for rate in honest.robust]
    lower = [rate.model_copy(update={"k": rate.k - 1, "value": (rate.k - 1) / rate.n}) for rate in honest.robust]
    (task, *_) = arrange([honest, figures(runs, robust=small_rates, run="few"), figures(runs, robust=lower, run="lower")]).tasks
    assert [entry.figures.run for entry in task.entries] == ["lower"] and task.entries[0].runs == 3


def test_pairs_use_common_samples(runs):
    first, second = figures(runs), figures(runs, digest="f" * 32, run="other")
    task = arrange([first, second]).tasks[0]
    pair = compare_entries(task, *task.entries)
    assert pair.n == 24 and pair.only_a == pair.only_b == 0 and pair.p == 1.0
    assert np.isclose(pair.value_a, task.entries[0].robust.value)
