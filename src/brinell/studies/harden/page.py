"""The page of a hardening, and the tables behind it: what was won, what it cost and who paid, and how the training went."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from brinell.analysis.results import Rate, Share
from brinell.pages.figures import Series, curve, key
from brinell.pages.html import fill
from brinell.pages.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.harden.analysis import HardenResult, Point, summarise
from brinell.studies.harden.records import LAYOUT
from brinell.studies.harden.words import reading

SHARES = ("clean", "seen", "pgd", "robust")
LINES = {
    "clean": "untouched inputs",
    "seen": "training attack, at the budget of the moment",
    "pgd": "PGD, at the budget of the moment",
    "robust": "PGD at the full budget, averaged weights",
}
"""The lines of the training curve."""


def write(folder: Path) -> Path:
    """Write `tables/*.csv` and `report.html`; the path of the page.

    Raises:
        RequestError: no finished hardening there, or a damaged file in it.
        StoppedError: the folder cannot be written.
    """
    result = summarise(folder)
    for name, text in tables(result).items():
        write_text(folder / "tables" / name, text)
    page = fill(
        __package__,
        "page.html",
        {},
        title=f"{result.model}, hardened by {result.ended_with}",
        result=result,
        manifest=LAYOUT.open(folder),
        sentences=reading(result),
        accuracy=accuracy(result),
        training=training(result.curve),
        pairs=[result.comparison.clean, *(pair for pair in result.comparison.robust if pair.eps > 0)],
        classes=classes(result),
        lines=[(key(at), text) for at, text in enumerate(LINES.values())],
    )
    write_text(folder / "report.html", page)
    return folder / "report.html"


def accuracy(result: HardenResult) -> Markup:
    """Robust accuracy over eps before and after."""
    sides = (("before", result.before), ("after", result.after))
    series = [
        Series(name=name, rates=_rates(side.clean_accuracy, side.robust_accuracy), style=at)
        for at, (name, side) in enumerate(sides)
    ]
    labels = [(eps, text) for eps, text in zip(result.after.eps, result.after.eps_text, strict=True)]
    return curve(series, labels, title="Robust accuracy over eps, before and after", distance=result.norm)


def _rates(clean: Rate, robust: Sequence[Rate]) -> list[Rate]:
    return list(robust) if robust and robust[0].eps == 0 else [clean, *robust]


def training(checks: Sequence[Point]) -> Markup | None:
    """Accuracy on validation samples over the steps of the training; None without a check."""
    if not checks:
        return None
    series = [
        Series(
            name=text,
            rates=[_at(one.step, getattr(one, name)) for one in checks],
            style=at,
            band=name == "robust",
            at=[f"step {one.step}" for one in checks],
        )
        for at, (name, text) in enumerate(LINES.items())
    ]
    labels = [(float(one.step), str(one.step)) for one in checks]
    return curve(series, labels, title="Accuracy on validation samples over the training", axis="step")


def _at(step: int, share: Share) -> Rate:
    return Rate(eps=float(step), value=share.value, low=share.low, high=share.high, n=share.n, k=share.k)


def classes(result: HardenResult) -> list[tuple[str, int, Rate, Rate, Rate, Rate]]:
    """For each class its name, its samples, and clean and robust accuracy before and after at the largest budget."""
    both = zip(result.before.per_class, result.after.per_class, strict=True)
    return [(one.name, one.n, one.clean, two.clean, one.robust[-1], two.robust[-1]) for one, two in both]


def tables(result: HardenResult) -> dict[str, str]:
    """The page's tables as CSV, by file name."""
    pairs = [result.comparison.clean, *result.comparison.robust]
    head = ("eps", "before", "after", "difference", "low", "high", "both", "only_after", "only_before", "neither", "n", "p")
    compared = [
        (p.eps, p.value_b, p.value_a, p.difference, p.low, p.high, p.both, p.only_a, p.only_b, p.neither, p.n, p.p) for p in pairs
    ]
    by_class = []
    for name, n, *rates in classes(result):
        by_class.append([name, n, *(value for rate in rates for value in (rate.value, rate.low, rate.high))])
    names = [
        f"{what}_{when}{end}" for what in ("clean", "robust") for when in ("before", "after") for end in ("", "_low", "_high")
    ]
    unseen = [[u.name, u.seen, u.n, u.before.value, u.after.value, u.difference, u.low, u.high, u.p] for u in result.unseen]
    checks = [
        [
            one.step,
            one.seconds,
            one.recipe,
            one.eps,
            one.loss,
            one.good,
            *(getattr(one, name).value for name in SHARES),
            one.clean.n,
        ]
        for one in result.curve
    ]
    return {
        "comparison.csv": csv_text(head, compared),
        "per_class.csv": csv_text(["class", "n", *names], by_class),
        "unseen.csv": csv_text(["change", "seen", "n", "before", "after", "difference", "low", "high", "p"], unseen),
        "curve.csv": csv_text(["step", "seconds", "recipe", "eps", "loss", "good", *SHARES, "n"], checks),
    }
