"""Attacks compared on every sample: `alone=true`."""

import torch
from tests._helpers import Recorder, cells_of, run_audit, threshold

from brinell.core.domain import Domain

DOMAIN = Domain(kind="image", shape=(1, 4, 4))


def _audit(tmp_path, second):
    # Margins from 0.01 to 0.4 in the first value alone: some break at once, some later, the last
    # never within 0.3.
    x = torch.full((8, 1, 4, 4), 0.5)
    x[:, 0, 0, 0] = 0.5 - torch.linspace(0.01, 0.4, 8)
    model = Recorder(threshold(0.5), DOMAIN)
    return run_audit(
        tmp_path / "run",
        model,
        x,
        torch.zeros(8, dtype=torch.long),
        eps="0.3",
        norm="l2",
        attack=("simba?steps=60", second),
    )


def test_a_stage_alone_attacks_what_earlier_ones_broke(tmp_path):
    independent_run = _audit(tmp_path / "a", "square?steps=200&alone=true")
    sequential_run = _audit(tmp_path / "b", "square?steps=200")
    outcomes = {
        key[2]: outcome
        for key, outcome in cells_of(independent_run.rows).items()
        if key[1].startswith("square")
    }
    cascaded = {key[2] for key in cells_of(sequential_run.rows) if key[1].startswith("square")}
    assert len(outcomes) == 8 and len(cascaded) < 8
    assert any(outcomes[sample] == "broken" for sample in outcomes.keys() - cascaded)
