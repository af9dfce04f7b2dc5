"""The state of episodes: rules and rewards, the slots, what a policy sees, and the outcomes.

An episode is the search on one sample. n slots run one each, in lockstep; a slot whose episode has
ended takes the next sample. An action chooses options from each branch without replacement, in
order: patches to add to, patches to clear, and a distortion at a severity. That is the dual action
of RLAB (arXiv 2403.18985).

The reward of a step is by how much the margin rose, as a share of the clean input's margin, less
the price of a query: the kept steps of an episode that succeeds add up to 1, so that no sample
outweighs the others and no agent learns to put off the success. The papers' own reward, dilution of
the true class's probability per L2, is that of the policy `dqn`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from brinell.core import losses, norms
from brinell.core.contracts import Remark
from brinell.core.criterion import Criterion, Probability, Targeted
from brinell.core.intervals import wilson
from brinell.core.patches import PatchGrid
from brinell.core.settings import Checked, Count, Fraction, NotNegative, Portion, Whole
from brinell.core.streams import Streams
from brinell.rlab.distort import CLEAN, FULL, Variant
from brinell.rlab.prior import FEATURES, Prior

# What a policy sees and answers

Action = tuple[Tensor, ...]
"""One (n, choices) int64 for each branch: positions among the options, -1 where nothing is
chosen. No position twice in a row."""
ADD, REMOVE, DISTORTION = 0, 1, 2
"""The branches of an action."""
DYNAMIC = ("energy", "standing", "contribution", "removal", "share", "visits", "gain")
"""The features of a patch besides its look."""
ENERGY = FEATURES + DYNAMIC.index("energy")
REMOVAL = FEATURES + DYNAMIC.index("removal")
"""The positions of two of them among all features of a patch."""
PATCH_FEATURES = FEATURES + len(DYNAMIC)
WHOLE_FEATURES = 6
"""Numbers for each patch, and for each input."""


class Observation(NamedTuple):
    """Observation of n slots, the input of a policy.

    Rows of slots without an episode hold anything finite.
    """

    features: dict[str, Tensor]
    """Each (n, ...): what the network reads."""
    allowed: tuple[Tensor, ...]
    """One (n, options) bool for each branch. If a row allows fewer options than are required,
    all allowed ones are chosen."""
    most: tuple[Tensor, ...] = ()
    """One (n,) int64 for each branch: how many choices count this time; none for all that the
    environment names.

    Choices beyond that number are not made, so no credit goes to what the environment would ignore.
    """


class StepResult(NamedTuple):
    """Result of a step. Slots that had no episode report zeros."""

    observation: Observation
    """The state after the step, of ended slots too."""
    reward: Tensor
    """(n,) float32."""
    terminated: Tensor
    """(n,) bool: the episode ended in a state that has no future."""
    truncated: Tensor
    """(n,) bool: the episode was cut off, and its last state keeps its value, unless it also
    terminated there."""


class Policy(Protocol):
    """Chooses the actions."""

    def act(self, observation: Observation, rng: Streams) -> Action:
        """One option of each branch for each of n slots; `rng` has a fresh stream for each slot."""


def mapped(change: Callable[..., Any], first: Any, *tables: Any) -> Any:
    """`change` of the tensors at the same places in observations and actions.

    The answers take the form of `first`.
    """
    if isinstance(first, Tensor):
        return change(first, *tables)
    if isinstance(first, dict):
        return {
            name: mapped(change, part, *(table[name] for table in tables))
            for name, part in first.items()
        }

    parts = [mapped(change, *parts) for parts in zip(first, *tables, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)


# Rules and rewards

QUERY = 0.005
"""Cost of a query, as a share of the clean input's margin."""
QUOTIENT = 0.05
"""The largest gain in dilution over L2, and so the price of its queries: about what a good step
earns by the margin."""
LINE = 0.9
"""Probability above which the dilution is a straight line."""
SHORTEST = 0.02
"""Least change in L2 that a dilution is divided by, as a share of the budget."""
PACE = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of an episode after which half as many patches are changed at once: Square's schedule
(Andriushchenko et al. 2020)."""
PATIENT = 200
"""Steps from which an episode without a budget begins near the clean input: with 40 it would not reach
what is far."""
FIRST = 8
"""Answers of an episode without a budget by which the length of the gradient is known."""
START = 1 / 400
"""Distance of the inputs that they are about, as a share of the largest one within the bounds: an
L2 of 1 for a photograph."""
WIDENING = 3
"""The power of time by which the bounds open afterwards: slowly, as long as little is known."""
SHRINK = 0.95
"""From the distance of one success to the one within which the next is looked for."""
IDLE = 4
"""The part of the steps in which the refinement must come closer, or it ends."""
CLOSER = 1 / 64
"""The least share of the patches that a step changes after the first success."""


@dataclass(frozen=True, kw_only=True)
class Rules(Checked):
    """How an episode goes."""

    steps: Count = 1000
    """Queries after the first one until an episode is given up."""
    p_init: Fraction = 0.5
    """Share of the patches that the first steps change."""
    removals: Portion = 0.5
    """How many patches a step may clear, as a share of those it changes; 0 only adds."""
    temperature: NotNegative = 0.3
    """How far chance moves the choice of a variant, in deviations of what is not known about it."""
    candidates: Count = 4
    """Patches that are compared for each one that a step changes: those of the best predictions
    are changed."""
    offers: Count = 32
    """Variants that are compared for a patch in one step."""
    patience: Whole = 50
    """Queries without a gain after which an episode is stuck; 0 for never."""
    refine: Whole | None = 0
    """Queries after the first success that look for one at a smaller distance; None for the
    steps that are left, as long as a quarter of all steps brings one."""
    reward: Literal["margin", "dilution"] = "margin"
    """The reward of a step: the rise of the margin, or as in the papers the dilution per L2."""

    def comes_close(self, values: int) -> bool:
        """True if an episode without a budget begins near the clean input.

        Without a refinement, or with few steps, the first success counts, however far away. With more
        steps than the linear model has `values` all of them are learned wherever it begins.
        """
        return self.refine != 0 and PATIENT <= self.steps < values

    def widening(self, age: Tensor) -> Tensor:
        """(n,): how far episodes without a budget have opened the bounds after `age` (n,) steps.

        It is 0 at first and 1, for the whole of the bounds, after half of the steps.
        """
        return (2 * age / self.steps).clamp_max(1) ** WIDENING

    def remainder(self, age: Tensor) -> Tensor:
        """(n,): queries that may follow a success in the step after `age` (n,) ones.

        They count where `refine` gives no number.
        """
        return (self.steps - age - 1).clamp_max(self.steps // IDLE)

    def changes(self, age: Tensor, patches: int) -> Tensor:
        """(n,): how many patches a step changes at most, after `age` (n,) steps."""
        # Few patches late in an episode: coarse changes first, fine ones near the boundary.
        halvings = (age[:, None] > self.steps * torch.tensor(PACE)).sum(1)
        return (self.p_init * patches * 0.5**halvings).round().long().clamp_min(1)


USUAL = Rules()
"""The rules where none are given."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Settings of episodes: grid, variants, rules, prior and slots."""

    grid: PatchGrid
    """The patches."""
    variants: tuple[Variant, ...]
    """Variants that may be placed on the patches."""
    rules: Rules = USUAL
    """How an episode goes."""
    prior: Prior | None = None
    """Prior of the sensitivity of patches before the first query; None if nothing is known."""
    slots: int = 64
    """Maximum number of episodes that run at once."""
    learned: bool = False
    """Offer content that follows the surrogates' gradients beside the variants."""

    @property
    def choices(self) -> tuple[int, int, int]:
        """Patches compared at most, patches removed at most, and one distortion and severity."""
        most = int(self.rules.changes(torch.zeros(1), len(self.grid)))
        return (
            min(most * self.rules.candidates, len(self.grid)),
            max(1, round(most * self.rules.removals)),
            1,
        )


def rise_of_margin(before: "Slots", margin: Tensor) -> Tensor:
    """(m,): the reward of a step from the state `before` to inputs of these margins."""
    # A margin above 0 is a success already: more of it earns nothing.
    rise = margin.clamp_max(0) - before.margin
    # A step that lowers the margin is undone, so it costs its query alone.
    return (rise / before.start.abs().clamp_min(1e-6)).clamp(0, 1) - QUERY


def dilution_per_l2(
    before: "Slots", x: Tensor, logits: Tensor, margin: Tensor, y: Tensor, clean: Tensor
) -> Tensor:
    """(m,): the papers' reward of a step to inputs x (m, *shape) with these answers.

    It is the change of the dilution over that of the L2 (arXiv 2310.18626), where the step is kept.
    Such gains add up to nothing, so the price of a query is the largest gain.
    """
    longer = (norms.l2(x - clean) - norms.l2(before.x - clean)).abs()
    # Without a budget lengths are those of the inputs.
    unit = torch.where(before.radius < torch.inf, before.radius, 1.0).clamp_min(1e-12)
    share = (longer / unit).clamp_min(SHORTEST)

    # The kept steps alone are paid.
    quotient = (dilution(logits, y) - dilution(before.logits, y)) / share
    gain = torch.where(margin > before.margin, quotient, 0).clamp(0, 1)
    return QUOTIENT * (gain - 1)


def dilution(logits: Tensor, y: Tensor) -> Tensor:
    """(n,): how small the probability p of the true class is, from -1 (p = 1) to 0 (p = 0).

    It is 1 / log10 p over its value at certainty, and a straight line above `LINE`, where 1 / log10
    p falls without end.
    """
    p = logits.softmax(1).gather(1, y[:, None])[:, 0].clamp(1e-12, 1)
    # Value and derivative of 1 / log10 p at `LINE`, where the straight line goes on.
    at_line = 1 / math.log10(LINE)
    slope = -math.log(10) / (LINE * math.log(LINE) ** 2)
    line = at_line + slope * (p - LINE)
    value = torch.where(p > LINE, line, 1 / p.clamp_max(LINE).log10())
    return -value / (at_line + slope * (1 - LINE))


def margin_towards(margin: Tensor, logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    """(n,): the margins; while the true class leads, those of the class `target` (n,) alone.

    -1 stands for any class.
    """
    # Once any class leads the input is found, so the target no longer matters.
    lead = losses.margin(logits, y)
    of_target = losses.targeted_margin(logits, y, target.clamp_min(0)).clamp_max(0)
    return torch.where((target >= 0) & (lead <= 0), torch.minimum(margin, of_target), margin)


def any_class_counts(criterion: Criterion) -> bool:
    """True if more than one class meets the criterion, so an episode may choose its target."""
    if isinstance(criterion, Targeted):
        return False
    return not (isinstance(criterion, Probability) and criterion.wrong_class is not None)


# The slots


@dataclass(frozen=True)
class SlotColumns:
    """A record of tensors with a row for each slot, never written but by `put`."""

    def take(self, rows: Tensor) -> Self:
        """The rows (m,), copied."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    def put(self, rows: Tensor, **columns: Any) -> None:
        """Write columns (m, ...) of the rows (m,)."""
        for name, values in columns.items():
            getattr(self, name)[rows] = values


@dataclass(frozen=True)
class Slots(SlotColumns):
    """The knowledge of n slots, on the device of the batch."""

    sample: Tensor
    """(n,) int64: positions in the batch."""
    streams: Tensor
    """(n,) int64: keys of the random numbers of the next step."""
    x: Tensor
    """(n, *shape): the kept input, within the budget."""
    full: Tensor
    """(n, *shape): the same before it is fitted to the budget."""
    variant: Tensor
    """(n, patches) int64: its assignment."""
    logits: Tensor
    """(n, classes): the answer to it."""
    margin: Tensor
    """(n,): its margin."""
    start: Tensor
    """(n,): the margin of the clean input."""
    radius: Tensor
    """(n,): the budget."""
    kept: Tensor
    """(n,): running mean of how many steps are kept."""
    mark: Tensor
    """(n,): the margin a window ago."""
    visits: Tensor
    """(n, patches): how often each patch was changed."""
    gain: Tensor
    """(n, patches): what its last change brought."""
    energy: Tensor
    """(n, patches): how much is expected of it."""
    content: Tensor
    """(n, patches, features): its look."""
    target: Tensor
    """(n,) int64: the target class of an episode, -1 for any."""
    clean: Tensor
    """(n, classes): the answer to the clean input."""
    lead: Tensor
    """(n, classes): how near each class came to the lead."""
    tries: Tensor
    """(n, classes): restarts towards each."""

    @classmethod
    def empty(cls, x: Tensor, patches: int, classes: int) -> "Slots":
        """Slots for inputs like x (n, *shape)."""
        n = len(x)
        device = x.device

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(n, *shape, device=device)

        return cls(
            sample=zeros().long(),
            streams=zeros().long(),
            # The clean input stands for the present one until the first step.
            x=x.clone(),
            full=x.clone(),
            variant=torch.full((n, patches), CLEAN, device=device),
            logits=zeros(classes),
            margin=zeros(),
            start=zeros(),
            radius=zeros(),
            kept=zeros(),
            mark=zeros(),
            visits=zeros(patches),
            gain=zeros(patches),
            energy=zeros(patches),
            content=zeros(patches, FEATURES),
            target=zeros().long(),
            clean=zeros(classes),
            lead=zeros(classes),
            tries=zeros(classes),
        )


@dataclass(frozen=True)
class Counts(SlotColumns):
    """Counters of n slots, (n,) int64 on the host.

    They follow from what the host reads, so no device is asked for them.
    """

    age: Tensor
    """Steps."""
    since: Tensor
    """Steps since the last restart."""
    idle: Tensor
    """Steps without a gain."""
    window: Tensor
    """Steps since the last mark."""
    left: Tensor
    """Steps that are left to come closer."""
    asked: Tensor
    """Queries after the first."""
    fresh: Tensor
    """1 before the clean input was asked about."""
    pending: Tensor
    """1 where the input must be asked about as it is."""
    refining: Tensor
    """1 after a success, while a closer one is looked for."""
    forced: Tensor
    """1 where the next step is kept whatever it brings."""
    wholes: Tensor
    """Wholly distorted inputs that were tried."""
    laid: Tensor
    """The variant to lay on all patches, CLEAN for none."""
    restarts: Tensor
    """Restarts so far."""
    looked: Tensor
    """The age at which surrogates were asked, -1 for never."""
    moved: Tensor
    """1 where the input has moved since."""

    @classmethod
    def empty(cls, n: int) -> "Counts":
        """Counters of n slots."""
        return cls(*torch.zeros(len(fields(cls)), n, dtype=torch.int64))

    def begin(self, rows: Tensor, left: int) -> None:
        """New samples in these slots (m,), whose clean inputs are asked about first.

        `left` is the number of steps that a refinement will have.
        """
        self.put(rows, **dict.fromkeys((field.name for field in fields(self)), 0))
        self.put(rows, fresh=1, pending=1, left=left, laid=CLEAN, looked=-1)


# What came of the samples

RARE = 0.25
"""Success rate below which successes are rare: the upper end of its interval is compared."""


class EpisodeOutcomes(NamedTuple):
    """Outcomes of the samples of a batch."""

    success: Tensor
    """(n,) bool: True if the criterion was met."""
    variant: Tensor
    """(n, patches) int16: the assignment that met it at the smallest distance, CLEAN everywhere
    for none."""
    eps: Tensor
    """(n,): the budget to which that assignment is to be fitted."""
    strength: Tensor
    """(n,): the share of the fitted distortion that is left after clean-up."""
    closest: Tensor
    """(n, patches) int16: the assignment of the closest of all inputs that met the criterion,
    which after clean-up need not be `variant`."""
    steps: Tensor
    """(n,): queries after the first until the criterion was first met."""
    value: Tensor
    """(n, patches): what each patch was predicted to contribute at that time, as a share of the
    clean input's margin; 0 for clean patches."""
    slope: Tensor
    """(n, channels, places): the linear model's gradient at that time, which predicts the effect
    of other distortions."""
    map: Tensor
    """(n, patches, distortions): the sensitivity map (`rlab.sensitivity`) when the episode
    ended; NaN where there is none."""
    size: Tensor
    """(n,): distance of the input at which the episode ended."""
    way: Tensor
    """(n, rows, 6): the inputs that the agent kept (`rlab.way`), NaN behind the last one."""
    content: Tensor
    """(n, *shape): the learned content on the patches of `variant` that have the number behind
    the last variant; (n, 0) where nothing is learned."""

    def select(self, rows: Tensor) -> "EpisodeOutcomes":
        """The outcomes of the samples at these positions."""
        return EpisodeOutcomes(*(column[rows] for column in self))


def no_outcomes(
    eps: Tensor, grid: PatchGrid, distortions: int, *, learned: bool = False
) -> EpisodeOutcomes:
    """Outcomes before the first step, for budgets (n,) and a number of distortions."""
    n = len(eps)
    patches = len(grid)
    return EpisodeOutcomes(
        success=torch.zeros(n, dtype=torch.bool, device=eps.device),
        variant=torch.full((n, patches), CLEAN, dtype=torch.int16, device=eps.device),
        eps=eps.clone(),
        strength=torch.ones_like(eps),
        closest=torch.full((n, patches), CLEAN, dtype=torch.int16, device=eps.device),
        steps=torch.zeros(n, dtype=torch.int64, device=eps.device),
        value=torch.zeros(n, patches, device=eps.device),
        slope=torch.zeros(n, grid.channels, grid.places, device=eps.device),
        map=torch.full((n, patches, distortions), torch.nan, device=eps.device),
        size=torch.zeros(n, device=eps.device),
        way=torch.full((n, 0, 6), torch.nan, device=eps.device),
        content=torch.zeros(n, *(grid.shape if learned else (0,)), device=eps.device),
    )


def rare_success(outcomes: EpisodeOutcomes, budget: Tensor) -> list[Remark]:
    """A remark where successes are rare while most failures end with a full budget (n,).

    The budget is infinite where there is none.
    """
    n = len(outcomes.success)
    success = int(outcomes.success.sum())
    interval = wilson(success, n)
    failed = ~outcomes.success & budget.isfinite() & (budget > 0)
    # A rate whose interval reaches this far says nothing against the distortions.
    if interval is None or interval.high >= RARE or not bool(failed.any()):
        return []

    # A failure with an empty budget would need more steps; one with a full budget needs other
    # means.
    full = outcomes.size[failed] >= FULL * budget[failed]
    if float(full.float().mean()) <= 0.5:
        return []
    text = (
        f"{success} of {n} samples were fooled, and {int(full.sum())} of "
        f"{int(failed.sum())} failures ended with "
        "a full budget: other or more severe distortions may do what more steps will not"
    )
    return [Remark("distance-without-success", text)]
