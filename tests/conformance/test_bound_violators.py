"""Planted violators for the checker of bounds: methods that prove what is false, or nothing, or
meddle.
"""

from dataclasses import dataclass, replace

import pytest
import torch
import torch._dynamo

from _helpers import unrefused
from brinell import plugins
from brinell.bounds import _relaxations
from brinell.bounds._bounding import margin_rows
from brinell.bounds._graph import Activation
from brinell.testing import bounds, check_bound

CROWN = plugins.load("bound", "crown")


@dataclass(frozen=True, kw_only=True)
class Good(CROWN):
    """CROWN."""


class Midpoint(Good):
    """The margin at the centre, as if a ball were a point."""

    def __call__(self, graph, ball, labels):
        rows = margin_rows(labels, graph.classes, ball.x.dtype)
        return (graph.values(ball.x)[-1][rows.sample] * rows.a).sum(1).view(len(labels), -1)


class SmallerBall(Good):
    """A ball that is a little too small."""

    def __call__(self, graph, ball, labels):
        return super().__call__(graph, replace(ball, eps=0.98 * ball.eps), labels)


class Unrounded(Good):
    """Bounds in float32 that are raised by what rounding may take."""

    def __call__(self, graph, ball, labels):
        lower = super().__call__(graph, ball, labels)
        return lower + (2e-5 if ball.x.dtype == torch.float32 else 0.0)


class OtherOrder(Good):
    """The right bounds of the wrong classes."""

    def __call__(self, graph, ball, labels):
        return super().__call__(graph, ball, labels).flip(1)


class SteepLines(Good):
    """Lines above an activation that cut it."""

    def __call__(self, graph, ball, labels):
        sound = _relaxations._piecewise

        def unsound(slope, low, high, slopes):
            below, shift, above, high_shift = sound(slope, low, high, slopes)
            return below, shift, above, 0.5 * high_shift

        _relaxations._piecewise = unsound
        try:
            return super().__call__(graph, ball, labels)
        finally:
            _relaxations._piecewise = sound


class OnlyPiecewise(Good):
    """Sound for networks of linear layers, and too high for curved activations."""

    def __call__(self, graph, ball, labels):
        lower = super().__call__(graph, ball, labels)
        curved = any(
            isinstance(node.operation, Activation) and not node.operation.is_piecewise
            for node in graph.nodes
        )
        return lower + 5.0 if curved else lower


class Nothing(Good):
    """Sound, since it claims nothing."""

    def __call__(self, graph, ball, labels):
        return torch.full((len(labels), graph.classes - 1), -torch.inf)


class Flat(Good):
    def __call__(self, graph, ball, labels):
        return super().__call__(graph, ball, labels).amin(1)


class NotANumber(Good):
    def __call__(self, graph, ball, labels):
        return super().__call__(graph, ball, labels) * torch.nan


class Fails(Good):
    def __call__(self, graph, ball, labels):
        raise ZeroDivisionError("nothing to divide")


class Writes(Good):
    def __call__(self, graph, ball, labels):
        lower = super().__call__(graph, ball, labels)
        ball.eps.mul_(0.5)
        return lower


class Global(Good):
    def __call__(self, graph, ball, labels):
        torch.rand(1)
        return super().__call__(graph, ball, labels)


class Drawn(Good):
    def __call__(self, graph, ball, labels):
        lower = super().__call__(graph, ball, labels)
        return lower - 1e-3 * torch.rand(
            lower.shape, generator=torch.Generator().manual_seed(id(lower) % 2**31)
        )


class Company(Good):
    def __call__(self, graph, ball, labels):
        return super().__call__(graph, ball, labels) - 0.01 * (len(labels) - 1)


@dataclass(frozen=True, kw_only=True)
class Normed(Good):
    """With a norm of its own."""

    norm: str = "linf"


RULES = [
    (Midpoint, "above the margin of a linear network"),
    (SmallerBall, "above the margin of a linear network"),
    (Unrounded, "above the margin of a linear network in linf and float32"),
    (OtherOrder, "above the margin of a linear network"),
    (SteepLines, "above the least margin of a network with one input"),
    (OnlyPiecewise, "above a margin that an input of the ball has"),
    (Nothing, "proves nothing in a ball"),
    (Flat, "something else than real numbers of shape"),
    (NotANumber, "gives NaN"),
    (Fails, "failed with ZeroDivisionError: nothing to divide"),
    (Writes, "wrote into what it was given"),
    (Global, "drew from a global random generator"),
    (Drawn, "gave two bounds of the same balls"),
    (Company, "gave other bounds when the batch was split"),
    (Normed, "setting norm has another name here"),
]


@pytest.fixture(scope="module", autouse=True)
def _problems():
    """Networks and what descent finds in them, which all checks of a process share."""
    for number in range(bounds.LAYERED):
        bounds._layered_problem(number)


@pytest.mark.parametrize("part", range(3))
def test_each_mistake_is_caught(part):
    assert not unrefused(check_bound, RULES[part::3])


def test_the_method_without_mistakes_passes():
    check_bound(Good)


OUTSIDE = '''
"""Interval bounds of another package."""

from dataclasses import dataclass

from brinell.bounds._bounding import margin_rows, propagate


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """The ranges of the scores alone."""

    widening: float = 0.0
    """What is subtracted from every bound."""

    def __call__(self, graph, ball, labels):
        """Lower bounds of the margins."""
        state = propagate(graph, ball, refine=False)
        rows = margin_rows(labels, graph.classes, ball.x.dtype)
        return (state.within_ranges(len(graph.nodes) - 1, rows) - self.widening).view(len(labels), -1)
'''


@pytest.mark.slow
def test_a_method_from_outside_is_checked_and_used(tmp_path):
    import brinell

    file = tmp_path / "ranges.py"
    file.write_text(OUTSIDE)
    check_bound(type(plugins.build("bound", f"{file}:Ranges", {})), widening=0.01)
    result = brinell.certify(
        "digits-cnn?width=4",
        "digits",
        method=f"{file}:Ranges",
        eps="0.0005",
        samples=6,
        attack="fgsm",
        out=tmp_path / "run",
    )
    assert result.certified[-1].k > 0 and list(result.closed) == ["attacks", f"{file}:Ranges"]
