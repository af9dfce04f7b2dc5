"""Kill an audit at random moments, resume it until it is done, and compare with an audit that was never killed.

Each trial starts `brinell audit`, sends SIGKILL after a random time, starts it again with `--resume`, and so on until it
ends by itself. Its records must then equal those of the undisturbed run in every column but `seconds`: no row lost, none
twice. So must the stored adversarial inputs, byte for byte. Half-written files that stay behind are counted apart. A kill while
the interpreter starts proves little, so the table also says how many kills found work in the folder (`with work
done`), and how many of those found a stage half done (`mid-stage`), which is where regrouping could change a result. The batches
are small so that a stage has many shards: with one shard for all samples a resumed run could not group them differently.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

import measure
import numpy as np

from brinell.core.record import Records
from brinell.store.run import Run

KEY = ("model", "attack", "sample_id", "eps")


@dataclass
class Trial:
    """Result of one run that was killed several times."""

    kills: int
    with_work: int
    mid_stage: int
    rows: int
    differences: list[str]
    left_behind: list[str]


def audit(options, out: Path, *extra: str) -> subprocess.Popen[str]:
    """Start the audit."""
    tool = Path(sys.executable).with_name("brinell")
    line = [str(tool), "audit", "--data", options.data, "--model", options.model, "--eps", options.eps]
    line += [
        "--samples",
        str(options.samples),
        "--select",
        "first",
        "--batch-size",
        str(options.batch_size),
        "--out",
        str(out),
        *extra,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    return subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for an audit to end well."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the audit ended with {process.returncode}:\n{output}")


def killed_and_resumed(options, out: Path, seconds: float, rng: random.Random) -> tuple[int, int, int]:
    """Kill and resume until the run is done; returns the kills (at least 1), those with work done, those mid-stage."""
    kills = with_work = mid_stage = 0
    while True:
        resume = ["--resume"] if (out / "manifest.json").exists() else []
        process = audit(options, out, *resume)
        try:
            # The first attempt never gets its full time; later ones often do, or a short run would spend its life starting up.
            moment = rng.uniform(0.05, 0.95) if kills == 0 else rng.uniform(0.2, 1.8)
            output, _ = process.communicate(timeout=moment * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            with_work += any((out / "records").glob("*.parquet"))
            mid_stage += any((out / "records").glob("shard-*.parquet"))
            continue
        if process.returncode:
            raise SystemExit(f"resuming ended with {process.returncode}:\n{output}")
        if kills:
            return kills, with_work, mid_stage
        shutil.rmtree(out)


def compare(clean: Path, resumed: Path) -> list[str]:
    """Differences between two finished runs; empty if they agree."""
    problems = []
    clean_run, resumed_run = Run.open(clean), Run.open(resumed)
    rows, resumed_rows = clean_run.records(), resumed_run.records()
    expected, actual = (
        [tuple(row) for row in zip(*(getattr(r, name) for name in KEY), strict=True)] for r in (rows, resumed_rows)
    )
    missing, extra = len(set(expected) - set(actual)), len(set(actual) - set(expected))
    duplicates = len(actual) - len(set(actual))
    problems += [
        f"{count} rows {description}"
        for count, description in ((missing, "lost"), (extra, "too many"), (duplicates, "twice"))
        if count
    ]
    if not problems:
        problems += [f"differing: {name}" for name in differing(rows, resumed_rows)]
    if resumed_run.manifest["state"] != "finished":
        problems.append(f"state is {resumed_run.manifest['state']}")
    return problems + differing_inputs(clean_run, resumed_run, rows)


def is_leftover(path: Path) -> bool:
    """True if a finished run must not contain this file."""
    return path.is_file() and (path.name.startswith("shard-") or ".tmp" in path.name or path.suffix in (".tmp", ".part"))


def differing(rows: Records, resumed_rows: Records) -> list[str]:
    """The columns, seconds apart, in which the same rows differ."""
    orders = [np.lexsort([getattr(r, name) for name in KEY]) for r in (rows, resumed_rows)]
    names = []
    for name in (field.name for field in fields(Records) if field.name != "seconds"):
        a, b = (getattr(r, name)[order] for r, order in zip((rows, resumed_rows), orders, strict=True))
        same_nulls = np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b))
        if not same_nulls or not np.array_equal(np.ma.compressed(a), np.ma.compressed(b)):
            names.append(name + largest_change(a, b))
    return names


def largest_change(a: np.ma.MaskedArray, b: np.ma.MaskedArray) -> str:
    """By how much a column of fractions differs, which tells rounding from another result."""
    if a.dtype.kind != "f":
        return ""
    rows = int(np.ma.filled(a != b, False).sum())
    return f" in {rows} of {len(a)} rows, by at most {float(np.ma.abs(a - b).max()):.1e}"


def differing_inputs(clean_run: Run, resumed_run: Run, rows: Records) -> list[str]:
    """The stages whose stored adversarial inputs differ."""
    ids = np.unique(rows.sample_id).tolist()
    problems = []
    for model in np.unique(rows.model):
        for attack in np.unique(rows.attack):
            expected, actual = (run.adversarial(str(model), str(attack), ids) for run in (clean_run, resumed_run))
            if expected.keys() != actual.keys() or any(expected[i].tobytes() != actual[i].tobytes() for i in expected):
                problems.append(f"stored inputs of {attack} differ")
    return problems


def trial(options, folder: Path, clean: Path, seconds: float, rng: random.Random) -> Trial:
    """One run, killed and resumed, compared with the clean one."""
    kills, with_work, mid_stage = killed_and_resumed(options, folder, seconds, rng)
    leftovers = [path.name for path in folder.rglob("*") if is_leftover(path)]
    return Trial(kills, with_work, mid_stage, len(Run.open(folder).records()), compare(clean, folder), leftovers)


def main() -> None:
    """All trials, and a verdict."""
    options = measure.arguments(
        __doc__ or "", data="digits", model="digits-cnn", eps="0:0.2:9", samples=300, batch_size=16, trials=20, seed=0
    )
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="brinell-kill-") as temporary:
        clean = Path(temporary) / "clean"
        finish(audit(options, Path(temporary) / "warm-up"))
        begin = time.perf_counter()
        finish(audit(options, clean))
        seconds = time.perf_counter() - begin
        command = measure.command(options, "data", "model", "eps", "samples", "batch_size", "trials", "seed")
        note = f"The undisturbed run takes {seconds:.1f} s and writes {len(Run.open(clean).records())} rows."
        columns = ["trial", "kills", "with work done", "mid-stage", "rows", "differences", "files left behind"]
        table = measure.Table("Killed and resumed", command, columns, note)
        trials: list[Trial] = []
        for number in range(options.trials):
            result = trial(options, Path(temporary) / f"trial-{number}", clean, seconds, rng)
            trials.append(result)
            told_apart = ["; ".join(texts) or "none" for texts in (result.differences, result.left_behind)]
            table.add(number + 1, result.kills, result.with_work, result.mid_stage, result.rows, *told_apart)
        sums = [sum(getattr(outcome, name) for outcome in trials) for name in ("kills", "with_work", "mid_stage")]
        equal, clear = (sum(not getattr(outcome, name) for outcome in trials) for name in ("differences", "left_behind"))
        table.add("all", *sums, "", f"{equal} of {len(trials)} runs equal", f"none in {clear} of {len(trials)}")
    sys.exit(equal < len(trials) or clear < len(trials))


if __name__ == "__main__":
    main()
