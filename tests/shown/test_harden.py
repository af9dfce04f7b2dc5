"""The table of attacks before and after a hardening, against answers that are known by hand."""

import csv
import io
import re
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

import brinell
from approval import page_text, terminal_of
from brinell.core.domain import Domain
from brinell.reports.csv import csv_files
from brinell.reports.html import page as page_of
from brinell.store import parquet, rows
from brinell.studies.harden.result import CHANGES, ChangeRows, unseen_of
from brinell.training.recipe import fitting_distortions

RLAB, FOG = "RLAB, 50 queries, L2 0.5", "fog"
TITLE = "Attacks, before and after"


@pytest.fixture(scope="module")
def result(harden_run):
    """Eight samples, of which the model before gets six right and the hardened one five.

    RLAB fools five of the six after 2, 4, 6, 8 and 10 queries at distances of 1 to 5, and two of
    the five after 20 and 30 at 4 and 5; whoever was wrong to begin with has other figures, which
    count nowhere. Fog fools none of the six and one of the five, at a distance of 2.
    """
    clean_before, clean_after = np.arange(8) < 6, np.arange(8) < 5
    shared = {
        "sample_id": np.arange(8),
        "clean_before": clean_before,
        "clean_after": clean_after,
    }
    by_rlab = rows.build(
        ChangeRows,
        8,
        change=RLAB,
        seen=True,
        before=np.isin(np.arange(8), (5,)),
        after=np.isin(np.arange(8), (2, 3, 4)),
        l2_before=np.array([1.0, 2, 3, 4, 5, 0, 90, 90]),
        l2_after=np.array([4.0, 5, 0, 0, 0, 90, 90, 90]),
        queries_before=np.array([2.0, 4, 6, 8, 10, 51, 1, 1]),
        queries_after=np.array([20.0, 30, 51, 51, 51, 1, 1, 1]),
        **shared,
    )
    in_fog = rows.build(
        ChangeRows,
        8,
        change=FOG,
        seen=False,
        before=clean_before | (np.arange(8) == 7),
        after=clean_after & (np.arange(8) != 4),
        l2_before=np.full(8, 3.0),
        l2_after=np.full(8, 2.0),
        **shared,
    )
    unseen = unseen_of(rows.concatenate([by_rlab, in_fog]))
    return brinell.open(harden_run).model_copy(update={"unseen": unseen})


def test_success_is_of_the_samples_that_a_model_gets_right(result):
    rlab, fog = result.unseen
    assert (rlab.success_before.k, rlab.success_before.n) == (5, 6)
    assert (rlab.success_after.k, rlab.success_after.n) == (2, 5)
    assert (fog.success_before.k, fog.success_before.n) == (0, 6)
    assert (fog.success_after.k, fog.success_after.n) == (1, 5)


def test_queries_count_failures_at_the_limit_and_l2_the_successes_alone(result):
    rlab, fog = result.unseen
    assert rlab.queries_before == (2 + 4 + 6 + 8 + 10 + 51) / 6
    assert rlab.queries_after == (20 + 30 + 3 * 51) / 5
    assert (rlab.l2_before, rlab.l2_after) == (3.0, 4.5)
    assert (fog.queries_before, fog.queries_after) == (None, None)
    assert (fog.l2_before, fog.l2_after) == (None, 2.0)


CSV = {
    RLAB: {
        "trained on": "True",
        "success, before k": "5",
        "success, before n": "6",
        "success, after k": "2",
        "success, after n": "5",
        "mean queries, before": "13.5",
        "mean queries, after": "40.6",
        "mean L2, before": "3",
        "mean L2, after": "4.5",
    },
    FOG: {
        "trained on": "False",
        "success, before k": "0",
        "success, before n": "6",
        "success, after k": "1",
        "success, after n": "5",
        "mean queries, before": "",
        "mean queries, after": "",
        "mean L2, before": "",
        "mean L2, after": "2",
    },
}


def test_the_csv_file(result):
    (text,) = (
        text for name, text in csv_files(result.report()).items() if name.endswith("attacks.csv")
    )
    lines = {line["attack"]: line for line in csv.DictReader(io.StringIO(text))}
    assert lines.keys() == CSV.keys()
    for name, cells in CSV.items():
        shown = {column: lines[name][column] for column in cells}
        assert {column: _number(text) for column, text in shown.items()} == {
            column: _number(text) for column, text in cells.items()
        }


def _number(text):
    return float(text) if re.fullmatch(r"[\d.]+", text) else text


@pytest.mark.parametrize("show", ["page", "terminal"])
def test_page_and_terminal_show_every_figure(result, show):
    report = result.report()
    text = page_text(page_of(report)) if show == "page" else terminal_of(result, result.folder)
    block = text[text.index(TITLE) :]
    for figure in ("83.3 %", "40.0 %", "0.0 %", "20.0 %", "13.5", "40.6", "4.5"):
        assert figure in block, figure
    assert RLAB.split(",")[0] in block and FOG in block


PGD_RECIPES = ("pgd", "trades", "mart", "alp")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["plain", *PGD_RECIPES, "rlab(steps=5)", "benchmark-set"])
def test_every_recipe_is_compared_under_the_attack_that_trained_and_every_other(
    recipe, patterns, tmp_path
):
    """RLAB, PGD in both norms and each fitting distortion, before and after, as a plain loop over
    the answers counts them.
    """
    if recipe == "benchmark-set":
        agent = {"distortions": "contrast", "steps": 30, "refine": 0, "levels": "1", "samples": 24}
        brinell.benchmark(patterns.model, data=patterns.train, out=tmp_path / "set", **agent)
        recipe = f"pgd+benchmark-set(path={tmp_path / 'set'})"
    result = brinell.harden(
        patterns.model,
        patterns.data,
        train=patterns.train,
        recipe=recipe,
        epochs=1,
        eps="2/255",
        attack=["fgsm"],
        out=tmp_path / "out",
    )
    answers = parquet.read_table(Path(result.folder) / CHANGES).to_pylist()
    distortions = {*fitting_distortions(Domain(kind="image", shape=(1, 8, 8), levels=256))}
    attacks = {row.name for row in result.unseen} - distortions
    assert distortions <= {row.name for row in result.unseen} and len(attacks) == 3
    assert sorted(name.partition(",")[0] for name in attacks) == ["PGD", "PGD", "RLAB"]
    for row in result.unseen:
        of_change = [answer for answer in answers if answer["change"] == row.name]
        assert len(of_change) == 24
        for model in ("before", "after"):
            right = [answer for answer in of_change if answer[f"clean_{model}"]]
            fooled = [answer for answer in right if not answer[model]]
            success = getattr(row, f"success_{model}")
            assert (success.k, success.n) == (len(fooled), len(right))
            sizes = [answer[f"l2_{model}"] for answer in fooled]
            assert getattr(row, f"l2_{model}") == (pytest.approx(mean(sizes)) if sizes else None)
            queries = [answer[f"queries_{model}"] for answer in right]
            expected = pytest.approx(mean(queries)) if row.name.startswith("RLAB") else None
            assert getattr(row, f"queries_{model}") == expected

    (rlab,) = (row for row in result.unseen if row.name.startswith("RLAB"))
    assert rlab.seen == ("rlab" in recipe or "benchmark-set" in recipe)
    pgd = {row.name: row.seen for row in result.unseen if row.name.startswith("PGD")}
    trained = [name for name, seen in pgd.items() if seen]
    is_pgd = recipe.partition("+")[0] in PGD_RECIPES
    assert len(trained) == is_pgd and all("Linf 2/255" in name for name in trained)
    table = next(block for block in result.report().blocks if block.title == TITLE)
    assert [line[0] for line in table.rows] == [row.name for row in result.unseen]
