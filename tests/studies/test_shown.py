"""What studies show: every figure of a finished run, and of results whose numbers all differ,
stands where it belongs.
"""

import re

import brinell
from _pictures import write_pictures
from approval import approve, page_text, shown, table_text, terminal_of, varied
from brinell.analysis.gate import Check, GateResult
from brinell.reports.csv import csv_files
from brinell.reports.html import page
from brinell.studies.audit.dry_run import PlannedCell, PlanResult
from brinell.studies.differences import Difference
from brinell.studies.doctor.run import DoctorResult, Package
from brinell.studies.verification.result import Status, VerifyResult


def test_audit(audit_run, models_run):
    for name, run in (("audit", audit_run), ("models", models_run)):
        approve(name, re.sub("<rect bar [^>]*>", "<rect bar>", shown(run)))  # as long as seconds
    result = varied(brinell.open(models_run))
    report = result.report()
    texts = (
        terminal_of(result, models_run),
        page_text(page(report)),
        *map(table_text, csv_files(report).values()),
    )
    approve("audit-varied", "\n\n".join(texts))


def test_epsilon(epsilon_run):
    approve("epsilon", shown(epsilon_run))
    result = varied(brinell.open(epsilon_run))
    approve(
        "epsilon-varied", terminal_of(result, epsilon_run) + "\n" + page_text(page(result.report()))
    )


def test_transfer(transfer_run):
    approve("transfer", shown(transfer_run))
    result = varied(brinell.open(transfer_run))
    report = result.report()
    texts = terminal_of(result, transfer_run), page_text(page(report)), *csv_files(report).values()
    approve("transfer-varied", "\n\n".join(texts))


def test_pictures(masks_run, boxes_run, tmp_path):
    approve("pictures-masks", shown(masks_run))
    approve("pictures-boxes", shown(boxes_run))
    data, model = write_pictures(tmp_path / "pictures", n=4, side=6)
    models = [f"{model}?name=first", f"{model}?name=second"]
    brinell.transfer(
        "first", model=models, data=data, eps="0.05", attack="pgd?steps=2", out=tmp_path / "run"
    )
    approve("pictures-transfer", shown(tmp_path / "run"))


def test_compare(models_run, tmp_path):
    result = varied(brinell.compare(models_run, out=tmp_path / "compare"))
    report = result.report()
    texts = "\n".join(result.lines()), page_text(page(report)), *csv_files(report).values()
    approve("compare-varied", "\n\n".join(texts))


def test_claim(claim_run, tmp_path, monkeypatch):
    texts = [
        file.read_text()
        for pattern in ("*.md", "*.svg")
        for file in sorted(claim_run.glob(pattern))
    ]
    approve("claim", "\n\n".join([shown(claim_run), *texts]))
    approve("claim-varied", terminal_of(varied(brinell.open(claim_run)), claim_run))


def test_review(review_run):
    approve("review", shown(review_run))
    result = varied(brinell.open(review_run))
    approve(
        "review-varied", terminal_of(result, review_run) + "\n" + page_text(page(result.report()))
    )


def test_board(board_run):
    approve("board", shown(board_run))


def test_verification():
    claims = {
        "verified_claims": ["what holds"],
        "unverified_claims": ["what nobody knows"],
        "claimed": [],
    }
    problems = [
        Difference(location="a.parquet", samples=(3, 5), count=7, description="is false"),
        Difference(location="b.json", samples=(), count=0, description="is gone"),
    ]
    common = {"run": "RUN", "premises": ["whose data"], "replayed": 19, "samples": 23, **claims}
    results = [
        VerifyResult(**common, **kind)
        for kind in ({}, {"refusal": "no trust"}, {"problems": problems})
    ]
    assert [result.status for result in results] == [
        Status.PROVED,
        Status.CONSISTENT,
        Status.REFUSED,
    ]
    approve("verification", "\n\n".join("\n".join(result.lines()) for result in results), masks={})


def test_gate():
    common = {"observed": 0.5, "required": 0.6}
    checks = [
        Check(name="first", code="robust", passed=True, low=0.61, text="holds", **common),
        Check(name="second", code="clean", passed=False, low=0.31, text="does not hold", **common),
        Check(
            name="third",
            code="no-warning-masking",
            passed=None,
            low=None,
            text="",
            reason="nobody looked",
            **common,
        ),
        Check(
            name="fourth",
            code="no-warning-steps",
            passed=False,
            low=None,
            text="steps are few",
            **common,
        ),
        Check(name="fifth", code="worst-class", passed=False, low=0.55, text="is close", **common),
    ]
    results = [
        GateResult(run="r", passed=False, checks=checks, weak="fgsm"),
        GateResult(run="r", passed=True, checks=checks[:1]),
    ]
    approve("gate", "\n\n".join("\n".join(result.lines()) for result in results), masks={})


def test_a_plan():
    common = {"waits": False, "seconds_at_most": None, "skipped": None}
    cells = [
        common | {"attack": "a", "label": "FGSM", "forwards_at_most": 11, "backwards_at_most": 7},
        common
        | {"attack": "a", "label": "PGD-3", "forwards_at_most": 1013, "backwards_at_most": 501},
        common | {"attack": "a", "label": "Square", "forwards_at_most": 17, "backwards_at_most": 0},
        common | {"attack": "a", "label": "RayS", "forwards_at_most": 23, "backwards_at_most": 0},
    ]
    cells[2] |= {"skipped": "no scores"}
    cells[3] |= {"waits": True}
    facts = {
        "data": "DATA",
        "attacks": "ATTACKS",
        "n": 20,
        "total": 300,
        "norm": "linf",
        "eps": ("1/255", "2/255"),
    }
    timed = [PlannedCell(model="second", **(cell | {"seconds_at_most": 75.0})) for cell in cells]
    remote = [PlannedCell(model="first", **cell) for cell in cells]
    plans = [PlanResult(cells=cells_, **facts) for cells_ in (remote, [*remote, *timed])]
    approve("plan", "\n\n".join("\n".join(plan.lines()) for plan in plans), masks={})


def test_an_installation():
    packages = [
        Package(name=name, needed="1", version=version, ready=ready, extra=extra)
        for (name, version, ready), extra in zip(
            [*PACKAGES, *PACKAGES], [None, None, None, "onnx", "ecg", "ecg"], strict=True
        )
    ]
    result = DoctorResult(
        brinell="0.1",
        python="3.11",
        platform="Linux",
        packages=packages,
        processors=7,
        auto="cuda:0",
        purposes={"onnx": "networks", "ecg": "records"},
        threads={"OMP_NUM_THREADS": "3"},
        free_bytes={"runs in /runs": 5 * 2**30},
        devices={"cpu": "a processor", "cuda:0": "a GPU"},
    )
    approve("doctor", "\n".join(result.lines()), masks={})


PACKAGES = [("numpy", "2.1", True), ("wfdb", None, False), ("torch", "2.0", False)]
