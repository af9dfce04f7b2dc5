"""The way of an agent: what it kept, as the model that it asked wrote it down."""

import numpy as np
import pytest
import torch

from _helpers import Recorder
from brinell import plugins
from brinell.core.attack import open_questions
from brinell.core.criterion import MISCLASSIFIED
from brinell.core.domain import Domain
from brinell.core.model import Access
from brinell.core.oracle import Batch
from brinell.core.record import WAY
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.way import LENGTH, Ways, thinned

PIXELS = Domain(kind="image", shape=(1, 6, 6))


def network(seed):
    weight = torch.randn(4, 36, generator=torch.Generator().manual_seed(seed))
    return lambda x: 3 * (x - 0.5).flatten(1) @ weight.T


def run(seed, n=1, **settings):
    """The outcomes of RLAB on `n` inputs, the model that was asked, and the inputs."""
    logits = network(seed)
    model = Recorder(logits, PIXELS, classes=4)
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.uniform(0.2, 0.8, (n, 1, 6, 6)), dtype=torch.float32)
    y = logits(x).argmax(1)
    ledger = open_questions(
        model,
        Batch.of(x, y),
        Threat(
            distance=plugins.build("distance", "l2", {}),
            eps=torch.full((n,), 5.0),
            domain=PIXELS,
            criterion=MISCLASSIFIED,
        ),
        access=Access.SCORES,
    )
    names = {"distortions": "gaussian-noise+dead-pixel", "patch": 2}
    attack = plugins.build("attack", "rlab", names | settings)
    outcomes = attack.run_episodes(
        ledger.oracle(), ledger.batch, ledger.threat, Streams.of(seed, ledger.batch.ids)
    )
    return outcomes, model, x, y, ledger


def rows_of(way):
    return way[~way[:, 0].isnan()]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_what_the_model_was_asked(seed):
    """Each row is of one of the questions, by its number: the model wrote down its input, which has
    the stated probability and distance, and as many patches that differ from the clean input.
    """
    outcomes, model, x, y, ledger = run(seed, steps=60, refine=10)
    inputs = torch.cat(model.calls)
    assert len(inputs) == int(ledger.costs.forwards[0])
    way = rows_of(outcomes.way[0])
    assert way[0].tolist()[2:] == [0, 0, 0, 0] and way[0, 0] == 1
    assert (way[1:, 0] > way[:-1, 0]).all() and len(way) > 2
    probabilities = network(seed)(inputs).softmax(1)[:, y[0]]
    for query, probability, size, patches, added, removed in way.tolist():
        changed = (inputs[int(query) - 1] - x[0]).abs() > 0
        assert probability == pytest.approx(float(probabilities[int(query) - 1]), rel=1e-4)
        assert size == pytest.approx(float((inputs[int(query) - 1] - x[0]).norm()), abs=1e-5)
        by_patch = changed[0].reshape(3, 2, 3, 2).any(3).any(1)
        assert int(by_patch.sum()) <= patches <= 9
        assert patches >= 0 and 0 <= added and 0 <= removed
    if outcomes.success[0]:
        assert way[-1, 3] == int((outcomes.variant[0] >= 0).sum()), "what clean-up left"


def test_samples_of_a_batch_do_not_share_a_way():
    """Sample after sample the same as alone, but for rounding."""
    outcomes, *_ = run(7, n=5, steps=40, refine=0)
    for way, success in zip(outcomes.way, outcomes.success, strict=True):
        rows = rows_of(way)
        assert len(rows) and (rows[1:, 0] > rows[:-1, 0]).all()
        assert not success or len(rows) > 1


def test_no_query_is_asked_for_it(monkeypatch):
    """The questions are the same where nothing is noted."""
    *_, noted = run(3, n=3, steps=40, refine=5)
    monkeypatch.setattr(Ways, "note", lambda self, *columns, **settings: None)
    outcomes, *_, silent = run(3, n=3, steps=40, refine=5)
    assert noted.costs.forwards.tolist() == silent.costs.forwards.tolist()
    assert outcomes.way.isnan().all()


@pytest.mark.parametrize("length", [0, 1, 2, LENGTH, LENGTH + 1, 100, 3000])
def test_thinning_keeps_ends_and_totals(length):
    rng = torch.Generator().manual_seed(length)
    steps = torch.rand(length, len(WAY), generator=rng)
    steps[:, 0] = torch.arange(length)
    steps[:, 4:] = torch.randint(0, 5, (length, 2), generator=rng).float()
    success = length // 2
    rows = thinned(steps, success)
    assert length < 2 or success in rows[:, 0], "the first success stays"
    assert len(rows) <= min(length, LENGTH) and (length > LENGTH or len(rows) == length)
    if length:
        assert rows[0].equal(steps[0]) and rows[-1, :4].equal(steps[-1, :4])
        assert rows[:, 4:].sum(0).equal(steps[:, 4:].sum(0))
