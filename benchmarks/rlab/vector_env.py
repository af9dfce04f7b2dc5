"""Any Gymnasium vector environment with a choice of actions, as slots in lockstep: one branch, one choice."""

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from brinell.core.errors import RequestError
from brinell.rlab.interface import Action, Observation, Step


class GymEnvironment:
    """A vector environment of Box observations and Discrete actions, its observations the feature `observation`."""

    choices = (1,)

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        """Wrap `env`, made with `AutoresetMode.DISABLED`: only then are the last states of episodes seen.

        Raises:
            RequestError: another kind of spaces, or an environment that resets by itself.
        """
        observation, action = env.single_observation_space, env.single_action_space
        if not isinstance(observation, Box) or not isinstance(action, Discrete):
            raise RequestError(
                f"{observation} and {action} are not supported; the environment needs Box observations, Discrete actions"
            )
        if env.metadata.get("autoreset_mode") != AutoresetMode.DISABLED:
            raise RequestError("the environment resets episodes by itself; make it with autoreset_mode=AutoresetMode.DISABLED")
        self._env, self._seed, self._first = env, seed, int(action.start)
        self._allowed = (torch.ones(env.num_envs, int(action.n), dtype=torch.bool),)
        self.alive = torch.zeros(env.num_envs, dtype=torch.bool)
        self._begun = False

    def reset(self, mask: Tensor) -> Observation:
        """New episodes; the seed is used at the first reset, which begins all of them."""
        if self._begun:
            observation, _ = self._env.reset(options={"reset_mask": mask.numpy()})
        else:
            observation, _ = self._env.reset(seed=self._seed)
            self._begun = True
        self.alive = self.alive | mask
        return self._observed(observation)

    def step(self, action: Action) -> Step:
        """One step of all environments."""
        choice = action[0][:, 0]
        observation, reward, terminated, truncated, _ = self._env.step((choice + self._first if self._first else choice).numpy())
        over, cut = torch.from_numpy(np.array(terminated)), torch.from_numpy(np.array(truncated))
        self.alive = ~(over | cut)
        return Step(self._observed(observation), torch.from_numpy(np.asarray(reward, dtype=np.float32)), over, cut)

    def _observed(self, observation: Any) -> Observation:
        return Observation({"observation": torch.from_numpy(np.asarray(observation, dtype=np.float32))}, self._allowed)
