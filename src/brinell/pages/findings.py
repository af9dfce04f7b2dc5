"""What the page says in words: the headline, who is ahead, what must be known before the figures are read."""

from collections.abc import Sequence
from dataclasses import dataclass

from brinell.analysis.results import AuditResult, CompareResult, ModelResult, PairedRate, Rate, StageResult
from brinell.analysis.robust_accuracy import minus
from brinell.analysis.stats import holm
from brinell.pages import format as words
from brinell.store.run import Run

MANY = 4
"""Of more models than this, checks are not summed up model by model in one line."""


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


def headline(model: ModelResult, at: int, many: bool = False) -> list[tuple[str, Rate | None, str]]:
    """Name, rate and remark of the figures at the top.

    Clean accuracy, robust accuracy at the eps that tells most (position `at`) and at the largest, and the worst class at the
    former; `many`: whether it stands beside other models. Where both are one eps, it is told once.
    """
    text, last = model.eps_text[at], model.eps_text[-1]
    worst, remark = _worst(model, at)
    tells = f"{'models' if many else 'classes'} differ most here"
    found: list[tuple[str, Rate | None, str]] = [("Clean accuracy", model.clean_accuracy, "untouched inputs")]
    if text != last:
        found.append((f"Robust accuracy at {text}", model.robust_accuracy[at], tells))
    remark_last = f"{words.norm(model.distance)}, the largest budget"
    return [
        *found,
        (f"Robust accuracy at {last}", model.robust_accuracy[-1], remark_last),
        (f"Worst class at {text}", worst, remark),
    ]


def _worst(model: ModelResult, at: int) -> tuple[Rate | None, str]:
    """The rate of the weakest class at one eps, and its name."""
    order = words.ranked(model.per_class, at)
    if not order:
        return None, "too few samples per class to name one"
    worst = order[0]
    tied = [c for c in order if c.robust[at].value == worst.robust[at].value]
    name = words.clip(words.plain(worst), 24)
    if len(tied) > 1:
        name = f"{name} and {len(tied) - 1} more" if len(tied) < len(order) else "all classes alike"
    return worst.robust[at], name


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


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One stage of the cascade over all models: its row in the table of attacks."""

    name: str
    """The short name."""
    stage: str
    """The exact setting."""
    waits: str
    """What it waits for, or which samples it is kept to; empty where it always runs."""
    each: list[StageResult]
    """The stage of each model, in order."""
    idle: bool
    """Whether it asked nothing of any model and has an end: nothing was left for it, or what it waits for did not happen."""

    before: list[Rate]
    """The accuracies of the first model before it, at each eps."""

    def drop(self, at: int) -> float | None:
        """By how much it changed the accuracy of the first model at one eps."""
        return minus(self.each[0].curve[at].value, self.before[at].value) if self.each[0].curve else None

    def total(self, cost: str) -> float:
        """A cost summed over the models: forwards, backwards or seconds."""
        return sum(float(getattr(one, cost)) for one in self.each)


def attacks(models: Sequence[ModelResult]) -> list[Attack]:
    """The stages of the run, in order, each with what it did to every model."""
    found = []
    before = [models[0].clean_accuracy] * len(models[0].eps)
    for i, first in enumerate(models[0].stages):
        each = [m.stages[i] for m in models]
        found.append(
            Attack(
                name=first.label,
                stage=first.attack,
                waits=first.kept_to,
                each=each,
                before=before,
                idle=not any(one.forwards or one.backwards or one.skipped or not one.finished or any(one.broken) for one in each),
            )
        )
        before = first.curve or before
    return found


def checked(models: Sequence[ModelResult]) -> str:
    """How many checks were made and what came of them, in a line."""
    told = []
    for m in models:
        made = [words.outcome(check) for check in m.checks]
        parts = [f"{made.count(kind)} {kind}" for kind in ("failed", "not made", "passed") if made.count(kind)]
        told.append(f"{m.model + ': ' if len(models) > 1 else ''}{', '.join(parts)}")
    return f"The checks: {'; '.join(told)}" if len(models) <= MANY else f"The checks of {len(models)} models"


def ties(compared: Sequence[Pair]) -> str:
    """Which pairs chance may explain, in one sentence."""
    alike = [f"{p.a} and {p.b}" for p in compared if p.p_holm is None or p.p_holm >= 0.05]
    if not alike:
        return f"All {len(compared)} pairs differ by more than chance."
    return (
        f"{len(compared) - len(alike)} of {len(compared)} pairs differ by more than chance; not told apart: {'; '.join(alike)}."
    )


def lead(result: AuditResult, compared: Sequence[Pair], at: int) -> str:
    """Which model is the most robust, and whether its difference to the next is more than chance."""
    order = words.leader(result.models, at)
    if len(order) < 2:
        return ""
    first, second = order[:2]
    rate = first.robust_accuracy[at]
    if not rate.k:
        return f"No model is robust on a single sample at {first.eps_text[at]}."
    text = f"{first.model} is the most robust at {first.eps_text[at]}: {words.percent(rate.value)} ({words.rate_text(rate)})."
    if first.caveat:
        text = f"{text} Not all of its checks passed."
    pair = next((p for p in compared if {p.a, p.b} == {first.model, second.model}), None)
    text = f"{text} {pair.words}" if pair else text
    return f"{text} {common_weakness(order, at)}".rstrip()


def common_weakness(models: Sequence[ModelResult], at: int) -> str:
    """The class that is the weakest on most models, where one is it on two or more."""
    weakest = []
    for m in models:
        order = words.ranked(m.per_class, at)
        if len(order) > 1 and order[0].robust[at].value != order[1].robust[at].value:
            weakest.append(order[0])
    common = max(weakest, key=lambda c: sum(other.class_ == c.class_ for other in weakest), default=None)
    times = sum(common is not None and c.class_ == common.class_ for c in weakest)
    if common is None or times < 2:
        return ""
    share = ("both" if times == 2 else f"all {times}") if times == len(models) else f"{times} of the {len(models)}"
    name = words.named(common)
    return f"{name[0].upper()}{name[1:]} is the weakest class of {share} models there."


def quantised_notes(models: Sequence[ModelResult]) -> list[str]:
    """How many adversarial examples at the largest eps are lost when they are rounded to the levels of storage."""
    notes, kept = [], []
    for m in models:
        if m.quantised_robust_accuracy is None or not m.quantised_robust_accuracy[-1].n:
            continue
        found, lost = m.clean_accuracy.k - m.robust_accuracy[-1].k, m.quantised_robust_accuracy[-1].k - m.robust_accuracy[-1].k
        rate = f"{words.percent(m.quantised_robust_accuracy[-1].value)} ({words.rate_text(m.quantised_robust_accuracy[-1])})"
        if lost:
            notes.append(
                f"{m.model}: of {words.samples(found)} broken at {m.eps_text[-1]}, {words.count(lost)} are no longer broken once "
                f"the adversarial example is rounded, inside eps, to the levels in which inputs are stored; quantised, {rate} "
                "remain right. "
                "No attack aimed at rounded inputs, so this is no bound."
            )
        elif found:
            kept.append(m)
    if kept:
        names = ", ".join(m.model for m in kept)
        notes.append(f"{names}: every adversarial example at {kept[0].eps_text[-1]} is still one when it is quantised.")
    return notes


def alerts(run: Run, result: AuditResult) -> list[tuple[str, str]]:
    """What must be read before the figures: (level, text), the gravest first."""
    found = []
    going = [f"{m.model}: {'; '.join(names)}" for m in result.models if (names := _going(m))]
    if run.manifest["state"] != "finished" or going:
        left = f" ({'; '.join(going)})" if going else ""
        found.append(
            ("stop", f"This run is not finished{left}. The figures are those of the finished attacks and may still fall.")
        )
    found += [("stop", text) for m in result.models if not _going(m) for text in _missing(m)]
    found += [_caveat(m, len(result.models) > 1) for m in result.models if m.caveat and not _going(m)]
    checked = {check.code for m in result.models for check in m.checks}
    others = [w for w in result.warnings if w.code not in checked]
    found += [("warn", f"{w.model + ': ' if w.model and len(result.models) > 1 else ''}{w.text}") for w in others]
    found += [("note", text) for text in _own_budgets(run)]
    for m in result.models:
        found += [("note", f"{m.model}: {s.title} was skipped: {s.skipped}.") for s in m.stages if s.skipped]
    return found + [("note", text) for text in _small_classes(result)]


def _own_budgets(run: Run) -> list[str]:
    """What the budgets are multiples of, where each sample has its own."""
    recommended = run.manifest.get("recommended")
    if not recommended:
        return []
    least, median, most = (words.short(recommended[name]) for name in ("least", "median", "most"))
    judged = ", ".join(recommended["conditions"])
    text = (
        f"Budgets are multiples of the eps that each sample was recommended, by {recommended['by']} ({judged}): from "
        f"{least} to {most}, median {median}. The column radius of the records is each sample's budget in the units of the data."
    )
    if recommended["without"]:
        without = words.samples(recommended["without"])
        text = f"{text} For {without} no eps is sound; not attacked, they count as right or wrong untouched."
    return [text]


def _caveat(model: ModelResult, many: bool) -> tuple[str, str]:
    """One line for all checks that failed or were not made; what each measured is listed under Checks."""
    level = "warn" if any(check.passed is False for check in model.checks) else "note"
    of = f" of {model.model}" if many else ""
    return level, f"Robust accuracy{of}: {model.caveat}. What was measured, and what to do, is listed under Checks."


def probes(run: Run, models: Sequence[ModelResult]) -> str:
    """What the checks before the attacks cost; nothing where none were made."""
    spent = [run.manifest.get("probes", {}).get(m.model, {}) for m in models]
    forwards, backwards = (sum(int(one.get(kind, 0)) for one in spent) for kind in ("forwards", "backwards"))
    if not forwards:
        return ""
    return f"Those made before the attacks cost {words.count(forwards)} forwards and {words.count(backwards)} backwards in all."


def _going(model: ModelResult) -> list[str]:
    """Stages that have work left."""
    return [s.title for s in model.stages if not s.finished and not s.skipped]


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
                f"Fewer than {words.FEW} samples in {len(few)} of {len(m.per_class)} classes: rates are wide open there, as the "
                "intervals show."
            )
        if m.classes_without_samples:
            found.append(f"No sample in {words.count(m.classes_without_samples)} of the classes: nothing is known there.")
    return found
