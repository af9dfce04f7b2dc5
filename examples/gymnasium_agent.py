"""RLAB's decision process as a Gymnasium environment, so that an algorithm of any other library can
be trained on it.

    python examples/gymnasium_agent.py

It needs Gymnasium (pip install 'brinell[gym]'). The agent here samples at random among the possible
actions; put your own in its place.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, MultiDiscrete

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.distances.l2 import L2
from brinell.rlab.episodes import ADD, DISTORTION, PATCH_FEATURES, REMOVE, WHOLE_FEATURES, Placement
from brinell.rlab.search import PatchSearch

Act = Callable[[dict[str, Any], dict[str, Any]], Any]


class GymnasiumPatchEnv(gymnasium.Env[dict[str, Array], Array]):
    """Place distortions on one sample after another.

    Observation: `patch` (patches, PATCH_FEATURES) and `whole` (WHOLE_FEATURES,), float32, every
    value finite.

    Action: MultiDiscrete: patches to add to, then patches to clear, then the choice of distortion
    and severity. Among patches the number `len(grid)` means none; where a patch is named twice the
    first counts. What is not possible is ignored. The last number is 0 for any distortion, else 1 +
    the position of a pair of distortion and severity in `variants`; where there is one pair alone
    it is always 0.

    `info["action_mask"]` has for each number an int8 array of what is possible, as
    `action_space.sample` reads it. `info["queries"]` counts the forwards of the episode;
    `info["reached"]` says whether the criterion was met.

    Samples of the batch that are misclassified are passed over at a reset. The arguments from
    `batch` to `placement` are those of `PatchSearch`, but that all patches that an action names are
    changed, whatever its rules say of candidates, and there is one slot; `queries` are the forwards
    that an episode may cost, None for no limit.

    Raises:
        RequestError: no sample, a criterion that the model cannot meet, or distortions that do not
            fit.
        ContractError: a distortion that breaks its contract.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        threat: Threat,
        placement: Placement,
        *,
        queries: int | None = None,
    ) -> None:
        self.metadata: dict[str, Any] = {"render_modes": []}
        if not len(batch):
            raise RequestError("there is no sample to place anything on: name data that holds some")
        if queries is not None and queries < 2:
            raise RequestError(
                f"queries is {queries}: the clean input takes one, and a step one more"
            )
        self._model, self._batch, self._threat, self._queries, self._grid = (
            model,
            batch,
            threat,
            queries,
            placement.grid,
        )
        self._placement = replace(placement, rules=replace(placement.rules, candidates=1), slots=1)
        patches, (adds, removals, _) = len(self._grid), self._placement.choices
        self._split = (adds, adds + removals)
        self._ledger, self._search = self._begin(0, 0)
        self._observation = self._search.reset(torch.zeros_like(self._search.alive))
        families = self._observation.allowed[DISTORTION].shape[1]
        shapes = {"patch": (patches, PATCH_FEATURES), "whole": (WHOLE_FEATURES,)}
        boxes: Any = Dict(
            {name: Box(-np.inf, np.inf, shape, np.float32) for name, shape in shapes.items()}
        )
        self.observation_space = boxes
        self.action_space = MultiDiscrete([patches + 1] * (adds + removals) + [families])

    def _begin(self, row: int, seed: int) -> tuple[Ledger, PatchSearch]:
        """Begin an episode on one sample."""
        rows = torch.tensor([row], device=self._batch.x.device)
        sample, threat = self._batch.select(rows), self._threat.select(rows)
        sample = Batch(ids=torch.zeros_like(rows), x=sample.x, y=sample.y)
        ledger = Ledger(self._model, sample, threat, access=Access.SCORES, queries=self._queries)
        rng = Streams.of(seed, rows).fold("placement")
        return ledger, PatchSearch(
            ledger.oracle(), ledger.batch, ledger.threat, self._placement, rng
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """A sample and its streams, both drawn from `np_random`. The clean input is asked about.

        `options` may name a row of the batch as `sample`. It must be there, and the model must get
        some sample right.
        """
        super().reset(seed=seed)
        rows = self.np_random.permutation(len(self._batch)).tolist()
        if options and "sample" in options:
            rows = [int(options["sample"])]
            if not 0 <= rows[0] < len(self._batch):
                raise RequestError(
                    f"sample is {rows[0]}, and the batch has rows 0 to {len(self._batch) - 1}"
                )
        for row in rows:
            self._ledger, self._search = self._begin(row, int(self.np_random.integers(2**31)))
            self._observation = self._search.reset(~self._search.alive)
            no_op = np.array([len(self._grid)] * self._split[1] + [0])
            self._observation = self._search.step(self._parts(no_op)).observation
            if bool(self._search.alive[0]):
                return self._arrays(), self._info()
        raise RequestError(
            "the model gets none of the samples right, or they meet the "
            "criterion already: there is no episode"
        )

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """One dual action, and one query where it changes anything."""
        step = self._search.step(self._parts(action))
        self._observation = step.observation
        ends = bool(step.terminated[0]), bool(step.truncated[0])
        return self._arrays(), float(step.reward[0]), *ends, self._info()

    def _parts(self, action: Array) -> tuple[torch.Tensor, ...]:
        """The chosen options of each branch, without repetitions and without those that are not
        possible.
        """
        device = self._batch.x.device
        choices = torch.as_tensor(np.asarray(action), dtype=torch.int64, device=device)[None]
        first, second = self._split
        add, remove, _ = self._observation.allowed
        return (
            _distinct(choices[:, :first], add),
            _distinct(choices[:, first:second], remove),
            choices[:, second:],
        )

    def _arrays(self) -> dict[str, Array]:
        return {
            name: values[0].float().cpu().numpy()
            for name, values in self._observation.features.items()
        }

    def _info(self) -> dict[str, Any]:
        """Action masks of the observation."""
        allowed = [mask[0].cpu().numpy() for mask in self._observation.allowed]
        patch = [np.append(allowed[branch], True).astype(np.int8) for branch in (ADD, REMOVE)]
        family = allowed[DISTORTION].astype(np.int8)
        first, second = self._split
        return {
            "action_mask": (*[patch[0]] * first, *[patch[1]] * (second - first), family),
            "queries": int(self._ledger.costs.forwards[0]),
            "reached": bool(self._search.outcomes.success[0]),
        }


def _distinct(choices: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """(1, k): `choices` with -1 for patches that are not `allowed` (1, patches) or come twice;
    their number means none.
    """
    padded = torch.cat([allowed, torch.zeros_like(allowed[:, :1])], 1)
    earlier = (choices[:, :, None] == choices[:, None]).tril(-1).any(2)
    return torch.where(padded.gather(1, choices) & ~earlier, choices, -1)


def make_env(samples: int = 8, eps: float = 2.0) -> GymnasiumPatchEnv:
    """Gaussian noise on patches of 2 x 2 pixels of handwritten digits, against the built-in
    network, within an L2 distance.
    """
    dataset = plugins.build("dataset", "digits", {})()
    model = plugins.build("model", "digits-cnn", {})(dataset.domain)
    x, y = dataset.load(range(samples)), torch.as_tensor(dataset.labels()[:samples]).long()
    batch = Batch(ids=torch.arange(samples), x=x, y=y)
    threat = Threat(distance=L2(), eps=torch.full((samples,), eps), domain=dataset.domain)
    attack = plugins.build("attack", "rlab", {"patch": "2", "draws": "4"})
    placement = Placement(
        grid=attack.grid(dataset.domain), variants=attack.variants(dataset.domain)
    )
    return GymnasiumPatchEnv(model, batch, threat, placement, queries=200)


def rollout(env: GymnasiumPatchEnv, act: Act, sample: int) -> tuple[float, int, bool]:
    """One episode on one sample: the sum of its rewards, its queries, and whether the model was
    fooled.
    """
    observation, info = env.reset(seed=0, options={"sample": sample})
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(act(observation, info))
        total, over = total + reward, terminated or truncated
    return total, info["queries"], info["reached"]


if __name__ == "__main__":
    env = make_env()
    env.action_space.seed(0)
    ends = [
        rollout(env, lambda _, info: env.action_space.sample(mask=info["action_mask"]), sample)
        for sample in range(8)
    ]
    returns, queries, successes = zip(*ends, strict=True)
    print(
        f"fooled {sum(successes)} of {len(ends)}, {np.mean(queries):.0f} queries and "
        f"a return of {np.mean(returns):.2f} on average"
    )
