"""The checks of an audit, by the codes that results, `gate --allow` and the report use."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Code(StrEnum):
    """The checks of an audit. A failed check means that robust accuracy may be overestimated.

    The checks up to `unconstrained-failure` run before the attacks, on at most 64 samples except
    for the first. The others run afterwards, on the results and the model.
    """

    CLEAN = "clean-accuracy"
    """On clean inputs the model is at chance level, or more accurate in another form of inputs and
    labels: mean, std, unit, order of channels, layout, size, order of classes and labels shifted by
    one are tried together.
    """
    RANDOM = "random-answers"
    """The model answers the same input differently a second time (Croce & Hein 2020; their check
    of randomised outputs)."""
    BATCH = "answers-by-batch"
    """The answer to an input depends on the rest of the batch, or on its row there: batch norm
    in training mode, batch statistics, random numbers that are drawn by row."""
    MODE = "training-mode"
    """A call leaves modules in training mode, or the answers differ when gradients are computed."""
    DRIFT = "answers-drift"
    """Answers change with the number of calls, or differ at the end from those at the beginning:
    the model has state, or another model replaced it."""
    ANSWERS = "kind-of-answers"
    """Answers are rounded, which hides small changes, or say which class and not by how much.
    Probabilities, sigmoids, single numbers and flattened logits are converted to logits, and the
    finding says so."""
    BOUNDARY = "boundary-margin"
    """The shown margin stays large where the decision changes: what the model shows does not
    tell how near another class is. Asked on lines between clean inputs, and once more after the
    attacks between robust samples, others and adversarial examples."""
    GRADIENTS_INSIDE = "gradients-inside"
    """The model takes gradients within its own forward pass, as defences that optimise at test
    time do."""
    ZERO = "zero-gradients"
    """Clean inputs have no gradient (Croce & Hein 2020; unavailable gradients in Pintor et al.
    2022)."""
    SATURATED = "saturated-logits"
    """The cross-entropy has lost its gradient to rounding while the margin has one (Carlini &
    Wagner 2017, on distillation)."""
    MISLEADING = "misleading-gradients"
    """A small step along the gradient does not raise the loss as the gradient promises (unstable
    predictions in Pintor et al. 2022; shattered gradients in Athalye et al. 2018)."""
    MISMATCH = "gradient-mismatch"
    """The gradient disagrees with finite differences of the margin, everywhere or in a block of
    values (Athalye et al. 2018 on shattered gradients; a gradient check by central differences)."""
    UNCONSTRAINED = "unconstrained-failure"
    """A gradient attack fails although its only budget is the bounds of the data (Pintor et al.
    2022; Carlini et al. 2019)."""
    BLACK_BOX = "black-box-better"
    """An attack without gradients breaks samples that are robust to the gradient attacks (Croce
    & Hein 2020; Carlini et al. 2019)."""
    PROBE_AHEAD = "probe-ahead"
    """An attack that does not climb the loss (boundary walk, Square) comes nearer to the
    boundary than APGD on the margin with as many passes."""
    INCOMPLETE = "incomplete-optimisation"
    """The last gradient attack still came much nearer to the boundary than those before it, of
    which one climbed the same loss (Pintor et al. 2022)."""
    PLATEAU = "plateau"
    """Attacks on robust samples end where the margin is flat: what they left there is not shown to
    be robust (Pintor et al. 2022)."""
    WEIGHTS = "changed-weights"
    """The weights or buffers changed during the audit."""
    FRESH = "fresh-copy"
    """The model opened anew answers adversarial inputs and robust samples of the run
    differently: the model counts, remembers or adapts, or it is another each time it is opened."""


GOOD = 0.2
"""Largest disagreement with finite differences at which an attack uses a repaired gradient."""
DETACHED = frozenset({Code.BOUNDARY})
"""Failed checks after which the scores do not tell how near the decision boundary is."""
COARSE = frozenset({Code.ANSWERS})
"""Failed checks after which the scores tell too little: they are rounded, or say nothing but the
class."""
DECIDING_SCORES = "the scores within the model that decide its class"
"""Name of what attacks follow if the scores that a model shows do not decide and others within
it do."""
ROWS_LEFT_OUT, RECORD_LEFT_OUT = "rows-left-out", "record-left-out"
BEATS_LEFT_OUT = "beats-left-out"
"""The codes of the warnings that a data set could not use part of its files."""
TIME_UP = "time-up"
"""The code of the warning that stages are left, since the time of an audit was up."""
WARNINGS = (ROWS_LEFT_OUT, RECORD_LEFT_OUT, BEATS_LEFT_OUT, TIME_UP)
"""The codes of warnings besides those of checks."""


ERROR_RATE = 1e-3
"""Largest probability that one check fails on a healthy model: of 19 checks 2 % together."""
MIN_SAMPLES = 12
"""Fewest samples with which a share can pass: with fewer, half of them could be bad without a
failure."""
TOO_FEW = "too few samples to tell"
"""The reason of a check that more samples would decide."""


def exact_test(k: int, n: int, limit: float, rate: float = ERROR_RATE) -> tuple[bool, float]:
    """True if `k` bad samples of `n` are more than a share of `limit` explains.

    It is the exact binomial test at `rate`.

    Returns:
        The answer, and the probability of a wrong «yes» where the share is `limit`: 0 where so few
            samples cannot say «yes».
    """
    i = np.arange(n + 1)
    # Logarithms, since the binomial coefficients of large n overflow.
    ways = np.array(
        [math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) for j in i.tolist()]
    )

    # Entry i is the probability of i or more, summed from the small end, where rounding is least.
    tails = np.exp(ways + i * math.log(limit) + (n - i) * math.log1p(-limit))[::-1].cumsum()[::-1]
    return bool(tails[k] <= rate), float(tails[tails <= rate].max(initial=0.0))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check and its result."""

    code: str
    """One of `Code`."""
    passed: bool | None
    """None if the check could not be made, or could not decide."""
    text: str
    """The observation and the remedy, in one line."""
    figure: float | None = None
    """The measured value."""
    limit: float | None = None
    """The value that the figure was compared with."""
    error_rate: float = 0.0
    """Largest probability that a healthy model fails the check with so many samples; 0 where
    nothing is drawn."""
    cause: str | None = None
    """The cause of a failure, as a clause; None if the name of the check says it."""
    reason: str | None = None
    """Why a check that did not pass did not fail either, as a clause."""

    @classmethod
    def not_made(cls, code: str, reason: str, limit: float | None = None) -> "Finding":
        """The finding of a check that was not made, with the reason."""
        return cls(code=code, passed=None, text=f"not made: {reason}", limit=limit, reason=reason)

    @classmethod
    def of_share(
        cls,
        code: str,
        k: int,
        n: int,
        limit: float,
        observation: str,
        remedy: str,
        *,
        fewest: int = MIN_SAMPLES,
        rate: float = ERROR_RATE,
    ) -> "Finding":
        """A finding that fails if more of `n` samples are bad than chance explains at `rate`.

        Chance explains as many as the share `limit` of them gives. The check passes if no more than
        `limit` of at least `fewest` are bad; between the two the samples are too few to tell.
        """
        failed, error_rate = exact_test(k, n, limit, rate)
        # Between «passes» and «fails» lies «the samples are too few to tell», which is no pass.
        passed = False if failed else True if n >= fewest and k <= limit * n else None
        text = (
            f"{observation}: {remedy}"
            if failed
            else observation
            if passed
            else f"{TOO_FEW}: {observation}"
        )
        reason = TOO_FEW if passed is None else None

        return cls(
            code=code,
            passed=passed,
            text=text,
            figure=k / max(1, n),
            limit=limit,
            error_rate=error_rate,
            reason=reason,
        )
