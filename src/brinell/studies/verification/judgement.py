"""Judges a replay: what the run says of checks, alarms and rows, beside what came out."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from brinell.core.checks import Code
from brinell.core.record import Array, Records, has_broken
from brinell.engine import provenance
from brinell.engine.cascade import Stage
from brinell.engine.plan import ModelSource, Plan
from brinell.store.run import Run
from brinell.studies.verification.comparison import (
    CHANCE,
    MOST_DEVIATIONS,
    REPEATS,
    Comparison,
    compare_rows,
    is_suspicious,
    rank_chance,
)
from brinell.studies.verification.replay import ReplayedAudit
from brinell.studies.verification.result import Notes

FIGURE_TOLERANCE = 1e-3
"""Relative difference of figures in the manifest that counts as equal on this machine."""
CLEAR_FIGURE = 0.1
"""A check is far from its limit by more than this share of the larger of both."""
LIKE_WORDS = 0.7
"""The least share of words that two sentences about a check have in common if they differ by rounding or chance."""
CLEAR_PROBES = 0.8
"""The least share of the cost of checks that another machine may have paid."""


@dataclass
class Judgement:
    """The result of a replay."""

    rows: int = 0
    """Rows that were computed again."""
    deviations: int = 0
    """Rows that came out differently by no more than rounding explains."""
    is_random: bool = False
    """True if the model answers at random, which the verifier found itself."""
    claims: list[str] = field(default_factory=list)
    """The things that could not be judged, as clauses."""

    def text(self) -> str:
        """A clause about rows that came out differently; empty without any."""
        if self.is_random:
            return ", and break no more often than chance explains"
        if not self.deviations:
            return ""
        return f", {self.deviations} of which differ by no more than rounding explains, which counts against the run"


def judge_replay(
    run: Run,
    plan: Plan,
    source: ModelSource,
    replayed: ReplayedAudit,
    warnings: Mapping[str, str],
    fresh: Mapping[str, Any],
    notes: Notes,
    repeat: Callable[[], ReplayedAudit],
) -> Judgement:
    """Compare checks, warnings and drawn rows of a run with those of a replay.

    Args:
        run: the run.
        plan: its plan.
        source: the model.
        replayed: the audit, carried out again.
        warnings: its failed checks, by code, with their sentences.
        fresh: the kinds of answers and the costs of recognising them, found anew.
        notes: collects problems.
        repeat: replays the audit once more.
    """
    findings = {str(check["code"]): check for check in replayed.manifest["checks"].get(source.name, [])}
    judgement = Judgement(is_random=findings.get(Code.RANDOM, {}).get("passed") is False)
    exact = states_this_machine(run, plan) and not judgement.is_random
    _judge_checks(run, source, findings, exact, judgement, notes)
    _judge_manifest(run, source, replayed, warnings, fresh, exact, judgement, notes)
    if judgement.is_random:
        _judge_random_rows(plan, source, replayed, judgement, notes, repeat)
        judgement.claims.append(
            "exact rows, confidences, margins and costs, and which clean inputs are kept, since the model answers at random"
        )
    else:
        for stage in plan.stages if len(plan.levels) else ():
            _judge_stage(run, plan, source, stage, replayed, exact, judgement, notes)
        if judgement.deviations > max(1, MOST_DEVIATIONS * judgement.rows):
            notes.note(
                f"{source.name} replay",
                f"{judgement.deviations} of {judgement.rows} rows come out differently; honest runs show at most "
                f"{MOST_DEVIATIONS:.0%}, on other machines",
            )
    return judgement


def states_this_machine(run: Run, plan: Plan) -> bool:
    """True if the run states the libraries, the processor and the threads of this machine, so that a replay repeats every row."""
    here = provenance.machine_facts(plan.device)
    return plan.device.type == "cpu" and all(run.manifest.get(key) == here[key] for key in ("versions", "hardware"))


def _judge_checks(
    run: Run, source: ModelSource, findings: Mapping[str, Mapping[str, Any]], exact: bool, judgement: Judgement, notes: Notes
) -> None:
    """Compare the outcome of every check with the recorded one."""
    recorded = {str(check["code"]): check for check in run.manifest.get("checks", {}).get(source.name, [])}
    location = f"{source.name} checks"
    for code in sorted(recorded.keys() ^ findings.keys()):
        notes.note(
            location, f"{code} is {'not ' if code in findings else ''}recorded, and {'' if code in findings else 'not '}made"
        )
    for code in sorted(recorded.keys() & findings.keys()):
        here, there = findings[code], recorded[code]
        if here["passed"] != there["passed"] and (_is_clear(here) or exact) and not (judgement.is_random and code != Code.RANDOM):
            notes.note(location, f"{code} {_verdict(here)}, but the run records that it {_verdict(there)}")
        elif exact and not _agrees(here, there):
            notes.note(location, f"{code} is recorded with another figure or sentence than it has")
        elif here["passed"] != there["passed"]:
            near = "as the model answers at random" if judgement.is_random else "near its limit"
            judgement.claims.append(f"{code} {_verdict(here)} here and {_verdict(there)} there, {near}")
        elif not _is_alike(here, there, judgement.is_random):
            notes.note(location, f"{code} is recorded with a figure, a limit or a sentence that it cannot have")
        elif not _agrees(here, there):
            judgement.claims.append(f"the figure and the sentence of {code}; here it {_verdict(here)} with {here['text']!r}")


def _verdict(check: Mapping[str, Any]) -> str:
    """The outcome of a check as a verb."""
    return {True: "passes", False: "fails", None: "was not made"}[check["passed"]]


def _is_alike(repeated: Mapping[str, Any], recorded: Mapping[str, Any], is_random: bool) -> bool:
    """True if two outcomes of a check differ by no more than rounding, or the chance of a random model, explains."""
    if not all(_are_alike(repeated.get(name) or "", recorded.get(name) or "") for name in ("text", "cause", "reason")):
        return False
    (figure, limit), (recorded_figure, recorded_limit) = (
        (check.get("figure"), check.get("limit")) for check in (repeated, recorded)
    )
    if (figure is None) != (recorded_figure is None) or (limit is None) != (recorded_limit is None):
        return False
    if figure is None or recorded_figure is None or limit is None or is_random:
        return True
    return _agrees(float(limit), recorded_limit) and abs(figure - recorded_figure) <= max(abs(figure), abs(limit)) / 2


def _are_alike(text: str, recorded: str) -> bool:
    """True if two texts have most of their words in common, numbers aside."""
    words, recorded_words = (set(re.findall(r"[^\W\d_]+", sentence.lower())) for sentence in (text, recorded))
    return len(words & recorded_words) >= LIKE_WORDS * len(words | recorded_words)


def _is_clear(check: Mapping[str, Any]) -> bool:
    """True if a check is far from its limit."""
    figure, limit = check.get("figure"), check.get("limit")
    return figure is None or limit is None or abs(figure - limit) > CLEAR_FIGURE * max(abs(limit), abs(figure))


def _judge_manifest(
    run: Run,
    source: ModelSource,
    replayed: ReplayedAudit,
    warnings: Mapping[str, str],
    fresh: Mapping[str, Any],
    exact: bool,
    judgement: Judgement,
    notes: Notes,
) -> None:
    """Compare recorded kinds of answers, repairs, costs of checks, extras and warnings with those of the replay."""
    name, location = source.name, f"{source.name} manifest"
    for answered, kind in (fresh.get("answers") or {}).items():
        if _entry(run.manifest, "answers", answered) != kind:
            notes.note(location, f"answers of {answered} are not what comes out")
    _judge_repairs(run, name, replayed, exact, judgement, notes)
    if replayed.gallery_differs() and not judgement.is_random:
        notes.note(location, "the clean inputs for the gallery are not those that the data and the rows give")
    _judge_legends(run, name, replayed, judgement, notes)
    _judge_costs(run, name, replayed, fresh, exact, judgement, notes)
    recorded = {warning["code"]: warning["text"] for warning in run.manifest.get("warnings", []) if warning["model"] == name}
    codes = sorted(code for code in recorded.keys() | warnings.keys() if recorded.get(code) != warnings.get(code))
    wrong = codes if exact else [code for code in codes if not _may_warn(run, name, code, recorded, warnings, judgement)]
    if wrong:
        notes.note(location, f"the warnings {', '.join(wrong)} are not those that come out")
    judgement.claims += [
        f"the warning {code}; here {_quote(warnings.get(code))} comes out" for code in codes if code not in wrong
    ]


def _may_warn(
    run: Run, name: str, code: str, recorded: Mapping[str, str], warnings: Mapping[str, str], judgement: Judgement
) -> bool:
    """True if rounding or chance explains how a warning of a run differs from the one that came out."""
    if code in recorded and code in warnings:
        return _are_alike(recorded[code], warnings[code])
    failed = {check["code"]: check["text"] for check in _entry(run.manifest, "checks", name, []) if check["passed"] is False}
    return judgement.is_random and (code not in recorded or recorded[code] == failed.get(code))


def _judge_legends(run: Run, name: str, replayed: ReplayedAudit, judgement: Judgement, notes: Notes) -> None:
    """Compare the recorded legends of the numbers that attacks store with those that the attacks declare."""
    repeated = {
        stage: legend for scratch in replayed.scratches for stage, legend in _entry(scratch.manifest, "extras", name, {}).items()
    }
    recorded = _entry(run.manifest, "extras", name, {})
    for stage in sorted(repeated.keys() | recorded.keys()):
        if stage not in repeated and stage not in replayed.attacking:
            judgement.claims.append(f"what the numbers that {stage} stores mean")
        elif repeated.get(stage) != recorded.get(stage):
            notes.note(f"{name} manifest", f"extras of {stage} are explained differently than the attack does")


def _quote(text: str | None) -> str:
    return "none" if text is None else repr(text)


def _judge_repairs(run: Run, name: str, replayed: ReplayedAudit, exact: bool, judgement: Judgement, notes: Notes) -> None:
    """Compare the repair of the gradients with the one that came out. Checks near their limits decide which one it is."""
    repeated, recorded = (_entry(manifest, "repairs", name) for manifest in (replayed.manifest, run.manifest))
    if _agrees(repeated, recorded):
        return
    if exact or not (judgement.is_random or judgement.claims):
        notes.note(f"{name} manifest", "repairs is not what comes out")
    else:
        judgement.claims.append(f"the repair of the gradients; here {repeated!r} comes out")


def _judge_costs(
    run: Run,
    name: str,
    replayed: ReplayedAudit,
    fresh: Mapping[str, Any],
    exact: bool,
    judgement: Judgement,
    notes: Notes,
) -> None:
    """Compare the costs of a model's checks with those that came out, which are the least that a run pays."""
    location = f"{name} manifest"
    probes = _entry(run.manifest, "probes", name, {})
    for kind, count in _entry(replayed.manifest, "probes", name, {}).items():
        least = count + _entry(fresh, "probes", name, {}).get(kind, 0)
        if probes.get(kind, 0) < least * (1 if exact else CLEAR_PROBES):
            notes.note(location, f"the checks cost {least} {kind}, and the run states {probes.get(kind, 0)}")
        elif probes.get(kind, 0) < least:
            judgement.claims.append(f"the cost of the checks, which is {least} {kind} here and {probes.get(kind, 0)} there")
        elif probes.get(kind, 0) > least:
            judgement.claims.append(f"{probes[kind] - least} {kind} of checks beyond those that a run without interruption makes")


def _entry(manifest: Mapping[str, Any], key: str, name: str, default: Any = None) -> Any:
    return (manifest.get(key) or {}).get(name, default)


def _agrees(repeated: Any, recorded: Any) -> bool:
    """True if two JSON values are equal but for the last digits of their numbers."""
    if isinstance(repeated, Mapping) and isinstance(recorded, Mapping):
        return all(_agrees(repeated.get(key), recorded.get(key)) for key in repeated.keys() | recorded.keys())
    if isinstance(repeated, float) and isinstance(recorded, float | int) and not isinstance(recorded, bool):
        return bool(np.isclose(repeated, recorded, rtol=FIGURE_TOLERANCE, atol=1e-9))
    return bool(repeated == recorded)


def _judge_stage(
    run: Run,
    plan: Plan,
    source: ModelSource,
    stage: Stage,
    replayed: ReplayedAudit,
    exact: bool,
    judgement: Judgement,
    notes: Notes,
) -> None:
    """Compare the drawn rows of a stage."""
    replay = replayed.stage_rows(stage)
    if replay is None:
        return
    rows, apart = replay
    location, ids = f"{source.name} {stage.name} replay", rows[0].sample_id
    notes.note(location, "the sample is attacked in the run, or in its replay, but not in both", apart)
    margin = replayed.clean_margin(ids)
    comparison, unstable = compare_rows(*rows, margin), replayed.unstable_rows(stage, ids, margin)
    judgement.rows += len(comparison.samples)
    wrong = comparison.deviates if exact else comparison.contradicting & ~unstable
    judgement.deviations += int((comparison.deviates & ~wrong & ~unstable).sum())
    if not exact and unstable.any():
        judgement.claims.append(f"{int(unstable.sum())} rows of {stage.name}, whose paths split by rounding alone")
    if wrong.any():
        columns = ", ".join(name for name, differs in comparison.deviating.items() if (differs & wrong).any())
        notes.note(
            location,
            f"the row comes out differently when the attack is carried out again ({columns})",
            np.unique(comparison.samples[wrong]),
        )
    _judge_extras(run, source, stage, comparison, replayed, exact, notes)


def _judge_extras(
    run: Run, source: ModelSource, stage: Stage, comparison: Comparison, replayed: ReplayedAudit, exact: bool, notes: Notes
) -> None:
    """Compare the arrays that an attack stores besides its inputs, such as its patches."""
    ids = np.unique(comparison.samples).tolist()
    scratch = replayed.scratch(stage)
    if not scratch.legend(source.name, stage.name):
        return
    recorded, repeated = (folder.extras(source.name, stage.name, ids) for folder in (run, scratch))
    deviating = set() if exact else set(comparison.samples[comparison.deviates].tolist())
    wrong = [
        sample
        for sample in ids
        if not _equal_arrays(recorded.get(sample, {}), repeated.get(sample, {})) and sample not in deviating
    ]
    notes.note(f"{source.name} {stage.name} replay", "the attack stores other numbers of the sample", wrong)


def _equal_arrays(recorded: Mapping[str, Array], repeated: Mapping[str, Array]) -> bool:
    """True if two sets of arrays are equal up to rounding."""
    return recorded.keys() == repeated.keys() and all(
        recorded[name].shape == repeated[name].shape
        and np.allclose(recorded[name], repeated[name], rtol=1e-3, atol=1e-5, equal_nan=True)
        for name in repeated
    )


def _judge_random_rows(
    plan: Plan,
    source: ModelSource,
    replayed: ReplayedAudit,
    judgement: Judgement,
    notes: Notes,
    repeat: Callable[[], ReplayedAudit],
) -> None:
    """Compare how often the drawn samples of a random model break. Where that is suspicious, replay them several times."""
    levels = _lowest_levels(plan, replayed, judgement)
    if is_suspicious(levels):
        repetitions = [_lowest_levels(plan, repeat(), judgement)[1:] for _ in range(REPEATS)]
        levels = np.concatenate([levels, *repetitions])
        if rank_chance(levels) < CHANCE:
            notes.note(
                f"{source.name} replay",
                "samples break at smaller budgets than recorded, more often than chance explains",
                plan.ids[(levels[1:] < levels[0]).mean(0) > 0.5],
            )


def _lowest_levels(plan: Plan, replayed: ReplayedAudit, judgement: Judgement) -> Array:
    """(2, n) indices of the smallest budgets at which the drawn samples break in the run and in a replay."""
    levels = np.full((2, len(plan.ids)), len(plan.levels))
    for stage in plan.stages if len(plan.levels) else ():
        rows = replayed.stage_rows(stage)
        for side, records in enumerate(rows[0] if rows else ()):
            _lower(levels[side], plan, records)
            judgement.rows += len(records) if side else 0
    return levels


def _lower(lowest: Array, plan: Plan, records: Records) -> None:
    """Enter the smallest budgets at which rows break into `lowest`, (n,) indices of budgets."""
    broken = has_broken(records)
    index = np.searchsorted(plan.ids, records.sample_id[broken])
    np.minimum.at(lowest, index, np.searchsorted(plan.levels, records.broken[broken]))
