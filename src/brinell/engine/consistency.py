"""Checks that an answer depends on its input alone: not on the batch, the row, the mode of the
modules or earlier calls.

During an attack a sample appears in many batches: with other samples, in another row, alone at the
end. A classifier should answer it the same each time. Batch norm in training mode, noise drawn by
row from a fixed seed, or a defence that adapts to its queries violate this. Such a model is robust
by accident of the batch size, and no other check notices, because the same batch gets the same
answers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.errors import ModelError
from brinell.core.model import Access
from brinell.core.recorder import Recorder
from brinell.engine.context import (
    ANSWER_TOLERANCE,
    CheckContext,
    NotMadeError,
    Repeat,
    answer_difference,
)

HALF_TOLERANCES = {torch.bfloat16: 8 * 2.0**-8, torch.float16: 8 * 2.0**-11}
"""The same tolerance for half precision, and for accelerators, whose float32 products have the
precision of float16."""
DRIFT_FACTOR = 3.0
"""Answers drift if early and late calls differ by more than this multiple of the differences
within each group."""

PREREQUISITES = (Code.RANDOM, Code.BATCH, Code.DRIFT)
"""Checks that must pass before a repeated query of a clean input is informative."""


class CallRecorder(Recorder):
    """Records whether a model normalises by the batch, and whether it computes in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.by_batch = False
        self.half: torch.dtype | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Its argument `training` is the sixth where it is given without its name.
        if getattr(func, "__name__", "") == "batch_norm":
            self.by_batch |= bool(kwargs.get("training", args[5] if len(args) > 5 else False))

        answer = func(*args, **kwargs)
        # Of both, bfloat16 is coarser and stays.
        is_half = isinstance(answer, Tensor) and answer.dtype in HALF_TOLERANCES
        if is_half and self.half != torch.bfloat16:
            self.half = answer.dtype
        return answer

    def outcome(self, answer: Tensor) -> tuple[dict[str, Any], list[Tensor]]:
        """What it saw; half precision by its name."""
        return {"by_batch": self.by_batch, "half": self.half and str(self.half)}, []

    def accept(self, facts: Mapping[str, Any], arrays: Sequence[Tensor], answer: Tensor) -> None:
        """Add what the recorder in the process of the model saw."""
        self.by_batch |= facts["by_batch"]
        names = {str(dtype): dtype for dtype in HALF_TOLERANCES}
        self.half = names.get(facts["half"], self.half)


def answers_drift(context: CheckContext) -> Finding:
    """Late answers differ from early ones by no more than the answers within each group.

    Where early answers agree in all batches, a few late ones that agree with them are enough.
    """
    early = context.answers
    first = early[0]
    watch = CallRecorder()
    with watch:
        alone = _difference_alone(context) if context.is_steady else math.inf
        late = [context.ask(context.rows)] if alone > ANSWER_TOLERANCE else []
    limit = ANSWER_TOLERANCE
    if watch.half or first.device.type != "cpu":
        limit = HALF_TOLERANCES[watch.half or torch.float16]
    if not late:
        context.repeat = Repeat(limit, by_gradients=False, by_batch=False, is_random=False)
        text = "inputs that are asked alone are answered as at the beginning"
        figure = round(alone, 6)
        return Finding(code=Code.DRIFT, passed=True, text=text, figure=figure, limit=limit)

    gradients = context.ce.logits if context.model.access == Access.GRADIENTS else None
    by_gradients = _differs_by_gradients(early, late[0], gradients, limit)
    spread = max(_largest_difference(first, answers) for answers in early[1:])
    is_random = not by_gradients and spread > limit
    # A random model needs the spread of late answers too, to compare it with that between groups.
    if is_random:
        late.append(context.ask(context.rows))
        spread = max(spread, _largest_difference(late[0], late[1]))
    context.repeat = Repeat(limit, by_gradients, watch.by_batch, is_random)

    # Even the early and the late answers that are nearest to each other must differ.
    between = min(_largest_difference(before, after) for before in early for after in late)
    drifts = between > limit and (not is_random or between > DRIFT_FACTOR * spread)
    if is_random and not drifts:
        raise NotMadeError("the same input is answered differently each time (random-answers)")
    text = "the same batches are answered as at the beginning"
    if drifts:
        text = (
            "the same batches are answered differently than a few calls before: "
            "the model keeps something of what it is asked (a "
            "counter, running statistics, weights that adapt), so an attack "
            "meets another model at each step; audit it with that "
            "state fixed"
        )
    return Finding(code=Code.DRIFT, passed=not drifts, text=text, figure=between, limit=limit)


def _differs_by_gradients(
    early: Sequence[Tensor], late: Tensor, gradients: Tensor | None, limit: float
) -> bool:
    """True if answers that differ by gradients alone agree among those without, and among those
    with them; never without gradients.
    """
    # `early[0]` and `late` were asked without gradients; the other early answers come with them,
    # unless other batches change nothing.
    if gradients is None or _largest_difference(early[0], late) > limit:
        return False
    agree = all(_largest_difference(gradients, answers) <= limit for answers in early[1:])
    return agree and _largest_difference(early[0], gradients) > limit


def _difference_alone(context: CheckContext) -> float:
    """Largest difference between early answers and late ones to inputs that are asked alone;
    infinite where the model fails on one.
    """
    try:
        rows, late = context.singles
    except ModelError:
        return math.inf
    return _largest_difference(context.first[0][rows], late)


def answers_by_batch(context: CheckContext) -> Finding:
    """Answers to a sample depend neither on the other samples of its batch nor on its row there."""
    repeat = context.repeat
    has_drifted = context.findings[Code.DRIFT].passed is False
    if repeat is None or repeat.is_random or has_drifted:
        raise NotMadeError("the same input is answered differently each time")
    if context.batch_size == 1:
        return Finding(
            code=Code.BATCH, passed=True, text="every input is asked alone (--batch-size 1)"
        )
    n = len(context.batch)
    if n == 1:
        raise NotMadeError("it takes two inputs")

    # In other batches and rows, and some of them alone.
    first = context.answers[0]
    second = context.regrouped
    training = context.model.info.training
    mode = "in training mode" if training is not None and training() else "without statistics"
    cause = f": it normalises by the batch (batch norm {mode})" if repeat.by_batch else ""
    try:
        sample, single = context.singles
    except ModelError as error:
        text = (
            f"the model answers inputs in company and fails on one alone ({error}){cause}; it has "
            "no answer to one input, which an attack changes"
        )
        return Finding(code=Code.BATCH, passed=False, text=text)

    limit = repeat.limit
    difference = answer_difference(first, second)
    single_difference = answer_difference(first[sample], single)
    figure = max(float(difference.amax()), float(single_difference.amax()))
    text = (
        f"{n} inputs are answered alike in other batches and rows, and {len(sample)} of them alone"
    )
    if figure > limit:
        changed = int((first.argmax(1) != second.argmax(1)).sum())
        text = (
            f"{int((difference > limit).sum())} of {n} inputs are answered "
            "differently in another batch or row "
            f"({changed} class{'' if changed == 1 else 'es'} changed), and "
            f"{int((single_difference > limit).sum())} of {len(sample)} alone{cause}; "
            "what an attack reaches depends on the batch size and on which "
            "samples are left; ask for one input at a time with --batch-size 1"
        )
    return Finding(code=Code.BATCH, passed=figure <= limit, text=text, figure=figure, limit=limit)


def training_mode(context: CheckContext) -> Finding:
    """All modules are in evaluation mode after the calls, and gradients do not change the answers."""
    training = context.model.info.training
    if training is None:
        raise NotMadeError("the model is no torch module")

    parts = training()
    by_gradients = context.repeat is not None and context.repeat.by_gradients
    text = (
        "every module is in evaluation mode after a call, and answers are the same "
        "where gradients are asked for"
    )
    if parts:
        listing = ", ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        text = (
            f"after a call modules are in training mode ({listing}): the model's "
            "forward pass puts them there, so batch norm "
            "and dropout answer as they do in training; take train() out of it"
        )
    elif by_gradients:
        text = (
            "the model answers differently where gradients are asked for, so "
            "gradients belong to another model than the one that "
            "is judged; let it answer alike, whether or not gradients are on"
        )
    return Finding(code=Code.MODE, passed=not parts and not by_gradients, text=text)


def _largest_difference(first: Tensor, second: Tensor) -> float:
    return float(answer_difference(first, second).amax())
