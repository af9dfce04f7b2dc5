"""What kind of answers a model gives: settled once in a run on real clean samples, counted there, and told by a check."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.checks import Code, Finding
from brinell.core.contracts import Dataset
from brinell.core.errors import ModelError
from brinell.core.model import Access, Model
from brinell.models._answers import CONVERSIONS, Answered, recognise, recognised

SEEN = 16
"""Clean samples by whose answers their kind is recognised."""
BYTES = 2**25
"""About how much input they may hold together."""
COARSE = 1024
"""Answers that lie on a grid of at most so many steps are rounded; bfloat16 has more between its smallest and largest logit."""
ENOUGH = 64
"""Numbers from which on it is no accident that all lie on a grid."""
ROUNDING = 1e-6
"""Numbers closer than this share of their range are one."""
HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
TOLD = {
    "logits": "answers are logits",
    "log-probabilities": "answers are logarithms of probabilities, which are logits",
    "probabilities": "answers are probabilities (rows sum to 1): their logits stand in for them",
    "sigmoids": "answers are scores between 0 and 1, one per class: their logits stand in for them",
    "logit": "answers are one logit of two classes: half of it is that of the second, minus half that of the first",
    "probability": "answers are the probability of the second of two classes: its logit stands in for it",
    "squashed": "answers are logits that the last function flattens: what goes into it stands in for them",
    "one-hot": "answers say which class and not by how much (one-hot-answers)",
}


def settled(
    model: Model, dataset: Dataset, manifest: dict[str, Any], device: torch.device | None = None, *, name: str | None = None
) -> Model:
    """The model with its answers as logits, by what they are on clean samples; a model that says what they are is not asked.

    Where this is wrong, the option `answers` of a model, or the keyword of the Python call, says better.

    Args:
        model: the model, prepared for calls on the device.
        dataset: where the clean samples come from.
        manifest: keeps the kind under `answers`, None for answers that stay as they are, and what was asked under `probes`, both
            by model. A run that goes on finds the kind there, and asks nothing.
        device: where the model is; None is the processor.
        name: the model's name in the manifest, where it is not its own.

    Raises:
        ModelError: one number per input that is no logit and no probability, as NaN.
    """
    if model.info.answers is not None or model.access == Access.LABELS:
        return model
    known, name = manifest.setdefault("answers", {}), name or model.name
    if name not in known:
        spent = manifest.setdefault("probes", {}).setdefault(name, {"forwards": 0, "backwards": 0})

        def count(forwards: int, backwards: int) -> None:
            spent["forwards"] += forwards
            spent["backwards"] += backwards

        x = _clean(dataset)
        known[name] = recognised(model, x.to(device or "cpu"), count).info.answers if len(x) else None
    found = model if known[name] is None else Answered(model, known[name])
    if found.classes < 2:
        raise ModelError(
            f"model {model.name} answers one number, and on clean inputs it is none or not finite: say what it is by "
            "answers=logit or answers=probability"
        )
    return found


def _clean(dataset: Dataset) -> Tensor:
    """(n, *shape) up to `SEEN` samples that can be read, spread over the data."""
    n = len(dataset.labels())
    most = max(1, min(SEEN, BYTES // (4 * int(np.prod(dataset.domain.shape)))))
    at = np.unique(np.linspace(0, n - 1, min(n, most)).astype(int)).tolist() if n else []
    lost = dataset.info.unreadable(at)
    at = [one for one in at if one not in lost]
    return dataset.load(at) if at else torch.zeros(0, *dataset.domain.shape)


def kind_of_answers(logits: Tensor, model: Model) -> Finding:
    """The check of what the answers (n, classes) to clean inputs are: it fails where rounding hides small changes."""
    kind = model.info.answers or recognise(logits)
    given = logits[:, 1:] - logits[:, :1] if kind in ("logit", "probability") else logits
    if kind in ("sigmoids", "probability"):
        given = given.sigmoid()
    elif kind == "probabilities" and float(logits.amax()) < ROUNDING:  # otherwise they were read before the softmax
        given = given.exp()
    text = TOLD[kind]
    half = next((name for dtype, name in HALVES.items() if bool((logits.to(dtype).float() == logits).all())), None)
    if kind not in CONVERSIONS and half and kind != "one-hot":
        text += f", in {half}: a margin below its rounding says nothing"
    step = None if kind == "one-hot" else grid(given)
    if step:
        text = (
            f"{text}, rounded to multiples of {step:.2g}: changes below that do not show, so neither gradients nor scores lead "
            "an attack; return them unrounded"
        )
    return Finding(code=Code.ANSWERS, passed=not step, text=text, figure=step)


def grid(answers: Tensor) -> float | None:
    """The step of the grid on which all answers lie, where it has few steps and they are many; None for unrounded ones."""
    low, high = float(answers.amin()), float(answers.amax())
    if answers.numel() < ENOUGH or not low < high:
        return None
    shares = (answers.detach().double() - low) / (high - low)
    values = torch.unique(shares.div(ROUNDING).round().mul(ROUNDING))
    step = float(values.diff().amin())
    # Of as many multiples of a step as there are, the last tells its size best.
    step = 1 / round(1 / step)
    off = (values / step - (values / step).round()).abs().amax() * step
    return None if 1 / step > COARSE or len(values) < 3 or float(off) > 2 * ROUNDING else step * (high - low)
