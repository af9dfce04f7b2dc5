"""RLAB: a search over patches of many samples in lockstep; a step adds and removes distortions.

arXiv 2310.18626 and 2403.18985. `PatchSearch.step` is their algorithm, `run_episodes` its loop.

What the papers name, and where it is here:
- dual action, add to N_add patches and remove from N_remove: `Action` with the branches ADD and
  REMOVE; their numbers are `Rules.changes` and `Rules.removals`.
- sensitivity list of patches by probes: `sensitivity.Posterior`, a linear model of all answers; no
  query is a probe alone.
- probability dilution, reward per L2: `episodes.dilution_per_l2`, of the policy `dqn`; otherwise
  `rise_of_margin`.
- distortions at severities: `distort.Variant`, made once per sample.
- dueling DQN: `dqn.DQN` with `policy.PatchNetwork`; the default policy is greedy, since no network
  needed fewer queries.
- state: `Observation`, features of each patch and of the whole input.

The published method asks about every patch after every step, with queries that it does not count.
Here each step asks about an input that may itself be adversarial, and its answer, kept or not,
teaches the linear model, which predicts the effect of adding and removing.

Deviations from the papers:
- The sensitivity map comes from the linear model and not from a list of probes.
- Distortions are scaled as a whole to the budget (L2) or clipped to it (Linf), so that an episode
  never leaves it: the hard projection of Adversarial Agents (arXiv 2503.01734) in place of a
  penalty.
- A step that does not raise the margin is undone, which costs nothing, since its state is known.
- The variant on a patch is sampled by the predictions (Thompson sampling) from a random selection;
  the policy may name the distortion and the severity, and need not.
- An episode that gains too little is stuck. Then the whole input is distorted, with each of the
  strongest variants that the budget allows; after that two measures take turns: a large step that
  is kept whatever it brings, and a restart from the clean input towards another of the classes that
  came nearest.
- Without a budget, an episode that is to come close searches where the linear model holds: the
  first queries are near the clean input, the next within the distance at which as many answers let
  expect the boundary, and from then on within a radius that grows until the first success.
- With `Placement.learned` a patch may get content along the expected gradient, in which every value
  has a separate strength. A clean input is moved along the surrogates' gradients for some steps,
  and the result is the next query. Later proposals change no patch that stands.

The host decides by its counters (`Counts`) and looks at the device three times a step: which inputs
changed, in the ledger, and what followed from the answers. A further look follows where an episode
is stuck.
"""

from dataclasses import replace

import torch
from torch import Tensor

from brinell.core import norms
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Threat, extent
from brinell.rlab.distort import (
    CLEAN,
    DRAW_STREAM,
    EXTENT,
    DistortedInputs,
    pair_numbers,
    pair_options,
    wholes,
)
from brinell.rlab.episodes import (
    ADD,
    CLOSER,
    DISTORTION,
    FIRST,
    REMOVE,
    SHRINK,
    START,
    Action,
    Counts,
    EpisodeOutcomes,
    Observation,
    Placement,
    Policy,
    Slots,
    StepResult,
    any_class_counts,
    dilution_per_l2,
    mapped,
    margin_towards,
    no_outcomes,
    rise_of_margin,
)
from brinell.rlab.prior import Prior, describe, to_places
from brinell.rlab.projection import Projection
from brinell.rlab.refine import CleanUp, clean_up
from brinell.rlab.sensitivity import (
    TRUST,
    Posterior,
    Predictions,
    class_weights,
    kept_answers,
    looked_at,
)
from brinell.rlab.way import Ways

MEMORY = 2**30
"""Bytes of distorted inputs and answers that are held; fewer slots run where they would take
more."""
WINDOW = 2
"""Spans of patience over which a gain is measured."""
LITTLE = 0.1
"""Share of what is missing below which that gain is too little."""
AIMS = 10
"""Steps along the surrogates' gradients to the first query after the clean one."""
AIM = 2.5
"""Their lengths together, in budgets."""
TARGETS = 4
"""Classes that restarts aim at, those that came nearest to the lead in any answer."""


def run_episodes(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    placement: Placement,
    rng: Streams,
    policy: Policy,
    *,
    clean: CleanUp | None = None,
    answers: Tensor | None = None,
) -> EpisodeOutcomes:
    """Run one episode on each sample, then clean up those that met the criterion.

    The arguments up to `rng` are those of `PatchSearch`; the policy chooses among the variants of
    the placement. `clean` sets the number of queries of the clean-up; None omits it. `answers` (n,
    classes) are those to the clean inputs, where they are known.
    """
    search = PatchSearch(oracle, batch, threat, placement, rng, maps=True, answers=answers)
    observation = search.reset(torch.ones_like(search.alive))
    while len(rows := search.rows):
        step = search.step(act(policy, observation, search.streams, rows))
        has_vacancy = len(search.rows) < len(search.alive)
        if search.waiting and has_vacancy:
            observation = search.reset(~search.alive)
        else:
            observation = step.observation

    outcomes = search.outcomes
    ways = search.ways
    slots = len(search.alive)
    del search  # its distorted inputs would lie in memory beside those of the clean-up

    outcomes.closest.copy_(outcomes.variant)
    successes = ((outcomes.variant != CLEAN).any(1) & outcomes.success).nonzero()[:, 0]
    if clean is None or not len(successes):
        return outcomes._replace(way=ways.table(1 + outcomes.steps))
    for rows in torch.split(successes, slots):
        variant, strength, closest = clean_up(
            oracle,
            batch.select(rows),
            threat.select(rows),
            rng.select(rows),
            outcomes.select(rows),
            grid=placement.grid,
            variants=placement.variants,
            settings=clean,
            ways=ways,
        )
        outcomes.variant[rows] = variant
        outcomes.strength[rows] = strength
        outcomes.closest[rows] = closest
    return outcomes._replace(way=ways.table(1 + outcomes.steps))


def act(policy: Policy, observation: Observation, rng: Streams, rows: Tensor) -> Action:
    """Action of the policy in the slots `rows` (m,); it is not called for the other slots."""
    action = policy.act(mapped(lambda column: column[rows], observation), rng.select(rows))
    return tuple(
        choices.new_full((len(rng), *choices.shape[1:]), -1).index_copy(0, rows, choices)
        for choices in action
    )


class PatchSearch:
    """Episodes on the samples of one batch, each sample once, in the order of the batch.

    Args:
        maps: keep the sensitivity map of each episode when it ends, and its way.
        cycle: begin with the first sample again, with other random numbers, after the last one: to
            learn from.
        answers: (n, classes) those to the clean inputs, which are not asked about again; None where
            they are not known.
    """

    def __init__(
        self,
        oracle: Oracle,
        batch: Batch,
        threat: Threat,
        placement: Placement,
        rng: Streams,
        *,
        maps: bool = False,
        cycle: bool = False,
        answers: Tensor | None = None,
    ) -> None:
        threat.criterion.check(oracle.classes)
        grid = placement.grid
        variants = placement.variants
        device = batch.x.device
        if grid.shape != threat.domain.shape:
            raise ValueError(
                f"patches over inputs of shape {grid.shape} and samples of shape "
                f"{threat.domain.shape}"
            )

        # All variants of a slot's sample are kept: making them anew at each step would take longer
        # than the model. So are the answers about it.
        self._projection = Projection.of(grid, variants, learned=placement.learned)
        lattice = self._projection.lattice
        values = lattice.channels * lattice.places
        size = len(variants) * batch.x[0].numel() + kept_answers(values) * values
        n = min(placement.slots, len(batch), max(1, MEMORY // (size * batch.x.element_size())))

        self._oracle = oracle
        self._batch = batch
        self._threat = threat
        self._rng = rng
        self.rules = placement.rules
        self.grid = grid
        self.choices = placement.choices
        self.slots = Slots.empty(batch.x[:n], len(grid), oracle.classes)
        self.counts = Counts.empty(n)
        self._learned = placement.learned
        self.inputs = DistortedInputs(n, threat.domain, variants, device, learned=self._learned)
        self._prior = (placement.prior or Prior()).to(device)
        # The linear model: its values, the variants as it sees them, and what it has learned.
        self._projected = self._projection.inputs(self.inputs)
        self.posterior = Posterior(
            n,
            grid.channels,
            lattice.places,
            covariance=self._prior.covariance_for(grid.channels),
            surrogates=oracle.surrogates,
            device=device,
        )
        self._predictions = Predictions(
            self._projected,
            lattice,
            self.posterior,
            threat.distance,
            self.rules.temperature,
            self._projection.most,
        )
        # By variant the number of its distortion and severity, which a policy may name.
        self._pairs = pair_numbers(variants, device)
        self._options = pair_options(variants)
        self._wholes = wholes(variants)
        self._reach = extent(threat.distance, threat.domain)
        low, high = threat.domain.bounds()
        self._diameter = float(norms.l2((high - low).expand(1, *threat.domain.shape)))
        self._is_free = threat.eps >= EXTENT * self._reach
        self._widens = self.rules.comes_close(values) and bool(self._is_free.any())
        self._chooses_targets = any_class_counts(threat.criterion) and oracle.classes > 2
        self._cycle = cycle
        self._maps = maps
        self._answers = answers
        self.ways = Ways(batch.ids)
        # Episodes that were begun, over all passes through the batch.
        self._next = 0
        self._set_alive(torch.zeros(n, dtype=torch.bool))
        self.outcomes = no_outcomes(
            threat.eps, grid, len(looked_at(variants)), learned=self._learned
        )
        """Outcomes of all samples so far."""

    @property
    def waiting(self) -> bool:
        """True if some samples have had no episode yet."""
        return self._cycle or self._next < len(self._batch)

    @property
    def streams(self) -> Streams:
        """Randomness for the next action of each slot, by its sample and its number of steps."""
        return Streams(self.slots.streams)

    def _set_alive(self, alive: Tensor) -> None:
        """Set which slots have a running episode, (n,) bool on the host."""
        device = self._batch.x.device
        # The same slots as `rows`, by which the counters on the host are read.
        self._host = alive.nonzero()[:, 0]
        self.alive = alive.to(device)
        """(n,) bool: whether a slot has a running episode."""
        self.rows = self._host.to(device)
        """(m,) int64, ascending: the slots that have one; no new tensor before they change."""
        self._ids = self._batch.ids[self.slots.sample[self.rows]]

    def reset(self, mask: Tensor) -> Observation:
        """Put the next samples into the slots where `mask` holds, as long as there are any."""
        alive = self.alive.cpu().clone()
        free_slots = (mask.cpu() & ~alive).nonzero()[:, 0]

        while len(free_slots) and self.waiting:
            # One pass fills slots up to the end of the batch; the next restart begins behind it.
            restart, sample = divmod(self._next, len(self._batch))
            rows = free_slots[: len(self._batch) - sample]
            remainder = free_slots[len(self._batch) - sample :]
            alive[rows] = self._begin(rows, torch.arange(sample, sample + len(rows)), restart)
            self._next += len(rows)
            # Samples that cannot pay a query leave their slot free.
            free_slots = torch.cat([rows[~alive[rows]], remainder])

        self._set_alive(alive)
        return self._observation()

    def _begin(self, host: Tensor, sample: Tensor, restart: int) -> Tensor:
        """(m,) bool: which episodes begin, of samples (m,) in slots (m,).

        The others cannot pay a query.
        """
        rows = host.to(self.alive.device)
        sample = sample.to(self.alive.device)
        active = self._oracle.active(self._batch.ids[sample])
        alive = active.cpu()
        # Whether a sample is still open is the oracle's knowledge, which ends an episode before it
        # begins.
        if not bool(alive.any()):
            return alive

        rows = rows[active]
        sample = sample[active]
        x = self._batch.x[sample]
        # A first episode has the streams of the sample itself, so that restarts change nothing in
        # it.
        rng = self._rng.select(sample).fold(restart) if restart else self._rng.select(sample)
        self.slots.put(
            rows,
            sample=sample,
            x=x,
            full=x,
            variant=CLEAN,
            logits=0 if self._answers is None else self._answers[sample],
            # Both hold until the first answer, that to the clean input (`_note_answer`).
            margin=-1,
            start=-1,
            visits=0,
            gain=0,
            kept=0.5,
            radius=self._threat.eps[sample],
            # From -inf every margin is a gain, so the first window is never too slow.
            mark=-torch.inf,
            target=-1,
            lead=-torch.inf,
            tries=0,
        )
        self.inputs.put(rows, x, rng.fold(DRAW_STREAM), self._threat.select(sample))
        self._projection.copy(rows, self.inputs, self._projected)

        content = describe(x, self.grid)
        energy = self._prior.energies(content)
        self.slots.put(rows, content=content, energy=energy, streams=rng.fold("steps").keys)
        self.posterior.forget(rows, to_places(energy, self._projection.lattice))
        # Where `refine` is None the number follows from the age of the first success.
        self.counts.begin(host[alive], self.rules.refine or 0)
        return alive

    def step(self, action: Action) -> StepResult:
        """Carry out a dual action in every slot.

        Choices beyond a slot's pace, or of no effect, are replaced by -1 in place.
        """
        reward = torch.zeros(len(self.alive), device=self.alive.device)
        terminated, truncated = torch.zeros(
            2, len(self.alive), dtype=torch.bool, device=self.alive.device
        )
        rows = self.rows
        if not len(rows):
            return StepResult(self._observation(), reward, terminated, truncated)
        count = self.counts.take(self._host)
        if self._widens:
            self._widen(count)
        current = self.slots.take(rows)

        # Propose: of the patches that the policy names those of the best predictions, and what is
        # cleared.
        variant = self._propose(current, count, action)

        # Render: the input of this assignment, within the budget.
        clean = self.inputs.x[rows]
        full = self.inputs.render(rows, variant, self.grid)
        x = replace(self._threat, eps=current.radius).project(full.clone(), clean)

        # Ask, where the input has changed or must be asked about.
        changed = (norms.linf(x - current.x) > 0).cpu()
        # The answer to the clean input may have been given at the start.
        is_known = (count.fresh > 0) & (self._answers is not None)
        queried = changed | ((count.pending > 0) & ~is_known)
        logits = self._ask(queried, x, current.logits)
        current, margin = self._note_answer(current, count, x, logits)

        # Learn from the answer, whether the step is kept or not.
        # The answer to the clean input is of no change.
        learned = queried & (count.fresh == 0)
        if bool(learned.any()):
            index = self._on(learned.nonzero()[:, 0])
            change = self._projection.project((x - current.x)[index])
            change = change.view(len(index), self.grid.channels, -1)
            self.posterior.update(rows[index], change, (margin - current.margin)[index])
        gain = rise_of_margin(current, margin)
        if self.rules.reward == "dilution":
            y = self._batch.y[current.sample]
            gain = dilution_per_l2(current, x, logits, margin, y, clean)

        # Accept the step where it raises the margin, and read what followed.
        hits, accepted, slow, affordable = self._accept(
            current, count, queried, variant, full, x, logits, margin
        )
        self._count(count, queried, changed, accepted, slow)
        if self._maps:
            y = self._batch.y[current.sample, None]
            self.ways.note(
                self._ids,
                queried | is_known,
                accepted,
                probability=logits.softmax(1).gather(1, y)[:, 0],
                size=norms.l2(x - clean),
                before=current.variant,
                after=variant,
            )

        # Restart where the episode is stuck, refine where it succeeded, ask the surrogates where it
        # has moved.
        success = hits & queried
        over = self._follow(count, hits, success, affordable)
        # A pending question is no action, and nothing is paid for coming closer after a success.
        payable = (count.pending == 0) & (success | (self.counts.refining[self._host] == 0))
        reward[rows] = torch.where(self._on(payable), gain, 0)
        if bool(over.any()):
            finished = self._on(over)
            successes = self.outcomes.success[current.sample]
            terminated[rows] = finished & successes
            truncated[rows] = finished & ~successes
            self._end(over)
        return StepResult(self._observation(), reward, terminated, truncated)

    def _widen(self, count: Counts) -> None:
        """Set the radii of episodes without a budget that are to come close, until they succeed.

        A linear model of d values that t answers tell of finds the boundary at sqrt(d / t) times
        its distance, which is the missing margin over the length of the gradient.
        """
        rows = self.rows
        is_looking = self._is_free[self.slots.sample[rows]] & self._on(count.refining == 0)
        # In L2; of another distance it is the same share of the largest one.
        values = self.posterior.mean[0].numel()
        answers = self._on(count.asked.clamp(FIRST, values))
        gradient = self.posterior.unit[rows] * answers.sqrt()
        near = -self.slots.start[rows] / gradient.clamp_min(1e-30)
        share = (near / self._diameter).clamp(1e-6, 1)
        share = share ** self._on(1 - self.rules.widening(count.age))

        radius = self._reach * torch.where(self._on(count.asked < FIRST), START, share)
        self.slots.put(rows, radius=torch.where(is_looking, radius, self.slots.radius[rows]))

    def _on(self, flags: Tensor) -> Tensor:
        """A tensor of the host on the device, without waiting for it."""
        return flags.to(self.alive.device, non_blocking=True)

    def _pace(self, count: Counts) -> tuple[Tensor, Tensor]:
        """(m,) each: how many patches a slot may change now, and how many it may clear."""
        # By the steps since the last restart, after which steps are large again.
        changes = self.rules.changes(count.since, len(self.grid))
        refined = changes.clamp_min(round(CLOSER * len(self.grid)))
        changes = torch.where(count.refining > 0, refined, changes)
        removals = (changes * self.rules.removals).round().long()
        # At least one may be cleared, unless the rules only add.
        return changes, removals.clamp_min(1 if self.rules.removals else 0)

    def _propose(self, current: Slots, count: Counts, action: Action) -> Tensor:
        """(m, patches): the assignments that the action leads to."""
        rows = self.rows
        patches = len(self.grid)
        device = self.alive.device
        free = count.pending == 0
        changes, removals = self._pace(count)

        # Choices beyond the pace of a slot do not count.
        widths = (changes * self.rules.candidates).clamp_max(patches) * free
        add = first_choices(action[ADD][rows], self._on(widths))
        remove = first_choices(action[REMOVE][rows], self._on(removals * free))
        pair = action[DISTORTION][rows]
        variants, scores = self._choose(current, add, pair[:, 0], widths)

        # The patches of the best scores are changed; the action names them in the order of the
        # policy.
        best = scores.argsort(dim=1, descending=True, stable=True)
        is_among_best = torch.arange(best.shape[1], device=device) < self._on(changes)[:, None]
        # Back from the order of the scores to that of the action.
        selection = torch.zeros_like(is_among_best).scatter(1, best, is_among_best)
        add = torch.where(selection & (variants != CLEAN), add, -1)

        # A column behind the patches takes what no patch is chosen for.
        after = torch.cat([current.variant, torch.full_like(current.variant[:, :1], CLEAN)], 1)
        add_at = torch.where(add < 0, patches, add)
        added = torch.zeros_like(after, dtype=torch.bool).scatter_(1, add_at, True)
        # A patch that is added to is not cleared in the same step.
        remove = torch.where(added.gather(1, remove.clamp_min(0)), -1, remove)
        after.scatter_(1, add_at, variants)
        after.scatter_(1, torch.where(remove < 0, patches, remove), CLEAN)
        after = after[:, :patches]

        # A stuck episode lays one variant on all patches, whatever the policy says.
        if bool((count.laid != CLEAN).any()):
            laid = self._on(count.laid)[:, None]
            after = torch.where(laid != CLEAN, laid, after)
            add = torch.where(laid != CLEAN, -1, add)
            remove = torch.where(laid != CLEAN, -1, remove)
            self.counts.put(self._host, laid=CLEAN)

        action[ADD][rows] = add
        action[REMOVE][rows] = remove
        return after

    def _choose(
        self, current: Slots, patches: Tensor, pair: Tensor, widths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(m, k) each: the variant for each chosen patch (m, k), and its score.

        The variant is CLEAN where none would change anything. `pair` (m,) is the pair of distortion
        and severity that the policy asks for, 0 for any. Only the first `widths` (m,) patches of
        each row are looked at; the rows of one number are looked at together.
        """
        variants = torch.full_like(patches, CLEAN)
        scores = torch.full(patches.shape, -torch.inf, device=patches.device)
        size = min(self.rules.offers, len(self.inputs.variants))
        proposed = self.inputs.proposed
        full = self._projection.project(current.full)
        for width in sorted(set(widths.tolist()) - {0}):
            index = self._on((widths == width).nonzero()[:, 0])
            streams = Streams(current.streams[index])

            # Variants at random among those of the pair asked for, which 1 more than a number in
            # [0, 1) puts first; where they are few the first is repeated.
            fits = (pair[index, None] <= 0) | (self._pairs == pair[index, None])
            chance_of_offer = streams.fold("offers").uniform(len(self._pairs)) + fits
            offers = chance_of_offer.topk(size, 1).indices
            offers = torch.where(fits.gather(1, offers), offers, offers[:, :1])
            if self._learned:
                offers = torch.cat([offers, offers.new_full((len(offers), 1), proposed)], 1)
            chance = streams.fold("variants").normal(width, offers.shape[1])
            chosen, score = self._predictions.choose(
                self.rows[index],
                full[index],
                current.radius[index],
                current.visits[index],
                patches[index, :width],
                offers,
                chance,
            )
            variants[index, :width] = chosen
            scores[index, :width] = score
        return variants, scores

    def _ask(self, queried: Tensor, x: Tensor, logits: Tensor) -> Tensor:
        """(m, classes): `logits` with the answers to those inputs x (m, *shape) that are asked."""
        # Mostly all are asked, and then nothing is copied.
        if bool(queried.all()):
            return self._oracle.scores(self._ids, x).to(logits.dtype)
        if bool(queried.any()):
            index = self._on(queried.nonzero()[:, 0])
            answers = self._oracle.scores(self._ids[index], x[index]).to(logits.dtype)
            logits = logits.index_copy(0, index, answers)
        return logits

    def _margin(self, current: Slots, logits: Tensor, x: Tensor) -> Tensor:
        """(m,): margins of answers (m, classes) to inputs (m, *shape), towards their targets."""
        y = self._batch.y[current.sample]
        criterion = self._threat.criterion.select(current.sample)
        return margin_towards(criterion.margin(logits, y, x), logits, y, current.target)

    def _note_answer(
        self, current: Slots, count: Counts, x: Tensor, logits: Tensor
    ) -> tuple[Slots, Tensor]:
        """The state before the step, with the answer to the clean input; margins of the answers.

        The first answer of an episode is that to its clean input.
        """
        fresh = self._on(count.fresh > 0)
        y = self._batch.y[current.sample, None]
        # The lead of every other class over the true one, whose own is no rival.
        lead = (logits - logits.gather(1, y)).scatter(1, y, -torch.inf)
        margin = self._margin(current, logits, x)

        # The first answer is that to the clean input: it is the start of the margin.
        columns = {
            "clean": torch.where(fresh[:, None], logits, current.clean),
            "lead": torch.maximum(current.lead, lead),
            "margin": torch.where(fresh, margin, current.margin),
            "start": torch.where(fresh, margin, current.start),
        }
        self.slots.put(self.rows, **columns)
        return replace(current, **columns), margin

    def _accept(
        self,
        current: Slots,
        count: Counts,
        queried: Tensor,
        variant: Tensor,
        full: Tensor,
        x: Tensor,
        logits: Tensor,
        margin: Tensor,
    ) -> tuple[Tensor, ...]:
        """Keep the steps that raise the margin, and those that are kept in any case.

        Returns (m,) bool each, on the host: the criterion is met; the step was accepted; a window
        gained too little; another query can be paid.
        """
        effect = margin - current.margin
        # Steps after the answer to the clean input.
        later = self._on(count.fresh == 0)
        forced = self._on((count.forced > 0) & queried)
        accepted = (effect > 0) | self._on(count.pending > 0) | forced

        def kept(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(accepted.view(-1, *[1] * (new.ndim - 1)), new, old)

        edited = variant != current.variant
        # The effect for each edited patch, as a share of the clean input's margin.
        share = effect / (edited.sum(1).clamp_min(1) * current.start.abs().clamp_min(1e-6))
        # At the end of a window its gain is measured, and the next one begins at this margin.
        ends = self._on((count.fresh == 0) & (count.window + 1 >= WINDOW * self.rules.patience))
        new_margin = kept(margin, current.margin)
        self.slots.put(
            self.rows,
            x=kept(x, current.x),
            full=kept(full, current.full),
            variant=kept(variant, current.variant),
            logits=kept(logits, current.logits),
            margin=new_margin,
            mark=torch.where(ends, new_margin, current.mark),
            visits=current.visits + edited,
            gain=torch.where(edited, share[:, None], current.gain),
            # The mean moves by a tenth towards each step.
            kept=current.kept + 0.1 * (accepted.float() - current.kept) * later,
        )

        hits = margin > 0
        # A clean input that meets the criterion is a success without any assignment.
        self.outcomes.success[current.sample] |= hits & ~later
        # The margin is below 0 here, and minus it is what is missing.
        slow = ends & (new_margin - current.mark < -LITTLE * new_margin)
        # One copy brings all four flags to the host.
        affordable = self._oracle.affordable(self._ids)
        return torch.stack([hits, accepted, slow, affordable]).cpu().unbind()

    def _count(
        self, count: Counts, queried: Tensor, changed: Tensor, accepted: Tensor, slow: Tensor
    ) -> None:
        """Advance the counters after a step; flags count as 0 or 1."""
        # The first step, which asks about the clean input, does not count.
        later = (count.fresh == 0).long()
        patience = self.rules.patience
        window = count.window + later
        idle = torch.where(accepted, 0, count.idle + 1)
        # An episode whose gains are small looks elsewhere as one without any does.
        idle = torch.where(slow, idle.clamp_min(patience), idle) * later

        self.counts.put(
            self._host,
            since=count.since + later,
            window=torch.where(window >= WINDOW * patience, 0, window),
            idle=idle,
            asked=count.asked + later * queried,
            left=count.left - count.refining,
            forced=count.forced * ~accepted,
            moved=count.moved | (accepted & changed),
            pending=0,
            fresh=0,
        )

    def _follow(self, count: Counts, hits: Tensor, success: Tensor, affordable: Tensor) -> Tensor:
        """Do what the answers ask for; (m,) bool: the episodes that are over."""
        host = self._host
        counts = self.counts
        later = count.fresh == 0

        # While it refines, an episode looks for closer inputs and not for another place.
        stuck = (counts.idle[host] >= max(1, self.rules.patience)) & (count.refining == 0) & ~hits
        if self.rules.patience and bool(stuck.any()):
            self._lay_wholes(host[stuck])
        if bool((success & later).any()):
            self._note_success(host[success & later])

        age = count.age
        # Surrogates and learned parts are asked anew once the input has moved far enough.
        if self._oracle.surrogates or self._learned:
            moved = (age - counts.looked[host] >= TRUST.every) & (counts.moved[host] > 0)
            due = host[(counts.looked[host] < 0) | moved]
            if len(due):
                self._guide(due)

        counts.put(host, age=age + later)
        index = self._on(later.nonzero()[:, 0])
        streams = Streams(self.slots.streams[self.rows[index]]).fold("step")
        self.slots.put(self.rows[index], streams=streams.keys)

        refining = counts.refining[host] > 0
        # A refinement has steps of its own.
        exhausted = torch.where(refining, counts.left[host] <= 0, age + later >= self.rules.steps)
        return exhausted | ~affordable | (success & ~refining)

    def _end(self, over: Tensor) -> None:
        """Note the outcomes of the episodes that are over, and free their slots."""
        rows = self._on(self._host[over])
        sample = self.slots.sample[rows]
        change = self.slots.x[rows] - self.inputs.x[rows]
        self.outcomes.size[sample] = self._threat.distance.size(change)

        if self._maps:
            self.outcomes.map[sample] = self._predictions.map(rows)
        alive = torch.zeros(len(self.alive), dtype=torch.bool)
        alive[self._host[~over]] = True
        self._set_alive(alive)

    def _note_success(self, host: Tensor) -> None:
        """Note assignments that met the criterion; with refinement, look for closer ones next."""
        rows = self._on(host)
        current = self.slots.take(rows)
        clean = self.inputs.x[rows]
        outcomes = self.outcomes
        sample = current.sample
        size = self._threat.distance.size(current.x - clean)

        asked = self._on(self.counts.asked[host])
        # The first success counts; later ones of the episode are closer ones.
        is_first = ~outcomes.success[sample]
        outcomes.steps[sample] = torch.where(is_first, asked, outcomes.steps[sample])
        outcomes.success[sample] = True
        variant = current.variant
        if self._learned:
            variant = self._settle(rows, current)
            outcomes.content[sample] = self.inputs.inputs(
                rows, torch.full_like(rows, self.inputs.learned)
            )
        outcomes.variant[sample] = variant.to(torch.int16)
        outcomes.eps[sample] = torch.minimum(size, current.radius)
        contribution = self._standing(rows, current)[0]
        outcomes.value[sample] = contribution / current.start.abs().clamp_min(1e-6)[:, None]
        outcomes.slope[sample] = self._projection.spread(self.posterior.mean[rows])

        if self.rules.refine is None:
            self.counts.put(host, left=self.rules.remainder(self.counts.age[host]))
        if self.rules.refine != 0:
            self.counts.put(host, refining=1, pending=1)
            # From here on only inputs that are closer than this one are of use.
            self.slots.put(rows, radius=SHRINK * size, target=-1)

    def _lay_wholes(self, host: Tensor) -> None:
        """Lay a variant on all patches of stuck slots (m,), where the budget allows, or restart."""
        while len(host):
            complete = self.counts.wholes[host] >= len(self._wholes)
            if bool(complete.any()):
                self._restart(host[complete])
                host = host[~complete]
                continue

            # The next whole input of each; those that the budget does not allow go on to another.
            numbers = self._wholes[self.counts.wholes[host]]
            rows = self._on(host)
            self.counts.wholes[host] += 1
            change = self.inputs.inputs(rows, self._on(numbers)) - self.inputs.x[rows]
            fits = (self._threat.distance.size(change) <= self.slots.radius[rows]).cpu()
            self.counts.put(host[fits], laid=numbers[fits])
            host = host[~fits]

    def _restart(self, host: Tensor) -> None:
        """Begin with large steps again.

        By turns that is one step that is kept in any case, and a return to the clean input with
        another target class, for which no query is needed.
        """
        # The first, third and every other restart keeps a large step; those between return.
        anew = (self.counts.restarts[host] % 2 == 1) & self._chooses_targets
        self.counts.put(host, since=0, idle=0, window=0, restarts=self.counts.restarts[host] + 1)
        self.counts.put(host[~anew], forced=1)
        self.counts.put(host[anew], moved=1)
        self.slots.put(self._on(host), mark=-torch.inf, target=-1)
        if bool(anew.any()):
            self._return_to_clean(self._on(host[anew]))

        current = self.slots.take(self._on(host))
        self.slots.put(self._on(host), margin=self._margin(current, current.logits, current.x))

    def _return_to_clean(self, rows: Tensor) -> None:
        """Put the clean inputs into slots (m,), with another target class.

        Of the classes that came nearest it is the one that was tried least.
        """
        current = self.slots.take(rows)
        clean = self.inputs.x[rows]
        y = self._batch.y[self.slots.sample[rows], None]
        leader = current.logits.scatter(1, y, -torch.inf).argmax(1, keepdim=True)
        # What the search leads to now has had its try, whatever it aimed at.
        tries = current.tries.scatter_add(1, leader, torch.ones_like(current.tries))

        # All classes but the true one, at most.
        count = min(TARGETS, current.lead.shape[1] - 1)
        nearest = current.lead.topk(count, dim=1).indices
        # Of classes that were tried equally often the nearest: places are below `count`, so they
        # never outweigh a try.
        order = tries.gather(1, nearest) * count + torch.arange(count, device=rows.device)
        target = nearest.gather(1, order.argmin(1, keepdim=True))[:, 0]
        self.slots.put(
            rows,
            x=clean,
            full=clean,
            variant=CLEAN,
            logits=current.clean,
            visits=0,
            tries=tries,
            target=target,
        )

    def _guide(self, host: Tensor) -> None:
        """Move the posteriors of slots (m,) by gradients of the surrogates, without a query.

        With `learned`, content along the gradients is offered too.
        """
        rows = self._on(host)
        current = self.slots.take(rows)
        self.counts.put(host, looked=self.counts.age[host], moved=0)
        weights = current.logits
        if self._oracle.surrogates:
            weights = self._ask_surrogates(rows, current)
        if self._learned:
            self._offer_learned(host, current, weights)

    def _ask_surrogates(self, rows: Tensor, current: Slots) -> Tensor:
        """(m, classes): the weights of the logits whose gradients the posteriors now follow."""
        # The weights of all classes, since another class may lead after the next step.
        weights = class_weights(
            lambda logits: self._margin(current, logits, current.x),
            current.logits,
            Streams(current.streams),
        )
        slopes = self._oracle.slopes(self._batch.ids[current.sample], current.x, weights)
        surrogates = slopes.shape[1]
        slopes = self._projection.project(slopes.flatten(0, 1))
        slopes = slopes.view(len(rows), surrogates, self.grid.channels, -1)
        self.posterior.follow(rows, slopes)

        expected = self._prior.energies(current.content)
        self.slots.put(
            rows, energy=self.posterior.energies(rows, expected, self._projection.lattice)
        )
        return weights

    def _standing(self, rows: Tensor, current: Slots) -> tuple[Tensor, Tensor, Tensor]:
        """What each patch of slots (m,) contributes, and its price, as of `Predictions`."""
        full = self._projection.project(current.full)
        return self._predictions.standing(rows, full, current.radius)

    def _settle(self, rows: Tensor, current: Slots) -> Tensor:
        """(m, patches): the assignments of slots (m,), in which no proposal stands any more."""
        variant = self.inputs.settle(rows, current.variant, current.full)
        self.slots.put(rows, variant=variant)
        return variant

    def _offer_learned(self, host: Tensor, current: Slots, weights: Tensor) -> None:
        """Offer content along the expected gradients of slots (m,) on every patch.

        A clean input is moved along the surrogates' gradients for some steps, and the result is
        the next query.
        """
        rows = self._on(host)
        variant = self._settle(rows, current)
        clean = self.inputs.x[rows]
        distance = self._threat.distance
        # Without a budget the bounds are the limit.
        eps = current.radius.clamp_max(extent(distance, self._threat.domain))
        threat = replace(self._threat, eps=eps)

        mean = self.posterior.mean[rows].view_as(clean)
        x = threat.project(clean + per_sample(eps, clean) * distance.ascent(mean), clean)
        begins = (variant == CLEAN).all(1).cpu()
        if self._oracle.surrogates and bool(begins.any()):
            index = self._on(begins.nonzero()[:, 0])
            start = self._aim(rows[index], threat.select(index), weights[index])
            x = x.index_copy(0, index, start)
            self.counts.put(host[begins], laid=self.inputs.proposed)
        self.inputs.propose(rows, x)

    def _aim(self, rows: Tensor, threat: Threat, weights: Tensor) -> Tensor:
        """(m, *shape): inputs along the surrogates' gradients, from the clean ones of
        slots (m,).
        """
        clean = self.inputs.x[rows]
        ids = self._batch.ids[self.slots.sample[rows]]
        # Longer together than the budget, so that the steps can go round the edge of the ball.
        step = per_sample(AIM * threat.eps / AIMS, clean)

        x = clean
        for _ in range(AIMS):
            slopes = self._oracle.slopes(ids, x, weights).flatten(2)
            direction = self.posterior.mixed(rows, slopes).view_as(clean)
            x = threat.project(x + step * threat.distance.ascent(direction), clean)
        return x

    def _observation(self) -> Observation:
        """Observation of a policy; the rows of slots without an episode are zeros."""
        rows = self.rows
        patches = len(self.grid)
        current = self.slots.take(rows)
        count = self.counts.take(self._host)
        contribution, squares, price = self._standing(rows, current)

        # Clearing a patch gives its length back, at the price, and loses what it contributes.
        removal = price[:, None] * squares - contribution
        standing = current.variant != CLEAN
        scale = current.start.abs().clamp_min(1e-6)
        total = squares.sum(1)

        # What is no share is put into (-1, 1), relative to the clean margin and to a mean patch.
        dynamic = [
            current.energy.log(),
            standing.float(),
            squash(contribution / scale[:, None] * patches**0.5),
            squash(removal / scale[:, None] * patches**0.5),
            squares / total.clamp_min(1e-12)[:, None] * patches**0.5,
            current.visits.log1p(),
            squash(current.gain * patches**0.5),
        ]
        whole = [
            squash(current.margin / scale),
            self._on(count.age / self.rules.steps),
            (total.sqrt() / current.radius.clamp_min(1e-12)).clamp_max(2),
            standing.float().mean(1),
            current.kept,
            scale.log(),
        ]
        features = {
            "patch": torch.cat([current.content, torch.stack(dynamic, 2)], 2),
            "whole": torch.stack(whole, 1),
        }

        free = self._on(count.pending == 0)[:, None]
        removable = free & standing & (removal > 0) & (self.rules.removals > 0)
        allowed = (free.expand(-1, patches), removable, free.expand(-1, self._options))

        changes, removals = self._pace(count)
        additions = (changes * self.rules.candidates).clamp_max(patches)
        most = tuple(map(self._on, (additions, removals, torch.ones_like(changes))))

        def spread(tensor: Tensor) -> Tensor:
            """Rows of the running episodes among those of all slots."""
            zeros = tensor.new_zeros(len(self.alive), *tensor.shape[1:])
            return zeros.index_copy(0, rows, tensor)

        return Observation(*mapped(spread, (features, allowed, most)))


def first_choices(choices: Tensor, counts: Tensor) -> Tensor:
    """(m, k): the first `counts` (m,) choices of each row, -1 in place of the others."""
    is_first = torch.arange(choices.shape[1], device=choices.device) < counts[:, None]
    return torch.where(is_first, choices, -1)


def squash(values: Tensor) -> Tensor:
    """Into (-1, 1), the small ones nearly unchanged."""
    return values / (1 + values.abs())
