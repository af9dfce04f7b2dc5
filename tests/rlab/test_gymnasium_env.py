"""The example: RLAB's search as a Gymnasium environment."""

from pathlib import Path

import numpy as np
import pytest
import torch

from _helpers import batch_of, threat_of
from _placing import GRID, SIGNAL, Minus, Plus, linear
from brinell.core.errors import RequestError
from brinell.core.user_files import import_file
from brinell.rlab.distort import variants
from brinell.rlab.episodes import Placement, Rules

checker = pytest.importorskip(
    "gymnasium.utils.env_checker", reason="Gymnasium is an extra: pip install 'brinell[gym]'"
)

example = import_file(Path(__file__).parents[2] / "examples" / "gymnasium_agent.py")
RULES = Rules(p_init=0.5, steps=30)
NONE = len(GRID)
PLUS_AND_MINUS = (Plus(), Minus())


def env_of(
    weight=None,
    bias=-40.0,
    *,
    n=3,
    rules=RULES,
    distortions=PLUS_AND_MINUS,
    severities=(2,),
    queries=None,
    y=0,
):
    weight = torch.arange(8.0) + 1 if weight is None else torch.as_tensor(weight)
    model = linear(weight.repeat_interleave(2), bias)
    x = 0.5 + torch.arange(n).reshape(n, 1, 1) * torch.linspace(0, 0.01, 16)
    batch = batch_of(x, torch.full((n,), y))
    variant_list = variants(distortions, SIGNAL, severities, 1)
    threat = threat_of(torch.inf, "l2", SIGNAL, n=n)
    placement = Placement(grid=GRID, variants=variant_list, rules=rules)
    return example.GymnasiumPatchEnv(model, batch, threat, placement, queries=queries), model


@pytest.mark.filterwarnings("ignore:.*Box observation space (min|max)imum value is -?infinity")
def test_gymnasium_s_checker_passes(subtests):
    for settings in [{}, {"distortions": (Plus(),)}, {"rules": Rules(steps=5, removals=0.0)}]:
        with subtests.test(settings=settings):
            env, _ = env_of(**settings)
            checker.check_env(env, skip_render_check=True)
            env.close()


def test_spaces_by_hand():
    env, _ = env_of()
    assert env.action_space.nvec.tolist() == [9, 9, 9, 9, 9, 9, 3], (
        "four to add to, two to clear, any or one of two distortions"
    )
    assert env.observation_space["patch"].shape[0] == 8


def test_seeds_decide_sample_streams_and_course():
    def course(env, seed):
        observation, info = env.reset(seed=seed)
        env.action_space.seed(0)
        observations = [observation["patch"]]
        for _ in range(6):
            observation, *step_result = env.step(env.action_space.sample(mask=info["action_mask"]))
            info = step_result[-1]
            observations += [observation["patch"], observation["whole"]]
        return np.concatenate([values.ravel() for values in observations])

    (first, _), (second, _) = env_of(), env_of()
    assert np.array_equal(course(first, 7), course(second, 7)) and np.array_equal(
        course(first, 7), course(second, 7)
    )
    assert not np.array_equal(course(first, 7), course(first, 8))


def test_an_episode_ends_where_the_goal_is_reached_and_counts_its_queries():
    env, model = env_of(
        [20.0, *[0] * 7],
        -21.0,
        n=1,
        distortions=(Plus(),),
        severities=(4,),
        rules=Rules(p_init=0.5, steps=100_000),
    )
    _, info = env.reset(seed=0)
    assert info["queries"] == 1 and not info["reached"]
    _, reward, terminated, truncated, info = env.step(
        np.array([NONE, 5, NONE, NONE, NONE, NONE, 0])
    )
    assert not terminated and not truncated and info["queries"] == 2 and reward < 0
    _, reward, terminated, _, info = env.step(np.array([0, 0, NONE, 0, NONE, NONE, 0]))
    assert terminated and info["reached"] and info["queries"] == 3 and reward > 0.9
    assert model.queries == 3
    assert env._search.slots.gain[0, 0].item() == pytest.approx(10.0), "no choice counts twice"
    assert not any(mask[:-1].any() for mask in info["action_mask"][:-1]), (
        "nothing is possible any more"
    )


def test_the_budget_truncates():
    env, model = env_of(bias=-90.0, queries=3)
    _, info = env.reset(seed=0)
    ends = []
    while not ends or not any(ends[-1]):
        _, _, *end, info = env.step(env.action_space.sample(mask=info["action_mask"]))
        ends.append(end)
    assert ends[-1] == [False, True] and info["queries"] == 3 == model.queries


def test_a_row_can_be_named_and_wrong_ones_are_passed_over():
    env, model = env_of()
    env.reset(seed=0, options={"sample": 2})
    assert torch.equal(model.calls[-1], env._batch.x[2:])
    with pytest.raises(RequestError, match="sample is 3, and the batch has rows 0 to 2"):
        env.reset(options={"sample": 3})
    wrong, _ = env_of(y=1)
    with pytest.raises(RequestError, match="none of the samples right"):
        wrong.reset(seed=0)


def test_what_cannot_be_is_refused():
    with pytest.raises(RequestError, match="there is no sample"):
        env_of(n=0)
    with pytest.raises(RequestError, match="queries is 1"):
        env_of(queries=1)


@pytest.mark.slow
def test_the_example_plays_its_episodes():
    env = example.make_env(samples=2)
    env.action_space.seed(0)
    _, queries, success = example.rollout(
        env, lambda _, info: env.action_space.sample(mask=info["action_mask"]), 0
    )
    assert queries <= 200 and (success or queries == 200)
