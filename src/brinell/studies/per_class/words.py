"""Sentences that interpret a study, each computed from its figures."""

from collections.abc import Sequence

from brinell.analysis.inference import significant
from brinell.pages.format import percent, points, short
from brinell.studies.per_class.results import FIGURES, RankResult, StudyClass, StudyModel, StudyResult

MAX_NAMED = 3
"""Most models or classes that a sentence names."""


def reading(result: StudyResult) -> list[str]:
    """Sentences on the most robust model, the classes, the agreement of the models, and correlates of robustness."""
    sentences = [_most_robust(result), *_classes(result), _agree(result), *_correlations(result), *_spreads(result)]
    return [sentence for sentence in sentences if sentence]


def join_names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _most_robust(result: StudyResult) -> str:
    """Sentence on the most and least robust models."""
    text = result.eps_text[result.at]
    order = sorted(result.models, key=lambda model: model.rank.rank)
    first, last = order[0], order[-1]
    value = percent(first.robust[result.at].value)
    if first.rank.rank == last.rank.rank:
        return f"All models have the same robust accuracy at {text} on these {result.n} samples: {value}."
    if not first.rivals:
        return (
            f"{first.model} is the most robust at {text}, with {value}: each other model is shown to be less robust "
            "(McNemar, corrected for all pairs)."
        )
    return (
        f"{first.model} has the highest robust accuracy at {text}, {value}, but with these {result.n} samples "
        f"{_abbreviate(first.rivals, len(result.models) - 1, 'models')} may be as robust or more robust."
    )


def _abbreviate(names: Sequence[str], total: int, noun: str) -> str:
    """A few names, or the number of many."""
    return join_names(names) if len(names) <= MAX_NAMED else f"{len(names)} of the {total} other {noun}"


def _classes(result: StudyResult) -> list[str]:
    """Sentences on the classes that lose most and least, among those that have a rank."""
    classes = sorted((c for c in result.classes if c.rank is not None), key=_class_rank)
    if len(classes) < 2 or _class_rank(classes[0]) == _class_rank(classes[-1]):
        return []
    return [
        _class_text(result, classes, classes[0], "most", "largest"),
        _class_text(result, classes, classes[-1], "least", "smallest"),
    ]


def _class_rank(c: StudyClass) -> float:
    assert c.rank is not None
    return c.rank.rank


def _class_text(result: StudyResult, classes: Sequence[StudyClass], end: StudyClass, extreme: str, size: str) -> str:
    drop = (
        f"{points(end.ranked_drop)} points up to {result.eps_text[result.at]} on average, from {percent(end.ranked_clean)} on "
        "clean inputs"
    )
    scope = "" if len(classes) == len(result.classes) else f" of {len(classes)} classes with enough samples"
    if not end.rivals:
        reverse = "less" if extreme == "most" else "more"
        return f"Class {end.name} loses {extreme}{scope}: {drop}; each other class is shown to lose {reverse}."
    return (
        f"Class {end.name} has the {size} drop{scope} ({drop}), but with {end.n} of its samples "
        f"{_abbreviate(end.rivals, len(classes) - 1, 'classes')} may lose as {'much' if extreme == 'most' else 'little'}."
    )


def _agree(result: StudyResult) -> str:
    """Sentence on the agreement of the models about the order of the classes."""
    (w,) = (rank for rank in result.ranks if rank.statistic == "kendall-w")
    if w.value is None or w.p is None:
        return (
            "The order of the classes cannot be compared across models: fewer than two models have robust samples, or there is "
            "one class."
        )
    size = f"Kendall's W {w.value:.2f} on these samples, p {_p(w.p)}, over {len(w.by)} models"
    if not significant(w.p):
        return (
            f"These samples do not show whether the models agree on the order of the classes or only share hard samples ({size})."
        )
    return f"The models agree on which classes lose most, more than shared hard samples explain ({size})."


def _correlations(result: StudyResult) -> list[str]:
    """Sentences on correlates of robustness; none if no order of the models could show any, which a note says."""
    if any(family.claim == FIGURES and not family.possible for family in result.attainable):
        return []
    return [_correlation_text(rank) for rank in result.ranks if rank.statistic == "spearman"]


def _correlation_text(rank: RankResult) -> str:
    name = {"parameters": "The number of parameters", "seconds of attack": "The time that the attacks took"}.get(
        rank.by[1], f"{rank.by[1][:1].upper()}{rank.by[1][1:]}"
    )
    if rank.value is None:
        reason = "it is known of too few models" if rank.n < 3 else "it, or robust accuracy, is the same for all"
        return f"{name} cannot be correlated with robustness: {reason}."
    assert rank.p is not None and rank.smallest_p is not None
    value = f"Spearman {signed(rank.value)}"
    if not significant(rank.smallest_p):
        return (
            f"Whether {_lower(name)} goes with robustness cannot be told with {rank.n} models: no order of theirs has a "
            f"corrected p-value below {short(rank.smallest_p)} ({value})."
        )
    ends = "" if rank.low is None else f", 95 % interval {signed(rank.low)} to {signed(rank.high)}"
    size = f"{value}{ends}, p {_p(rank.p)}, {rank.n} models"
    outside = rank.low is not None and rank.high is not None and (rank.low > 0 or rank.high < 0)
    if significant(rank.p) and outside:
        return f"{name} goes with {'more' if rank.value > 0 else 'less'} robustness ({size})."
    if rank.negligible:
        return f"{name} does not go with robustness: the correlation is closer to 0 than 0.3 ({size})."
    return f"These models do not show whether {_lower(name)} goes with robustness ({size})."


def _lower(name: str) -> str:
    """A subject in the middle of a sentence."""
    return f"{name[0].lower()}{name[1:]}"


def _spreads(result: StudyResult) -> list[str]:
    """Sentences on the spread between classes."""
    models = [model for model in result.models if model.spread is not None]
    if not models:
        return []
    beyond = [model for model in models if model.spread is not None and significant(model.spread.p)]
    widest = max(models, key=_spread)
    assert widest.spread is not None
    return [
        f"{len(beyond)} of {len(models)} models have a spread between best and worst class beyond chance (p-values corrected for "
        f"the number of models). The widest is that of {widest.model}: {100 * widest.spread.value:.1f} points, where samples "
        f"shuffled among the classes stay below {100 * widest.spread.by_chance:.1f} in 19 of 20."
    ]


def _spread(model: StudyModel) -> float:
    """Spread of a model; 0 if it is not known."""
    return model.spread.value if model.spread else 0.0


def signed(value: float | None) -> str:
    """A correlation; a dash for none."""
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _p(p: float) -> str:
    """A p-value as text."""
    return "below 0.001" if p < 0.001 else short(p)
