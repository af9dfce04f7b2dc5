"""What was learned grows stale as its surroundings change, and is asked about anew."""

import pytest
import torch

from _placing import Minus, Plus, act, linear, world
from brinell.rlab.cache import CLEAN
from brinell.rlab.rules import Rules
from brinell.rlab.stale import EVERY, Stale

ROW = torch.tensor([0])


def only(*patches):
    return torch.tensor([[patch in patches for patch in range(4)]])


def aged(forget=0.5):
    """Patch 0 was asked about, then 1 and 2 changed, in steps that were kept."""
    stale = Stale(1, 4, forget, torch.device("cpu"))
    stale.clear(ROW)
    stale.learn(ROW, torch.tensor([[0, 4]]), only())
    stale.learn(ROW, torch.tensor([[1, 2]]), only(1, 2))
    return stale


def test_ages_by_hand():
    """Two of four patches changed: an age of a half elsewhere, 0 where the question was."""
    stale = aged()
    assert stale.age.tolist() == [[0.5, 0, 0, 0.5]]
    assert stale.visits(ROW, torch.tensor([[4.0, 4, 4, 4]])).tolist() == [[2, 4, 4, 2]], "at the age of `forget` it counts half"
    stale.learn(ROW, torch.tensor([[3, 4]]), only(3))
    assert stale.age.tolist() == [[0.75, 0.25, 0.25, 0]]
    stale.learn(ROW, torch.tensor([[0, 4]]), only())
    assert stale.age.tolist() == [[0, 0.25, 0.25, 0]], "asked about again it is new"
    stale.clear(ROW)
    assert not stale.age.any()


def test_without_forgetting_a_visit_counts_for_ever():
    assert aged(forget=0.0).visits(ROW, torch.ones(1, 4)).tolist() == [[1] * 4]


def test_the_most_doubtful_stale_entry_is_asked_about_alone():
    stale, add, remove = aged(forget=0.2), torch.tensor([[1, 2]]), torch.tensor([[3]])
    for _ in range(EVERY):
        stale.learn(ROW, torch.tensor([[1, 4]]), only(3))
    # Ages: 3 for patch 0, 0 for patch 1, 2.5 for patch 2, which doubt makes the worst; patch 3 was never asked about.
    assert stale.instead(ROW, add, remove, torch.zeros(1, 4))[0].tolist() == [[1, 2]], "nothing promises anything"
    new = stale.instead(ROW, add, remove, torch.tensor([[1.0, 9, 2, 9]]))
    assert [one.tolist() for one in new] == [[[2, -1]], [[-1]]]
    again = stale.instead(ROW, add, remove, torch.tensor([[1.0, 9, 2, 9]]))
    assert [one.tolist() for one in again] == [[[1, 2]], [[3]]], "not twice in a row"


def begun(forget):
    model = linear(torch.ones(16), -60.0)
    rules = Rules(p_init=1.0, steps=100_000, forget=forget)
    made = world(model, torch.full((1, 1, 16), 0.5), rules=rules, distortions=(Plus(), Minus()))
    made.env.reset(torch.ones(1, dtype=torch.bool))
    made.env.step(act(made.env))
    made.env.step(act(made.env, add=[0], family=1))
    return made


@pytest.mark.parametrize("forget", [0.0, 0.5])
def test_an_entry_grows_uncertain_as_others_change_and_one_query_refreshes_it(forget):
    """Patch 0, asked about once, is asked about alone when it is time, whatever the action says; the query counts."""
    made = begun(forget)
    env = made.env
    assert env._stale.age[0, 0] == 0
    for patch in range(1, 7):
        env.step(act(env, add=[patch], family=1))
        assert env._stale.age[0, 0] == pytest.approx(patch / 8), "each of these helps and is kept"
    assert (env.assignment.variant[0, :7] == 0).all()
    for _ in range(EVERY - 7):
        env.step(act(env, add=[7], family=2))
    asked, action = made.model.seen, act(env, add=[7], family=2)
    env.step(action)
    assert action[0][0].tolist() == [-1 if forget else 7] + [-1] * 7, "what was not carried out is not learned from"
    changed = ((made.model.calls[-1] - env._x).view(8, 2) != 0).any(1).nonzero()[:, 0].tolist()
    assert made.model.seen == asked + 1
    assert changed == ([0] if forget else [7])
    assert (env._stale.age[0, 0] == 0) == bool(forget)
    assert env.assignment.variant[0, 7] == CLEAN


@pytest.mark.parametrize("forget", [-1.0, float("nan")])
def test_less_than_nothing_is_refused(forget):
    with pytest.raises(ValueError, match="forget at least 0"):
        Rules(forget=forget)
