"""Kills every long command at random moments, resumes it, and holds what comes out against a run that nobody killed.

    python benchmarks/kill_commands.py             20 kills in turns over all commands
    python benchmarks/kill_commands.py --kills 100 --only audit benchmark --seed 1

A kill is SIGKILL to the whole command, at a moment drawn evenly over the time of a run in one go. After each, every file of rows
that was there before must be there as it was (nothing lost), and no cell may have two rows (nothing twice). Whatever kills are
left for a command, it is then resumed to its end, and its rows and arrays must be those of the run in one go.

`train-agent` goes on with another training than one that was never stopped: of it is asked that its file is whole or absent at
every moment, and that the queries that it counts never fall. `kill.py` looks at the stages of an audit more closely.
"""

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open
from safetensors.numpy import load_file

LOOSE = {"seconds"}
"""Columns that a clock decides."""
KEYS = {
    "records": (("model", "attack", "sample_id", "eps"), ("attempt", "model", "variant")),
    "data": (("sample_id", "level"),),
    "samples": (("sample_id",),),
}
"""By folder, the columns of which no two rows may agree; the first that a file has count."""
FOLDERS = (".", "before", "after")
"""Subfolders that may contain rows and arrays."""
SMALL = ["--samples", "60"]


@dataclass
class Command:
    """A command, and what became of its kills."""

    name: str
    words: list[str]
    file: bool = False
    """True if the command writes one file, not a folder."""
    seconds: float = 0.0
    kills: int = 0
    missing: int = 0
    duplicates: int = 0
    differs: list[str] = field(default_factory=list)


def commands(work: Path) -> list[Command]:
    """All that can be killed; each takes a few seconds to a minute."""
    generator = work / "generator.safetensors"
    run_to_end(["train-generator", "--out", str(generator), "--width", "8", "--steps", "300", "--rate", "0.004"])
    patch_options = ["--distortions", "gaussian-noise+occlusion", "--patch", "2"]
    return [
        Command("audit", ["audit", *SMALL, "--eps", "0:0.2:5", "--attack", "pgd?steps=60&restarts=3", "--batch-size", "8"]),
        Command("rlab", ["audit", *SMALL, "--norm", "l2", "--eps", "1, 2", "--attack", "rlab?steps=120", "--batch-size", "8"]),
        Command("benchmark", ["benchmark", *SMALL, *patch_options, "--steps", "400", "--levels", "1,2"]),
        Command("unrestricted", ["unrestricted", "--generator", str(generator), "--per-class", "30", "--steps", "40"]),
        Command("harden", ["harden", *SMALL, "--epochs", "4", "--attack", "pgd?steps=20", "--batch-size", "16"]),
        Command("train-agent", ["train-agent", "--samples", "60", "--steps", "400", "--probes", "4", "--fits", "50"], file=True),
    ]


def main() -> int:
    """Kill, resume, compare; the exit code is 1 where anything was lost, made twice or differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=None)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        selected = [candidate for candidate in commands(work) if options.only is None or candidate.name in options.only]
        for number, command in enumerate(selected):
            share = options.kills // len(selected) + (number < options.kills % len(selected))
            kill(command, work / command.name, share, rng)
            print(
                f"{command.name:<14}{command.seconds:7.1f} s in one go  {command.kills:4} kills  {command.missing} lost  "
                f"{command.duplicates} twice  {len(command.differs)} differ {'; '.join(command.differs[:3])}",
                flush=True,
            )
    bad = [entry for entry in selected if entry.missing or entry.duplicates or entry.differs]
    summary = f"not equal: {', '.join(entry.name for entry in bad)}" if bad else "all equal"
    print(f"{sum(entry.kills for entry in selected)} kills, {summary}")
    return bool(bad)


def kill(command: Command, work: Path, kills: int, rng: random.Random) -> None:
    """Kill one command so often, and let it end."""
    work.mkdir()
    ending = ".safetensors" if command.file else ""
    uninterrupted, out = work / f"whole{ending}", work / f"killed{ending}"
    begin = time.perf_counter()
    run_to_end([*command.words, "--out", str(uninterrupted)])
    command.seconds = time.perf_counter() - begin
    before: dict[str, bytes] = {}
    finished = False
    while command.kills < kills:
        if finished:  # it came to its end between two kills: begin again in another folder
            compare(command, uninterrupted, out)
            out, before, finished = work / f"killed-{command.kills}{ending}", {}, False
        process = start([*command.words, "--out", str(out), *(["--resume"] if can_resume(out) else [])])
        try:
            finished = process.wait(rng.uniform(0, command.seconds)) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            command.kills += 1
            before = check(command, out, before)
    if not finished:
        run_to_end([*command.words, "--out", str(out), *(["--resume"] if can_resume(out) else [])])
    check(command, out, before)
    compare(command, uninterrupted, out)


def can_resume(out: Path) -> bool:
    """True if a run exists that can be resumed."""
    return out.is_file() or (out / "manifest.json").exists()


def check(command: Command, out: Path, before: dict[str, bytes]) -> dict[str, bytes]:
    """Contents of the folder after a kill; counts missing and duplicate rows."""
    if command.file:
        if not out.exists():
            command.missing += bool(before)
            return {}
        load_file(out)
        with safe_open(out, "np") as tensors:
            metadata = json.loads(tensors.metadata()["brinell"])["about"]
        queries = sum(metadata["training_queries"].values())
        command.missing += queries < int(before.get("queries", b"0"))
        return {"queries": str(queries).encode()}
    contents = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")}
    rows = read(out)
    command.duplicates += sum(len(keys) - len(set(keys)) for keys in map(keys_of, rows.items()))
    # Shards of a stage that is whole go into its part: their rows must be in it, which the end shows.
    missing = [name for name, content in before.items() if "shard-" not in name and contents.get(name) != content]
    command.missing += len(missing)
    return contents


def read(out: Path) -> dict[str, list[dict[str, object]]]:
    """The rows of each folder, those of the audits of a hardening too."""
    rows: dict[str, list[dict[str, object]]] = {}
    for folder, name in itertools.product(FOLDERS, KEYS):
        files = sorted((out / folder).glob(f"{name}/*.parquet"))
        parts = {path.stem.removeprefix("part-") for path in files if path.stem.startswith("part-")}
        current = [path for path in files if not (path.stem.startswith("shard-") and path.stem.split("-")[1] in parts)]
        rows[f"{folder}/{name}"] = [row for path in current for row in pq.read_table(path, partitioning=None).to_pylist()]
    return rows


def arrays(out: Path) -> dict[str, np.ndarray]:
    """The stored inputs, and the weights of a hardening."""
    files = [*out.glob("*.safetensors"), *(path for folder in FOLDERS for path in (out / folder).glob("arrays/*"))]
    return {f"{path.relative_to(out)} {name}": array for path in sorted(files) for name, array in load_file(path).items()}


def keys_of(entry: tuple[str, list[dict[str, object]]]) -> list[tuple[object, ...]]:
    """Keys that identify the rows of a folder."""
    name, rows = entry
    if not rows:
        return []
    columns = next(columns for columns in KEYS[name.rpartition("/")[2]] if set(columns) <= rows[0].keys())
    return [tuple(row[column] for column in columns) for row in rows]


def compare(command: Command, uninterrupted: Path, out: Path) -> None:
    """Note what differs between a run that was killed and one that was not."""
    if command.file:
        command.differs += sorted(load_file(uninterrupted).keys() ^ load_file(out).keys())
        return
    expected, actual = read(uninterrupted), read(out)
    for name, rows in expected.items():
        if sorted(map(plain, rows)) != sorted(map(plain, actual[name])):
            command.differs.append(f"{name} ({len(rows)} rows and {len(actual[name])})")
    a, b = arrays(uninterrupted), arrays(out)
    if a.keys() != b.keys() or any(not np.array_equal(a[name], b[name]) for name in a):
        command.differs.append("arrays")


def plain(row: dict[str, object]) -> str:
    """A row as text, without what a clock decides."""
    return json.dumps({key: value for key, value in row.items() if key not in LOOSE}, sort_keys=True, default=repr)


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """Starts the command in a new process group, so that the group can be killed."""
    return subprocess.Popen(
        [sys.executable, "-m", "brinell", *words, "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run_to_end(words: list[str]) -> None:
    """The command, which must end well."""
    if code := start(words).wait():
        raise SystemExit(f"brinell {' '.join(words)} ended with {code}")


if __name__ == "__main__":
    sys.exit(main())
