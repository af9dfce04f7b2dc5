"""Which thresholds a run can be held against."""

from collections.abc import Collection

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
