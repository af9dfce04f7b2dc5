"""What studies show: every figure of a finished run, and of results whose numbers all differ, stands where it belongs."""

import re

import brinell
from approval import approve, page_text, shown, table_text, terminal_of, varied
from brinell.analysis.gate import Check, GateResult
from brinell.pages import html
from brinell.studies.comparison.terminal import lines as comparison_lines
from brinell.studies.epsilon import page as epsilon_page
from brinell.studies.gate.terminal import lines as gate_lines
from brinell.studies.per_class import page as per_class_page
from brinell.studies.per_class.page import tables
from brinell.studies.per_class.terminal import lines as per_class_lines
from brinell.studies.progress.result import RunProgress, StageProgress, WorkerProgress
from brinell.studies.progress.terminal import lines as progress_lines
from brinell.studies.review import page as review_page
from brinell.studies.transfer import page as transfer_page
from brinell.studies.verification.result import Problem, Status, VerifyResult
from brinell.studies.verification.terminal import lines as verification_lines


def test_audit(audit_run, models_run, monkeypatch):
    for name, run in (("audit", audit_run), ("models", models_run)):
        approve(name, re.sub("<rect bar [^>]*>", "<rect bar>", shown(run)))  # as long as seconds
    approve("audit-terminal", terminal_of(varied(brinell.open(models_run)), models_run))
    summarise = html.summarise
    monkeypatch.setattr(html, "summarise", lambda *arguments: varied(summarise(*arguments)))
    page, tables = html.render_all(models_run)
    approve("audit-varied", "\n\n".join([page_text(page), *map(table_text, tables.values())]))


def test_epsilon(epsilon_run, monkeypatch):
    approve("epsilon", shown(epsilon_run))
    result = varied(brinell.open(epsilon_run))
    monkeypatch.setattr(epsilon_page, "summarise", lambda folder: result)
    approve("epsilon-varied", terminal_of(result, epsilon_run) + "\n" + page_text(epsilon_page.render(epsilon_run)))


def test_transfer(transfer_run):
    approve("transfer", shown(transfer_run))
    result = varied(brinell.open(transfer_run))
    texts = terminal_of(result, transfer_run), page_text(transfer_page.render(result)), transfer_page.table(result)
    approve("transfer-varied", "\n\n".join(texts))


def test_study(models_run, tmp_path):
    result = brinell.study([models_run], out=tmp_path / "study", draws=100)
    ranks = [rank for rank in result.ranks if not any("seconds" in name for name in rank.by)]
    result = varied(result.model_copy(update={"ranks": ranks}))
    texts = "\n".join(per_class_lines(result)), page_text(per_class_page.render(result)), *tables(result).values()
    approve("study-varied", "\n\n".join(texts))


def test_claim(claim_run, tmp_path, monkeypatch):
    texts = [file.read_text() for pattern in ("*.md", "*.svg") for file in sorted(claim_run.glob(pattern))]
    approve("claim", "\n\n".join([shown(claim_run), *texts]))
    approve("claim-varied", terminal_of(varied(brinell.open(claim_run)), claim_run))


def test_review(review_run, monkeypatch):
    approve("review", shown(review_run))
    summarise = review_page.summarise
    monkeypatch.setattr(review_page, "summarise", lambda *arguments: varied(summarise(*arguments)))
    text = page_text(review_page.render(review_page.Review.open(review_run)))
    approve("review-varied", terminal_of(varied(brinell.open(review_run)), review_run) + "\n" + text)


def test_board(board_run):
    approve("board", shown(board_run))


def test_verification():
    claims = {"verified_claims": ["what holds"], "unverified_claims": ["what nobody knows"], "claimed": []}
    problems = [
        Problem(location="a.parquet", samples=(3, 5), count=7, description="is false"),
        Problem(location="b.json", samples=(), count=0, description="is gone"),
    ]
    counts = {"rows": 11, "predictions": 13, "successes": 17, "replayed": 19, "samples": 23}
    common = {"run": "RUN", "premises": ["whose data"], "problems": problems, **claims}
    kinds = [counts, counts | {"predictions": 0}, {"rows": 0}, counts | {"refusal": "no trust"}]
    statuses = [Status.PROVED, Status.CONSISTENT, Status.REFUSED, Status.CONSISTENT]
    results = [VerifyResult(status=status, passed=False, **common, **kind) for status, kind in zip(statuses, kinds, strict=True)]
    approve("verification", "\n\n".join("\n".join(verification_lines(result)) for result in results), masks={})


def test_comparison(models_run):
    result = brinell.compare(models_run)
    result = varied(result.model_copy(update={"certified": result.robust}))
    result.certified[0] = result.certified[0].model_copy(update={"p": None})
    approve("comparison", "\n".join(comparison_lines(result)))


def test_gate():
    common = {"observed": 0.5, "required": 0.6}
    checks = [
        Check(name="first", code="robust", passed=True, low=0.61, text="holds", **common),
        Check(name="second", code="clean", passed=False, low=0.31, text="does not hold", **common),
        Check(name="third", code="no-warning-masking", passed=None, low=None, text="", reason="nobody looked", **common),
        Check(name="fourth", code="no-warning-steps", passed=False, low=None, text="steps are few", **common),
        Check(name="fifth", code="worst-class", passed=False, low=0.55, text="is close", **common),
    ]
    results = [GateResult(run="r", passed=False, checks=checks, weak="fgsm"), GateResult(run="r", passed=True, checks=checks[:1])]
    approve("gate", "\n\n".join("\n".join(gate_lines(result)) for result in results), masks={})


def test_progress():
    stages = (
        StageProgress(model="m", stage="clean", complete=2, claimed=0, state="ended"),
        StageProgress(model="m", stage="pgd", complete=1, claimed=3, state="under way"),
        StageProgress(model="m", stage="square", complete=0, claimed=0, state="ahead"),
        StageProgress(model=None, stage="part", complete=5, claimed=1, state="under way"),
    )
    workers = (
        WorkerProgress(by="a", host="h-1", position="m, pgd", claims=("x", "y"), age=61.0, alive=False, rate=1234.0),
        WorkerProgress(by="b", host=None, position=None, claims=(), age=None, alive=True, rate=None),
    )
    common = {"run": "RUN", "stages": stages, "workers": workers}
    position = {"position": "m, pgd", "open_samples": 1007, "robust": 2003, "rate": 4001.0, "seconds_left": 7300.0}
    results = [
        RunProgress(state="in shards", shards=8, samples=3000, **position, **common),
        RunProgress(state="by one process", position="m, pgd", **common),
        RunProgress(state="ended", **common),
    ]
    approve("progress", "\n\n".join("\n".join(progress_lines(result)) for result in results), masks={})
