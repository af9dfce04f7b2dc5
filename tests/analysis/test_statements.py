"""Statements: each kind has a sentence and rows in the simulation, what is said of a run is the
same object everywhere, and the faults that pages had do not come back."""

import numpy as np
import pytest

from _lazy import library
from benchmarks.statement_rates import SIMULATIONS, class_results
from brinell.analysis.compare import paired
from brinell.analysis.curve import RIGHT, WRONG
from brinell.analysis.judgements import ENOUGH, change, extreme_classes, lower_end
from brinell.analysis.robust_accuracy import rate
from brinell.analysis.standing import leading, standing
from brinell.analysis.statements import KINDS
from brinell.reports.statements import SENTENCES, class_sentence, lowest_mark, sentence

stats = library("scipy.stats")


def classes(rng, count, sizes):
    """Classes with random rates, which tie often."""
    counts = rng.choice(sizes, count).tolist()
    successes = [int(n * rng.choice([0, 0.1, 0.5, 1])) for n in counts]
    return class_results(successes, counts)


def test_every_kind_has_a_sentence_and_rows_in_the_simulation():
    simulated = {kind for kinds in SIMULATIONS.values() for kind in kinds}
    assert set(KINDS) == set(SENTENCES) == simulated


def test_all_weakest_classes_are_named_with_their_own_counts_and_few_ones_as_few():
    """Ties are all named, counts are of each, and a class of few samples is named as such."""
    ties = small = 0
    for seed in range(60):
        members = classes(np.random.default_rng(seed), 8, [2, 4, 12, 14])
        statements = extreme_classes(members, 0, "8/255")
        enough = [c for c in members if c.n >= ENOUGH]
        few = {c.label for c in members if c.n < ENOUGH}
        assert {entry.name for entry in statements[0].sparse} == few
        if len(enough) < 2 or statements[0].kind == "alike":
            continue
        lowest = min(c.robust[0].value for c in enough)
        weakest = {c.label: c.n for c in enough if c.robust[0].value == lowest}
        assert {entry.name: entry.n for entry in statements[0].subjects} == weakest
        text = class_sentence(statements)
        if len(set(weakest.values())) > 1:
            assert f"of {min(weakest.values())} to {max(weakest.values())} samples each" in text
            ties += 1
        if few:
            assert f"Fewer than {ENOUGH} samples" in text
            small += 1
        assert lowest_mark(statements).text.startswith(next(iter(weakest)))
    assert ties > 3 and small > 20


@pytest.mark.parametrize(("count", "n"), [(2, 10), (10, 20), (100, 10)])
def test_the_interval_beside_the_weakest_class_holds_the_truth(count, n):
    """Chosen from many equal classes, whose single intervals are too high or too low."""
    rng = np.random.default_rng(count)
    hits = []
    for _ in range(120):
        members = [
            c.model_copy(update={"n": n, "robust": [rate(int(k), n, eps=0.1)]})
            for c, k in zip(classes(rng, count, [n]), rng.binomial(n, 0.4, count), strict=True)
        ]
        for entry in extreme_classes(members, 0, "0.1"):
            if entry.kind != "alike":
                hits.append(entry.subjects[0].low <= 0.4 <= entry.subjects[0].high)
    assert np.mean(hits) > 0.92


def test_who_is_alone_leads_nobody():
    states = np.full((1, 20, 2), RIGHT, np.int8)
    (leads,) = leading(standing(["net"], states[:, :, 0], states, ["1/255", "2/255"]))
    assert not leads.supported and "the only model" in sentence(leads)


def test_an_interval_of_a_change_never_excludes_what_the_test_does_not():
    rng = np.random.default_rng(0)
    supported = 0
    for _ in range(200):
        n = int(rng.integers(5, 60))
        states = np.where(rng.random((2, n)) < rng.uniform(0.2, 0.9, (2, 1)), RIGHT, WRONG)
        family = int(rng.integers(1, 9))
        pair = paired(states[0], states[1], 0.1)
        entry = change(pair, "accuracy", family=family, p=min(1.0, family * pair.p))
        assert entry.low <= entry.difference <= entry.high
        assert entry.supported or entry.low <= 0 <= entry.high
        assert not (entry.supported and entry.low < 0 < entry.high)
        assert ("may be chance" in sentence(entry)) == (
            entry.kind != "unchanged" and not entry.supported
        )
        supported += entry.supported
    assert 10 < supported < 150


def test_a_gate_passes_a_rate_below_its_threshold_seldom():
    """The probability is at most 2.5 % for every number of samples and every true rate."""
    for n in (5, 10, 32, 100):
        ends = [lower_end(rate(k, n)) for k in range(n + 1)]
        for truth in np.linspace(0.02, 0.98, 25):
            passing = [k for k, end in enumerate(ends) if end > truth]
            assert stats.binom.sf(min(passing, default=n + 1) - 1, n, truth) <= 0.025 + 1e-9
