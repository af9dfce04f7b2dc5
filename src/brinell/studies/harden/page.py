"""The page of a hardening, and the tables behind it: what was won, what it cost and who paid, and how the training went."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from brinell.analysis.results import PairedRate, Rate, Share
from brinell.report.figures import Series, curve, key
from brinell.report.format import between, norm, percent, points, short
from brinell.report.html import fill
from brinell.report.tables import csv_text
from brinell.store.files import write_text
from brinell.studies.harden.analysis import HardenResult, Point, Unseen, summarise
from brinell.studies.harden.records import manifest

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
        manifest=manifest(folder),
        sentences=in_words(result),
        accuracy=accuracy(result),
        training=training(result.curve),
        pairs=[result.comparison.clean, *(pair for pair in result.comparison.robust if pair.eps > 0)],
        classes=classes(result),
        lines=[(key(at), text) for at, text in enumerate(LINES.values())],
    )
    write_text(folder / "report.html", page)
    return folder / "report.html"


def in_words(result: HardenResult) -> list[str]:
    """What came of it: what was won at the budget that was trained for, what it cost, and which class paid most."""
    pair = min(result.comparison.robust, key=lambda one: abs(one.eps - result.eps))
    said = [f"At {short(pair.eps)} ({norm(result.norm)}) {_moved('robust accuracy', pair)}"]
    said.append(f"On untouched inputs {_moved('accuracy', result.comparison.clean)}")
    losses = [
        (before.clean.value - after.clean.value, after)
        for before, after in zip(result.before.per_class, result.after.per_class, strict=True)
        if before.clean.value is not None and after.clean.value is not None
    ]
    loss, worst = max(losses, key=lambda one: one[0], default=(0.0, None))
    said += carries_over(result.unseen)
    if worst is not None and loss > 0:
        said.append(
            f"The class that paid most is {worst.name}: {percent(worst.clean.value)} of its untouched inputs are right "
            f"({between(worst.clean.low, worst.clean.high)}, {worst.n} samples), {100 * loss:.1f} points less than before."
        )
    return said


def _moved(what: str, pair: PairedRate) -> str:
    if pair.difference is None or pair.low is None or pair.high is None:
        return f"nothing is known about the {what}."
    word = "rose" if pair.difference > 0 else "fell" if pair.difference < 0 else "stayed"
    chance = "" if pair.low > 0 or pair.high < 0 else "; the interval includes no change at all"
    return (
        f"the {what} {word} from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}){chance}."
    )


def carries_over(rows: Sequence[Unseen]) -> list[str]:
    """What of the changes that were not trained on the model takes better, and what worse, beyond chance."""
    unseen = [row for row in rows if not row.seen]
    if not unseen:
        return []
    better, worse = [row.name for row in unseen if row.low > 0], [row.name for row in unseen if row.high < 0]
    said = f"Of {len(unseen)} changes that were not trained on, {len(better)} are taken better than before"
    if not worse:
        return [f"{said}, and none worse, beyond chance."]
    named = ", ".join(worse[:4]) + (f" and {len(worse) - 4} more" if len(worse) > 4 else "")
    return [f"{said}, and {len(worse)} worse, beyond chance: robustness does not carry over to {named}."]


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
