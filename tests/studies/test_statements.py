"""What is said of a run is one object: in its JSON, on its page, at the terminal, in a claim and in
a gate."""

import json

import brinell
from approval import terminal_of
from brinell.analysis.judgements import extreme_classes
from brinell.reports.statements import class_sentence, sentence


def test_the_weakest_class_of_a_run_is_the_same_everywhere(audit_run, tmp_path):
    result = brinell.open(audit_run)
    (model,) = result.models
    said = model.statements
    text = said[0].eps_text
    position = model.eps_text.index(text)

    payload = json.loads(json.dumps(result.payload()))
    assert payload["statements"] == [entry.model_dump(mode="json") for entry in said]
    assert said == extreme_classes(model.per_class, position, text)
    words = class_sentence(said)
    assert words in result.report().sentences
    assert words[:30] in terminal_of(result, audit_run)

    claim = brinell.claim(audit_run, eps=text, out=tmp_path / "claim")
    assert claim.result.statements == said and words in claim.report().sentences
    verdict = brinell.gate(audit_run, worst_class=0.0, eps=text, without_checks=True)
    assert verdict.statements == said


def test_who_leads_is_the_same_on_the_page_and_in_a_comparison(models_run, tmp_path):
    result = brinell.open(models_run)
    assert len(result.models) > 1 and result.statements[0].kind == "leads"
    compared = brinell.compare(models_run, at=result.statements[0].eps_text, out=tmp_path / "c")
    assert compared.statements[0] == result.statements[0]
    for report in (result.report(), compared.report()):
        assert sentence(result.statements[0]) in report.sentences
