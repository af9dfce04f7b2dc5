"""How distortions are called, and what several of them share. Inside a distortion every value runs from 0 to 1.

A distortion never sees the bounds of the data: `distorted` moves inputs from their bounds to [0, 1] and back, and leaves the values
that the distortion left alone exactly as they were. So one distortion serves photographs, millivolts and features of any unit, and a
severity is always a share of the room that a value has.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brinell.core.contracts import Distortion, GradientDistortion
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, ContractError, RequestError
from brinell.core.model import Access
from brinell.core.norms import per_sample
from brinell.core.streams import Streams

SEVERITIES = (1, 2, 3, 4, 5)
"""From hardly seen to hardly recognised."""
SLACK = 1e-6
"""By how much float32 rounding may move a distortion's answer out of [0, 1]."""
SIDES = (32, 224)
"""Sides of the photographs on which scales are calibrated: CIFAR-10 and ImageNet."""


@dataclass(frozen=True)
class Scale:
    """The parameter of a distortion at severities 1 to 5, calibrated on photographs of two sizes.

    A blur of one pixel hides more of a small picture than of a large one. Between the two sizes the parameter is interpolated
    linearly in the logarithm of the side (the geometric mean of height and width; the length of a signal or a vector), and
    beyond them it stays.
    """

    small: tuple[float, float, float, float, float]
    """At 32 values a side."""
    large: tuple[float, float, float, float, float]
    """At 224 values a side."""

    @classmethod
    def same(cls, *levels: float) -> "Scale":
        """A parameter that does not depend on the size: that of distortions for signals alone, calibrated on heartbeats.

        Raises:
            ValueError: not one value for each severity.
        """
        one, two, three, four, five = levels
        return cls(small=(one, two, three, four, five), large=(one, two, three, four, five))

    def __call__(self, severity: Tensor, x: Tensor) -> Tensor:
        """(n,) float32: the parameter for each severity (n,) on inputs of the size of `x`."""
        low, high = (math.log(side) for side in SIDES)
        side = math.prod(frame(x)) ** (1 / len(frame(x)))
        share = min(1.0, max(0.0, (math.log(side) - low) / (high - low)))
        levels = [(1 - share) * small + share * large for small, large in zip(self.small, self.large, strict=True)]
        parameters: Tensor = torch.tensor(levels, device=x.device)[severity - 1]
        return parameters


def frame(x: Tensor) -> tuple[int, ...]:
    """Sides of the picture in each input: height and width of images and of a video's frames, else the length."""
    return tuple(x.shape[-2:]) if x.ndim >= 4 else tuple(x.shape[-1:])


def planes(x: Tensor) -> Tensor:
    """(n, planes, *frame): channels side by side, and every frame of a video with them. A view where that is possible."""
    return x.reshape(len(x), -1, *frame(x))


def by_level(x: Tensor, parameter: Tensor, function: Callable[[Tensor, float], Tensor]) -> Tensor:
    """`function(rows of x, value)` for each value that occurs in `parameter` (n,), put together again."""
    out = torch.empty_like(x)
    for value in torch.unique(parameter).tolist():
        rows = parameter == value
        out[rows] = function(x[rows], value)
    return out


class Variant(NamedTuple):
    """One of the things that can stand on a patch."""

    distortion: Distortion | GradientDistortion
    severity: int
    draw: int


def variants(
    distortions: Sequence[Distortion | GradientDistortion], domain: Domain, severities: Sequence[int] = SEVERITIES, draws: int = 4
) -> tuple[Variant, ...]:
    """Every distortion at every severity in every draw.

    Args:
        distortions: what may be placed.
        domain: the inputs that it is placed on.
        severities: of 1 to 5.
        draws: how many of each distortion whose draws are endless.

    Raises:
        RequestError: a severity that does not exist, no draw, or a distortion that does not know such inputs.
    """
    wrong = [severity for severity in severities if severity not in SEVERITIES]
    if wrong or not severities or draws < 1:
        raise RequestError(
            f"severities {list(severities)} and {draws} draws: severities are 1 to 5, and at least 1 draw is needed"
        )
    for one in distortions:
        if domain.kind not in one.domains:
            known = ", ".join(sorted(one.domains))
            raise RequestError(
                f"distortion {type(one).__name__} distorts {known}, and the data is of kind {domain.kind}: leave it out"
            )
    return tuple(
        Variant(one, severity, draw)
        for one in distortions
        for severity in severities
        for draw in range(one.draws(domain.shape) or draws)
    )


def distorted(
    distortion: Distortion | GradientDistortion,
    x: Tensor,
    severity: Tensor | int,
    rng: Streams,
    *,
    domain: Domain,
    draw: Tensor | int = 0,
    gradient: Tensor | None = None,
) -> Tensor:
    """What a distortion makes of inputs, checked: the same shape, finite, in the bounds, `x` untouched.

    Args:
        distortion: the distortion.
        x: (n, *shape) inputs within the bounds of `domain`.
        severity: 1 to 5, one for all or (n,) int64.
        rng: a stream for each input. The distortion is handed another for each draw.
        domain: where the inputs live.
        draw: which version, counted from 0, one for all or (n,) int64.
        gradient: (n, *shape) gradient of the loss to `x`, for distortions that declare access GRADIENTS.

    Returns:
        (n, *shape) in the bounds. Values that the distortion did not change are those of `x`, bit by bit.

    Raises:
        RequestError: no such severity, or the distortion needs a gradient and none is given.
        ContractError: the distortion failed or broke its contract.
    """
    low, high = domain.bounds(x)
    plain = not low.any() and bool((high == 1).all())
    unit = x if plain else ((x - low) / (high - low)).clamp_(0, 1)
    severity, draw = (_for_each(value, x) for value in (severity, draw))
    if severity.min() < SEVERITIES[0] or severity.max() > SEVERITIES[-1]:
        raise RequestError(f"severity {severity.tolist()}: it must be between {SEVERITIES[0]} and {SEVERITIES[-1]}")
    before = unit._version
    arguments: list[Any] = [unit, severity, _drawn(rng, draw), draw]
    if distortion.access == Access.GRADIENTS:
        if gradient is None:
            raise RequestError(
                f"distortion {type(distortion).__name__} needs gradients, which this model does not give: leave it out"
            )
        arguments.append(gradient if plain else gradient * (high - low))
    answer = _call(distortion, arguments)
    if unit._version != before:
        raise _broken(distortion, "wrote into the inputs it was given; it must clone what it changes")
    _check(distortion, answer, x)
    # Within the slack only: an answer that leaves the bounds by more was refused.
    answer = answer.clamp(0, 1)
    return answer if plain else domain.clamp(torch.where(answer == unit, x, low + (high - low) * answer))


def _for_each(value: Tensor | int, x: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full((len(x),), value, dtype=torch.int64, device=x.device)


def _drawn(rng: Streams, draw: Tensor) -> Streams:
    keys = torch.empty_like(rng.keys)
    for value in torch.unique(draw).tolist():
        rows = draw == value
        keys[rows] = rng.select(rows).fold(value).keys
    return Streams(keys)


def _call(distortion: Any, arguments: Sequence[Any]) -> Any:
    try:
        return distortion(*arguments)
    except BrinellError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise _broken(distortion, f"failed with {type(error).__name__}: {reason}") from error


def _check(distortion: Distortion | GradientDistortion, answer: Any, x: Tensor) -> None:
    if not isinstance(answer, Tensor) or answer.shape != x.shape or answer.dtype != x.dtype:
        kind = f"{tuple(answer.shape)} {answer.dtype}" if isinstance(answer, Tensor) else type(answer).__name__
        raise _broken(distortion, f"made {kind} of {tuple(x.shape)} {x.dtype}; it must keep shape and type")
    least, most = torch.stack(torch.aminmax(answer)).tolist()
    if not (math.isfinite(least) and math.isfinite(most)):
        raise _broken(distortion, "answered NaN or infinity")
    if least < -SLACK or most > 1 + SLACK:
        raise _broken(distortion, f"left the bounds by {max(-least, most - 1):.3g}; end it with .clamp(0, 1)")


def vet(chosen: Sequence[Variant], x: Tensor, rng: Streams, *, domain: Domain, gradient: Tensor | None = None) -> None:
    """Try each distortion once on these inputs, at its strongest, before anything is spent on it.

    Raises:
        ContractError: a distortion broke its contract, or gave two answers to one question.
        RequestError: a distortion needs a gradient and none is given.
    """
    strongest = {id(variant.distortion): variant for variant in sorted(chosen, key=lambda variant: variant.severity)}
    for distortion, severity, draw in strongest.values():
        one, two = (distorted(distortion, x, severity, rng, domain=domain, draw=draw, gradient=gradient) for _ in range(2))
        if not torch.equal(one, two):
            raise _broken(distortion, "gave two answers to the same input and streams; draw from the streams it is given")


def _broken(distortion: Distortion | GradientDistortion, rule: str) -> ContractError:
    return ContractError(f"distortion {type(distortion).__name__} {rule}")


def opaque(shade: Tensor, cover: Tensor, x: Tensor) -> Tensor:
    """`x` behind something of a `shade` that lets 1 - `cover` through; all broadcast together."""
    return x + cover * (shade - x)


__all__ = [
    "SEVERITIES",
    "Scale",
    "Variant",
    "by_level",
    "distorted",
    "frame",
    "opaque",
    "per_sample",
    "planes",
    "variants",
    "vet",
]
