"""RLAB's decision process as a Gymnasium environment, so that an algorithm of any other library can be trained on it.

    python examples/gymnasium_agent.py

It needs Gymnasium (pip install 'brinell[gym]'). The agent here samples at random among the possible
actions; put your own in its place.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from brinell import plugins
from brinell.core.oracle import Batch
from brinell.core.threat import Threat
from brinell.distances.l2 import L2
from brinell.rlab.env import Placement
from brinell.rlab.gymnasium_env import GymnasiumPatchEnv

Act = Callable[[dict[str, Any], dict[str, Any]], Any]


def make_env(samples: int = 8, eps: float = 2.0) -> GymnasiumPatchEnv:
    """Gaussian noise on patches of 2 x 2 pixels of handwritten digits, against the built-in network, within an L2 distance."""
    dataset = plugins.build("dataset", "digits", {})()
    model = plugins.build("model", "digits-cnn", {})(dataset.domain)
    x, y = dataset.load(range(samples)), torch.as_tensor(dataset.labels()[:samples]).long()
    batch = Batch(ids=torch.arange(samples), x=x, y=y)
    threat = Threat(distance=L2(), eps=torch.full((samples,), eps), domain=dataset.domain)
    attack = plugins.build("attack", "rlab", {"patch": "2", "draws": "4"})
    placement = Placement(grid=attack.grid(dataset.domain), variants=attack.variants(dataset.domain))
    return GymnasiumPatchEnv(model, batch, threat, placement, queries=200)


def rollout(env: GymnasiumPatchEnv, act: Act, sample: int) -> tuple[float, int, bool]:
    """One episode on one sample: the sum of its rewards, its queries, and whether the model was fooled."""
    observation, info = env.reset(seed=0, options={"sample": sample})
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(act(observation, info))
        total, over = total + reward, terminated or truncated
    return total, info["queries"], info["reached"]


if __name__ == "__main__":
    env = make_env()
    env.action_space.seed(0)
    ends = [rollout(env, lambda _, info: env.action_space.sample(mask=info["action_mask"]), sample) for sample in range(8)]
    returns, queries, successes = zip(*ends, strict=True)
    print(
        f"fooled {sum(successes)} of {len(ends)}, {np.mean(queries):.0f} queries and "
        f"a return of {np.mean(returns):.2f} on average"
    )
