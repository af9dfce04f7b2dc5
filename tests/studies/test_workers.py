"""The parts of a study that workers make are those of one process, however many workers die."""

import random

import pytest

import brinell
from _workers import Workers
from brinell.studies.kit import Call
from brinell.studies.serving import command_of
from brinell.testing.studies import rows_match, rows_of

CALLS = {
    "certify": {"samples": "first:6", "method": "smoothing?draws=200"},
    "explain": {"samples": 4, "method": ["occlusion", "gradient"]},
}


@pytest.mark.parametrize("verb", CALLS)
def test_workers_make_the_rows_of_one_process(verb, tmp_path, monkeypatch):
    call = getattr(brinell, verb)
    call("digits-cnn", "digits", out=tmp_path / "alone", **CALLS[verb])
    pools = []

    def pool(call):
        if call.channel is None:
            pools.append(Workers(command_of(call), 3, random.Random(len(pools)), deaths=0.2))
            return pools[-1]
        return call.channel

    monkeypatch.setattr(Call, "pool", pool)
    call("digits-cnn", "digits", out=tmp_path / "workers", **CALLS[verb])
    assert pools and rows_match(rows_of(tmp_path / "workers"), rows_of(tmp_path / "alone"))
