"""The ledger: the only way from an attack to the model, and the only judge of success.

An attack gets the ledger's `Oracle` in place of the model. The oracle answers queries; behind it the ledger enforces access,
budget, bounds and threat, counts the cost of each sample (`Costs`), and keeps the best input of each sample (`Best`). A success
is a legal input that meets the threat's criterion, whatever the attack reports; one so near the boundary that rounding may
decide is asked about again, alone and in another batch.

If some values of the domain may not change, an attack never sees them: `Ledger.batch` and `Ledger.threat` hold only the others,
and so do the inputs of the oracle. The ledger adds the clean values before it queries the model.

`core.eot` decides how often and in which precision the model is evaluated for one answer; every evaluation counts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.costs import Best, Costs, earlier_rows
from brinell.core.criterion import Criterion, Loss
from brinell.core.eot import EOT, Precision, Reduced, Rows, question_cost
from brinell.core.errors import ContractError, MemoryShortError, ModelError, RequestError, one_line
from brinell.core.memory import is_memory_short
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch, Differences, Gradient, Oracle
from brinell.core.surrogates import slopes
from brinell.core.threat import Threat
from brinell.core.threat import size as size_of

Derive = Callable[..., tuple[Tensor, Tensor]]
"""Criterion, logits, labels and inputs, then tensors that are aligned with them, to values and input gradients."""


class _Query(NamedTuple):
    """The samples that the rows of a query speak of."""

    ids: Tensor
    x0: Tensor
    y: Tensor
    criterion: Criterion
    eps: Tensor
    limit: Tensor
    """(n,): eps with what rounding may add."""
    earlier: Tensor | None
    """(n,): how many rows before each in its batch have its id; None where no id repeats."""

    def part(self, rows: slice) -> "_Query":
        """The same query for some of its rows."""
        if rows.stop - rows.start == len(self.ids):
            return self
        ids, x0, y, criterion, eps, limit, earlier = self
        earlier = None if earlier is None else earlier[rows]
        return _Query(ids[rows], x0[rows], y[rows], criterion.select(rows), eps[rows], limit[rows], earlier)

    def margin(self, logits: Tensor, x: Tensor) -> Tensor:
        """(n,): margins of the criterion, which judges whole inputs."""
        with torch.no_grad():
            return self.criterion.margin(logits, self.y, x)

    def logits_for_attack(self, logits: Tensor, margin: Tensor | None = None) -> Tensor:
        """(n, classes): logits as the attack is shown them; with their margins (n,) where it follows gradients."""
        return self.criterion.logits_for_attack(logits, self.y, margin)

    def derive(self, derive: Derive, aligned: list[Tensor], logits: Tensor, leaf: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Apply an attack's `derive` to the answers of some rows. It gets a copy of the labels, because it may write to them."""
        tensors = (values[rows] for values in aligned)
        return derive(self.criterion.select(rows), logits, self.y[rows].clone(), leaf, *tensors)


class Ledger:
    """Counts and judges the queries of one attack on one batch.

    Args:
        model: the model.
        batch: the samples, with ids 0 to n-1.
        threat: what counts as a success, with one eps per sample.
        access: what the attack declared that it needs.
        queries: forwards allowed per sample; None for no limit.
        batch_size: the most inputs shown to the model at once.
        minimal: whether a fooled sample goes on (to come closer), and inputs beyond eps may be asked about.
        reach: up to which multiple of eps inputs may be asked about; beyond eps they are never successes.
        eot: evaluations by whose mean a question is answered, for a model that draws random numbers.
        precision: that of `gradient` away from the boundary: tf32 is for a GPU.
        strongest: whether to keep, of samples without a success, the input of the largest margin; it costs a copy of what
            improves.
        surrogates: networks whose gradients the attack may follow.
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
        on_pass: Callable[[int, int], None] | None = None,
    ) -> None:
        n, device = len(batch), batch.x.device
        # The ledger judges by copies, so an attack that writes to its batch or threat does not change the criterion.
        self._model, self._batch = model, replace(batch, y=batch.y.clone())
        self._threat = replace(threat, eps=threat.eps.clone(), criterion=threat.criterion.select(torch.arange(n, device=device)))
        self._limit, self._slack = self._threat.eps + self._threat.tolerance(), threat.domain.slack
        movable = threat.domain.movable
        self._movable = None if movable is None else movable.to(device)
        starts = None if batch.start is None else self.movable(batch.start)
        self.batch = batch if movable is None else replace(batch, x=self.movable(batch.x), start=starts)
        """The samples as an attack is given them: the values that may change."""
        self.threat = replace(threat, domain=threat.domain.free, criterion=threat.criterion.for_attack())
        """The threat as an attack is given it."""
        self._untouched = self.batch.x._version
        self._access = min(access, model.access)
        self._queries, self._question_cost = queries, question_cost(eot, precision)
        self._surrogates = tuple(surrogates)
        self._batch_size, self._minimal, self._reach, self._on_pass = batch_size, minimal, reach, on_pass
        self._eot = EOT(model, eot, batch_size)
        self._gradients = self._eot if precision == "float32" else Reduced(self._eot)
        self._last: tuple[Tensor, int, _Query] | None = None
        self._successes = 0
        """Batches of answers with a success."""
        self._complete: tuple[Tensor, int, bool, int] | None = None
        """Ids that were all active, with what may have changed since."""
        self.costs = Costs(n, device)
        self.confirmations = torch.zeros_like(self.costs.forwards)
        """(n,): forward evaluations by which the ledger, and not the attack, asked again about successes near the boundary."""
        self.best = Best(batch.x, model.classes, keeps_strongest=strongest)

    @property
    def fooled(self) -> Tensor:
        """(n,) bool: whether an adversarial input within the threat was found."""
        return self.best.first_success > 0

    def affordable(self, ids: Tensor) -> Tensor:
        """(n,) bool: which rows have budget left, if the rows before them with the same id are asked too."""
        if self._queries is None:
            return torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        return self.costs.forwards[ids] + self._question_cost * (earlier_rows(ids) + 1) <= self._queries

    def movable(self, x: Tensor) -> Tensor:
        """The values that may change, of whole inputs (n, *shape) or of what belongs to each of their values (n, k, *shape)."""
        return x if self._movable is None else x.index_select(x.ndim - self._batch.x.ndim + 1, self._movable)

    def full_inputs(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n, *shape): whole inputs, from an attack's proposals for the values that may change and the clean values elsewhere."""
        if self._movable is None:
            return x
        if x.shape != (len(ids), *self.batch.x.shape[1:]):
            raise ContractError(f"a query of {len(ids)} ids came with inputs of shape {tuple(x.shape)}")
        return self._batch.x[ids].index_copy_(1, self._movable, x)

    def oracle(self) -> Oracle:
        """The oracle that the attack gets, with `batch` and `threat`."""
        return self._oracle(self._surrogates)

    def _oracle(self, surrogates: tuple[Model, ...]) -> Oracle:
        return Oracle(
            scores=lambda ids, x: self._scores(ids, x, Access.SCORES),
            loss=lambda ids, x, loss=None: self._loss(ids, x, loss),
            labels=lambda ids, x: self._scores(ids, x, Access.LABELS).argmax(1),
            gradient=lambda ids, x, loss=None, *extra: self._gradient(ids, x, loss, *extra),
            differences=lambda ids, x, classes: self._differences(ids, x, classes),
            active=lambda ids, stop_at_eps=False: self._active(ids, stop_at_eps),
            remaining=lambda ids, stop_at_eps=False: self._remaining(ids, stop_at_eps),
            affordable=self.affordable,
            classes=self._threat.criterion.classes_for_attack(self._model.classes),
            surrogates=len(surrogates),
            slopes=partial(self._slopes, surrogates),
            follow=lambda models: self._oracle((*surrogates, *self._fitting(models))),
        )

    # The questions

    def _active(self, ids: Tensor, stop_at_eps: bool) -> Tensor:
        """(n,) bool: samples that are still worth a query."""
        if self._minimal and not stop_at_eps:
            return self.affordable(ids)
        robust = self.best.first_success[ids] == 0
        return robust if self._queries is None else robust & self.affordable(ids)

    def _remaining(self, ids: Tensor, stop_at_eps: bool) -> Tensor | None:
        """The active rows; None where all are, which is known without a look at the device until a sample is fooled."""
        complete = (ids, ids._version, stop_at_eps, self._successes)
        if self._queries is None and self._complete is not None:
            if self._complete[0] is ids and self._complete[1:] == complete[1:]:
                return None
        rows = self._active(ids, stop_at_eps).nonzero()[:, 0]
        if len(rows) < len(ids):
            return rows
        self._complete = complete
        return None

    def _scores(self, ids: Tensor, x: Tensor, access: Access) -> Tensor:
        """Ask for logits, judge and count."""
        x = self.full_inputs(ids, x)
        query = self._admit(ids, x, access)
        answers = []
        with torch.no_grad():
            for rows in self._parts(ids):
                part, inputs = query.part(rows), x[rows]
                logits = self._eot.mean(inputs)
                self._settle(part, inputs, logits, self._eot.count)
                answers.append(part.logits_for_attack(logits))
        return _join(answers)

    def _loss(self, ids: Tensor, x: Tensor, loss: Loss | None) -> Tensor:
        """Ask for losses, judge and count."""
        logits = self._scores(ids, x, Access.SCORES)
        query = self._query(ids)
        criterion = query.criterion.for_attack()
        if loss is not None:
            return criterion.loss(loss, logits, query.y.clone())
        with torch.no_grad():
            return criterion.margin(logits, query.y, self.full_inputs(ids, x))

    def _gradient(self, ids: Tensor, x: Tensor, loss: Loss | None = None, *extra: Tensor) -> Gradient:
        """Ask for gradients, judge and count."""

        def derive(criterion: Criterion, logits: Tensor, y: Tensor, leaf: Tensor, *extra: Tensor) -> tuple[Tensor, Tensor]:
            """Loss and gradient of one answer."""
            if loss is None:
                value = criterion.margin(logits, y, leaf)
            elif extra:
                value = loss(criterion.logits_for_attack(logits, y), y, *extra)
            else:
                value = criterion.loss(loss, logits, y)
            return value.detach(), _gradient_or_zero(value, leaf)

        margins = loss is None and self._eot.count == 1
        return Gradient(*self._derivatives(ids, x, derive, extra, self._gradients, backwards=1, margins=margins))

    def _differences(self, ids: Tensor, x: Tensor, classes: Tensor) -> Differences:
        """Ask for differences of logits with their gradients, judge and count."""
        k = classes.shape[1]

        def derive(criterion: Criterion, logits: Tensor, y: Tensor, leaf: Tensor, *aligned: Tensor) -> tuple[Tensor, Tensor]:
            """Differences and gradients of one answer."""
            logits = criterion.logits_for_attack(logits, y)
            lead = logits.gather(1, aligned[0]) - logits.gather(1, y[:, None])
            grads = [_gradient_or_zero(lead[:, j], leaf, keep=j < k - 1) for j in range(k)]
            return lead.detach(), grads[0][:, None] if k == 1 else torch.stack(grads, 1)

        return Differences(*self._derivatives(ids, x, derive, (classes,), self._eot, backwards=k))

    def _derivatives(
        self,
        ids: Tensor,
        x: Tensor,
        derive: Derive,
        aligned: tuple[Tensor, ...],
        asker: EOT | Reduced,
        *,
        backwards: int,
        margins: bool = False,
    ) -> list[Tensor]:
        """The logits, then the values and input gradients that `derive` makes of them in as many backward passes.

        `aligned` are tensors (n, ...) of which `derive` is given the rows; `margins` says that the values are the margins of the
        criterion, which then need not be computed again.
        """
        x = self.full_inputs(ids, x)
        query = self._admit(ids, x, Access.GRADIENTS)
        answers = []
        for rows in self._parts(ids):
            part, inputs, tensors = query.part(rows), x[rows], [values[rows] for values in aligned]
            answer = asker.differentiate(inputs, partial(part.derive, derive, tensors), part.margin)
            margin = answer.value if margins else None
            margin = self._settle(part, inputs, answer.logits, answer.times, backwards=backwards, margin=margin)
            answers.append([part.logits_for_attack(answer.logits, margin), answer.value, self.movable(answer.grad)])
        return [_join(list(column)) for column in zip(*answers, strict=True)]

    def _slopes(self, surrogates: tuple[Model, ...], ids: Tensor, x: Tensor, weights: Tensor) -> Tensor:
        """Ask the surrogates for gradients, and count their passes."""
        if not surrogates:
            return x.new_zeros(len(x), 0, *x.shape[1:])
        self.costs.add_surrogate_passes(ids, len(surrogates))
        return self.movable(slopes(surrogates, self.full_inputs(ids, x), weights, self._batch_size))

    def _fitting(self, models: Sequence[Model]) -> tuple[Model, ...]:
        """The surrogates that an attack brings; refuses one of other classes."""
        for model in models:
            if model.classes != self._model.classes:
                raise RequestError(
                    f"the surrogate {model.name} tells {model.classes} classes apart, and {self._model.name} "
                    f"{self._model.classes}: name a policy that was trained for this model's classes"
                )
        return tuple(models)

    # What is done about each of them

    def _parts(self, ids: Tensor) -> list[slice]:
        """Slices of at most a batch."""
        return [slice(start, min(start + self._batch_size, len(ids))) for start in range(0, len(ids), self._batch_size)]

    def _admit(self, ids: Tensor, x: Tensor, access: Access) -> _Query:
        """Refuse a query that the attack may not make, before the model sees it."""
        if access > self._access:
            raise ContractError(f"the attack asked for {access.name.lower()} and has access to {self._access.name.lower()} only")
        if len(ids) == 0 or x.shape != (len(ids), *self._batch.x.shape[1:]):
            raise ContractError(f"a query of {len(ids)} ids came with inputs of shape {tuple(x.shape)}")
        if self.batch.x._version != self._untouched:
            raise ContractError("the attack wrote into the clean inputs; it must clone what it changes")
        query = self._query(ids)
        if self._queries is not None and not self.affordable(ids).all():
            raise ContractError(f"the attack asked about a sample whose budget of {self._queries} queries is spent")
        return query

    def _query(self, ids: Tensor) -> _Query:
        """The samples of these ids, looked up once as long as the attack passes the same tensor."""
        if self._last is not None and self._last[0] is ids and self._last[1] == ids._version:
            return self._last[2]
        full_batch = len(ids) == len(self._batch) and bool((ids == self._batch.ids).all())
        repeats = not full_batch and len(torch.unique(ids)) < len(ids)
        query = _Query(
            ids=ids,
            x0=self._batch.x if full_batch else self._batch.x[ids],
            y=self._batch.y[ids],
            criterion=self._threat.criterion.select(ids),
            eps=self._threat.eps[ids],
            limit=self._limit[ids],
            earlier=_join([earlier_rows(ids[rows]) for rows in self._parts(ids)]) if repeats else None,
        )
        self._last = ids, ids._version, query
        return query

    def _settle(
        self,
        query: _Query,
        x: Tensor,
        logits: Tensor,
        times: int | Tensor,
        *,
        backwards: int = 0,
        margin: Tensor | None = None,
    ) -> Tensor:
        """Judge the model's answers to a batch, count `times` forwards for each row, and record successes and margins.

        Returns:
            The margins (n,) of the criterion.
        """
        size = size_of(self._threat.distance, x, query.x0)
        legal = size <= query.limit
        margin = query.margin(logits, x) if margin is None else margin
        success = legal & query.criterion.is_met(margin, logits, query.y)
        containment = self._threat.domain.excess(x) <= self._slack
        flags = [containment, (logits < torch.inf).all(), legal.all(), success.any()]  # NaN is not below infinity
        in_bounds, finite, all_legal, any_success = torch.stack(flags).tolist()  # the one read of a query
        if not in_bounds:
            excess = float(self._threat.domain.excess(x))
            raise ContractError(f"the attack left the bounds of the data by {excess:.3g}")
        if not finite:
            raise ModelError(
                "the model answered NaN or infinity: it cannot be judged; look for overflow or a division by zero in it"
            )
        if not all_legal and not self._minimal:
            self._check_reach(size, query)
        totals = self.costs.add(query.ids, times, backwards, query.earlier)
        if self._on_pass is not None:
            forwards = times * len(x) if isinstance(times, int) else int(times.sum())
            self._on_pass(forwards, forwards * backwards)
        if any_success and bool((near := success & (margin <= losses.rounding(logits, query.y))).any()):
            refuted = self._refuted(query, x, near)
            success, margin = success & ~refuted, torch.where(refuted, margin.clamp_max(0), margin)
        legal_margin = margin if all_legal else torch.where(legal, margin, -torch.inf)
        self.best.raise_margins(query.ids, x, legal_margin, query.earlier is not None)
        if any_success:
            self._successes += 1
            rows = success.nonzero()[:, 0]
            self.best.note_successes(query.ids[rows], x[rows], logits[rows], size[rows], totals[rows])
        return margin

    def _refuted(self, query: _Query, x: Tensor, near: Tensor) -> Tensor:
        """(n,) bool: rows of those in `near` (n,) that are no success when the model is asked about them alone and together."""
        refuted, rows = torch.zeros_like(near), near.nonzero()[:, 0]
        for part in (rows, *rows.split(1)):
            with torch.no_grad():
                logits = self._eot.mean(x[part])
            self.confirmations.index_add_(0, query.ids[part], torch.full_like(part, self._eot.count))
            if self._on_pass is not None:
                self._on_pass(self._eot.count * len(part), 0)
            criterion, y = query.criterion.select(part), query.y[part]
            refuted[part] |= ~criterion.is_met(criterion.margin(logits, y, x[part]), logits, y)
        return refuted

    def _check_reach(self, size: Tensor, query: _Query) -> None:
        """Refuse inputs whose distance `size` (n,) from the clean ones exceeds the attack's reach."""
        if self._reach == math.inf:
            return
        beyond = (self._reach - 1) * query.eps
        if not (size <= query.limit + beyond).all():
            of = "eps" if self._reach == 1 else f"{self._reach:g} eps"
            over = (size - query.eps - beyond).max().item()
            raise ContractError(f"the attack left the budget: {over:.3g} beyond {of} in {self._threat.distance.name}")


def _gradient_or_zero(value: Tensor, leaf: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of the summed losses; zeros where the model's answer does not depend on its input differentiably."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    try:
        (grad,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, retain_graph=keep)
    except RuntimeError as error:
        if not is_memory_short(error):
            raise ModelError(f"the model answers, but torch cannot differentiate it ({one_line(error)})") from error
        raise MemoryShortError(f"a gradient at {len(leaf)} inputs does not fit into memory ({one_line(error)})") from error
    return torch.zeros_like(leaf) if grad is None else grad


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
