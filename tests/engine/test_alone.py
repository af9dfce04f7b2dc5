"""Attacks compared on every sample: `alone=true`, and success within so many queries."""

import torch
from tests._helpers import Recorder, cells_of, run_audit, threshold

from brinell.analysis.robust_accuracy import summarise
from brinell.core.domain import Domain

DOMAIN = Domain(kind="image", shape=(1, 4, 4))


def _audit(tmp_path, second):
    # Margins from 0.01 to 0.4 in the first value alone: some break at once, some later, the last never within 0.3.
    x = torch.full((8, 1, 4, 4), 0.5)
    x[:, 0, 0, 0] = 0.5 - torch.linspace(0.01, 0.4, 8)
    model = Recorder(threshold(0.5), DOMAIN)
    return run_audit(
        tmp_path / "run", model, x, torch.zeros(8, dtype=torch.long), eps="0.3", norm="l2", attack=("simba?steps=60", second)
    )


def test_a_stage_alone_attacks_what_earlier_ones_broke(tmp_path):
    independent_run = _audit(tmp_path / "a", "square?steps=200&alone=true")
    sequential_run = _audit(tmp_path / "b", "square?steps=200")
    outcomes = {key[2]: outcome for key, outcome in cells_of(independent_run.records()).items() if key[1].startswith("square")}
    cascaded = {key[2] for key in cells_of(sequential_run.records()) if key[1].startswith("square")}
    assert len(outcomes) == 8 and len(cascaded) < 8
    assert any(outcomes[sample] == "broken" for sample in outcomes.keys() - cascaded)


def test_success_within_queries_counts_every_sample(tmp_path):
    run = _audit(tmp_path, "square?steps=200&alone=true")
    [model] = summarise(run.manifest, run.records(), "run").models
    by_name = {curve.attack: curve for curve in model.success_by_queries}
    assert set(by_name) == {"simba?steps=60", "square?steps=200&alone=true"}
    records = run.records()
    for name, curve in by_name.items():
        is_attack = records.attack == name
        queries = records.queries_to_success[is_attack].compressed()
        for budget, rate in zip(curve.queries, curve.success, strict=True):
            assert (rate.k, rate.n) == (int((queries <= budget).sum()), 8)
        robust = records.forwards[is_attack & (records.outcome == "survived")]
        assert curve.queries[-1] <= max(robust.max(initial=0), queries.max(initial=0)), "nothing is said beyond what was spent"


def test_success_within_queries_ends_at_the_budget(tmp_path):
    """Nobody can be fooled: the curve ends with the queries that were spent, and not at 5,000."""
    x, model = torch.full((4, 1, 4, 4), 0.1), Recorder(threshold(0.9), DOMAIN)
    run = run_audit(
        tmp_path / "run", model, x, torch.zeros(4, dtype=torch.long), eps="0.1", norm="l2", attack=("square?steps=70",)
    )
    [result] = summarise(run.manifest, run.records(), "run").models
    [curve] = result.success_by_queries
    assert curve.queries == [50, int(run.records().forwards.max())] and 70 <= curve.queries[1] <= 71
    assert [rate.k for rate in curve.success] == [0, 0]


def test_a_stage_that_saw_the_hard_samples_only_has_no_curve(tmp_path):
    run = _audit(tmp_path, "square?steps=200")
    [model] = summarise(run.manifest, run.records(), "run").models
    assert [curve.attack for curve in model.success_by_queries] == ["simba?steps=60"]
