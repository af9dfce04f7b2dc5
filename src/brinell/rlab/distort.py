"""Content of a patch: distortions at each severity in each draw, made once per sample.

An input is a function of its assignment alone: each place shows the variant of the lowest-numbered
patch over it that has one, and the clean value where no patch has one. So the order in which
patches are distorted and cleared plays no part, clearing is the exact inverse of distorting, and
the input that the model is asked about is bit by bit the one that is kept.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from brinell.core.contracts import Distortion
from brinell.core.domain import Domain
from brinell.core.errors import BrinellError, ContractError, RequestError, one_line
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.threat import Threat, extent

SEVERITIES = (1, 2, 3, 4, 5)
"""From hardly seen to hardly recognised."""
SLACK = 1e-6
"""By how much float32 rounding may move a distortion's answer out of [0, 1]."""
WHOLES = 16
"""Wholly distorted inputs that a stuck episode tries at most."""
DRAW_STREAM = "filters"
"""Name of the random streams that distortions draw from. It seeds them: another name would change
every draw."""
CLEAN = -1
"""The variant that is the clean input itself."""
TOGETHER = 2**26
"""Values of distorted inputs that a device makes in one call."""
ROOM = 2**24
"""Places that are looked at together."""
CONCENTRATED = 2.0
"""The distance of a wholly distorted input at least, in budgets, where severities are fitted: a
quarter of the patches can then fill a budget in L2."""
STRONGEST = 100.0
"""By how much a distortion is made stronger at most."""
FULL = 0.9
"""Share of a budget from which it counts as full."""
EXTENT = 0.999
"""Share of the largest distance within the bounds from which a budget is no limit."""


class Variant(NamedTuple):
    """One of the things that can be placed on a patch."""

    distortion: Distortion
    severity: int
    draw: int
    fitted: bool = False
    """True if it grows with a budget that the distortion at its strongest would not fill
    (`CONCENTRATED`)."""


def variants(
    distortions: Sequence[Distortion],
    domain: Domain,
    severities: Sequence[int] = SEVERITIES,
    draws: int = 4,
) -> tuple[Variant, ...]:
    """Every distortion at every severity, in `draws` draws where its draws are endless.

    Without severities these are all of them, fitted to the budget.
    """
    if set(severities) - set(SEVERITIES) or draws < 1:
        raise RequestError(
            f"severities {list(severities)} and {draws} draws: severities are 1 "
            "to 5, and at least 1 draw is needed"
        )

    for distortion in distortions:
        if domain.kind not in distortion.domains:
            kinds = ", ".join(sorted(distortion.domains))
            raise RequestError(
                f"distortion {type(distortion).__name__} distorts {kinds}, and "
                f"the data is of kind {domain.kind}: leave it out"
            )

    # A distortion without draws of its own is drawn a fixed number of times.
    return tuple(
        Variant(distortion, severity, draw, fitted=not severities)
        for distortion in distortions
        for severity in severities or SEVERITIES
        for draw in range(distortion.draws(domain.shape) or draws)
    )


def distorted(
    distortion: Distortion,
    x: Tensor,
    severity: Tensor | int,
    rng: Streams,
    *,
    domain: Domain,
    draw: Tensor | int = 0,
) -> Tensor:
    """Distort inputs and check the result: shape, finite, within the bounds, `x` unchanged.

    Args:
        distortion: the distortion.
        x: (n, *shape) inputs within the bounds of `domain`.
        severity: 1 to 5, one for all or (n,) int64.
        rng: a stream for each input. The distortion is handed another for each draw.
        domain: where the inputs live.
        draw: which version, counted from 0, one for all or (n,) int64.

    Returns:
        (n, *shape) in the bounds. Values that the distortion did not change are those of `x`, bit
            by bit.

    Raises:
        ContractError: the distortion failed or broke its contract.
    """
    low, high = domain.bounds()
    # Read on the processor, where it costs nothing.
    is_unit = not low.any() and bool((high == 1).all())
    low, high = domain.bounds(x)
    unit = x if is_unit else ((x - low) / (high - low)).clamp_(0, 1)

    severity = torch.as_tensor(severity, device=x.device).expand(len(x))
    draw = torch.as_tensor(draw, device=x.device).expand(len(x))
    least, most = torch.stack(torch.aminmax(severity)).tolist()
    if least < SEVERITIES[0] or most > SEVERITIES[-1]:
        raise RequestError(
            f"severity {severity.tolist()}: it must be between {SEVERITIES[0]} and {SEVERITIES[-1]}"
        )

    # Each draw has streams of its own.
    numbers, index = torch.unique(draw, return_inverse=True)
    keys_by_draw = torch.stack([rng.fold(number).keys for number in numbers.tolist()])
    keys = keys_by_draw.gather(0, index[None])[0]
    version = unit._version
    arguments: list[Any] = [unit, severity, Streams(keys), draw]
    answer = _call(distortion, arguments)
    if unit._version != version:
        raise _broken(
            distortion, "wrote into the inputs it was given; it must clone what it changes"
        )
    _check(distortion, answer, x)

    # Within the slack only: an answer that leaves the bounds by more was refused.
    answer = cast("Tensor", answer).clamp(0, 1)
    if is_unit:
        return answer
    return domain.clamp(torch.where(answer == unit, x, low + (high - low) * answer))


def _call(distortion: Any, arguments: Sequence[Any]) -> Any:
    """Call a distortion; what it raises becomes an error that names it."""
    try:
        return distortion(*arguments)
    except BrinellError:
        raise
    except Exception as error:
        rule = f"failed with {type(error).__name__}: {one_line(error)}"
        raise _broken(distortion, rule) from error


def _check(distortion: Distortion, answer: Any, x: Tensor) -> None:
    """Raise where an answer is no tensor like `x` with values in [0, 1]."""
    if not isinstance(answer, Tensor) or answer.shape != x.shape or answer.dtype != x.dtype:
        kind = type(answer).__name__
        if isinstance(answer, Tensor):
            kind = f"{tuple(answer.shape)} {answer.dtype}"
        raise _broken(
            distortion, f"made {kind} of {tuple(x.shape)} {x.dtype}; it must keep shape and type"
        )

    # Both ends in one read from the device.
    least, most = torch.stack(torch.aminmax(answer)).tolist()
    if not (math.isfinite(least) and math.isfinite(most)):
        raise _broken(distortion, "answered NaN or infinity")
    if least < -SLACK or most > 1 + SLACK:
        raise _broken(
            distortion, f"left the bounds by {max(-least, most - 1):.3g}; end it with .clamp(0, 1)"
        )


def vet(variants: Sequence[Variant], x: Tensor, rng: Streams, *, domain: Domain) -> None:
    """Try each distortion on inputs x (n, *shape) at each severity, before queries are spent.

    Only severities that may be used are tried.

    Raises:
        ContractError: a distortion broke its contract, or gave two different results for the same
            input.
    """
    for distortion in {id(variant.distortion): variant.distortion for variant in variants}.values():
        # The first draw of each severity.
        draws = {
            variant.severity: variant.draw
            for variant in reversed(variants)
            if variant.distortion is distortion
        }
        numbers = sorted(draws)
        index = torch.arange(len(x), device=x.device).repeat(len(draws))
        severity = torch.tensor(numbers, device=x.device).repeat_interleave(len(x))
        draw = torch.tensor([draws[number] for number in numbers], device=x.device)
        draw = draw.repeat_interleave(len(x))

        inputs = x[index]
        streams = rng.select(index)
        first = distorted(distortion, inputs, severity, streams, domain=domain, draw=draw)
        second = distorted(distortion, inputs, severity, streams, domain=domain, draw=draw)
        if not torch.equal(first, second):
            raise _broken(
                distortion,
                "gave two answers to the same input and streams; draw from the streams it is given",
            )


def extremes(domain: Domain) -> Tensor:
    """(3, *shape): inputs that are dark, bright and grey throughout.

    A division by what an input holds fails on them.
    """
    low, high = domain.bounds()
    levels = [low + share * (high - low) for share in (0.0, 1.0, 0.5)]
    return torch.stack([level.expand(1, *domain.shape)[0] for level in levels])


def _broken(distortion: Distortion, rule: str) -> ContractError:
    """An error that says which rule a distortion broke."""
    return ContractError(f"distortion {type(distortion).__name__} {rule}")


def pair_numbers(variants: tuple[Variant, ...], device: torch.device) -> Tensor:
    """(variants,): numbers from 1 for each distortion at each severity.

    A single one is 0, since there is nothing to choose.
    """
    pairs = [(id(variant.distortion), variant.severity) for variant in variants]
    names = list(dict.fromkeys(pairs))
    offset = 0 if len(names) == 1 else 1
    return torch.tensor([names.index(pair) + offset for pair in pairs], device=device)


def wholes(variants: Sequence[Variant]) -> Tensor:
    """The strongest variants of each distortion, the first draws of all before the second ones."""
    ascending = sorted(variants, key=lambda variant: variant.severity)
    strongest = {id(variant.distortion): variant.severity for variant in ascending}
    numbers = [
        index
        for index, variant in enumerate(variants)
        if variant.severity == strongest[id(variant.distortion)]
    ]
    by_draw = sorted(numbers, key=lambda index: variants[index].draw)
    return torch.tensor(by_draw[:WHOLES])


def pair_options(variants: tuple[Variant, ...]) -> int:
    """Options of the distortion branch: any, and each pair of distortion and severity.

    There is 1 where there is one pair alone.
    """
    return int(pair_numbers(variants, torch.device("cpu")).max()) + 1


class DistortedInputs:
    """All variants of the samples in n slots, empty until `put`.

    All variants of a distortion for a sample come from one call, always the same, so that they are
    bit by bit those of another batch. On a device one call distorts many samples.
    """

    def __init__(
        self,
        slots: int,
        domain: Domain,
        variants: Sequence[Variant],
        device: torch.device,
        *,
        learned: bool = False,
    ) -> None:
        if not variants:
            raise RequestError(
                "no distortion is left to place: name at least one that fits the data"
            )
        self.variants = tuple(variants)
        self.domain = domain

        self.learned = len(variants)
        """The number of the content that follows gradients; `proposed` is that of the next one."""
        self.proposed = len(variants) + 1

        # The clean inputs come last, so that CLEAN is their index too.
        columns = len(variants) + 2 * learned + 1
        self._values = torch.zeros(slots, columns, math.prod(domain.shape), device=device)
        distortions = len({id(variant.distortion) for variant in variants})
        self.factor, self.fill = torch.ones(2, slots, distortions, device=device)
        """(n, distortions) each: by how much a distortion was made stronger to fit the budget;
        and the distance of an input that it distorts as a whole at its strongest, in budgets, 1
        where there is none."""

    def __len__(self) -> int:
        return len(self._values)

    @property
    def x(self) -> Tensor:
        """(n, *shape): the clean inputs. Never write into it."""
        return self._values[:, CLEAN].view(len(self), *self.domain.shape)

    def put(self, rows: Tensor, x: Tensor, rng: Streams, threat: Threat | None = None) -> None:
        """Make everything of samples x (m, *shape), for the budgets of their threat.

        `rows` (m,) are their slots, `rng` has a stream for each.
        """
        # What is learned and what is proposed begin as the clean input, the last column.
        self._values[rows, self.learned :] = x.flatten(1)[:, None]
        distortions = {
            id(variant.distortion): variant.distortion for variant in self.variants
        }.values()

        for column, distortion in enumerate(distortions):
            numbers = [
                number
                for number, variant in enumerate(self.variants)
                if variant.distortion is distortion
            ]
            chosen = [self.variants[number] for number in numbers]
            severity = torch.tensor([variant.severity for variant in chosen], device=x.device)
            draw = torch.tensor([variant.draw for variant in chosen], device=x.device)
            index = torch.tensor(numbers, device=x.device)

            # On the processor one sample a call, so that a batch changes no bit.
            k = len(numbers)
            size = 1 if x.device.type == "cpu" else max(1, TOGETHER // (k * x[0].numel()))
            for part in torch.split(torch.arange(len(rows), device=x.device), size):
                streams = Streams(rng.keys[part].repeat_interleave(k))
                results = distorted(
                    distortion,
                    x[part].repeat_interleave(k, 0),
                    severity.repeat(len(part)),
                    streams.fold(type(distortion).__name__),
                    domain=self.domain,
                    draw=draw.repeat(len(part)),
                )
                self._values[rows[part, None], index] = results.view(len(part), k, -1)
            if threat is not None:
                self._fit(rows, x, threat, index, severity, column)

    def propose(self, rows: Tensor, x: Tensor) -> None:
        """Offer the content of inputs x (m, *shape) on every patch of slots (m,)."""
        self._values[rows, self.proposed] = x.flatten(1)

    def settle(self, rows: Tensor, variant: Tensor, full: Tensor) -> Tensor:
        """(m, patches): assignments to slots (m,) whose proposals are part of what was learned.

        They show the same input `full` (m, *shape), and another proposal does not change it.
        """
        proposal = self._values[rows, self.proposed]
        is_shown = full.flatten(1) == proposal
        self._values[rows, self.learned] = torch.where(
            is_shown, proposal, self._values[rows, self.learned]
        )
        return torch.where(variant == self.proposed, self.learned, variant)

    def recall(self, rows: Tensor, content: Tensor) -> None:
        """Put the learned content (m, *shape) of earlier slots into slots (m,)."""
        self._values[rows, self.learned] = content.flatten(1)

    def _fit(
        self, rows: Tensor, x: Tensor, threat: Threat, index: Tensor, severity: Tensor, column: int
    ) -> None:
        """Make the variants (k,) of a distortion stronger for budgets that it would not fill.

        `rows` (m,) are slots; `factor` and `fill` are noted in the column of the distortion.
        """
        strongest = index[severity == severity.max()]
        sizes = self._sizes(rows, strongest, x, threat)
        # A budget that every input within the bounds meets is no limit.
        limited = threat.eps < EXTENT * extent(threat.distance, self.domain)

        if self.variants[int(index[0])].fitted:
            # One factor for all draws, by their mean; `fill` below is that of the largest draw.
            size = torch.stack(sizes).mean(0)
            factor = CONCENTRATED * threat.eps / size.clamp_min(1e-12)
            factor = torch.where(limited & (size > 0), factor, 1.0).clamp(1, STRONGEST)
            for row in (factor > 1).nonzero()[:, 0].tolist():
                values = self._values[rows[row], index]
                clean = self._values[rows[row], CLEAN]
                grown = clean + factor[row] * (values - clean)
                grown = self.domain.clamp(grown.view(len(index), *x.shape[1:]))
                self._values[rows[row], index] = grown.flatten(1)
            self.factor[rows, column] = factor
            sizes = self._sizes(rows, strongest, x, threat)

        fill = torch.stack(sizes).amax(0) / threat.eps.clamp_min(1e-12)
        self.fill[rows, column] = torch.where(limited, fill, 1.0)

    def _sizes(self, rows: Tensor, variants: Tensor, x: Tensor, threat: Threat) -> list[Tensor]:
        """For each variant (m,): the distances of inputs x (m, *shape) that it distorts wholly."""
        return [
            threat.distance.size(self.inputs(rows, number.expand(len(rows))) - x)
            for number in variants
        ]

    def values(self, rows: Tensor, variants: Tensor, places: Tensor, channels: int) -> Tensor:
        """Values of distorted inputs at chosen places.

        Args:
            rows: (m,) slots.
            variants: (m, k) variant at each place, CLEAN for none.
            places: (m, ..., k) int64 positions behind the channels, counted flat; (m, ..., 1) for
                the same in all k variants.
            channels: number of values at each place.

        Returns:
            (m, channels, ..., k).
        """
        _, count, size = self._values.shape

        offsets = torch.arange(channels, device=places.device) * (size // channels)
        index = places.contiguous()[:, None] + offsets.view(-1, *[1] * (places.ndim - 1))
        # The remainder of CLEAN, -1, is the last column, that of the clean inputs.
        start = (rows[:, None] * count + variants.remainder(count)) * size
        index = start.view(len(rows), *[1] * (index.ndim - 2), variants.shape[1]) + index
        # index_select is several times as fast as an index.
        return self._values.view(-1).index_select(0, index.reshape(-1)).view(index.shape)

    def inputs(self, rows: Tensor, variants: Tensor) -> Tensor:
        """(m, *shape): whole distorted inputs of slots (m,) and variants (m,)."""
        return self._values[rows, variants].view(len(rows), *self.domain.shape)

    def all_values(self, rows: Tensor) -> Tensor:
        """(m, columns, values): those of slots (m,), the clean input last."""
        return self._values[rows]

    def put_values(self, rows: Tensor, values: Tensor) -> None:
        """Put what `all_values` gives of other inputs into slots (m,)."""
        self._values[rows] = values

    def render(self, rows: Tensor, variant: Tensor, grid: PatchGrid) -> Tensor:
        """(m, *shape): the inputs of assignments (m, patches) to the samples in slots (m,)."""
        covers = covers_on(grid, rows.device)
        # `covers` names the patch behind the last one where a place has fewer patches than others.
        clean = torch.full_like(variant[:, :1], CLEAN, dtype=torch.int64)
        padded = torch.cat([variant.long(), clean], 1)
        places = torch.arange(grid.places, device=rows.device)
        size = max(1, ROOM // covers.numel())

        parts = []
        for part in torch.split(torch.arange(len(rows), device=rows.device), size):
            # Each place shows the lowest-numbered patch over it that has a variant.
            standing = padded[part][:, covers]
            lowest = (standing != CLEAN).to(torch.uint8).argmax(2, keepdim=True)
            shown = standing.gather(2, lowest)[..., 0]
            here = places.expand(len(part), -1)
            parts.append(self.values(rows[part], shown, here, grid.channels))
        return torch.cat(parts).view(len(rows), *grid.shape)


def strengths(
    variants: Sequence[Variant], x: Tensor, threat: Threat, rng: Streams
) -> tuple[Tensor, Tensor]:
    """(distortions,) each: medians over inputs x (n, *shape) of `factor` and `fill`.

    They are those of `DistortedInputs` and cost no query.
    """
    strongest = tuple(variants[number] for number in wholes(variants).tolist())
    if not len(x):
        return torch.ones(0), torch.ones(0)

    inputs = DistortedInputs(len(x), threat.domain, strongest, x.device)
    inputs.put(torch.arange(len(x), device=x.device), x, rng.fold(DRAW_STREAM), threat)
    factors = inputs.factor.quantile(0.5, dim=0).cpu()
    fills = inputs.fill.quantile(0.5, dim=0).cpu()
    return factors, fills


def strength_remarks(names: Sequence[str], factors: Tensor, fills: Tensor) -> list[str]:
    """Remarks on distortions that are made stronger to fit a budget, or cannot fill it."""
    remarks = []
    # Without inputs `strengths` has no numbers, and there is nothing to remark.
    grown = [
        f"{name} {factor:.1f} times"
        for name, factor in zip(names, factors.tolist(), strict=False)
        if factor > 1
    ]
    if grown:
        remarks.append(
            f"distortions made stronger than at severity 5, to fit eps: {', '.join(grown)}"
        )

    # A distortion that cannot fill the budget ends episodes that only fail.
    weak = [
        f"{name} {fill:.2f}"
        for name, fill in zip(names, fills.tolist(), strict=False)
        if fill < FULL
    ]
    if weak:
        text = (
            "distortions that in full strength, on the whole input, do not fill "
            f"eps: {', '.join(weak)} of it"
        )
        remarks.append(f"{text}; name others, or a smaller eps")
    return remarks


@lru_cache(maxsize=8)
def covers_on(grid: PatchGrid, device: torch.device) -> Tensor:
    """The patches over each place on a device, which waits for all that is brought there."""
    return grid.covers.to(device)
