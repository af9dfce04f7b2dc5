"""`brinell.attack`: one attack on inputs in memory, without a run folder; for a look, and for
training loops.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from brinell.core.data import Remark
from brinell.core.domain import Domain, Kind
from brinell.core.errors import BrinellWarning, RequestError, in_python, short
from brinell.core.torch_settings import float32_tensors
from brinell.core.user_files import expand_home
from brinell.core.values import as_array, as_tensor
from brinell.datasets._memory import ArrayDataset, from_arrays
from brinell.engine.batch_attack import (
    KINDS,
    BatchAttack,
    check_bounds,
    domain_of,
    model_session,
    parse_labels,
    parse_radii,
    parse_stages,
)
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.plan import open_distance
from brinell.engine.request import AttackSpec, BaseRequest, Seed, split_budget
from brinell.engine.texts import norm_text, settings_texts
from brinell.engine.toml import parse_request
from brinell.inputs import models_of
from brinell.models._answers import recognise_answers
from brinell.parameters import AnyModel, Eps, Labels, Norm

RECOGNISED = 16
"""Inputs at most by whose answers the kind of a model's answers is recognised."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AttackResult:
    """Result of one attack; arrays have the type and device of the inputs."""

    x_adv: Any
    """(n, *shape): the closest adversarial example; of a sample that is robust, and with
    `worst=True` of every sample, the input of the largest margin."""
    success: Any
    """(n,) bool: whether `x_adv` meets the criterion. A sample that is misclassified from the
    start counts, at distance 0."""
    distance: Any
    """(n,) how far `x_adv` is from the input, in the norm of the attack."""
    margin: Any
    """(n,) the largest margin that was seen: a wrong logit minus the true one, positive where
    misclassified."""
    queries: Any
    """(n,) forward evaluations of each sample by the attack; one more was spent on the clean
    input."""
    backwards: Any
    """(n,) backward evaluations."""
    norm: str
    """The norm of `distance`."""

    @property
    def robust_accuracy(self) -> float:
        """Share of the samples on which the attack did not succeed."""
        return 1.0 - _mean(self.success)

    def __repr__(self) -> str:
        n = len(self.success)
        successes = int(sum(map(bool, self.success)))
        broken = f"{successes} of {n} broken, {self.robust_accuracy:.1%} robust"
        return f"<AttackResult: {broken}, {self.norm}, {_mean(self.queries):.0f} queries each>"


def _mean(values: Any) -> float:
    """The mean of an array or tensor of any type."""
    return float(np.mean(np.asarray(as_array(values, "inputs"), dtype=np.float64)))


class AttackSettings(BaseRequest):
    """The settings of one attack on a batch in memory, apart from inputs and budgets."""

    attack: tuple[AttackSpec, ...]
    """An attack, several, or a cascade."""
    worst: bool
    """True if the input of the largest margin is sought."""
    queries: int | None = Field(default=None, ge=1)
    """The forward evaluations of each sample by each attack."""
    batch_size: int | None = Field(default=None, ge=1)
    """The most inputs in a call of the model."""
    seed: Seed
    """The seed of every random number."""


@in_python
def attack(
    model: AnyModel,
    x: Labels,
    y: Labels,
    attack: str | Sequence[str] = "apgd",
    *,
    eps: Eps | None = None,
    norm: Norm = "linf",
    targeted: str | int | Labels | None = None,
    worst: bool = False,
    queries: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    bounds: tuple[float, float] = (0.0, 1.0),
    kind: Kind | None = None,
    layout: Literal["first", "last"] | None = None,
    preprocessing: Any = None,
    mean: Any = None,
    std: Any = None,
    answers: str | None = None,
    output: str | int | None = None,
) -> AttackResult:
    """Attack a batch of inputs, and return the adversarial ones.

    Nothing is written to disk. A module runs in evaluation mode on its current device, in float32
    even under autocast; its mode, its gradients and the global generators are restored. So you can
    call it within a training loop: pass `worst=True` to train on the inputs of the largest margin,
    and another `seed` at each step for another random start.

    Args:
        model: one model, of any type that `brinell.audit` takes.
        x: (n, *shape) tensor or array within the bounds, as the model takes it; bytes are divided
            by 255.
        y: (n,) true classes, as places in the model's answers.
        attack: a name such as apgd, apgd-t, pgd?steps=50, square or fab; or a list or cascade
            (standard), each of which gets the samples that are still robust.
        eps: the budget: a number, a text such as 8/255, or one number for each sample; an attack
            that minimises the distance (fab, ddn, fmn, sigma-zero) takes none for any distance.
        norm: linf, l2, l1 or l0, also as np.inf, 2, 1, 0; pixels; patch, whose eps is a side, or
            patch:5; or embedding:FILE.
        targeted: a class, or one for each sample, or least-likely, or random: nothing else counts
            as a success.
        worst: use all steps for every sample, even if it is misclassified, and return the input of
            the largest margin in place of the closest adversarial one.
        queries: forward evaluations that each attack may spend on a sample.
        batch_size: the most inputs in a call of the model; by default all.
        seed: of every random number.
        bounds: (low, high) of the inputs.
        kind: image, signal, video or vector, if the number of axes is ambiguous.
        layout: position of the channels in inputs of a function: first or last.
        preprocessing: as for `brinell.audit`.
        mean: likewise.
        std: likewise.
        answers: likewise; `logits` skips the detection of the kind of answers.
        output: likewise.

    Raises:
        BrinellError: the request cannot be carried out; its line says what is wrong, why, and what
            to do.
    """
    words = {
        "attack": attack,
        "worst": worst,
        "queries": queries,
        "batch_size": batch_size,
        "seed": seed,
    }

    settings = parse_request(AttackSettings, settings_texts(words))
    distance_name = norm_text(norm)
    if not isinstance(distance_name, str):
        raise RequestError(f"norm is {short(norm)}: brinell.attack takes one norm")
    distance_name, eps = split_budget(distance_name, eps)
    distance = open_distance(expand_home(distance_name))
    stages = parse_stages(settings.attack)
    inputs = _inputs(model, x, bounds, kind, layout)
    labels = parse_labels(y, len(inputs.x))

    options = {
        "preprocessing": preprocessing,
        "mean": mean,
        "std": std,
        "answers": answers,
        "output": output,
    }

    # Neither autocast, nor inference mode, nor a default type of the caller may change figures.
    no_autocast = torch.autocast(inputs.x.device.type, enabled=False)
    with torch.inference_mode(False), no_autocast, float32_tensors():
        # A copy made here is no inference tensor, and the caller's own stays as it is.
        clean = inputs.x.clone()
        # The inputs are the data, so no spec is opened; answers keep the order of the classes `y`.
        models = models_of(model, inputs.dataset, spec="", in_order=False, **options)
        if len(models) != 1:
            raise RequestError(
                "brinell.attack takes one model in memory: for a spec, or for "
                "several, call brinell.audit"
            )

        # An attack runs where the model is, or else where the inputs are.
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        home = clean.device if parameter is None else parameter.device
        with model_session(models[0]):
            clean, labels = clean.to(home), labels.to(home)
            recognised_model = recognise_answers(models[0], clean[:RECOGNISED])
            radii = parse_radii(eps, len(clean), distance, inputs.domain, stages, home)
            sizer = BatchSizer(settings.batch_size or len(clean), _warn)

            def run() -> dict[str, Tensor]:
                """The attack, in batches for which there was memory so far."""
                batch_attack = BatchAttack(
                    recognised_model,
                    inputs.domain,
                    distance,
                    clean,
                    labels,
                    sizer.size,
                    settings.queries,
                    settings.seed,
                )
                return batch_attack.run(stages, radii, targeted, settings.worst)

            out = sizer.fit(run)

    return _result(out, inputs, norm=distance.name)


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """The batch as the domain has it, and how to give it back."""

    x: Tensor
    domain: Domain
    dataset: Any
    original: Any


def _inputs(model: Any, x: Any, bounds: Any, kind: Kind | None, layout: Any) -> _Inputs:
    """Inputs as a tensor in the layout of the audit, with their domain."""
    tensor = as_tensor(x, "inputs")
    if tensor.ndim < 2 or not len(tensor):
        raise RequestError(
            f"x has shape {tuple(tensor.shape)}: it needs the samples first, at "
            "least one, and then each input"
        )

    low, high = _ends(bounds)
    tensor = (
        tensor.div(255) if tensor.dtype == torch.uint8 and (low, high) == (0, 1) else tensor.float()
    )
    if kind not in (None, *KINDS.values()):
        raise RequestError(f"kind is {short(kind)}: it is one of {', '.join(KINDS.values())}")

    if isinstance(model, nn.Module) and layout is None:
        kind = kind or KINDS.get(tensor.ndim)
        if kind is None:
            raise RequestError(
                f"x has shape {tuple(tensor.shape)}: say what an input is by "
                "kind='image', for example"
            )
        domain = domain_of(kind, tuple(tensor.shape[1:]), low, high)
        check_bounds(tensor, domain)
        return _Inputs(x=tensor, domain=domain, dataset=_Bare(domain), original=x)
    # Functions take the layout of the arrays, which a data set works out.
    sample = from_arrays(
        tensor.cpu(), np.zeros(len(tensor), int), kind=kind, layout=layout, bounds=(low, high)
    )
    arranged = sample.load(range(len(tensor))).to(tensor.device)
    return _Inputs(x=arranged, domain=sample.domain, dataset=sample, original=x)


def _ends(bounds: Any) -> tuple[float, float]:
    """The two ends of bounds."""
    try:
        low, high = map(float, bounds)
        if math.isfinite(low) and math.isfinite(high):
            return low, high
    except Exception:
        # The values may be foreign objects, which may raise anything.
        pass
    raise RequestError(f"bounds is {short(bounds)}: give two numbers, (low, high)")


@dataclass(frozen=True)
class _Bare:
    """Just enough of a data set for a model to be made over its domain."""

    domain: Domain
    classes: tuple[str, ...] = ()


def _warn(remark: Remark) -> None:
    """Warn at the line of the user's call."""
    warnings.warn(remark.text, BrinellWarning, stacklevel=5)


def _result(out: dict[str, Tensor], inputs: _Inputs, norm: str) -> AttackResult:
    """The result in the type and layout of the caller's inputs."""
    original = inputs.original
    if isinstance(inputs.dataset, ArrayDataset):
        out = out | {"x_adv": inputs.dataset.user_layout(out["x_adv"])}
    if not isinstance(original, Tensor):
        arrays: dict[str, Any] = {name: value.cpu().numpy() for name, value in out.items()}
        return AttackResult(**arrays, norm=norm)
    out["x_adv"] = out["x_adv"].to(
        torch.float64 if original.dtype == torch.float64 else torch.float32
    )
    return AttackResult(
        **{name: value.to(original.device) for name, value in out.items()}, norm=norm
    )
