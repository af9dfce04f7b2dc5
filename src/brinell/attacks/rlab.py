"""RLAB: an agent that sees class probabilities alone distorts the most sensitive patches.

Sarkar et al. 2023, arXiv 2310.18626, and 2024, arXiv 2403.18985. The decision process, with its
deviations from the papers, is `rlab.search`; `rlab.refine` follows an episode that succeeded.

In the distance `patch` the agent works within a square: squares at random places are shown once
each with random content, as the papers probe patches, and the best of them get an episode each,
with a part of the steps, on patches of the square and without a limit of its content.
"""

import math
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, cast

import torch
from torch import Tensor

from brinell.attacks._shared import EveryKind, select_rows
from brinell.attacks._squares import best_rows, square_problem
from brinell.core import squares
from brinell.core.contracts import (
    Access,
    Batch,
    Distortion,
    Domain,
    Extras,
    Kind,
    Model,
    Oracle,
    Remark,
    Streams,
    Threat,
)
from brinell.core.errors import RequestError
from brinell.core.patches import AXES, PatchGrid, sides
from brinell.core.settings import Names
from brinell.distances.l2 import L2
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.distortions.signed_patch import SignedPatch
from brinell.rlab.agent import NAMES, Agent, choose_policy, find_agent, fingerprint
from brinell.rlab.distort import (
    DRAW_STREAM,
    SEVERITIES,
    Variant,
    extremes,
    pair_options,
    strength_remarks,
    strengths,
    variants,
    vet,
)
from brinell.rlab.episodes import USUAL, EpisodeOutcomes, Placement, Rules, rare_success
from brinell.rlab.memory import FEWEST, Memory, pays, run_waves
from brinell.rlab.refine import CleanUp
from brinell.rlab.search import AIMS, run_episodes


@dataclass(frozen=True, kw_only=True)
class RLAB(EveryKind):
    """Distortions on the most sensitive patches, by an agent that adds and removes in each step."""

    distortions: tuple[Distortion, ...] = field(default=(), metadata={"plugin": "distortion"})
    """Distortions to place on patches: names joined by +; `file.py:Class` for your
    implementation. None named: signed-patch on images with a side above 64 pixels, where it comes
    closest, and gaussian-noise on other data."""
    policy: Annotated[str, Names("file")] = "default"
    """Policy that places the distortions: default (prior for images, greedy for other data),
    prior (shipped), greedy, dqn (the papers' agent, shipped), or a file that `brinell train
    agent` wrote."""
    patch: int | str = 0
    """Side of a patch in values, or one for each axis (4x16x16: frames, height, width); 0: 64, 16 x
    16 or 8**3 patches in all."""
    stride: int | str = 0
    """From one patch to the next, like `patch`; below it patches overlap. 0: the side of a
    patch."""
    severities: tuple[int, ...] = ()
    """Severities that the attack uses, out of 1 to 5. None named: all, and stronger ones where a
    distortion of the whole input would not fill the budget twice."""
    draws: int = 16
    """Versions of each random distortion to choose from."""
    steps: int = 1000
    """Queries until a sample is given up, after the one for the clean input."""
    refine: int | None = None
    """Queries after the first success that look for one at a smaller distance; none: what is
    left of `steps`, as long as a quarter of `steps` brings one."""
    clean_up: bool = True
    """Clear patches that are not needed after the refinement."""
    removals: float = 0.5
    """Patches that a step may clear, as a share of those that it changes; 0 only adds."""
    slots: int = 128
    """Samples that advance together."""
    learned: bool = False
    """Offer each patch also content that follows the expected gradient value by value: that of the
    surrogates, as far as the answers bear them out."""
    memory: bool | float = False
    """Fit a small network to the answers about all samples, which are attacked as one group, and
    follow it like a surrogate, with `learned` content. The share of the queries that its fits may
    show to it; true is 0.5. It is off below 500 samples, where it saves none."""

    access = Access.SCORES
    distances = frozenset({"l2", "linf", "patch"})
    family = "budgeted"

    def __post_init__(self) -> None:
        object.__setattr__(self, "severities", tuple(self.severities))  # JSON makes a list of them
        for name in ("patch", "stride"):
            value = getattr(self, name)
            if isinstance(value, str):  # "2" and 2 are one setting, in records too
                pair = sides(value, 1)
                object.__setattr__(self, name, pair[0] if len(pair) == 1 else value)

        self._check_patches()
        if self.draws < 1 or any(severity not in SEVERITIES for severity in self.severities):
            raise ValueError(
                f"severities are {self.severities} and draws {self.draws}: "
                "severities are 1 to 5, draws at least 1"
            )
        for distortion in self.distortions:
            if not (hasattr(distortion, "domains") and hasattr(distortion, "draws")):
                name = type(distortion).__name__
                raise ValueError(f"{name} is no distortion: it must have domains and draws")
        self._rules()  # refuses steps, refinements and removals that no episode can have
        if not 0 <= self.share <= 1:
            raise ValueError(f"memory is {self.memory}: a share of the queries, at most 1, or true")

    def _check_patches(self) -> None:
        """Refuse sides, strides and slots that no run can have."""
        has_one_side = isinstance(self.patch, int)
        if (has_one_side and int(self.patch) < 0) or self.slots < 1:
            raise ValueError(
                f"patch is {self.patch} and slots {self.slots}: patch must be 0 "
                "or more, slots 1 or more"
            )

        # Sides for each axis are judged with the input, by `grid`.
        if not has_one_side:
            return
        # Strides for each axis need a patch.
        fits = bool(self.patch)
        if isinstance(self.stride, int):
            fits = 0 <= self.stride <= int(self.patch)
        if not fits:
            raise ValueError(
                f"stride is {self.stride}: between 1 and `patch`, which is "
                f"{self.patch}, or 0 for patches side by side"
            )

    def _rules(self) -> Rules:
        """The rules of an episode by the settings."""
        return Rules(steps=self.steps, refine=self.refine, removals=self.removals)

    @property
    def share(self) -> float:
        """The share of `memory`, 0 for none."""
        return SHARE * self.memory if isinstance(self.memory, bool) else self.memory

    @property
    def learns_across(self) -> bool:
        """True with a memory."""
        return self.share > 0

    def agent(self, kind: Kind) -> Agent:
        """The agent for such data; refuses a policy that does not exist."""
        return find_agent(choose_policy(self.policy, kind).name)

    def grid(self, domain: Domain) -> PatchGrid:
        """The patches over such inputs; refuses one larger than the input."""
        if not self.patch:
            return PatchGrid.usual(domain)
        patch = sides(self.patch, AXES[domain.kind])
        stride = sides(self.stride, len(patch)) if self.stride else None
        return PatchGrid(domain.shape, patch, stride)

    def check(self, domain: Domain) -> None:
        """Try the distortions on a synthetic input, and check that the policy fits them.

        Raises:
            RequestError: a patch larger than the input, distortions for other data, an unknown
                policy, or one trained for other choices.
            ContractError: a distortion that breaks its contract.
        """
        self.grid(domain)  # refuses a patch larger than the input
        variants = self.variants(domain)
        stream = Streams.of(0, torch.zeros(1, dtype=torch.int64))
        low, high = domain.bounds()
        x = domain.clamp(low + (high - low) * stream.uniform(*domain.shape))
        vet(variants, x, stream.fold(DRAW_STREAM), domain=domain)

        agent = self.agent(domain.kind)
        self._check_data(agent, domain)
        network = agent.network
        options = pair_options(variants)
        # A network has an output for each pair of distortion and severity.
        if network is not None and network.families not in (1, options):
            raise RequestError(
                f"policy {self.policy} chooses among {network.families - 1} pairs "
                "of distortion and severity, and there are "
                f"{max(1, options - 1)}: name the distortions and severities that "
                "it was trained with"
            )

    def _check_data(self, agent: Agent, domain: Domain) -> None:
        """Refuse a policy of another kind of data, and one whose surrogates take other inputs."""
        learned = agent.domain and agent.domain.free
        if learned is None:
            return

        # Priors and networks learn how one kind of data looks.
        if learned.kind != domain.kind:
            raise RequestError(
                f"policy {self.policy} learned on {learned.kind} data, and this "
                f"is {domain.kind}: {RETRAIN}"
            )

        # Surrogates are networks for one shape and one range of values.
        if agent.surrogates and learned.shape != domain.shape:
            shapes = ["x".join(map(str, shape)) for shape in (learned.shape, domain.shape)]
            raise RequestError(
                f"policy {self.policy} has surrogates for inputs of {shapes[0]}, "
                f"and these have {shapes[1]}: {RETRAIN}"
            )
        if agent.surrogates and (learned.low, learned.high) != (domain.low, domain.high):
            bounds = [f"{space.low} to {space.high}" for space in (learned, domain)]
            raise RequestError(
                f"policy {self.policy} has surrogates for values {bounds[0]}, and "
                f"these are {bounds[1]}: {RETRAIN}"
            )

    def try_on(self, x: Tensor, threat: Threat) -> list[str]:
        """Try the distortions on real inputs (n, *shape), and on dark, bright and grey ones.

        Returns:
            Lines about the distortions that are made stronger to fit the budget, and those that
                cannot fill it.

        Raises:
            ContractError: a distortion that breaks its contract.
        """
        domain = threat.domain
        rng = Streams.of(0, torch.arange(len(x), device=x.device))
        variants = self.variants(domain)
        ends = extremes(domain)
        # Dark, bright and grey inputs find divisions by what an input holds.
        vet(variants, ends, Streams.of(0, torch.arange(len(ends))).fold(DRAW_STREAM), domain=domain)
        vet(variants, x, rng.fold(DRAW_STREAM), domain=domain)

        names = [*public_names(self.placed(domain)).values()]
        factors, fills = strengths(variants, x, threat, rng)
        return strength_remarks(names, factors, fills)

    def digest(self) -> str:
        """Digest of the policy file's content, which its name does not determine."""
        return fingerprint(self.policy)

    def cost(self, classes: int) -> tuple[int, int]:
        """The clean input, the steps, the refinement, and what clean-up may spend."""
        # Each elimination and each halving is a query.
        clean = CleanUp().eliminations + CleanUp().halvings if self.clean_up else 0
        return 1 + self.steps + (self.refine or 0) + clean, 0

    def surrogates(self) -> tuple[Model, ...]:
        """The surrogates that the policy brings; those that need no file bring none."""
        return () if self.policy in NAMES else find_agent(self.policy).surrogates

    def surrogate_questions(self) -> int:
        """About the clean input, then at most once for each query, and before the first ones."""
        queries = 1 + self.steps + (self.refine or 0)
        # After each restart the surrogates lead to the first query.
        return queries + AIMS * (1 + self.steps // USUAL.patience)

    def variants(self, domain: Domain) -> tuple[Variant, ...]:
        """Variants for inputs of this domain; raises an error if a distortion does not
        support it.
        """
        return variants(self.placed(domain), domain, self.severities, self.draws)

    def placed(self, domain: Domain) -> tuple[Distortion, ...]:
        """The distortions for inputs of this domain: those that are named, else the default."""
        if self.distortions:
            return self.distortions
        is_photograph = domain.kind == "image" and max(domain.shape[1:]) > PHOTOGRAPH
        return PATCHES if is_photograph else NOISE

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> Extras:
        """Run an episode on each sample, `slots` at a time.

        The extras, for each sample:
        - `patches` (patches,) int16: the variant on each patch of the closest input that was found,
          -1 for nothing, else its number among the legend's `variants` (distortion, severity,
          draw). -1 everywhere where none was found.
        - `map` (patches, distortions) float32: the sensitivity map (`rlab.sensitivity`); NaN where
          the sample had no episode.
        - `way` (rows, 6) float32: the inputs that the agent kept, one after another, with the
          columns `core.record.WAY`; NaN behind the last one.

        In `patch` there are none: the patches of each sample lie in another square.
        """
        if threat.distance.name == "patch":
            return self._attack_squares(oracle, batch, threat, rng)
        results, memory = self._attack(oracle, batch, threat, rng)
        grid = self.grid(threat.domain)
        variants = self.variants(threat.domain)
        names = public_names(self.placed(threat.domain))
        # Learned content has no severity of its own, and the number behind the variants.
        learned = [LEARNED] * (self.learned or self.learns_across)

        legend = {
            "kind": "patches",
            "grid": {
                "shape": list(grid.shape),
                "patch": list(grid.patch),
                "stride": list(grid.steps),
            },
            "distortions": [*names.values(), *learned],
            "variants": [
                *(
                    [names[id(variant.distortion)], variant.severity, variant.draw]
                    for variant in variants
                ),
                *([name, 1, 0] for name in learned),
            ],
        }

        arrays = {"patches": results.closest, "map": results.map, "way": results.way}
        remarks = [*self._remarks(threat.domain.kind), *rare_success(results, threat.eps)]
        if self.learns_across:
            remarks.append(Remark("memory", memory.cost.text() if memory else NO_MEMORY))
        return Extras(remarks=remarks, arrays=arrays, legend=legend)

    def _remarks(self, kind: Kind) -> list[Remark]:
        """The remark on the policy: its name, and the reason for it."""
        name, reason = choose_policy(self.policy, kind)
        count = len(find_agent(name).surrogates)
        guided = f", with {count} surrogate{'s' * (count > 1)} from its file" if count else ""
        return [Remark("policy", f"placed by the policy {name}{guided}: {reason}")]

    def run_episodes(
        self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams
    ) -> EpisodeOutcomes:
        """The outcomes of an episode on each sample."""
        return self._attack(oracle, batch, threat, rng)[0]

    def _attack(
        self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams
    ) -> tuple[EpisodeOutcomes, Memory | None]:
        """The outcomes of an episode on each sample, and the memory where there is one."""
        agent = self.agent(threat.domain.kind).to(batch.x.device)
        # An oracle that follows surrogates gives their gradients too.
        oracle = oracle.follow(agent.surrogates) if agent.surrogates else oracle
        # With few samples or classes a memory costs more queries than it saves.
        remembers = self.learns_across and pays(len(batch), threat.domain, oracle.classes)
        placement = self._placement(agent, threat.domain, self._rules(), self.learned or remembers)

        clean = CleanUp() if self.clean_up else None
        policy = agent.policy(placement.choices)
        if not remembers:
            outcomes = run_episodes(oracle, batch, threat, placement, rng, policy, clean=clean)
            return outcomes, None
        answers = oracle.scores(batch.ids, batch.x)
        memory = Memory(batch.x, answers, threat.domain, self.share, rng)
        outcomes = run_waves(memory, oracle, batch, threat, placement, rng, policy, clean=clean)
        return outcomes, memory

    def _placement(self, agent: Agent, domain: Domain, rules: Rules, learned: bool) -> Placement:
        """What episodes of an agent on inputs of this domain place."""
        return Placement(
            grid=self.grid(domain),
            variants=self.variants(domain),
            rules=agent.rules(rules),
            prior=agent.prior,
            slots=self.slots,
            learned=learned,
        )

    def _attack_squares(self, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams) -> Extras:
        """Attack within squares of side eps, the samples of one side together."""
        agent = self.agent(threat.domain.kind).to(batch.x.device)
        oracle = oracle.follow(agent.surrogates) if agent.surrogates else oracle
        for side, rows in squares.by_side(threat.eps):
            inputs, limits, streams = select_rows(rows, batch, threat, rng)
            self._search_squares(agent, oracle, inputs, limits, streams, side)
        unused = [Remark("memory", "a memory is not used within patches")] * self.learns_across
        return Extras(remarks=[*self._remarks(threat.domain.kind), *unused])

    def _search_squares(
        self, agent: Agent, oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, side: int
    ) -> None:
        """Probe squares of a side, then run an episode in each of the best of every sample."""
        answers = oracle.scores(batch.ids, batch.x)
        count = math.prod(max(1, length - side + 1) for length in threat.domain.grid)
        probes = min(PROBES, count, max(1, self.steps // 4))
        numbers = rng.fold("squares").uniform(count).topk(probes, dim=1).indices
        inner, content, limits = square_problem(oracle, batch, threat, numbers, side, L2())

        # The probes are random corners of the bounds.
        low, high = limits.domain.bounds(content.x)
        corners = rng.fold("content").bits(probes, *limits.domain.shape) > 0
        x = torch.where(corners.flatten(0, 1), high, low)
        top = best_rows(inner, x, probes, EPISODES)
        steps = (self.steps - probes) // top.shape[1]
        if not steps:
            return

        # A little below the largest distance, so that distortions grow as if it were a limit.
        limits = replace(limits, eps=NEARLY * limits.eps)
        rules = Rules(steps=steps, removals=self.removals)
        placement = self._placement(agent, limits.domain, rules, self.learned)
        policy = agent.policy(placement.choices)
        for rank, rows in enumerate(top.unbind(1)):
            streams = rng.fold("episode").fold(rank)
            part, budget = select_rows(rows, content, limits)
            run_episodes(inner, part, budget, placement, streams, policy, answers=answers)


def _public_name(plugin: type[Any]) -> str:
    """The file of a distortion that comes with Brinell, and else its class in plain words."""
    if plugin.__module__.startswith("brinell."):
        return plugin.__module__.rpartition(".")[2].replace("_", "-")
    return "-".join(re.findall("[A-Z]+[a-z0-9]*|[a-z0-9]+", plugin.__name__)).lower()


def public_names(distortions: tuple[Distortion, ...]) -> dict[int, str]:
    """Public name of each distortion by its identity.

    Distortions that share a name have their settings beside it.
    """
    plain_names = [_public_name(type(distortion)) for distortion in distortions]
    names = {}
    for distortion, plain_name in zip(distortions, plain_names, strict=True):
        settings = asdict(cast(Any, distortion)).items()
        values = ", ".join(f"{key}={value}" for key, value in settings)
        is_shared = plain_names.count(plain_name) > 1
        names[id(distortion)] = f"{plain_name}({values})" if is_shared and values else plain_name
    return names


NOISE = (GaussianNoise(),)
PATCHES = (SignedPatch(),)
"""The distortions where none is named, on small inputs and on photographs."""
PHOTOGRAPH = 64
"""Pixels of the longest side above which an image counts as a photograph."""
PROBES = 64
"""Squares that are shown once each in the distance patch; a quarter of the steps at most."""
EPISODES = 4
"""Squares that get an episode, with an equal part of the steps that are left."""
NEARLY = 0.99
"""Share of the largest distance within a square that an episode may use."""
SHARE = 0.5
"""The share of a memory where none is named."""
NO_MEMORY = (
    f"there is no memory: it needs {FEWEST} samples to save queries, and inputs that a small network "
    "can take"
)
"""The remark where a memory was asked for and there is none."""
LEARNED = "learned"
"""The content that follows gradients of surrogates, among the distortions."""
RETRAIN = "train one on this data by brinell train agent, or leave out policy="
"""The remedy for a policy of other data."""
