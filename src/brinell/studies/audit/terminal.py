"""An audit as a terminal shows it."""

from collections.abc import Iterator
from typing import Any

from brinell.pages.terminal import percent
from brinell.studies.audit import dry_run


def lines(result: Any) -> Iterator[str]:
    """The result line by line: of an audit, or of the plan that a dry run shows."""
    if isinstance(result, dry_run.PlanResult):
        yield from dry_run.lines(result)
        return
    for model in result.models:
        aimed = "" if model.criterion == "misclassified" else f", {model.criterion}"
        yield f"{model.model}: {model.n} samples, {model.distance}{aimed}, {model.attacks}"
        if model.meaning is not None:
            yield f"  {model.criterion} means that {model.meaning}; the share that does not meet it is not robust accuracy"
        columns = ("accuracy", "robust") if model.meaning is None else (" not met", "inputs")
        yield f"  {'eps':>9}   {columns[0]}   95 % interval   {columns[1]}    weakest class"
        names = {entry.class_: entry.name for entry in model.per_class}
        if model.eps[0] > 0:
            clean = model.clean_accuracy
            interval = f"{percent(clean.low)} to {percent(clean.high)}"
            yield f"  {'clean':>9}   {percent(clean.value):>8}   {interval:<18}{clean.k:>4} of {clean.n}"
        for index, (text, rate) in enumerate(zip(model.eps_text, model.robust_accuracy, strict=True)):
            classes = {
                entry.class_: entry.robust[index].value for entry in model.per_class if entry.robust[index].value is not None
            }
            worst = min(classes, key=lambda class_id: classes[class_id] or 0.0, default=None)
            weakest = "" if worst is None else f"{percent(classes[worst])} {names[worst]}"
            interval = f"{percent(rate.low)} to {percent(rate.high)}"
            yield f"  {text:>9}   {percent(rate.value):>8}   {interval:<18}{rate.k:>4} of {rate.n}   {weakest}"
        for text, rate in zip(model.eps_text, model.certified or (), strict=False):
            yield f"  {text:>9}   {percent(rate.value):>8}   proven ({rate.k} of {rate.n}): no attack can break these"
        yield f"  {model.verdict}"
        yield from (f"  note: {text}" for text in model.verdict_notes)
        for entry in model.detectors or ():
            adaptive = percent(entry.adaptive.value if entry.adaptive else None)
            yield f"  {entry.detector}: {percent(entry.static.value)} with it, {adaptive} against attacks that know it"
        passed = [check.passed for check in model.checks]
        yield f"  checks: {passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not made"
        titles = {stage.attack: stage.title for stage in model.stages}
        for remark in model.remarks:
            yield f"  note: {titles.get(remark.attack, remark.attack)}: {remark.text}"
        if model.classes_without_samples:
            number = model.classes_without_samples
            have = "class of the data has" if number == 1 else "classes of the data have"
            yield f"  warning: {number} {have} no sample, so nothing is known about {'it' if number == 1 else 'them'}"
        for warning in model.warnings:
            yield f"  warning: {warning.text}"
    yield from _ending(result)


def _ending(result: Any) -> Iterator[str]:
    """The verdicts of gates and the path of the page."""
    for model, gate in zip(result.models, result.gates, strict=False):
        yield from (f"FAIL  {check.name}: {check.text}" for check in gate.failures)
        yield f"gate {'passed' if gate.passed else 'failed'}: {model.model}"
    yield f"report: {result.folder.rstrip('/')}/report.html"
