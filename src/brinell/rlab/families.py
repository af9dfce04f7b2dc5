"""Choices among variants: families of one distortion at one severity, and what a stuck episode lays over a whole input."""

import torch
from torch import Tensor

from brinell.distortions._shared import Variant

WHOLES = 16
"""Wholly distorted inputs that a stuck episode asks about at most."""


def numbers_of_families(variants: tuple[Variant, ...], device: torch.device) -> Tensor:
    """(variants,): numbers from 1 for each distortion at each severity; a single one is 0, since there is nothing to choose."""
    names = list(dict.fromkeys((id(variant.distortion), variant.severity) for variant in variants))
    offset = 0 if len(names) == 1 else 1
    return torch.tensor([names.index((id(v.distortion), v.severity)) + offset for v in variants], device=device)


def wholes(variants: tuple[Variant, ...], device: torch.device) -> Tensor:
    """The strongest variants of each distortion, the first draws of all before the second ones."""
    strongest = {id(variant.distortion): variant.severity for variant in sorted(variants, key=lambda one: one.severity)}
    numbers = [at for at, one in enumerate(variants) if one.severity == strongest[id(one.distortion)]]
    return torch.tensor(sorted(numbers, key=lambda at: variants[at].draw)[:WHOLES], device=device)


def families(variants: tuple[Variant, ...]) -> int:
    """Options of the distortion branch: any, and each distortion at each severity; 1 where there is nothing to choose."""
    return int(numbers_of_families(variants, torch.device("cpu")).max()) + 1


__all__ = ["families", "numbers_of_families", "wholes"]
