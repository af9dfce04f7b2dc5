"""The check of clean accuracy before any attack: is the model right where nothing attacks it?

A model that is shown inputs without the normalisation of its training, or whose classes are in
another order than the labels, is wrong on clean inputs, and its robust accuracy is low for a reason
that has nothing to do with attacks. The check compares clean accuracy with chance, and names what
the table of mistakes explains it by (`engine.mistakes`).
"""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from brinell.core.checks import ERROR_RATE, TOO_FEW, Code, Finding, exact_test
from brinell.core.intervals import wilson
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.mistakes import Answers, Mistake, chance, is_far_better, mistakes_of

SAMPLES = 64
"""Number of samples on which changes are tried, spread over the classes."""


def check_clean_accuracy(
    model: Model,
    pred: Array,
    labels: Array,
    load: Callable[[Array], Tensor],
    *,
    spec: str = "",
    classes: Sequence[str] = (),
    batch_size: int = 128,
) -> tuple[Finding, int]:
    """Check clean accuracy; return the finding and the number of forwards.

    `pred` (n,) are the classes predicted for the clean inputs; `load` maps positions (m,) among
    them to inputs (m, *shape) on the model's device. Costs nothing if the model is right on nearly
    all samples; otherwise one forward on each of 64 samples for each change of the table that fits
    its inputs.
    """
    is_correct, n, order = pred == labels, len(labels), np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    turn = np.arange(n) - np.repeat(starts, sizes)
    index = order[
        np.sort(np.argsort(turn, kind="stable")[:SAMPLES])
    ]  # as many of each class, as far as it has them
    k, limit = int(is_correct.sum()), chance(pred, labels, model.classes)
    low, _ = wilson(k, n) or (0.0, 1.0)
    mistakes, forwards = list[Mistake](), 0
    if is_far_better(int(is_correct[index].sum()), len(index), len(index)):
        answers = Answers(model, pred, labels, index, load(index), classes, spec, batch_size)
        mistakes, forwards = mistakes_of(answers), answers.forwards
    reasons = [str(mistake) for mistake in mistakes]
    is_below, error_rate = exact_test(
        n - k, n, (1 - limit) / 2
    )  # half of the way from chance to always right
    is_chance = low <= limit and is_below
    is_constant = len(np.unique(pred)) < 2 and 0.5 ** int((labels != pred[0]).sum()) <= ERROR_RATE
    if is_chance and len(np.unique(labels)) < 2:
        reasons.insert(
            0,
            f"all {n} labels are {labels[0]}, so that nothing shows whether the "
            "model tells classes apart",
        )
    elif is_constant or (is_chance and len(np.unique(pred)) < 2):
        reasons.insert(0, f"it answers class {pred[0]} to every input")
    elif is_chance:
        reasons.insert(
            0, f"its answers agree with the labels no more often than by chance ({limit:.3f})"
        )
    summary = f"right on {k} of {n} clean inputs"
    passed, cause, reason, text = None, None, None, f"{summary}, and chance is {limit:.3f}"
    if reasons:
        passed, cause, text = (
            False,
            f"on clean inputs {reasons[-1]}",
            f"{summary}: {'; or '.join(reasons)}",
        )
        if is_chance and not mistakes:
            text += (
                ": the labels do not belong to the inputs, or the model does not know these classes"
            )
    elif low > limit:
        passed = True
    else:
        reason, text = TOO_FEW, f"{TOO_FEW}: {text}"
    rates = {"figure": k / n, "limit": limit, "error_rate": error_rate}
    return Finding(
        code=Code.CLEAN, passed=passed, text=text, cause=cause, reason=reason, **rates
    ), forwards
