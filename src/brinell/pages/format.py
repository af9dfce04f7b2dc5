"""Numbers and findings as a person reads them."""

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

from brinell.analysis.indicators import caveat
from brinell.analysis.inference import compare_rates
from brinell.analysis.results import ACCURACY, CheckResult, ClassResult, ModelResult, OfClass, PairedRate, Rate
from brinell.core.checks import Code
from brinell.core.outward import JOINER

SMALL_CLASS = 10
"""Below this many samples a class's rate says little; the page warns."""
ENOUGH = 5
"""With fewer samples, a class is not called the worst or the best."""
NBSP = "\u00a0"
"""Keeps a number and its unit on one line."""
NORM_NAMES = {"linf": "Linf", "l2": "L2", "l1": "L1", "l0": "L0"}


def percent(value: float | None, digits: int = 1) -> str:
    """`0.713` as `71.3 %`; a dash for no data."""
    return "–" if value is None else f"{100 * value:.{digits}f}{NBSP}%"


def number(value: float | None) -> str:
    """A rate in percent without the sign, for a table that says so."""
    return "–" if value is None else f"{100 * value:.1f}"


def points(value: float | None, digits: int = 1) -> str:
    """A change of a rate in percentage points, with its sign; a dash for no data."""
    if value is None:
        return "–"
    text = f"{100 * value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")


def interval_text(low: float | None, high: float | None, digits: int = 1) -> str:
    """An interval of rates, `68.1–74.3 %`; a dash for no data."""
    return "–" if low is None or high is None else f"{100 * low:.{digits}f}–{JOINER}{100 * high:.{digits}f}{NBSP}%"


def span(low: float | None, high: float | None) -> str:
    """An interval in whole percent without the sign, for a narrow cell; nothing for no data."""
    return "" if low is None or high is None else f"{100 * low:.0f}–{100 * high:.0f}"


def rate_text(rate: Rate) -> str:
    """Interval and denominator of a rate."""
    if rate.value is None:
        return "no sample was judged"
    return f"{interval_text(rate.low, rate.high)}, {count(rate.k)}{NBSP}of{NBSP}{count(rate.n)}"


def count(value: int) -> str:
    """A whole number with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def short(value: float | None) -> str:
    """A number to three significant digits; a dash for none."""
    if value is None:
        return "–"
    return count(round(value)) if abs(value) >= 1000 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes = value / 60
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


def p_value(p: float | None) -> str:
    """A p-value, never rounded to 0."""
    if p is None:
        return "–"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def norm(distance: str) -> str:
    """A distance as it is written."""
    return NORM_NAMES.get(distance, distance)


def most_telling_eps(models: Sequence[ModelResult]) -> int:
    """Position of the eps above 0 at which models differ most, or the classes of a single model.

    Among several models the spread is that of their robust accuracies. For one model, or if the models do not differ, it is
    that of the classes with enough samples. Equal spreads are ordered by how close the accuracy is to half of the clean
    accuracy. Without any difference it is the largest eps.
    """
    if not models:
        return 0
    indices = [
        i for i, eps in enumerate(models[0].eps) if eps > 0 and all(m.robust_accuracy[i].value is not None for m in models)
    ]
    if not indices:
        return len(models[0].eps) - 1

    def spread(i: int) -> tuple[float, float, float]:
        """Spread of the models and of the classes at an eps, and closeness to half of the clean accuracy."""
        rates = [_value(m.robust_accuracy[i]) for m in models]
        comparable = [m for m in models if len(ranked(m.per_class, i)) > 1]
        class_spreads = [
            _value(order[-1].robust[i]) - _value(order[0].robust[i]) for order in (ranked(m.per_class, i) for m in comparable)
        ]
        half = sum(m.clean_accuracy.value or 0.0 for m in models) / 2
        closeness = -abs(sum(rates) - half) / len(models)
        return round(max(rates) - min(rates), 9), round(max(class_spreads, default=0.0), 9), round(closeness, 9)

    best = max(indices, key=lambda i: (*spread(i), i))
    return best if any(spread(best)[:2]) else indices[-1]


def _value(rate: Rate) -> float:
    """The value of a rate; 0 if it is not known."""
    return rate.value or 0.0


def breakable(text: str) -> Markup:
    """A budget that may break behind the slash, for the head of a narrow column."""
    return Markup(escape(text).replace("/", Markup("/<wbr>")))


def ranked(classes: Sequence[ClassResult], index: int) -> list[ClassResult]:
    """Classes with samples enough, from the worst to the best at one eps; of equal rates the better attested one is first."""
    judged_classes = [c for c in classes if c.robust[index].value is not None and c.n >= ENOUGH]
    return sorted(judged_classes, key=lambda c: (c.robust[index].value or 0.0, c.robust[index].high or 1.0, c.class_))


def counted(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def samples(n: int) -> str:
    """`1 sample`, `2 samples`."""
    return counted(n, "sample")


def clip(name: str, length: int = 16) -> str:
    """A name short enough for the head of a column."""
    return name if len(name) <= length else name[: length - 1].rstrip(" ,") + "…"


def rate_name(model: ModelResult, kind: str = "Robust", *, low: bool = False) -> str:
    """Name of the rates of a model: of an accuracy its kind, of another quantity what is counted; `low` in lower case."""
    quantity = model.robust_accuracy[-1].quantity
    name = f"{kind} accuracy".strip() if quantity == ACCURACY else quantity
    return (name[0].lower() if low else name[0].upper()) + name[1:]


def where_it_breaks(model: ModelResult) -> str:
    """The budget at which half of the clean accuracy is gone, and the one at which all is."""
    clean, name = model.clean_accuracy.value, rate_name(model, "clean", low=True)
    above = [(rate, text) for rate, text in zip(model.robust_accuracy, model.eps_text, strict=True) if rate.eps > 0]
    judged_rates = [(rate, text) for rate, text in above if rate.value is not None]
    if not clean or not judged_rates:
        return "Not known: no attack has been completed."
    half = next((pair for pair in judged_rates if (pair[0].value or 0.0) < clean / 2), None)
    all_broken = next((pair for pair in judged_rates if pair[0].k == 0), None)
    if half is None:
        rate, text = judged_rates[-1]
        if rate.k == model.clean_accuracy.k:
            return f"Nowhere that was tested: no attack broke a single sample up to {text}. Stronger attacks may."
        return (
            f"At least half of its {name} remains over the whole range; at the largest budget, {text}, it has lost "
            f"{100 * (clean - (rate.value or 0.0)):.1f} of {100 * clean:.1f} points."
        )
    if half is judged_rates[0]:
        text = (
            f"Already at the smallest budget tested, {half[1]}, less than half of its {name} is left ({percent(half[0].value)})"
        )
    else:
        before = judged_rates[judged_rates.index(half) - 1]
        text = (
            f"It loses half of its {name} between {before[1]} ({percent(before[0].value)}) and {half[1]} "
            f"({percent(half[0].value)})"
        )
    if all_broken is not None and all_broken is not half:
        return f"{text}; from {all_broken[1]} on, no sample is robust."
    return f"{text}; there, no sample is robust." if all_broken is not None else f"{text}."


def which_classes(model: ModelResult, index: int) -> str:
    """The weakest and the strongest class at the eps of this position, where the samples allow to name them."""
    order = ranked(model.per_class, index)
    if len(model.per_class) < 2 or model.eps[index] == 0:
        return "There are no classes to tell apart."
    if len(order) < 2:
        return (
            f"{samples(max(c.n for c in model.per_class))} per class at most, in {len(model.per_class)} classes, are too few to "
            "tell classes apart: test more before judging one."
        )
    worst, best = order[0], order[-1]
    if (worst.robust[index].value or 0.0) == (best.robust[index].value or 0.0):
        value = percent(worst.robust[index].value)
        return f"All {len(order)} classes have the same rate on these samples at {model.eps_text[index]}: {value}."
    restriction = "" if len(order) == len(model.per_class) else f", of the {len(order)} classes with {ENOUGH} samples or more,"
    text = (
        f"At {model.eps_text[index]}{restriction} the weakest {_group(order, index)}, the strongest {class_label(best)} with "
        f"{percent(best.robust[index].value)} ({rate_text(best.robust[index])})."
    )
    return f"{text}{_order_caveat([c.robust[index] for c in order])}"


def _order_caveat(rates: Sequence[Rate]) -> str:
    """Differences of classes in the order of their rates that may be chance; empty if both ends differ from all others."""
    order = compare_rates(np.array([rate.k for rate in rates]), np.array([rate.n for rate in rates]))
    weak, strong, others = order.rivals(0), order.rivals(len(rates) - 1), len(rates) - 1
    if others in weak:
        return " These samples do not show that the two differ: the order may be chance."
    ends = ((weak, "weak"), (strong, "strong"))
    doubts = [f"{len(rivals)} of the other {others} classes may be as {word}" for rivals, word in ends if rivals]
    return f" But {' and '.join(doubts)}." if doubts else ""


def _group(order: Sequence[ClassResult], index: int) -> str:
    """The worst class with its rate, or the several that share it."""
    worst = order[0]
    tied = [c for c in order if c.robust[index].value == worst.robust[index].value]
    if len(tied) == 1:
        return f"is {class_label(worst)} with {percent(worst.robust[index].value)} ({rate_text(worst.robust[index])})"
    names = ", ".join(c.name for c in tied[:4]) + (f" and {len(tied) - 4} more" if len(tied) > 4 else "")
    return f"are {len(tied)} classes with {percent(worst.robust[index].value)} each ({names})"


def outcome(check: CheckResult) -> str:
    """Outcome of a check in one or two words."""
    return {True: "passed", False: "failed", None: "not made"}[check.passed]


def brief(checks: Sequence[CheckResult]) -> str:
    """How many checks failed or were not made, without their names."""
    return caveat(checks, with_names=False) or ""


def measured(check: CheckResult) -> str:
    """The figure of a check with its limit: a share, but for the disagreement of a gradient."""
    if check.figure is None:
        return ""
    if check.code == Code.MISMATCH:
        return f"{check.figure:.2f} (limit {check.limit})"
    limit = "" if check.limit is None else f" (limit {short(100 * check.limit)}{NBSP}%)"
    return f"{short(100 * check.figure)}{NBSP}%{limit}"


def leader(models: Sequence[ModelResult], index: int) -> list[ModelResult]:
    """Models from the most to the least robust at one eps."""
    judged_models = [m for m in models if m.robust_accuracy[index].value is not None]
    return sorted(judged_models, key=lambda m: -(m.robust_accuracy[index].value or 0.0))


def half_lost(model: ModelResult) -> str:
    """The smallest budget at which less than half of the clean accuracy is left, for a table."""
    clean = model.clean_accuracy.value
    judged_rates = [
        (r, t) for r, t in zip(model.robust_accuracy, model.eps_text, strict=True) if r.eps > 0 and r.value is not None
    ]
    if not clean or not judged_rates:
        return "–"
    return next((text for rate, text in judged_rates if (rate.value or 0.0) < clean / 2), f"beyond {judged_rates[-1][1]}")


def plain(c: ClassResult) -> str:
    """A class by name alone."""
    return f"class {c.name}" if c.name == str(c.class_) else c.name


def class_label(c: OfClass) -> str:
    """A class by name, with its number where the name is not the number."""
    return f"class {c.name}" if c.name == str(c.class_) else f"{c.name} (class {c.class_})"


def verdict_of_pair(a: str, b: str, pair: PairedRate, p: float, eps_text: str) -> str:
    """Whether A is better than B at one eps, in a sentence."""
    first, worse = (a, b) if pair.difference >= 0 else (b, a)
    size = f"{100 * abs(pair.difference):.1f} points at {eps_text} (McNemar p {'= ' if p >= 1e-4 else ''}{p_value(p)})"
    if math.isclose(pair.difference, 0.0):
        return f"{a} and {b} are robust on equally many samples at {eps_text}."
    if p < 0.05:
        return f"{first} is robust on more samples than {worse}: by {size}."
    return f"{first} is ahead of {worse} by {size}, a difference that may be chance."
