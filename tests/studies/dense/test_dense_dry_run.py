"""Dry runs of studies of maps: the plan, its passes at most, and an estimate that is that of the run itself."""

import numpy as np
import pytest
import torch

import brinell
from brinell.core.errors import RequestError
from brinell.studies.dense.records import TABLE


class Threshold(torch.nn.Module):
    """A pixel has class 1 if it is brighter than a half."""

    def forward(self, x):
        value = x.mean(1)
        return torch.stack([0.5 - value, value - 0.5], 1)


def threshold_data():
    pictures = np.random.default_rng(0).uniform(0.45, 0.55, (3, 4, 4, 3)).astype(np.float32)
    return brinell.data(pictures, masks=(pictures.mean(3) > 0.5).astype(np.int64), classes=["dark", "bright"])


SETTINGS = {"eps": "0.01,0.02", "attack": "sea?steps=3", "select": "first"}


def test_the_estimate_is_that_of_the_run_and_nothing_is_kept(tmp_path, monkeypatch, subtests):
    for number, call in enumerate([brinell.audit]):
        with subtests.test(str(call)):
            folder = tmp_path / str(number)
            folder.mkdir()
            monkeypatch.chdir(folder)
            plan = call(Threshold(), threshold_data(), dry_run=True, calibrate=60, **SETTINGS)
            assert not list(folder.iterdir())
            brinell.dense(Threshold(), threshold_data(), out=folder / "run", batch_size=1, **SETTINGS)
            rows = TABLE.read(folder / "run").rows
            (cost,) = plan.estimates
            assert (plan.n, cost.samples) == (3, 3)
            assert cost.passes == (rows.forwards + rows.backwards).sum()
            for cell in plan.cells:
                assert cell.passes == (rows.forwards + rows.backwards)[rows.attack == cell.stage].sum()
                assert (cell.forwards_at_most, cell.backwards_at_most) == (3 * 2 * 4, 3 * 2 * 3)
                assert cell.passes <= cell.forwards_at_most + cell.backwards_at_most


def test_without_a_calibration_no_picture_is_attacked(tmp_path):
    plan = brinell.dense(Threshold(), threshold_data(), dry_run=True, calibrate=0, **SETTINGS)
    assert plan.estimates == () and all(cell.passes is None for cell in plan.cells)


def test_a_calibration_alone_is_refused(tmp_path):
    with pytest.raises(RequestError, match="dry_run"):
        brinell.dense(Threshold(), threshold_data(), calibrate=1, out=tmp_path / "run", **SETTINGS)
