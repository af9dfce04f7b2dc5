"""The page and the tables of a run with a criterion of probability, which say nothing of robust accuracy."""

from collections.abc import Iterable, Sequence
from typing import Any

from brinell.analysis.curve import stage_label
from brinell.analysis.results import Rate
from brinell.analysis.thresholds import ThresholdModel, ThresholdResult
from brinell.core.record import Records
from brinell.pages import figures
from brinell.pages import format as words
from brinell.pages.gallery import gallery
from brinell.pages.tables import csv_text
from brinell.store.run import Run

CLASSES = 30
"""The largest number of classes of a model that the page shows."""
RATE = ("value", "low", "high", "k", "n", "missing")


def context(run: Run, records: Records, result: ThresholdResult) -> dict[str, Any]:
    """Everything that the template shows, by name."""
    models, names = result.models, [model.model for model in result.models]
    subject = names[0] if len(names) == 1 else f"{len(names)} models"
    return {
        "result": result,
        "manifest": run.manifest,
        "models": models,
        "many": len(models) > 1,
        "title": f"{subject} on {run.manifest['data']['name']}",
        "statements": [f"{model.model}: {model.statement}" if len(models) > 1 else model.statement for model in models],
        "warnings": list(_alerts(result)),
        "curve": _curve(result),
        "shares": _shares,
        "classes": CLASSES,
        "stage": {stage["name"]: stage_label(stage) for stage in run.manifest["stages"]},
        "shown": [example for model in models for example in gallery(run, records, model.model, models=len(models))],
    }


def tables(result: ThresholdResult) -> dict[str, str]:
    """File name to CSV text."""
    head = ("model", "criterion", "eps", "eps_text", *RATE)
    of_class = ("model", "criterion", "class", "name", "eps", "eps_text", *RATE)
    of_stage = ("model", "attack", "title", "eps", "value", "low", "high", "k", "n", "newly_broken", "forwards", "backwards")
    return {
        "unmet.csv": csv_text(head, _rows(result)),
        "per_class.csv": csv_text(of_class, _class_rows(result)),
        "stages.csv": csv_text((*of_stage, "judge_forwards", "surrogate_passes", "seconds", "skipped"), _stage_rows(result)),
        "checks.csv": csv_text(
            ("model", "code", "passed", "figure", "limit", "text"),
            (
                (model.model, check.code, check.passed, check.figure, check.limit, check.text)
                for model in result.models
                for check in model.checks
            ),
        ),
    }


def _alerts(result: ThresholdResult) -> Iterable[tuple[str, str]]:
    """Levels and texts of what a reader must know before the figures."""
    if not result.complete:
        yield "stop", "the run is not finished, or samples could not be judged."
    for model in result.models:
        of_model = f"{model.model}: " if len(result.models) > 1 else ""
        yield from (("warn", f"{of_model}{warning.text}") for warning in model.warnings)
        yield from (("note", f"{of_model}{text}") for text in model.notes)


def _shares(model: ThresholdModel) -> list[tuple[str, Rate]]:
    """The shares of a model with the texts of their budgets, from that of the untouched inputs on."""
    pairs = [(text, rate) for text, rate in zip(model.eps_text, model.unmet, strict=True) if rate.eps > 0]
    return [("clean", model.clean_unmet), *pairs]


def _curve(result: ThresholdResult) -> object:
    """The shares over eps, all models."""
    lines = [
        figures.Series(name=model.model, rates=[rate for _, rate in _shares(model)], style=index, band=len(result.models) < 4)
        for index, model in enumerate(result.models)
    ]
    first = result.models[0]
    ticks = [(0.0, "0"), *((eps, text) for eps, text in zip(first.eps, first.eps_text, strict=True) if eps > 0)]
    title = f"Share of inputs that do not meet {first.criterion}, over eps, with 95 % intervals"
    return figures.curve(lines, ticks, title=title, distance=words.norm(first.distance))


def heat(rate: Rate) -> str:
    """CSS class of a cell of the heat map: `h0` where no input meets the criterion to `h10` where all do."""
    return "none" if rate.value is None else f"h{round(10 * (1 - rate.value))}"


def _fields(rate: Rate, names: Sequence[str] = RATE) -> tuple[object, ...]:
    return tuple(getattr(rate, name) for name in names)


def _rows(result: ThresholdResult) -> Iterable[Sequence[object]]:
    """Rows of `unmet.csv`."""
    for model in result.models:
        for text, rate in _shares(model):
            yield (model.model, model.criterion, rate.eps, text, *_fields(rate))


def _class_rows(result: ThresholdResult) -> Iterable[Sequence[object]]:
    """Rows of `per_class.csv`."""
    for model in result.models:
        for entry in model.per_class:
            for text, rate in zip(model.eps_text, entry.unmet, strict=True):
                yield (model.model, model.criterion, entry.class_, entry.name, rate.eps, text, *_fields(rate))


def _stage_rows(result: ThresholdResult) -> Iterable[Sequence[object]]:
    """Rows of `stages.csv`."""
    for model in result.models:
        for stage in model.stages:
            last = _fields(stage.unmet[-1], RATE[:-1]) if stage.unmet else (None,) * 5
            costs = (stage.forwards, stage.backwards, stage.judge_forwards, stage.surrogate_passes, stage.seconds)
            broken = stage.broken[-1] if stage.unmet else None
            yield (model.model, stage.attack, stage.title, model.eps[-1], *last, broken, *costs, stage.skipped)
