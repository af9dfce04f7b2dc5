"""Figures that RobustBench publishes, as marks to see one's own against: from its model_info files, which hold a model each."""

import json
from dataclasses import dataclass
from pathlib import Path

from brinell.core import bounded
from brinell.core.errors import RequestError, option

NORMS = {"Linf": "linf", "L2": "l2"}
"""Names of its threat models, which are those of its folders."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One published model."""

    name: str
    clean: float
    """Accuracy, as a fraction."""
    robust: float
    """Robust accuracy at the budget of the entry: the lower of AutoAttack's and of what the leaderboard calls external."""


def published(folder: Path | str, distance: str, eps: float) -> list[Mark]:
    """The published models of a folder whose threat model is this one.

    Args:
        folder: one of RobustBench's folders of model_info files, such as model_info/cifar10/Linf.
        distance: the norm.
        eps: the budget.

    Raises:
        RequestError: no such folder, no entry in it, or none with this norm and budget.
    """
    folder = Path(folder)
    files = sorted(folder.glob("*.json"))
    if not files:
        raise RequestError(f"{folder} holds no model_info file: name a folder such as model_info/cifar10/Linf")
    if NORMS.get(folder.name, distance) != distance:
        raise RequestError(f"{folder} is about {folder.name}, and the study about {distance}: name the folder of its norm")
    found = [mark for file in files if (mark := _read(file, eps)) is not None]
    if not found:
        raise RequestError(
            f"{folder} has no entry at eps {eps:g}: leave {option('published')} out, or compare {option('at')} "
            "a budget that it has"
        )
    return found


def _read(file: Path, eps: float) -> Mark | None:
    """One entry; None where it is of another budget or lacks a figure, as those of a few corrupted files do."""
    try:
        told = json.loads(bounded.read(file, bounded.MOST_TEXT))
        top, _, bottom = str(told["eps"]).partition("/")
        if abs(float(top) / float(bottom or 1) - eps) > 0.02 * eps:  # 0.031 is how some write 8/255
            return None
        robust = [float(told[key]) for key in ("autoattack_acc", "external") if told.get(key) not in (None, "")]
        return Mark(name=file.stem, clean=float(told["clean_acc"]) / 100, robust=min(robust) / 100)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
