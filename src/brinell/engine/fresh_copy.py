"""Check that a copy of the model which has answered nothing gives the answers that the audited model gives.

A model may count its questions, remember inputs, adapt to them, or fit itself to its first batch. Attacks then meet another
model at each step, and each check that repeats a question meets the model after it saw clean inputs. So copies are made of the
model as it was before its first question: by opening its file again, or as a deep copy of a model in memory. A few attack steps
on robust samples, each along the gradient of a copy of its own, lead to points on which one more copy is asked before it has
seen anything else. So it is about the adversarial inputs that the run keeps. The audited model is asked the same in the same
batches, so that no rounding explains a difference.

A torch module may also look at who asks. So the first question of each attack is put once more to another copy, from a thread of
its own, without Brinell on the call stack.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.checks import Code, Finding
from brinell.core.contracts import Attack
from brinell.core.errors import BrinellError
from brinell.core.hooks import Call, detached, watch_calls
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent
from brinell.engine.consistency import DRIFT_FACTOR, answer_difference
from brinell.engine.shard import predict
from brinell.models._answers import LogitModel
from brinell.models._torch_model import logits_of

SURVIVORS = 48
"""Largest number of robust samples that the check asks about."""
EXAMPLES = 32
"""Largest number of adversarial inputs of the run that the check asks about."""
WATCHED = 16
"""Largest number of inputs about which the first question of an attack is compared with a bare thread."""
STEPS = (0.75, 0.5)
"""Attack steps on robust samples, as shares of the budget."""
REMEDY = "fix its state, or let fresh copies answer (--fresh N)"


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies of the audited model that have answered nothing."""

    open: Callable[[], Model]
    """Returns a copy; raises BrinellError if there is none."""
    kind: str | None
    """Kind of its answers, as recognised in the audit (`engine.answers`)."""
    device: torch.device
    reopened: bool
    """True if a copy is made by opening the model's file again."""

    def enter(self, stack: ExitStack) -> Model:
        """A copy in a session that lasts as long as the stack."""
        model = self.open()
        session: AbstractContextManager[None] = model.info.session(self.device)
        stack.enter_context(session)
        return LogitModel(model, self.kind) if self.kind is not None and model.info.answers is None else model


@dataclass(frozen=True, kw_only=True)
class Points:
    """Inputs on which the copies are asked."""

    survivors: Batch
    """Robust samples, with ids 0 to n-1; n may be 0."""
    radius: Tensor
    """(n,) the budget of each."""
    examples: Tensor
    """(m, *shape) adversarial inputs that the run keeps; m may be 0."""
    labels: Tensor
    """(m,) the true class of each."""
    classes: Tensor
    """(m,) the class that an attack met at each."""
    margins: Tensor
    """(m,) the lead over the true class that an attack met at each; NaN where the record is of another margin."""


def check_fresh_copy(
    model: Model,
    copies: Copies,
    points: Points,
    distance: Distance,
    rng: Streams,
    *,
    limit: float,
    batch_size: int,
    attacks: Sequence[Attack] = (),
    alone: int = 0,
    random: bool = False,
) -> tuple[Finding, int, int]:
    """Make the check; return the finding, and the forwards and backwards that it cost.

    Args:
        model: the audited model, after the attacks.
        copies: its copies.
        points: robust samples and adversarial inputs; at least one of both.
        distance: norm of the budgets.
        rng: one stream for each robust sample.
        limit: the share of the largest logit by which answers may differ.
        batch_size: the most inputs shown to a model at once.
        attacks: attacks, each of which puts a first question to a copy.
        alone: number of inputs that are judged each by a copy of its own.
        random: True if the model answers the same input differently each time. The check then fails only if it drifts by more
            than it scatters, and is otherwise not made.
    """
    check = _FreshCopyCheck(model, copies, points, distance, rng, limit, batch_size)
    try:
        finding = check.make_of_random() if random else check.make(alone, attacks)
    except BrinellError as error:
        finding = Finding.not_made(Code.FRESH, str(error), limit)
    return finding, check.forwards, check.backwards


class _FreshCopyCheck:
    """The check while it is made."""

    def __init__(
        self, model: Model, copies: Copies, points: Points, distance: Distance, rng: Streams, limit: float, batch_size: int
    ) -> None:
        self.model, self.copies, self.points, self.distance, self.rng = model, copies, points, distance, rng
        self.limit, self.batch_size = limit, batch_size
        self.forwards = self.backwards = 0

    def make(self, alone: int, attacks: Sequence[Attack]) -> Finding:
        """Compare answers of fresh copies with those of the run; returns the finding."""
        points, digests = self.points, set[str]()
        reached = self._reach(digests)
        if self.copies.reopened and len(digests) > 1:
            text = (
                "the model is another each time it is opened (its weights differ): none of the figures can be repeated; load "
                "its weights from a file, or seed what draws them"
            )
            return Finding(code=Code.FRESH, passed=False, text=text, limit=self.limit, cause="each opening gives another model")
        x = torch.cat([reached, points.examples])
        # With --fresh a copy answers each batch, otherwise one answers all.
        parts = torch.split(x, self.batch_size) if alone else (x,)
        fresh = torch.cat([self._ask_copy(part) for part in parts])
        aged = self._predict(self.model, x)
        difference = answer_difference(aged, fresh)
        recorded = torch.cat([aged[: len(reached)].argmax(1), points.classes])
        changed, unlike_record = difference > self.limit, self._left(fresh, recorded)
        unlike_record[len(reached) :] |= self._differs_from_record(fresh[len(reached) :])
        # Attacks asked in other batches, so a record proves nothing about a model whose answers depend on the batch.
        if bool((unlike_record & ~changed).any()) and not self._depends_on_batch(x, aged):
            changed = changed | unlike_record
        single = self._alone(x, aged, alone)
        stack_difference = self._without_stack(attacks)
        return self._finding(changed, fresh, float(torch.cat([difference, single]).amax()), single, stack_difference)

    def make_of_random(self) -> Finding:
        """The finding on a model whose answers scatter."""
        x = torch.cat([self.points.survivors.x, self.points.examples])
        aged, fresh = [self._predict(self.model, x) for _ in range(2)], [self._ask_copy(x) for _ in range(2)]
        scatter = max(float(answer_difference(*pair).amax()) for pair in (aged, fresh))
        drift = float(answer_difference(aged[0], fresh[0]).amax())
        if drift <= max(DRIFT_FACTOR * scatter, self.limit):
            return Finding.not_made(Code.FRESH, "the same input is answered differently each time", self.limit)
        text = (
            f"copies of the model that have answered nothing give other answers: the model counts, remembers or adapts; {REMEDY}"
        )
        return Finding(code=Code.FRESH, passed=False, text=text, figure=drift, limit=self.limit)

    def _finding(self, changed: Tensor, fresh: Tensor, figure: float, single: Tensor, stack_difference: float | None) -> Finding:
        """The finding on answers of copies."""
        survivors, n = self.points.survivors, len(changed)
        wrong = int((changed[: len(survivors)] & (fresh[: len(survivors)].argmax(1) != survivors.y)).sum())
        alone = int((single > self.limit).sum())
        faults = []
        if changed.any():
            faults.append(
                f"a copy of the model that has answered nothing answers {int(changed.sum())} of {n} inputs differently"
                + (f", and misclassifies {wrong} of {len(survivors)} robust samples within the budget" if wrong else "")
                + ": the model counts, remembers or adapts"
            )
        elif alone:
            faults.append(f"copies that are asked one input each answer {alone} of {len(single)} differently: company matters")
        if stack_difference is not None and stack_difference > self.limit:
            faults.append("the module answers an attack differently than a bare call: it looks at who asks")
            figure = max(figure, stack_difference)
        text = f"copies that have answered nothing give the same answers to {n} inputs that attacks reached"
        if faults:
            text = f"{'; '.join(faults)}; {REMEDY}"
        cause = f"a fresh copy misclassifies {wrong} of {len(survivors)} robust samples" if wrong else None
        return Finding(code=Code.FRESH, passed=not faults, text=text, figure=figure, limit=self.limit, cause=cause)

    def _left(self, fresh: Tensor, recorded: Tensor) -> Tensor:
        """(n,) bool: the copy's class leads over the recorded one by more than rounding."""
        lead = fresh.amax(1) - fresh.gather(1, recorded[:, None])[:, 0]
        return lead > self.limit * fresh.abs().amax()

    def _depends_on_batch(self, x: Tensor, answers: Tensor) -> bool:
        """True if the audited model answers inputs differently when every second one is left out; another check reports that."""
        halves = [torch.arange(start, len(x), 2, device=x.device) for start in (0, 1)]
        again = torch.cat([self._predict(self.model, x[half]) for half in halves if len(half)])
        return bool((answer_difference(answers[torch.cat(halves)], again) > self.limit).any())

    def _differs_from_record(self, fresh: Tensor) -> Tensor:
        """(m,) bool: the copy's margin at an adversarial input is not the one that the attack met."""
        margin = losses.margin(fresh, self.points.labels)
        return (
            (margin - self.points.margins).abs() > self.limit * fresh.abs().amax().clamp_min(1e-12) if len(fresh) else margin > 0
        )

    def _reach(self, digests: set[str]) -> Tensor:
        """(n, *shape): robust samples after a few attack steps, each of which queries a fresh copy.

        `digests` collects those of the copies before they are asked.
        """
        batch = self.points.survivors
        if not len(batch) or self.model.access < Access.GRADIENTS:
            if self.copies.reopened:
                digests |= {self.copies.open().digest() for _ in range(2)}
            return self._random_points(batch) if len(batch) else batch.x
        x: Tensor | None = None
        for share in STEPS:
            with ExitStack() as stack:
                copy = self.copies.enter(stack)
                if self.copies.reopened:
                    digests.add(copy.digest())
                ledger = self._ledger(copy, batch)
                x = ledger.batch.x if x is None else x
                grad = ledger.oracle().gradient(batch.ids, x, losses.margin).grad.nan_to_num(0.0, 0.0, 0.0)
                x = self._budget(ledger).project(x + self._scaled(self.distance.ascent(grad), share), ledger.batch.x)
                self.forwards += int(ledger.costs.forwards.sum())
                self.backwards += int(ledger.costs.backwards.sum())
                reached = ledger.full_inputs(batch.ids, x)
        return reached

    def _random_points(self, batch: Batch) -> Tensor:
        """(n, *shape): random inputs within the budgets."""
        ledger = self._ledger(self.model, batch)
        start = ledger.batch.x
        delta = self._scaled(self.distance.sample(self.rng, tuple(start.shape[1:])))
        return ledger.full_inputs(batch.ids, self._budget(ledger).project(start + delta, start))

    def _ledger(self, model: Model, batch: Batch) -> Ledger:
        """A ledger for questions about the batch anywhere within the bounds of the data."""
        radius = torch.full((len(batch),), extent(self.distance, self.model.domain), device=batch.x.device)
        threat = Threat(distance=self.distance, eps=radius, domain=self.model.domain)
        return Ledger(model, batch, threat, access=model.access, batch_size=self.batch_size, minimal=True)

    def _budget(self, ledger: Ledger) -> Threat:
        """The budgets of the robust samples."""
        return Threat(distance=self.distance, eps=self.points.radius, domain=ledger.threat.domain)

    def _scaled(self, delta: Tensor, share: float = 1.0) -> Tensor:
        """Perturbations of size 1, scaled to a share of the budgets."""
        return delta * per_sample(share * self.points.radius, delta)

    def _predict(self, model: Model, x: Tensor) -> Tensor:
        """Answers (n, classes), counted."""
        self.forwards += len(x)
        return predict(model, x, self.batch_size)

    def _ask_copy(self, x: Tensor) -> Tensor:
        """Answers (n, classes) of a new copy, counted."""
        with ExitStack() as stack:
            return self._predict(self.copies.enter(stack), x)

    def _alone(self, x: Tensor, aged: Tensor, count: int) -> Tensor:
        """(k,): the difference of answers to inputs that are judged each by a copy of its own."""
        rows = sorted(set(torch.linspace(0, len(x) - 1, min(count, len(x))).round().long().tolist()))
        differences = [aged.new_zeros(0)]
        for row in rows:
            differences.append(answer_difference(aged[row : row + 1], self._ask_copy(x[row : row + 1])))
        return torch.cat(differences)

    def _without_stack(self, attacks: Sequence[Attack]) -> float | None:
        """The largest difference of a module's answers to an attack and to a bare thread; None if there is none to compare.

        Each kind of attack puts its first question to one copy, and a thread the same questions, in the same order, to another.
        The inputs are those of the module, after all preprocessing.
        """
        if self.model.info.module is None or not attacks:
            return None
        batch = self.points.survivors if len(self.points.survivors) else _as_batch(self.points)
        batch, differences = batch.select(batch.ids[:WATCHED]), list[float]()
        with ExitStack() as stack:
            copy, twin = (self.copies.enter(stack) for _ in range(2))
            for attack in {type(attack): attack for attack in attacks}.values():
                call = self._first_call(copy, attack, batch)
                if call is None:
                    continue
                args, kwargs, here = call
                there = _call_in_thread(twin.info.module, args, kwargs)
                self.forwards += 2 * len(here)
                if there is not None and there.shape == here.shape:
                    differences.append(float(answer_difference(here, there).amax()))
        return max(differences, default=None)

    def _first_call(self, copy: Model, attack: Attack, batch: Batch) -> tuple[Any, Any, Tensor] | None:
        """Arguments and answer of the module in the first question of an attack."""
        calls: list[tuple[Any, Any, Tensor]] = []
        module = copy.info.module
        if module is None:
            return None

        def record(call: Call) -> None:
            """Keep the call and stop the attack."""
            rows = _rows(call.answer)
            if rows is not None:
                calls.append((detached(call.args), detached(call.kwargs), rows))
            raise _EnoughError

        ledger = self._ledger(copy, batch)
        rng = Streams.of(0, batch.ids).fold("fresh copies")
        with watch_calls({"": module}, record), suppress(BrinellError, _EnoughError):
            deepcopy(attack)(ledger.oracle(), ledger.batch, ledger.threat, rng)
        return calls[0] if calls else None


class _EnoughError(Exception):
    """Stops an attack after its first question."""


def _as_batch(points: Points) -> Batch:
    """The adversarial inputs as a batch."""
    x = points.examples
    return Batch(ids=torch.arange(len(x), device=x.device), x=x, y=points.labels)


def _rows(answer: Any) -> Tensor | None:
    """A module's answer as (n, columns); None if it is anything but a tensor."""
    logits = logits_of(answer)
    if not isinstance(logits, Tensor) or not logits.ndim or not logits.numel():
        return None
    return logits.detach().float().reshape(len(logits), -1)


def _call_in_thread(module: Any, args: Any, kwargs: Any) -> Tensor | None:
    """The answer of a module, called as the only function of a thread, as (n, columns)."""
    answers: list[Tensor | None] = []
    with watch_calls({"": module}, lambda call: answers.append(_rows(call.answer))):
        thread = threading.Thread(target=module, args=args, kwargs=kwargs, daemon=True)
        thread.start()
        thread.join()
    return answers[-1] if answers else None
