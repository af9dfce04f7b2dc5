"""What is said of a run is one object: in its JSON, on its page, at the terminal, in a claim, on a
board and in a gate; for every study of the register."""

import json
import re
import shutil

import pytest
from pydantic import BaseModel

import brinell
from _study_examples import EXAMPLES, finished
from approval import page_text, terminal_of
from brinell.analysis.judgements import extreme_classes
from brinell.analysis.statements import Statement
from brinell.reports import html
from brinell.reports.statements import (
    changes_sentence,
    class_sentence,
    losses_sentence,
    lowest_mark,
    sentence,
)
from brinell.studies import register

__all__ = ["finished"]
SCHEMAS = {
    name.replace("-", " ")
    for name in register.schemas()
    if "Statement" in register.schema(name).get("$defs", {})
}
"""Verbs whose JSON holds statements."""
STATING = [verb for verb in EXAMPLES if verb in SCHEMAS]
"""Those that leave a folder."""
ANSWERS = {"doctor", "gate"}
"""Those that answer alone, which test_doctor.py and a test below compare."""
COMPARING = re.compile(
    r"\b(?:weakest|strongest|leads|more than chance|most robust|worse|better|highest|lowest"
    r"|loses? (?:most|least)|rose from|fell from|fell significantly|evade|matters more|shown to)\b"
)


def statement_lists(value):
    """All lists of statements of a result, as its JSON gives them back, and the name of each."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            field = getattr(value, name)
            if isinstance(field, Statement):
                yield name, [field]
            elif isinstance(field, list) and field and isinstance(field[0], Statement):
                yield name, field
            else:
                yield from statement_lists(field)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from statement_lists(entry)


def renderings(statements):
    """The sentences that may be made of some statements, without their full stops."""
    texts = [sentence(entry) for entry in statements]
    texts += [class_sentence(statements), changes_sentence(statements), losses_sentence(statements)]
    return [text.rstrip(".").lower() for text in texts if text]


def test_every_verb_that_compares_is_tested():
    assert set(STATING) | ANSWERS == SCHEMAS and len(STATING) > 7


@pytest.mark.slow
@pytest.mark.parametrize("finished", STATING, indirect=True)
def test_every_study_says_what_its_json_holds(finished):
    """A sentence that compares is that of a statement of the JSON; what a result holds is shown."""
    result = brinell.open(finished.folder)
    payload = json.dumps(result.payload())
    lists = list(statement_lists(result))
    assert lists
    for _, statements in lists:
        for entry in statements:
            dump = entry.model_dump(mode="json")
            assert json.dumps(dump) in payload and Statement.model_validate(dump) == entry
            assert entry.p is None or not entry.supported or entry.p <= 0.05 + 1e-9
            if entry.low is not None and not entry.supported:
                assert entry.low <= 0 <= entry.high

    report = result.report()
    texts = [text for _, statements in lists for text in renderings(statements)]
    for said in report.sentences:
        if COMPARING.search(said):
            assert any(text in said.lower() for text in texts), said
    shown = f"{page_text(html.page(report))} {' '.join(report.sentences)}".lower()
    screen = " ".join(terminal_of(result, finished.folder).split()).lower()
    for name, statements in lists:
        if name in type(result).model_fields:
            assert any(text in shown for text in renderings(statements)), (name, statements)
    assert not texts or any(text[:30] in screen for text in texts)


def test_the_weakest_class_of_a_run_is_the_same_everywhere(audit_run, tmp_path):
    result = brinell.open(audit_run)
    (model,) = result.models
    statements = model.statements
    text = statements[0].eps_text
    position = model.eps_text.index(text)

    payload = json.loads(json.dumps(result.payload()))
    assert payload["models"][0]["statements"] == [
        entry.model_dump(mode="json") for entry in statements
    ]
    assert statements == extreme_classes(model.per_class, position, text)
    words = class_sentence(statements)
    assert words in result.report().sentences
    assert words[:30] in terminal_of(result, audit_run)

    claim = brinell.claim(audit_run, eps=text, out=tmp_path / "claim")
    assert claim.result.statements == statements and words in claim.report().sentences
    verdict = brinell.gate(audit_run, worst_class=0.0, eps=text, without_checks=True)
    assert verdict.statements == statements


@pytest.mark.slow
def test_who_leads_and_who_is_weakest_is_the_same_on_page_board_and_in_a_comparison(
    models_run, tmp_path
):
    result = brinell.open(models_run)
    assert len(result.models) > 1 and result.statements[0].kind == "leads"
    budget = result.statements[0].eps_text
    words = sentence(result.statements[0])
    compared = brinell.compare(models_run, at=budget, out=tmp_path / "c")
    assert compared.statements[0] == result.statements[0]
    for report in (result.report(), compared.report()):
        assert words in report.sentences

    shutil.copytree(models_run, tmp_path / "runs" / "models")
    folder = tmp_path / "site"
    brinell.board(str(tmp_path / "runs"), out=folder, trust=tmp_path / "runs")
    files = (folder / "tasks").glob("*.html")
    pages = [" ".join(page_text(file.read_text()).split()) for file in files]
    (page,) = [text for text in pages if " ".join(words.split()) in text]
    for model in result.models:
        position = model.eps_text.index(budget)
        weakest = lowest_mark(extreme_classes(model.per_class, position, budget))
        assert " ".join(weakest.text.split()) in page, model.name
