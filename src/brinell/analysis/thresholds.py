"""Sentences on a run with a criterion of probability, whose rates are shares of inputs that do not meet it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from brinell.analysis.indicators import not_made
from brinell.analysis.results import CheckResult, Rate
from brinell.core.errors import RequestError, option


def check_metrics(metrics: Collection[str], criterion: str | None, run: str = "") -> None:
    """Refuse thresholds that are about another criterion than the run's.

    Args:
        metrics: what is demanded.
        criterion: the run's criterion of probability; None if classes decide.
        run: the run folder, if there is one already.

    Raises:
        RequestError: robust accuracy of a run with a criterion of probability, or the reverse.
    """
    subject = run or "the audit"
    if criterion is None and "unmet" in metrics:
        raise RequestError(
            f"{option('unmet')} is about a criterion of probability, and {subject} has none: audit with {option('criterion')}"
        )
    others = [metric for metric in metrics if metric != "unmet"]
    if criterion is not None and others:
        raise RequestError(
            f"{subject} states the share of inputs that do not meet {criterion}, which is not robust accuracy: demand "
            f"{option('unmet')} in place of {option(others[0])}"
        )


def meaning(manifest: Mapping[str, Any]) -> str:
    """The criterion of probability of a run in words."""
    criterion = manifest["criterion"]
    if criterion.get("wrong_class") is None:
        return f"the predicted class is wrong, and the true class has a probability below {criterion['true_below']:g}"
    names, index = manifest["data"]["classes"], int(criterion["wrong_class"])
    name = names[index] if index < len(names) else str(index)
    return f"an input of another class has a probability above {criterion['wrong_above']:g} for {name}"


def statement(criterion: str, clean: Rate, last: Rate, budget: str, *, going: bool) -> str:
    """One sentence on the share `last` of inputs that do not meet a criterion at the largest eps; `clean` of them untouched."""
    if last.value is None:
        return f"No attack is finished, so nothing is known about {criterion}."
    share = f"{100 * last.value:.1f} % of the inputs do not meet {criterion}"
    if going:
        return f"At most {share} at {budget} so far: the run is not finished."
    if not clean.k:
        return f"Every clean input meets {criterion}, so nothing was attacked."
    if last.eps == 0:
        return f"{share}; nothing was attacked, since no budget is above 0."
    if not last.k:
        return f"Every input meets {criterion} at {budget}."
    untouched = f"{clean.n - clean.k} of {clean.n} meet it untouched"
    return f"At most {share} at {budget}: {untouched}, and attacks made {clean.k - last.k} more meet it."


def notes(last: Rate, total: int, checks: Sequence[CheckResult], weak: str | None) -> Iterator[str]:
    """Sentences on failed and missing checks of a run of `total` samples, and on weak attacks."""
    if failed := [check.code for check in checks if check.passed is False]:
        yield f"{_join(failed)} failed, so attacks may have missed inputs that meet the criterion."
    if missing := not_made(checks):
        yield f"{_join([check.code for check in missing])} could not be checked."
    if weak and last.k:
        yield f"The attacks ({weak}) are weaker than fast, which may find more: run --attack fast."
    if last.missing:
        yield f"{last.n} of {total} samples could be judged; the figure is of these."


def _join(codes: Sequence[str]) -> str:
    """The first three codes, and the number of others."""
    return ", ".join(codes[:3]) + (f" and {len(codes) - 3} more" if len(codes) > 3 else "")
