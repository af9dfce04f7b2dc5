"""Sentences and tables of the page: the headline, the most robust model, and warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brinell.analysis.inference import holm
from brinell.analysis.results import AuditResult, CompareResult, ModelResult, PairedRate, Rate, StageResult
from brinell.analysis.robust_accuracy import minus
from brinell.pages import format as words
from brinell.store.run import Run

MOST_MODELS_IN_A_LINE = 4
"""Of more models than this, checks are not summed up model by model in one line."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One comparison at the page's eps."""

    a: str
    b: str
    rate: PairedRate
    p_holm: float
    words: str
    rates: list[tuple[str, PairedRate]]
    notes: list[str]


def headline(model: ModelResult, index: int, several_models: bool = False) -> list[tuple[str, Rate | None, str]]:
    """Name, rate and remark of the figures at the top of the page.

    They are clean accuracy, robust accuracy at the most telling eps and at the largest, and the worst class at the most telling
    one. If both eps are equal, the figure appears once.

    Args:
        model: the model.
        index: position of the most telling eps (`format.most_telling_eps`).
        several_models: True if the page shows other models too.
    """
    text, last = model.eps_text[index], model.eps_text[-1]
    worst, remark = _worst(model, index)
    remark_at_index = f"{'models' if several_models else 'classes'} differ most here"
    clean = "Clean accuracy" if model.meaning is None else "Clean inputs"
    figures: list[tuple[str, Rate | None, str]] = [(clean, model.clean_accuracy, "inputs without perturbation")]
    if text != last:
        figures.append((f"{words.rate_name(model)} at {text}", model.robust_accuracy[index], remark_at_index))
    remark_last = f"{words.norm(model.distance)}, the largest budget"
    return [
        *figures,
        (f"{words.rate_name(model)} at {last}", model.robust_accuracy[-1], remark_last),
        (f"Worst class at {text}", worst, remark),
    ]


def _worst(model: ModelResult, index: int) -> tuple[Rate | None, str]:
    """The rate of the weakest class at one eps, and its name."""
    order = words.ranked(model.per_class, index)
    if not order:
        return None, "too few samples per class to name one"
    worst = order[0]
    tied = [c for c in order if c.robust[index].value == worst.robust[index].value]
    name = words.clip(words.plain(worst), 24)
    if len(tied) > 1:
        name = f"{name} and {len(tied) - 1} more" if len(tied) < len(order) else "all classes alike"
    return worst.robust[index], name


def pairs(result: AuditResult, comparisons: Sequence[CompareResult], index: int) -> list[Pair]:
    """The comparisons at one eps, with p-values corrected for their number."""
    selected = [next((p for p in c.robust if p.eps == result.models[0].eps[index]), c.robust[-1]) for c in comparisons]
    corrected = holm([pair.p for pair in selected])
    text = dict(zip(result.models[0].eps, result.models[0].eps_text, strict=True)) if result.models else {}
    comparisons_at_eps = []
    for c, pair, p in zip(comparisons, selected, corrected, strict=True):
        comparisons_at_eps.append(
            Pair(
                a=c.a,
                b=c.b,
                rate=pair,
                p_holm=p,
                words=words.verdict_of_pair(c.a, c.b, pair, p, text[pair.eps]),
                rates=[("clean", c.clean)] + [(text[q.eps], q) for q in c.robust if q.eps > 0],
                notes=c.notes,
            )
        )
    return comparisons_at_eps


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One stage of the cascade over all models: its row in the table of attacks."""

    name: str
    """The short name."""
    stage: str
    """The exact setting."""
    waits: str
    """The condition of the stage, or the samples that it is restricted to; empty if it always runs."""
    stages: list[StageResult]
    """The stage of each model, in order."""
    idle: bool
    """True if the finished stage asked no model: no sample was left, or its condition did not hold."""

    before: list[Rate]
    """The accuracies of the first model before it, at each eps."""

    def drop(self, index: int) -> float | None:
        """By how much it changed the accuracy of the first model at one eps."""
        return minus(self.stages[0].curve[index].value, self.before[index].value) if self.stages[0].curve else None

    def rates(self, index: int) -> list[Rate]:
        """The accuracies after it at one eps, of each model on which it has finished."""
        return [stage.curve[index] for stage in self.stages if stage.curve]

    def total(self, cost: str) -> float:
        """A cost summed over the models: forwards, backwards or seconds."""
        return sum(float(getattr(stage, cost)) for stage in self.stages)


def surrogates(manifest: Mapping[str, Any], models: Sequence[ModelResult]) -> str:
    """A sentence on the surrogates of the run, their passes, and which of them is a model under test; empty without any."""
    entries = manifest.get("surrogates", [])
    if not entries:
        return ""
    passes = sum(stage.surrogate_passes for m in models for stage in m.stages)
    names = ", ".join(f"{entry['name']} (digest {entry['digest']})" for entry in entries)
    own = [str(model["name"]) for model in manifest["models"] if model["digest"] in {entry["digest"] for entry in entries}]
    white_box = f" Its figures are white-box where a surrogate is the model under test itself: {', '.join(own)}." if own else ""
    return (
        f"Attacks followed gradients of {names}, in {words.count(passes)} passes that are no queries of the model and not in "
        f"this table.{white_box}"
    )


def attacks(models: Sequence[ModelResult]) -> list[Attack]:
    """The stages of the run, in order, each with what it did to every model."""
    attacks_of_run = []
    before = [models[0].clean_accuracy] * len(models[0].eps)
    for i, first in enumerate(models[0].stages):
        stages = [m.stages[i] for m in models]
        attacks_of_run.append(
            Attack(
                name=first.label,
                stage=first.attack,
                waits=first.kept_to,
                stages=stages,
                before=before,
                idle=not any(
                    stage.forwards or stage.backwards or stage.skipped or not stage.finished or any(stage.broken)
                    for stage in stages
                ),
            )
        )
        before = first.curve or before
    return attacks_of_run


def checked(models: Sequence[ModelResult]) -> str:
    """Numbers of checks that passed, failed and could not run, in one line."""
    summaries = []
    for m in models:
        outcomes = [words.outcome(check) for check in m.checks]
        parts = [f"{outcomes.count(kind)} {kind}" for kind in ("failed", "not made", "passed") if outcomes.count(kind)]
        summaries.append(f"{m.model + ': ' if len(models) > 1 else ''}{', '.join(parts)}")
    return (
        f"The checks: {'; '.join(summaries)}" if len(models) <= MOST_MODELS_IN_A_LINE else f"The checks of {len(models)} models"
    )


def ties(compared: Sequence[Pair]) -> str:
    """One sentence that names the pairs whose difference may be chance."""
    alike = [f"{p.a} and {p.b}" for p in compared if p.p_holm >= 0.05]
    if not alike:
        return f"All {len(compared)} pairs differ by more than chance."
    return (
        f"{len(compared) - len(alike)} of {len(compared)} pairs differ by more than chance; not told apart: {'; '.join(alike)}."
    )


def lead(result: AuditResult, compared: Sequence[Pair], index: int) -> str:
    """The most robust model, and whether its lead over the next one exceeds chance."""
    order = words.leader(result.models, index)
    if len(order) < 2:
        return ""
    first, second = order[:2]
    rate = first.robust_accuracy[index]
    if not rate.k:
        return f"No model is robust on a single sample at {first.eps_text[index]}."
    text = f"{first.model} is the most robust at {first.eps_text[index]}: {words.percent(rate.value)} ({words.rate_text(rate)})."
    if first.caveat:
        text = f"{text} Not all of its checks passed."
    pair = next((p for p in compared if {p.a, p.b} == {first.model, second.model}), None)
    text = f"{text} {pair.words}" if pair else text
    return f"{text} {common_weakness(order, index)}".rstrip()


def next_step(run: Run, result: AuditResult, index: int) -> str:
    """What to do about the result, in one or two sentences: that of the leading model, if there are several.

    Args:
        run: the run.
        result: its figures.
        index: position of the eps at which models are compared.
    """
    model = next(iter(words.leader(result.models, index)), result.models[0])
    last, text = model.robust_accuracy[-1], model.eps_text[-1]
    if _going(model):
        return "Go on with brinell audit --resume --out FOLDER."
    if not model.clean_accuracy.k:
        return "Compare the order of the classes and the preparation of the inputs with those of the training: see the checks."
    if last.value is None or last.eps == 0:
        return "Name a budget above 0, such as --eps 8/255."
    if any(check.passed is False for check in model.checks):
        remedy = next((f" {note}" for note in model.verdict_notes if "run --attack" in note or "(--attack" in note), "")
        return f"Read the failed checks below before you quote the figure.{remedy}"
    if not last.k:
        return (
            f"Train a robust model (brinell harden --eps {text}) and audit it again, or claim robustness only at budgets where "
            "some is left."
        )
    if remedy := next((note for note in model.verdict_notes if "run --attack" in note), ""):
        return remedy
    metric = "robust" if model.meaning is None else "unmet"
    return f"Keep it so: brinell gate FOLDER --{metric} {_floor(last)} --eps {text} fails as soon as a later run falls below."


def _floor(rate: Rate) -> str:
    """The lower end of a rate, rounded down to whole percent, as a share."""
    return f"{int(100 * (rate.low or 0.0)) / 100:g}"


def no_example(models: Sequence[ModelResult]) -> str:
    """The sentence of the page if there are no adversarial examples."""
    if any(model.distributions[0].successes for model in models):
        return "None of the samples whose clean input the run keeps was broken; the adversarial examples are in arrays/."
    return "No adversarial input was found."


def common_weakness(models: Sequence[ModelResult], index: int) -> str:
    """The class that is the weakest on most models, where one is it on two or more."""
    weakest = []
    for m in models:
        order = words.ranked(m.per_class, index)
        if len(order) > 1 and order[0].robust[index].value != order[1].robust[index].value:
            weakest.append(order[0])
    common = max(weakest, key=lambda c: sum(candidate.class_ == c.class_ for candidate in weakest), default=None)
    times = sum(common is not None and c.class_ == common.class_ for c in weakest)
    if common is None or times < 2:
        return ""
    share = ("both" if times == 2 else f"all {times}") if times == len(models) else f"{times} of the {len(models)}"
    name = words.class_label(common)
    return f"{name[0].upper()}{name[1:]} is the weakest class of {share} models there."


def quantised_notes(models: Sequence[ModelResult]) -> list[str]:
    """How many adversarial examples at the largest eps are lost when they are rounded to the levels of storage."""
    notes, unchanged = [], []
    for m in models:
        if m.quantised_robust_accuracy is None or not m.quantised_robust_accuracy[-1].n:
            continue
        broken, no_longer_broken = (
            m.clean_accuracy.k - m.robust_accuracy[-1].k,
            m.quantised_robust_accuracy[-1].k - m.robust_accuracy[-1].k,
        )
        rate = f"{words.percent(m.quantised_robust_accuracy[-1].value)} ({words.rate_text(m.quantised_robust_accuracy[-1])})"
        if no_longer_broken:
            notes.append(
                f"{m.model}: rounding to the levels in which inputs are stored undoes {words.count(no_longer_broken)} of "
                f"{words.samples(broken)} broken at {m.eps_text[-1]}; quantised robust accuracy is {rate}. "
                "No attack aimed at rounded inputs, so this is not a bound."
            )
        elif broken:
            unchanged.append(m)
    if unchanged:
        names = ", ".join(m.model for m in unchanged)
        notes.append(f"{names}: every adversarial example at {unchanged[0].eps_text[-1]} remains adversarial after rounding.")
    return notes


def alerts(run: Run, result: AuditResult) -> list[tuple[str, str]]:
    """Warnings and notes (level, text), the gravest first."""
    entries = []
    going = [f"{m.model}: {'; '.join(names)}" for m in result.models if (names := _going(m))]
    if going:
        stages_left = f" ({'; '.join(going)})" if going else ""
        entries.append(
            ("stop", f"This run is not finished{stages_left}. The figures are those of the finished attacks and may still fall.")
        )
    entries += [("stop", text) for m in result.models if not _going(m) for text in _missing(m)]
    entries += [_caveat(m, len(result.models) > 1) for m in result.models if m.caveat and not _going(m)]
    checked = {check.code for m in result.models for check in m.checks}
    run_warnings = [w for w in result.warnings if w.code not in checked]
    entries += [("warn", f"{w.model + ': ' if w.model and len(result.models) > 1 else ''}{w.text}") for w in run_warnings]
    entries += [("note", text) for text in _own_budgets(run)]
    for m in result.models:
        entries += [("note", f"{m.model}: {s.title} was skipped: {s.skipped}.") for s in m.stages if s.skipped]
    return entries + [("note", text) for text in _small_classes(result)]


def _own_budgets(run: Run) -> list[str]:
    """The unit of the budgets, if each sample has a recommended eps."""
    recommended = run.manifest.get("recommended")
    if not recommended:
        return []
    least, median, most = (words.short(recommended[name]) for name in ("least", "median", "most"))
    conditions = ", ".join(recommended["conditions"])
    text = (
        f"Budgets are multiples of the eps that each sample was recommended, by {recommended['by']} ({conditions}): from "
        f"{least} to {most}, median {median}. The column radius of the records is each sample's budget in the units of the data."
    )
    if recommended["without"]:
        without = words.samples(recommended["without"])
        text = f"{text} For {without} no eps is sound; not attacked, they count as right or wrong untouched."
    return [text]


def _caveat(model: ModelResult, several_models: bool) -> tuple[str, str]:
    """One line for all checks that failed or were not made; what each measured is listed under Checks."""
    level = "warn" if any(check.passed is False for check in model.checks) else "note"
    caveat = str(model.caveat)
    text = f"{model.model}: {caveat}" if several_models else caveat[0].upper() + caveat[1:]
    return level, f"{text}. The section Checks lists what was measured and what to do."


def probes(run: Run, models: Sequence[ModelResult]) -> str:
    """Cost of the checks before the attacks; empty if no check ran."""
    costs = [run.manifest.get("probes", {}).get(m.model, {}) for m in models]
    forwards, backwards = (sum(int(cost.get(kind, 0)) for cost in costs) for kind in ("forwards", "backwards"))
    if not forwards:
        return ""
    return f"Those made before the attacks cost {words.count(forwards)} forwards and {words.count(backwards)} backwards in all."


def _going(model: ModelResult) -> list[str]:
    """Stages that have work left."""
    return [s.title for s in model.stages if not s.finished and not s.skipped]


def _missing(model: ModelResult) -> list[str]:
    """Sentence on samples that could not be judged; empty if all were."""
    missing = max(rate.missing for rate in [model.clean_accuracy, *model.robust_accuracy])
    if not missing:
        return []
    return [
        f"{model.model}: {words.count(missing)} of {words.count(model.n)} samples could not be judged; they are in no rate, and "
        "each rate states its own denominator."
    ]


def _small_classes(result: AuditResult) -> list[str]:
    """Notes on classes with few samples or none."""
    notes = []
    for m in result.models[:1]:
        small_classes = [c for c in m.per_class if c.n < words.SMALL_CLASS]
        if small_classes:
            notes.append(
                f"{len(small_classes)} of {len(m.per_class)} classes have fewer than {words.SMALL_CLASS} samples; "
                "their intervals are wide."
            )
        if m.classes_without_samples:
            notes.append(f"{words.count(m.classes_without_samples)} classes have no samples, so nothing is known about them.")
    return notes
