"""The ledger: the only way from an attack to the model, and the only judge of success.

An attack gets the ledger's `Oracle` in place of the model. The oracle answers queries; behind it
the ledger enforces access, budget, bounds and threat, counts the cost of each sample (`Costs`), and
keeps the best input of each sample (`Best`). A success is a legal input that meets the threat's
criterion, whatever the attack reports; one so near the boundary that rounding may decide is asked
about again, alone and in another batch.

If some values of the domain may not change, an attack never sees them: `Ledger.batch` and
`Ledger.threat` hold only the others, and so do the inputs of the oracle. The ledger adds the clean
values before it queries the model.

`core.eot` decides how often and in which precision the model is evaluated for one answer; every
evaluation counts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.costs import Best, Costs, earlier_rows, running_totals
from brinell.core.criterion import Criterion, Loss
from brinell.core.eot import EOT, Precision, question_cost
from brinell.core.errors import ContractError, MemoryShortError, ModelError, RequestError, one_line
from brinell.core.memory import is_memory_short
from brinell.core.model import Access, Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Differences, GradientAnswer, Oracle
from brinell.core.threat import Threat, size
from brinell.core.torch_settings import float32_products

NEAR_BOUNDARY = 2.0**-6
"""An answer in TF32 whose lead is above minus this share of the deciding scores may be a success
(design/0008-eot.md)."""

Derive = Callable[..., tuple[Tensor, Tensor]]
"""Criterion, logits, labels and inputs, then tensors that are aligned with them, to values and
input gradients."""


class _Query(NamedTuple):
    """The samples that the rows of a query speak of."""

    ids: Tensor
    x0: Tensor
    y: Tensor
    criterion: Criterion
    eps: Tensor
    limit: Tensor
    """(n,): eps with what rounding may add."""
    repeats: bool
    """True if an id occurs more than once."""

    def part(self, rows: slice | Tensor) -> "_Query":
        """The query of some rows."""
        return _Query(
            ids=self.ids[rows],
            x0=self.x0[rows],
            y=self.y[rows],
            criterion=self.criterion.select(rows),
            eps=self.eps[rows],
            limit=self.limit[rows],
            repeats=self.repeats,
        )

    def margin(self, logits: Tensor, x: Tensor) -> Tensor:
        """(n,): the margins of answers to inputs of these rows."""
        with torch.no_grad():
            return self.criterion.margin(logits, self.y, x)

    def derive(
        self, derive: Derive, aligned: Sequence[Tensor], logits: Tensor, leaf: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Values and gradients of an attack's `derive`.

        It gets a copy of the labels, because it may write to them.
        """
        return derive(self.criterion, logits, self.y.clone(), leaf, *aligned)


class Ledger:
    """Counts and judges the queries of one attack on one batch.

    Args:
        model: the model.
        batch: the samples, with ids 0 to n-1.
        threat: what counts as a success, with one eps per sample.
        access: what the attack declared that it needs.
        queries: forwards allowed per sample; None for no limit.
        batch_size: the most inputs shown to the model at once.
        minimal: whether a fooled sample goes on (to come closer), and inputs beyond eps may be
            asked about.
        reach: up to which multiple of eps inputs may be asked about; beyond eps they are never
            successes.
        eot: evaluations by whose mean a question is answered, for a model that draws random
            numbers.
        precision: that of `gradient` away from the boundary: tf32 is for a GPU.
        strongest: whether to keep, of samples without a success, the input of the largest margin;
            it costs a copy of what improves.
        surrogates: networks whose gradients the attack may follow.
        least: (n,) the smallest budgets of interest, by default those of the threat: a minimal
            attack that stops at eps stops there.
        on_pass: called with (forwards, backwards) after each batch, for progress.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        threat: Threat,
        *,
        access: Access = Access.GRADIENTS,
        queries: int | None = None,
        batch_size: int = 128,
        minimal: bool = False,
        reach: float = 1.0,
        eot: int = 1,
        precision: Precision = "float32",
        strongest: bool = False,
        surrogates: Sequence[Model] = (),
        least: Tensor | None = None,
        on_pass: Callable[[int, int], None] | None = None,
    ) -> None:
        n, device = len(batch), batch.x.device
        # The ledger judges by copies, so an attack that writes to its batch or threat does not
        # change the criterion.
        self._model = model
        self._batch = replace(batch, y=batch.y.clone())
        self._threat = replace(
            threat,
            eps=threat.eps.clone(),
            criterion=threat.criterion.select(torch.arange(n, device=device)),
        )
        self._limit = self._threat.eps + self._threat.tolerance()
        lowest = self._threat if least is None else replace(self._threat, eps=least)
        self._least = lowest.eps + lowest.tolerance()
        self._slack = threat.domain.slack
        self._domain = threat.domain
        self._is_free = threat.domain.is_free
        self._missing = threat.domain.missing(batch.x)
        starts = None if batch.start is None else self.movable(batch.start)
        self.batch = (
            batch if self._is_free else replace(batch, x=self.movable(batch.x), start=starts)
        )
        """The samples as an attack is given them: the values that may change."""
        self.threat = replace(
            threat, domain=threat.domain.free, criterion=threat.criterion.for_attack()
        )
        """The threat as an attack is given it."""
        # The version of a tensor counts writes into it.
        self._untouched = self.batch.x._version

        self._access = min(access, model.access)
        self._question_cost = question_cost(eot, precision)
        self._surrogates = tuple(surrogates)
        self._eot = EOT(model, eot)
        self._queries, self._batch_size, self._on_pass = queries, batch_size, on_pass
        self.is_cut = False
        """True if the attack was ended before its time."""
        self._minimal, self._reach, self._precision = minimal, reach, precision

        # An attack asks about the same tensor of ids step after step: what was looked up for it
        # holds as long as nobody writes into it and no further sample is fooled.
        self._last: tuple[Tensor, int, _Query] | None = None
        self._complete: tuple[Tensor, int, bool, int] | None = None
        """Ids that were all active, with what may have changed since."""
        self._successes = 0
        """Batches of answers with a success."""

        self.costs = Costs(n, device)
        self.confirmations = torch.zeros_like(self.costs.forwards)
        """(n,): forward evaluations by which the ledger, and not the attack, asked again about
        successes near the boundary."""
        self.best = Best(batch.x, model.classes, keeps_strongest=strongest)

    @property
    def fooled(self) -> Tensor:
        """(n,) bool: whether an adversarial input within the threat was found."""
        return self.best.first_success > 0

    @property
    def strongest(self) -> Tensor:
        """(n, *shape): the closest adversarial input; of a sample without one the input of the
        largest margin, if these are kept.
        """
        fooled = per_sample(self.fooled, self._batch.x)
        return torch.where(fooled, self.best.closest, self.best.strongest)

    def cut(self) -> None:
        """Note that the attack was ended before its time; nobody is told of the passes that judge
        what it found.
        """
        self.is_cut = True
        self._on_pass = None

    def affordable(self, ids: Tensor) -> Tensor:
        """(n,) bool: which rows have budget left.

        The rows before them with the same id are asked too.
        """
        if self._queries is None:
            return torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        return (
            self.costs.forwards[ids] + self._question_cost * (earlier_rows(ids) + 1)
            <= self._queries
        )

    def movable(self, x: Tensor) -> Tensor:
        """The values that may change.

        `x` are whole inputs (n, *shape), or what belongs to each of their values (n, k, *shape).
        """
        return x if self._is_free else self._domain.part(x)

    def full_inputs(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n, *shape): whole inputs.

        Values that may change are those of an attack's proposals, the others are clean.
        """
        if self._is_free:
            return x
        if x.shape != (len(ids), *self.batch.x.shape[1:]):
            raise ContractError(
                f"a query of {len(ids)} ids came with inputs of shape {tuple(x.shape)}"
            )

        clean = self._batch.x[ids]
        full = self._domain.merge(clean, x)
        # What is missing in the clean input stays missing.
        return full if self._missing is None else torch.where(self._missing[ids], clean, full)

    def oracle(self) -> Oracle:
        """The oracle that the attack gets, with `batch` and `threat`."""
        return self._oracle(self._surrogates)

    def _oracle(self, surrogates: tuple[Model, ...]) -> Oracle:
        """The oracle with these surrogates."""
        return Oracle(
            scores=partial(self._scores, Access.SCORES),
            # Labels ask for less access than scores, although the same pass gives both.
            loss=self._loss,
            labels=lambda ids, x: self._scores(Access.LABELS, ids, x).argmax(1),
            gradient=self._gradient,
            differences=self._differences,
            active=self._active,
            remaining=self._remaining,
            affordable=self.affordable,
            classes=self._threat.criterion.classes_for_attack(self._model.classes),
            surrogates=len(surrogates),
            slopes=partial(self._slopes, surrogates),
            follow=lambda models: self._oracle((*surrogates, *map(self._check_surrogate, models))),
        )

    # The questions, which the oracle explains

    def _active(self, ids: Tensor, stop_at_eps: bool = False) -> Tensor:
        """`Oracle.active`: (n,) bool, which samples are still worth a query."""
        if self._minimal and not stop_at_eps:
            return self.affordable(ids)
        robust = self.best.first_success[ids] == 0
        # A minimal attack is done with a sample once it is as close as anybody asks.
        if self._minimal:
            robust = self.best.distance[ids] > self._least[ids]
        return robust if self._queries is None else robust & self.affordable(ids)

    def _remaining(self, ids: Tensor, stop_at_eps: bool = False) -> Tensor | None:
        """`Oracle.remaining`: the rows (m,) that are active, None where all are."""
        state = (ids, ids._version, stop_at_eps, self._successes)
        # Without a budget samples leave by success alone, so that an equal state needs no look.
        if self._queries is None and self._complete is not None:
            # The ids by identity and version, which costs no comparison on the device.
            if self._complete[0] is ids and self._complete[1:] == state[1:]:
                return None

        rows = self._active(ids, stop_at_eps).nonzero()[:, 0]
        if len(rows) < len(ids):
            return rows
        self._complete = state
        return None

    def _scores(self, access: Access, ids: Tensor, x: Tensor) -> Tensor:
        """`Oracle.scores`: (n, classes) logits as attacks see them, at this access or above."""
        x = self.full_inputs(ids, x)
        query = self._admit(ids, x, access)
        answers = []
        # Answers are judged batch by batch, so that the memory of one batch suffices.
        with torch.no_grad():
            for rows in self._batches(len(ids)):
                part, inputs = (query, x) if rows is None else (query.part(rows), x[rows])
                logits = self._eot.mean(inputs)
                self._judge(part, inputs, logits, self._eot.count)
                answers.append(part.criterion.logits_for_attack(logits, part.y))
        return _join(answers)

    def _loss(self, ids: Tensor, x: Tensor, loss: Loss | None = None) -> Tensor:
        """`Oracle.loss`: (n,) values that rise towards success, of the margin without a loss."""
        logits = self._scores(Access.SCORES, ids, x)
        query = self._query(ids)
        criterion = query.criterion.for_attack()
        if loss is not None:
            return criterion.loss(loss, logits, query.y.clone())
        with torch.no_grad():
            return criterion.margin(logits, query.y, self.full_inputs(ids, x))

    def _gradient(
        self, ids: Tensor, x: Tensor, loss: Loss | None = None, *extra: Tensor
    ) -> GradientAnswer:
        """`Oracle.gradient`: value and input gradient of a loss, or without one of the margin."""

        def derive(
            criterion: Criterion, logits: Tensor, y: Tensor, leaf: Tensor, *extra: Tensor
        ) -> tuple[Tensor, Tensor]:
            if loss is None:
                value = criterion.margin(logits, y, leaf)
            elif extra:
                value = loss(criterion.logits_for_attack(logits, y), y, *extra)
            else:
                value = criterion.loss(loss, logits, y)
            return value.detach(), _gradient_or_zero(value, leaf)

        # A mean over random answers is no margin of one answer, and is judged by the mean logits.
        of_margins = loss is None and self._eot.count == 1
        return GradientAnswer(
            *self._differentiate(ids, x, derive, extra, self._precision, of_margins=of_margins)
        )

    def _differences(self, ids: Tensor, x: Tensor, classes: Tensor) -> Differences:
        """`Oracle.differences`: logits of `classes` (n, k) minus the true one, with gradients."""
        k = classes.shape[1]

        def derive(
            criterion: Criterion, logits: Tensor, y: Tensor, leaf: Tensor, rivals: Tensor
        ) -> tuple[Tensor, Tensor]:
            logits = criterion.logits_for_attack(logits, y)
            lead = logits.gather(1, rivals) - logits.gather(1, y[:, None])
            # The graph is needed until the last class.
            grads = [_gradient_or_zero(lead[:, j], leaf, keep=j < k - 1) for j in range(k)]
            # A single gradient is not copied, as a stack would.
            grad = grads[0][:, None] if k == 1 else torch.stack(grads, 1)
            return lead.detach(), grad

        return Differences(*self._differentiate(ids, x, derive, (classes,), "float32", backwards=k))

    def _differentiate(
        self,
        ids: Tensor,
        x: Tensor,
        derive: Derive,
        aligned: Sequence[Tensor],
        precision: Precision,
        *,
        backwards: int = 1,
        of_margins: bool = False,
    ) -> list[Tensor]:
        """The logits, then the values and input gradients that `derive` makes of them.

        Args:
            ids: (n,) the samples.
            x: (n, *shape) the values that may change.
            derive: gets the rows of `aligned` that belong to its batch.
            aligned: further tensors (n, ...).
            precision: that of the evaluation away from the boundary.
            backwards: the backward passes that `derive` makes.
            of_margins: True if the values are margins of the criterion, and need not be computed
                again.
        """
        x = self.full_inputs(ids, x)
        query = self._admit(ids, x, Access.GRADIENTS)
        columns = []
        for rows in self._batches(len(ids)):
            part, inputs, tensors = query, x, aligned
            if rows is not None:
                part, inputs, tensors = (
                    query.part(rows),
                    x[rows],
                    [values[rows] for values in aligned],
                )

            # A random model is asked several times, and a row near the boundary again in float32.
            times: int | Tensor = self._eot.count
            if precision == "float32":
                logits, value, grad = self._eot.differentiate(
                    inputs, partial(part.derive, derive, tensors)
                )
            else:
                (logits, value, grad), times = self._differentiate_in_tf32(
                    part, inputs, derive, tensors
                )
            margin = self._judge(
                part,
                inputs,
                logits,
                times,
                backwards=backwards,
                margin=value if of_margins else None,
            )
            # An attack sees the logits that its criterion leaves, never the model's own.
            columns.append(
                [
                    part.criterion.logits_for_attack(logits, part.y, margin),
                    value,
                    self.movable(grad),
                ]
            )
        return [_join(list(column)) for column in zip(*columns, strict=True)]

    def _differentiate_in_tf32(
        self, query: _Query, x: Tensor, derive: Derive, aligned: Sequence[Tensor]
    ) -> tuple[list[Tensor], Tensor]:
        """Derivatives in TF32, and (n,) the forwards that each row took.

        Those at inputs that come near a success are computed again in float32, so that no success
        rests on 10 bits.
        """
        with float32_products(tf32=True):
            derivatives = self._eot.differentiate(x, partial(query.derive, derive, aligned))
        logits = derivatives[0]
        # TF32 rounds to ten bits, which may decide whether an input near the boundary is
        # adversarial.
        near_boundary = query.margin(logits, x) > -NEAR_BOUNDARY * losses.scale(logits, query.y)

        rows = near_boundary.nonzero()[:, 0]
        if len(rows):
            derive_rows = partial(
                query.part(rows).derive, derive, [values[rows] for values in aligned]
            )
            for values, exact in zip(
                derivatives, self._eot.differentiate(x[rows], derive_rows), strict=True
            ):
                values[rows] = exact
        return derivatives, self._eot.count * (1 + near_boundary.long())

    def _slopes(
        self, surrogates: tuple[Model, ...], ids: Tensor, x: Tensor, weights: Tensor
    ) -> Tensor:
        """`Oracle.slopes`: gradients of the surrogates' logits, weighted by (n, classes)."""
        x = self.full_inputs(ids, x)
        slopes = x.new_zeros(len(x), len(surrogates), *x.shape[1:])

        for column, model in enumerate(surrogates):
            for rows in self._batches(len(x)):
                # The gradient of each surrogate's logits, weighted for the attack.
                part = slice(None) if rows is None else rows
                leaf = x[part].detach().requires_grad_()
                with torch.enable_grad():
                    slopes[part, column] = _gradient_or_zero(
                        (model.predict(leaf) * weights[part]).sum(1), leaf
                    )
            if not bool(slopes[:, column].isfinite().all()):
                raise ModelError(
                    f"the surrogate {model.name} gives a gradient of NaN or infinity: leave it out"
                )

        self.costs.surrogate_passes.index_add_(0, ids, torch.full_like(ids, len(surrogates)))
        return self.movable(slopes)

    def _check_surrogate(self, model: Model) -> Model:
        """The surrogate, after a check that it tells as many classes apart as the model."""
        if model.classes != self._model.classes:
            raise RequestError(
                f"the surrogate {model.name} tells {model.classes} classes apart, "
                f"and {self._model.name} "
                f"{self._model.classes}: name a policy that was trained for this model's classes"
            )
        return model

    # What the ledger does about each question

    def _batches(self, n: int) -> list[slice | None]:
        """Slices of at most a batch; None for all rows where they are one."""
        if n <= self._batch_size:
            return [None]
        return [slice(start, start + self._batch_size) for start in range(0, n, self._batch_size)]

    def _admit(self, ids: Tensor, x: Tensor, access: Access) -> _Query:
        """The query, unless the attack may not make it: then the model never sees it."""
        if access > self._access:
            raise ContractError(
                f"the attack asked for {access.name.lower()} and has access to "
                f"{self._access.name.lower()} only"
            )
        if len(ids) == 0 or x.shape != (len(ids), *self._batch.x.shape[1:]):
            raise ContractError(
                f"a query of {len(ids)} ids came with inputs of shape {tuple(x.shape)}"
            )
        # The clean inputs are shared by all attacks of a run: one that writes into them spoils the
        # rest.
        if self.batch.x._version != self._untouched:
            raise ContractError(
                "the attack wrote into the clean inputs; it must clone what it changes"
            )

        query = self._query(ids)
        if self._queries is not None and not self.affordable(ids).all():
            raise ContractError(
                f"the attack asked about a sample whose budget of {self._queries} queries is spent"
            )
        return query

    def _query(self, ids: Tensor) -> _Query:
        """The samples of these ids, looked up once as long as the attack passes the same tensor."""
        if self._last is not None and self._last[0] is ids and self._last[1] == ids._version:
            return self._last[2]
        n, batch, threat = len(ids), self._batch, self._threat
        query = _Query(
            ids=batch.ids,
            x0=batch.x,
            y=batch.y,
            criterion=threat.criterion,
            eps=threat.eps,
            limit=self._limit,
            repeats=False,
        )
        # Most attacks ask about all samples at once, for which nothing has to be picked.
        if n != len(batch) or not bool((ids == batch.ids).all()):
            query = query.part(ids)._replace(repeats=len(torch.unique(ids)) < n)
        self._last = ids, ids._version, query
        return query

    def _judge(
        self,
        query: _Query,
        x: Tensor,
        logits: Tensor,
        times: int | Tensor,
        *,
        backwards: int = 0,
        margin: Tensor | None = None,
    ) -> Tensor:
        """Judge answers to a batch, count `times` forwards for each row, and record successes.

        Returns:
            The margins (n,).
        """
        distance = size(self._threat.distance, x, query.x0)
        legal = distance <= query.limit
        margin = query.margin(logits, x) if margin is None else margin
        success, all_legal = self._find_successes(query, x, logits, distance, margin)

        # The counters before this pass: a success at its first row costs one query more than these.
        before = None if success is None else self.costs.forwards[query.ids]
        forwards = torch.full_like(query.ids, times) if isinstance(times, int) else times
        self.costs.add(query.ids, forwards, backwards)
        if self._on_pass is not None:
            total = times * len(x) if isinstance(times, int) else int(times.sum())
            self._on_pass(total, total * backwards)

        if success is not None:
            success, margin = self._confirm(query, x, logits, success, margin)
        counted = margin if all_legal else torch.where(legal, margin, -torch.inf)
        self.best.raise_margins(query.ids, x, counted, query.repeats)

        if success is not None and before is not None:
            self._successes += 1

            # A sample that occurs several times in a batch pays for its rows one after the other.
            totals = before + (running_totals(query.ids, forwards) if query.repeats else forwards)
            rows = success.nonzero()[:, 0]
            self.best.note_successes(
                query.ids[rows], x[rows], logits[rows], distance[rows], totals[rows]
            )
        return margin

    def _find_successes(
        self, query: _Query, x: Tensor, logits: Tensor, distance: Tensor, margin: Tensor
    ) -> tuple[Tensor | None, bool]:
        """The successes (n,), None without one, and whether all inputs are within eps.

        Inputs that an attack may not ask about, and answers that cannot be judged, are refused.
        """
        legal = distance <= query.limit
        success: Tensor | None = None
        if self._minimal:
            success = legal & query.criterion.is_met(margin, logits, query.y)
        # The largest margin, below 0 only where nothing succeeds; of a minimal attack, which has
        # looked already, 1 with a success and else 0.
        lead = margin.amax() if success is None else success.any().float()
        ends = self._threat.domain.ends_beyond(x)
        # What decides is read back in one go: without a success this read is the only one of a
        # query, and each read stops a GPU.
        readings = torch.stack((*ends, logits.amax(), legal.all().float(), lead))
        below, above, largest, all_legal, peak = readings.tolist()

        # The comparisons are turned so that NaN is refused too.
        if not (below <= self._slack and above <= self._slack):
            raise ContractError(
                f"the attack left the bounds of the data by {max(below, above):.3g}"
            )
        if not largest < math.inf:
            raise ModelError(
                "the model answered NaN or infinity: it cannot be judged; look "
                "for overflow or a division by zero in it"
            )
        if not all_legal and not self._minimal:
            self._check_reach(distance, query)

        # No criterion is met below a margin of 0, so most queries need no further look.
        if success is None and peak >= 0:
            success = legal & query.criterion.is_met(margin, logits, query.y)
            peak = float(success.any())
        return (success if peak > 0 else None), bool(all_legal)

    def _confirm(
        self, query: _Query, x: Tensor, logits: Tensor, success: Tensor, margin: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Successes (n,) and margins (n,), without those that rounding alone made."""
        close = success & (margin <= losses.rounding(logits, query.y))
        if not bool(close.any()):
            return success, margin
        refuted = self._refuted(query, x, close)
        return success & ~refuted, torch.where(refuted, margin.clamp_max(0), margin)

    def _refuted(self, query: _Query, x: Tensor, close: Tensor) -> Tensor:
        """(n,) bool: rows of those in `close` (n,) that do not succeed when asked about again.

        The model answers them together, and each alone.
        """
        refuted = torch.zeros_like(close)
        rows = close.nonzero()[:, 0]
        # Together and one by one: a success must not depend on the batch that it came in.
        for part in (rows, *torch.split(rows, 1)):
            with torch.no_grad():
                logits = self._eot.mean(x[part])
            self.confirmations.index_add_(
                0, query.ids[part], torch.full_like(part, self._eot.count)
            )
            if self._on_pass is not None:
                self._on_pass(self._eot.count * len(part), 0)  # no backward pass

            criterion = query.criterion.select(part)
            y = query.y[part]
            refuted[part] |= ~criterion.is_met(criterion.margin(logits, y, x[part]), logits, y)
        return refuted

    def _check_reach(self, distance: Tensor, query: _Query) -> None:
        """Refuse inputs whose `distance` (n,) from the clean ones exceeds the attack's reach."""
        if self._reach == math.inf:
            return
        # Some attacks look beyond their budget by design, and say how far.
        beyond = (self._reach - 1) * query.eps
        if not (distance <= query.limit + beyond).all():
            of = "eps" if self._reach == 1 else f"{self._reach:g} eps"
            over = (distance - query.eps - beyond).max().item()
            raise ContractError(
                f"the attack left the budget: {over:.3g} beyond {of} in "
                f"{self._threat.distance.name}"
            )


def _join(parts: list[Tensor]) -> Tensor:
    """The parts as one tensor; a single one as it is, without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _gradient_or_zero(value: Tensor, leaf: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of the summed values (n,).

    Zeros where the model's answer does not depend on its input differentiably.
    """
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    try:
        # The gradient of a sum: with a vector beside the values torch imports sympy, 50 MB.
        (grad,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, retain_graph=keep)
    except RuntimeError as error:
        if not is_memory_short(error):
            raise ModelError(
                f"the model answers, but torch cannot differentiate it ({one_line(error)})"
            ) from error
        raise MemoryShortError(
            f"a gradient at {len(leaf)} inputs does not fit into memory ({one_line(error)})"
        ) from error

    return torch.zeros_like(leaf) if grad is None else grad
