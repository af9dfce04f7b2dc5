"""Settings given from Python, as the texts that a request holds: budgets, norms, devices."""

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.core.errors import RequestError, option, short
from brinell.core.values import as_array

LISTS = (list, tuple, set, range)
NORMS = {"inf": "linf", "infinity": "linf", "2": "l2", "1": "l1", "0": "l0"}


def settings_texts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a request has them: eps, norm and device as texts, paths as texts, numbers of
    numpy and torch as Python's.
    """
    converters: dict[str, Callable[[Any], Any]] = {
        "eps": eps_text,
        "budgets": eps_text,
        "norm": norm_text,
        "device": device_text,
    }

    return {
        name: converters.get(name, _plain)(value)
        for name, value in settings.items()
        if value is not None
    }


def eps_text(value: Any) -> str:
    """Budgets as a text: a number, a text, or any list, array or tensor of these; anything else is
    refused.

    Multiples of 1/255 are written as such, so that 8/255 reads the same whether it was a float or a
    text.
    """
    if isinstance(value, str):
        return value
    # Arrays and tensors; scalars of numpy keep their type, by which they are written.
    if hasattr(value, "tolist") and not isinstance(value, np.generic):
        value = as_array(value, "numbers of eps").tolist()
    if not isinstance(value, LISTS):
        return _budget_text(value)

    if not value:
        raise RequestError(
            "eps is an empty list: give a number, such as 8/255, or a list of numbers"
        )
    if any(isinstance(element, LISTS) for element in value):
        raise RequestError(f"eps is {short(value)}, a list of lists: give one list of numbers")
    return ", ".join(eps_text(element) for element in value)


def _budget_text(value: Any) -> str:
    """One budget as a text: a multiple of 1/255 as such, any other number with all its digits."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise RequestError(
            f"eps is {short(value)}: give a number such as 8/255, a list of "
            "numbers, or a text such as '0:8/255:9'"
        )

    # A number of few digits was typed as it is, and is no fraction. In half or single precision a
    # fraction is off by more.
    slack = 1e-6 if isinstance(value, np.floating) and value.dtype != np.float64 else 1e-12
    of_255 = round(number * 255)
    is_fraction = of_255 and math.isclose(number * 255, of_255, rel_tol=slack)
    if is_fraction and len(repr(number)) > 8:
        return f"{of_255}/255"
    return str(value) if isinstance(value, np.floating) else repr(number)


def norm_text(value: Any) -> Any:
    """A norm as a text: `np.inf`, 2, "Linf", "L2", "l_1", "embedding:FILE"; or several of them."""
    if isinstance(value, list | tuple | set):
        return tuple(norm_text(element) for element in value)
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    text = f"{value:g}" if is_number else str(value).strip()
    if ":" in text:
        return text

    name = re.sub(r"[-_]", "", text.lower()).replace("∞", "inf")
    norm = NORMS.get(name) or NORMS.get(name.removeprefix("l"))
    if norm is None and (is_number or not isinstance(value, str | Path)):
        raise RequestError(
            f"norm is {short(value)}: it is np.inf, 2, 1 or 0, or a text such as 'linf'"
        )
    return norm or text.lower()


def device_text(value: Any) -> str:
    """A device as a text: a `torch.device`, the number of a GPU, or a text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"cuda:{value}"
    if not isinstance(value, str | torch.device):
        raise RequestError(
            f"device is {short(value)}: give a text such as 'cpu' or 'cuda:1', a "
            "torch.device, or a GPU's number"
        )
    return str(value)


def _plain(value: Any) -> Any:
    """A setting without numbers and paths of libraries."""
    is_scalar = isinstance(value, np.ndarray | Tensor) and value.ndim == 0
    if is_scalar or isinstance(value, np.generic):
        try:
            return value.item()
        except Exception:  # a tensor without values
            return value
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def norm_advice(distances: Collection[str]) -> str:
    """The end of a message about an attack that works in these distances and not in the requested
    one; empty without a norm.
    """
    norms = dict.fromkeys(norm for norm in NORMS.values() if norm in distances)
    remedies = [option("norm", norm) for norm in norms]
    return f": add {' or '.join(remedies)}" if remedies else ""
