"""What folders show whose rows are noise: no two samples, classes, methods or budgets have the same
figures.

Result, terminal, page and tables of each are approved. Where rows decide little, a result is varied
instead.
"""

import json
import re
from dataclasses import replace

import numpy as np

import brinell
from _sets import rows_of
from approval import approve, page_text, shown, terminal_of, varied
from brinell.analysis.results import Share
from brinell.reports.csv import csv_files
from brinell.reports.html import page as page_of
from brinell.store import parquet, proofs, rows
from brinell.store.files import write_arrays
from brinell.studies.agent.result import AgentResult, AgentValidation
from brinell.studies.certify import STUDY as CERTIFY
from brinell.studies.certify.result import QueryResult
from brinell.studies.corruption import STUDY as CORRUPT
from brinell.studies.explain import STUDY as EXPLAIN
from brinell.studies.explain import result as explain
from brinell.studies.generator.result import GeneratorResult
from brinell.studies.harden import STUDY as HARDEN
from brinell.studies.metric.result import MetricResult
from runs import copy_run

OBJECT_ERRORS = ("missed", "mislabelled", "misplaced")
"""Kinds of errors of objects, of which each has one outcome."""


def payload(result):
    """All figures of a result, without times."""
    return re.sub(
        r'"seconds": [\d.e-]+',
        '"seconds": 0',
        json.dumps(json.loads(result.model_dump_json()), indent=0),
    )


def test_certify(certify_run, tmp_path):
    path, rng = copy_run(certify_run, tmp_path), np.random.default_rng(0)
    content = proofs.TABLE.read(path)
    table, n = content.rows, len(content.rows)
    outcome = rng.choice(["certified", "certified", "open", "broken"], n).astype(object)
    outcome[table.eps == 0] = rng.choice(
        ["certified", "certified", "wrong"], (table.eps == 0).sum()
    )
    method = np.where(
        outcome == "certified", rng.choice(["crown", "ibp", "solver:tool"], n), ""
    ).astype(object)
    verdicts = [
        ("a", "unsat", ""),
        ("a", "sat", ""),
        ("a", "sat", ""),
        ("a", "unknown", "no time"),
        ("b", "refused", "lied"),
        ("b", "unsat", ""),
    ]
    lines = [
        proofs.Verdict(
            sample_id=k, eps=0.1, tool=tool, verdict=verdict, reason=reason, seconds=1.0, x=[]
        ).model_dump_json()
        for k, (tool, verdict, reason) in enumerate(verdicts)
    ]
    (path / proofs.VERDICTS.format(0)).write_text("\n".join(lines) + "\n")
    proofs.TABLE.write(path, content.manifest, replace(table, outcome=outcome, method=method))
    CERTIFY.write_page(path)
    approve("certify", shown(path) + "\n" + payload(brinell.open(path)))


def test_smoothing(smooth_run, tmp_path):
    path, rng = copy_run(smooth_run, tmp_path), np.random.default_rng(1)
    content = proofs.TABLE.read(path)
    table, n = content.rows, len(np.unique(content.rows.sample_id))
    levels, radius = np.unique(table.eps), np.where(rng.random(n) < 0.8, rng.random(n), 0)
    outcome = np.where((levels <= radius[:, None]) & (radius > 0)[:, None], "certified", "open")
    outcome[(rng.random(n) < 0.3) & (radius > 0)] = "wrong"
    proven = outcome == "certified"
    columns = {
        "outcome": outcome,
        "proven_at": np.where(proven, radius[:, None], np.nan),
        "method": np.where(proven, "smoothing", ""),
    }
    proofs.TABLE.write(
        path,
        content.manifest,
        replace(table, **{name: value.ravel() for name, value in columns.items()}),
    )
    CERTIFY.write_page(path)
    approve("smoothing", shown(path) + "\n" + payload(brinell.open(path)))


def test_corrupt(corrupt_run, tmp_path):
    path, rng = copy_run(corrupt_run, tmp_path), np.random.default_rng(2)
    format_ = CORRUPT.table()
    content = format_.read(path)
    table, n = content.rows, len(content.rows)
    chance = (
        0.9
        - 0.2 * table.severity * (1 + (table.kind == "contrast")) / 2
        - 0.1 * (table.model == "lead")
    )
    pred = np.where(rng.random(n) < chance, table.label, (table.label + rng.integers(1, 4, n)) % 4)
    l2 = np.where(table.kind == "clean", 0, rng.random(n) * (1 + table.severity))
    manifest = content.manifest | {"request": content.manifest["request"] | {"reference": "lead"}}
    format_.write(path, manifest, replace(table, pred=pred, l2=l2.astype(np.float32)))
    CORRUPT.write_page(path)
    approve("corrupt", shown(path) + "\n" + payload(brinell.open(path)))


def test_explain(explain_run, tmp_path):
    """Three methods on ten pictures, with controls and ground truth."""
    names, samples, rng = (
        ("rlab", "gradient", "centre"),
        (2, 3, 5, 7, 11, 13, 17, 19, 23, 29),
        np.random.default_rng(5),
    )
    maps, inputs, parts = {}, {}, []
    for sample in samples:
        inputs[f"input/{sample}"] = rng.random((1, 8, 8)).astype(np.float32)
        inputs[f"truth/{sample}"] = (rng.random((8, 8)) < 0.3).astype(np.uint8)
        for number, name in enumerate(names):
            maps[f"map/{name}/{sample}"] = rng.random((8, 8)).astype(np.float32)
            for control in ("", explain.BLURRED, explain.INVERSE):
                lead = (0.5 - 0.2 * number) * (1 - bool(control))
                measures = {measure: 0.4 * rng.random() + 0.3 for measure in explain.MEASURES}
                measures["insertion"] = min(measures["insertion"] + lead, 1.0)
                facts = {
                    "label": sample % 4,
                    "prediction": (sample + (sample % 5 == 1)) % 4,
                    "explained": (sample + 1) % 4,
                }
                parts.append(
                    rows.build(
                        explain.ExplainRows,
                        1,
                        method=name + control,
                        sample_id=sample,
                        group="",
                        forwards=rng.integers(1, 90),
                        backwards=rng.integers(1, 9),
                        seconds=rng.random(),
                        blank=name == "centre" and sample == 5,
                        **facts,
                        **measures,
                    )
                )
    path, table = copy_run(explain_run, tmp_path), EXPLAIN.table()
    for file in path.glob("arrays/*"):
        file.unlink()
    write_arrays(path / explain.file_of(0), inputs | maps)
    manifest = table.read(explain_run).manifest
    facts = {
        "methods": [{"name": name, "title": f"the {name}"} for name in names],
        "left_out": {"without truth": 3},
        "unfit": {"grad-cam": "needs layers"},
    }
    request = manifest["request"] | {"truth": "masks.npz"}
    table.write(path, manifest | {"facts": facts, "request": request}, rows.concatenate(parts))
    EXPLAIN.write_page(path)
    approve("explain", shown(path) + "\n" + payload(brinell.open(path)))


def test_harden(harden_run, tmp_path):
    path = copy_run(harden_run, tmp_path)
    checks = HARDEN.table().read(path).rows
    parquet.write_table(
        path / "rows.parquet", parquet.to_table(replace(checks, seconds=checks.seconds * 0 + 7.5))
    )
    result = brinell.open(harden_run)

    # Means of few samples; the first of them are of none. Processors may differ in the real ones.
    means = {"queries_before": 7.5, "queries_after": 9.5, "l2_before": 1.5, "l2_after": 2.5}
    unseen = [
        row.model_copy(update=dict.fromkeys(means) if number == 0 else means)
        for number, row in enumerate(result.unseen)
    ]
    result = varied(result.model_copy(update={"unseen": unseen}))
    result = result.model_copy(update={"folder": str(path)})
    report = result.report()
    texts = [
        terminal_of(result, harden_run),
        page_text(page_of(report)),
        *csv_files(report).values(),
    ]
    approve("harden-varied", "\n\n".join(texts))


def test_benchmark(benchmark_run):
    result = varied(brinell.open(benchmark_run))
    report = result.report()
    texts = (
        terminal_of(result, benchmark_run),
        (benchmark_run / "README.md").read_text(),
        page_text(page_of(report)),
    )
    approve("benchmark-varied", "\n\n".join([*texts, *csv_files(report).values()]))
    assert len(rows_of(benchmark_run)) == sum(
        level.inputs + level.unreached for level in result.levels
    )


def test_lines_of_studies_without_a_folder():
    validation = AgentValidation(
        inputs=7,
        budget=90,
        fooled=5,
        cause="",
        queries={"policy": 4.5},
        ratios={},
        verdict="it wins",
    )
    agent = AgentResult(
        policy="p.safetensors",
        inputs=31,
        training_queries={"probes": 1200, "steps": 34},
        surrogates=2,
        surrogate_passes={"probes": 5000, "steps": 6},
        validation=validation,
        kept="network",
        command="brinell audit",
    )
    plain = agent.model_copy(update={"surrogates": 0, "validation": None, "kept": "greedy"})
    texts = [agent.lines(), plain.lines()]
    limits = [{"median": 1.5, "percent_1": low} for low in (None, 0.25)]
    shares = [
        Share(k=k, n=100, value=k / 100, low=k / 100 - 0.05, high=k / 100 + 0.05) for k in (71, 83)
    ]
    metric = MetricResult(
        classes=["a", "b"],
        means={"pixels": [[3.0, 2.0], [2.0, 1.0]], "embedding": [[0.1, 2.0], [2.0, 0.2]]},
        embedding="e.safetensors",
        digest="-",
        bytes=47000,
        data="d",
        trained_on=101,
        held_out=23,
        seconds=7.0,
        notes=("a note",),
        auc={"pixels": 0.61, "embedding": 0.92, "gain": 0.31, "low": 0.21, "high": 0.43},
        knn=dict(zip(("pixels", "embedding"), shares, strict=True)),
        eps=dict(zip(("pixels", "embedding"), limits, strict=True)),
    )
    texts += [metric.lines(), metric.model_copy(update={"auc": metric.auc | {"low": None}}).lines()]
    texts.append(
        GeneratorResult(
            generator="g", data="d?split=train", samples=41, steps=43, bytes=47000, digest="-"
        ).lines()
    )
    values = {f"X_{k}": 0.1234567 * k for k in range(1, 9)}
    answer = QueryResult(
        query="q",
        network="n",
        verdict="sat",
        reason="an attack",
        x=values,
        y={"Y_0": 0.75},
        slack=0.5,
        gradients=True,
        forwards=53,
        seconds=1.25,
    )
    texts.append(answer.lines())
    approve("lines", "\n\n".join("\n".join(lines) for lines in texts), masks={})
