"""An agent as a file of safetensors: its prior, its network, and in the header, as JSON, how it was made."""

import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from brinell.core.errors import RequestError
from brinell.core.streams import Streams
from brinell.rlab.env import PATCH_FEATURES
from brinell.rlab.interface import Action, Observation, Policy
from brinell.rlab.network import PatchNetwork
from brinell.rlab.policies import Greedy, Random
from brinell.rlab.prior import Prior
from brinell.rlab.sampling import gumbel, top

NEVER_ELSE = 1e6
DEFAULT = "default"
"""Name of the policy that is shipped, which serves any distortions."""
FORMAT = 1
"""Version of the file's layout."""


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Actions sampled from a network: options are drawn in proportion to exp(output / scale)."""

    network: PatchNetwork
    choices: tuple[int, ...]

    @torch.no_grad()
    def act(self, observation: Observation, rng: Streams) -> Action:
        """One pass of the network for all slots."""
        heads = self.network(observation.features)
        actions = []
        for branch, (values, allowed, choices) in enumerate(zip(heads.branches, observation.allowed, self.choices, strict=True)):
            if values.shape != allowed.shape:  # trained for other distortions: any of these
                values = torch.zeros_like(allowed, dtype=torch.float32)
                values[:, 0] = NEVER_ELSE
            keys = values / self.network.scale + gumbel(rng.fold(branch).uniform(allowed.shape[1]))
            actions.append(top(keys, allowed, choices))
        return tuple(actions)


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A prior and, where one was trained, a network. Without a network the agent acts by the greedy policy."""

    prior: Prior
    network: PatchNetwork | None = None
    about: dict[str, Any] | None = None
    """How it was made: whatever JSON can hold."""
    random: bool = False
    """Whether it acts at random: the control."""

    def policy(self, choices: tuple[int, ...]) -> Policy:
        """The policy that chooses so many options of each branch."""
        if self.random:
            return Random(choices=choices)
        return Greedy(choices=choices) if self.network is None else Ranked(network=self.network, choices=choices)

    def save(self, path: Path) -> None:
        """Write the file."""
        tensors = {f"prior.{name}": value.contiguous() for name, value in self.prior.state_dict().items()}
        if self.network is not None:
            tensors |= {f"network.{name}": value.contiguous() for name, value in self.network.state_dict().items()}
        form = {name: getattr(self.network, name, 0) for name in ("families", "width", "scale")}
        head = {"format": FORMAT, "features": PATCH_FEATURES, "about": self.about or {}} | form
        # Written with the rights of any file: save_file lets only the owner read.
        path.write_bytes(save(tensors, {"brinell": json.dumps(head)}))


def load(path: Path) -> Agent:
    """The agent that `Agent.save` wrote.

    Raises:
        RequestError: no such file, not one of ours, damaged, or of another version.
    """
    if not path.is_file():
        raise RequestError(
            f"there is no policy {str(path)!r}: name greedy, random, default or a file that `brinell train-agent` wrote"
        )
    try:
        with safe_open(path, "pt") as file:
            head = json.loads((file.metadata() or {})["brinell"])
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}
            version = head["format"], head["features"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        raise RequestError(f"{path} is no policy: name a file that `brinell train-agent` wrote") from None
    if version != (FORMAT, PATCH_FEATURES):
        raise RequestError(f"{path} was written by another version of brinell: train it anew with `brinell train-agent`")
    try:
        return _assembled(head, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RequestError(f"{path} is damaged ({reason}): train it anew with `brinell train-agent`") from None


def _assembled(head: dict[str, Any], tensors: dict[str, Tensor]) -> Agent:
    if not all(bool(torch.isfinite(values).all()) for values in tensors.values()):
        raise ValueError("it holds NaN or infinity")
    prior = Prior(len(tensors["prior.root"]))
    prior.load_state_dict(_under("prior.", tensors))
    network = None
    if head["families"]:
        network = PatchNetwork(head["families"], head["width"], head["scale"])
        network.load_state_dict(_under("network.", tensors))
    return Agent(prior=prior, network=network, about=head["about"])


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def named(name: str) -> Agent:
    """The agent that a setting names: default (shipped), greedy, random, or a file."""
    if name == "greedy":
        return Agent(prior=Prior())
    if name == "random":
        return Agent(prior=Prior(), random=True)
    if name == DEFAULT:
        return load(Path(str(files("brinell.rlab").joinpath("default.safetensors"))))
    return load(Path(name))


def fingerprint(name: str) -> str:
    """A hash of all that the agent is."""
    agent = named(name)
    digest = hashlib.blake2b(name.encode() if agent.random else b"", digest_size=8)
    for module in (agent.prior, agent.network):
        for value in () if module is None else module.state_dict().values():
            digest.update(value.numpy().tobytes())
    return digest.hexdigest()


__all__ = ["Agent", "fingerprint", "load", "named"]
