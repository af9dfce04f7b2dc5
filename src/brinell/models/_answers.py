"""Answers that are no logits, as logits: what kinds there are, how they are told apart, and how each is turned.

The logarithm of a probability is a logit: the softmax of it is the probability again, so losses, confidences and margins mean
what they mean for networks. Only a common summand is lost, on which no loss depends. A score between 0 and 1 per class is the
sigmoid of a logit. One number for two classes is the lead of the second over the first, or its probability. Each of these
conversions rises with the answer, so none changes which class leads.

Where a torch module ends in a softmax or a sigmoid, what went into it is read in place of what came out: float32 rounds
probabilities above 1 - 6e-8 to 1, and with them the gradient away. The same holds where it ends in a hyperbolic tangent or
another function that flattens large logits, scaled or not: which class leads is what it was, and the gradient is there again.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from brinell.core.domain import Domain
from brinell.core.errors import MemoryShortError, ModelError
from brinell.core.model import Access, Model, ModelInfo, ask
from brinell.core.streams import Streams

Kind = Literal["logits", "probabilities", "log-probabilities", "sigmoids", "logit", "probability", "one-hot"]
"""What one row of answers is; logit and probability are single numbers, of the second of two classes."""
KINDS: tuple[str, ...] = get_args(Kind)

FLOOR = 2.0**-126
"""The smallest probability that differs from 0: the smallest normal float32, whose logarithm is -87.3."""
CEILING = 1 - 2.0**-24
"""The largest float32 below 1, whose logit is 16.6."""
SUM = 1e-3
"""By how much the sum of probabilities may be off: some models answer in half precision."""
LOW, HIGH = 0.1, 0.9
"""Scores are sigmoids if they lie between 0 and 1 and reach beyond both of these."""
SQUASHED = "squashed"
"""Logits behind a function that flattens large ones, or scaled probabilities: only what went into the function says how much."""
SQUASHING = {
    "softmax": "probabilities",
    "sigmoid": "sigmoids",
    **dict.fromkeys(("tanh", "softsign", "atan", "arctan", "erf"), SQUASHED),
}
SCALING = {"mul", "div", "true_divide", "add", "sub"}
"""Functions that leave the order of answers as it was, where the other operand is a number, and a positive one for a factor."""
NEUTRAL = {"squeeze", "unsqueeze", "flatten", "view", "reshape", "float", "to", "contiguous", "clone"}
"""Functions that do to an answer what they would do to what went into the softmax."""


def random_inputs(domain: Domain, n: int) -> Tensor:
    """(n, *shape): inputs anywhere within the bounds, always the same, by which it is learned what a model answers."""
    low, high = domain.bounds()
    return low + (high - low) * Streams.of(0, torch.arange(n)).uniform(*domain.shape)


def of_probabilities(probabilities: Tensor) -> Tensor:
    """(n, classes) probabilities to (n, classes) float32 logits; none below `FLOOR`."""
    return probabilities.clamp_min(FLOOR).log().float()


def of_labels(labels: Tensor, classes: int) -> Tensor:
    """(n,) classes that a model answers with to (n, classes) float32 logits by which it is certain."""
    return of_probabilities(torch.nn.functional.one_hot(labels.long(), classes).float())


def of_sigmoids(scores: Tensor) -> Tensor:
    """(n, classes) scores between 0 and 1, one per class, to (n, classes) float32 logits, none beyond `FLOOR` and `CEILING`."""
    kept = scores.clamp(FLOOR, CEILING)
    return (kept.log() - (-kept).log1p()).float()


def of_lead(lead: Tensor) -> Tensor:
    """(n, 1) lead of the second of two classes to (n, 2) float32 logits."""
    return torch.cat([-lead / 2, lead / 2], 1).float()


CONVERSIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "probabilities": of_probabilities,
    "sigmoids": of_sigmoids,
    "logit": of_lead,
    "probability": lambda scores: of_lead(of_sigmoids(scores)),
}
"""From answers to logits, of the kinds that are none."""


def are_probabilities(answers: Tensor) -> bool:
    """Whether each row of (n, classes) answers is a distribution over at least two classes."""
    off = (answers.double().sum(1) - 1).abs()
    return answers.shape[1] > 1 and bool((answers >= 0).all()) and bool((off < SUM).all())


def recognise(answers: Tensor) -> Kind:
    """What (n, classes) answers to real inputs look like; finite ones, n at least 1.

    Scores between 0 and 1 that keep away from both ends may be logits as well, and count as such: their order is the same.
    """
    unit = bool(((answers >= 0) & (answers <= 1)).all())
    if answers.shape[1] == 1:
        return "probability" if unit else "logit"
    top = answers.amax(1, keepdim=True)
    rest = answers.masked_fill(answers == top, torch.inf)
    certain = len(answers) > 1 or bool(((answers == 0) | (answers == 1)).all())
    if certain and bool(((answers == top).sum(1) == 1).all()) and bool((top == top[0]).all()) and _one_value(rest):
        return "one-hot"
    if are_probabilities(answers):
        return "probabilities"
    if bool((answers <= SUM).all()) and bool((answers.double().logsumexp(1).abs() < SUM).all()):
        return "log-probabilities"
    if unit and float(answers.amin()) < LOW and float(answers.amax()) > HIGH:
        return "sigmoids"
    return "logits"


def _one_value(rest: Tensor) -> bool:
    finite = rest[torch.isfinite(rest)]
    return bool((finite == finite[0]).all())


class BeforeSquashing(TorchFunctionMode):
    """Remembers what went into each softmax over classes and each sigmoid, so that it can be read in place of the answer."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[Tensor, Tensor, str]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and remember."""
        kwargs = kwargs or {}
        answer, name = func(*args, **kwargs), getattr(func, "__name__", "")
        given = args[0] if args else kwargs.get("input")
        if not isinstance(answer, Tensor) or not isinstance(given, Tensor):
            return answer
        if name in SQUASHING and (name == "sigmoid" or _over_classes(given, args, kwargs)):
            self._seen[id(answer)] = (answer, given, SQUASHING[name])
        elif name in SCALING and id(given) in self._seen and _keeps_the_order(name, args):
            self._seen[id(answer)] = (answer, self._seen[id(given)][1], SQUASHED)
        elif name in NEUTRAL and id(given) in self._seen:
            _, before, kind = self._seen[id(given)]
            self._seen[id(answer)] = (answer, func(before, *args[1:], **kwargs), kind)
        return answer

    def before(self, answer: Tensor) -> tuple[Tensor, str] | None:
        """What went into the softmax or sigmoid that gave this answer, and which of the two as a kind of answers; or None."""
        found = self._seen.get(id(answer))
        return None if found is None or found[1].shape != answer.shape else found[1:]


def _keeps_the_order(name: str, args: Any) -> bool:
    factor = args[1] if len(args) == 2 else None
    return isinstance(factor, int | float) and (factor > 0 or name in ("add", "sub"))


def _over_classes(given: Tensor, args: Any, kwargs: Any) -> bool:
    """Whether a softmax runs over the classes; functions of single values need no axis."""
    dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return given.ndim == 2 and dim in (1, -1)


class Answered:
    """A model whose answers of a known kind are turned into logits; all else is the model's own."""

    def __init__(self, model: Model, kind: str) -> None:
        self.model, self.kind, self.name, self.domain, self.access = model, kind, model.name, model.domain, model.access
        self.classes = 2 if kind in ("logit", "probability") else model.classes

    @property
    def info(self) -> ModelInfo:
        """What the model offers, and what its answers are."""
        return replace(self.model.info, answers=self.kind)

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits; a ModelError where an answer is none of its kind."""
        if self.kind not in CONVERSIONS and self.kind != SQUASHED:
            return self.model.predict(x)
        with BeforeSquashing() as seen:
            answer = self.model.predict(x)
        found = seen.before(answer)
        if found is not None and self.kind != "logit":
            logits = found[0].float()
            return of_lead(logits) if self.kind == "probability" else logits
        if self.kind == SQUASHED:
            raise ModelError(
                f"model {self.name} ended in a function that flattens its logits, and now it does not: answers=logits takes its "
                "answers as they are"
            )
        outside = self.kind != "logit" and not bool(((answer >= -SUM) & (answer <= 1 + SUM)).all())
        if outside and bool(torch.isfinite(answer).all()):
            raise ModelError(
                f"model {self.name} answers {self.kind}, it seemed, and now a number outside of 0 to 1: say what it answers, "
                "answers=logits for example"
            )
        return CONVERSIONS[self.kind](answer)

    def digest(self) -> str:
        """That of the model, and of what its answers are."""
        return hashlib.blake2b(f"{self.model.digest()} {self.kind}".encode(), digest_size=16).hexdigest()


def classes_of(model: Model) -> int:
    """How many classes a model distinguishes once its answers are logits: two where it answers one number of an unsaid kind."""
    said = model.info.answers is not None or model.access == Access.LABELS
    return 2 if model.classes == 1 and not said else model.classes


def recognised(model: Model, x: Tensor, on_pass: Callable[[int, int], None] = lambda forwards, backwards: None) -> Model:
    """The model with its answers as logits, by what they look like on some real inputs (n, *shape), n at least 1.

    A model that says what it answers, or that answers none of these inputs or another number of columns than it has classes,
    stays as it is. `on_pass` is told before each
    question how many (forwards, backwards) it costs.
    """
    if model.info.answers is not None:
        return model
    rows, kinds = [], set()
    with torch.no_grad():
        for part in (x, *x.split(1)):  # type: ignore[no-untyped-call]
            with BeforeSquashing() as seen:
                on_pass(len(part), 0)
                try:
                    answer = ask(model, part)
                except (MemoryShortError, ModelError):
                    continue
            rows.append(answer)
            kinds.add(found[1] if (found := seen.before(answer)) else "")
            if part is x:
                break
    if not rows or not bool(torch.isfinite(answers := torch.cat(rows)).all()) or answers.ndim != 2:
        return model
    if answers.shape[1] != model.classes:
        return model
    kind: str = recognise(answers)
    if kinds == {"sigmoids"}:
        kind = "probability" if answers.shape[1] == 1 else "sigmoids"
    elif kinds == {"probabilities"} or (kinds == {SQUASHED} and answers.shape[1] > 1):
        (kind,) = kinds
    return Answered(model, kind) if kind in CONVERSIONS or kind == SQUASHED else model
