"""RLAB's decision process for many samples in lockstep: where to add which distortion, and where to remove one.

arXiv 2310.18626 and 2403.18985. One step is the dual action: some patches are given another variant of a distortion, others are
cleared, and the model is asked once about the input that results. The step is kept where it raises the margin of the criterion. A
slot whose episode has ended takes the next sample at the next reset, so that the batches shown to the model stay full. The first
step of an episode asks about the clean input, together with the queries of the other slots, whatever the action says.

The published method probes every patch after every step, with queries that it does not count. Here no query serves a probe alone:
the answers to all queries are kept in a linear model (`rlab.posterior`), which predicts the effect of adding and removing
(`rlab.predictions`), and each step asks about an input that may itself be adversarial.

Deviations from the papers:
- The sensitivity map comes from the linear model and not from a list of probes.
- Distortions are scaled as a whole to the budget (L2) or clipped to it (Linf), so that an episode never leaves the budget: the
  hard projection of Adversarial Agents (arXiv 2503.01734) in place of a penalty.
- A step that does not raise the margin is undone, which costs nothing, since its state is known. After too many such steps
  (`Rules.patience`), or too small a gain, the episode is restarted (`rlab.restart`).
- The variant on a patch is sampled by the predictions (Thompson sampling) from a random selection; the agent may name the
  distortion and the severity, and need not.

The state of the slots lies on the device of the batch, and each look at it by the host makes the host wait. So the host looks
twice a step, before the query (`_query_positions`) and after it (`_Events`), at all that it has to decide by. A third look
follows where an episode succeeds or is stuck.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.model import Access
from brinell.core.oracle import Batch, Oracle
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.rlab.assignment import Assignment
from brinell.rlab.cache import CLEAN, DistortionCache, Gradients
from brinell.rlab.content import FEATURES, describe, squash
from brinell.rlab.guides import Guides, class_weights
from brinell.rlab.interface import Action, Observation, Step, mapped
from brinell.rlab.outcomes import no_outcomes
from brinell.rlab.posterior import TRUST, Posterior, Trust
from brinell.rlab.predictions import Predictions, looked_at, sensitivity
from brinell.rlab.prior import Prior, to_places
from brinell.rlab.restart import Restarts, lay
from brinell.rlab.rows import index, positions, select, write_where
from brinell.rlab.rules import CLOSER, REWARDS, SHRINK, USUAL, Before, Rules, aimed, any_class_counts
from brinell.rlab.variants import Variant, pair_numbers, pair_options, wholes

ADD, REMOVE, DISTORTION = 0, 1, 2
"""The branches of an action."""
MEMORY = 2**30
"""Bytes of distorted inputs that are held; fewer slots run where they would take more."""
DYNAMIC = ("energy", "standing", "contribution", "removal", "share", "visits", "gain")
"""The features of a patch besides its content."""
ENERGY, REMOVAL = (FEATURES + DYNAMIC.index(name) for name in ("energy", "removal"))
"""The positions of two of them among all features of a patch."""
PATCH_FEATURES = FEATURES + len(DYNAMIC)
"""Numbers for each patch."""
WHOLE_FEATURES = 6
"""Numbers for each input."""


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
    trust: Trust = TRUST
    """How far surrogates are trusted, where there are any."""

    @property
    def choices(self) -> tuple[int, int, int]:
        """Patches compared at most, patches removed at most, and one choice of a distortion and severity."""
        most = int(self.rules.changes(torch.zeros(1), len(self.grid)))
        return min(most * self.rules.candidates, len(self.grid)), max(1, round(most * self.rules.removals)), 1


class _Schedule(NamedTuple):
    """The next step of the running episodes as the host knows it: lists with a number for each episode."""

    changes: list[int]
    """Patches that may be changed."""
    removals: list[int]
    """Patches that may be cleared."""
    pending: list[int]
    """1 where the step asks about the input as it is."""
    fresh: list[int]
    """1 where the clean input has not been asked about."""

    def part(self, places: list[int]) -> "_Schedule":
        """The schedule of some of the episodes."""
        return _Schedule(*([column[place] for place in places] for column in self))


class _Events(NamedTuple):
    """Events of a query as the host reads them: lists with a number for each running episode."""

    stuck: list[int]
    success: list[int]
    """1 for a success, but for one of the clean input."""
    due: list[int]
    """1 where the surrogates are asked."""
    over: list[int]
    """1 where the episode ends."""
    changes: list[int]
    """The `_Schedule` of the next step; `over` too holds where no episode is stuck or succeeds."""
    removals: list[int]


class PatchEnv:
    """Episodes on the samples of one batch, each sample once, in the order of the batch.

    Args:
        oracle: where the model is asked.
        batch: the samples, correctly classified.
        threat: distance, largest budget and criterion of each.
        placement: what is placed where.
        rng: a stream for each sample.
        gradients: the source of gradients for distortions that need them; None asks anew.
        maps: keep the sensitivity map of each episode when it ends.
        cycle: begin with the first sample again, with other random numbers, after the last one: to learn from.

    Raises:
        RequestError: a criterion that the model cannot meet, or distortions that do not fit.
        ContractError: a distortion that breaks its contract.
    """

    def __init__(
        self,
        oracle: Oracle,
        batch: Batch,
        threat: Threat,
        placement: Placement,
        rng: Streams,
        *,
        gradients: Gradients | None = None,
        maps: bool = False,
        cycle: bool = False,
    ) -> None:
        threat.criterion.check(oracle.classes)
        grid, variants, rules = placement.grid, placement.variants, placement.rules
        # All variants of a slot's sample are kept: making them anew at each step would take longer
        # than the model.
        size = len(variants) * batch.x[0].numel() * batch.x.element_size()
        n = min(placement.slots, len(batch), max(1, MEMORY // size))
        device = batch.x.device
        self._oracle, self._batch, self._threat, self._rng = oracle, batch, threat, rng
        self.rules, self.grid, self.variants, self.choices = rules, grid, variants, placement.choices
        first = torch.arange(n, device=device)
        looks = any(variant.distortion.access == Access.GRADIENTS for variant in variants)
        self._gradients = source = (gradients or Gradients(oracle, batch)) if looks else None
        self._sample = first.clone()
        ask = None if source is None else lambda rows: source(self._sample[rows])
        filters = rng.select(first).fold("filters")
        self.cache = DistortionCache(batch.x[first], threat.domain, variants, filters, gradient=ask, memory=MEMORY)
        self.assignment = Assignment(grid, self.cache)
        self._prior = (placement.prior or Prior()).to(device)
        covariance = self._prior.covariance_for(grid.channels)
        self.posterior = Posterior(
            n,
            grid.channels,
            grid.places,
            covariance=covariance,
            surrogates=oracle.surrogates,
            trust=placement.trust,
            device=device,
        )
        self._guides = Guides(oracle, grid, self.posterior, placement.trust)
        self._families, self._options = pair_numbers(variants, device), pair_options(variants)
        self._cycle, self._maps = cycle, maps
        self._next, self.alive = 0, torch.zeros(n, dtype=torch.bool, device=device)
        self._rows: Tensor | None = first[:0]
        self._ids, self._lays = first[:0], False
        self._schedule: _Schedule | None = None
        self._paces = (first[:0], first[:0])
        patches = len(grid)
        self._x = batch.x[first].clone()
        self._margin, self._start, self._radius, self._kept = torch.zeros(4, n, device=device)
        self._predictions = Predictions(self.assignment, self.posterior, threat.distance, self._radius, rules.temperature)
        self._logits = torch.zeros(n, oracle.classes, device=device)
        self._age, self._left, self._asked = torch.zeros(3, n, dtype=torch.int64, device=device)
        self._fresh, self._pending, self._refining = torch.zeros(3, n, dtype=torch.bool, device=device)
        aims = any_class_counts(threat.criterion)
        self._restarts = Restarts(n, oracle.classes, wholes(variants, device), rules.patience, aims, device)
        self._visits, self._gain = torch.zeros(2, n, patches, device=device)
        self._content = torch.zeros(n, patches, FEATURES, device=device)
        self._energy = torch.zeros(n, patches, device=device)
        self.streams = Streams(torch.zeros(n, dtype=torch.int64, device=device))
        """Randomness for each slot's next action: a function of the sample and the number of its steps."""
        self.outcomes = no_outcomes(threat.eps, grid, len(looked_at(variants)))
        """Outcomes of all samples so far."""

    @property
    def waiting(self) -> bool:
        """True if some samples have had no episode yet."""
        return self._cycle or self._next < len(self._batch)

    @property
    def rows(self) -> Tensor:
        """(m,) int64: the slots with a running episode, ascending; the same tensor as long as they are the same."""
        if self._rows is None:
            self._rows = self.alive.nonzero()[:, 0]
            self._ids = self._batch.ids[self._sample[self._rows]]
        return self._rows

    def _look(self) -> tuple[_Schedule, Tensor, Tensor]:
        """The schedule of the next step; the `changes` and `removals` (m,) of it, on the device."""
        if self._schedule is None:
            rows = self.rows
            self._paces = changes, removals = self._pace(rows)
            columns = (changes, removals, self._pending[rows], self._fresh[rows])
            self._schedule = _Schedule(*torch.stack([column.long() for column in columns]).tolist())
        return self._schedule, *self._paces

    def reset(self, mask: Tensor) -> Observation:
        """Put the next samples into the slots where `mask` holds, as long as there are any."""
        waiting = (mask & ~self.alive).nonzero()[:, 0]
        while len(waiting) and self.waiting:
            restart, sample = divmod(self._next, len(self._batch))
            rows = waiting[: len(self._batch) - sample]
            waiting = waiting[len(rows) :]
            self._begin(rows, torch.arange(sample, sample + len(rows), device=rows.device), restart)
            self._next += len(rows)
            waiting = torch.cat([rows[~self.alive[rows]], waiting])
        return self._observation()

    def _begin(self, rows: Tensor, sample: Tensor, restart: int) -> None:
        """Begin the episodes of these samples, as far as a query can be paid. The first one is about the clean input."""
        x = self._batch.x[sample]
        rng = self._rng.select(sample).fold(restart) if restart else self._rng.select(sample)
        self._sample[rows] = sample
        self.cache.replace(rows, x, rng.fold("filters"))
        self.assignment.clear(rows)
        self._content[rows] = describe(x, self.grid)
        self._energy[rows] = energy = self._prior.energies(self._content[rows])
        self.posterior.forget(rows, to_places(energy, self.grid))
        self._restarts.clear(rows)
        self._guides.begin(rows, energy)
        self._visits[rows], self._gain[rows], self._kept[rows] = 0, 0, 0.5
        self._age[rows] = self._asked[rows] = 0
        self._left[rows] = self.rules.refine or 0
        self._fresh[rows], self._pending[rows], self._refining[rows] = True, True, False
        self._x[rows], self._radius[rows] = x, self._threat.eps[sample]
        self._logits[rows], self._margin[rows], self._start[rows] = 0, -1, -1
        keys = self.streams.keys.clone()
        keys[rows] = rng.fold("steps").keys
        self.streams = Streams(keys)
        self.alive[rows] = active = self._oracle.active(self._batch.ids[sample])
        if self._gradients is not None and bool(active.any()):
            self._gradients(sample[active])
            self.alive[rows] = self._oracle.active(self._batch.ids[sample])
        self._rows = self._schedule = None

    def step(self, action: Action) -> Step:
        """Carry out a dual action in every slot. Choices beyond a slot's pace, or of no effect, are replaced by -1 in place."""
        n = len(self.alive)
        reward = torch.zeros(n, device=self.alive.device)
        terminated, truncated = torch.zeros(2, n, dtype=torch.bool, device=self.alive.device)
        rows = self.rows
        if len(rows):
            schedule = self._look()[0]
            patches, variants = self._edits(rows, action)
            threat = replace(self._threat, eps=self._radius[rows])
            distorted = self.assignment.candidates(rows, patches, variants)
            x = threat.project(distorted, self.cache.x[rows])
            reward[rows], over = self._ask(rows, patches, variants, distorted, x, schedule)
            later = positions([not fresh for fresh in schedule.fresh])
            if later:
                keys, slots = self.streams.keys.clone(), select(rows, later)
                keys[slots] = self.streams.select(slots).fold("step").keys
                self.streams = Streams(keys)
            self._fresh[rows] = False
            if over:
                success = self.outcomes.success[self._sample[rows]]
                ending = torch.zeros_like(success).index_fill_(0, index(over, rows.device), True)
                terminated[rows], truncated[rows] = ending & success, ending & ~success
                self._end(rows, over)
        return Step(self._observation(), reward, terminated, truncated)

    def _end(self, running: Tensor, over: list[int]) -> None:
        """End the episodes at some positions among the `running` slots (m,) and record their outcomes."""
        rows, remainder = select(running, over), sorted(set(range(len(running))) - set(over))
        self.alive[rows] = False
        schedule, changes, removals = self._look()
        self._rows, self._ids = select(running, remainder), select(self._ids, remainder)
        self._schedule, self._paces = schedule.part(remainder), (select(changes, remainder), select(removals, remainder))
        self.outcomes.size[self._sample[rows]] = self._threat.distance.size(self._x[rows] - self.cache.x[rows])
        if self._maps:
            self.outcomes.map[self._sample[rows]] = sensitivity(self.cache, self.grid, self.posterior, rows)

    def _pace(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(m,) each: how many patches a slot may change now, and how many it may clear."""
        count = self.rules.changes(self._restarts.since[rows], len(self.grid))
        count = torch.where(self._refining[rows], count.clamp_min(round(CLOSER * len(self.grid))), count)
        return count, (count * self.rules.removals).round().long().clamp_min(1 if self.rules.removals else 0)

    def _edits(self, rows: Tensor, action: Action) -> tuple[Tensor, Tensor]:
        """Patches and variants (m, adds + removals), filled up with a patch that there is not."""
        add, remove, family = (action[branch][rows] for branch in (ADD, REMOVE, DISTORTION))
        schedule, count, most = self._look()
        idle, patches = self._pending[rows, None], len(self.grid)
        compared = (count * self.rules.candidates).clamp_max(patches)
        add = torch.where((torch.arange(add.shape[1], device=add.device) < compared[:, None]) & ~idle, add, -1)
        remove = torch.where((torch.arange(remove.shape[1], device=add.device) < most[:, None]) & ~idle, remove, -1)
        widths = [min(changes * self.rules.candidates, patches) for changes in schedule.changes]
        width = max(1, *widths)
        compared_counts = [0 if pending else number for number, pending in zip(widths, schedule.pending, strict=True)]
        variants, scores = self._choose(rows, add[:, :width], family[:, 0], compared_counts)
        # The patches of the best scores are changed; the action names them in the order of the policy.
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : max(1, *schedule.changes)]
        mask = torch.arange(best.shape[1], device=add.device) < count[:, None]
        variants = torch.where(torch.zeros_like(variants, dtype=torch.bool).scatter_(1, best, mask), variants, CLEAN)
        changed = torch.where(variants == CLEAN, -1, add[:, :width])
        add = torch.cat([changed, add[:, width:]], 1)
        marks = torch.zeros(len(rows), patches + 1, dtype=torch.bool, device=add.device)
        marks.scatter_(1, torch.where(add < 0, patches, add), True)
        remove = torch.where(marks.gather(1, remove.clamp_min(0)), -1, remove)
        action[ADD][rows], action[REMOVE][rows] = add, remove
        remove = remove[:, : max(1, *schedule.removals)]
        edits = torch.cat([changed.gather(1, best), remove], 1)
        variants = torch.cat([variants.gather(1, best), torch.full_like(remove, CLEAN)], 1)
        if self._lays:
            full, self._lays = self._restarts.laid[rows], False
            self._restarts.laid[rows] = CLEAN
            over = rows[full != CLEAN]
            action[ADD][over] = action[REMOVE][over] = -1
            edits, variants = lay(edits, variants, full, len(self.grid))
        return torch.where(edits < 0, len(self.grid), edits), torch.where(edits < 0, CLEAN, variants)

    def _query_positions(self, rows: Tensor, change: Tensor) -> list[int]:
        """The positions in `rows` whose inputs change by `change` (m, *shape) or were not asked about: no other needs a query."""
        flags: list[int] = ((norms.linf(change) > 0) | self._pending[rows]).tolist()
        return positions(flags)

    def _ask(
        self, rows: Tensor, patches: Tensor, variants: Tensor, distorted: Tensor, x: Tensor, schedule: _Schedule
    ) -> tuple[Tensor, list[int]]:
        """One query for each slot, and what follows: the rewards (m,), and the positions of the episodes that are over.

        The edits make the inputs `distorted`, which are asked about as `x`, within the budget.
        """
        sample, pending, fresh = self._sample[rows], self._pending[rows], self._fresh[rows]
        ids, y = self._ids, self._batch.y[sample]
        change = x - self._x[rows]
        queries = self._query_positions(rows, change)
        logits = self._logits[rows]
        if len(queries) == len(rows):
            real = torch.ones_like(fresh)
            logits = self._oracle.scores(ids, x).to(logits.dtype)
        else:
            places = index(queries, rows.device)
            real = torch.zeros_like(fresh).index_fill_(0, places, True)
            if queries:
                logits[places] = self._oracle.scores(ids[places], x[places]).to(logits.dtype)
        self._asked[rows] += real & ~fresh
        self._restarts.note(rows, logits, y)
        margin = self._margin_of(rows, logits, x)
        begins = any(schedule.fresh)
        if begins:
            self._margin[rows] = torch.where(fresh, margin, self._margin[rows])
            self._start[rows] = torch.where(fresh, margin, self._start[rows])
        effect = margin - self._margin[rows]
        flat = change.view(len(rows), self.grid.channels, self.grid.places)
        answered = [place for place in queries if not schedule.fresh[place]]
        if answered:
            self.posterior.update(*(select(values, answered) for values in (rows, flat, effect)))
        self._mark(rows, patches, effect)
        last = Before(self._x[rows], self._logits[rows], self._margin[rows], self._start[rows], self._radius[rows])
        reward = REWARDS[self.rules.reward](last, x, logits, margin, y, self.cache.x[rows])
        accepted = (effect > 0) | pending | (self._restarts.kept[rows] & real)
        self._restarts.kept[rows] &= ~accepted
        self._kept[rows] += 0.1 * (accepted.float() - self._kept[rows]) * ~fresh
        before = self.assignment.variant[rows]
        self.assignment.accept(rows, accepted, patches, variants, distorted)
        after = self.assignment.variant[rows]
        self.outcomes.given[sample] += ((before == CLEAN) & (after != CLEAN)).sum(1)
        self.outcomes.taken[sample] += ((before != CLEAN) & (after == CLEAN)).sum(1)
        for state, values in ((self._x, x), (self._margin, margin), (self._logits, logits)):
            write_where(state, rows, accepted, values)
        self._pending[rows] = False
        later = positions([not fresh for fresh in schedule.fresh])
        if later:
            slots = select(rows, later)
            self._restarts.wait(slots, select(accepted, later), self._margin[slots])
        success = (margin > 0) & real
        self._left[rows] -= self._refining[rows].long()
        if begins:
            self.outcomes.success[sample] |= success & fresh
        affordable = self._oracle.affordable(ids)
        events = self._read_events(rows, fresh, margin, success, affordable)
        over = self._follow(rows, fresh, success, affordable, events)
        return torch.where(self._refining[rows] & ~success | pending, 0, reward), over

    def _read_events(self, rows: Tensor, fresh: Tensor, margin: Tensor, success: Tensor, affordable: Tensor) -> _Events:
        self._paces = self._pace(rows)
        columns = (
            self._restarts.stuck(rows) & ~self._refining[rows] & (margin <= 0),
            success & ~fresh,
            self._guides.due(rows, self._x, self._age),
            self._over(rows, fresh, success, affordable),
            *self._paces,
        )
        return _Events(*torch.stack([column.long() for column in columns]).tolist())

    def _over(self, rows: Tensor, fresh: Tensor, success: Tensor, affordable: Tensor) -> Tensor:
        """(m,) bool: which episodes end with this step."""
        refining = self._refining[rows]
        exhausted = torch.where(refining, self._left[rows] <= 0, self._age[rows] + (~fresh).long() >= self.rules.steps)
        over: Tensor = exhausted | ~affordable | (success & ~refining)
        return over

    def _follow(self, rows: Tensor, fresh: Tensor, success: Tensor, affordable: Tensor, events: _Events) -> list[int]:
        """Do what the answers ask for; the positions of the episodes that are over."""
        stuck, noted = positions(events.stuck), positions(events.success)
        due, over, changes, removals = events.due, events.over, events.changes, events.removals
        pending = zeros = [0] * len(rows)
        if stuck:
            self._restart_stuck(select(rows, stuck))
        if noted:
            self._note(select(rows, noted))
        if stuck or noted:  # other inputs, radii and paces now
            self._paces = self._pace(rows)
            columns = (
                self._guides.due(rows, self._x, self._age),
                self._over(rows, fresh, success, affordable),
                *self._paces,
                self._pending[rows],
            )
            due, over, changes, removals, pending = torch.stack([column.long() for column in columns]).tolist()
        if any(due):
            self._guide(select(rows, positions(due)))
        self._age[rows] += (~fresh).long()
        self._schedule = _Schedule(changes, removals, pending, zeros)
        return positions(over)

    def _guide(self, rows: Tensor) -> None:
        """Ask the surrogates where the episodes are."""
        self._guides.look(rows, self._x, self._age)
        weights = class_weights(
            lambda logits: self._margin_of(rows, logits, self._x[rows]), self._logits[rows], self.streams.select(rows)
        )
        self._guides.ask(rows, self._batch.ids[self._sample[rows]], self._x[rows], weights)
        self._energy[rows] = self._guides.energies(rows)

    def _restart_stuck(self, rows: Tensor) -> None:
        """Next inputs of stuck slots: the whole input distorted where the budget allows, or `Restarts.observation`."""
        self._lays = True
        while len(rows):
            number = self._restarts.whole(rows)
            fits = self._threat.distance.size(self.cache.inputs(rows, number) - self.cache.x[rows]) <= self._radius[rows]
            end_flags, fitting = torch.stack([number == CLEAN, fits]).tolist()
            if any(end_flags):
                self._restart(select(rows, positions(end_flags)))
            write_where(self._restarts.laid, rows, fits & (number != CLEAN), number)
            rows = select(rows, [place for place, flag in enumerate(map(max, end_flags, fitting)) if not flag])

    def _restart(self, rows: Tensor) -> None:
        """Go on with a step that is kept in any case, or from the clean input towards another class; no query is needed."""
        y = self._batch.y[self._sample[rows]]
        anew = self._restarts.restart(rows, self._logits[rows], y)
        self.assignment.clear(anew)
        self._x[anew], self._logits[anew], self._visits[anew] = self.cache.x[anew], self._restarts.clean[anew], 0
        self._margin[rows] = self._margin_of(rows, self._logits[rows], self._x[rows])

    def _margin_of(self, rows: Tensor, logits: Tensor, x: Tensor) -> Tensor:
        """(m,): the margins of answers (m, classes) to inputs (m, *shape) of these slots, towards the class that each aims at."""
        sample = self._sample[rows]
        y, criterion = self._batch.y[sample], self._threat.criterion.select(sample)
        return aimed(criterion.margin(logits, y, x), logits, y, self._restarts.aim[rows])

    def _mark(self, rows: Tensor, patches: Tensor, effect: Tensor) -> None:
        """Count visits, and note the effect of each patch's last change, divided among those changed together."""
        count = len(self.grid)
        real = patches < count
        share = effect / (real.sum(1).clamp_min(1) * self._start[rows].abs().clamp_min(1e-6))
        marks = torch.zeros(len(rows), count + 1, dtype=torch.bool, device=rows.device).scatter_(1, patches, True)[:, :count]
        self._visits[rows] += marks
        self.outcomes.visits[self._sample[rows]] += marks.to(torch.int32)
        self._gain[rows] = torch.where(marks, share[:, None], self._gain[rows])

    def _note(self, rows: Tensor) -> None:
        """Note assignments that met the criterion; with refinement, look for others at a smaller distance next."""
        sample = self._sample[rows]
        size = self._threat.distance.size(self._x[rows] - self.cache.x[rows])
        new = ~self.outcomes.success[sample]
        self.outcomes.steps[sample] = torch.where(new, self._asked[rows], self.outcomes.steps[sample])
        self.outcomes.success[sample] = True
        self.outcomes.variant[sample] = self.assignment.variant[rows].to(torch.int16)
        self.outcomes.eps[sample] = torch.minimum(size, self._radius[rows])
        self.outcomes.length[sample] = self._threat.distance.size(self.assignment.x[rows] - self.cache.x[rows])
        self.outcomes.value[sample] = self._predictions.contribution(rows) / self._start[rows].abs().clamp_min(1e-6)[:, None]
        self.outcomes.slope[sample] = self.posterior.mean[rows]
        if self.rules.refine is None:
            self._left[rows] = self.rules.remainder(self._age[rows])
        if self.rules.refine != 0:
            self._refining[rows], self._pending[rows] = True, True
            self._radius[rows] = SHRINK * size
            self._restarts.aim[rows] = -1

    def _choose(self, rows: Tensor, patches: Tensor, family: Tensor, compared: list[int]) -> tuple[Tensor, Tensor]:
        """(m, k) each: the variant for each chosen patch (m, k), CLEAN where none would change anything, and its score.

        Only the first `compared` patches of each row are looked at; the rows of one number are looked at together.
        """
        variants = torch.full_like(patches, CLEAN)
        scores = torch.full(patches.shape, -torch.inf, device=patches.device)
        for width in sorted(set(compared) - {0}):
            part = positions([number == width for number in compared])
            choice = self._compare(*(select(values, part) for values in (rows, patches[:, :width], family)))
            places = slice(None) if len(part) == len(rows) else index(part, rows.device)
            variants[places, :width], scores[places, :width] = choice
        return variants, scores

    def _compare(self, rows: Tensor, patches: Tensor, family: Tensor) -> tuple[Tensor, Tensor]:
        # Variants at random among those of the family asked for; repeated if there are few.
        count = min(self.rules.offers, len(self.variants))
        keys = self.streams.select(rows).fold("offers").uniform(len(self.variants))
        family_mask = (family[:, None] <= 0) | (self._families == family[:, None])
        offers = (keys + family_mask).topk(count, 1).indices
        offers = torch.where(family_mask.gather(1, offers), offers, offers[:, :1])
        chance = self.streams.select(rows).fold("variants").normal(patches.shape[1], offers.shape[1])
        return self._predictions.choose(rows, patches, offers, chance, self._visits)

    def _observation(self) -> Observation:
        """Observation of a policy; the rows of slots without an episode are zeros."""
        n, patches = self.alive.shape[0], len(self.grid)
        rows = self.rows
        contribution, squares, price = self._predictions.standing(rows)
        removal = price[:, None] * squares - contribution
        standing = self.assignment.variant[rows] != CLEAN
        scale = self._start[rows].abs().clamp_min(1e-6)
        total = squares.sum(1)
        dynamic = [
            self._energy[rows].log(),
            standing.float(),
            squash(contribution / scale[:, None] * patches**0.5),
            squash(removal / scale[:, None] * patches**0.5),
            squares / total.clamp_min(1e-12)[:, None] * patches**0.5,
            self._visits[rows].log1p(),
            squash(self._gain[rows] * patches**0.5),
        ]
        summary = torch.stack(
            [
                squash(self._margin[rows] / scale),
                (self._age[rows] / self.rules.steps).float(),
                (total.sqrt() / self._radius[rows].clamp_min(1e-12)).clamp_max(2),
                standing.float().mean(1),
                self._kept[rows],
                scale.log(),
            ],
            1,
        )
        patch = torch.cat([self._content[rows], torch.stack(dynamic, 2)], 2)
        free = ~self._pending[rows, None]
        removable = free & standing & (removal > 0) & (self.rules.removals > 0)
        may = (free.expand(-1, patches), removable, free.expand(-1, self._options))
        _, count, clear = self._look()
        most = ((count * self.rules.candidates).clamp_max(patches), clear, torch.ones_like(rows))
        features, allowed, most = mapped(
            lambda tensor: tensor.new_zeros(n, *tensor.shape[1:]).index_copy(0, rows, tensor),
            ({"patch": patch, "whole": summary}, may, most),
        )
        return Observation(features, allowed, most)
