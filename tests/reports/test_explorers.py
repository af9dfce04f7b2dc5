"""The samples of pages other than an audit of classes: masks, boxes and transfers hold what their rows
say, and maps of a study in the folder of a run stand with the attack.
"""

import json
import shutil
from urllib.parse import parse_qsl

import numpy as np
import pytest

import brinell
from brinell.reports.numbers import is_proportion
from brinell.reports.values import Detail, Samples, Table
from brinell.store import parquet
from brinell.store.files import read_arrays, write_arrays
from brinell.store.table import ROWS
from brinell.studies.audit.tasks.result import AttackRows
from brinell.studies.explain.result import ExplainRows
from brinell.studies.register import open_folder, write_page
from brinell.studies.transfer import samples
from brinell.studies.transfer.rows import ExampleRows, example_file


def block_of(path) -> Samples:
    (block,) = [b for b in open_folder(path).report().blocks if isinstance(b, Samples)]
    return block


def rows_of(block: Samples) -> list[dict]:
    return [dict(zip(block.content["columns"], row, strict=True)) for row in block.content["rows"]]


@pytest.mark.parametrize("kind", ["masks", "boxes"])
def test_pictures_hold_what_is_right_at_every_budget(kind, masks_run, boxes_run):
    folder = {"masks": masks_run, "boxes": boxes_run}[kind]
    result, block = brinell.open(folder), block_of(folder)
    rows = parquet.load_rows(AttackRows, folder / ROWS)
    by_sample = {row["sample"]: row for row in rows_of(block)}
    assert sorted(by_sample) == sorted(entry.sample for entry in result.pictures)
    for entry in result.pictures:
        row = by_sample[entry.sample]
        texts = [row["clean"], *row["levels"]]
        assert [int(text.split(" of ")[0]) for text in texts] == [entry.clean, *entry.robust]
        successes = (rows.sample_id == entry.sample) & rows.met & (rows.attack != "clean")
        eps = [result.facts.eps[level] for _, level in row["broken"]]
        assert sorted(eps) == sorted(rows.eps[successes].tolist())
    shares = [int(row["levels"][-1].split(" of ")[0]) for row in by_sample.values()]
    if kind == "masks":
        assert shares == sorted(shares), "those that lose most come first"


@pytest.mark.parametrize("kind", ["masks", "boxes"])
def test_a_class_opens_the_pictures_in_which_it_occurs(kind, masks_run, boxes_run):
    folder = {"masks": masks_run, "boxes": boxes_run}[kind]
    result, block = brinell.open(folder), block_of(folder)
    (table,) = [
        b for b in result.report().blocks if isinstance(b, Table) and b.title == "Class by class"
    ]
    sizes = {entry.name: entry.pictures for entry in result.per_class}
    for cells, texts in zip(table.rows, table.opens, strict=True):
        choices = [dict(parse_qsl(text)) for text in texts if text]
        assert len(choices) == 2 + len(result.facts.eps)
        for choice in choices:
            pictures = [row for row in rows_of(block) if int(choice["class"]) in row["class"]]
            assert len(pictures) == sizes[cells[0]]


def test_every_picture_is_drawn_before_and_after(masks_run, boxes_run):
    for folder, most in ((masks_run, 4), (boxes_run, 5)):
        block = block_of(folder)
        views = block.draw()
        assert list(views) == [f"0/{row['sample']}" for row in rows_of(block)]
        assert {len(example.pictures) for example in views.values()} == {most}


def test_a_cell_of_a_transfer_opens_the_examples_that_it_counts_as_lost(transfer_run):
    result, block = brinell.open(transfer_run), block_of(transfer_run)
    rows, checked = rows_of(block), 0
    names = [source for source, _ in block.content["attacks"]]
    (accuracy,) = [
        b for b in result.report().blocks if isinstance(b, Table) and b.name == "accuracy"
    ]
    for cells, texts in zip(accuracy.rows, accuracy.opens, strict=True):
        for cell, text in zip(cells, texts, strict=True):
            rate = cell.value if isinstance(cell, Detail) else cell
            choice = dict(parse_qsl(text))
            if not is_proportion(rate):
                continue
            of_model = [row for row in rows if result.names[row["model"]] == choice["model"]]
            if choice.get("outcome") == "wrong":
                failures = {row["sample"].split()[0] for row in of_model if row["state"] == "wrong"}
            else:
                by = names.index(choice["attack"])
                failures = [row for row in of_model if row["by"] == by and row["broken"]]
            assert len(failures) == rate.n - rate.k
            checked += 1
    assert checked == len(result.models) * (1 + len(names))


def test_pictures_of_a_transfer_are_its_examples(transfer_run, tmp_path):
    block, answers = block_of(transfer_run), parquet.load_rows(ExampleRows, transfer_run / ROWS)
    views = block.draw()
    assert len(views) == 2 * len(np.unique(answers.sample_id))
    assert {len(example.pictures) for example in views.values()} == {3}
    # A folder that was made before clean inputs were kept says what is missing.
    copy = tmp_path / "old"
    shutil.copytree(transfer_run, copy)
    file = copy / example_file(0, 0)
    arrays = read_arrays(file)
    assert set(arrays) == {"x", "clean", "forwards", "backwards"}
    file.unlink()
    write_arrays(file, {name: array for name, array in arrays.items() if name != "clean"})
    result = open_folder(transfer_run).model_copy(update={"folder": str(copy)})
    (old,) = [b for b in result.report().blocks if isinstance(b, Samples)]
    assert old.draw() == {} and old.content["rows"] == block.content["rows"]


def test_the_examples_that_fool_most_models_are_held(transfer_run, monkeypatch):
    all_rows = rows_of(block_of(transfer_run))
    fooled: dict[str, int] = {}
    for row in all_rows:
        is_fooled = bool(row["broken"]) and row["state"] == "right"
        fooled[row["view"]] = fooled.get(row["view"], 0) + is_fooled
    monkeypatch.setattr(samples, "MOST", 10)
    monkeypatch.setattr(samples, "PICTURED", 3)
    block = block_of(transfer_run)
    keys = [row["view"] for row in rows_of(block)]
    other_keys = set(fooled) - set(keys)
    assert len(keys) == 10 and min(map(fooled.get, keys)) >= max(map(fooled.get, other_keys))
    assert block.text.startswith(f"10 of {len(all_rows)} answers")
    assert list(block.draw()) == list(dict.fromkeys(keys))[:3]


def test_maps_of_a_study_in_the_folder_stand_with_the_attack(audit_run, explain_run, tmp_path):
    """Of the same model and data alone; one that is damaged is left out."""
    run, inner = tmp_path / "run", tmp_path / "run" / "maps"
    shutil.copytree(audit_run, run)
    shutil.copytree(explain_run, tmp_path / "neighbour")
    plain = {key: len(view.pictures) for key, view in block_of(run).draw().items()}
    shutil.copytree(explain_run, inner)
    views = block_of(run).draw()
    ids = set(parquet.load_rows(ExplainRows, inner / ROWS).sample_id.tolist())
    assert ids & {int(key[2:]) for key in plain}
    for key, view in views.items():
        has_map = int(key[2:]) in ids
        assert len(view.pictures) == plain[key] + has_map
        assert ("what counts in the clean input" in view.pictures[-1].caption) == has_map
    for name in ("models", "data"):
        manifest = json.loads((inner / "manifest.json").read_text())
        entry = manifest[name][0] if name == "models" else manifest[name]
        entry["digest"] = "0" * 32
        (inner / "manifest.json").write_text(json.dumps(manifest))
        assert {key: len(view.pictures) for key, view in block_of(run).draw().items()} == plain
        shutil.rmtree(inner)
        shutil.copytree(explain_run, inner)
    (inner / ROWS).write_bytes(b"damaged")
    assert {key: len(view.pictures) for key, view in block_of(run).draw().items()} == plain


def test_the_pages_of_all_tasks_are_written(masks_run, boxes_run, transfer_run, tmp_path):
    for folder in (masks_run, boxes_run, transfer_run):
        copy = tmp_path / folder.parent.name
        shutil.copytree(folder, copy)
        page = write_page(copy).read_text(encoding="utf-8")
        assert page.count("data-samples") == 2  # the data, and the script that reads it
