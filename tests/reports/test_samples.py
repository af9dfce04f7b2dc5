"""The samples of a page: what it holds of each is what the rows say, the most telling come first,
and large pictures lie beside it.
"""

import base64
import json
import math
import re
from urllib.parse import parse_qsl

import numpy as np
import pytest

from _synthetic_runs import write_rows
from brinell.analysis.curve import RIGHT, UNJUDGED, WRONG, grid, worst_case
from brinell.reports import html
from brinell.reports.numbers import is_proportion, percent
from brinell.reports.samples import where
from brinell.reports.values import Detail, Samples, Table
from brinell.store.run import Run
from brinell.studies.audit import samples
from brinell.studies.register import open_folder

NAMES = [
    '<script>alert("1")</script>',
    "</script><img src=x onerror=alert(1)>",
    "مرحبا \u202e بالعالم",
    "类别 & 'quoted'",
    "a+b=c&class=0#x",
]


def block_of(path) -> Samples:
    (block,) = [b for b in open_folder(path).report().blocks if isinstance(b, Samples)]
    return block


def stored(page: str) -> dict:
    """The samples as the script of a page reads them."""
    (text,) = re.findall(r"<script type=\"application/json\" data-samples>(.*?)</script>", page)
    return json.loads(text)


def random_run(make, seed: int, names: list[str], **changes):
    rng = np.random.default_rng(seed)
    n, budgets = int(rng.integers(5, 60)), int(rng.integers(1, 6))
    breaks = {}
    for model in range(int(rng.integers(1, 4))):
        distances = rng.lognormal(-2, 1, (2, n))
        distances[0, rng.random(n) < 0.2] = 0
        breaks[f"net {model} {names[model]}"] = distances
    labels = rng.integers(0, len(names), n)
    return make(breaks, labels, [(i + 1) / 30 for i in range(budgets)], names, **changes)


def test_states_at_every_budget_are_those_of_the_curve(make):
    """Property: what the page counts at a budget is what the figures count."""
    states = {WRONG: ("broken", "wrong"), RIGHT: ("robust",), UNJUDGED: ("unjudged",)}
    for seed in range(12):
        run = Run.open(random_run(make, seed, NAMES))
        content = block_of(run.path).content
        rows = [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
        for number, model in enumerate(content["models"]):
            cells = grid(run.rows, run.manifest, model)
            worst = worst_case(cells)
            of_model = {row["sample"]: row for row in rows if row["model"] == number}
            assert sorted(of_model) == cells.ids.tolist()
            for index, sample in enumerate(cells.ids.tolist()):
                row = of_model[sample]
                for eps in range(len(cells.eps)):
                    is_broken = any(level <= eps for _, level in row["broken"])
                    state = row["state"] if row["state"] != "right" else "robust"
                    outcome = "broken" if is_broken and state != "wrong" else state
                    assert outcome in states[int(worst[index, eps])], (seed, sample, eps)


def test_answers_and_distances_are_those_of_the_closest_row(make):
    for seed in range(6):
        run = Run.open(random_run(make, seed, NAMES))
        records, content = run.rows, block_of(run.path).content
        for values in content["rows"]:
            row = dict(zip(content["columns"], values, strict=True))
            is_row = (records.model == content["models"][row["model"]]) & (
                records.sample_id == row["sample"]
            )
            (clean,) = np.flatnonzero(is_row & (records.attack == "clean"))
            assert (
                row["class"] == records.label[clean] and row["clean"] == records.clean_pred[clean]
            )
            assert content["classes"][str(row["clean"])] == NAMES[row["clean"]]
            broken = np.flatnonzero(is_row & (records.outcome == "broken"))
            assert len(broken) == len(row["broken"])
            if len(broken):
                best = min(broken, key=lambda index: (records.broken[index], records.linf[index]))
                assert row["attacked"] == records.adv_pred[best]
                assert row["size"] == pytest.approx(records.linf[best], rel=5e-3)
            else:
                assert row["size"] is None and row["attacked"] is None


def test_shares_are_rounded_once(tmp_path, synthetic):
    """Percents by the script of the page are those of the tables, which round the value of a row."""
    labels = np.arange(90) % 3
    rows = synthetic.records("net", labels, [0.1], np.full((2, 90), 0.05), classes=3)
    confidences = np.random.default_rng(0).random((3, 90)).astype(np.float32)
    confidences[0, :3] = 0.13454, 0.125, 0.995
    rows = synthetic.change(
        rows, np.full(len(rows.label), True), clean_confidence=confidences[0][rows.sample_id]
    )
    broken = rows.outcome == "broken"
    rows = synthetic.change(rows, broken, adv_confidence=confidences[1:].ravel()[: broken.sum()])
    manifest = synthetic.manifest(["net"], [0.1], 90, ["a", "b", "c"])
    run = Run.open(write_rows(tmp_path / "run", {"net": rows}, manifest))
    content = block_of(run.path).content
    assert len(content["rows"]) == 90
    for values in content["rows"]:
        row = dict(zip(content["columns"], values, strict=True))
        of_sample = run.rows.sample_id == row["sample"]
        clean = run.rows.clean_confidence[of_sample & (run.rows.attack == "clean")]
        attacked = run.rows.adv_confidence[of_sample & (run.rows.outcome == "broken")]
        assert percent_of_script(row["sure"]) in {percent(float(p), 0) for p in clean}
        assert percent_of_script(row["attackedSure"]) in {percent(float(p), 0) for p in attacked}


def percent_of_script(share: float) -> str:
    """As Math.round of JavaScript rounds it."""
    return percent(math.floor(100 * share + 0.5) / 100, 0)


def test_the_most_telling_are_held_and_named(make, monkeypatch):
    """Of each class the samples that break first, before any that holds."""
    monkeypatch.setattr(samples, "MOST", 9)
    distances = np.full((2, 60), np.inf)
    distances[0, :30] = np.linspace(0.01, 0.2, 30)
    block = block_of(
        make({"net": distances}, np.arange(60) % 3, [i / 50 for i in range(1, 12)], ["a", "b", "c"])
    )
    assert {row[1] for row in block.content["rows"]} == set(range(9))
    assert block.text.startswith("9 of 60 samples: of each class those that break at the smallest")


@pytest.mark.parametrize("kind", ["image", "signal", "vector", "video"])
def test_large_pictures_lie_beside_the_page(make, monkeypatch, kind):
    """The page names each file that is there, no other, and holds the same pictures otherwise."""
    shape = {"image": (3, 12, 9), "signal": (2, 90), "vector": (7,), "video": (3, 4, 8, 8)}[kind]
    path = random_run(make, 1, NAMES, kind=kind, shape=shape)
    result = open_folder(path)
    embedded = stored(result.write().read_text(encoding="utf-8"))
    assert not (path / "samples").exists()
    monkeypatch.setattr(html, "EMBEDDED", 1)
    page = result.write().read_text(encoding="utf-8")
    beside = stored(page)
    files = sorted(file.relative_to(path).as_posix() for file in path.glob("samples/*"))
    paths = re.findall(r'src="(samples/[^"]+)"', "".join(beside["views"].values()))
    assert files and sorted(paths) == files
    assert result.write().read_text(encoding="utf-8") == page
    texts = re.findall(r"base64,([^\"]+)", "".join(embedded["views"].values()))
    pictures = [(path / name).read_bytes() for name in paths if name.endswith("png")]
    assert pictures == [base64.b64decode(text) for text in texts]
    Run.open(path)  # files beside the page are no foreign ones


def test_names_of_any_script_act_nowhere(make):
    for seed in range(4):
        path = random_run(make, seed, NAMES)
        page = open_folder(path).write().read_text(encoding="utf-8")
        assert page.count("<script") == 2 and page.count("</script") == 2
        assert stored(page)["models"] == [m["name"] for m in Run.open(path).manifest["models"]]
        assert "<img src=x" not in page


def test_addresses_keep_any_name():
    assert where(**{"class": 3}, eps="4/255") == "class=3&eps=4/255"
    assert where(model="a+b=c&class=0#x") == "model=a%2Bb%3Dc%26class%3D0%23x"


def count_of(rows: list[dict], content, choice: dict[str, str]) -> tuple[int, int]:
    """How many samples the page lists for a choice, and of how many."""
    pool = [
        row
        for row in rows
        if ("class" not in choice or row["class"] == int(choice["class"]))
        and ("model" not in choice or content["models"][row["model"]] == choice["model"])
    ]
    if choice.get("outcome") == "wrong":
        return sum(row["state"] == "wrong" for row in pool), len(pool)
    eps = content["eps"].index(choice["eps"])
    broken = [row for row in pool if any(level <= eps for _, level in row["broken"])]
    return sum(row["state"] == "wrong" for row in pool) + len(broken), len(pool)


def test_a_cell_opens_the_samples_that_its_rate_counts_as_lost(make):
    """Property over all tables of random runs: n - k of each rate are listed."""
    for seed in range(10):
        report = open_folder(random_run(make, seed, NAMES)).report()
        (block,) = [b for b in report.blocks if isinstance(b, Samples)]
        rows = [
            dict(zip(block.content["columns"], row, strict=True)) for row in block.content["rows"]
        ]
        checked = 0
        for table in [b for b in report.blocks if isinstance(b, Table) and b.opens]:
            assert len(table.opens) == len(table.rows)
            for cells, texts in zip(table.rows, table.opens, strict=True):
                for cell, text in zip(cells, texts, strict=False):
                    rate = cell.value if isinstance(cell, Detail) else cell
                    choice = dict(parse_qsl(text))
                    if is_proportion(rate) and {"eps", "outcome"} & choice.keys():
                        lost, pool = count_of(rows, block.content, choice)
                        assert (lost, pool) == (rate.n - rate.k, rate.n), (seed, table.title, text)
                        checked += 1
        assert checked
