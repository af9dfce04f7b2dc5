"""Fixtures of all tests of models."""

import pytest


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("BRINELL_TOKEN", raising=False)
