"""A study read in plain words, each sentence made from its figures."""

from collections.abc import Sequence

from brinell.pages.format import percent, points, short
from brinell.studies.per_class.results import RankResult, StudyModel, StudyResult

SIGNIFICANT = 0.05


def reading(result: StudyResult) -> list[str]:
    """The findings in sentences: who is ahead, which classes carry the loss, whether models agree on that, what goes with it."""
    found = [_ahead(result), *_classes(result), _agree(result), *_with(result), *_spreads(result)]
    return [sentence for sentence in found if sentence]


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _ahead(result: StudyResult) -> str:
    text = result.eps_text[result.at]
    order = sorted(result.models, key=lambda one: one.rank.rank)
    first, last = order[0], order[-1]
    if first.rank.rank == last.rank.rank:
        return f"All models have the same robust accuracy at {text}: {percent(first.robust[result.at].value)}."
    top = [one for one in order if one.rank.low <= first.rank.high]
    lead = f"{first.model} is the most robust at {text}, with {percent(first.robust[result.at].value)}"
    if len(top) == 1:
        return f"{lead}, and its place is certain: no other model comes first in 19 of 20 draws of the samples."
    others = [one.model for one in top if one is not first]
    return f"{lead}, but with these {result.n} samples {listed(others)} may share or take its place."


def _classes(result: StudyResult) -> list[str]:
    found = []
    text = result.eps_text[result.at]
    for what, of in (("most", "most"), ("least", "least")):
        known = [c for c in result.classes if c.mean_drop is not None]
        if len(known) < 2:
            continue
        end = min(known, key=lambda c: c.mean_drop or 0.0) if of == "most" else max(known, key=lambda c: c.mean_drop or 0.0)
        count, total = getattr(end, of), len(result.models)
        on = "every model" if count == total else f"{count} of {total} models"
        drop = points(end.mean_drop)
        if count:
            found.append(f"Class {end.name} loses {what} on {on}: {drop} points up to {text} on average.")
        else:
            found.append(f"Class {end.name} loses {what} on average ({drop} points up to {text}), though on no single model.")
    return found


def _agree(result: StudyResult) -> str:
    (w,) = (one for one in result.ranks if one.statistic == "kendall-w")
    if w.value is None or w.p is None:
        return (
            "The order of the classes cannot be compared across models: fewer than two models have anything left, or one class."
        )
    size = f"Kendall's W {w.value:.2f}, 95 % interval {w.low:.2f} to {w.high:.2f}, p {_p(w.p)}, over {len(w.by)} models"
    if w.p >= SIGNIFICANT:
        return (
            "Whether the models agree on the order of the classes, or only share samples that are hard for all of them, cannot "
            f"be told from these samples ({size})."
        )
    how = "largely agree" if w.value >= 0.7 else "agree in part" if w.value >= 0.3 else "hardly agree"
    return f"The models {how} on which classes lose most ({size})."


def _with(result: StudyResult) -> list[str]:
    return [_pair(one) for one in result.ranks if one.statistic == "spearman"]


def _pair(one: RankResult) -> str:
    name = {"parameters": "The number of parameters", "seconds of attack": "The time that the attacks took"}.get(
        one.by[1], f"{one.by[1][:1].upper()}{one.by[1][1:]}"
    )
    if one.value is None:
        why = "it is known of too few models" if one.n < 3 else "it, or robust accuracy, is the same for all"
        return f"{name} cannot be set against robustness: {why}."
    if one.low is None or one.high is None or one.p is None:
        return f"{name} and robustness: Spearman {signed(one.value)} over {one.n} models, too few for an interval."
    size = f"Spearman {signed(one.value)}, 95 % interval {signed(one.low)} to {signed(one.high)}, p {_p(one.p)}, {one.n} models"
    if one.p >= SIGNIFICANT:
        return f"{name} does not explain robustness here ({size})."
    return f"{name} goes with {'more' if one.value > 0 else 'less'} robustness ({size})."


def _spreads(result: StudyResult) -> list[str]:
    known = [one for one in result.models if one.spread is not None]
    if not known:
        return []
    real = [one for one in known if one.spread is not None and one.spread.p < SIGNIFICANT]
    widest = max(known, key=_spread)
    assert widest.spread is not None
    size = f"{100 * widest.spread.value:.1f} points between best and worst class ({_ends(widest)})"
    said = f"The widest spread is that of {widest.model}: {size}"
    chance = f"of {len(known)} models, {len(real)} have one that chance alone would seldom make"
    return [f"{said}; {chance} (samples shuffled among the classes stay below {percent(widest.spread.by_chance)} in 19 of 20)."]


def _spread(one: StudyModel) -> float:
    return one.spread.value if one.spread else 0.0


def _ends(one: StudyModel) -> str:
    assert one.spread is not None
    return f"{100 * one.spread.low:.1f} to {percent(one.spread.high)}"


def signed(value: float | None) -> str:
    """A correlation; a dash for none."""
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _p(p: float) -> str:
    return "below 0.001" if p < 0.001 else short(p)
