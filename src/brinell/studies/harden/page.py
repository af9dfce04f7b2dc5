"""The HTML page of a hardening and its CSV tables: gains, costs by class, and the training curve."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from brinell.analysis.results import Rate, Share
from brinell.pages.figures import Series, curve, key
from brinell.pages.html import fill, save_page
from brinell.pages.tables import csv_text
from brinell.studies.harden.analysis import HardenResult, Point, summarise
from brinell.studies.harden.records import LAYOUT
from brinell.studies.harden.words import reading

SHARES = ("clean", "seen", "pgd", "robust")
LINES = {
    "clean": "clean inputs",
    "seen": "training attack, at the current budget",
    "pgd": "PGD, at the current budget",
    "robust": "PGD at the full budget, averaged weights",
}
"""Legend of the training curve, by field of `Point`."""


def write(folder: Path) -> Path:
    """Write `tables/*.csv` and `report.html`. Returns the path of the page.

    Raises:
        RequestError: the folder holds no finished hardening, or one of its files is damaged.
        StoppedError: the folder cannot be written.
    """
    result = summarise(folder)
    page = fill(
        __package__,
        "page.html",
        {},
        title=f"{result.model}, hardened by {result.ended_with}",
        result=result,
        manifest=LAYOUT.open(folder),
        sentences=reading(result),
        events=[("warn", text) for text in result.events],
        accuracy=accuracy(result),
        training=training(result.curve),
        pairs=[result.comparison.clean, *(pair for pair in result.comparison.robust if pair.eps > 0)],
        classes=classes(result),
        lines=[(key(index), text) for index, text in enumerate(LINES.values())],
    )
    return save_page(folder, page, tables(result))


def accuracy(result: HardenResult) -> Markup:
    """Plot robust accuracy over eps before and after the training."""
    sides = (("before", result.before), ("after", result.after))
    series = [
        Series(name=name, rates=_rates(side.clean_accuracy, side.robust_accuracy), style=index)
        for index, (name, side) in enumerate(sides)
    ]
    labels = [(eps, text) for eps, text in zip(result.after.eps, result.after.eps_text, strict=True)]
    return curve(series, labels, title="Robust accuracy over eps, before and after", distance=result.norm)


def _rates(clean: Rate, robust: Sequence[Rate]) -> list[Rate]:
    """Rates over the budgets, from the clean accuracy."""
    return list(robust) if robust and robust[0].eps == 0 else [clean, *robust]


def training(checks: Sequence[Point]) -> Markup | None:
    """Plot the accuracy on validation samples over the training steps. Returns None if there was no check."""
    if not checks:
        return None
    series = [
        Series(
            name=text,
            rates=[_check_rate(check.step, getattr(check, name)) for check in checks],
            style=index,
            band=name == "robust",
            tick_texts=[f"step {one.step}" for one in checks],
        )
        for index, (name, text) in enumerate(LINES.items())
    ]
    labels = [(float(check.step), str(check.step)) for check in checks]
    return curve(series, labels, title="Accuracy on validation samples over the training", axis="step")


def _check_rate(step: int, share: Share) -> Rate:
    return Rate(eps=float(step), value=share.value, low=share.low, high=share.high, n=share.n, k=share.k)


def classes(result: HardenResult) -> list[tuple[str, int, Rate, Rate, Rate, Rate]]:
    """Name, size, clean accuracy before and after, and robust accuracy at the largest budget before and after, of each class."""
    pairs = zip(result.before.per_class, result.after.per_class, strict=True)
    return [(before.name, before.n, before.clean, after.clean, before.robust[-1], after.robust[-1]) for before, after in pairs]


def tables(result: HardenResult) -> dict[str, str]:
    """The page's tables as CSV, by file name."""
    pairs = [result.comparison.clean, *result.comparison.robust]
    head = ("eps", "before", "after", "difference", "low", "high", "both", "only_after", "only_before", "neither", "n", "p")
    comparison_rows = [
        (p.eps, p.value_b, p.value_a, p.difference, p.low, p.high, p.both_robust, p.only_a, p.only_b, p.neither, p.n, p.p)
        for p in pairs
    ]
    by_class = []
    for name, n, *rates in classes(result):
        by_class.append([name, n, *(value for rate in rates for value in (rate.value, rate.low, rate.high))])
    names = [
        f"{kind}_{stage}{suffix}"
        for kind in ("clean", "robust")
        for stage in ("before", "after")
        for suffix in ("", "_low", "_high")
    ]
    unseen = [[u.name, u.seen, u.n, u.before.value, u.after.value, u.difference, u.low, u.high, u.p] for u in result.unseen]
    checks = [
        [
            check.step,
            check.seconds,
            check.recipe,
            check.eps,
            check.loss,
            check.good,
            *(getattr(check, name).value for name in SHARES),
            check.clean.n,
        ]
        for check in result.curve
    ]
    return {
        "comparison.csv": csv_text(head, comparison_rows),
        "per_class.csv": csv_text(["class", "n", *names], by_class),
        "unseen.csv": csv_text(["change", "seen", "n", "before", "after", "difference", "low", "high", "p"], unseen),
        "curve.csv": csv_text(["step", "seconds", "recipe", "eps", "loss", "good", *SHARES, "n"], checks),
    }
