"""The clean inputs that an audit keeps for its gallery, made again by its verification."""

from types import SimpleNamespace

import numpy as np
import pytest

from brinell.studies.verification import replay

KEPT = {1: np.zeros(3), 2: np.ones(3)}


@pytest.mark.parametrize(
    ("made", "differs"),
    [
        (KEPT, False),
        ({1: np.zeros(3)}, True),
        ({**KEPT, 3: np.ones(3)}, True),
        ({1: np.zeros(3), 2: np.array([1, 1, 0.5])}, True),
        ({}, True),
    ],
)
def test_another_sample_or_another_value_is_noticed(made, differs, monkeypatch):
    monkeypatch.setattr(replay, "clean_cell", lambda plan, source: "clean")
    draft = SimpleNamespace(clean=lambda cell: KEPT, gallery={"clean": made})
    audit = SimpleNamespace(plan=None, source=None, draft=draft)
    assert replay.ReplayedAudit.gallery_differs(audit) == differs
