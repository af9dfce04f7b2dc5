"""Settings given from Python, as the texts that a request holds: budgets, norms, devices."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from brinell.core.errors import RequestError

NORMS = {"inf": "linf", "infinity": "linf", "2": "l2", "1": "l1", "0": "l0"}


def texts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a request has them: eps, norm and device as texts, paths as texts, numbers of numpy and torch as Python's."""
    own: dict[str, Callable[[Any], Any]] = {"eps": eps_text, "budgets": eps_text, "norm": norm_text, "device": device_text}
    return {name: own.get(name, _plain)(value) for name, value in settings.items() if value is not None}


def eps_text(value: Any) -> str:
    """Budgets as a text: a number, a text, or any list, array or tensor of these; anything else is refused.

    Multiples of 1/255 are written as such, so that 8/255 reads the same whether it was a float or a text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Tensor | np.ndarray) or (hasattr(value, "tolist") and not isinstance(value, np.generic)):
        value = value.tolist()
    if isinstance(value, list | tuple | set | range):
        if not value:
            raise RequestError("eps is an empty list: give a number, such as 8/255, or a list of numbers")
        return ", ".join(eps_text(one) for one in value)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise RequestError(
            f"eps is {short(value)}: give a number such as 8/255, a list of numbers, or a text such as '0:8/255:9'"
        )
    slack = 1e-6 if isinstance(value, np.floating) and value.dtype != np.float64 else 1e-12
    of_255 = round(number * 255)
    if len(repr(number)) > 8 and of_255 and math.isclose(number * 255, of_255, rel_tol=slack):
        return f"{of_255}/255"
    return str(value) if isinstance(value, np.floating) else repr(number)


def norm_text(value: Any) -> Any:
    """A norm as a text: `np.inf`, 2, "Linf", "L2", "l_1", "embedding:FILE"; or several of them."""
    if isinstance(value, list | tuple | set):
        return tuple(norm_text(one) for one in value)
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        text = "inf" if math.isinf(value) else f"{value:g}"
    else:
        text = str(value)
    if ":" in text:
        return text
    low = text.strip().lower().replace("_", "").replace("-", "").replace("∞", "inf")
    low = low.removeprefix("l") if low.removeprefix("l") in NORMS else low
    if isinstance(value, int | float | np.number) and low not in NORMS:
        raise RequestError(f"norm is {short(value)}: it is np.inf, 2, 1 or 0, or a text such as 'linf'")
    return NORMS.get(low, text.strip().lower())


def device_text(value: Any) -> str:
    """A device as a text: a `torch.device`, the number of a GPU, or a text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"cuda:{value}"
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray | Tensor) and value.ndim == 0):
        return value.item()
    return value


def short(value: Any) -> str:
    """A value in an error line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"a {type(value).__name__}"
