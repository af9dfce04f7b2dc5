"""What is on the page: the figures, the choice of classes, the sentences. The template only lays it out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from brinell.analysis.curve import grid, ran, stage_label, stage_title
from brinell.analysis.distributions import NORMS, distance_at_success, histogram, histogram_of_counts, queries_to_success
from brinell.analysis.results import AuditResult, ClassResult, CompareResult, ModelResult, Rate
from brinell.analysis.robust_accuracy import mean
from brinell.core.record import Records
from brinell.pages import figures, findings
from brinell.pages import format as words
from brinell.pages.bands import band_figure
from brinell.pages.gallery import Example, gallery
from brinell.store.run import Run

ALL_CLASSES = 20
"""Up to this many classes every one is shown; of more, the worst and the best."""
WORST, BEST = 10, 5
OPEN_EXAMPLES = 3
"""Adversarial examples that are shown at once; the others are folded."""
FOLDED = 100
"""Up to this many classes the others are in a folded table; beyond, only in the CSV."""


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes that are listed, the worst first, and the number of the others."""

    listed: list[int]
    folded: list[int]
    left_out: int
    names: dict[int, str]
    eps_index: int
    """Position of the eps by which they are ranked."""

    @property
    def by_index(self) -> list[int]:
        """The shown classes in the order of their numbers."""
        return sorted(self.listed)


def context(run: Run, records: Records, result: AuditResult, comparisons: Sequence[CompareResult]) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    index = words.most_telling_eps(result.models)
    classes = choose_classes(result.models, index)
    compared = findings.pairs(result, comparisons, classes.eps_index)
    number_of_models = len(result.models)
    return {
        "result": result,
        "manifest": run.manifest,
        "models": result.models,
        "many": number_of_models > 1,
        "title": _title(run, result),
        "stage": {stage["name"]: stage_label(stage) for stage in run.manifest["stages"]},
        "asked": _attacks_text(run.manifest),
        "headlines": [findings.headline(m, index, number_of_models > 1) for m in result.models],
        "at": index,
        "attacks": findings.attacks(result.models),
        "warnings": findings.alerts(run, result),
        "next_step": findings.next_step(run, result, index),
        "surrogates": findings.surrogates(run.manifest, result.models),
        "checked": findings.checked(result.models),
        "probes": findings.probes(run, result.models),
        "curve": overall_figure(result),
        "quantised": findings.quantised_notes(result.models),
        "band": proof_figure(result),
        "classes": classes,
        "class_figures": class_figures(result, classes),
        "class_of": [{c.class_: c for c in m.per_class} for m in result.models],
        "mean_drop": {c.class_: c.mean_drop for c in result.mean_drop_per_class},
        "mean_of_means": mean([m.mean_drop for m in result.models]),
        "pairs": compared,
        "ties": findings.ties(compared),
        "lead": findings.lead(result, compared, classes.eps_index),
        "pair_eps": result.models[0].eps_text[classes.eps_index] if result.models else "",
        "distance_figures": distance_figures(run, records, result),
        "query_figures": query_figures(run, records, result),
        "success_figures": success_figures(result),
        "no_example": findings.no_example(result.models),
        **_examples([(m.model, gallery(run, records, m.model, models=number_of_models)) for m in result.models]),
    }


def proof_figure(result: AuditResult) -> Markup | None:
    """The band between proofs and attacks of an audit that was certified; None for others."""
    first = result.models[0] if len(result.models) == 1 else None
    if first is None or first.certified is None:
        return None
    return band_figure(first.eps, first.certified, first.robust_accuracy, first.model)


def _examples(galleries: list[tuple[str, list[Example]]]) -> dict[str, object]:
    """The examples that are visible at once (all of a single model, or the first of each of several), and the others by model."""
    if len(galleries) == 1:
        return {"shown": galleries[0][1], "galleries": []}
    shown = [examples[0] for _, examples in galleries if examples][:OPEN_EXAMPLES]
    others = [(name, [example for example in examples if not any(example is e for e in shown)]) for name, examples in galleries]
    return {"shown": shown, "galleries": others}


def heat(rate: Rate) -> str:
    """CSS class of a cell of the heat map: `h0` where all are robust to `h10` where all are broken."""
    return "none" if rate.value is None else f"h{round(10 * (1 - rate.value))}"


def choose_classes(models: Sequence[ModelResult], eps_index: int) -> Classes:
    """Classes to show, ranked by mean robust accuracy over the models at `eps_index`, the worst first; of many, both ends."""
    by_class: dict[int, list[ClassResult]] = {}
    for model in models:
        for c in model.per_class:
            by_class.setdefault(c.class_, []).append(c)

    def rank(index: int) -> tuple[float, float, int]:
        """Sort key of a class: mean rate, upper end, and number."""
        rates = [c.robust[eps_index] for c in by_class[index]]
        value, high = mean([rate.value for rate in rates]), mean([rate.high for rate in rates])
        return (2.0 if value is None else value, 2.0 if high is None else high, index)

    order = sorted(by_class, key=rank)
    names = {index: group[0].name for index, group in by_class.items()}
    if len(order) <= ALL_CLASSES:
        return Classes(listed=order, folded=[], left_out=0, names=names, eps_index=eps_index)
    middle = order[WORST:-BEST]
    folded = middle if len(order) <= FOLDED else []
    ends = order[:WORST] + order[-BEST:]
    return Classes(listed=ends, folded=folded, left_out=len(middle) - len(folded), names=names, eps_index=eps_index)


def overall_figure(result: AuditResult) -> Markup:
    """Accuracy over eps, all models."""
    lines = [figures.Series(name=m.model, rates=_overall(m), style=i) for i, m in enumerate(result.models)]
    first = result.models[0]
    title = f"{words.rate_name(first)} over eps, with 95 % intervals, of {', '.join(m.model for m in result.models)}"
    return figures.curve(lines, _ticks(first), title=title, distance=words.norm(first.distance))


def class_figures(result: AuditResult, classes: Classes) -> list[tuple[int, str, Markup]]:
    """One small curve per shown class, all models in it."""
    class_curves = []
    bands = len(result.models) <= 3
    for index in classes.listed:
        lines = []
        for i, m in enumerate(result.models):
            for c in (c for c in m.per_class if c.class_ == index):
                lines.append(figures.Series(name=m.model, rates=_with_clean(c.clean, c.robust, m), style=i, band=bands))
        if len(result.models) == 1:
            lines.append(figures.Series(name="all classes", rates=_overall(result.models[0]), style=-1, band=False))
        name = classes.names[index]
        picture = figures.curve(
            lines,
            _ticks(result.models[0]),
            title=f"Class {name}: {words.rate_name(result.models[0], low=True)} over eps",
            small=True,
        )
        class_curves.append((index, name, picture))
    return class_curves


def distance_figures(run: Run, records: Records, result: AuditResult) -> list[tuple[str, Markup]]:
    """Histogram of the distance at success, per model, on one scale."""
    distance = str(run.manifest["distance"])
    if distance not in NORMS or run.manifest.get("recommended"):  # distances and multiples have no common axis
        return []
    histograms = []
    for i, m in enumerate(result.models):
        sample = distance_at_success(records, grid(records, run.manifest, m.model), distance)
        bars = histogram(sample.values, bins=24, top=m.eps[-1])
        if bars is not None:
            label = f"distance at success ({words.norm(distance)})"
            title = f"{m.model}: distances at success of {len(sample.values)} samples"
            histograms.append((m.model, figures.histogram(bars, title=title, label=label, style=i, ticks=_ticks(m))))
    return histograms


def query_figures(run: Run, records: Records, result: AuditResult) -> list[tuple[str, Markup]]:
    """Histogram of the queries to success, per model and stage."""
    histograms, names = [], {stage["name"]: stage_title(stage) for stage in run.manifest["stages"]}
    for i, m in enumerate(result.models):
        cells = grid(records, run.manifest, m.model)
        for stage, active in zip(cells.stages, ran(cells), strict=True):
            sample = queries_to_success(records, cells, stage)
            bars = histogram_of_counts(sample.values) if active else None
            if bars is not None:
                name = names[stage]
                title = f"{m.model}, {name}: queries to success of {len(sample.values)} samples"
                picture = figures.histogram(bars, title=title, label="queries to first success", style=i)
                histograms.append((f"{m.model} · {name}" if len(result.models) > 1 else name, picture))
    return histograms


def success_figures(result: AuditResult) -> list[tuple[str, Markup]]:
    """Success of the attacks without gradients over their queries, per model: the axis is logarithmic."""
    curves = []
    for m in result.models:
        lines = [
            figures.Series(
                name=curve.attack,
                rates=[
                    rate.model_copy(update={"eps": math.log10(q)}) for q, rate in zip(curve.queries, curve.success, strict=True)
                ],
                style=i,
                tick_texts=[f"{words.count(q)} queries" for q in curve.queries],
            )
            for i, curve in enumerate(m.success_by_queries)
        ]
        if lines:
            ticks = [
                (math.log10(q), words.count(q))
                for q in sorted({1, *(q for curve in m.success_by_queries for q in curve.queries)})
            ]
            title = f"{m.model}: share broken within so many queries, with 95 % intervals"
            curves.append((m.model, figures.curve(lines, ticks, title=title, axis="queries of one sample")))
    return curves


def _title(run: Run, result: AuditResult) -> str:
    names = [m.model for m in result.models]
    subject = names[0] if len(names) == 1 else f"{len(names)} models"
    return f"{subject} on {run.manifest['data']['name']}"


def _attacks_text(manifest: Mapping[str, Any]) -> str:
    """The requested attacks, and the number of stages if it differs from theirs."""
    attacks, stages = manifest["request"]["attack"], len(manifest["stages"])
    return ", ".join(attacks) + ("" if stages == len(attacks) else f" ({stages} stages)")


def _ticks(model: ModelResult) -> list[tuple[float, str]]:
    """Ticks of the eps axis, from 0."""
    ticks = list(zip(model.eps, model.eps_text, strict=True))
    return ticks if model.eps[0] == 0 else [(0.0, "0"), *ticks]


def _overall(model: ModelResult) -> list[Rate]:
    """Rates of all classes together, from the clean accuracy."""
    return _with_clean(model.clean_accuracy, model.robust_accuracy, model)


def _with_clean(clean: Rate, robust: Sequence[Rate], model: ModelResult) -> list[Rate]:
    """Rates from eps 0 on: the clean accuracy is the rate at 0 if the run has no budget 0."""
    return list(robust) if model.eps[0] == 0 else [clean, *robust]
