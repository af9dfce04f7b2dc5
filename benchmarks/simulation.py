"""Random samples whose truth is known, for simulations of intervals and sentences."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from brinell.analysis.inference import Order, order
from brinell.analysis.proportions import mcnemar
from brinell.core.record import Array

SAMPLES = 32
"""Samples that `brinell explain` takes by default."""

MEASURES: dict[str, tuple[Callable[[Array], Array], float]] = {
    "symmetric": (lambda u: betaincinv(4, 4, u), 0.5),
    "uniform": (lambda u: u, 0.5),
    "skewed (Dice of a hard object)": (lambda u: betaincinv(2, 5, u), 2 / 7),
    "near 1 (Dice of an easy object)": (lambda u: betaincinv(8, 1, u), 8 / 9),
    "U-shaped": (lambda u: betaincinv(0.5, 0.5, u), 0.5),
    "two fifths zero": (
        lambda u: np.where(u < 0.4, 0.0, betaincinv(2, 2, (u - 0.4).clip(0) / 0.6)),
        0.3,
    ),
    "exponential (infidelity)": (lambda u: -np.log1p(-u), 1.0),
    "heavy tails (lognormal, sigma 1)": (lambda u: np.exp(normal_quantiles(u)), float(np.exp(0.5))),
}
"""Measures of a map by their quantile function, with their means."""


class Row(NamedTuple):
    """One simulated figure."""

    title: str
    size: str
    percent: float
    percentile: float | None = None
    """Coverage of the percentile bootstrap for comparison."""
    conservative: bool = False
    """True for an interval that may hold the truth more often: of several figures together, of a
    few groups or models."""


def normal_quantiles(u: Array) -> Array:
    """Quantiles of the normal distribution."""
    return np.asarray(ndtri(u.clip(1e-12, 1 - 1e-12)))


def draw_uniform(rng: np.random.Generator, counts: Array, icc: float) -> Array:
    """Uniform values (n,) of groups of these sizes, whose normal scores have the intraclass
    correlation `icc`.
    """
    shared = np.repeat(rng.normal(size=len(counts)), counts)
    return np.asarray(ndtr(np.sqrt(icc) * shared + np.sqrt(1 - icc) * rng.normal(size=len(shared))))


def draw_errors(rng: np.random.Generator, rates: Array, n: int) -> Array:
    """(*rates, n) bool: errors at these rates on samples that are hard for all or for none."""
    hardness = np.sqrt(0.5) * rng.normal(size=n)
    return np.asarray(
        ndtr(hardness + np.sqrt(0.5) * rng.normal(size=(*rates.shape, n))) < rates[..., None]
    )


def order_models(robust: Array) -> Order:
    """Models by robust accuracy, as a study compares them."""
    return order(
        robust.mean(1),
        lambda i, j: mcnemar(
            int((robust[i] & ~robust[j]).sum()), int((robust[j] & ~robust[i]).sum())
        ),
    )
