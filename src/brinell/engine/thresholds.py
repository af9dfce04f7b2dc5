"""Thresholds on probability as a user writes them: true<0.1, or class=cat>0.9."""

import re

from brinell.core.criterion import Threshold
from brinell.core.errors import RequestError, option
from brinell.core.suggestions import suggestion
from brinell.engine.request import Request

TRUE = re.compile(r"true\s*<\s*(?P<value>[^<>=]+)")
WRONG = re.compile(r"class\s*=\s*(?P<name>.+?)\s*>\s*(?P<value>[^<>=]+)")


def resolve_threshold(request: Request, classes: tuple[str, ...]) -> Threshold | None:
    """The criterion of probability of a request; None if it has none.

    Raises:
        RequestError: it cannot be parsed, or goes with another criterion.
    """
    for name in ("targeted", "reject_class"):
        if request.criterion is not None and getattr(request, name) is not None:
            raise RequestError(f"{option('criterion')} and {option(name)} each say what a success is: leave one of them out")
    return parse_threshold(request.criterion, classes)


def parse_threshold(text: str | None, classes: tuple[str, ...]) -> Threshold | None:
    """Parse a criterion of probability; None for None.

    Args:
        text: true<P, which also demands a wrong class, or class=NAME>P.
        classes: names of the classes of the data.

    Raises:
        RequestError: another text, no probability, or an unknown class.
    """
    if text is None:
        return None
    if match := TRUE.fullmatch(text.strip()):
        value = _probability(text, match["value"])
        return Threshold(true_below=value, text=f"true<{value:g}")
    if match := WRONG.fullmatch(text.strip()):
        value, index = _probability(text, match["value"]), _class_index(match["name"], classes)
        name = classes[index] if index < len(classes) else str(index)
        return Threshold(wrong_class=index, wrong_above=value, text=f"class={name}>{value:g}")
    raise RequestError(
        f"criterion {text!r} is no threshold on a probability: write {option('criterion', TRUE_EXAMPLE)} or "
        f"{option('criterion', WRONG_EXAMPLE)} for data with a class for each input"
    )


TRUE_EXAMPLE, WRONG_EXAMPLE = '"true<0.1"', '"class=NAME>0.9"'
"""Criteria as a user types them."""


def _probability(criterion: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise RequestError(
            f"criterion {criterion!r} needs a probability between 0 and 1, such as 0.1, and {text.strip()} is none"
        )
    return value


def _class_index(name: str, classes: tuple[str, ...]) -> int:
    if name in classes:
        return classes.index(name)
    if name.isdecimal():
        return int(name)
    raise RequestError(f"there is no class {name!r}{suggestion(name, classes)}: give a name or a number of a class")


def check_threshold(threshold: Threshold, model: str, classes: int, access: str) -> None:
    """Refuse a criterion that a model's answers cannot meet or show.

    Raises:
        RequestError: the model lacks the class, or answers labels only.
    """
    if access == "labels":
        raise RequestError(
            f"model {model} answers labels only, and criterion {threshold.text} is about probabilities: leave "
            f"{option('criterion')} out"
        )
    if threshold.wrong_class is not None and threshold.wrong_class >= classes:
        raise RequestError(f"there is no class {threshold.wrong_class}: model {model} has the classes 0 to {classes - 1}")
