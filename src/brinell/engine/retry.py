"""Samples that cannot be judged, and models on other machines: what an audit does about either."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.errors import BatchError, ModelError, SampleError
from brinell.core.model import Model
from brinell.core.record import Outcome, Records
from brinell.engine.shard import Group, Result, Setting, joined, predict, rows_of, run_shard

Array = np.ndarray[Any, Any]
Work = TypeVar("Work")

FAILED = "failed-samples"
"""The code of the warning that samples could not be judged."""
AGAIN = 16
"""Clean inputs that the model is asked about once more at the end."""
CLOSE = 1e-3
"""How far two confidences may lie apart, and two logits as a share of the largest."""


def divided(
    work: Callable[[Array], Work], at: Array, fail: Callable[[int, ModelError], Work], answers: Callable[[], bool]
) -> list[Work]:
    """What `work` makes of the positions `at` (n,), in halves where the model fails on some, down to those it fails on alone.

    A sample's results do not depend on its company, so those of the others are what they would be without the failed ones.
    A model that raises on a sample alone is asked about another input by `answers`: where it raises on that too, it is the model
    that fails.

    Raises:
        BatchError: the model fails on every input.
    """
    try:
        return [work(at)]
    except (SampleError, BatchError) as error:
        if len(at) == 1:
            if isinstance(error, BatchError) and not answers():
                raise
            return [fail(int(at[0]), error)]
        half = len(at) // 2
        return divided(work, at[:half], fail, answers) + divided(work, at[half:], fail, answers)


def answers_somewhere(model: Model, device: torch.device) -> bool:
    """Whether the model answers an input of zeros, or of the bounds nearest to them, with finite numbers."""
    x = model.domain.clamp(torch.zeros(1, *model.domain.shape, device=device))
    try:
        return bool(torch.isfinite(predict(model, x, 1)).all())
    except ModelError:
        return False


def attack(setting: Setting, group: Group, note: Callable[[int, str], None]) -> Result:
    """`run_shard` on a group; a sample that the model fails on gets a row that says so, and `note(sample_id, why)` is called."""

    def fail(row: int, error: ModelError) -> Result:
        note(int(group.sample_id[row]), str(error))
        at = np.array([row])
        return Result(records=rows_of(setting, group, at, group.level[at], Outcome.FAILED), arrays={}, remarks=())

    at = np.arange(len(group.x))
    answers = partial(answers_somewhere, setting.model, group.x.device)
    return joined(divided(lambda part: run_shard(setting, group.select(part)), at, fail, answers))


def failed_levels(shards: Mapping[str, Records], ids: Array, levels: Array) -> Array:
    """(n,) index of the level at which a stage failed on each of `ids`; 0 where it did not, below which there is none."""
    found = np.zeros(len(ids), np.int64)
    for records in shards.values():
        failed = records.outcome == Outcome.FAILED
        found[np.searchsorted(ids, records.sample_id[failed])] = np.searchsorted(levels, records.eps[failed])
    return found


def warning(failed: Mapping[str, Mapping[str, str]], n: int) -> dict[str, str]:
    """The sign that samples could not be judged, if any.

    Args:
        failed: stage to sample to the reason.
        n: samples of the run.
    """
    stages = [stage for stage, samples in failed.items() if samples]
    if not stages:
        return {}
    sample, why = next(iter(failed[stages[0]].items()))
    count = len({one for stage in stages for one in failed[stage]})
    return {FAILED: f"{count} of {n} samples could not be judged; the first: {sample} in {stages[0]}: {why}"}


def drifted(model: Model, x: Tensor, clean: Records, batch_size: int, limit: float) -> Finding | None:
    """The failed check of a model that no longer answers clean inputs as it did at the beginning; None where it does.

    Args:
        model: the model.
        x: (n, *shape): clean inputs.
        clean: their (n,) rows of the first check.
        batch_size: the most inputs shown to the model at once.
        limit: how far two logits may lie apart by the model's own rounding, as a share of the largest.
    """
    try:
        logits = predict(model, x, batch_size)
    except (SampleError, BatchError) as error:
        text = f"the model fails on a clean input that it answered at the beginning: {error}"
        return Finding(code=Code.DRIFT, passed=False, text=text)
    confidence, pred = logits.softmax(1).max(1)
    before = torch.as_tensor(clean.clean_pred, device=logits.device).long()
    close = max(CLOSE, limit)
    lead = logits.gather(1, pred[:, None]) - logits.gather(1, before[:, None])
    other = lead[:, 0] > close * logits.abs().amax(1)
    other |= (confidence - torch.as_tensor(clean.clean_confidence, device=logits.device)).abs() > close
    if not other.any():
        return None
    why = "the model keeps something of what it is asked: audit it with that state fixed"
    if model.info.server is not None:
        why = "it answers at random, or another one took its place in between: audit it again"
    text = f"at the end the model answers {int(other.sum())} of {len(x)} clean inputs otherwise than at the beginning: {why}"
    return Finding(code=Code.DRIFT, passed=False, text=text)


def evenly(count: int, most: int) -> Array:
    """At most `most` of `count` positions, spread over all."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)
