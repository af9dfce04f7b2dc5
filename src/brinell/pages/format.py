"""Numbers and findings as a person reads them."""

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from brinell.analysis.indicators import caveat
from brinell.analysis.results import CheckResult, ClassResult, ModelResult, OfClass, PairedRate, Rate
from brinell.core.checks import Code
from brinell.core.outward import JOINER

FEW = 10
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


def between(low: float | None, high: float | None, digits: int = 1) -> str:
    """An interval of rates, `68.1–74.3 %`; a dash for no data."""
    return "–" if low is None or high is None else f"{100 * low:.{digits}f}–{JOINER}{100 * high:.{digits}f}{NBSP}%"


def span(low: float | None, high: float | None) -> str:
    """An interval in whole percent without the sign, for a narrow cell; nothing for no data."""
    return "" if low is None or high is None else f"{100 * low:.0f}–{100 * high:.0f}"


def rate_text(rate: Rate) -> str:
    """Interval and denominator of a rate."""
    if rate.value is None:
        return "no sample was judged"
    return f"{between(rate.low, rate.high)}, {count(rate.k)}{NBSP}of{NBSP}{count(rate.n)}"


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


def telling(models: Sequence[ModelResult]) -> int:
    """Position of the eps above 0 that tells most: where models differ most, or of one model its classes.

    Of several models the spread is that of their robust accuracies; of one, or where models do not differ, that of its classes
    with samples enough. Equal spreads are told apart by how near the accuracy is to half of the clean one. With nothing to tell
    apart, it is the largest eps.
    """
    if not models:
        return 0
    known = [i for i, eps in enumerate(models[0].eps) if eps > 0 and all(m.robust_accuracy[i].value is not None for m in models)]
    if not known:
        return len(models[0].eps) - 1

    def spread(i: int) -> tuple[float, float, float]:
        rates = [_value(m.robust_accuracy[i]) for m in models]
        apart = [m for m in models if len(ranked(m.per_class, i)) > 1]
        within = [_value(order[-1].robust[i]) - _value(order[0].robust[i]) for order in (ranked(m.per_class, i) for m in apart)]
        half = sum(m.clean_accuracy.value or 0.0 for m in models) / 2
        near = -abs(sum(rates) - half) / len(models)
        return round(max(rates) - min(rates), 9), round(max(within, default=0.0), 9), round(near, 9)

    best = max(known, key=lambda i: (*spread(i), i))
    return best if any(spread(best)[:2]) else known[-1]


def _value(rate: Rate) -> float:
    return rate.value or 0.0


def breakable(text: str) -> Markup:
    """A budget that may break behind the slash, for the head of a narrow column."""
    return Markup(escape(text).replace("/", Markup("/<wbr>")))


def ranked(classes: Sequence[ClassResult], at: int) -> list[ClassResult]:
    """Classes with samples enough, from the worst to the best at one eps; of equal rates the better attested one is first."""
    known = [c for c in classes if c.robust[at].value is not None and c.n >= ENOUGH]
    return sorted(known, key=lambda c: (c.robust[at].value or 0.0, c.robust[at].high or 1.0, c.class_))


def samples(n: int) -> str:
    """`1 sample`, `2 samples`."""
    return f"{count(n)} sample{'' if n == 1 else 's'}"


def clip(name: str, length: int = 16) -> str:
    """A name short enough for the head of a column."""
    return name if len(name) <= length else name[: length - 1].rstrip(" ,") + "…"


def what_is_robust(model: ModelResult) -> str:
    """Clean and robust accuracy, in a sentence."""
    clean, last = model.clean_accuracy, model.robust_accuracy[-1]
    if clean.value is None:
        return "No sample has been judged yet."
    text = f"{percent(clean.value)} of the untouched inputs are classified correctly ({rate_text(clean)})."
    if last.value is None:
        return f"{text} No attack has been completed, so nothing is known about robustness."
    if last.eps == 0:
        return f"{text} No budget above 0 was tested."
    attacked = f"Under all {norm(model.distance)} perturbations tried up to {model.eps_text[-1]},"
    if last.k == 0:
        return f"{text} {attacked} not one of {count(last.n)} is robust."
    return f"{text} {attacked} {percent(last.value)} are still robust ({rate_text(last)})."


def where_it_breaks(model: ModelResult) -> str:
    """The budget at which half of the clean accuracy is gone, and the one at which all is."""
    clean = model.clean_accuracy.value
    above = [(rate, text) for rate, text in zip(model.robust_accuracy, model.eps_text, strict=True) if rate.eps > 0]
    known = [(rate, text) for rate, text in above if rate.value is not None]
    if not clean or not known:
        return "Not known: no attack has been completed."
    half = next((pair for pair in known if (pair[0].value or 0.0) < clean / 2), None)
    gone = next((pair for pair in known if pair[0].k == 0), None)
    if half is None:
        rate, text = known[-1]
        if rate.k == model.clean_accuracy.k:
            return f"Nowhere that was tested: no attack broke a single sample up to {text}. Stronger attacks may."
        return (
            f"More than half of its clean accuracy remains over the whole range; at the largest budget, {text}, it has lost "
            f"{100 * (clean - (rate.value or 0.0)):.1f} of {100 * clean:.1f} points."
        )
    if half is known[0]:
        text = (
            f"Already at the smallest budget tested, {half[1]}, less than half of its clean accuracy is left "
            f"({percent(half[0].value)})"
        )
    else:
        before = known[known.index(half) - 1]
        text = (
            f"It loses half of its clean accuracy between {before[1]} ({percent(before[0].value)}) and {half[1]} "
            f"({percent(half[0].value)})"
        )
    if gone is not None and gone is not half:
        return f"{text}; from {gone[1]} on, nothing is left."
    return f"{text}; there, nothing is left." if gone is not None else f"{text}."


def which_classes(model: ModelResult, at: int) -> str:
    """The weakest and the strongest class at the eps of this position, where the samples allow to name them."""
    order = ranked(model.per_class, at)
    if len(model.per_class) < 2 or model.eps[at] == 0:
        return "There are no classes to tell apart."
    if len(order) < 2:
        return (
            f"{samples(max(c.n for c in model.per_class))} per class at most, in {len(model.per_class)} classes, are too few to "
            "tell classes apart: test more before judging one."
        )
    worst, best = order[0], order[-1]
    if (worst.robust[at].value or 0.0) == (best.robust[at].value or 0.0):
        return f"All {len(order)} classes fare alike at {model.eps_text[at]}: {percent(worst.robust[at].value)}."
    few = "" if len(order) == len(model.per_class) else f", of the {len(order)} classes with {ENOUGH} samples or more,"
    text = (
        f"At {model.eps_text[at]}{few} the weakest {_group(order, at)}, the strongest {named(best)} with "
        f"{percent(best.robust[at].value)} ({rate_text(best.robust[at])})."
    )
    apart = (worst.robust[at].high or 1.0) < (best.robust[at].low or 0.0)
    return text if apart else f"{text} Their intervals overlap: the order may be chance."


def _group(order: Sequence[ClassResult], at: int) -> str:
    """The worst class with its rate, or the several that share it."""
    worst = order[0]
    tied = [c for c in order if c.robust[at].value == worst.robust[at].value]
    if len(tied) == 1:
        return f"is {named(worst)} with {percent(worst.robust[at].value)} ({rate_text(worst.robust[at])})"
    names = ", ".join(c.name for c in tied[:4]) + (f" and {len(tied) - 4} more" if len(tied) > 4 else "")
    return f"are {len(tied)} classes with {percent(worst.robust[at].value)} each ({names})"


def outcome(check: CheckResult) -> str:
    """What came of a check, in a word or two."""
    return {True: "passed", False: "failed", None: "not made"}[check.passed]


def brief(checks: Sequence[CheckResult]) -> str:
    """How many checks failed or were not made, without their names."""
    return caveat(checks, named=False) or ""


def measured(check: CheckResult) -> str:
    """The figure of a check with its limit: a share, but for the disagreement of a gradient."""
    if check.figure is None:
        return ""
    if check.code == Code.MISMATCH:
        return f"{check.figure:.2f} (limit {check.limit})"
    limit = "" if check.limit is None else f" (limit {short(100 * check.limit)}{NBSP}%)"
    return f"{short(100 * check.figure)}{NBSP}%{limit}"


def leader(models: Sequence[ModelResult], at: int) -> list[ModelResult]:
    """Models from the most to the least robust at one eps."""
    known = [m for m in models if m.robust_accuracy[at].value is not None]
    return sorted(known, key=lambda m: -(m.robust_accuracy[at].value or 0.0))


def half_lost(model: ModelResult) -> str:
    """The smallest budget at which less than half of the clean accuracy is left, for a table."""
    clean = model.clean_accuracy.value
    known = [(r, t) for r, t in zip(model.robust_accuracy, model.eps_text, strict=True) if r.eps > 0 and r.value is not None]
    if not clean or not known:
        return "–"
    return next((text for rate, text in known if (rate.value or 0.0) < clean / 2), f"beyond {known[-1][1]}")


def plain(c: ClassResult) -> str:
    """A class by name alone."""
    return f"class {c.name}" if c.name == str(c.class_) else c.name


def named(c: OfClass) -> str:
    """A class by name, with its number where the name is not the number."""
    return f"class {c.name}" if c.name == str(c.class_) else f"{c.name} (class {c.class_})"


def verdict_of_pair(a: str, b: str, pair: PairedRate, p: float | None, eps_text: str) -> str:
    """Whether A is better than B at one eps, in a sentence."""
    if pair.difference is None or p is None:
        return f"{a} and {b} cannot be compared at {eps_text}: no sample was judged on both."
    better, worse = (a, b) if pair.difference >= 0 else (b, a)
    size = f"{100 * abs(pair.difference):.1f} points at {eps_text} (McNemar p {'= ' if p >= 1e-4 else ''}{p_value(p)})"
    if math.isclose(pair.difference, 0.0):
        return f"{a} and {b} are robust on equally many samples at {eps_text}."
    if p < 0.05:
        return f"{better} is robust on more samples than {worse}: by {size}."
    return f"{better} is ahead of {worse} by {size}, a difference that may be chance."
