"""A corruption study read in plain words, each sentence made from its figures."""

from brinell.pages.format import percent, points
from brinell.studies.corruption.results import CorruptModel, CorruptResult


def reading(result: CorruptResult) -> list[str]:
    """What is left under corruption, which kind costs most, the mean corruption error, and what placement costs."""
    found = [_model(one, result) for one in result.models]
    return [*found, *([_placed(result)] if any(one.cost is not None for one in result.kinds) else [])]


def _model(one: CorruptModel, result: CorruptResult) -> str:
    known = [kind for kind in one.kinds if kind.accuracy is not None]
    text = f"{one.model}: {percent(one.clean.value)} on clean inputs, {percent(one.accuracy)} under corruption on average"
    if known:
        worst, best = min(known, key=lambda kind: kind.accuracy or 0.0), max(known, key=lambda kind: kind.accuracy or 0.0)
        text += f"; {worst.kind} costs it most ({percent(worst.accuracy)} left), {best.kind} least ({percent(best.accuracy)})"
    mce = one.mce
    if mce.value is not None and one.model != result.reference:
        ends = f"{100 * (mce.low or 0.0):.1f} to {100 * (mce.high or 0.0):.1f}"
        text += f"; mean corruption error {100 * mce.value:.1f} ({ends}), where {result.reference} has 100"
    return text + "."


def _placed(result: CorruptResult) -> str:
    known = [one for one in result.kinds if one.cost is not None]
    costs = [one.cost or 0.0 for one in known]
    more = sum(one.cost is not None and one.cost < 0 and (one.p or 1.0) < 0.05 for one in known)
    return (
        f"Placed on patches within the same L2, corruptions change accuracy by {points(sum(costs) / len(costs))} points on "
        f"average against the whole input corrupted; in {more} of {len(known)} cells placement costs clearly more (McNemar, p "
        "below 0.05)."
    )
