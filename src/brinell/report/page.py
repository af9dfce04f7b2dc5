"""What stands on the page: the figures, the choice of classes, the sentences. The template only lays it out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from brinell.analysis.distributions import NORMS, distance_at_success, histogram, queries_to_success
from brinell.analysis.grid import grid, ran
from brinell.analysis.results import AuditResult, ClassResult, CompareResult, ModelResult, PairedRate, Rate
from brinell.analysis.robust_accuracy import mean
from brinell.analysis.stats import holm
from brinell.core.record import Records
from brinell.report import figures, words
from brinell.report.gallery import gallery
from brinell.store.run import Run

ALL_CLASSES = 20
"""Up to this many classes every one is shown; of more, the worst and the best."""
WORST, BEST = 10, 5
FOLDED = 100
"""Up to this many classes the others stand in a folded table; beyond, only in the CSV."""


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


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One comparison at the page's eps."""

    a: str
    b: str
    at: PairedRate
    p_holm: float | None
    words: str
    every: list[tuple[str, PairedRate]]
    notes: list[str]


def context(run: Run, records: Records, result: AuditResult, comparisons: Sequence[CompareResult]) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    classes = choose_classes(result.models)
    compared = pairs(result, comparisons, classes.at)
    shows = len(result.models)
    return {
        "result": result,
        "manifest": run.manifest,
        "models": result.models,
        "many": shows > 1,
        "title": _title(run, result),
        "statements": [
            (m, {"holds": words.what_holds(m), "breaks": words.where_it_breaks(m), "classes": words.which_classes(m)})
            for m in result.models
        ],
        "headlines": [headline(m) for m in result.models],
        "alerts": alerts(run, result),
        "curve": overall_figure(result),
        "stored": stored_notes(result.models),
        "classes": classes,
        "class_figures": class_figures(result, classes),
        "class_of": [{c.class_: c for c in m.per_class} for m in result.models],
        "mean_drop": {c.class_: c.mean_drop for c in result.mean_drop_per_class},
        "mean_of_means": mean([m.mean_drop for m in result.models]),
        "pairs": compared,
        "ties": ties(compared),
        "lead": lead(result, compared, classes.at),
        "pair_eps": result.models[0].eps_text[classes.at] if result.models else "",
        "distance_figures": distance_figures(run, records, result),
        "query_figures": query_figures(run, records, result),
        "galleries": [(m.model, gallery(run, records, m.model, models=shows)) for m in result.models],
    }


def heat(rate: Rate) -> str:
    """CSS class of a cell of the heat map: `h0` where all hold to `h10` where all are broken."""
    return "none" if rate.value is None else f"h{round(10 * (1 - rate.value))}"


def headline(model: ModelResult) -> list[tuple[str, Rate | None, str]]:
    """Name, rate and remark of the three figures at the top."""
    last = model.eps_text[-1]
    order = words.ranked(model.per_class, len(model.eps) - 1)
    worst = order[0] if words.can_rank(order) else None
    tied = [c for c in order if worst and c.robust[-1].value == worst.robust[-1].value]
    remark = words.clip(words.plain(worst), 24) if worst else "too few samples per class to name one"
    if len(tied) > 1:
        remark = f"{remark} and {len(tied) - 1} more" if len(tied) < len(order) else "all classes alike"
    norm = words.norm(model.distance)
    return [
        ("Clean accuracy", model.clean_accuracy, "untouched inputs"),
        (f"Robust accuracy at {last}", model.robust_accuracy[-1], f"{norm}, worst case of all attacks"),
        (f"Worst class at {last}", worst.robust[-1] if worst else None, remark),
    ]


def choose_classes(models: Sequence[ModelResult]) -> Classes:
    """Ranks the classes by their mean over the models at the eps where they are best told apart."""
    at = max((words.telling(m) for m in models), default=0)
    by_class: dict[int, list[ClassResult]] = {}
    for model in models:
        for c in model.per_class:
            by_class.setdefault(c.class_, []).append(c)

    def rank(index: int) -> tuple[float, float, int]:
        values = [c.robust[at] for c in by_class[index]]
        high = mean([rate.high for rate in values])
        value = mean([rate.value for rate in values])
        return (2.0 if value is None else value, 2.0 if high is None else high, index)

    order = sorted(by_class, key=rank)
    names = {index: group[0].name for index, group in by_class.items()}
    if len(order) <= ALL_CLASSES:
        return Classes(shown=order, folded=[], left_out=0, names=names, at=at)
    shown, others = order[:WORST] + order[-BEST:], order[WORST:-BEST]
    if len(order) <= FOLDED:
        return Classes(shown=shown, folded=others, left_out=0, names=names, at=at)
    return Classes(shown=shown, folded=[], left_out=len(others), names=names, at=at)


def overall_figure(result: AuditResult) -> Markup:
    """Accuracy over eps, all models."""
    lines = [figures.Series(name=m.model, rates=_from_clean(m.clean_accuracy, m), style=i) for i, m in enumerate(result.models)]
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
            overall = result.models[0]
            rates = _from_clean(overall.clean_accuracy, overall)
            lines.append(figures.Series(name="all classes", rates=rates, style=-1, band=False))
        name = classes.names[index]
        picture = figures.curve(lines, _ticks(result.models[0]), title=f"Class {name}: robust accuracy over eps", small=True)
        found.append((index, name, picture))
    return found


def pairs(result: AuditResult, comparisons: Sequence[CompareResult], at: int) -> list[Pair]:
    """The comparisons at one eps, with p-values corrected for their number."""
    chosen = [next((p for p in c.robust if p.eps == result.models[0].eps[at]), c.robust[-1]) for c in comparisons]
    known = [pair.p for pair in chosen if pair.p is not None]
    corrected = iter(holm(known))
    text = dict(zip(result.models[0].eps, result.models[0].eps_text, strict=True)) if result.models else {}
    found = []
    for c, pair in zip(comparisons, chosen, strict=True):
        p = next(corrected) if pair.p is not None else None
        found.append(
            Pair(
                a=c.a,
                b=c.b,
                at=pair,
                p_holm=p,
                words=words.verdict_of_pair(c.a, c.b, pair, p, text[pair.eps]),
                every=[("clean", c.clean)] + [(text[q.eps], q) for q in c.robust if q.eps > 0],
                notes=c.notes,
            )
        )
    return found


def ties(compared: Sequence[Pair]) -> str:
    """Which pairs chance may explain, in one sentence."""
    alike = [f"{p.a} and {p.b}" for p in compared if p.p_holm is None or p.p_holm >= 0.05]
    if not alike:
        return f"All {len(compared)} pairs differ by more than chance."
    return (
        f"{len(compared) - len(alike)} of {len(compared)} pairs differ by more than chance; not told apart: {'; '.join(alike)}."
    )


def lead(result: AuditResult, compared: Sequence[Pair], at: int) -> str:
    """Which model holds best, and whether its lead over the next is more than chance."""
    order = words.leader(result.models, at)
    if len(order) < 2:
        return ""
    first, second = order[:2]
    rate = first.robust_accuracy[at]
    text = f"{first.model} holds best at {first.eps_text[at]}: {words.percent(rate.value)} ({words.rate_text(rate)})."
    pair = next((p for p in compared if {p.a, p.b} == {first.model, second.model}), None)
    text = f"{text} {pair.words}" if pair else text
    return f"{text} {common_weakness(order, at)}".rstrip()


def common_weakness(models: Sequence[ModelResult], at: int) -> str:
    """The class that is the weakest on most models, where one stands out on two or more."""
    weakest = []
    for m in models:
        order = words.ranked(m.per_class, at)
        if words.can_rank(order) and len(order) > 1 and order[0].robust[at].value != order[1].robust[at].value:
            weakest.append(order[0])
    common = max(weakest, key=lambda c: sum(other.class_ == c.class_ for other in weakest), default=None)
    times = sum(common is not None and c.class_ == common.class_ for c in weakest)
    if common is None or times < 2:
        return ""
    share = ("both" if times == 2 else f"all {times}") if times == len(models) else f"{times} of the {len(models)}"
    name = words.named(common)
    return f"{name[0].upper()}{name[1:]} is the weakest class of {share} models there."


def distance_figures(run: Run, records: Records, result: AuditResult) -> list[tuple[str, Markup]]:
    """Histogram of the distance at success, per model, on one scale."""
    distance = str(run.manifest["distance"])
    if distance not in NORMS:
        return []
    found = []
    for i, m in enumerate(result.models):
        sample = distance_at_success(records, grid(records, run.manifest, m.model), distance)
        bars = histogram(sample.values, bins=24, top=m.eps[-1])
        if bars is not None:
            label = f"{words.norm(distance)} distance of the closest find"
            title = f"{m.model}: distances at success of {len(sample.values)} samples"
            found.append((m.model, figures.histogram(bars, title=title, label=label, log=False, style=i)))
    return found


def query_figures(run: Run, records: Records, result: AuditResult) -> list[tuple[str, Markup]]:
    """Histogram of the queries to success, per model and stage."""
    found = []
    for i, m in enumerate(result.models):
        cells = grid(records, run.manifest, m.model)
        for stage, active in zip(cells.stages, ran(cells), strict=True):
            sample = queries_to_success(records, cells, stage)
            bars = histogram(sample.values, bins=20, log=True) if active else None
            if bars is not None:
                title = f"{m.model}, {stage}: queries to success of {len(sample.values)} samples"
                picture = figures.histogram(bars, title=title, label="queries to first success", log=True, style=i)
                found.append((f"{m.model} · {stage}" if len(result.models) > 1 else stage, picture))
    return found


def stored_notes(models: Sequence[ModelResult]) -> list[str]:
    """How many finds at the largest eps are lost when they are rounded to storage."""
    notes, kept = [], []
    for m in models:
        if m.as_stored is None or not m.as_stored[-1].n:
            continue
        lost = m.as_stored[-1].k - m.robust_accuracy[-1].k
        rate = f"{words.percent(m.as_stored[-1].value)} ({words.rate_text(m.as_stored[-1])})"
        if lost:
            notes.append(
                f"{m.model}: {words.count(lost)} finds at {m.eps_text[-1]} do not survive rounding; as stored, {rate} hold."
            )
        else:
            kept.append(m)
    if kept:
        names = ", ".join(m.model for m in kept)
        notes.append(f"{names}: every find at {kept[0].eps_text[-1]} survives rounding to how inputs are stored.")
    return notes


def alerts(run: Run, result: AuditResult) -> list[tuple[str, str]]:
    """What must be read before the figures: (level, text), the gravest first."""
    found = []
    going = [f"{m.model}: {', '.join(names)}" for m in result.models if (names := _going(m))]
    if run.manifest["state"] != "finished" or going:
        left = f" ({'; '.join(going)})" if going else ""
        found.append(
            ("stop", f"This run is not finished{left}. The figures are those of the finished attacks and may still fall.")
        )
    found += [("stop", text) for m in result.models if not _going(m) for text in _missing(m)]
    found += [("warn", f"{w.model + ': ' if w.model and len(result.models) > 1 else ''}{w.text}") for w in result.warnings]
    for m in result.models:
        found += [("note", f"{m.model}: {s.attack} was skipped: {s.skipped}.") for s in m.stages if s.skipped]
    return found + [("note", text) for text in _small_classes(result)]


def _going(model: ModelResult) -> list[str]:
    """Stages that have work left."""
    return [s.attack for s in model.stages if not s.finished and not s.skipped]


def _missing(model: ModelResult) -> list[str]:
    missing = max(rate.missing for rate in [model.clean_accuracy, *model.robust_accuracy])
    if not missing:
        return []
    return [
        f"{model.model}: {words.count(missing)} of {words.count(model.n)} samples could not be judged; they are in no rate, and "
        "each rate states its own denominator."
    ]


def _small_classes(result: AuditResult) -> list[str]:
    found = []
    for m in result.models[:1]:
        few = [c for c in m.per_class if c.n < words.FEW]
        if few:
            found.append(
                f"{len(few)} of {len(m.per_class)} classes have fewer than {words.FEW} samples; their rates are wide open, as "
                "their intervals show."
            )
        if m.classes_without_samples:
            found.append(f"{words.count(m.classes_without_samples)} classes have no sample; nothing is known about them.")
    return found


def _title(run: Run, result: AuditResult) -> str:
    names = [m.model for m in result.models]
    subject = names[0] if len(names) == 1 else f"{len(names)} models"
    return f"{subject} on {run.manifest['data']['name']}"


def _ticks(model: ModelResult) -> list[tuple[float, str]]:
    ticks = list(zip(model.eps, model.eps_text, strict=True))
    return ticks if model.eps[0] == 0 else [(0.0, "0"), *ticks]


def _from_clean(clean: Rate, model: ModelResult) -> list[Rate]:
    return _with_clean(clean, model.robust_accuracy, model)


def _with_clean(clean: Rate, robust: Sequence[Rate], model: ModelResult) -> list[Rate]:
    """Rates from eps 0 on: the untouched inputs stand for it where the run does not name it."""
    return list(robust) if model.eps[0] == 0 else [clean, *robust]
