"""Every verb that computes runs on a second device, mixes no devices, and leaves the rows that it
leaves on the processor."""

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from _second_device import NAME, second_device
from _study_examples import AGENT, EXAMPLES, SMALL, Needs
from brinell import calls
from brinell.studies import register
from brinell.testing import studies as rules

COMPUTING = [verb for verb in EXAMPLES if "device" in register.load(verb).fields()]
DEAR = {
    "audit",
    "benchmark",
    "certify",
    "audit detectors",
    "audit pictures",
    "transfer pictures",
    "harden",
    "compare",
    "transfer",
}
CHEAP = [verb for verb in COMPUTING if verb not in DEAR]
ROUNDED = {"benchmark"}
"""Verbs whose inputs may differ: sums of RLAB's linear model come in another order there, and
may turn two patches."""


def rows_on(device, verb, folder):
    settings = EXAMPLES[verb] | Needs(folder)(verb) | {"device": device}
    return rules.finish(register.load(verb), settings, folder / device).rows


def check(verb, folder):
    expected = rows_on("cpu", verb, folder)
    with second_device() as reads:
        rows = rows_on(NAME, verb, folder)
    assert reads, "nothing was computed there"
    if verb in ROUNDED:
        check_rounded(rows, expected)
    else:
        assert rules.rows_match(rows, expected)


def check_rounded(first, second):
    """Counts and outcomes are the same, numbers but for what two patches change."""
    tables = [name for name, table in first.items() if isinstance(table, pa.Table)]
    plain = [
        {name: value for name, value in rows.items() if name not in tables}
        for rows in (first, second)
    ]
    assert rules.rows_match(*plain)
    for name in tables:
        assert first[name].schema == second[name].schema
        for column in set(first[name].column_names) - {"input", "mask", "patches"}:
            pairs = zip(
                first[name][column].to_pylist(), second[name][column].to_pylist(), strict=True
            )
            for one, two in pairs:
                assert one == two or (
                    isinstance(one, float) and one == pytest.approx(two, rel=0.03, abs=0.03)
                ), (name, column)


@pytest.mark.parametrize("verb", CHEAP)
def test_a_verb(verb, tmp_path):
    check(verb, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("verb", sorted(DEAR))
def test_a_dear_verb(verb, tmp_path):
    check(verb, tmp_path)


TRAINING = {
    "train agent": AGENT | {"model": SMALL, "samples": 30, "steps": 10, "attack": "rlab?steps=8"},
    "train generator": {"steps": 5},
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", TRAINING)
def test_training(verb, tmp_path):
    call, files = calls.call_of(register.load(verb)), {}
    for device in ("cpu", NAME):
        files[device] = tmp_path / f"{device}.safetensors"
        with second_device():
            call(**TRAINING[verb] | {"data": "digits", "device": device}, out=files[device])
    first, second = (load_file(file) for file in files.values())
    assert {name: values.shape for name, values in first.items()} == {
        name: values.shape for name, values in second.items()
    }


def test_the_device_of_a_name():
    with second_device():
        assert torch.empty(1, device=NAME).device == torch.device(NAME, 0)
