"""Illuminate: the light is turned up, or down.

The name that RLAB's papers give to the filter that `brightness` is here.

Sarkar et al. 2023, arXiv 2310.18626, and 2024, arXiv 2403.18985: filters for noise, blur, dead
pixels and illumination.
"""

from dataclasses import dataclass

from brinell.distortions.brightness import Brightness


@dataclass(frozen=True, kw_only=True)
class Illuminate(Brightness):
    """The papers' name of `brightness`: the same is added to every value, or taken from it."""
