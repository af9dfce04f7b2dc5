"""Questions that checks of a model may ask, and the making of a list of checks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from brinell.core import losses
from brinell.core.attack import open_questions
from brinell.core.checks import Code, Finding, exact_test
from brinell.core.errors import ModelError
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch, GradientAnswer
from brinell.core.record import Array
from brinell.core.recorder import Recorder
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, extent

FIRST = 12
"""Number of samples of a first look; all are looked at where these do not pass."""
SINGLES = 8
"""Number of samples that are asked one at a time."""
ANSWER_TOLERANCE = 1e-4
"""Two answers to one input may differ by this share of the largest logit: kernels differ by some
1e-6."""


class NotMadeError(Exception):
    """A check cannot be made, for the reason that is the text."""


@dataclass(frozen=True)
class Repeat:
    """The answers that the check of drift got when the first batches came again."""

    limit: float
    """The share of the largest logit by which answers to one input may differ."""
    by_gradients: bool
    """True if answers differ where gradients are asked for, and not otherwise."""
    by_batch: bool
    """True if the model normalises by the batch."""
    is_random: bool


class FetchRecorder(Recorder):
    """Notes whether a model fetches what was saved for a backward pass: it takes gradients itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched = False
        self._hooks: Any = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: tensor, self._fetch
        )

    def _fetch(self, saved: Tensor) -> Tensor:
        self.fetched = True
        return saved

    def __enter__(self) -> Self:
        """Look on from here."""
        self._hooks.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Look on no more."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._hooks.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))

    def outcome(self, answer: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
        """What it saw."""
        return {"fetched": self.fetched}, []

    def accept(self, facts: Mapping[str, Any], arrays: Sequence[Tensor], answer: Tensor) -> None:
        """Add what another one saw."""
        self.fetched |= facts["fetched"]


class CheckContext:
    """A model behind oracles that count, on samples that it classifies correctly, with ids 0 to
    n-1.

    Answers that several checks need are asked for once. `eps` is the largest budget of the run,
    infinite where there is none; `climbs_margins` says whether attacks of the run follow gradients
    of margins, and not of the cross-entropy alone. `whole` is the context of which this one is for
    a first look: both count together.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        distance: Distance,
        eps: float,
        rng: Streams,
        *,
        batch_size: int = 128,
        on_pass: Callable[[int, int], None] | None = None,
        climbs_margins: bool = False,
        whole: "CheckContext | None" = None,
    ) -> None:
        self.model, self.clean = model, batch
        self.distance, self.eps, self.rng = distance, eps, rng
        self.batch_size, self.climbs_margins = batch_size, climbs_margins
        self._on_pass = on_pass
        self.further_forwards = 0
        self.whole = whole
        self.ledgers: list[Ledger] = [] if whole is None else whole.ledgers

        # Two of them, so that an input that fools the model by chance in one is not counted as a
        # success in the other.
        self.oracle = self.ledger(model).oracle()
        self.attacked = self.ledger(model).oracle()
        self.batch = self.ledgers[-1].batch
        self.domain = self.ledgers[-1].threat.domain
        self.findings: dict[Code, Finding] = {}
        self.repeat: Repeat | None = None
        """The answers of the check of drift, which comes before the others of consistency."""
        self.ends: tuple[Tensor, Tensor, Tensor] | None = None
        """Ids (m,) of the samples that a few steps of an attack left robust, with gradients and
        values (m,) of the margin there; None before the check of misleading gradients."""

    @cached_property
    def few(self) -> "CheckContext | None":
        """The context of first looks: some of the samples, spread over them; None where there are
        no more.
        """
        if len(self.clean) <= FIRST:
            return None

        rows = torch.as_tensor(evenly_spaced(len(self.clean), FIRST), device=self.clean.x.device)
        batch = replace(self.clean.select(rows), ids=torch.arange(FIRST, device=rows.device))
        # With a ledger of its own, whose ids count from 0.
        few = CheckContext(
            self.model,
            batch,
            self.distance,
            self.eps,
            self.rng.select(rows),
            batch_size=self.batch_size,
            on_pass=self._on_pass,
            climbs_margins=self.climbs_margins,
            whole=self,
        )
        # Answers that exist already cost no further query: a cached property that was read is in
        # the object's dictionary.
        if "first" in vars(self):
            few.first = self.first[0][rows], self.first[1]
        return few

    def ledger(self, model: Model, eps: float = math.inf, *, minimal: bool = False) -> Ledger:
        """A further ledger of a model on the same samples; the threat is the whole domain, or `eps`
        of it.

        With `minimal`, inputs beyond `eps` may be asked about, and fooled samples go on.
        """
        reach = min(eps, extent(self.distance, model.domain))
        radius = torch.full((len(self.clean),), reach, device=self.clean.x.device)

        ledger = open_questions(
            model,
            self.clean,
            Threat(distance=self.distance, eps=radius, domain=model.domain),
            access=model.access,
            anywhere=minimal,
            batch_size=self.batch_size,
            on_pass=self._on_pass,
        )
        # Kept for the costs of all.
        self.ledgers.append(ledger)
        return ledger

    def make(self, checks: "Mapping[Code, Check]") -> list[Finding]:
        """Make checks in their order; return all findings so far in the order of `Code`."""
        for code, check in checks.items():
            try:
                self.findings[code] = check(self)
            except (NotMadeError, ModelError) as error:
                self.findings[code] = Finding.not_made(code, str(error))
        return [self.findings[code] for code in Code if code in self.findings]

    def require(self, access: Access) -> None:
        """Refuse a check that needs more than the model gives."""
        if self.model.access < access:
            raise NotMadeError(f"the model gives {self.model.access.name.lower()} only")

    def require_steady_answers(self) -> None:
        """Refuse a check that noise would decide."""
        if self.findings[Code.RANDOM].passed is False:
            raise NotMadeError("the same input is answered differently each time (random-answers)")

    def ask(self, rows: Tensor) -> Tensor:
        """(m, classes): scores of some rows of the batch, or one-hot labels of a model that gives
        labels only.
        """
        ids = self.batch.ids[rows]
        x = self.batch.x[rows]
        if self.model.access > Access.LABELS:
            return self.oracle.scores(ids, x)
        return torch.nn.functional.one_hot(self.oracle.labels(ids, x), self.model.classes).float()

    @property
    def rows(self) -> Tensor:
        """(n,): all rows of the batch."""
        return torch.arange(len(self.batch), device=self.batch.x.device)

    @cached_property
    def first(self) -> tuple[Tensor, bool]:
        """(n, classes): the first answers, and whether the model took gradients on the way to them.

        The oracle asks without gradients, so nothing that is saved for a backward pass is fetched
        again, unless the model switched gradients on and went backwards itself.
        """
        if self.model.access < Access.GRADIENTS:
            return self.ask(self.rows), False

        try:
            with FetchRecorder() as recorder:
                return self.ask(self.rows), recorder.fetched
        except ModelError:
            # torch.func takes gradients too, and refuses to run beside these hooks. Any other
            # failure fails again.
            return self.ask(self.rows), True

    @cached_property
    def ce(self) -> GradientAnswer:
        """Gradient of the cross-entropy."""
        self.require(Access.GRADIENTS)
        return self.oracle.gradient(self.batch.ids, self.batch.x, losses.cross_entropy)

    @cached_property
    def margin(self) -> GradientAnswer:
        """Gradient of the margin."""
        self.require(Access.GRADIENTS)
        return self.oracle.gradient(self.batch.ids, self.batch.x, losses.margin)

    @cached_property
    def regrouped(self) -> Tensor:
        """(n, classes): answers in other batches and rows; of a single input one more."""
        answers = torch.empty_like(self.first[0])
        for rows in (self.rows[::2].flip(0), self.rows[1::2].flip(0)):
            if len(rows):
                answers[rows] = self.ask(rows)
        return answers

    @cached_property
    def singles(self) -> tuple[Tensor, Tensor]:
        """(m,): a few rows; (m, classes): their answers, each asked alone."""
        rows = self.rows[:: max(1, len(self.rows) // SINGLES)][:SINGLES]
        return rows, torch.cat([self.ask(row[None]) for row in rows])

    @cached_property
    def is_steady(self) -> bool:
        """True if other batches, and gradients in a first look, change no answer."""
        pairs = [(self.first[0], self.regrouped)]
        if self.model.access == Access.GRADIENTS:
            look = self.few or self
            pairs.append((look.first[0], look.margin.logits))
        return all(bool((answer_difference(*pair) <= ANSWER_TOLERANCE).all()) for pair in pairs)

    @cached_property
    def answers(self) -> list[Tensor]:
        """Two or more (n, classes) answers to the batch: the first, and those in other batches or,
        if these differ, those to the same batch, where gradients were asked for as well.
        """
        if self.is_steady:
            return [self.first[0], self.regrouped]
        if self.model.access == Access.GRADIENTS:
            return [self.first[0], self.ce.logits, self.margin.logits]
        return [self.first[0], self.ask(self.rows)]

    @property
    def costs(self) -> tuple[int, int]:
        """Forwards and backwards so far, with the questions by which the ledgers confirmed
        successes.
        """
        forwards = self.further_forwards
        backwards = 0
        for ledger in self.ledgers:
            forwards += int((ledger.costs.forwards + ledger.confirmations).sum())
            backwards += int(ledger.costs.backwards.sum())
        return forwards, backwards


Check = Callable[[CheckContext], Finding]
"""Judges one thing that would make a robust accuracy too high."""


def evenly_spaced(count: int, limit: int) -> Array:
    """At most `limit` of `count` positions, evenly spaced."""
    return np.linspace(0, count - 1, min(count, limit)).astype(int)


def in_two_looks(check: Check) -> Check:
    """The check on a few samples, and on all of them where the few do not pass it.

    It fails only where both looks say so, so its error rate is at most that on all.
    """

    def judge(context: CheckContext) -> Finding:
        if context.few is not None:
            try:
                finding = check(context.few)
            except (NotMadeError, ModelError):
                return check(context)
            if finding.passed:
                # Both looks have to fail, so the rate is at most that of the second.
                rate = exact_test(0, len(context.clean), finding.limit)[1] if finding.limit else 0.0
                return replace(finding, error_rate=max(rate, finding.error_rate))
        return check(context)

    return judge


def answer_difference(first: Tensor, second: Tensor) -> Tensor:
    """(n,): the largest difference of the answers (n, classes) to each input, as a share of the
    largest scale of all.

    Logarithms of probabilities are compared as probabilities too, and the smaller difference
    counts: of a probability near 0 that was rounded the logarithm means nothing.
    """
    shares = (first - second).abs() / torch.maximum(
        first.abs(), losses.scale(first, first.argmax(1)).amax()
    )
    difference = torch.where(first == second, 0.0, shares).nan_to_num(torch.inf).amax(1)
    # Of logarithms of probabilities the exponentials sum to 1.
    if bool((first.logsumexp(1).abs() < ANSWER_TOLERANCE).all()):
        difference = torch.minimum(difference, (first.softmax(1) - second.softmax(1)).abs().amax(1))
    return difference
