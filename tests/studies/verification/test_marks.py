"""Every text that a folder claims stands on its page, in its tables and at a terminal with †."""

import json
import re
import shutil

import numpy as np
import pytest

import brinell
from brinell.studies.register import study_of, write_page
from brinell.studies.verification.run import declared_claims

TOKEN = "zqzqzqzqzq"
"""A text of ten letters, as long as a date, that nothing else holds."""


def claimed_places(value, claims, place=()):
    """Places of texts in a manifest that are declared as claimed."""
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in entries:
            yield from claimed_places(part, claims, (*place, key))
    elif isinstance(value, str) and claims.cover_value(claims.manifest, place):
        yield place


def texts_with(token, folder):
    """Texts of a page, rows of its tables and lines of the terminal that hold a token."""
    page = re.sub(
        r"</?(t[dh]|span|b|small|code)\b[^>]*>", " ", (folder / "report.html").read_text()
    )
    lines = [" ".join(text.split()) for text in re.split(r"<[^>]*>", page)]
    lines += [str(line) for line in brinell.open(folder).lines()]
    return [line for line in lines if token in line]


@pytest.mark.parametrize("run", ["audit_run", "corrupt_run"])
def test_every_claimed_text_has_its_mark(run, request, tmp_path):
    source = request.getfixturevalue(run)
    claims = declared_claims(study_of(source))
    recorded = json.loads((source / "manifest.json").read_text())
    if "remarks" in recorded:
        model, stage = recorded["models"][0]["name"], recorded["stages"][0]["name"]
        recorded["remarks"] = {model: {stage: {"a": "said"}}}
    places = sorted(set(claimed_places(recorded, claims)), key=str)
    rng = np.random.default_rng(75)
    marked = 0
    for index in rng.permutation(len(places))[:12].tolist():
        folder = shutil.copytree(source, tmp_path / str(index))
        content = json.loads(json.dumps(recorded))
        *owners, key = places[index]
        owner = content
        for step in owners:
            owner = owner[step]
        owner[key] = TOKEN
        study_of(source).layout.save(folder, content)
        write_page(folder)
        texts = texts_with(TOKEN, folder)
        assert all("†" in text for text in texts), (places[index], texts)
        marked += len(texts)
    assert marked or not places
