"""Checks that an answer depends on its input alone: not on the batch, the row, the mode of the modules or earlier calls.

During an attack a sample appears in many batches: with other samples, in another row, alone at the end. A classifier should
answer it the same each time. Batch norm in training mode, noise drawn by row from a fixed seed, or a defence that adapts to its
queries violate this. Such a model is robust by accident of the batch size, and no other check notices, because the same batch
gets the same answers.

The checks use up to 64 samples: the same batches with rows reversed (place), the samples in other batches and a few alone
(company), and the first batches once more (drift). Limits: docs/reference/checks.md.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from brinell.core.checks import Code, Finding
from brinell.core.errors import MemoryShortError, ModelError
from brinell.core.model import Access, Model
from brinell.core.model import ask as ask_model
from brinell.core.oracle import Batch, Oracle
from brinell.core.record import Array

SINGLES = 8
"""Number of samples that are asked one at a time."""
ANSWER_TOLERANCE = 1e-4
"""Two answers to one input may differ by this share of the largest logit: kernels differ by some 1e-6."""
HALF_TOLERANCES = {torch.bfloat16: 8 * 2.0**-8, torch.float16: 8 * 2.0**-11}
"""The same tolerance for half precision, and for accelerators, whose float32 products have the precision of float16."""
DRIFT_FACTOR = 3.0
"""Answers drift if early and late calls differ by more than this multiple of the differences within each group."""

PREREQUISITES = (Code.RANDOM, Code.PLACE, Code.COMPANY, Code.DRIFT)
"""Checks that must pass before a repeated query of a clean input is informative."""


class CallRecorder(TorchFunctionMode):
    """Records whether a model normalises by the batch, and whether it computes in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.by_batch = False
        self.half: torch.dtype | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and record it."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "batch_norm":
            self.by_batch |= bool(kwargs.get("training", args[5] if len(args) > 5 else False))
        answer = func(*args, **kwargs)
        if isinstance(answer, Tensor) and answer.dtype in HALF_TOLERANCES and self.half != torch.bfloat16:
            self.half = answer.dtype
        return answer


def check_consistency(
    oracle: Oracle, batch: Batch, model: Model, early: list[Tensor], *, batch_size: int, gradients: Tensor | None = None
) -> list[Finding]:
    """Make the checks of place, company, mode and drift.

    Costs at most four forwards per sample, and one more for each of `SINGLES` samples.

    Args:
        oracle: of a ledger whose threat is the whole domain.
        batch: n clean inputs, at least one.
        model: the model behind the oracle; its modules' mode is inspected.
        early: two or more (n, classes) answers to the batch, in batches of `batch_size` in the batch's order. For a model that
            gives labels only, they are one-hot.
        batch_size: the most inputs that the oracle shows to the model at once.
        gradients: (n, classes) the answers where gradients were asked for as well, if any.

    Raises:
        ModelError: the model fails on inputs that it has answered before.
    """
    ask = _asker(oracle, batch, model)
    first, n, watch = early[0], len(batch), CallRecorder()
    rows = torch.arange(n, device=batch.x.device)
    with watch:
        repeat = ask(rows)
    limit = ANSWER_TOLERANCE
    if watch.half or first.device.type != "cpu":
        limit = HALF_TOLERANCES[watch.half or torch.float16]
    by_gradients = False
    if gradients is not None and _largest_difference(first, repeat) <= limit < _largest_difference(first, gradients):
        by_gradients = all(_largest_difference(gradients, answers) <= limit for answers in early[1:])
    late, random = [repeat], not by_gradients and max(_largest_difference(first, answers) for answers in early[1:]) > limit
    if random:
        late.append(ask(rows))
    drift = _drift(early, late, limit, random)
    unsure = "the same input is answered differently each time" if random or drift.passed is False else ""
    place = _place(ask, first, batch_size, limit, unsure)
    if place.passed is False:
        unsure = "the answer depends on the place in the batch already"
    findings = [place, _company(ask, first, batch_size, limit, watch.by_batch, unsure)]
    return [*findings, _mode(model, by_gradients), drift]


Ask = Callable[[Tensor], Tensor]
"""Rows (m,) of the batch to their answers (m, classes), asked in this order."""


def _asker(oracle: Oracle, batch: Batch, model: Model) -> Ask:
    """A function that asks the oracle about some rows of the batch."""

    def ask(rows: Tensor) -> Tensor:
        """(n, classes): scores of the rows, or one-hot labels if the model gives labels only."""
        ids, x = batch.ids[rows], batch.x[rows]
        if model.access == Access.LABELS:
            return torch.nn.functional.one_hot(oracle.labels(ids, x), model.classes).float()
        return oracle.scores(ids, x)

    return ask


def answer_difference(first: Tensor, second: Tensor) -> Tensor:
    """(n,): the largest difference of the answers (n, classes) to each input, as a share of the largest logit of all.

    Logarithms of probabilities are compared as probabilities too, and the smaller difference counts: of a probability near 0 that
    was rounded the logarithm means nothing.
    """
    difference = (first - second).abs().amax(1) / first.abs().amax().clamp_min(1e-12)
    if bool((first.logsumexp(1).abs() < ANSWER_TOLERANCE).all()):
        difference = torch.minimum(difference, (first.softmax(1) - second.softmax(1)).abs().amax(1))
    return difference


def _largest_difference(first: Tensor, second: Tensor) -> float:
    """Largest difference of two sets of answers over all samples."""
    return float(answer_difference(first, second).amax())


def _drift(early: list[Tensor], late: list[Tensor], limit: float, random: bool) -> Finding:
    """Check that late answers differ from early ones by no more than the answers within each group."""
    between = min(_largest_difference(before, after) for before in early for after in late)
    spread = max(_largest_difference(group[0], answers) for group in (early, late) for answers in group[1:] or group)
    drifts = between > limit and (not random or between > DRIFT_FACTOR * spread)
    if random and not drifts:
        return Finding.not_made(Code.DRIFT, "the same input is answered differently each time (random-answers)")
    text = "the same batches are answered as at the beginning"
    if drifts:
        text = (
            "the same batches are answered differently than a few calls before: the model keeps something of what it is asked (a "
            "counter, running statistics, weights that adapt), so an attack meets another model at each step; audit it with that "
            "state fixed"
        )
    return Finding(code=Code.DRIFT, passed=not drifts, text=text, figure=between, limit=limit)


def _place(ask: Ask, first: Tensor, batch_size: int, limit: float, unsure: str) -> Finding:
    """Check that answers do not depend on the row within a batch."""
    if unsure:
        return Finding.not_made(Code.PLACE, unsure)
    if min(batch_size, len(first)) == 1:
        return Finding(code=Code.PLACE, passed=True, text="every input is asked alone")
    rows = torch.cat([part.flip(0) for part in torch.split(torch.arange(len(first), device=first.device), batch_size)])
    second = torch.empty_like(first)
    second[rows] = ask(rows)
    difference = answer_difference(first, second)
    text = f"{len(first)} inputs are answered alike in another row of the same batch"
    if bad := float(difference.amax()) > limit:
        text = (
            f"{int((difference > limit).sum())} of {len(first)} inputs are answered differently in another row of the same batch "
            f"({_count_changed(first, second)}): the model draws or looks up something by row, so what an attack reaches "
            "depends on the order of the samples; take that out, or ask for one input at a time with --batch-size 1"
        )
    return Finding(code=Code.PLACE, passed=not bad, text=text, figure=float(difference.amax()), limit=limit)


def _company(ask: Ask, first: Tensor, batch_size: int, limit: float, by_batch: bool, unsure: str) -> Finding:
    """Check that answers to a sample do not depend on the other samples of its batch."""
    if unsure:
        return Finding.not_made(Code.COMPANY, unsure)
    n = len(first)
    if batch_size == 1:
        return Finding(code=Code.COMPANY, passed=True, text="every input is asked alone (--batch-size 1)")
    if n == 1:
        return Finding.not_made(Code.COMPANY, "it takes two inputs")
    index = torch.arange(n, device=first.device)
    second = torch.empty_like(first)
    for rows in (index[::2], index[1::2]):
        second[rows] = ask(rows)
    cause = ": it normalises by the batch (batch norm in training mode)" if by_batch else ""
    remedy = "; put the model in evaluation mode, or ask for one input at a time with --batch-size 1"
    sample = index[:: max(1, n // SINGLES)][:SINGLES]
    try:
        single = torch.cat([ask(row[None]) for row in sample])
    except ModelError as error:
        text = f"the model answers inputs in company and fails on one alone ({error}){cause}{remedy}"
        return Finding(code=Code.COMPANY, passed=False, text=text)
    difference, single_difference = answer_difference(first, second), answer_difference(first[sample], single)
    figure = max(float(difference.amax()), float(single_difference.amax()))
    text = f"{n} inputs are answered alike in other batches, and {len(sample)} of them alone"
    if bad := figure > limit:
        text = (
            f"{int((difference > limit).sum())} of {n} inputs are answered differently in another batch "
            f"({_count_changed(first, second)}), and {int((single_difference > limit).sum())} of {len(sample)} alone{cause}; "
            f"what an attack reaches depends on the batch size and on which samples are left{remedy}"
        )
    return Finding(code=Code.COMPANY, passed=not bad, text=text, figure=figure, limit=limit)


def _count_changed(first: Tensor, second: Tensor) -> str:
    """Text for the number of samples whose class differs."""
    count = int((first.argmax(1) != second.argmax(1)).sum())
    return f"{count} class{'' if count == 1 else 'es'} changed"


def _mode(model: Model, by_gradients: bool) -> Finding:
    """Check that all modules are in evaluation mode after the calls, and that gradients do not change the answers."""
    training = model.info.training
    if training is None:
        return Finding.not_made(Code.MODE, "the model is no torch module")
    parts = training()
    text = "every module is in evaluation mode after a call, and answers are the same where gradients are asked for"
    if parts:
        listing = ", ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        text = (
            f"after a call modules are in training mode ({listing}): the model's forward pass puts them there, so batch norm "
            "and dropout answer as they do in training; take train() out of it"
        )
    elif by_gradients:
        text = (
            "the model answers differently where gradients are asked for, so gradients belong to another model than the one that "
            "is judged; let it answer alike, whether or not gradients are on"
        )
    return Finding(code=Code.MODE, passed=not parts and not by_gradients, text=text)


def check_device(model: Model, x: Tensor, device: torch.device, processor: torch.device) -> Finding:
    """Check that the model gives the same answers on the CPU as on the device of the audit, up to half precision.

    Args:
        model: the model, in a session on `device`.
        x: (n, *shape) clean inputs on the processor.
        device: the device of the audit.
        processor: the CPU, on which the reference answers are computed.
    """
    if device.type == processor.type:
        return Finding.not_made(Code.DEVICE, "the audit runs on the processor")
    with torch.no_grad(), CallRecorder() as watch:
        answers = ask_model(model, x.to(device)).cpu()
        try:
            with model.info.session(processor):
                reference = ask_model(model, x.to(processor)).cpu()
        except (MemoryShortError, ModelError) as error:
            return Finding.not_made(Code.DEVICE, str(error))
    figure, limit = _largest_difference(answers, reference), HALF_TOLERANCES[watch.half or torch.float16]
    text = f"{len(x)} clean inputs are answered alike on {device.type} and on {processor.type}"
    if figure > limit:
        text = (
            f"clean inputs are answered differently on {device.type} than on {processor.type} "
            f"({_count_changed(answers, reference)}): "
            "so the figures hold for this device alone; look for tensors that stay behind when the model moves"
        )
    return Finding(code=Code.DEVICE, passed=figure <= limit, text=text, figure=figure, limit=limit)


def check_weights(first: str, last: str) -> Finding:
    """Check that a model's digest (weights and buffers) is the same at the end of the audit as at the beginning."""
    text = "weights and buffers are those of the beginning"
    if first != last:
        text = (
            "weights or buffers are no longer those of the beginning: the model learns, or keeps statistics, of what it is "
            "asked, so the attacks met several models; audit it with its state fixed"
        )
    return Finding(code=Code.WEIGHTS, passed=first == last, text=text)


def evenly_spaced(count: int, limit: int) -> Array:
    """At most `limit` of `count` positions, evenly spaced."""
    return np.linspace(0, count - 1, min(count, limit)).astype(int)
