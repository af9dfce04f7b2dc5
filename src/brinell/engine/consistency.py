"""Does an answer depend on what it should not: company, place in the batch, mode of the modules, number of calls?

An attack shows a sample in many batches: beside other samples, in another row, alone at the end. A classifier answers it alike
each time. One that does not (batch norm left in training mode, noise drawn by row from a fixed seed, a defence that adapts to
what it is asked) is robust by an accident of the batch size, and no other check sees it: the same batch again has the same
answers.

Four looks at up to 64 samples: the same batches with their rows in reverse (place), the samples dealt out to other batches and a
handful alone (company), the first batches once more (drift). How the limits were found: docs/checks.md.
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

ALONE = 8
"""Samples that are shown alone."""
SAME = 1e-4
"""Two answers to one input may differ by this share of the largest logit: kernels differ by some 1e-6."""
ROUNDED = {torch.bfloat16: 8 * 2.0**-8, torch.float16: 8 * 2.0**-11}
"""The same for models that compute in half precision; on accelerators, whose float32 products have the bits of float16, too."""
TREND = 3.0
"""Answers to one input drift where they moved this many times as far between early and late calls as within either."""

UNSURE = (Code.RANDOM, Code.PLACE, Code.COMPANY, Code.DRIFT)
"""Checks without which nothing is learned from asking about a clean input again."""


class Watch(TorchFunctionMode):
    """Notes what a model calls that makes an answer depend on its batch, and in which precision it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.by_batch = False
        self.half: torch.dtype | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and note."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "batch_norm":
            self.by_batch |= bool(kwargs.get("training", args[5] if len(args) > 5 else False))
        answer = func(*args, **kwargs)
        if isinstance(answer, Tensor) and answer.dtype in ROUNDED and self.half != torch.bfloat16:
            self.half = answer.dtype
        return answer


def probe(
    oracle: Oracle, batch: Batch, model: Model, early: list[Tensor], *, batch_size: int, gradients: Tensor | None = None
) -> list[Finding]:
    """The checks of company, place, mode and drift.

    Costs at most four forwards a sample, and one more for each of a handful.

    Args:
        oracle: of a ledger whose threat is the whole domain.
        batch: n clean inputs, at least one.
        model: which the oracle asks; looked at for the mode of its modules.
        early: two or more (n, classes) answers to the batch, in batches of `batch_size` in the batch's order. Where the model
            gives labels only, each is 1 at its class.
        batch_size: the most inputs that the oracle shows to the model at once.
        gradients: (n, classes) the answers where gradients were asked for as well, if any.

    Raises:
        ModelError: the model fails on inputs that it has answered before.
    """
    ask = _asker(oracle, batch, model)
    first, n, watch = early[0], len(batch), Watch()
    every = torch.arange(n, device=batch.x.device)
    with watch:
        again = ask(every)
    limit = SAME
    if watch.half or first.device.type != "cpu":
        limit = ROUNDED[watch.half or torch.float16]
    by_gradients = False
    if gradients is not None and _apart(first, again) <= limit < _apart(first, gradients):
        by_gradients = all(_apart(gradients, one) <= limit for one in early[1:])
    late, random = [again], not by_gradients and max(_apart(first, one) for one in early[1:]) > limit
    if random:
        late.append(ask(every))
    drift = _drift(early, late, limit, random)
    unsure = "the same input is answered otherwise each time" if random or drift.passed is False else ""
    placed = _place(ask, first, batch_size, limit, unsure)
    if placed.passed is False:
        unsure = "the answer depends on the place in the batch already"
    found = [placed, _company(ask, first, batch_size, limit, watch.by_batch, unsure)]
    return [*found, _mode(model, by_gradients), drift]


Ask = Callable[[Tensor], Tensor]
"""Rows (m,) of the batch to their answers (m, classes), asked in this order."""


def _asker(oracle: Oracle, batch: Batch, model: Model) -> Ask:
    def ask(rows: Tensor) -> Tensor:
        ids, x = batch.ids[rows], batch.x[rows]
        if model.access == Access.LABELS:
            return torch.nn.functional.one_hot(oracle.labels(ids, x), model.classes).float()
        return oracle.scores(ids, x)

    return ask


def apart(one: Tensor, other: Tensor) -> Tensor:
    """(n,): the largest difference of the answers (n, classes) to each input, as a share of the largest logit of all.

    Logarithms of probabilities are compared as probabilities too, and the smaller difference counts: of a probability near 0 that
    was rounded the logarithm means nothing.
    """
    far = (one - other).abs().amax(1) / one.abs().amax().clamp_min(1e-12)
    if bool((one.logsumexp(1).abs() < SAME).all()):
        far = torch.minimum(far, (one.softmax(1) - other.softmax(1)).abs().amax(1))
    return far


def _apart(one: Tensor, other: Tensor) -> float:
    return float(apart(one, other).amax())


def _drift(early: list[Tensor], late: list[Tensor], limit: float, random: bool) -> Finding:
    """Whether the answers moved from the first calls to the last ones, by more than they differ among either."""
    moved = min(_apart(one, other) for one in early for other in late)
    within = max(_apart(group[0], other) for group in (early, late) for other in group[1:] or group)
    drifts = moved > limit and (not random or moved > TREND * within)
    if random and not drifts:
        return Finding.unmade(Code.DRIFT, "the same input is answered otherwise each time (random-answers)")
    text = "the same batches are answered as at the beginning"
    if drifts:
        text = (
            "the same batches are answered otherwise than a few calls before: the model keeps something of what it is asked (a "
            "counter, running statistics, weights that adapt), so an attack meets another model at each step; audit it with that "
            "state fixed"
        )
    return Finding(code=Code.DRIFT, passed=not drifts, text=text, figure=moved, limit=limit)


def _place(ask: Ask, first: Tensor, batch_size: int, limit: float, unsure: str) -> Finding:
    """The same company in reverse order."""
    if unsure:
        return Finding.unmade(Code.PLACE, unsure)
    if min(batch_size, len(first)) == 1:
        return Finding(code=Code.PLACE, passed=True, text="every input is asked alone")
    rows = torch.cat([part.flip(0) for part in torch.split(torch.arange(len(first), device=first.device), batch_size)])
    other = torch.empty_like(first)
    other[rows] = ask(rows)
    far = apart(first, other)
    text = f"{len(first)} inputs are answered alike in another row of the same batch"
    if bad := float(far.amax()) > limit:
        text = (
            f"{int((far > limit).sum())} of {len(first)} inputs are answered otherwise in another row of the same batch "
            f"({_changed(first, other)}): the model draws or looks up something by row, so what an attack reaches depends on the "
            "order of the samples; take that out, or ask for one input at a time with --batch-size 1"
        )
    return Finding(code=Code.PLACE, passed=not bad, text=text, figure=float(far.amax()), limit=limit)


def _company(ask: Ask, first: Tensor, batch_size: int, limit: float, by_batch: bool, unsure: str) -> Finding:
    """The same samples in other batches, and some of them alone."""
    if unsure:
        return Finding.unmade(Code.COMPANY, unsure)
    n = len(first)
    if batch_size == 1:
        return Finding(code=Code.COMPANY, passed=True, text="every input is asked alone (--batch-size 1)")
    if n == 1:
        return Finding.unmade(Code.COMPANY, "it takes two inputs")
    every = torch.arange(n, device=first.device)
    other = torch.empty_like(first)
    for rows in (every[::2], every[1::2]):
        other[rows] = ask(rows)
    cause = ": it normalises by the batch (batch norm in training mode)" if by_batch else ""
    remedy = "; put the model in evaluation mode, or ask for one input at a time with --batch-size 1"
    some = every[:: max(1, n // ALONE)][:ALONE]
    try:
        single = torch.cat([ask(row[None]) for row in some])
    except ModelError as error:
        text = f"the model answers inputs in company and fails on one alone ({error}){cause}{remedy}"
        return Finding(code=Code.COMPANY, passed=False, text=text)
    far, lone = apart(first, other), apart(first[some], single)
    figure = max(float(far.amax()), float(lone.amax()))
    text = f"{n} inputs are answered alike in other batches, and {len(some)} of them alone"
    if bad := figure > limit:
        text = (
            f"{int((far > limit).sum())} of {n} inputs are answered otherwise in another batch ({_changed(first, other)}), and "
            f"{int((lone > limit).sum())} of {len(some)} alone{cause}; what an attack reaches depends on the batch size and on "
            f"which samples are left{remedy}"
        )
    return Finding(code=Code.COMPANY, passed=not bad, text=text, figure=figure, limit=limit)


def _changed(first: Tensor, other: Tensor) -> str:
    count = int((first.argmax(1) != other.argmax(1)).sum())
    return f"{count} class{'' if count == 1 else 'es'} changed"


def _mode(model: Model, by_gradients: bool) -> Finding:
    """Whether the modules are in evaluation mode after all these calls, and gradients leave answers as they are."""
    training = model.info.training
    if training is None:
        return Finding.unmade(Code.MODE, "the model is no torch module")
    parts = training()
    text = "every module is in evaluation mode after a call, and answers are the same where gradients are asked for"
    if parts:
        named = ", ".join(parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
        text = (
            f"after a call modules are in training mode ({named}): the model's forward pass puts them there, so batch norm "
            "and dropout answer as they do in training; take train() out of it"
        )
    elif by_gradients:
        text = (
            "the model answers otherwise where gradients are asked for, so gradients belong to another model than the one that "
            "is judged; let it answer alike, whether or not gradients are on"
        )
    return Finding(code=Code.MODE, passed=not parts and not by_gradients, text=text)


def elsewhere(model: Model, x: Tensor, device: torch.device, processor: torch.device) -> Finding:
    """Whether the model answers inputs on the processor as on the device of the audit; half precision's rounding is allowed.

    Args:
        model: the model, in a session on `device`.
        x: (n, *shape) clean inputs on the processor.
        device: that of the audit.
        processor: where the answers are compared.
    """
    if device.type == processor.type:
        return Finding.unmade(Code.DEVICE, "the audit runs on the processor")
    with torch.no_grad(), Watch() as watch:
        here = ask_model(model, x.to(device)).cpu()
        try:
            with model.info.session(processor):
                there = ask_model(model, x.to(processor)).cpu()
        except (MemoryShortError, ModelError) as error:
            return Finding.unmade(Code.DEVICE, str(error))
    figure, limit = _apart(here, there), ROUNDED[watch.half or torch.float16]
    text = f"{len(x)} clean inputs are answered alike on {device.type} and on {processor.type}"
    if figure > limit:
        text = (
            f"clean inputs are answered otherwise on {device.type} than on {processor.type} ({_changed(here, there)}): one "
            "of the two computes otherwise, so the figures hold for this device alone; look for what stays behind as it moves"
        )
    return Finding(code=Code.DEVICE, passed=figure <= limit, text=text, figure=figure, limit=limit)


def weights(before: str, after: str) -> Finding:
    """Whether the digest of a model, of its weights and buffers, is at the end of the audit what it was at the beginning."""
    text = "weights and buffers are those of the beginning"
    if before != after:
        text = (
            "weights or buffers are no longer those of the beginning: the model learns, or keeps statistics, of what it is "
            "asked, so the attacks met several models; audit it with its state fixed"
        )
    return Finding(code=Code.WEIGHTS, passed=before == after, text=text)


def evenly(count: int, most: int) -> Array:
    """At most `most` of `count` positions, spread over all."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)
