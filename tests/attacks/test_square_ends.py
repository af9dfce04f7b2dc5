"""When the Square Attack gives a sample up: after idle proposals, and after a whole round of single
values.
"""

import math

import pytest
import torch

from _helpers import Recorder, batch_of, run_attack, threat_of
from _square import IMAGE, proposals, record_queries, unbeaten
from brinell.attacks.square import Square
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.losses import margin
from brinell.core.streams import Streams


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_patience_gives_up_only_after_as_many_idle_proposals(norm):
    """The same search, ended where the first run of idle proposals is long enough; each sample by
    itself.
    """
    x, calls = record_queries(IMAGE, norm, 0.1, steps=120)
    acceptances = torch.stack([accepted for _, _, accepted in proposals(calls)])
    patience, ends = 6, []
    for accepted in acceptances.T.tolist():
        idle = [0]
        for flag in accepted:
            idle.append(0 if flag else idle[-1] + 1)
        ends.append(next((step for step, run in enumerate(idle) if run >= patience), 120))
    assert min(ends) < 120 and len(set(ends)) > 1
    model = Recorder(unbeaten(), IMAGE)
    ledger = run_attack(Square(steps=120, patience=patience), model, x, [0] * 3, 0.1, norm, seed=0)
    assert ledger.costs.forwards.tolist() == [1 + end for end in ends]


def test_a_search_ends_where_a_round_of_single_values_was_no_better(subtests):
    """On a linear model single changes lead to the largest margin of all; then each was asked about
    once more, and no other.
    """
    for domain in [
        Domain(kind="image", shape=(1, 5, 5)),
        Domain(kind="signal", shape=(1, 30)),
        Domain(kind="vector", shape=(70,)),
    ]:
        with subtests.test(domain=domain):
            values, eps, steps = math.prod(domain.shape), 0.1, 3000
            x = Streams.of(9, torch.arange(3)).uniform(*domain.shape) * 0.4 + 0.3
            model = Recorder(unbeaten(), domain)
            batch, threat = batch_of(x, [0] * 3), threat_of(eps, "linf", domain, n=3)
            ledger = Ledger(model, batch, threat)
            Square(steps=steps)(ledger.oracle(), batch, threat, Streams.of(0, batch.ids))
            weight = unbeaten()(torch.eye(values).reshape(-1, *domain.shape))[:, 1]
            best = x + eps * weight.sign().reshape(domain.shape)
            torch.testing.assert_close(
                ledger.best.margin, margin(unbeaten()(best), torch.zeros(3, dtype=torch.long))
            )
            assert (ledger.costs.forwards < steps / 2).all()
            last = max(
                range(3), key=lambda sample: (int(ledger.costs.forwards[sample]), sample)
            )  # it is asked about until the end
            tail = torch.cat([call[-1:] for call in model.calls[-values:]])
            changed = (tail - best[last]).abs().flatten(1) > eps
            assert (changed.sum(1) == 1).all() and (changed.sum(0) == 1).all()


def test_a_model_that_answers_alike_is_asked_for_one_round_of_single_values():
    """Of 70 values windows are single from 600 of 3000 steps on, where 0.8 / 64 of them is less
    than one: 70 more questions."""
    domain = Domain(kind="vector", shape=(70,))
    model = Recorder(lambda x: torch.tensor([[1.0, 0.0]]).repeat(len(x), 1), domain)
    ledger = run_attack(Square(steps=3000), model, torch.full((2, 70), 0.5), [0, 0], 0.1)
    assert ledger.costs.forwards.tolist() == [1 + 600 + 70] * 2
