"""An agent as a file of safetensors: its prior, its network and its surrogates.

The header says, as JSON, how it was made.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from safetensors.torch import save
from torch import Tensor, nn

from brinell.core import stored
from brinell.core.domain import Domain, Kind
from brinell.core.errors import RequestError, one_line
from brinell.core.intervals import Interval
from brinell.manifest import Amount, Content, DomainFacts, Listing, Size, fault
from brinell.rlab.episodes import Policy, Rules
from brinell.rlab.networks import NetworkForm, SmallNetwork, restored
from brinell.rlab.policy import Greedy, Learned, PatchNetwork
from brinell.rlab.prior import Prior
from brinell.rlab.ratios import ratio_text

DEFAULT = "default"
"""Name of the policy that is taken where none is named (`choose_policy`)."""
PRIOR = "prior"
"""Name of the shipped prior, with greedy choices: it serves any distortions."""
PAPERS = "dqn"
"""Name of the papers' own agent: a shipped network, a dueling DQN, that learned by their reward."""
GREEDY = "greedy"
"""Name of the policy without anything learned from other inputs."""
NAMES = (DEFAULT, PRIOR, PAPERS, GREEDY)
"""Policies that need no file."""
MOST_SURROGATES = 8
"""Surrogates of a file at most."""
OWN = "policy"
"""The agent among the players of its validation."""
CURES = {
    "strength": "the distortions in full strength do not fill the budget: name others, or "
    "higher severities",
    "eps": "most failures used up the budget: train at a larger eps",
    "queries": "most failures had budget left: allow more queries",
}
"""What to do where most episodes failed, by its cause."""


class AgentHeader(Content):
    """Header of an agent's file."""

    about: dict[str, Any]
    """How the agent was made."""
    families: Annotated[int, Field(ge=0, le=1000)]
    """Families of distortions that the network knows; 0 without a network."""
    width: Annotated[int, Field(ge=0, le=4096)]
    """Width of the network."""
    scale: Amount
    """The temperature at which it was trained."""
    domain: DomainFacts | None = None
    """The inputs that it learned on; null for those of several kinds of data."""
    class_names: Listing[str] = []
    """The names of their classes, in order."""
    classes: Size = 1
    """Number of classes of the surrogates."""
    surrogates: Annotated[list[NetworkForm], Field(max_length=MOST_SURROGATES)] = []
    """The forms of the surrogates."""
    reward: Literal["margin", "dilution"] = "margin"
    """The reward of the network."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A prior and, where one was trained, a network.

    Without a network the agent acts by the greedy policy.
    """

    prior: Prior
    network: PatchNetwork | None = None
    about: dict[str, Any] | None = None
    """How it was made: whatever JSON can hold."""
    domain: Domain | None = None
    """The inputs that it learned on; None for those of several kinds of data."""
    surrogates: tuple[SmallNetwork, ...] = ()
    """Networks of the task whose gradients the episodes follow; all of one domain and with the
    same classes."""
    reward: Literal["margin", "dilution"] = "margin"
    """The reward of the network: dilution for the papers' own agent, which chooses patches
    without predictions."""

    def to(self, device: torch.device) -> "Agent":
        """The agent with its networks on a device."""
        surrogates = (surrogate.module for surrogate in self.surrogates)
        for module in (self.prior, self.network, *surrogates):
            if module is not None:
                module.to(device)
        return self

    def policy(self, choices: tuple[int, ...]) -> Policy:
        """The policy that chooses so many options of each branch."""
        if self.network is None:
            return Greedy(choices=choices)
        return Learned(network=self.network, choices=choices, temperature=self.network.scale)

    def rules(self, rules: Rules) -> Rules:
        """The rules by which it acts, from those of the episode."""
        if self.reward == "dilution":
            return replace(rules, candidates=1, reward=self.reward)
        return rules

    def save(self, path: Path) -> None:
        """Write the file."""
        modules: dict[str, nn.Module] = {"prior": self.prior}
        if self.network is not None:
            modules["network"] = self.network
        for number, surrogate in enumerate(self.surrogates):
            modules[f"surrogates.{number}"] = surrogate.module
        tensors = {
            f"{prefix}.{name}": value.cpu().contiguous()
            for prefix, module in modules.items()
            for name, value in module.state_dict().items()
        }

        # Without a network these are zeros, by which `load` knows.
        form = {name: getattr(self.network, name, 0) for name in ("families", "width", "scale")}
        head = {"about": self.about or {}} | form
        head |= {
            "domain": self.domain and self.domain.to_json(),
            "reward": self.reward,
            "surrogates": [surrogate.form.model_dump() for surrogate in self.surrogates],
        }
        if self.surrogates:
            first = self.surrogates[0]
            # All surrogates are of one domain and have the same classes.
            head |= {"classes": first.classes, "class_names": list(first.info.class_names)}

        # Written with the rights of any file: save_file lets only the owner read.
        path.write_bytes(save(tensors, {"brinell": json.dumps(head)}))


def load(path: Path) -> Agent:
    """The agent that `Agent.save` wrote."""
    if not path.is_file():
        raise RequestError(
            f"there is no policy {str(path)!r}: name {', '.join(NAMES)} or a file "
            "that `brinell train agent` wrote"
        )
    try:
        header, arrays, _ = stored.read(path)
        head = json.loads(header["brinell"])
    except (OSError, KeyError, TypeError, ValueError, RecursionError):
        raise RequestError(
            f"{path} is no policy: name a file that `brinell train agent` wrote"
        ) from None

    # The header decides before anything is built of the tensors.
    reason = fault(head, AgentHeader)
    if reason:
        raise RequestError(
            f"{path} is damaged ({reason}): train it anew with `brinell train agent`"
        )
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        return _assembled(path, AgentHeader.model_validate(head), tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"{path} is damaged ({one_line(error, 200)}): train it anew with `brinell train agent`"
        ) from None


def _assembled(path: Path, head: AgentHeader, tensors: dict[str, Tensor]) -> Agent:
    """The agent of a header and the tensors of its file."""
    # A file may come from anyone: NaN would turn every choice into one of no meaning.
    if not all(bool(torch.isfinite(values).all()) for values in tensors.values()):
        raise ValueError("it holds NaN or infinity")

    # The sizes follow from the tensors; `load_state_dict` refuses those that do not agree.
    prior = Prior(len(tensors["prior.root"]))
    prior.load_state_dict(_under("prior.", tensors))
    network = None
    if head.families:
        network = PatchNetwork(head.families, head.width, head.scale)
        network.load_state_dict(_under("network.", tensors))

    if head.surrogates and head.domain is None:
        raise ValueError("it does not say of which inputs its surrogates are")
    domain = None if head.domain is None else Domain.from_json(head.domain.model_dump())

    surrogates = []
    for number, form in enumerate(head.surrogates):
        assert domain is not None, "refused above"
        module = restored(domain, head.classes, form, _under(f"surrogates.{number}.", tensors))
        name = f"network {number + 1} of {path}"
        surrogates.append(SmallNetwork(module, form, domain, head.classes, head.class_names, name))

    return Agent(
        prior=prior,
        network=network,
        about=head.about,
        domain=domain,
        surrogates=tuple(surrogates),
        reward=head.reward,
    )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def find_agent(name: str) -> Agent:
    """The agent of one of `NAMES`, or that in a file.

    DEFAULT has none before `choose_policy` chose one for a kind of data.
    """
    if name == GREEDY:
        return Agent(prior=Prior())
    if name in (PRIOR, PAPERS):
        return load(Path(str(files("brinell.rlab").joinpath(f"{name}.safetensors"))))
    return load(Path(name))


class Choice(NamedTuple):
    """A policy and the reason for it."""

    name: str
    reason: str


def choose_policy(name: str, kind: Kind) -> Choice:
    """The policy that a setting names for such data; the default is the best that was measured."""
    # What was measured decides the default, and the reason says where to read it.
    if name != DEFAULT:
        return Choice(name, "it was asked for")
    if kind == "image":
        reason = (
            "on images it needs fewer queries than greedy, also on networks that it "
            "never saw (docs/results/rlab.md)"
        )
        return Choice(PRIOR, reason)
    reason = (
        "nothing that was learned elsewhere needs fewer queries on such data (docs/results/rlab.md)"
    )
    return Choice(GREEDY, reason)


def fingerprint(name: str) -> str:
    """Hash of an agent: its settings and all its weights.

    For the default, the hash of the shipped prior.
    """
    # The weights are hashed and not the file, whose header may be written anew.
    agent = find_agent(PRIOR if name == DEFAULT else name)
    digest = hashlib.blake2b(digest_size=8)
    for module in (agent.prior, agent.network):
        for value in () if module is None else module.state_dict().values():
            digest.update(value.numpy().tobytes())
    for surrogate in agent.surrogates:
        digest.update(surrogate.digest().encode())
    return digest.hexdigest()


def verdict(record: Mapping[str, Any] | None) -> str:
    """The worth of an agent by its validation; empty without one."""
    validation = (record or {}).get("validation")
    if not validation:
        return ""
    played = f"on {validation['inputs']} inputs that it did not learn from"
    failed = validation["inputs"] - validation["fooled"]

    if validation["cause"]:
        return (
            f"{played}, {failed} were not fooled, so the comparison says little; "
            f"{CURES[validation['cause']]}"
        )

    # What a user would have without the training.
    baseline = DEFAULT if DEFAULT in validation["ratios"] else GREEDY
    intervals = {
        name: None if ends[0] is None else Interval(*ends)
        for name, (_, *ends) in validation["ratios"].items()
    }
    # Only an interval beside 1 tells the two apart.
    amount = "not measurably fewer"
    if interval := intervals[baseline]:
        amount = "fewer" if interval.high < 1 else "more" if interval.low > 1 else amount
    result = f"needs {amount} queries than {baseline}"

    means = []
    for name, (value, *_) in validation["ratios"].items():
        text = ratio_text(value, intervals[name])
        means.append(f"{name} {validation['queries'][name]:.0f} ({text})")
    own = f"{validation['queries'][OWN]:.0f} in the mean"
    return f"{played}, the policy {result}: {own}; {', '.join(means)}"
