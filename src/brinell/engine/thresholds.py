"""Criteria of classes as a user writes them: true<0.1 or class=cat>0.9 on probabilities, top5 on
ranks.
"""

import re

from brinell.core.criterion import TopK, WrittenCriterion, WrittenProbability
from brinell.core.errors import RequestError, option
from brinell.core.suggestions import suggestion
from brinell.engine.request import Request

TOP = re.compile(r"top[-: ]?(\d{1,6})")
PATTERN = re.compile(r"(true\s*<|class\s*=\s*(?P<name>.+?)\s*>)\s*(?P<value>[^<>=]+)")


def resolve_threshold(request: Request, classes: tuple[str, ...]) -> WrittenCriterion | None:
    """The criterion of a request; None if it has none. Refuses one beside another criterion."""
    for name in ("targeted", "reject_class"):
        if request.criterion is not None and getattr(request, name) is not None:
            raise RequestError(
                f"{option('criterion')} and {option(name)} each say what a "
                "success is: leave one of them out"
            )
    return parse_threshold(request.criterion, classes)


def parse_threshold(text: str | None, classes: tuple[str, ...]) -> WrittenCriterion | None:
    """Parse true<P, which also demands a wrong class, class=NAME>P, or topK; None for None.

    `classes` are the names of the data's classes; a class may be given by its number as well.
    """
    if text is None:
        return None
    if (top := TOP.fullmatch(text.strip())) is not None:
        return TopK(int(top[1]))
    match = PATTERN.fullmatch(text.strip())
    if match is None:
        below = option("criterion", '"true<0.1"')
        above = option("criterion", '"class=NAME>0.9"')
        raise RequestError(
            f"criterion {text!r} is not known: write {below} or {above}, "
            f"thresholds on a probability, or {option('criterion', 'top5')} for data with a "
            "class for each input"
        )

    try:
        value = float(match["value"])
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise RequestError(
            f"criterion {text!r} needs a probability between 0 and 1, such as "
            f"0.1, and {match['value'].strip()} is none"
        )

    name = match["name"]
    if name is None:
        return WrittenProbability(true_below=value, text=f"true<{value:g}")
    if name not in classes and not name.isdecimal():
        raise RequestError(
            f"there is no class {name!r}{suggestion(name, classes)}: give a name "
            "or a number of a class"
        )
    index = classes.index(name) if name in classes else int(name)
    name = classes[index] if index < len(classes) else name
    return WrittenProbability(wrong_class=index, wrong_above=value, text=f"class={name}>{value:g}")


def check_threshold(threshold: WrittenCriterion, model: str, classes: int, access: str) -> None:
    """Refuse a criterion whose classes the model lacks, or whose scores its labels do not show."""
    if access == "labels":
        raise RequestError(
            f"model {model} answers labels only, and criterion {threshold.text} "
            f"is about scores: leave {option('criterion')} out"
        )
    if threshold.wrong_class is not None and threshold.wrong_class >= classes:
        raise RequestError(
            f"there is no class {threshold.wrong_class}: model {model} has the "
            f"classes 0 to {classes - 1}"
        )
    threshold.check(classes)
