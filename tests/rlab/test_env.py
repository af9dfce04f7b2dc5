"""The decision process on linear targets, where what every step does is known."""

import dataclasses
import weakref

import pytest
import torch

from _environments import Random
from _helpers import Recorder, asked_elsewhere, batch_of, run_audit, threat_of
from _placing import (
    ALL,
    GRAY,
    GRID,
    SIGNAL,
    SLOW,
    Minus,
    Plus,
    act,
    linear,
    make_world,
    start_world,
)
from _refusals import refused
from brinell.attacks.rlab import RLAB
from brinell.core.criterion import Probability
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.patches import PatchGrid
from brinell.core.record import Outcome
from brinell.core.streams import Streams
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.distort import CLEAN, DistortedInputs, variants
from brinell.rlab.episodes import IDLE, Placement, Rules
from brinell.rlab.policy import Greedy
from brinell.rlab.refine import CleanUp
from brinell.rlab.search import run_episodes
from brinell.rlab.sensitivity import NOISE, Predictions


def weights(*of_patches):
    """(16,): the same weight on both places of a patch of `GRID`."""
    return torch.tensor(of_patches, dtype=torch.float32).repeat_interleave(2)


def test_the_first_step_asks_about_the_clean_input():
    world = make_world(linear(weights(*range(8)), -30.0), GRAY, rules=ALL)
    observation = world.env.reset(torch.ones(1, dtype=torch.bool))
    assert not any(bool(allowed.any()) for allowed in observation.allowed) and not world.model.calls
    action = act(world.env, add=[0, 1])
    step = world.env.step(action)
    assert torch.equal(world.model.calls[0], GRAY)
    assert (
        (action[0] == -1).all()
        and step.reward.tolist() == [0]
        and step.observation.allowed[0].all()
    )


def test_what_a_step_asks_is_what_was_said():
    """Patch 2 gets 2/16 more; the lead moves by weight * 2 * 2/16, which the reward says in shares
    of the way.
    """
    world = start_world(linear(weights(0, 0, 4, 1, 0, 0, 0, 0), -15.0), GRAY, rules=ALL)
    step = world.env.step(act(world.env, add=[2]))
    queries = world.model.calls[-1]
    assert ((queries - GRAY) * 16).tolist() == [[[0, 0, 0, 0, 2, 2, *[0] * 10]]]
    # The lead was 0.5 * 2 * 5 - 15 = -10, and rose by 1.
    assert step.reward.item() == pytest.approx(0.1 - 0.005, abs=1e-6)
    assert world.env.slots.variant.tolist() == [[CLEAN, CLEAN, 0, *[CLEAN] * 5]]
    learned = 4 / (1 + NOISE)
    assert world.env.posterior.mean[0, 0].tolist() == pytest.approx(
        [0, 0, 0, 0, learned, learned, *[0] * 10], abs=1e-4
    )
    assert world.env.posterior.unit.item() == pytest.approx(1 / (2 / 64) ** 0.5), (
        "of one answer: the clean input taught nothing"
    )


def test_a_step_is_kept_only_if_it_helps():
    world = start_world(linear(weights(-4, 4, 0, 0, 0, 0, 0, 0), -15.0), GRAY, rules=ALL)
    world.env.step(act(world.env, add=[0]))
    assert (world.env.slots.variant == CLEAN).all() and torch.equal(world.env.slots.full, GRAY)
    queries = len(world.model.calls)
    world.env.step(act(world.env, add=[0, 1]))
    assert (world.env.slots.variant == CLEAN).all(), "the two cancel: no progress, nothing kept"
    world.env.step(act(world.env, add=[1]))
    assert world.env.slots.variant[0].tolist() == [CLEAN, 0, *[CLEAN] * 6]
    assert len(world.model.calls) == queries + 2


def test_the_dual_action_adds_and_removes_in_one_query():
    """Patch 0 helps with patch 3 about and harms without: a product of two sums, as no linear model
    has it.
    """

    def logits(x):
        a, b = (x.flatten(1)[:, start] - 0.5 for start in (0, 6))
        z = b * 10 - a * 4 - 2
        return torch.stack([-z, z], 1) / 2

    world = start_world(
        Recorder(logits, SIGNAL), GRAY, rules=ALL, distortions=(Plus(), Minus()), severities=(4,)
    )
    env, row = world.env, torch.tensor([0])
    variant = torch.tensor([[0, *[CLEAN] * 7]])  # something that harms stands already
    x = env.inputs.render(row, variant, GRID)
    env.slots.put(row, variant=variant, x=x, full=x, margin=env.slots.margin - 1.0)
    queries = world.model.queries
    env.step(act(env, add=[3], remove=[0], family=1))
    assert world.model.queries == queries + 1
    assert env.slots.variant[0].tolist() == [CLEAN, CLEAN, CLEAN, 0, *[CLEAN] * 4]


def test_where_nothing_changes_nothing_is_asked():
    """At the upper bound adding changes nothing; the choice is replaced by -1, and the episode
    still grows old.
    """
    world = start_world(
        linear(weights(*[1] * 8), -30.0), torch.ones(1, 1, 16), rules=Rules(p_init=1.0, steps=2)
    )
    queries, action = world.model.queries, act(world.env, add=[0, 3])
    world.env.step(action)
    assert world.model.queries == queries and (action[0] == -1).all()
    step = world.env.step(act(world.env, add=[1]))
    assert step.truncated.tolist() == [True] and not world.env.alive.any()


def test_picks_that_cannot_be_are_struck_out():
    rules = Rules(
        p_init=0.25, steps=10, removals=0.5, candidates=1
    )  # at age 0 two patches, and one removal
    world = start_world(linear(weights(1, 1, 1, 1, 1, 1, 1, 1), -30.0), GRAY, rules=rules)
    assert world.env.choices == (2, 1, 1)
    action = act(world.env, add=[5, 6], remove=[5])
    world.env.step(action)
    assert action[0].tolist() == [[5, 6]] and action[1].tolist() == [[-1]], (
        "what is added is not removed"
    )
    world.env.step(act(world.env))
    late = act(world.env, add=[1, 2])
    world.env.step(late)
    assert late[0].tolist() == [[1, -1]], "by now one patch at a time"


def test_pace_by_hand():
    rules = Rules(steps=1000, p_init=0.5)
    ages = torch.tensor([0, 1, 2, 5, 6, 21, 51, 101, 201, 401, 601, 801])
    assert rules.changes(ages, 64).tolist() == [32, 32, 16, 16, 8, 4, 2, 1, 1, 1, 1, 1]
    assert rules.changes(ages[:1], 1).tolist() == [1], "one patch at least, of a grid of one"


def test_policies_pick_no_more_than_the_pace():
    world = make_world(linear(weights(*range(8)), -30.0), GRAY, rules=ALL)
    observation = world.env.reset(torch.ones(1, dtype=torch.bool))
    assert [values.tolist() for values in observation.most] == [[8], [4], [1]]
    for _ in range(4):
        observation = world.env.step(act(world.env)).observation
    # By now one at a time.
    assert [values.tolist() for values in observation.most] == [[1], [1], [1]]
    action = Random(choices=world.env.choices).act(observation, world.env.streams)
    assert [int((values >= 0).sum()) for values in action] == [1, 0, 1], (
        "nothing stands that could be cleared"
    )


def test_of_the_patches_that_are_compared_the_best_are_changed():
    """What each patch is worth is known after one question about each; a step that changes one
    compares four.
    """
    rules = Rules(p_init=1 / 8, steps=100_000, removals=0.0, candidates=4, temperature=0.0)
    world = start_world(linear(weights(0, -1, 3, 5, 1, 2, 4, 8), -40.0), GRAY, rules=rules)
    assert world.env.choices == (4, 1, 1) and world.env._observation().most[0].tolist() == [4]
    flat = torch.zeros(8, 1, 16)
    for patch in range(8):
        flat[patch, 0, 2 * patch : 2 * patch + 2] = 0.1
        world.env.posterior.update(
            torch.tensor([0]),
            flat[patch, None],
            torch.tensor([0.2 * (0, -1, 3, 5, 1, 2, 4, 8)[patch]]),
        )
    action = act(world.env, add=[5, 3, 6, 1])
    world.env.step(action)
    assert action[0].tolist() == [[-1, 3, -1, -1]], (
        "of patches 5, 3, 6 and 1 the third has the largest weight"
    )
    assert world.env.slots.variant.tolist() == [[CLEAN, CLEAN, CLEAN, 0, *[CLEAN] * 4]]


def test_naming_a_filter_is_obeyed():
    """Four variants in two families; the choice among offers is wide, and yet only what was named
    may stand.
    """
    world = start_world(
        linear(weights(*[1] * 8), -40.0),
        GRAY,
        rules=SLOW,
        distortions=(Plus(), Minus()),
        severities=(1, 2),
    )
    families = {0: (Plus, 1), 1: (Plus, 2), 2: (Minus, 1), 3: (Minus, 2)}
    for number, (kind, severity) in families.items():
        world.env.step(act(world.env, add=[0, 1], family=number + 1))
        change = ((world.model.calls[-1] - world.env._batch.x)[0, 0, :4] * 16).round()
        expected = severity if kind is Plus else -severity
        assert change.tolist() == [expected] * 4, (number, change)
        world.env.slots.put(
            torch.tensor([0]), variant=CLEAN, x=GRAY, full=GRAY, margin=world.env.slots.start
        )


def test_the_most_sensitive_patch_is_found(subtests):
    """One patch of twenty decides alone, in its own sign."""
    for norm in ["l2", "linf"]:
        for kind in [0, 13]:
            with subtests.test(norm=norm, kind=kind):
                domain, grid = Domain(kind="signal", shape=(1, 40)), PatchGrid((1, 40), (2,))
                weight = torch.zeros(40)
                weight[2 * kind : 2 * kind + 2] = torch.tensor([10.0, 10.0])
                model, batch = (
                    linear(weight, -11.0, domain),
                    batch_of(torch.full((4, 1, 40), 0.5), torch.zeros(4, dtype=torch.int64)),
                )
                threat, rules = threat_of(torch.inf, norm, domain, n=4), Rules(steps=200)
                ledger = Ledger(model, batch, threat, access=Access.SCORES)
                placement = Placement(
                    grid=grid, variants=variants([SignedPatch()], domain, (5,), 1), rules=rules
                )
                player = Greedy(choices=placement.choices)
                outcomes = run_episodes(
                    ledger.oracle(),
                    batch,
                    threat,
                    placement,
                    Streams.of(0, batch.ids),
                    player,
                    clean=CleanUp(),
                )
                assert outcomes.success.all() and ledger.fooled.all()
                stands = outcomes.variant != CLEAN
                assert stands[:, kind].all() and int(stands.sum()) == 4, (
                    "clean-up leaves the one patch that matters"
                )
                assert (outcomes.value[:, kind] > 0).all() and (
                    outcomes.value[:, kind] >= outcomes.value.mean(1)
                ).all()


TIDY = CleanUp()
DOMAIN, WIDE = Domain(kind="signal", shape=(2, 32)), PatchGrid((2, 32), (2,))


def crowd(n=90, hidden=False):
    """A model over two channels of 32 places, and n samples that it gets right, some near its
    boundary and some far."""
    draw = torch.Generator().manual_seed(0)
    w = torch.randn(64, generator=draw)
    v = torch.randn(64, generator=draw)

    def logits(x):
        z = (x.flatten(1) - 0.5) @ w + (torch.tanh((x.flatten(1) - 0.5) @ v) if hidden else 0)
        return torch.stack([-z, z], 1)

    x = (0.5 + 0.1 * torch.randn(n, 2, 32, generator=draw)).clamp(0, 1)
    return Recorder(logits, DOMAIN), x, (logits(x)[:, 1] > 0).long()


def episodes_of(
    *,
    slots,
    batch_size=1024,
    queries=None,
    eps=0.6,
    norm="l2",
    n=90,
    policy=Greedy,
    clean=TIDY,
    rows=None,
    **rules,
):
    model, x, y = crowd(n)
    rows = torch.arange(n) if rows is None else rows
    batch = batch_of(x[rows], y[rows])
    threat = threat_of(eps, norm, DOMAIN, n=len(rows))
    ledger = Ledger(
        model, batch, threat, access=Access.SCORES, queries=queries, batch_size=batch_size
    )
    episode_rules, variant_list = (
        Rules(**({"steps": 40} | rules)),
        variants([GaussianNoise()], DOMAIN, (1, 3, 5), 3),
    )
    placement = Placement(grid=WIDE, variants=variant_list, rules=episode_rules, slots=slots)
    rng, player = Streams.of(3, rows).fold("rlab"), policy(choices=placement.choices)
    outcomes = run_episodes(ledger.oracle(), batch, threat, placement, rng, player, clean=clean)
    return model, ledger, outcomes


@pytest.mark.parametrize("room", [1, 500])
def test_what_is_compared_together_is_bounded_and_changes_nothing(room, monkeypatch):
    _, _, reference = episodes_of(slots=12, clean=None, n=24)
    best, sizes = Predictions._best, []

    def record_offers(predictions, *state):
        *_, offers, patches, _ = state
        sizes.append(patches.numel() * offers.shape[1] * WIDE.channels * WIDE.members.shape[1])
        return best(predictions, *state)

    monkeypatch.setattr(Predictions, "_best", record_offers)
    monkeypatch.setattr("brinell.rlab.sensitivity.ROOM", room)
    _, _, parts = episodes_of(slots=12, clean=None, n=24)
    one_patch = 9 * WIDE.channels * WIDE.members.shape[1]
    assert max(sizes) <= max(room, one_patch) and len(sizes) > 24
    assert torch.equal(parts.variant, reference.variant) and torch.equal(
        parts.steps, reference.steps
    )


def test_filtered_inputs_are_held_once(monkeypatch):
    """Those of the episodes are gone when clean-up makes its own, which serve all of it, slot by
    slot."""
    alive, beside, begin = weakref.WeakSet(), [], DistortedInputs.__init__

    def record_cache(cache, *args, **settings):
        beside.append(len(alive))
        begin(cache, *args, **settings)
        alive.add(cache)

    monkeypatch.setattr(DistortedInputs, "__init__", record_cache)
    _, _, outcomes = episodes_of(slots=5, n=24)
    assert int(outcomes.success.sum()) > 10
    assert not any(beside)


def test_batches_stay_full_until_the_queue_is_empty():
    slots = 12
    model, ledger, _ = episodes_of(slots=slots, clean=None, n=90)
    firsts = ledger.costs.forwards > 0
    assert firsts.all()
    clean_queries, full = 0, []
    clean = {tuple(x.flatten().tolist()) for x in crowd(90)[1]}
    for call in model.calls:
        clean_queries += sum(tuple(x.flatten().tolist()) in clean for x in call)
        if clean_queries == 90:  # the last sample has come to its slot
            break
        full.append(len(call) / slots)
    assert len(full) > 20 and sum(full) / len(full) >= 0.9


@pytest.mark.parametrize(
    ("slots", "batch_size", "settings"),
    [(32, 1024, {}), (90, 7, {"refine": 6}), (5, 7, {"norm": "linf", "eps": 0.12})],
    ids=str,
)
def test_results_do_not_depend_on_slots_or_batch_size(slots, batch_size, settings):
    settings = {"eps": 0.4} | settings
    _, first, outcomes = episodes_of(slots=4, n=12, **settings)
    _, second, repeated = episodes_of(slots=slots, batch_size=batch_size, n=12, **settings)
    assert torch.equal(first.costs.forwards, second.costs.forwards) and torch.equal(
        first.best.first_success, second.best.first_success
    )
    assert torch.equal(outcomes.variant, repeated.variant) and torch.equal(
        outcomes.steps, repeated.steps
    )
    assert torch.allclose(first.best.closest, second.best.closest, atol=1e-5)
    assert 0 < int(first.fooled.sum()) < 12 or "norm" in settings, (
        "some samples stand, so that whole episodes are compared"
    )


def test_results_do_not_depend_on_the_company():
    _, full_ledger, outcomes = episodes_of(slots=8, n=24)
    order = torch.arange(23, 3, -2)
    _, part, repeated = episodes_of(slots=3, n=24, rows=order)
    assert torch.equal(part.costs.forwards, full_ledger.costs.forwards[order]) and torch.equal(
        repeated.variant, outcomes.variant[order]
    )


def test_the_budget_is_kept_and_every_forward_counted(subtests):
    for policy, queries, refine in (
        (Greedy, 1, 15),
        (Random, 2, 15),
        (Greedy, 9, 0),
        (Random, 30, 0),
        (Greedy, 30, 15),
    ):
        with subtests.test(policy=policy, queries=queries, refine=refine):
            model, ledger, outcomes = episodes_of(
                slots=7, queries=queries, refine=refine, n=6, policy=policy
            )
            assert (
                int(ledger.costs.forwards.max()) <= queries
                and int(ledger.costs.forwards.min()) >= 1
            )
            assert model.queries == int(ledger.costs.forwards.sum())
            assert torch.equal(outcomes.success, ledger.fooled)


@pytest.mark.parametrize("refine", [0, 4])
def test_without_a_budget_the_rules_are_kept(refine):
    model, ledger, outcomes = episodes_of(slots=7, refine=refine, n=20, steps=10, clean=None)
    assert int(ledger.costs.forwards.max()) <= 1 + 10 + refine and model.queries == int(
        ledger.costs.forwards.sum()
    )
    assert (
        bool((ledger.costs.forwards[~outcomes.success] == 11).all()) and not outcomes.success.all()
    )
    if not refine:
        assert torch.equal(
            ledger.costs.forwards[outcomes.success], outcomes.steps[outcomes.success] + 1
        )


def test_refinement_comes_closer_and_never_loses_the_goal():
    _, refined, outcomes = episodes_of(slots=20, n=20, refine=20, eps=2.0, clean=None)
    _, unrefined, _ = episodes_of(slots=20, n=20, refine=0, eps=2.0, clean=None)
    assert (
        outcomes.success.all() and (refined.best.distance <= unrefined.best.distance + 1e-6).all()
    )
    assert refined.best.distance.mean() < 0.8 * unrefined.best.distance.mean()


def test_a_refinement_without_a_number_uses_the_steps_that_are_left_while_it_comes_closer():
    _, fixed, _ = episodes_of(slots=7, n=10, refine=0, eps=2.0, clean=None, steps=80)
    _, ledger, outcomes = episodes_of(slots=7, n=10, refine=None, eps=2.0, clean=None, steps=80)
    before, queries = (part.costs.forwards[outcomes.success] - 1 for part in (fixed, ledger))
    assert (
        int(queries.max()) <= 80
        and bool((queries >= before + 80 // IDLE).any())
        and bool((queries > before).all())
    )
    assert ledger.best.distance.mean() < 0.6 * fixed.best.distance.mean()


def test_a_refinement_without_a_number_ends_where_it_brings_nothing():
    """Once the boundary is reached, a quarter of the steps passes without a closer success, and the
    other steps are not used."""
    _, ledger, outcomes = episodes_of(slots=6, n=6, refine=None, eps=2.0, clean=None, steps=160)
    queries = ledger.costs.forwards[outcomes.success]
    assert (
        int(queries.max()) <= 161
        and int(queries.min()) > 160 // IDLE
        and float(queries.float().mean()) < 150
    )


def test_every_forward_of_an_audit_is_counted(tmp_path):
    """By a model that counts by itself: records, the audit's own looks and its checks add up to
    what it was shown.
    """
    model, x, y = crowd(10)
    run = run_audit(
        tmp_path / "run",
        model,
        x.numpy(),
        y.numpy(),
        norm="l2",
        eps="0.3,0.6",
        attack=("rlab?steps=20&refine=3&draws=2&severities=3+5&slots=5",),
        batch_size=9,
    )
    records = run.rows
    assert {str(Outcome.BROKEN), str(Outcome.SURVIVED)} <= set(records.outcome.tolist())
    probe_queries = run.manifest["probes"][model.name]["forwards"]
    asked = int(records.forwards.sum()) + int(records.judge_forwards.sum()) + probe_queries
    assert model.queries + asked_elsewhere(run, model.name) == asked


def test_samples_that_are_there_already_end_at_once():
    world = start_world(
        linear(weights(*[1] * 8), 5.0), GRAY, rules=dataclasses.replace(ALL, refine=5)
    )
    assert not world.env.alive.any() and world.env.outcomes.success.tolist() == [True]
    assert (
        (world.env.outcomes.variant == CLEAN).all()
        and world.env.outcomes.steps.tolist() == [0]
        and world.model.queries == 1
    )


def test_an_end_is_terminated_where_the_goal_was_reached_and_truncated_elsewhere():
    """Also at the last step that the rules allow, or that can be paid."""
    for rules, queries in ((Rules(p_init=1.0, steps=1), None), (ALL, 2), (ALL, None)):
        world = start_world(
            linear(weights(10, 0, 0, 0, 0, 0, 0, 0), -11.0), GRAY, rules=rules, queries=queries
        )
        step = world.env.step(act(world.env, add=[0]))
        assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [False])
        assert world.env.outcomes.success.all() and world.ledger.fooled.all()
    world = start_world(
        linear(weights(10, 0, 0, 0, 0, 0, 0, 0), -50.0), GRAY, rules=Rules(p_init=1.0, steps=1)
    )
    step = world.env.step(act(world.env, add=[0]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([False], [True])


def test_thresholds_and_false_positives_go_on_after_the_error():
    """By hand: patch after patch raises the log-odds of class 1 by 2, from -3; p = 0.9 needs +2.2,
    three patches.
    """
    model = linear(weights(*[8] * 8), -67.0)
    for criterion in (Probability(true_below=0.1), Probability(wrong_class=1, wrong_above=0.9)):
        world = start_world(model, GRAY, rules=ALL, criterion=criterion)
        for patch, over in ((0, False), (1, False), (2, True)):
            step = world.env.step(act(world.env, add=[patch]))
            assert step.terminated.tolist() == [over]
            assert world.ledger.fooled.tolist() == [over]


def test_a_criterion_that_the_model_cannot_meet_is_refused_before_any_query():
    model = linear(weights(*[1] * 8), -30.0)
    with pytest.raises(RequestError, check=refused("core.criterion.Probability.check")):
        make_world(model, GRAY, criterion=Probability(wrong_class=2, wrong_above=0.5))
    assert not model.calls


def test_rules_that_cannot_be_are_refused(subtests):
    for settings in [
        {"steps": 0},
        {"offers": 0},
        {"refine": -1},
        {"p_init": 0.0},
        {"p_init": 1.5},
        {"removals": 2.0},
    ]:
        with subtests.test(settings=settings):
            with pytest.raises(ValueError, match=next(iter(settings))):
                Rules(**settings)


def test_a_grid_that_overlaps_keeps_budget_and_bounds():
    grid = PatchGrid((1, 16), (4,), (2,))
    world = make_world(
        linear(torch.ones(16), -12.0),
        GRAY,
        grid=grid,
        eps=0.4,
        distortions=(GaussianNoise(),),
        draws=4,
        rules=ALL,
    )
    env, observation = world.env, world.env.reset(torch.ones(1, dtype=torch.bool))
    policy = Greedy(choices=env.choices)
    while env.alive.any():
        observation = env.step(policy.act(observation, env.streams)).observation
        assert (
            observation.features["patch"].isfinite().all()
            and observation.features["whole"].isfinite().all()
        )
    size = max(float((call - GRAY).norm()) for call in world.model.calls)
    assert size <= 0.4 * (1 + 1e-5) and len(GRID) == 8


def test_the_refinement_adds_to_the_cost_only_where_a_number_is_given(subtests):
    for settings, queries in [({}, 0), ({"steps": 40}, 0), ({"refine": 7}, 7), ({"refine": 0}, 0)]:
        with subtests.test(settings=settings, queries=queries):
            rlab = RLAB(**settings)
            assert (
                rlab._rules().refine == rlab.refine
                and RLAB(clean_up=False, **settings).cost(10)[0] == 1 + rlab.steps + queries
            )
