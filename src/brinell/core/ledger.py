"""The ledger: the only way from an attack to the model, and the only judge of success.

An attack is handed the ledger's `Oracle` in place of the model. The oracle answers queries; behind it the ledger counts what
each sample cost, enforces access, budget, bounds and threat, and remembers per sample the first success, the query at which
it came, and the closest adversarial input; of samples that are still robust, the input of the largest margin. A success is a
legal input that meets the threat's criterion, whatever the attack believes; its margin must be larger than float32 rounding, so
that another batch size or machine sees the same success.

Where the domain has values that may not change, an attack never sees them: `Ledger.batch` and `Ledger.threat` hold the others,
the oracle speaks of them alone, and the ledger puts the clean values beside them before it asks the model.

With several eot each question is answered by the mean over as many evaluations, and all of them count. With bf16 a gradient is
taken in bf16, and once more in float32 where the answer comes near a success: only the second may be one. Both count.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.core.batch import Batch
from brinell.core.books import Books
from brinell.core.criterion import Criterion, Loss
from brinell.core.eot import EOT, NEAR, Precision
from brinell.core.errors import ContractError, MemoryShortError, ModelError, one_line
from brinell.core.model import Access, Model
from brinell.core.oracle import Differences, Gradient, Oracle
from brinell.core.threat import Threat
from brinell.core.threat import size as size_of

Rows = slice | Tensor
"""Which rows of a query: all of a batch, or the indices (n,) of some."""

Differentiate = Callable[[Tensor, Tensor, Tensor, Rows], tuple[Tensor, Tensor]]
"""Logits, labels and inputs, and which rows of the query the logits belong to, to values and input gradients."""


class _View(NamedTuple):
    """What the ledger knows of the rows of one query, kept while the attack goes on using the same ids."""

    ids: Tensor
    version: int
    x0: Tensor
    y: Tensor
    criterion: Criterion
    eps: Tensor
    limit: Tensor
    occurrence: Tensor
    """(n,): how many earlier rows of the same batch of the query have the same id."""
    repeats: bool


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
        precision: that of `gradient` away from the boundary; bf16 needs a model that torch's autocast reaches.
        strongest: whether to keep, of samples without a success, the input of the largest margin; it costs a copy of what
            improves.
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
        on_pass: Callable[[int, int], None] | None = None,
    ) -> None:
        n, device = len(batch), batch.x.device
        # Copies of what is judged by: an attack that writes into its batch or its threat does not move the bar.
        self._model, self._batch = model, replace(batch, y=batch.y.clone())
        self._threat = replace(threat, eps=threat.eps.clone(), criterion=threat.criterion.select(torch.arange(n, device=device)))
        movable = threat.domain.movable
        self._movable = None if movable is None else movable.to(device)
        self.batch = batch if movable is None else replace(batch, x=self.movable(batch.x))
        """The samples as an attack is given them: the values that may change."""
        self.threat = threat if movable is None else replace(threat, domain=threat.domain.free)
        """The threat as an attack is given it."""
        self._untouched = self.batch.x._version
        self._limit, self._slack = self._threat.eps + self._threat.tolerance(), threat.domain.slack
        self._given = self._batch.y.clone(), self._threat.eps.clone(), self._limit.clone()
        self._access = min(access, model.access)
        self._queries, self._batch_size, self._minimal, self._on_pass = queries, batch_size, minimal, on_pass
        self._reach = reach
        self._looks = EOT(model, eot, batch_size)
        self._climb = self._looks if precision == "float32" else EOT(model, eot, batch_size, precision)
        self._price = question_cost(eot, precision)
        self._view: _View | None = None
        self._keeps_strongest = strongest
        self.forwards = torch.zeros(n, dtype=torch.int64, device=device)
        """(n,): forward evaluations spent on each sample."""
        self.backwards = torch.zeros(n, dtype=torch.int64, device=device)
        """(n,): backward evaluations."""
        self.first_success = torch.zeros(n, dtype=torch.int64, device=device)
        """(n,): the forward at which the sample was first fooled, counted from 1; 0 for never."""
        self.distance = torch.full((n,), torch.inf, device=device)
        """(n,): distance of the closest adversarial input, inf for none."""
        self.best_margin = torch.full((n,), -torch.inf, device=device)
        """(n,): largest margin of the criterion in any answer to an input within eps; -inf before the first.
        An answer in bf16 counts here only where it was so far below zero that nobody asked again."""
        self.strongest = batch.x
        """(n, *shape): of samples without a success, the input within eps of the largest margin, where `strongest` asks for it;
        the clean one before the first query."""
        self.closest = batch.x
        """(n, *shape): the closest adversarial input; the clean one where there is none."""
        self.answer = torch.zeros(n, model.classes, device=device)
        """(n, classes): the logits that the model answered to the closest adversarial input; zeros where there is none."""

        self._books = Books(self)

    def untouched(self) -> bool:
        """Whether the counts and finds, the labels and the budgets are what this ledger wrote and was given."""
        now = self._batch.y, self._threat.eps, self._limit
        return all(map(torch.equal, now, self._given)) and self._books.whole(self)

    def affordable(self, ids: Tensor) -> Tensor:
        """(n,) bool: which rows have budget left, if the rows before them with the same id are asked too."""
        if self._queries is None:
            return torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        return self.forwards[ids] + self._price * (_occurrence(ids) + 1) <= self._queries

    @property
    def fooled(self) -> Tensor:
        """(n,) bool: whether an adversarial input within the threat was found."""
        return self.first_success > 0

    def movable(self, x: Tensor) -> Tensor:
        """The values that may change, of whole inputs (n, *shape) or of what belongs to each of their values (n, k, *shape)."""
        return x if self._movable is None else x.index_select(x.ndim - self._batch.x.ndim + 1, self._movable)

    def whole(self, ids: Tensor, x: Tensor) -> Tensor:
        """(n, *shape): the whole inputs of which an attack proposes the values that may change, the others as they were."""
        if self._movable is None:
            return x
        if x.shape != (len(ids), *self.batch.x.shape[1:]):
            raise ContractError(f"a query of {len(ids)} ids came with inputs of shape {tuple(x.shape)}")
        return self._batch.x[ids].index_copy_(1, self._movable, x)

    def oracle(self) -> Oracle:
        """What the attack is given, with `batch` and `threat`."""
        return Oracle(
            scores=lambda ids, x: self._forward(ids, x, Access.SCORES),
            loss=lambda ids, x, loss=None: self._loss(ids, x, loss),
            labels=lambda ids, x: self._forward(ids, x, Access.LABELS).argmax(1),
            gradient=lambda ids, x, loss=None, *extra: self._gradient(ids, x, loss, *extra),
            differences=lambda ids, x, classes: self._differences(ids, x, classes),
            active=lambda ids, stop_at_eps=False: self._active(ids, stop_at_eps),
            affordable=self.affordable,
            classes=self._model.classes,
        )

    def _active(self, ids: Tensor, stop_at_eps: bool) -> Tensor:
        if self._minimal and not stop_at_eps:
            return self.affordable(ids)
        robust = self.first_success[ids] == 0
        return robust if self._queries is None else robust & self.affordable(ids)

    def _forward(self, ids: Tensor, x: Tensor, access: Access) -> Tensor:
        x = self.whole(ids, x)
        view = self._admit(ids, x, access)
        answers = []
        with torch.no_grad():
            for part in _parts(len(ids), self._batch_size):
                logits = self._looks.mean(x[part])
                self._settle(view, part, x[part], logits, backwards=0)
                answers.append(view.criterion.select(part).shown(logits, view.y[part]))
        return _join(answers)

    def _loss(self, ids: Tensor, x: Tensor, loss: Loss | None) -> Tensor:
        logits = self._forward(ids, x, Access.SCORES)
        view = self._look_up(ids)
        if loss is not None:
            return view.criterion.loss(loss, logits, view.y)
        with torch.no_grad():
            return view.criterion.margin(logits, view.y, self.whole(ids, x))

    def _gradient(self, ids: Tensor, x: Tensor, loss: Loss | None = None, *extra: Tensor) -> Gradient:
        def differentiate(logits: Tensor, y: Tensor, leaf: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
            criterion = self._look_up(ids).criterion.select(rows)
            if loss is None:
                value = criterion.margin(logits, y, leaf)
            elif extra:
                value = loss(criterion.shown(logits, y), y, *(e[rows] for e in extra))
            else:
                value = criterion.loss(loss, logits, y)
            return value.detach(), _gradient_or_zero(value, leaf)

        return Gradient(*self._backward(ids, x, differentiate, self._climb, backwards=1, margins=loss is None))

    def _differences(self, ids: Tensor, x: Tensor, classes: Tensor) -> Differences:
        k = classes.shape[1]

        def differentiate(logits: Tensor, y: Tensor, leaf: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
            logits = self._look_up(ids).criterion.select(rows).shown(logits, y)
            lead = logits.gather(1, classes[rows]) - logits.gather(1, y[:, None])
            grads = [_gradient_or_zero(lead[:, j], leaf, keep=j < k - 1) for j in range(k)]
            return lead.detach(), grads[0][:, None] if k == 1 else torch.stack(grads, 1)

        return Differences(*self._backward(ids, x, differentiate, self._looks, backwards=k))

    def _backward(
        self, ids: Tensor, x: Tensor, differentiate: Differentiate, eot: EOT, *, backwards: int, margins: bool = False
    ) -> list[Tensor]:
        """The logits, then the values and input gradients that `differentiate` makes of them in as many backward passes.

        `margins` says that the values are the margins of the criterion, which then need not be computed again.
        """
        x = self.whole(ids, x)
        view = self._admit(ids, x, Access.GRADIENTS)
        answers = []
        for part in _parts(len(ids), self._batch_size):
            answer = self._mean(view, part, x[part], differentiate, eot)
            again = None if eot is self._looks else self._repeat(view, part, x[part], answer, differentiate)
            known = answer[1] if margins and eot.count == 1 else None
            self._settle(view, part, x[part], answer[0], backwards=backwards, again=again, margin=known)
            shown = view.criterion.select(part).shown(answer[0], view.y[part])
            answers.append([shown, answer[1], self.movable(answer[2])])
        return [_join(list(column)) for column in zip(*answers, strict=True)]

    def _mean(self, view: _View, rows: Rows, x: Tensor, differentiate: Differentiate, eot: EOT) -> list[Tensor]:
        """Logits, values and gradients of some rows of a query, means over the eot."""
        sums: list[Tensor] = []
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            for logits in eot.calls(leaf):
                copies = len(logits) // len(leaf)
                shown = rows if copies == 1 else torch.arange(len(view.ids), device=x.device)[rows].repeat(copies)
                answered = logits.detach().clone()  # the loss is the attack's own code and may write into what it is given
                value, grad = differentiate(logits, view.y[shown].clone(), leaf, shown)
                found = [answered, value] if copies == 1 else [_added(one, copies) for one in (answered, value)]
                found.append(grad)
                sums = [total + one for total, one in zip(sums, found, strict=True)] if sums else found
        return sums if eot.count == 1 else [total / eot.count for total in sums]

    def _repeat(self, view: _View, part: slice, x: Tensor, answer: list[Tensor], differentiate: Differentiate) -> Tensor:
        """Put a float32 answer in the place of those that came near a success in bf16; (n,) bool: which."""
        near = self._margin(view, part, x, answer[0]) > -NEAR * answer[0].abs().amax(1)
        at = near.nonzero()[:, 0]
        if len(at):
            exact = self._mean(view, at + part.start, x[at], differentiate, self._looks)
            for column, values in zip(answer, exact, strict=True):
                column[at] = values
        return near

    def _admit(self, ids: Tensor, x: Tensor, access: Access) -> _View:
        """Refuse a query that the attack may not make, before the model sees it."""
        if access > self._access:
            raise ContractError(f"the attack asked for {access.name.lower()} and has access to {self._access.name.lower()} only")
        if len(ids) == 0 or x.shape != (len(ids), *self._batch.x.shape[1:]):
            raise ContractError(f"a query of {len(ids)} ids came with inputs of shape {tuple(x.shape)}")
        if self.batch.x._version != self._untouched:
            raise ContractError("the attack wrote into the clean inputs; it must clone what it changes")
        view = self._look_up(ids)
        if self._queries is not None and not self.affordable(ids).all():
            raise ContractError(f"the attack asked about a sample whose budget of {self._queries} queries is spent")
        excess = self._threat.domain.excess(x)
        if not excess <= self._slack:
            raise ContractError(f"the attack left the bounds of the data by {excess:.3g}")
        return view

    def _look_up(self, ids: Tensor) -> _View:
        view = self._view
        if view is None or view.ids is not ids or view.version != ids._version:
            everything = len(ids) == len(self._batch) and bool((ids == self._batch.ids).all())
            repeats = not everything and len(torch.unique(ids)) < len(ids)
            eps = self._threat.eps[ids]
            view = _View(
                ids=ids,
                version=ids._version,
                x0=self._batch.x if everything else self._batch.x[ids],
                y=self._batch.y[ids],
                criterion=self._threat.criterion.select(ids),
                eps=eps,
                limit=self._limit[ids],
                occurrence=_join([_occurrence(ids[part]) for part in _parts(len(ids), self._batch_size)])
                if repeats
                else torch.zeros_like(ids),
                repeats=repeats,
            )
            self._view = view
        return view

    def _settle(
        self,
        view: _View,
        part: slice,
        x: Tensor,
        logits: Tensor,
        *,
        backwards: int,
        again: Tensor | None = None,
        margin: Tensor | None = None,
    ) -> None:
        """Count a batch that the model answered, and the rows (n,) bool that it answered again, and note the successes."""
        ids = view.ids[part]
        size = size_of(self._threat.distance, x, view.x0[part])
        legal = size <= view.limit[part]
        margin = self._margin(view, part, x, logits) if margin is None else margin
        largest = logits.abs().amax(1)  # NaN and infinity come through
        success = legal & view.criterion.met(margin, largest)
        flags = [(largest < torch.inf).all(), legal.all(), success.any(), self._books.agree(self)]
        finite, all_legal, any_success, agree = torch.stack(flags).tolist()
        if not agree:
            raise ContractError("the attack wrote into the ledger's counts: what it found is not recorded; look at its file")
        if not finite:
            raise ModelError(
                "the model answered NaN or infinity: it cannot be judged; look for overflow or a division by zero in it"
            )
        if not all_legal and not self._minimal:
            self._within_reach(size, view.eps[part], view.limit[part])
        spent = self._count(view, part, backwards, again)
        seen = margin if all_legal else torch.where(legal, margin, -torch.inf)
        if self._keeps_strongest:
            self._strengthen(view, ids, x, seen)
        if view.repeats:
            self.best_margin.scatter_reduce_(0, ids, seen, "amax")
        else:
            self.best_margin[ids] = torch.maximum(self.best_margin[ids], seen)
        if any_success:
            self._note(ids, x, size, spent, logits, success.nonzero()[:, 0])
        self._books.keep(self)

    def _within_reach(self, size: Tensor, eps: Tensor, limit: Tensor) -> None:
        """Refuse inputs of sizes (n,) beyond what may be asked about; `limit` (n,) is eps with what rounding may add."""
        if self._reach == math.inf:
            return
        beyond = (self._reach - 1) * eps
        if not (size <= limit + beyond).all():
            of = "eps" if self._reach == 1 else f"{self._reach:g} eps"
            over = (size - eps - beyond).max().item()
            raise ContractError(f"the attack left the budget: {over:.3g} beyond {of} in {self._threat.distance.name}")

    def _margin(self, view: _View, part: slice, x: Tensor, logits: Tensor) -> Tensor:
        """(n,): margins of the criterion, which judges whole inputs."""
        with torch.no_grad():
            return view.criterion.select(part).margin(logits, view.y[part], x)

    def _strengthen(self, view: _View, ids: Tensor, x: Tensor, margin: Tensor) -> None:
        """Remember the input of the largest margin of each sample without a success; before `best_margin` is brought up."""
        rows = ((margin > self.best_margin[ids]) & (self.first_success[ids] == 0)).nonzero()[:, 0]
        if not len(rows):
            return
        if self.strongest is self._batch.x:
            self.strongest = self._batch.x.clone()
        if view.repeats:
            rows = rows[torch.argsort(margin[rows], descending=True, stable=True)]
            rows = rows[_occurrence(ids[rows]) == 0]
        self.strongest[ids[rows]] = x[rows]

    def _count(self, view: _View, part: slice, backwards: int, again: Tensor | None) -> Tensor:
        """(n,): forwards spent on each row's sample when the row was answered, those of the rows before it included."""
        ids, eot = view.ids[part], self._looks.count
        spent = self.forwards[ids] + (eot * (view.occurrence[part] + 1) if view.repeats else eot)
        times: Tensor | int = eot
        if again is not None:
            spent[again] += eot * (_occurrence(ids[again]) + 1)
            times = torch.full_like(ids, eot) * (1 + again.long())
        if view.repeats:
            each = torch.ones_like(ids) * times
            self.forwards.index_add_(0, ids, each)
            self.backwards.index_add_(0, ids, each * backwards)
        else:
            self.forwards[ids] = spent
            if backwards:
                self.backwards[ids] += times * backwards
        if self._on_pass is not None:
            total = eot * (len(ids) + (0 if again is None else int(again.sum())))
            self._on_pass(total, total * backwards)
        return spent

    def _note(self, ids: Tensor, x: Tensor, size: Tensor, spent: Tensor, logits: Tensor, successes: Tensor) -> None:
        """Remember the first success of each sample and the closest one; `successes` are its rows."""
        if self.closest is self._batch.x:
            self.closest = self._batch.x.clone()
            self._books.begin(closest=self.closest, answer=self.answer)
        earliest = torch.full_like(self.first_success, torch.iinfo(torch.int64).max)
        earliest.scatter_reduce_(0, ids[successes], spent[successes], "amin")
        new = (self.first_success == 0) & (earliest < torch.iinfo(torch.int64).max)
        self.first_success[new] = earliest[new]
        successes = successes[torch.argsort(size[successes], stable=True)]
        found = ids[successes]
        better = (size[successes] < self.distance[found]) & (_occurrence(found) == 0)
        found, successes = found[better], successes[better]
        self.distance[found] = size[successes]
        self.closest[found] = x[successes]
        self.answer[found] = logits[successes]
        self._books.note(found, closest=x[successes], answer=logits[successes])


def question_cost(eot: int, precision: Precision) -> int:
    """The most forwards that one question about a sample can cost: in bf16 its answer may be asked for again."""
    return eot if precision == "float32" else 2 * eot


def _added(values: Tensor, copies: int) -> Tensor:
    return values.reshape(copies, len(values) // copies, *values.shape[1:]).sum(0)


def _gradient_or_zero(value: Tensor, leaf: Tensor, *, keep: bool = False) -> Tensor:
    """The gradient of the summed losses; zeros where the model's answer does not depend on its input differentiably."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    try:
        (grad,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True, retain_graph=keep)
    except torch.OutOfMemoryError as error:
        raise MemoryShortError(f"a gradient at {len(leaf)} inputs does not fit into memory ({one_line(error)})") from error
    return torch.zeros_like(leaf) if grad is None else grad


def _parts(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _occurrence(ids: Tensor) -> Tensor:
    ordered, order = torch.sort(ids, stable=True)
    rank = torch.arange(len(ids), device=ids.device)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    start = torch.cummax(torch.where(first, rank, torch.zeros_like(rank)), 0).values
    occurrence = torch.empty_like(rank)
    occurrence[order] = rank - start
    return occurrence
