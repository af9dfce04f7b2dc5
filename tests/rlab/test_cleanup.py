"""After a success: what is not needed goes, the scale falls, and the input stays adversarial."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from _helpers import batch_of, threat_of
from _placing import GRID, SIGNAL, Plus, linear
from brinell.core.criterion import MISCLASSIFIED, Probability
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.streams import Streams
from brinell.rlab.distort import CLEAN, DistortedInputs, variants
from brinell.rlab.episodes import no_outcomes
from brinell.rlab.refine import CleanUp, clean_up
from brinell.rlab.way import Ways

GRAY = 0.5


def case(
    weight,
    bias,
    standing,
    *,
    eps=torch.inf,
    value=None,
    queries=None,
    severity=4,
    settings=None,
    criterion=MISCLASSIFIED,
):
    """Clean up samples on which severity 4 (a quarter more) stands on the patches of `standing` (n,
    patches) bool."""
    standing = torch.as_tensor(standing).bool()
    n = len(standing)
    weight = torch.as_tensor(weight, dtype=torch.float32).repeat_interleave(2)
    model = linear(weight, bias)
    batch = batch_of(torch.full((n, 1, 16), GRAY), torch.zeros(n, dtype=torch.int64))
    threat = replace(threat_of(eps, "l2", SIGNAL, n=n), criterion=criterion)
    ledger = Ledger(model, batch, threat, access=Access.SCORES, queries=queries)
    variant_list, rng = variants([Plus()], SIGNAL, (severity,), 1), Streams.of(0, batch.ids)
    value = (
        torch.zeros(n, len(GRID))
        if value is None
        else torch.as_tensor(value, dtype=torch.float32).expand(n, -1).clone()
    )
    settings = settings or CleanUp(eliminations=40, halvings=0)
    successes = no_outcomes(threat.eps, GRID, 1)._replace(
        variant=torch.where(standing, 0, CLEAN), value=value
    )
    variant, strength, _ = clean_up(
        ledger.oracle(),
        batch,
        threat,
        rng,
        successes,
        grid=GRID,
        variants=variant_list,
        settings=settings,
        ways=Ways(batch.ids),
    )
    inputs = DistortedInputs(n, SIGNAL, variant_list, batch.x.device)
    inputs.put(torch.arange(n), batch.x, rng)
    x = inputs.render(torch.arange(n), variant, GRID)
    return SimpleNamespace(variant=variant, x=x), strength, ledger, model


def test_exactly_what_is_needed_stays(subtests):
    """One patch of eight does all; the order in which they are tried is right, wrong or unknown."""
    for needed in [0, 3, 7]:
        for value in [None, list(range(8)), list(range(7, -1, -1))]:
            with subtests.test(needed=needed, value=value):
                weight = torch.zeros(8)
                weight[needed] = 10.0
                assignment, _, ledger, model = case(weight, -14.0, torch.ones(2, 8), value=value)
                assert (assignment.variant != CLEAN).nonzero()[:, 1].tolist() == [needed] * 2
                assert model.queries == int(ledger.costs.forwards.sum())


def test_no_patch_that_is_left_can_go():
    """Every patch brings 1 and four are needed: four are left, whichever."""
    assignment, *_ = case([2.0] * 8, -16 / 2 * 2 - 3.5, torch.ones(3, 8))
    assert (assignment.variant != CLEAN).sum(1).tolist() == [4, 4, 4]


def test_what_harms_goes():
    assignment, *_ = case(
        [10, -1, -1, -1, -1, -1, -1, -1], -3.4, torch.ones(1, 8), value=[9, 0, 0, 0, 0, 0, 0, 0]
    )
    assert (assignment.variant != CLEAN).nonzero()[:, 1].tolist() == [0]


def test_no_query_is_spent_on_what_is_already_known(subtests):
    """All but one patch can go: no input is asked about twice, and the search ends by itself."""
    for count in [2, 3, 4, 8]:
        with subtests.test(count=count):
            standing = torch.arange(8) < count
            weight = torch.zeros(8)
            weight[0] = 10.0
            assignment, _, _, model = case(weight, -14.0, standing[None], value=range(8, 0, -1))
            queries = [tuple(call.flatten().tolist()) for call in model.calls]
            assert (assignment.variant != CLEAN).nonzero()[:, 1].tolist() == [0]
            assert len(set(queries)) == len(queries) <= 2 * count
            assert (GRAY,) * 16 not in queries, "that nothing at all is not enough is known"


def test_a_single_patch_costs_nothing():
    assignment, _, _, model = case([10.0] * 8, -80.1, torch.arange(8)[None] == 2)
    assert model.queries == 0 and int((assignment.variant != CLEAN).sum()) == 1


def test_the_scale_falls_to_what_is_needed():
    """By hand: the lead is -2 + 5 s at strength s, so 0.4 suffices; steps of at most 0.2, then
    halves.
    """
    weight = [10.0, *[0] * 7]
    _, strength, ledger, model = case(
        weight, -12.0, torch.arange(8)[None] == 0, settings=CleanUp(eliminations=0, halvings=12)
    )
    assert model.queries == 12 and 0.4 < strength.item() < 0.42
    assert ledger.best.distance.item() == pytest.approx(0.25 * 2**0.5 * strength.item(), rel=1e-4)


def test_the_budget_that_it_was_fitted_to_is_kept():
    """Eight patches of a quarter are 1.0 long; fitted to 0.5 they are halved, and so is whatever is
    tried.
    """
    _, _, ledger, model = case([4.0] * 8, -33.0, torch.ones(1, 8), eps=0.5, settings=CleanUp())
    assert max((call - GRAY).norm().item() for call in model.calls) <= 0.5 * (1 + 1e-5)
    assert ledger.fooled.all()


def test_the_success_is_never_lost(subtests):
    """On random linear models the cleaned input, made anew from what is left, is still adversarial
    within fewer values."""
    for queries in [1, 2, 5, None]:
        for seed in range(4):
            with subtests.test(queries=queries, seed=seed):
                draw = torch.Generator().manual_seed(seed)
                weight = torch.randn(8, generator=draw) * 4 + 1
                standing = torch.rand(5, 8, generator=draw) < 0.8
                most = (0.5 * standing * weight).sum(1)
                standing = standing[most > 0.2]
                bias = -weight.sum().item() - 0.5 * most[most > 0.2].min().item()
                assignment, strength, ledger, model = case(
                    weight, bias, standing, queries=queries, settings=CleanUp()
                )
                remaining = assignment.variant != CLEAN
                assert (remaining <= standing).all() and remaining.any(1).all()
                assert ((strength > 0) & (strength <= 1)).all()
                x = GRAY + strength[:, None, None] * (assignment.x - GRAY)
                assert (model.function(x).argmax(1) == 1).all()
                assert queries is None or int(ledger.costs.forwards.max()) <= queries


def test_another_criterion_than_the_error():
    """p = 0.9 of class 1 needs log-odds of 2.2: two patches of 1.5 each, though one makes the
    error.
    """
    criterion = Probability(wrong_class=1, wrong_above=0.9)
    weight = [3.0] * 8
    assignment, *_ = case(weight, -24.0, torch.ones(1, 8), criterion=criterion)
    assert int((assignment.variant != CLEAN).sum()) == 2
    single, *_ = case(weight, -24.0, torch.ones(1, 8))
    assert int((single.variant != CLEAN).sum()) == 1
