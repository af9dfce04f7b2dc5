"""Finds the scores inside a torch model that decide its class, where those that it shows do not.

A model that shows other scores than those that its class comes from (`engine.boundary`) computes
the latter on the way, as a tensor (n, classes). The search looks at every such tensor in the
forward pass, also where it is computed without gradients. Its leading class must be that of the
model on clean inputs and far from them, and its lead must go to zero at the decision boundary by
the same check that the shown scores failed. Attacks then follow its gradient, while the model's own
answer judges every input.

It is the adaptive attack by hand of Tramer et al. 2020 (On adaptive attacks to adversarial example
defenses, section 4: attack the part that decides), made by a search. No source for the search
itself is known.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from brinell.core.checks import DECIDING_SCORES, GOOD
from brinell.core.errors import ModelError
from brinell.core.model import Access, Model
from brinell.core.recorder import Recorder
from brinell.engine import boundary
from brinell.engine.context import CheckContext, NotMadeError
from brinell.engine.repair import Repair, attempt, disagreement_of
from brinell.models._answers import Converted
from brinell.models._straight_through import StraightThrough

FIRST_SAMPLES, SAMPLES = 4, 32
"""Largest numbers of samples at which, and away from which, the leading classes are compared: at
first, and where some scores lead as the model does."""
MOST = 8
"""Largest number of tensors whose lead is followed to the decision boundary."""
DISTANCES = (0.1, 0.5, 1.0)
"""Distances from the clean inputs, as shares of the way to random ones, at which the leading
classes are compared."""
SAME = 1e-3
"""Largest relative difference of scores that say the same."""

Scores = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Maps inputs (n, *shape) to the scores within, and to the model's answers, both (n, classes)."""


class ClassTensors(Recorder):
    """Keeps the tensors (n, classes) of floating-point numbers that operations return, by the
    number of the operation.

    With `only`, it keeps the tensor of this operation alone.
    """

    def __init__(self, n: int, classes: int, only: int | None = None) -> None:
        super().__init__()
        self.shape, self.only = (n, classes), only
        self.count = 0
        self.tensors: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if (
            isinstance(answer, Tensor)
            and tuple(answer.shape) == self.shape
            and answer.is_floating_point()
        ):
            if self.only in (None, self.count):
                self.tensors[self.count] = answer.clone()  # what follows may write into it
            self.count += 1
        return answer

    def settings(self) -> dict[str, Any]:
        """Its arguments; operations are counted from those that it saw."""
        only = None if self.only is None else self.only - self.count
        return {"n": self.shape[0], "classes": self.shape[1], "only": only}

    def outcome(self, answer: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
        """The tensors, and the numbers of their operations."""
        return {"count": self.count, "numbers": list(self.tensors)}, list(self.tensors.values())

    def accept(self, facts: Mapping[str, Any], arrays: Sequence[Tensor], answer: Tensor) -> None:
        """Add the tensors of another one."""
        for number, tensor in zip(facts["numbers"], arrays, strict=True):
            self.tensors[self.count + number] = tensor
        self.count += facts["count"]


class DecidingModel(Converted):
    """The scores within a model in place of those that it shows.

    Where they lead elsewhere than its answer, the answer counts.
    """

    def __init__(self, model: Model, scores: Scores) -> None:
        # Without a step, it has the digest of the model whose class it gives.
        super().__init__(model, step="", classes=model.classes)
        self.access = Access.GRADIENTS
        self._scores = scores

    def predict(self, x: Tensor) -> Tensor:
        """(n, classes): the scores that decide."""
        scores, answers = self._scores(x)
        mismatch = scores.argmax(1, keepdim=True) != answers.argmax(1, keepdim=True)
        if not bool(mismatch.any()):
            return scores
        # The value of the answer, with the gradient of the scores.
        return torch.where(mismatch, answers.detach() + (scores - scores.detach()), scores)


def with_scores_of(model: Model, surrogate: Model) -> DecidingModel:
    """The scores of a surrogate in place of those that a model shows; the model's own class judges
    every input.
    """
    return DecidingModel(model, lambda x: (surrogate.predict(x), model.predict(x)))


def _scores_of_operation(model: Model, number: int, attach: bool) -> Scores:
    """The result of one operation of the forward pass, which runs without gradients if `attach`."""

    def scores(x: Tensor) -> tuple[Tensor, Tensor]:
        with (
            StraightThrough(attach=True) if attach else nullcontext(),
            ClassTensors(len(x), model.classes, number) as mode,
        ):
            answers = model.predict(x)
        if number not in mode.tensors:
            raise ModelError(f"model {model.name} computes other operations for other inputs")
        return mode.tensors[number].float(), answers

    return scores


def _list_candidates(model: Model, x: Tensor) -> list[Scores]:
    """Scores within a model that lead to its class on inputs (n, *shape), each once, those near the
    end first.

    Those that say what the model shows are left out. Probabilities come last, since they flatten
    where a model is sure.
    """
    # A tensor that needs no gradient although the input does is computed without gradients, which
    # an attack on it has to attach.
    leaf = x.detach().requires_grad_()
    with torch.enable_grad(), ClassTensors(len(x), model.classes) as mode:
        shown = model.predict(leaf).detach().float()

    history = [shown]
    plain = list[Scores]()
    probabilities = list[Scores]()
    # From the last tensor back: what decides stands near the end.
    for number, tensor in sorted(mode.tensors.items(), reverse=True):
        scores = tensor.detach().float()
        is_finite = bool(torch.isfinite(scores).all())
        # Scores that lead elsewhere on a single sample do not decide.
        leads = is_finite and torch.equal(scores.argmax(1), shown.argmax(1))
        if not leads or any(torch.equal(scores, earlier) for earlier in history):
            continue
        history.append(scores)
        if not _says_the_same(scores, shown):
            group = probabilities if _are_probabilities(scores) else plain
            group.append(_scores_of_operation(model, number, attach=not tensor.requires_grad))
    return [*plain, *probabilities]


def _are_probabilities(scores: Tensor) -> bool:
    """True if scores (n, classes) are at least 0, and at most 1 or of one sum."""
    sums = scores.sum(1)
    is_bounded = bool((scores <= 1).all())
    have_one_sum = bool(sums.amax() - sums.amin() <= SAME * sums.amax())
    return bool((scores >= 0).all()) and (is_bounded or have_one_sum)


def _says_the_same(scores: Tensor, shown: Tensor) -> bool:
    """True if scores (n, classes) are the shown ones but for a factor, a shift, a softmax or a
    sigmoid.
    """
    # Leads do not change by a shift, and by a factor all alike.
    factor = boundary.lead(scores) / boundary.lead(shown).clamp_min(torch.finfo(shown.dtype).tiny)
    if factor.amax() - factor.amin() <= SAME * factor.abs().amax():
        return True
    return any(
        torch.allclose(first, squashed, atol=SAME)
        for first, second in ((scores, shown), (shown, scores))
        for squashed in (second.softmax(1), second.sigmoid())
    )


def find_deciding_scores(context: CheckContext) -> Repair | None:
    """Find the inner scores of a model whose maximum is its class; None if it computes none with
    gradients.

    Of several, such as logits and their probabilities, those count with whose gradient finite
    differences agree.
    """
    model, x = context.model, context.clean.x
    low, high = model.domain.bounds(x)
    random = low + (high - low) * context.rng.fold("deciding scores").uniform(*x.shape[1:])
    # As many samples as fit into one batch with all their points.
    count = max(1, min(SAMPLES, context.batch_size // (1 + len(DISTANCES))))
    candidates: list[Scores] | None = None
    # A few samples first: most models have no such scores, and the second look costs more.
    for few in sorted({min(FIRST_SAMPLES, count), count}):
        points = torch.cat([x[:few], *((x + share * (random - x))[:few] for share in DISTANCES)])
        context.further_forwards += len(points)
        candidates = attempt(partial(_list_candidates, model, points))
        if not candidates:
            return None

    best = None
    for scores in (candidates or [])[:MOST]:
        candidate = DecidingModel(model, scores)
        if not attempt(partial(_decides, context, candidate)):
            continue
        disagreement = disagreement_of(context, candidate)
        if best is None or disagreement < best.disagreement:
            text = (
                f"attacked with {DECIDING_SCORES}: their lead goes to zero at the "
                "decision boundary, and finite differences "
                f"disagree by {disagreement:.2f}"
            )
            best = Repair(candidate, DECIDING_SCORES, text, disagreement)
        # One that finite differences agree with is good enough; the others would cost as much
        # again.
        if disagreement <= GOOD:
            break
    return best


def _decides(context: CheckContext, model: Model) -> bool:
    """True unless the lead of a model's scores stays large where its decision changes."""
    oracle = context.ledger(model, minimal=True).oracle()
    batch, domain = context.batch, context.domain
    logits = oracle.scores(batch.ids, batch.x)
    is_free = domain.is_free
    try:
        finding = boundary.check_margin(oracle, batch, logits, domain, context.rng, free=is_free)
    except NotMadeError:
        return False
    return finding.passed is not False
