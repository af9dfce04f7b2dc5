"""What is on the page: the figures, the choice of classes, the sentences. The template only lays it out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from brinell.analysis.distributions import NORMS, distance_at_success, histogram, histogram_of_counts, queries_to_success
from brinell.analysis.grid import grid, ran, stage_label, stage_title
from brinell.analysis.results import AuditResult, ClassResult, CompareResult, ModelResult, Rate
from brinell.analysis.robust_accuracy import mean
from brinell.core.record import Records
from brinell.pages import figures, findings
from brinell.pages import format as words
from brinell.pages.gallery import gallery
from brinell.store.run import Run

ALL_CLASSES = 20
"""Up to this many classes every one is shown; of more, the worst and the best."""
WORST, BEST = 10, 5
OPENED = 6
"""Adversarial examples that are shown at once, of several models half of it of each; the others are folded."""
FOLDED = 100
"""Up to this many classes the others are in a folded table; beyond, only in the CSV."""


@dataclass(frozen=True, kw_only=True)
class Classes:
    """Which classes are shown, the worst first, and what became of the others."""

    shown: list[int]
    folded: list[int]
    left_out: int
    names: dict[int, str]
    at: int
    """Position of the eps by which they are ranked."""

    @property
    def by_index(self) -> list[int]:
        """The shown classes in the order of their numbers."""
        return sorted(self.shown)


def context(run: Run, records: Records, result: AuditResult, comparisons: Sequence[CompareResult]) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    at = words.telling(result.models)
    classes = choose_classes(result.models, at)
    compared = findings.pairs(result, comparisons, classes.at)
    shows = len(result.models)
    return {
        "result": result,
        "manifest": run.manifest,
        "models": result.models,
        "many": shows > 1,
        "title": _title(run, result),
        "stage": {stage["name"]: stage_label(stage) for stage in run.manifest["stages"]},
        "asked": _asked(run.manifest),
        "headlines": [findings.headline(m, at, shows > 1) for m in result.models],
        "at": at,
        "attacks": findings.attacks(result.models),
        "alerts": findings.alerts(run, result),
        "checked": findings.checked(result.models),
        "opened": OPENED if shows == 1 else OPENED // 2,
        "probes": findings.probes(run, result.models),
        "curve": overall_figure(result),
        "quantised": findings.quantised_notes(result.models),
        "classes": classes,
        "class_figures": class_figures(result, classes),
        "class_of": [{c.class_: c for c in m.per_class} for m in result.models],
        "mean_drop": {c.class_: c.mean_drop for c in result.mean_drop_per_class},
        "mean_of_means": mean([m.mean_drop for m in result.models]),
        "pairs": compared,
        "ties": findings.ties(compared),
        "lead": findings.lead(result, compared, classes.at),
        "pair_eps": result.models[0].eps_text[classes.at] if result.models else "",
        "distance_figures": distance_figures(run, records, result),
        "query_figures": query_figures(run, records, result),
        "success_figures": success_figures(result),
        "galleries": [(m.model, gallery(run, records, m.model, models=shows)) for m in result.models],
    }


def heat(rate: Rate) -> str:
    """CSS class of a cell of the heat map: `h0` where all are robust to `h10` where all are broken."""
    return "none" if rate.value is None else f"h{round(10 * (1 - rate.value))}"


def choose_classes(models: Sequence[ModelResult], at: int) -> Classes:
    """Ranks the classes by their mean over the models at the eps of position `at`."""
    by_class: dict[int, list[ClassResult]] = {}
    for model in models:
        for c in model.per_class:
            by_class.setdefault(c.class_, []).append(c)

    def rank(index: int) -> tuple[float, float, int]:
        rates = [c.robust[at] for c in by_class[index]]
        value, high = mean([rate.value for rate in rates]), mean([rate.high for rate in rates])
        return (2.0 if value is None else value, 2.0 if high is None else high, index)

    order = sorted(by_class, key=rank)
    names = {index: group[0].name for index, group in by_class.items()}
    if len(order) <= ALL_CLASSES:
        return Classes(shown=order, folded=[], left_out=0, names=names, at=at)
    others = order[WORST:-BEST]
    folded = others if len(order) <= FOLDED else []
    shown = order[:WORST] + order[-BEST:]
    return Classes(shown=shown, folded=folded, left_out=len(others) - len(folded), names=names, at=at)


def overall_figure(result: AuditResult) -> Markup:
    """Accuracy over eps, all models."""
    lines = [figures.Series(name=m.model, rates=_overall(m), style=i) for i, m in enumerate(result.models)]
    first = result.models[0]
    title = f"Robust accuracy over eps, with 95 % intervals, of {', '.join(m.model for m in result.models)}"
    return figures.curve(lines, _ticks(first), title=title, distance=words.norm(first.distance))


def class_figures(result: AuditResult, classes: Classes) -> list[tuple[int, str, Markup]]:
    """One small curve per shown class, all models in it."""
    found = []
    bands = len(result.models) <= 3
    for index in classes.shown:
        lines = []
        for i, m in enumerate(result.models):
            for c in (c for c in m.per_class if c.class_ == index):
                lines.append(figures.Series(name=m.model, rates=_with_clean(c.clean, c.robust, m), style=i, band=bands))
        if len(result.models) == 1:
            lines.append(figures.Series(name="all classes", rates=_overall(result.models[0]), style=-1, band=False))
        name = classes.names[index]
        picture = figures.curve(lines, _ticks(result.models[0]), title=f"Class {name}: robust accuracy over eps", small=True)
        found.append((index, name, picture))
    return found


def distance_figures(run: Run, records: Records, result: AuditResult) -> list[tuple[str, Markup]]:
    """Histogram of the distance at success, per model, on one scale."""
    distance = str(run.manifest["distance"])
    if distance not in NORMS or run.manifest.get("recommended"):  # distances and multiples have no common axis
        return []
    found = []
    for i, m in enumerate(result.models):
        sample = distance_at_success(records, grid(records, run.manifest, m.model), distance)
        bars = histogram(sample.values, bins=24, top=m.eps[-1])
        if bars is not None:
            label = f"{words.norm(distance)} distance of the closest adversarial example"
            title = f"{m.model}: distances at success of {len(sample.values)} samples"
            found.append((m.model, figures.histogram(bars, title=title, label=label, style=i, ticks=_ticks(m))))
    return found


def query_figures(run: Run, records: Records, result: AuditResult) -> list[tuple[str, Markup]]:
    """Histogram of the queries to success, per model and stage."""
    found, names = [], {stage["name"]: stage_title(stage) for stage in run.manifest["stages"]}
    for i, m in enumerate(result.models):
        cells = grid(records, run.manifest, m.model)
        for stage, active in zip(cells.stages, ran(cells), strict=True):
            sample = queries_to_success(records, cells, stage)
            bars = histogram_of_counts(sample.values) if active else None
            if bars is not None:
                name = names[stage]
                title = f"{m.model}, {name}: queries to success of {len(sample.values)} samples"
                picture = figures.histogram(bars, title=title, label="queries to first success", style=i)
                found.append((f"{m.model} · {name}" if len(result.models) > 1 else name, picture))
    return found


def success_figures(result: AuditResult) -> list[tuple[str, Markup]]:
    """Success of the attacks without gradients over their queries, per model: the axis is logarithmic."""
    found = []
    for m in result.models:
        lines = [
            figures.Series(
                name=one.attack,
                rates=[rate.model_copy(update={"eps": math.log10(q)}) for q, rate in zip(one.queries, one.success, strict=True)],
                style=i,
                at=[f"{words.count(q)} queries" for q in one.queries],
            )
            for i, one in enumerate(m.success_by_queries)
        ]
        if lines:
            ticks = [
                (math.log10(q), words.count(q)) for q in sorted({1, *(q for one in m.success_by_queries for q in one.queries)})
            ]
            title = f"{m.model}: share broken within so many queries, with 95 % intervals"
            found.append((m.model, figures.curve(lines, ticks, title=title, axis="queries of one sample")))
    return found


def _title(run: Run, result: AuditResult) -> str:
    names = [m.model for m in result.models]
    subject = names[0] if len(names) == 1 else f"{len(names)} models"
    return f"{subject} on {run.manifest['data']['name']}"


def _asked(manifest: Mapping[str, Any]) -> str:
    """The attacks as they were asked for, and their number of stages where it is another."""
    attacks, stages = manifest["request"]["attack"], len(manifest["stages"])
    return ", ".join(attacks) + ("" if stages == len(attacks) else f" ({stages} stages)")


def _ticks(model: ModelResult) -> list[tuple[float, str]]:
    ticks = list(zip(model.eps, model.eps_text, strict=True))
    return ticks if model.eps[0] == 0 else [(0.0, "0"), *ticks]


def _overall(model: ModelResult) -> list[Rate]:
    return _with_clean(model.clean_accuracy, model.robust_accuracy, model)


def _with_clean(clean: Rate, robust: Sequence[Rate], model: ModelResult) -> list[Rate]:
    """Rates from eps 0 on: the clean inputs take its place where the run does not name it."""
    return list(robust) if model.eps[0] == 0 else [clean, *robust]
