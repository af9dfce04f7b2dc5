"""The kind of answers that a model gives (logits, probabilities, ...), recognised once per run on
clean samples.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.contracts import Dataset
from brinell.core.errors import ModelError
from brinell.core.model import Access, Model
from brinell.models._answers import CONVERSIONS, LogitModel, kind_of_answers, recognise_answers

SAMPLES = 16
"""Number of clean samples on which the kind of answers is recognised."""
MAX_BYTES = 2**25
"""Approximate limit on the bytes of these samples."""
COARSE = 1024
"""Answers that lie on a grid of at most so many steps are rounded; bfloat16 has more between its
smallest and largest logit."""
MIN_NUMBERS = 64
"""Smallest number of answers for which a common grid is evidence of rounding."""
ROUNDING = 1e-6
"""Numbers closer than this share of their range count as equal."""
HALF_PRECISIONS = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
DESCRIPTIONS = {
    "logits": "answers are logits",
    "log-probabilities": "answers are logarithms of probabilities, which are logits",
    "probabilities": "answers are probabilities (rows sum to 1): their logits stand in for them",
    "sigmoids": "answers are scores between 0 and 1, one per class: their logits stand in for them",
    "logit": "answers are one logit of two classes: half of it is that of the second, "
    "minus half that of the first",
    "probability": "answers are the probability of the second of two classes: its logit stands "
    "in for it",
    "squashed": "answers are logits that the last function flattens: what goes into it "
    "stands in for them",
    "one-hot": "answers are of one class alone, with the same numbers",
}


def with_logits(
    model: Model,
    dataset: Dataset,
    manifest: dict[str, Any],
    device: torch.device | None = None,
    *,
    name: str | None = None,
) -> Model:
    """Return the model with its answers converted to logits.

    The kind of answers is recognised on clean samples, unless the model declares it or answers maps
    or boxes. The option `answers` of a model, or the keyword of the Python call, overrides it.

    The manifest stores the kind under `answers` (None for answers that need no conversion) and the
    cost under `probes`, both by `name`, by default the model's own. A resumed run reads the kind
    there and asks nothing. ModelError refuses one number per input that is neither a logit nor a
    probability, such as NaN.
    """
    if (
        model.info.answers is not None
        or model.info.output is not None
        or model.access == Access.LABELS
    ):
        return model

    name = name or model.name
    kinds = manifest.setdefault("answers", {})
    if name not in kinds:
        costs = manifest.setdefault("probes", {}).setdefault(name, {"forwards": 0, "backwards": 0})

        def count(forwards: int, backwards: int) -> None:
            costs["forwards"] += forwards
            costs["backwards"] += backwards

        kinds[name] = None
        # Clean inputs, since a model answers random ones in ways that look like other kinds.
        samples = _spread_samples(dataset)
        if samples:
            x = dataset.load(samples).to(device or "cpu")
            kinds[name] = recognise_answers(model, x, count).info.answers

    # A kind that could not be told leaves the answers as they are.
    converted = model if kinds[name] is None else LogitModel(model, kinds[name])
    if converted.classes < 2:
        raise ModelError(
            f"model {model.name} answers one number, and on clean inputs it is "
            "none or not finite: say what it is by "
            "answers=logit or answers=probability"
        )
    return converted


def all_with_logits(
    networks: Iterable[tuple[str, Model]],
    dataset: Dataset,
    manifest: dict[str, Any],
    device: torch.device,
) -> list[Model]:
    """Models, each with the name of its entries in the manifest, with their answers converted to
    logits, as by `with_logits`.
    """
    return [with_logits(model, dataset, manifest, device, name=name) for name, model in networks]


def _spread_samples(dataset: Dataset) -> list[int]:
    """Readable samples that are spread over the data, which may be sorted by class."""
    n = len(dataset.labels())
    # A value of float32 has 4 bytes.
    fit = MAX_BYTES // (4 * int(np.prod(dataset.domain.shape)))
    count = min(n, max(1, min(SAMPLES, fit)))
    index = np.unique(np.linspace(0, n - 1, count).astype(int)).tolist()
    unreadable = dataset.info.unreadable(index)
    return [sample for sample in index if sample not in unreadable]


def check_answer_kind(logits: Tensor, model: Model) -> Finding:
    """Check the answers (n, classes) to clean inputs: labels, and rounded ones, which hide small
    changes, fail it.

    Votes, as of a forest, hide them too, but there is nothing behind them to return: the check is
    not made.
    """
    if model.access == Access.LABELS:
        text = (
            "answers are labels alone, so how near another class comes does not show: return scores "
            "if there are any"
        )
        return Finding(
            code=Code.ANSWERS, passed=False, text=text, cause="the answers are labels alone"
        )

    # The answers as the model gave them, before they were converted to logits: one number became
    # two logits, its half and minus its half, so that their difference is the number.
    kind = model.info.answers or kind_of_answers(logits)
    answers = logits[:, 1:] - logits[:, :1] if kind in ("logit", "probability") else logits
    if kind in ("sigmoids", "probability"):
        answers = answers.sigmoid()
    elif kind == "probabilities" and float(logits.amax()) < ROUNDING:
        answers = (
            answers.exp()
        )  # logarithms are at most 0; else the logits before the softmax were read

    text = DESCRIPTIONS[kind]
    for dtype, name in HALF_PRECISIONS.items():
        if kind not in CONVERSIONS and bool((logits.to(dtype).float() == logits).all()):
            text += f", in {name}: a margin below its rounding says nothing"
            break

    step = grid(answers)
    if step and are_votes(answers, step):
        votes = round(float(answers[0].sum()) / step)
        reason = f"answers are shares of {votes} votes, of which a small change moves none"
        text = f"{reason}: attack by labels alone (--attack ray-s)"
        return Finding(code=Code.ANSWERS, passed=None, text=text, figure=step, reason=reason)
    if step:
        text = (
            f"{text}, rounded to multiples of {step:.2g}: changes below that do "
            "not show, so neither gradients nor scores lead "
            "an attack; return them unrounded"
        )
    return Finding(code=Code.ANSWERS, passed=not step, text=text, figure=step)


def are_votes(answers: Tensor, step: float) -> bool:
    """True if answers (n, classes) on a grid share the same number of steps out among the classes;
    what is rounded misses the sum by a step here and there.
    """
    sums = answers.sum(1) / step
    return (
        answers.shape[1] > 1
        and float(answers.amin()) >= 0
        and float(sums.amax() - sums.amin()) < 0.5
    )


def grid(answers: Tensor) -> float | None:
    """Step of the grid on which all answers lie; None if they are not rounded, or too few to
    decide.
    """
    low = float(answers.amin())
    width = float(answers.amax()) - low
    if answers.numel() < MIN_NUMBERS or not width > 0:
        return None

    shares = (answers.detach().double() - low) / width
    values = torch.unique(shares)
    # Numbers that are equal but for the logarithm taken of them count once; the first always does.
    values = values[values.diff(prepend=values[:1] - 1) > 2 * ROUNDING]
    step = float(values.diff().amin())
    # The whole range, 1, is a whole number of steps: this number, rounded, gives the step more
    # precisely than the difference of two values.
    step = 1 / round(1 / step)
    off = (shares / step - (shares / step).round()).abs().amax() * step
    # Two values lie on any grid, and a fine one is no sign of rounding.
    is_grid = 1 / step <= COARSE and len(values) >= 3 and float(off) <= 2 * ROUNDING
    return step * width if is_grid else None
