"""The page of one model: its folders are found by digest, its figures are those of their results, and
what is missing can be typed.
"""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import brinell
from brinell.cli import run
from brinell.core.errors import RequestError
from brinell.reports.values import Code, Table
from brinell.studies.dossier import STUDIES, dossier, find_sources
from brinell.studies.register import load


@pytest.fixture
def folders(audit_run, corrupt_run, certify_run, epsilon_run, claim_run):
    return [audit_run, epsilon_run, corrupt_run, certify_run, claim_run]


def report_of(folders, place):
    digest, sources = find_sources(folders)
    return dossier(digest, sources, place), sources


def table_of(report, title: str) -> Table:
    (table,) = [block for block in report.blocks if getattr(block, "title", "") == title]
    return table


def test_classes_are_those_of_every_study(folders, tmp_path):
    report, _ = report_of(folders, tmp_path)
    table = table_of(report, "Class by class, over all studies")
    audit, epsilon, corrupt, certify, _ = map(brinell.open, folders)
    by_name = {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}
    for c in audit.per_class:
        row = by_name[c.name]
        assert row["clean"] == c.clean and row["attacked at 6/255"] == c.robust[-1]
        assert row["drop"].value == c.total_drop
    for band in certify.per_class:
        assert by_name[band.name]["proven at 6/255"] == band.certified[-1]
    (model,) = [entry for entry in corrupt.models if entry.name == audit.models[0].name]
    for loss in model.per_class:
        assert by_name[loss.name]["corrupted"].value == loss.accuracy
    for budget in epsilon.norms[0].per_class:
        name = epsilon.classes[budget.class_]
        assert by_name[name]["to another class, Linf"] == budget.other_median


def test_what_is_missing_can_be_typed(folders, tmp_path):
    """Every command is one that its study takes, and no study that is there is missing."""
    for number in range(1, len(folders) + 1):
        report, sources = report_of(folders[:number], tmp_path)
        verbs = {source.verb for source in sources}
        rows = table_of(report, "What is missing").rows if verbs != set(STUDIES) else []
        assert {row[0] for row in rows} == set(STUDIES) - verbs
        for verb, _, command in rows:
            assert isinstance(command, Code)
            words = shlex.split(command.text)
            assert words[:2] == ["brinell", verb]
            settings = {word[2:] for word in words if word.startswith("--")}
            study = load(verb)
            assert settings <= set(study.fields()) and len(words) - 2 - 2 * len(settings) <= len(
                study.positional
            )
            assert bool(study.positional and verb in ("epsilon", "claim")) == (len(words) % 2 == 1)
        assert [step.command for step in report.steps] == [row[2].text for row in rows[:1]]


def test_the_page_leads_to_its_studies(folders, tmp_path, capsys):
    copies = [tmp_path / f"study-{number}" for number in range(len(folders))]
    for folder, copy in zip(folders, copies, strict=True):
        shutil.copytree(folder, copy)
    assert run(["report", *map(str, copies), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    page = Path(answer["report"]).read_text(encoding="utf-8")
    assert answer["run"] == str(copies[0])
    for copy in copies:
        assert f'href="{copy.name}/report.html"' in page
    sentences = [brinell.open(copy).report().sentences[0] for copy in copies]
    text = re.sub(r"<[^>]+>", "", page).replace("\u00a0", " ")
    assert all(sentence.replace("\u00a0", " ")[:40] in text for sentence in sentences)


def test_folders_of_other_models_are_refused_by_name(
    audit_run, models_run, explain_run, tmp_path, capsys
):
    """Models of two names and one digest are one model."""
    _, sources = find_sources([audit_run, models_run])
    assert len({source.manifest["models"][0]["digest"] for source in sources}) == 1
    copy = tmp_path / "other"
    shutil.copytree(explain_run, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["models"][0]["digest"] = "0" * 32
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RequestError, match=re.escape(f"{copy} is of ")):
        find_sources([audit_run, copy])
    assert run(["report", str(audit_run), str(copy)]) == 2
    assert "name folders of one model" in " ".join(capsys.readouterr().err.split())


def test_other_data_and_classes_are_said(audit_run, explain_run, tmp_path):
    copy = tmp_path / "other"
    shutil.copytree(explain_run, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["data"] |= {"digest": "0" * 32, "classes": ["w", "x", "y", "z"]}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    report, _ = report_of([audit_run, copy], tmp_path)
    assert [note.code for note in report.notes] == ["other-data", "other-classes"]
    assert all("other" in note.text for note in report.notes)
