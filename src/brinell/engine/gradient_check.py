"""Is the gradient the gradient? What it foretells is held against how the answers really change, by finite differences.

A central difference of the margin along a direction is compared with the product of gradient and direction. Directions are
random signs at every value, random signs on patches (smooth ones), and random signs at the half of the values whose gradients
are smallest, where a block without a gradient hides. Half of the points lie near clean inputs, moved at random off the grid of
stored values, where max pooling has ties; the others where a step of an attack leads. How the limits were found: docs/checks.md.

Every question goes through a ledger's oracle, which counts it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.core.domain import Domain
from brinell.core.oracle import Batch, Oracle
from brinell.core.streams import Streams
from brinell.core.threat import Distance
from brinell.engine.consistency import ROUNDED, Watch

FINE, MIDDLE, COARSE = 1 / 16, 1 / 4, 1 / 2
"""Sizes of steps, as shares of the budget. A gradient that foretells steps of any of these sizes leads an attack."""
LONGEST, SHORTEST = 0.002, 1e-4
"""The finest steps are at most and at least these shares of the data's range."""
LOCAL = 0.2
"""No point lies farther from its clean input than this share of the data's range."""
DOUBTFUL = 0.06
"""Disagreement above which a glance at few samples is followed by a closer look: healthy networks have at most 0.04."""
WRONG = 0.1
"""Disagreement that a gradient may have: it fails where the lower end of the interval is above."""
HIDDEN = 0.4
"""The same for the half of the values whose gradients are smallest, in which there may be little to foretell."""
MATTERS = 0.1
"""What moving that half must change, as a share of what moving all values changes, before it is judged."""
ROUNDING = 4e-6
"""Changes of the margin below this share of the largest logit are rounding, of models that compute in float32."""
HALF = 3.0
"""Of models that compute in half precision: this many times what two answers to one input may differ by, for the roundings of
all layers come between a step and its answer."""
SEEN = 8
"""Samples of the closer look whose answers must change visibly before anything is said of them."""
GLANCE, LOOK = 24, 64
"""Samples of the glance and of the closer look."""


@dataclass(frozen=True)
class Agreement:
    """How well the gradient foretold the changes along some directions."""

    disagreement: float
    """0 where every change came as foretold, 1 where none was foretold or what was foretold has nothing to do with it, 2 where
    every change has the opposite sign. NaN where nothing changed visibly."""
    least: float
    """Lower end of its 95 % interval, by the spread over the samples."""
    slope: float
    """Real change for each unit of foretold change, by least squares."""
    change: float
    """Mean absolute change of the margin."""
    samples: int
    """Samples whose answers changed visibly, or should have."""


@dataclass(frozen=True)
class Verdict:
    """What the closer look says."""

    disagreement: float
    """Of moving all values, at the size of steps where it is smallest; NaN where hardly an answer changed beyond rounding."""
    wrong: bool
    causes: tuple[str, ...]
    """In words, each a clause; empty where nothing more can be said."""
    blind: Tensor | None
    """(*shape) bool: values at which no sample has a gradient although they matter; None where there are none such."""
    coarse_only: bool
    """Whether it foretells long steps only, as a gradient that is passed straight through a rounding does."""


def agreement(real: Tensor, foretold: Tensor, floor: Tensor) -> Agreement:
    """Compare real changes (n,) with foretold ones (n,); those of which both are below `floor` (n,) do not count.

    Samples weigh by the size of their changes and not by its square, so that no few steep ones speak for all.
    """
    size = (real.square() + foretold.square()).sqrt()
    seen = size > floor
    real, foretold, size = real[seen], foretold[seen], size[seen]
    if not len(real):
        return Agreement(torch.nan, torch.nan, torch.nan, 0.0, 0)
    off = (real - foretold).square() / size
    share = float(off.sum() / size.sum())
    error = float((off - share * size).square().sum().sqrt() / size.sum())
    slope = float((real * foretold / size).sum() / (foretold.square() / size).sum().clamp_min(1e-30))
    return Agreement(share, share - 1.96 * error, slope, float(real.abs().mean()), len(real))


class GradientCheck:
    """The check on one model.

    Args:
        oracle: of a ledger whose threat is the whole domain.
        batch: clean inputs, all classified correctly.
        grad: (n, *shape): gradients of the margin there.
        distance: norm of `eps`.
        eps: the largest budget, above 0; infinite where there is none.
        domain: where the inputs live.
        rng: one stream per sample.
    """

    def __init__(
        self, oracle: Oracle, batch: Batch, grad: Tensor, *, distance: Distance, eps: float, domain: Domain, rng: Streams
    ) -> None:
        self._oracle, self._batch, self._domain, self._rng = oracle, batch, domain, rng
        low, high = domain.bounds(batch.x)
        self._width = (high - low).expand(1, *domain.shape)
        # The change of every value, as a share of its range, that is as large as the budget.
        known = distance.name in ("linf", "l2", "l1") and eps < torch.inf
        self._reach = min(eps / float(distance.size(self._width)), LOCAL) if known else LOCAL
        noise = self._rng.fold("point").uniform(*domain.shape).mul_(2).sub_(1)
        fine = min(self._step(FINE) / FINE, self._reach)
        led = torch.arange(len(batch), device=batch.x.device) % 2 == 1
        move = noise * fine
        move[led] = 0.75 * self._reach * grad[led].sign() + 0.25 * move[led]
        self._x = domain.clamp(batch.x + move * self._width)
        self._asked, self._rounding = 0, ROUNDING
        self._grad = torch.zeros_like(self._x)
        self._scale = torch.zeros(len(batch), device=batch.x.device)

    def _step(self, share: float) -> float:
        step = share * self._reach
        return max(min(step, LONGEST), min(SHORTEST, self._reach)) if share == FINE else step

    def doubtful(self) -> bool:
        """Whether a glance gives reason for a closer look. Costs 5 forwards and a backward for each of at most 24 samples."""
        self._ask(min(GLANCE, len(self._batch)))
        rows = self._rows()
        signs = self._signs(rows, "glance")
        patched = rows % 4 >= 2  # among samples near clean inputs and among those where an attack leads
        signs[patched] = self._patches(rows, "glance")[patched]
        everywhere = self._along(rows, signs, FINE)
        hidden = self._along(rows, self._signs(rows, "weak") * self._weak(), FINE)
        return not everywhere.disagreement <= DOUBTFUL or _hides(hidden, everywhere, HIDDEN / 2, hidden.disagreement)

    def look(self) -> Verdict:
        """The closer look, at up to 64 samples. Costs at most 40 forwards and 2 backwards a sample."""
        self._ask(min(LOOK, len(self._batch)))
        rows = self._rows()
        seen = {share: self._patterns(rows, share) for share in (FINE, MIDDLE, COARSE)}
        everywhere = min((max(pixels, patches, key=_doubt) for pixels, patches, _ in seen.values()), key=_hope)
        hidden = min((weak for *_, weak in seen.values()), key=_hope)
        hides = hidden.samples >= SEEN and _hides(hidden, everywhere, HIDDEN, hidden.least)
        if everywhere.samples < SEEN and not hides:
            return Verdict(torch.nan, False, (), None, False)
        wrong = everywhere.least > WRONG or hides
        blind = self._blind(rows, seen[FINE][0]) if wrong else None
        coarse_only = not wrong and max(seen[FINE], key=_doubt).least > WRONG
        causes = tuple(self._causes(rows, *seen[FINE][:2], blind)) if wrong else ()
        figure = max(everywhere.disagreement, hidden.disagreement) if hides else everywhere.disagreement
        return Verdict(figure, wrong, causes, blind, coarse_only)

    def _patterns(self, rows: Tensor, share: float) -> tuple[Agreement, Agreement, Agreement]:
        """At every value, on patches, and at the half of the values whose gradients are smallest."""
        return (
            self._along(rows, self._signs(rows, f"pixels {share}"), share),
            self._along(rows, self._patches(rows, f"patches {share}"), share),
            self._along(rows, self._signs(rows, f"weak {share}") * self._weak(), share),
        )

    def _causes(self, rows: Tensor, pixels: Agreement, patches: Agreement, blind: Tensor | None) -> Iterator[str]:
        again = self._oracle.gradient(self._batch.ids[rows], self._x[rows]).grad
        if float((again - self._grad[rows]).abs().amax()) > 0.01 * float(self._grad[rows].abs().amax()):
            yield "two gradients of the same answer differ"
            return
        if blind is not None:
            yield f"there is no gradient at {int(blind.sum())} of {blind.numel()} values{_where(blind, self._domain)}"
            return
        if self._proportional(rows):
            yield f"it is {1 / pixels.slope:.2f} of the true one, as where a part of the way is detached"
            return
        for family in self._blocks():
            parts = {name: self._along(rows, self._signs(rows, name) * mask, FINE) for name, mask in family.items()}
            bad = [name for name, part in parts.items() if part.least > WRONG and part.disagreement > 0.3]
            fine = [name for name, part in parts.items() if not part.disagreement > 0.2]
            if bad and fine and len(bad) + len(fine) == len(parts):
                opposite = all(parts[name].disagreement > 1.5 for name in bad)
                yield f"it {'has the opposite sign' if opposite else 'is wrong'} in {' and '.join(bad)}"
        if abs(pixels.disagreement - patches.disagreement) > 0.35:
            kind = "smooth changes" if patches.disagreement > pixels.disagreement else "changes from pixel to pixel"
            yield f"it is wrong for {kind}"

    def _proportional(self, rows: Tensor) -> bool:
        """Whether real changes are the foretold ones times a factor that is not 1."""
        real, foretold, floor = self._changes(rows, self._signs(rows, "factor"), FINE)
        slope = agreement(real, foretold, floor).slope
        return slope > 1.5 and agreement(real, slope * foretold, floor).disagreement < WRONG

    def _blocks(self) -> Iterator[dict[str, Tensor]]:
        """Blocks of values by name, as masks (*shape): channels, then quarters of a picture or halves of a signal."""
        shape, zeros = self._domain.shape, torch.zeros(self._domain.shape, device=self._x.device)
        if self._domain.kind == "vector":
            return
        if 2 <= shape[0] <= 12:
            yield {f"channel {at}": zeros.index_fill(0, torch.tensor([at], device=zeros.device), 1.0) for at in range(shape[0])}
        half = shape[-1] // 2
        if len(shape) == 2:
            yield {"the first half": _ones(zeros, slice(half)), "the second half": _ones(zeros, slice(half, None))}
            return
        middle = shape[-2] // 2
        rows = {"upper": slice(middle), "lower": slice(middle, None)}
        columns = {"left": slice(half), "right": slice(half, None)}
        yield {f"the {row} {column}": _ones(zeros, rows[row], columns[column]) for row in rows for column in columns}

    def _blind(self, rows: Tensor, fine: Agreement) -> Tensor | None:
        """(*shape) bool: values without any gradient, if moving them changes what it should not."""
        zero = (self._grad[rows] == 0).all(0)
        if not zero.any():
            return None
        seen = self._along(rows, self._signs(rows, "blind") * zero, FINE)
        # Moving k of d values at random changes the margin by the root of k / d of what moving all does, if they are like others.
        matters = MATTERS * (float(zero.sum()) / zero.numel()) ** 0.5
        return zero if seen.samples and seen.change > matters * fine.change else None

    def _ask(self, count: int) -> None:
        """Take the gradients at the first `count` points, if that was not done."""
        if count > self._asked:
            at = slice(self._asked, count)
            with Watch() as watch:
                answer = self._oracle.gradient(self._batch.ids[at], self._x[at])
            if watch.half is not None:
                self._rounding = HALF * ROUNDED[watch.half]
            self._grad[at] = torch.nan_to_num(answer.grad, 0.0, 0.0, 0.0)
            self._scale[at] = answer.logits.abs().amax(1)
            self._asked = count

    def _rows(self) -> Tensor:
        return torch.arange(self._asked, device=self._x.device)

    def _along(self, rows: Tensor, signs: Tensor, share: float) -> Agreement:
        return agreement(*self._changes(rows, signs, share))

    def _changes(self, rows: Tensor, signs: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
        """Real and foretold changes (n,) along `signs` (n, *shape), and what of them is rounding. Two forwards a row."""
        ids, x, step = self._batch.ids[rows], self._x[rows], self._step(share) * self._width * signs
        up, down = self._domain.clamp(x + step), self._domain.clamp(x - step)
        real = self._oracle.loss(ids, up) - self._oracle.loss(ids, down)
        foretold = ((up - down) * self._grad[rows]).flatten(1).sum(1)
        return real, foretold, self._rounding * self._scale[rows]

    def _signs(self, rows: Tensor, name: str) -> Tensor:
        return self._random(rows, name)(self._domain.shape)

    def _patches(self, rows: Tensor, name: str) -> Tensor:
        """Signs that are alike within patches of a quarter of each side of the grid."""
        shape = self._domain.shape
        if self._domain.kind == "vector":
            return self._signs(rows, name)
        sides = [max(2, side // 4) for side in shape[1:]]
        coarse = [shape[0], *(-(-side // patch) for side, patch in zip(shape[1:], sides, strict=True))]
        signs = self._random(rows, name)(tuple(coarse))
        for axis, (patch, side) in enumerate(zip(sides, shape[1:], strict=True), start=2):
            signs = signs.repeat_interleave(patch, axis).narrow(axis, 0, side)
        return signs

    def _random(self, rows: Tensor, name: str) -> Callable[[tuple[int, ...]], Tensor]:
        rng = self._rng.select(rows).fold(name)
        return lambda shape: rng.uniform(*shape).sub_(0.5).sign_()

    def _weak(self) -> Tensor:
        """(*shape) of 0 and 1: the half of the values whose gradients are smallest, in the mean over the samples."""
        mean = (self._grad[: self._asked] * self._width).abs().mean(0)
        order = mean / mean.amax().clamp_min(1e-30) + 1e-9 * self._rng.fold("order").uniform(*mean.shape)[0]
        weak = torch.zeros_like(mean).flatten()
        weak[order.flatten().argsort()[: max(1, mean.numel() // 2)]] = 1
        return weak.reshape(mean.shape)


def _ones(zeros: Tensor, *span: slice) -> Tensor:
    """A mask of ones where the last axes lie within the span."""
    mask = zeros.clone()
    at: tuple[Any, ...] = (..., *span)
    mask[at] = 1
    return mask


def _doubt(one: Agreement) -> float:
    return one.least if one.samples >= SEEN else -1.0


def _hope(one: Agreement) -> float:
    return one.least if one.samples >= SEEN else torch.inf


def _hides(weak: Agreement, everywhere: Agreement, limit: float, figure: float) -> bool:
    return weak.samples > 0 and weak.change > MATTERS * everywhere.change and figure > limit


def _where(mask: Tensor, domain: Domain) -> str:
    """What the chosen values have in common, as a clause."""
    if domain.kind == "vector":
        if domain.columns:
            names = [column.name for column, chosen in zip(domain.columns, mask.tolist(), strict=True) if chosen]
            return f" ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
        return ""
    whole = [channel for channel in range(len(mask)) if bool(mask[channel].all())]
    rest = mask.clone()
    rest[whole] = False
    if whole and not rest.any():
        return f" (channel{'s' * (len(whole) > 1)} {', '.join(map(str, whole))})"
    return ", in every channel alike" if bool((mask == mask[:1]).all()) else ""
