"""Figures of transfers against a count of random rows, sample by sample."""

import numpy as np

from brinell.analysis.inference import holm
from brinell.analysis.proportions import mcnemar, paired_difference
from brinell.analysis.robust_accuracy import rate
from brinell.store import rows
from brinell.store.table import Folder
from brinell.studies.transfer import TransferRequest
from brinell.studies.transfer.result import summarise
from brinell.studies.transfer.rows import ExampleRows, SourceFacts, TransferFacts

MODELS, N = ("a", "b", "c"), 14
SOURCES = (("one", ["a"]), ("two", ["b", "c"]), ("three", []))


def make_rows(seed):
    """Rows of three sources on three models, drawn at random, and as dicts."""
    rng, dicts = np.random.default_rng(seed), []
    for source, _ in SOURCES:
        for model in MODELS:
            for sample in rng.permutation(N).tolist():
                row = {
                    "source": source,
                    "model": model,
                    "sample_id": sample,
                    "label": sample % 3,
                    "linf": 0.1 + sample / 100,
                }
                row |= {
                    "l2": sample + 0.5,
                    "clean_pred": int(rng.integers(3)),
                    "pred": int(rng.integers(3)),
                }
                row |= {"forwards": sample, "backwards": 1}
                dicts.append(row)
    columns = {name: [row[name] for row in dicts] for name in dicts[0]}
    return dicts, rows.build(ExampleRows, len(dicts), **columns)


def is_left(row, clean):
    """Whether a row is right."""
    return row["clean_pred" if clean else "pred"] == row["label"]


def folder_of(answers, path):
    """A folder with these rows."""
    sources = [
        SourceFacts(name=name, members=white_box, white_box=white_box, samples=N + i)
        for i, (name, white_box) in enumerate(SOURCES)
    ]
    facts = TransferFacts(eps=0.1, eps_text="1/10", attack="fgsm", sources=sources)
    models = [{"name": name} for name in MODELS]
    manifest = {"data": {"name": "d", "classes": ["x", "y", "z"]}, "models": models, "seconds": 8.0}
    return Folder(
        path=path, manifest=manifest, request=TransferRequest(), facts=facts, rows=answers
    )


def check_cell(cell, dicts):
    """One cell, counted."""
    (white_box,) = (members for name, members in SOURCES if name == cell.source)
    cell_rows = {
        row["sample_id"]: row
        for row in dicts
        if (row["source"], row["model"]) == (cell.source, cell.model)
    }
    source_rows = {
        (row["model"], row["sample_id"]): row for row in dicts if row["source"] == cell.source
    }

    def count():
        samples = list(cell_rows)
        right = sum(is_left(cell_rows[sample], False) for sample in samples)
        eligible = [
            s
            for s in samples
            if all(is_left(source_rows[model, s], True) for model in (cell.model, *white_box))
        ]
        return (
            right,
            len(samples),
            sum(not is_left(cell_rows[sample], False) for sample in eligible),
            len(eligible),
        )

    def figures(entry):
        return entry.accuracy.k, entry.accuracy.n, entry.success.k, entry.success.n

    assert cell.white_box == (cell.model in white_box) and figures(cell) == count()
    pairs = [(is_left(row, True), is_left(row, False)) for row in cell_rows.values()]
    table = [
        pairs.count(pair) for pair in ((True, True), (False, True), (True, False), (False, False))
    ]
    assert cell.clean == rate(table[0] + table[2], N)
    assert cell.change.difference == (table[1] - table[2]) / N
    assert (cell.change.low, cell.change.high) == tuple(paired_difference(*table))
    return mcnemar(table[1], table[2])


def test_figures_are_counts_of_rows(tmp_path):
    for seed in range(4):
        dicts, answers = make_rows(seed)
        result = summarise(folder_of(answers, tmp_path))
        assert [(cell.source, cell.model) for cell in result.cells] == [
            (s, m) for s, _ in SOURCES for m in MODELS
        ]
        raw = [check_cell(cell, dicts) for cell in result.cells]
        np.testing.assert_allclose([cell.change.p for cell in result.cells], holm(raw))
        for source, (name, _), i in zip(result.sources, SOURCES, range(3), strict=True):
            values = [
                c.success.value
                for c in result.cells
                if c.source == name and not c.white_box and c.success.n
            ]
            assert source.success == (np.mean(values) if values else None)
            assert (source.forwards, source.backwards) == (N * (N - 1) // 2, N)
            assert (source.n, source.missing, source.median_l2) == (N, i, 7.0) and abs(
                source.max_linf - 0.23
            ) < 1e-6
        assert (result.seconds, result.facts.eps_text, result.data) == (8.0, "1/10", "d")
        assert any("two: 1 of its 15 samples have no example" in note for note in result.notes)
