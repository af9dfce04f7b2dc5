"""Conversion of answers such as probabilities to logits: the kinds of answers, their recognition,
and the formula of each kind.

The logarithm of a probability is a logit: its softmax is the probability again. So losses,
confidences and margins mean what they mean for networks. Only a summand common to all classes is
lost, and no loss depends on it. A score between 0 and 1 per class is the sigmoid of a logit. A
single number for two classes is the logit of the second class minus that of the first, or the
probability of the second. All conversions are increasing, so the leading class stays the same.

If a torch module ends in a softmax or a sigmoid, the input of that function stands in for its
output, whose gradient vanishes where float32 rounds probabilities above 1 - 6e-8 to 1. The same
holds for a hyperbolic tangent or another function that flattens large logits, scaled or not. An
input stands in only for the rows of an answer that the function, computed again, gives to the last
digit; a model that corrects its probabilities afterwards is read by its answers. The leading class
is always that of the answer as the model returned it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError, ModelError
from brinell.core.model import MASKED, Access, Model, ModelInfo, as_logits, ask, led_by
from brinell.core.recorder import Recorder
from brinell.core.streams import Streams

Kind = Literal[
    "logits", "probabilities", "log-probabilities", "sigmoids", "logit", "probability", "one-hot"
]
"""Kind of a model's answers. logit and probability are single numbers, of the second of two
classes."""
KINDS: tuple[str, ...] = get_args(Kind)

FLOOR = 2.0**-126
"""The smallest probability that differs from 0: the smallest normal float32, whose logarithm is
-87.3."""
CEILING = 1 - 2.0**-24
"""The largest float32 below 1, whose logit is 16.6."""
SUM_TOLERANCE = 1e-3
"""Largest deviation of a sum of probabilities from 1. Some models answer in half precision."""
LOW, HIGH = 0.1, 0.9
"""Scores are sigmoids if they lie between 0 and 1 and some lie below LOW and above HIGH."""
SQUASHED = "squashed"
"""Kind of logits behind a flattening function, and of scaled probabilities."""
SQUASHING = {
    "softmax": "probabilities",
    "sigmoid": "sigmoids",
    **dict.fromkeys(("tanh", "softsign", "atan", "arctan", "erf"), SQUASHED),
}
SCALING = {"mul", "div", "true_divide", "add", "sub"}
"""Functions that keep the order of answers if the second operand is a number, positive if it is
a factor."""
NEUTRAL = {
    "squeeze",
    "unsqueeze",
    "flatten",
    "view",
    "reshape",
    "float",
    "to",
    "contiguous",
    "clone",
    "index_select",
}
"""Functions that act on an answer as they would act on the input of the softmax."""


def random_inputs(domain: Domain, n: int) -> Tensor:
    """(n, *shape) random inputs within the bounds, the same in every run.

    The answers to them show what a model answers.
    """
    low, high = domain.bounds()
    return low + (high - low) * Streams.of(0, torch.arange(n)).uniform(*domain.shape)


def logits_of_probabilities(probabilities: Tensor) -> Tensor:
    """(n, classes) probabilities to (n, classes) float32 logits; none below `FLOOR`."""
    return probabilities.clamp_min(FLOOR).log().float()


def logits_of_labels(labels: Tensor, classes: int) -> Tensor:
    """(n,) predicted classes to (n, classes) float32 logits that are certain of them."""
    return logits_of_probabilities(torch.nn.functional.one_hot(labels.long(), classes).float())


def logits_of_sigmoids(scores: Tensor) -> Tensor:
    """(n, classes) scores between 0 and 1, one per class, to (n, classes) float32 logits."""
    scores_inside = scores.clamp(FLOOR, CEILING)
    return (scores_inside.log() - (-scores_inside).log1p()).float()


def logits_of_difference(difference: Tensor) -> Tensor:
    """(n, 1) difference of two logits, second minus first, to (n, 2) float32 logits."""
    return torch.cat([-difference / 2, difference / 2], 1).float()


CONVERSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "probabilities": logits_of_probabilities,
    "sigmoids": logits_of_sigmoids,
    "logit": logits_of_difference,
    "probability": lambda scores: logits_of_difference(logits_of_sigmoids(scores)),
}
"""Functions from answers to logits, by kind; logits need none."""


def are_probabilities(answers: Tensor) -> bool:
    """True if each row of (n, classes) answers is a distribution over at least two classes."""
    deviation = (answers.double().sum(1) - 1).abs()
    return (
        answers.shape[1] > 1
        and bool((answers >= 0).all())
        and bool((deviation < SUM_TOLERANCE).all())
    )


def kind_of_answers(answers: Tensor) -> Kind:
    """The kind that (n, classes) finite answers to real inputs look like; n is at least 1.

    Scores between 0 and 1 that keep away from both ends may be logits as well, and count as logits:
    their order is the same.
    """
    unit = bool(((answers >= 0) & (answers <= 1)).all())
    if answers.shape[1] == 1:
        return "probability" if unit else "logit"

    # Labels as rows: each holds the same two numbers, the larger one once. A single row of two
    # classes always does, so that its numbers must be 0 and 1.
    top = answers.amax(1, keepdim=True)
    lower_answers = answers.masked_fill(answers == top, torch.inf)
    certain = len(answers) > 1 or bool(((answers == 0) | (answers == 1)).all())
    lower = lower_answers[torch.isfinite(lower_answers)]
    if certain and bool(
        ((answers == top).sum(1) == 1).all() and (top == top[0]).all() and (lower == lower[0]).all()
    ):
        return "one-hot"

    if are_probabilities(answers):
        return "probabilities"
    # Logarithms of probabilities are at most 0, and their logsumexp is 0.
    if bool((answers <= SUM_TOLERANCE).all()) and bool(
        (answers.double().logsumexp(1).abs() < SUM_TOLERANCE).all()
    ):
        return "log-probabilities"
    if unit and float(answers.amin()) < LOW and float(answers.amax()) > HIGH:
        return "sigmoids"
    return "logits"


def _squashes(name: str, operand: Tensor, args: Any, kwargs: Any) -> bool:
    """True for a sigmoid, and for a softmax over the classes of (n, classes) logits."""
    if name not in SQUASHING or name == "sigmoid":
        return name in SQUASHING
    axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return operand.ndim == 2 and axis in (1, -1)


def _is_increasing(name: str, args: Any) -> bool:
    """True if a call with a number beside its operand keeps the order of values."""
    factor = args[1] if len(args) == 2 else None
    return isinstance(factor, int | float) and (factor > 0 or name in ("add", "sub"))


class _Squashed(NamedTuple):
    """An answer that a flattening function gave."""

    answer: Tensor
    logits: Tensor
    """The input of the function, in the shape of the answer."""
    kind: str
    repeat: Callable[[], Tensor]
    """Computes the answer again from what the input holds then."""


class SquashingInputs(Recorder):
    """Records the input of each softmax over classes and of each sigmoid, to stand in for it."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[int, _Squashed] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and record its input if it squashes logits."""
        kwargs = kwargs or {}
        answer = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        operand = args[0] if args else kwargs.get("input")
        if not isinstance(answer, Tensor) or not isinstance(operand, Tensor):
            return answer

        if _squashes(name, operand, args, kwargs):
            # A copy: the model may write into it, and the function's gradient needs its output.
            answer = answer.clone()
            self._records[id(answer)] = _Squashed(
                answer, operand, SQUASHING[name], lambda: func(*args, **kwargs)
            )
        elif (inner := self._records.get(id(operand))) is not None:
            self._follow(inner, answer, func, name, args, kwargs)
        return answer

    def _follow(
        self, inner: _Squashed, answer: Tensor, func: Any, name: str, args: Any, kwargs: Any
    ) -> None:
        """Record what a function makes of a squashed answer, if it keeps the order of classes."""
        # The limit of masked classes in `ask` acts on an answer as on the input of the softmax,
        # too.
        if name in NEUTRAL or (name == "clamp_min" and args[1:] == (MASKED,)):
            logits = func(inner.logits, *args[1:], **kwargs)
            kind = inner.kind
        elif name in SCALING and _is_increasing(name, args):
            logits, kind = inner.logits, SQUASHED
        else:
            return
        self._records[id(answer)] = _Squashed(
            answer, logits, kind, lambda: func(inner.repeat(), *args[1:], **kwargs)
        )

    def before(self, answer: Tensor) -> tuple[Tensor, Tensor, str] | None:
        """What stands in for an answer: logits, the rows (n,) bool that they explain, and the kind.

        They explain a row if the function, computed again, gives it to the last digit.
        """
        record = self._records.get(id(answer))
        if record is None or record.logits.shape != answer.shape:
            return None
        with torch.no_grad():
            return record.logits, (record.repeat() == answer).flatten(1).all(1), record.kind

    def outcome(self, answer: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
        """The logits that stand in for the answer, if any do."""
        record = self.before(answer)
        return ({}, []) if record is None else ({"kind": record[2]}, list(record[:2]))

    def accept(self, facts: Mapping[str, Any], arrays: Sequence[Tensor], answer: Tensor) -> None:
        """Record what another one found for the answer."""
        if arrays:
            logits, explained = arrays
            # `before` compares what is computed again with the answer, and NaN equals nothing.
            values = torch.where(explained[:, None], answer.detach(), torch.nan)
            self._records[id(answer)] = _Squashed(answer, logits, facts["kind"], lambda: values)


class Converted:
    """A model whose answers are converted; everything else comes from the inner model.

    Args:
        model: the inner model.
        step: name of the conversion, for the digest; empty if the answers stay as they are.
        classes: classes of the converted answers.
        facts: what the conversion changes of the inner model's facts.
    """

    def __init__(self, model: Model, step: str, classes: int, **facts: Any) -> None:
        self.model, self.name, self.domain, self.access = (
            model,
            model.name,
            model.domain,
            model.access,
        )
        self.classes, self._step, self._facts = classes, step, facts

    @property
    def info(self) -> ModelInfo:
        """The facts of the inner model, and what the conversion changes."""
        notes = (*self.model.info.notes, *self._facts.get("notes", ()))
        return replace(self.model.info, **self._facts | {"notes": notes})

    def digest(self) -> str:
        """Hash of the inner model's digest and of what is done to its answers."""
        if not self._step:
            return self.model.digest()
        return hashlib.blake2b(
            f"{self.model.digest()} {self._step}".encode(), digest_size=16
        ).hexdigest()


class LogitModel(Converted):
    """A model whose answers of a known kind are converted to logits."""

    def __init__(self, model: Model, kind: str) -> None:
        super().__init__(
            model, kind, 2 if kind in ("logit", "probability") else model.classes, answers=kind
        )
        self.kind = kind

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape).

        Raises:
            ModelError: an answer is not of the recognised kind.
        """
        if self.kind not in CONVERSIONS and self.kind != SQUASHED:
            return self.model.predict(x)
        with SquashingInputs() as tracer:
            answer = self.model.predict(x)
        squashed = None if self.kind == "logit" else tracer.before(answer)
        if squashed is None and self.kind not in ("logit", SQUASHED):
            out_of_range = not bool(
                ((answer >= -SUM_TOLERANCE) & (answer <= 1 + SUM_TOLERANCE)).all()
            )
            if out_of_range and bool(torch.isfinite(answer).all()):
                raise ModelError(
                    f"the first answers of model {self.name} looked like "
                    f"{self.kind}, but now one is outside 0 to 1: say what "
                    "it answers, for example answers=logits"
                )

        logits = CONVERSIONS.get(self.kind, as_logits)(answer)
        leader = (answer if answer.shape[1] > 1 else logits).detach().argmax(1)
        if squashed is not None:
            # The function's own input: exact where the answer is rounded to 0 or 1.
            inner, explained, _ = squashed
            inner = logits_of_difference(inner) if self.kind == "probability" else inner.float()
            logits = torch.where(explained[:, None], inner, logits)
        # Rounding to logits may tie classes that the answer tells apart.
        return led_by(logits, leader)


def count_classes(model: Model) -> int:
    """Number of classes once the answers are logits.

    They are two if a model answers one number and does not state its kind.
    """
    if model.info.output is not None:
        return model.info.output.classes
    declared = model.info.answers is not None or model.access == Access.LABELS
    return 2 if model.classes == 1 and not declared else model.classes


def recognise_answers(
    model: Model, x: Tensor, on_pass: Callable[[int, int], None] = lambda forwards, backwards: None
) -> Model:
    """The model with its answers converted to logits, by the kind that its answers look like.

    The model is returned unchanged if it states the kind of its answers, if it fails on all inputs,
    or if its answers do not have one column per class.

    Args:
        model: the model to question.
        x: (n, *shape) real inputs, n at least 1.
        on_pass: called before each question with the number of forward and backward passes that it
            costs.
    """
    if model.info.answers is not None:
        return model
    rows, kinds = _ask_for_kinds(model, x, on_pass)
    if not rows or not bool(torch.isfinite(answers := torch.cat(rows)).all()) or answers.ndim != 2:
        return model
    if answers.shape[1] != model.classes:
        return model

    # What a squashing function shows decides before what the numbers look like.
    kind: str = kind_of_answers(answers)
    if kinds == {"sigmoids"}:
        kind = "probability" if answers.shape[1] == 1 else "sigmoids"
    elif kinds == {"probabilities"} or (kinds == {SQUASHED} and answers.shape[1] > 1):
        (kind,) = kinds
    return LogitModel(model, kind) if kind in CONVERSIONS or kind == SQUASHED else model


def _ask_for_kinds(
    model: Model, x: Tensor, on_pass: Callable[[int, int], None]
) -> tuple[list[Tensor], set[str]]:
    """Answers to inputs, and the kinds that squashing functions show behind them.

    All inputs go at once, and one by one if the model fails on them together. Empty for a kind: no
    such function, or one that does not explain every row.
    """
    rows: list[Tensor] = []
    kinds: set[str] = set()
    with torch.no_grad():
        for batch in (x, *x.split(1)):  # type: ignore[no-untyped-call]
            with SquashingInputs() as tracer:
                on_pass(len(batch), 0)  # no backward pass
                try:
                    answer = ask(model, batch)
                except (MemoryShortError, ModelError):
                    continue
            rows.append(answer)
            squashed = tracer.before(answer)
            kinds.add(squashed[2] if squashed is not None and bool(squashed[1].all()) else "")
            # All inputs at once were answered: there is no need to go one by one.
            if batch is x:
                break
    return rows, kinds
