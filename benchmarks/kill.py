"""Kills long commands at random moments, and holds what comes out against runs left alone.

    python benchmarks/kill.py
        20 kills in turns over all commands
    python benchmarks/kill.py --kills 100 --only audit benchmark --seed 1

A kill is SIGKILL. A command is killed at a moment drawn evenly over the time of a run in one go,
and resumed. After each kill, every file of rows that was there before must be there as it was
(nothing lost), and no cell may have two rows (nothing twice). In the end its rows and arrays must
be those of the run in one go, and no half-written file may be left. `train agent` goes on with
another training than one that was never stopped: of it is asked that its file is whole or absent at
every moment, and that the queries that it counts never fall.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open
from safetensors.numpy import load_file

GROUP = "sweeps"
RUNS = {
    "": "--kills 2 --only audit",
}
KEYS = (("model", "attack", "sample_id"), ("attempt", "model", "variant"), ("sample_id", "level"))
"""Columns of which no two rows may agree; the first that a file has count."""
FOLDERS = (".", "before", "after")
"""Subfolders that may contain rows and arrays."""
Rows = dict[str, list[dict[str, Any]]]


# --- what a run holds
# ------------------------------------------------------------------------------------------------


def read_rows(out: Path) -> Rows:
    """The rows of each folder, those of the audits of a hardening too."""
    files = {folder: out / folder / "rows.parquet" for folder in FOLDERS}
    return {
        folder: pq.read_table(file).to_pylist() for folder, file in files.items() if file.is_file()
    }


def read_arrays(out: Path) -> dict[str, np.ndarray]:
    """The stored inputs, and the weights of a hardening."""
    files = [
        *out.glob("*.safetensors"),
        *(path for folder in FOLDERS for path in (out / folder).glob("arrays/*")),
    ]
    return {
        f"{path.relative_to(out)} {name}": array
        for path in sorted(files)
        for name, array in load_file(path).items()
    }


def count_duplicates(rows: Rows) -> int:
    """Rows with the key of another."""
    count = 0
    for entries in rows.values():
        if entries:
            present = (columns for columns in KEYS if set(columns) <= entries[0].keys())
            columns = next(present, tuple(entries[0]))
            count += len(entries) - len(
                {tuple(row[column] for column in columns) for row in entries}
            )
    return count


def compare(expected: Path, actual: Path) -> list[str]:
    """Differences between two finished runs, seconds aside; empty if they agree."""
    if expected.is_file():
        return sorted(load_file(expected).keys() ^ load_file(actual).keys())

    def plain(rows: list[dict[str, Any]]) -> list[str]:
        return sorted(
            json.dumps(row | {"seconds": 0}, sort_keys=True, default=repr) for row in rows
        )

    first, second = read_rows(expected), read_rows(actual)
    differences = [name for name, rows in first.items() if plain(rows) != plain(second[name])]
    arrays, second_arrays = read_arrays(expected), read_arrays(actual)
    if arrays.keys() != second_arrays.keys() or any(
        arrays[name].tobytes() != second_arrays[name].tobytes() for name in arrays
    ):
        differences.append("arrays")
    return differences + [
        f"left behind: {path.name}" for path in sorted(actual.rglob("*")) if is_leftover(path)
    ]


def is_leftover(path: Path) -> bool:
    """True if a finished run must not contain this file."""
    return path.is_file() and (".parts" in path.parts or ".tmp" in path.name)


# --- commands that are resumed
# ---------------------------------------------------------------------------------------


@dataclass
class Command:
    """A command, and what became of its kills."""

    name: str
    words: str
    file: bool = False
    """True if the command writes one file, not a folder."""
    seconds: float = 0.0
    kills: int = 0
    with_work: int = 0
    """Kills after which something was in the folder already."""
    missing: int = 0
    duplicates: int = 0
    differences: list[str] = field(default_factory=list)


COMMANDS = {
    "audit": "audit --samples 60 --eps 0:0.2:5 --attack pgd?steps=60&restarts=3 --batch-size 8",
    "rlab": "audit --samples 60 --norm l2 --eps 1,2 --attack rlab?steps=120 --batch-size 8",
    "benchmark": "benchmark --samples 60 --distortions gaussian-noise+occlusion --patch 2 "
    "--steps 400 --levels 1,2",
    "unrestricted": "unrestricted --generator GENERATOR --per-class 30 --steps 40",
    "harden": "harden --samples 60 --epochs 4 --attack pgd?steps=20 --batch-size 16",
    "train agent": "train agent --samples 60 --steps 400",
}
"""All that can be killed; each takes a few seconds to a minute."""


def start(words: str, out: Path) -> subprocess.Popen[str]:
    """Start a command, or resume it."""
    resume = (
        ["--resume"]
        if out.is_file()
        or any((out / name).exists() for name in ("manifest.json", ".parts/plan.json"))
        else []
    )
    return measure.brinell("--quiet", *words.split(), "--out", str(out), *resume)


def run_to_end(words: str, out: Path) -> None:
    """The command, which must end well."""
    process = start(words, out)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"brinell {words} ended with {process.returncode}:\n{output}")


def kill_command(command: Command, work: Path, kills: int, rng: random.Random) -> None:
    """Kill one command so often, and let it end."""
    work.mkdir()
    ending = ".safetensors" if command.file else ""
    reference, out = work / f"whole{ending}", work / f"killed{ending}"
    begin = time.perf_counter()
    run_to_end(command.words, reference)
    command.seconds = time.perf_counter() - begin
    before: dict[str, bytes] = {}
    while command.kills < kills:
        process = start(command.words, out)
        try:
            process.communicate(timeout=rng.uniform(0, command.seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            command.kills += 1
            before = check(command, out, before)
            command.with_work += bool(before)
            continue
        if (
            not process.returncode
        ):  # it came to its end between two kills: begin again in another folder
            command.differences += compare(reference, out)
            out, before = work / f"killed-{command.kills}{ending}", {}
    run_to_end(command.words, out)
    check(command, out, before)
    command.differences += compare(reference, out)


def check(command: Command, out: Path, before: dict[str, bytes]) -> dict[str, bytes]:
    """Contents of the folder after a kill; counts missing and duplicate rows."""
    if command.file:
        if not out.exists():
            command.missing += bool(before)
            return {}
        with safe_open(out, "np") as tensors:
            queries = sum(
                json.loads(tensors.metadata()["brinell"])["about"]["training_queries"].values()
            )
        command.missing += queries < int(before.get("queries", b"0"))
        return {"queries": str(queries).encode()}
    contents = {
        path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")
    }
    command.duplicates += count_duplicates(read_rows(out))
    # What is in .parts goes into files of rows, which the end shows.
    command.missing += sum(
        not name.startswith(".parts") and contents.get(name) != content
        for name, content in before.items()
    )
    return contents


def kill_commands(options: Namespace, work: Path, rng: random.Random) -> bool:
    """Kill, resume, compare; True if nothing was lost, made twice or differs."""
    if "unrestricted" in options.only:
        run_to_end("train generator --steps 300", work / "generator.safetensors")
    table = measure.Table(
        "Killed and resumed",
        "command, s in one go, kills, with work done, lost, twice, differences",
    )
    commands = []
    for number, name in enumerate(options.only):
        words = COMMANDS[name].replace("GENERATOR", str(work / "generator.safetensors"))
        command = Command(name, words, file=name == "train agent")
        share = options.kills // len(options.only) + (number < options.kills % len(options.only))
        kill_command(command, work / name, share, rng)
        counts = (command.kills, command.with_work, command.missing, command.duplicates)
        table.add(name, f"{command.seconds:.1f}", *counts, "; ".join(command.differences) or "none")
        commands.append(command)
    return not any(
        command.missing or command.duplicates or command.differences for command in commands
    )


def main() -> int:
    """All kills; the exit code is 1 where anything was lost, made twice or differs."""
    options = measure.arguments(__doc__, only=list(COMMANDS), kills=20, seed=0)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="brinell-kill-") as folder:
        return int(not kill_commands(options, Path(folder), rng))


if __name__ == "__main__":
    sys.exit(main())
