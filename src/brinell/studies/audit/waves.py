"""An audit in waves, which ends once its question is answered.

The intervals are confidence sequences (`analysis.sequences`), so a look after each wave makes none
of them false more often. What an audit that ends early holds is the beginning of what it would hold
at its last wave.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import summarise_model
from brinell.analysis.sequences import decide, share_sequence
from brinell.core.errors import RequestError, option
from brinell.core.numbers import parse_decimal
from brinell.engine.plan import Plan
from brinell.engine.progress import Progress, SilentProgress
from brinell.store.parts import Parts
from brinell.store.run import Run
from brinell.studies.audit.result import summarise

ROBUST = "robust:"


class Question(NamedTuple):
    """The question at which an audit ends."""

    threshold: float | None
    """Least robust accuracy to decide about; None for a width."""
    width: float = 0.0
    """Half-width of the interval to reach."""

    def is_answered(self, k: int, n: int) -> bool:
        """True if `k` robust ones of `n` samples answer it."""
        if self.threshold is not None:
            return decide(k, n, self.threshold) != "undecided"
        interval = share_sequence(k, n)
        return interval is not None and interval.high - interval.low <= 2 * self.width

    def check_samples(self, n: int) -> None:
        """Refuse a threshold that `n` samples do not reach even if all are robust."""
        interval = share_sequence(n, n)
        threshold = self.threshold
        if threshold is not None and interval is not None and interval.low < threshold:
            raise RequestError(
                f"{n} samples cannot decide whether robust accuracy reaches {threshold:g}: even if "
                f"all are robust, its interval begins at {interval.low:.3f}",
                remedy=f"take more {option('samples')}, or a lower threshold",
            )


def parse_until(text: str) -> Question:
    """The question of the option `until`; raises RequestError for any other text."""
    try:
        value = parse_decimal(text.removeprefix(ROBUST))
    except ValueError:
        value = -1.0  # refused below, as any number outside 0 to 1
    if not 0 <= value <= 1:
        raise RequestError(
            f"{option('until')} is {text!r}: write a half-width such as 0.02, or robust:0.4 for a "
            "threshold, each from 0 to 1"
        )
    return (
        Question(threshold=value)
        if text.startswith(ROBUST)
        else Question(threshold=None, width=value)
    )


def run_waves(plan: Plan, audit: Callable[..., Run], progress: Progress, *, resume: bool) -> Run:
    """Audit wave after wave until the question of the plan is answered; returns the run.

    Args:
        plan: the plan of all waves.
        audit: `(plan, progress=, resume=) -> run`, audits the first waves in the folder.
        progress: told the figures after each wave.
        resume: whether the folder may hold part of the work.
    """
    question = parse_until(str(plan.request.until))
    assert plan.waves is not None
    waves = np.unique(plan.waves).tolist()
    for wave in waves:
        part = plan.first_waves(wave + 1, grows=True)
        run = audit(part, progress=SilentProgress(), resume=resume or wave > 0)
        summarise(run).write()
        left = run.manifest.get("left")
        rate = robust_rate(run)
        if not left or any(left.values()):
            return run  # an earlier command finished it, or its time is up

        progress.note(
            f"{rate.n} of {len(plan.ids)} samples: robust accuracy {100 * (rate.value or 0):.1f} % "
            f"[{100 * (rate.low or 0):.1f}, {100 * (rate.high or 0):.1f}]"
        )
        if wave == waves[-1] or question.is_answered(rate.k, rate.n):
            break

    # The checks of the first wave knew few samples: they are made again on all.
    for number in range(1, len(plan.models) + 1):
        Parts(run.path).drop(f"{number}-checks")
    return audit(plan.first_waves(wave + 1), progress=progress, resume=True)


def robust_rate(run: Run) -> Rate:
    """Robust accuracy of the model of a run at its largest eps."""
    name = run.manifest["models"][0]["name"]
    rates = summarise_model(run.manifest, run.rows, str(run.path), name).robust_accuracy
    return rates[-1]
