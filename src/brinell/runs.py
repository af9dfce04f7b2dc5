"""Calls on finished runs, which need no model: compare, gate, report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from brinell.analysis import gate as rules
from brinell.analysis.compare import Side
from brinell.analysis.compare import compare as paired
from brinell.analysis.gate import GateResult
from brinell.analysis.results import CompareResult
from brinell.analysis.robust_accuracy import summarise_model
from brinell.core.errors import RequestError, option
from brinell.engine.eps_grid import parse_eps
from brinell.inputs import eps_text
from brinell.pages import html
from brinell.store.folder import Layout, fitting
from brinell.store.run import Run
from brinell.studies.benchmark import records as benchmark_records
from brinell.studies.corruption import page as corruption_page
from brinell.studies.corruption import records as corruption_records
from brinell.studies.detection import page as detection_page
from brinell.studies.detection import records as detection_records
from brinell.studies.epsilon import page as epsilon_page
from brinell.studies.epsilon import records as epsilon_records
from brinell.studies.explain import page as explain_page
from brinell.studies.explain import records as explain_records
from brinell.studies.harden import page as harden_page
from brinell.studies.harden import records as harden_records
from brinell.studies.per_class import records as study_records
from brinell.studies.review import page as review_page
from brinell.studies.review import records as review_records
from brinell.studies.transfer import page as transfer_page
from brinell.studies.transfer import records as transfer_records
from brinell.studies.unrestricted import page as unrestricted_page
from brinell.studies.unrestricted import records as unrestricted_records

PAGES: tuple[tuple[Layout, Callable[[Path], Path]], ...] = (
    (corruption_records.LAYOUT, corruption_page.write),
    (detection_records.LAYOUT, detection_page.write),
    (epsilon_records.LAYOUT, epsilon_page.write),
    (explain_records.LAYOUT, explain_page.write),
    (harden_records.LAYOUT, harden_page.write),
    (review_records.LAYOUT, review_page.write),
    (transfer_records.LAYOUT, transfer_page.write),
    (unrestricted_records.LAYOUT, unrestricted_page.write),
)
"""What writes the page of a folder that is no audit's, from what the folder holds."""
WITHOUT: tuple[tuple[Layout, str], ...] = (
    (benchmark_records.LAYOUT, "which has a card and no page: README.md in the folder is it"),
    (study_records.LAYOUT, "whose page is made of runs in other folders: name them to brinell study --run again"),
)
"""Folders without a page of their own, and what to do."""
Folder = Any
"""A run folder as a path or text, or the result of a call that made one."""


def compare(a: Folder, b: Folder | None = None, *, model_a: str | None = None, model_b: str | None = None) -> CompareResult:
    """Compare two models sample by sample, as `brinell compare` does: differences with intervals, and McNemar's exact test.

    Args:
        a: the first run, or its result.
        b: the second run; none compares two models of the first.
        model_a: model of the first run, where it has several.
        model_b: model of the second.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    first = folder_of(a)
    if b is None and model_a is None and model_b is None:
        names = models_of(first)
        if len(names) != 2:
            raise RequestError(
                f"{first} holds {len(names)} models: name a second run, or two models by {option('model_a')} "
                f"and {option('model_b')}"
            )
        model_a, model_b = names
    with fitting(first):
        return paired(side(first, model_a), side(first if b is None else folder_of(b), model_b))


def gate(
    run: Folder,
    *,
    robust: float | None = None,
    worst_class: float | None = None,
    clean: float | None = None,
    eps: Any = None,
    baseline: Folder | None = None,
    max_drop: float | None = None,
    model: str | None = None,
    allow: Sequence[str] = (),
    without_checks: bool = False,
) -> GateResult:
    """Test the lower end of each interval against thresholds, or a run against a baseline, as `brinell gate` does.

    The result is true where the gate passes, so `assert brinell.gate(run, robust=0.4)` is a test.

    Args:
        run: the run, or its result.
        robust: least robust accuracy, 0 to 1.
        worst_class: the same for the weakest class.
        clean: the same for clean accuracy.
        eps: budget of these thresholds, one of the run's; by default its largest.
        baseline: a run that this one must not be worse than.
        max_drop: most that a rate may fall below the baseline's, chance or not.
        model: model of the run, where it has several.
        allow: codes of warnings that do not fail the gate.
        without_checks: pass too where checks that count were not made.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    at = parse_eps(eps_text(eps)).values[0] if eps is not None else None
    demanded = {"clean": clean, "robust": robust, "worst_class": worst_class}
    try:
        thresholds = [
            rules.Threshold(metric=metric, minimum=least, eps=at)  # type: ignore[arg-type]
            for metric, least in demanded.items()
            if least is not None
        ]
        not_worse = rules.Baseline(max_drop=max_drop)
    except ValueError as error:
        raise RequestError(str(error)) from None
    if not thresholds and baseline is None:
        raise RequestError(
            f"a gate needs a condition: {option('robust')}, {option('worst_class')}, {option('clean')} or {option('baseline')}"
        )
    allowed = (allow,) if isinstance(allow, str) else allow
    with fitting(folder_of(run)):
        return _gated(run, model, baseline, thresholds, not_worse, allowed, without_checks)


def _gated(
    run: Folder,
    model: str | None,
    baseline: Folder | None,
    thresholds: Sequence[rules.Threshold],
    not_worse: rules.Baseline,
    allowed: Sequence[str],
    without_checks: bool,
) -> GateResult:
    """What comes of the thresholds and the baseline, once they are known to make sense."""
    tested = side(folder_of(run), model)
    result = summarise_model(tested.manifest, tested.records, tested.run, tested.model)
    checks = rules.against_thresholds(result, thresholds, allow=allowed)
    if baseline is not None:
        other = folder_of(baseline)
        before = side(other, model if model in models_of(other) else None)
        # Sample by sample where both saw the same data.
        same = tested.manifest["data"]["digest"] == before.manifest["data"]["digest"]
        earlier = summarise_model(before.manifest, before.records, before.run, before.model)
        checks += rules.against_baseline(result, earlier, paired(tested, before) if same else None, not_worse)
    return rules.gate(result, checks, allow=allowed, without_checks=without_checks)


def report(run: Folder) -> Path:
    """Write the page and the tables of a run again, from its records alone, as `brinell report` does.

    Args:
        run: the folder of an audit, a hardening, a detection, a transfer, explanations, corruptions, distances, a review or an
            unrestricted attack, or the result.

    Returns:
        The path of the page.

    Raises:
        BrinellError: one line that says what is wrong, why, and what to do.
    """
    folder = folder_of(run)
    with fitting(folder):
        for layout, write in PAGES:
            if layout.has(folder):
                return write(folder)
        for layout, why in WITHOUT:
            if layout.has(folder):
                raise RequestError(f"{folder} holds a {layout.what}, {why}")
        return html.write(folder)


def folder_of(run: Folder) -> Path:
    """The folder of a run that is given as a path, as text, or as a result.

    Raises:
        RequestError: something else.
    """
    found = getattr(run, "run", None) or getattr(run, "folder", None) or run
    if not isinstance(found, str | Path):
        raise RequestError(f"an object of type {type(run).__name__} is no run: give the folder, or what brinell.audit returned")
    return Path(found)


def models_of(folder: Path) -> list[str]:
    """The names of the models of a run."""
    return [one["name"] for one in Run.open(folder).manifest["models"]]


def side(folder: Path, model: str | None) -> Side:
    """One model of a run, ready to be compared.

    Raises:
        RequestError: several models and none named, or an unknown one.
    """
    run, names = Run.open(folder), models_of(folder)
    if model is None and len(names) > 1:
        raise RequestError(f"{folder} holds several models: name one of {', '.join(names)}")
    if model is not None and model not in names:
        raise RequestError(f"{folder} holds no model {model!r}, only {', '.join(names)}")
    return Side(run=str(folder), manifest=run.manifest, records=run.records(), model=model or names[0])
