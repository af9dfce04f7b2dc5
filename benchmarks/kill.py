"""Kill an audit at random moments, resume it until it is done, and compare with an audit that was never killed.

Each trial starts `brinell audit`, sends SIGKILL after a random time, starts it again with `--resume`, and so on until it
ends by itself. Its records must then equal those of the undisturbed run in every column but `seconds`: no row lost, none
twice. So must the stored adversarial inputs, byte for byte, and no half-written file may be left behind.
"""

import os
import random
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
    """What became of one run that was killed now and then."""

    kills: int
    rows: int
    problems: list[str]


def audit(options, out: Path, *extra: str) -> subprocess.Popen[str]:
    """Start the audit."""
    tool = Path(sys.executable).with_name("brinell")
    line = [str(tool), "audit", "--data", options.data, "--model", options.model, "--eps", options.eps]
    line += ["--samples", str(options.samples), "--out", str(out), *extra]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    return subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for an audit to end well."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the audit ended with {process.returncode}:\n{output}")


def killed_and_resumed(options, out: Path, seconds: float, rng: random.Random) -> int:
    """Kill and resume until the run is done; returns the number of kills, at least 1."""
    kills = 0
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
            continue
        if process.returncode:
            raise SystemExit(f"resuming ended with {process.returncode}:\n{output}")
        if kills:
            return kills


def compare(clean: Path, resumed: Path) -> list[str]:
    """What differs between two finished runs; nothing where all is well."""
    problems = []
    left, right = Run.open(clean), Run.open(resumed)
    rows, others = left.records(), right.records()
    mine, theirs = ([tuple(row) for row in zip(*(getattr(r, name) for name in KEY), strict=True)] for r in (rows, others))
    lost, more = len(set(mine) - set(theirs)), len(set(theirs) - set(mine))
    twice = len(theirs) - len(set(theirs))
    problems += [f"{count} rows {what}" for count, what in ((lost, "lost"), (more, "too many"), (twice, "twice")) if count]
    if not problems:
        problems += [f"column {name} differs" for name in differing(rows, others)]
    problems += [f"left behind: {path.name}" for path in resumed.rglob("*") if is_leftover(path)]
    if right.manifest["state"] != "finished":
        problems.append(f"state is {right.manifest['state']}")
    return problems + differing_inputs(left, right, rows)


def is_leftover(path: Path) -> bool:
    """Whether a finished run should not hold this file."""
    return path.is_file() and (path.name.startswith("unit-") or ".tmp" in path.name or path.suffix in (".tmp", ".part"))


def differing(rows: Records, others: Records) -> list[str]:
    """The columns, seconds apart, in which the same rows differ."""
    orders = [np.lexsort([getattr(r, name) for name in KEY]) for r in (rows, others)]
    found = []
    for name in (field.name for field in fields(Records) if field.name != "seconds"):
        a, b = (getattr(r, name)[order] for r, order in zip((rows, others), orders, strict=True))
        same_nulls = np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b))
        if not same_nulls or not np.array_equal(np.ma.compressed(a), np.ma.compressed(b)):
            found.append(name)
    return found


def differing_inputs(left: Run, right: Run, rows: Records) -> list[str]:
    """The stages whose stored adversarial inputs differ."""
    ids = np.unique(rows.sample_id).tolist()
    problems = []
    for model in np.unique(rows.model):
        for attack in np.unique(rows.attack):
            mine, theirs = (run.adversarial(str(model), str(attack), ids) for run in (left, right))
            if mine.keys() != theirs.keys() or any(mine[i].tobytes() != theirs[i].tobytes() for i in mine):
                problems.append(f"stored inputs of {attack} differ")
    return problems


def trial(options, folder: Path, clean: Path, seconds: float, rng: random.Random) -> Trial:
    """One run, killed and resumed, compared with the clean one."""
    kills = killed_and_resumed(options, folder, seconds, rng)
    return Trial(kills, len(Run.open(folder).records()), compare(clean, folder))


def main() -> None:
    """All trials, and a verdict."""
    options = measure.arguments(__doc__ or "", data="digits", model="digits-cnn", eps="0:0.2:3", samples=100, trials=20, seed=0)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="brinell-kill-") as temporary:
        clean = Path(temporary) / "clean"
        finish(audit(options, Path(temporary) / "warm-up"))
        begin = time.perf_counter()
        finish(audit(options, clean))
        seconds = time.perf_counter() - begin
        told = measure.command(options, "data", "model", "eps", "samples", "trials", "seed")
        note = f"The undisturbed run takes {seconds:.1f} s and writes {len(Run.open(clean).records())} rows."
        table = measure.Table("Killed and resumed", told, ["trial", "kills", "rows", "differences"], note)
        bad = kills = 0
        for number in range(options.trials):
            result = trial(options, Path(temporary) / f"trial-{number}", clean, seconds, rng)
            table.add(number + 1, result.kills, result.rows, "; ".join(result.problems) or "none")
            bad, kills = bad + bool(result.problems), kills + result.kills
        table.add("all", kills, "", f"{options.trials - bad} of {options.trials} runs equal the undisturbed one")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
