"""Lines around activations: never across the function, and touching it; where it is convex, the
chord above.
"""

import torch

from brinell.bounds._functions import FUNCTIONS as SMOOTH
from brinell.bounds._graph import Activation
from brinell.bounds._relaxations import relax

FUNCTIONS = {
    "relu": (Activation("relu"), lambda z: z.clamp_min(0)),
    "leaky": (Activation("leaky_relu", 0.3), lambda z: torch.where(z > 0, z, 0.3 * z)),
    "steep": (Activation("leaky_relu", 2.0), lambda z: torch.where(z > 0, z, 2 * z)),
    "folded": (Activation("leaky_relu", -0.5), lambda z: torch.where(z > 0, z, -0.5 * z)),
    **{
        name: (Activation(name), function.value)
        for name, function in SMOOTH.items()
        if not function.positive
    },
}
CONVEX = {
    "relu",
    "leaky",
    "folded",
    *(name for name, function in SMOOTH.items() if function.bend > 0),
}
RANGES = torch.tensor(
    [[-2, -0.5], [-3, 1], [-1, 3], [-1, 1], [0.5, 2], [-0.01, 4], [-6, 0.02], [0, 1], [-1, 0]],
    dtype=torch.float64,
)


def test_lines_touch_the_function_and_do_not_cross_it():
    for name, (activation, function) in FUNCTIONS.items():
        check_lines(name, activation, function)


def check_lines(name, activation, function):
    low, high = (
        RANGES.clamp(min=0.0 if name == "sqrt" else -torch.inf)
        + (name == "sqrt") * RANGES.new_tensor([0, 1])
    ).T
    lines = relax(activation, (low, high))
    z = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, 4001, dtype=torch.float64)
    below = lines.low_slope[:, None] * z + (
        0 if lines.low_shift is None else lines.low_shift[:, None]
    )
    above = lines.high_slope[:, None] * z + lines.high_shift[:, None]
    values = function(z)
    assert (below <= values + 1e-11).all() and (above >= values - 1e-11).all()
    near = (
        1e-6 if activation.is_piecewise or activation.function.bend else 3e-3
    )  # the grid on which slopes are compared
    assert ((values - below).amin(1) < near).all() and ((above - values).amin(1) < near).all()
    ends = torch.tensor([0, -1])
    if name in CONVEX:
        torch.testing.assert_close(above[:, ends], values[:, ends])
    interval = activation.interval((low, high))
    torch.testing.assert_close(interval, (values.amin(1), values.amax(1)), atol=1e-3, rtol=0)
    assert (interval[0] <= values.amin(1)).all() and (interval[1] >= values.amax(1)).all()
    assert (lines.largest >= torch.maximum(below.abs(), above.abs()).amax(1) - 1e-9).all()


def test_the_line_below_a_relu_is_that_of_the_larger_part_or_the_slope_that_is_asked_for():
    low, high = (
        torch.tensor([-3.0, -1.0, -1.0, -2.0, 1.0]),
        torch.tensor([1.0, 3.0, 1.0, -1.0, 2.0]),
    )
    relu = FUNCTIONS["relu"][0]
    assert relax(relu, (low, high)).low_slope.tolist() == [0, 1, 1, 0, 1]
    assert relax(relu, (low, high), torch.full((5,), 0.25)).low_slope.tolist() == [
        0.25,
        0.25,
        0.25,
        0,
        1,
    ]
    leaky = relax(FUNCTIONS["leaky"][0], (low, high), torch.full((5,), 0.5))
    torch.testing.assert_close(leaky.low_slope, torch.tensor([0.65, 0.65, 0.65, 0.3, 1.0]))
    torch.testing.assert_close(
        leaky.high_shift, torch.tensor([0.25 * 3, 0.75 * 1, 0.5, 0, 0]) * 0.7
    )
