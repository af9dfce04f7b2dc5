"""Reads robust accuracies that RobustBench publishes, from its model_info files with one model each."""

import json
from dataclasses import dataclass
from pathlib import Path

from brinell.core import bounded
from brinell.core.errors import RequestError, option

NORMS = {"Linf": "linf", "L2": "l2"}
"""RobustBench's folder names of threat models, and our norms."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One published model."""

    name: str
    clean: float
    """Accuracy, as a fraction."""
    robust: float
    """Robust accuracy at the entry's budget: the lower of AutoAttack's and the leaderboard's external result."""


def load_marks(folder: Path | str, distance: str, eps: float) -> list[Mark]:
    """The published models of a folder with the given norm and budget.

    Args:
        folder: a RobustBench folder of model_info files, such as model_info/cifar10/Linf.
        distance: the norm.
        eps: the budget.

    Raises:
        RequestError: the folder is missing, has no entry, or has none with this norm and budget.
    """
    folder = Path(folder)
    files = sorted(folder.glob("*.json"))
    if not files:
        raise RequestError(f"{folder} holds no model_info file: give a folder such as model_info/cifar10/Linf")
    if NORMS.get(folder.name, distance) != distance:
        raise RequestError(f"{folder} is for {folder.name}, but the study uses {distance}: give the folder of that norm")
    marks = [mark for file in files if (mark := _read(file, eps)) is not None]
    if not marks:
        raise RequestError(
            f"{folder} has no entry at eps {eps:g}: leave {option('published')} out, or set {option('at')} to "
            "a budget that it has"
        )
    return marks


def _read(file: Path, eps: float) -> Mark | None:
    """One entry; None if it has another budget or lacks a figure."""
    try:
        entry = json.loads(bounded.read(file, bounded.MOST_TEXT))
        top, _, bottom = str(entry["eps"]).partition("/")
        if abs(float(top) / float(bottom or 1) - eps) > 0.02 * eps:  # some entries write 8/255 as 0.031
            return None
        robust = [float(entry[key]) for key in ("autoattack_acc", "external") if entry.get(key) not in (None, "")]
        return Mark(name=file.stem, clean=float(entry["clean_acc"]) / 100, robust=min(robust) / 100)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
