"""Duration of an audit in shards on any number of processes, by simulation of a measured run.

    python benchmarks/simulate.py RUN --workers 1 2 8           the run itself, on more processes
    python benchmarks/simulate.py RUN --samples 50000 --scale 0.5 --workers 1 8 64 512 --failures 0.02

A run's records say at which budgets each stage attacked a sample, what came of it, and how many seconds it took. The simulation
cuts groups as an audit does, by the same code (`engine.stage_run.GroupQueue`), hands them to processes in turns, and lets each
take the recorded seconds of its samples, times a random factor for stragglers, and a fixed cost for claim and files. A process
fails at random; its work is free after a lease, and the process restarts. Stages wait for each other; other samples than those of
the run are drawn from it with replacement. On a GPU each batch has a fixed cost: `--half` is the group size at which it is half
of the total.
"""

import argparse
import heapq
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from brinell.core.record import Outcome, Records
from brinell.engine.stage_run import Answers, GroupQueue, OpenGroup
from brinell.runners.shards import group_size, last_group_size
from brinell.store.run import Run

ATTACKED_OUTCOMES = (Outcome.FOOLED, Outcome.FOOLED_BELOW, Outcome.SURVIVED)


@dataclass
class Stage:
    """Results of a stage for each sample: its first level, and the outcome at each attacked level."""

    start: dict[int, int] = field(default_factory=dict)
    """Sample to the first level attacked."""
    answers: dict[tuple[int, int], tuple[int, bool, float]] = field(default_factory=dict)
    """(sample, level attacked) to (smallest level broken, whether that is all, seconds)."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Properties of processes and their store."""

    overhead: float = 0.05
    """Seconds that claim and files of a group cost."""
    spread: float = 0.1
    """Of the logarithm of a group's time: stragglers."""
    half: float = 0.0
    """Samples of a group whose price a batch has beside its own."""
    failures: float = 0.0
    """Of a process, in an hour."""
    lease: float = 60.0
    restart: float = 60.0
    """Seconds until a process that failed is back."""
    begin: float = 20.0
    """Seconds until a process has imported everything and opened model and data."""


@dataclass(frozen=True)
class Outlook:
    """Result of a simulation."""

    seconds: float
    busy: float
    """Seconds of all processes together in which they attacked."""
    groups: int
    failures: int


def recorded(records: Records, model: str) -> tuple[list[Stage], float]:
    """The stages of a model in a run, and the seconds of its first check."""
    levels = np.unique(records.eps[records.eps > 0])
    of_model = records.model == model
    clean = float(records.seconds[of_model & (records.attack == "clean")].sum())
    stages_by_attack: dict[str, Stage] = {}
    attacked = of_model & np.isin(records.outcome, [str(outcome) for outcome in ATTACKED_OUTCOMES])
    for attack in dict.fromkeys(records.attack[attacked].tolist()):
        stage, mask = stages_by_attack.setdefault(str(attack), Stage()), attacked & (records.attack == attack)
        by_sample: dict[int, list[int]] = {}
        for row in np.flatnonzero(mask).tolist():
            by_sample.setdefault(int(records.sample_id[row]), []).append(row)
        for sample, rows in by_sample.items():
            levels_of_rows = {row: int(np.searchsorted(levels, records.eps[row])) for row in rows}
            level = stage.start[sample] = max(levels_of_rows.values())
            finds = sorted(
                (row for row in rows if records.outcome[row] == str(Outcome.FOOLED)), key=lambda row: -levels_of_rows[row]
            )
            survivor_rows = [row for row in rows if records.outcome[row] == str(Outcome.SURVIVED)]
            # The successful attack of a minimal attack also paid for the failure below its distance.
            prepaid = bool(survivor_rows) and not float(records.forwards[survivor_rows[0]])
            for find in finds:
                stage.answers[sample, level] = (
                    levels_of_rows[find],
                    prepaid or levels_of_rows[find] == 0,
                    float(records.seconds[find]),
                )
                level = levels_of_rows[find] - 1
            if survivor_rows and not prepaid:
                stage.answers[sample, levels_of_rows[survivor_rows[0]]] = (
                    len(levels),
                    True,
                    float(records.seconds[survivor_rows[0]]),
                )
    return list(stages_by_attack.values()), clean


def resample(stages: Sequence[Stage], samples: int, scale: float, rng: random.Random) -> list[Stage]:
    """The stages of another number of samples, drawn from those that are there, each with all that was done to it."""
    ids = sorted({sample for stage in stages for sample in stage.start})
    sample_ids = [rng.choice(ids) for _ in range(samples)] if samples else ids
    resampled = [Stage() for _ in stages]
    for old, new in zip(stages, resampled, strict=True):
        by_sample: dict[int, list[tuple[int, tuple[int, bool, float]]]] = {}
        for (sample, level), answer in old.answers.items():
            by_sample.setdefault(sample, []).append((level, answer))
        for number, sample in enumerate(sample_ids):
            if sample in old.start and sample in by_sample:
                new.start[number] = old.start[sample]
                for level, (level_reached, closed, seconds) in by_sample[sample]:
                    new.answers[number, level] = (level_reached, closed, seconds * scale)
    return resampled


def simulate(
    stages: Sequence[Stage], workers: int, shards: int, most: int, machine: Machine, rng: random.Random, clean: float = 0.0
) -> Outlook:
    """Carry out stages on so many processes.

    Args:
        stages: what is to be done.
        workers: processes.
        shards: into how many groups the samples of a stage are cut at least.
        most: samples in a group at most.
        machine: what processes and store are like.
        rng: decides who is slow and who fails.
        clean: seconds of the first check, which is shared as the stages are.
    """
    clock, busy, groups, failed = machine.begin + clean / workers, 0.0, 0, 0
    for stage in stages:
        samples = np.array(sorted(stage.start), dtype=int)
        if not len(samples):
            continue
        broken = np.zeros(int(samples.max()) + 1, dtype=int)
        broken[samples] = [stage.start[sample] + 1 for sample in samples.tolist()]
        size = group_size(most, len(samples), shards)
        descent, answers = (
            GroupQueue(samples, broken, size, partial(last_group_size, shards=shards)),
            Answers(len(broken), int(broken.max())),
        )
        claimed: dict[int, OpenGroup] = {}
        free = [(clock, number) for number in range(workers)]
        heapq.heapify(free)
        running: list[tuple[float, int, OpenGroup, bool]] = []
        waiting: list[tuple[float, int]] = []
        descent.advance(answers)
        while True:
            open_ = [cut for cut in descent.groups if id(cut) not in claimed]
            while open_ and free:
                start, number = heapq.heappop(free)
                cut, start = open_.pop(0), max(start, clock)
                claimed[id(cut)] = cut
                pairs = list(zip(cut.index.tolist(), cut.level.tolist(), strict=True))
                work_seconds = sum(stage.answers[pair][2] for pair in pairs)
                duration = (
                    work_seconds * (1 + machine.half / len(pairs)) * rng.lognormvariate(0, machine.spread) + machine.overhead
                )
                dies = rng.expovariate(machine.failures / 3600) if machine.failures else math.inf
                heapq.heappush(running, (start + min(duration, dies), number, cut, dies < duration))
                busy, groups = busy + min(duration, dies), groups + 1
            if not running and not waiting:
                break
            ends = running[0][0] if running else math.inf
            if waiting and waiting[0][0] <= ends:  # the claim of a process that died is lost
                clock, claim = heapq.heappop(waiting)
                del claimed[claim]
                continue
            clock, number, cut, died = heapq.heappop(running)
            heapq.heappush(free, (clock + (machine.restart if died else 0), number))
            if died:
                failed += 1
                heapq.heappush(waiting, (clock + machine.lease, id(cut)))
                continue
            pairs = zip(cut.index.tolist(), cut.level.tolist(), strict=True)
            level_reached, closed = np.array([stage.answers[pair][:2] for pair in pairs]).T
            answers.add(cut.index, cut.level, np.minimum(level_reached, broken.max()), closed)
            descent.advance(answers)
    return Outlook(clock, busy, groups, failed)


def main() -> int:
    """The table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", help="a finished run folder")
    parser.add_argument("--samples", type=int, default=0, help="drawn from those of the run; 0: those of the run")
    parser.add_argument("--models", type=int, default=1, help="so many models of this kind, one after another")
    parser.add_argument("--scale", type=float, default=1.0, help="what the recorded seconds are multiplied by")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shards", type=int, default=0, help="0: as many as processes")
    parser.add_argument("--group", type=int, default=512, help="samples in a group at most")
    for name in ("overhead", "spread", "half", "failures", "lease", "restart", "begin"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Machine(), name))
    parser.add_argument("--price", type=float, default=0.0, help="of a process, an hour")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    records = Run.open(options.run).records()
    stages, clean = recorded(records, str(records.model[0]))
    per_sample = len(np.unique(records.sample_id))
    rng = random.Random(options.seed)
    drew = resample(stages, options.samples, options.scale, rng)
    clean *= options.scale * (options.samples or per_sample) / per_sample
    machine = Machine(**{name: getattr(options, name) for name in Machine.__dataclass_fields__})
    print("| processes | shards | hours | of the time of one | busy | groups | failures | processes x hours | price |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    first = None
    for workers in options.workers:
        outlook = simulate(drew, workers, options.shards or workers, options.group, machine, rng, clean)
        hours = options.models * outlook.seconds / 3600
        first = first or hours * workers
        process_hours = workers * hours
        print(
            f"| {workers} | {options.shards or workers} | {hours:,.3g} | 1/{first / hours:.3g} | "
            f"{100 * outlook.busy / (workers * outlook.seconds):.0f} % | {options.models * outlook.groups:,} | "
            f"{options.models * outlook.failures} | {process_hours:,.3g} | {process_hours * options.price:,.0f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
