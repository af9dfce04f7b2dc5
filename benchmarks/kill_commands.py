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
WITHIN = (".", "before", "after")
"""Where rows and arrays may lie in a folder."""
SMALL = ["--samples", "60"]


@dataclass
class Command:
    """A command, and what became of its kills."""

    name: str
    words: list[str]
    file: bool = False
    """Whether it writes one file."""
    seconds: float = 0.0
    kills: int = 0
    lost: int = 0
    twice: int = 0
    differs: list[str] = field(default_factory=list)


def commands(work: Path) -> list[Command]:
    """All that can be killed; each takes a few seconds to a minute."""
    generator = work / "generator.safetensors"
    run_to_end(["train-generator", "--out", str(generator), "--width", "8", "--steps", "300", "--rate", "0.004"])
    placed = ["--distortions", "gaussian-noise+occlusion", "--patch", "2"]
    return [
        Command("audit", ["audit", *SMALL, "--eps", "0:0.2:5", "--attack", "pgd?steps=60&restarts=3", "--batch-size", "8"]),
        Command("rlab", ["audit", *SMALL, "--norm", "l2", "--eps", "1, 2", "--attack", "rlab?steps=120", "--batch-size", "8"]),
        Command("benchmark", ["benchmark", *SMALL, *placed, "--steps", "400", "--levels", "1,2"]),
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
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as held:
        work = Path(held)
        found = [one for one in commands(work) if asked.only is None or one.name in asked.only]
        for number, command in enumerate(found):
            share = asked.kills // len(found) + (number < asked.kills % len(found))
            kill(command, work / command.name, share, rng)
            print(
                f"{command.name:<14}{command.seconds:7.1f} s in one go  {command.kills:4} kills  {command.lost} lost  "
                f"{command.twice} twice  {len(command.differs)} differ {'; '.join(command.differs[:3])}",
                flush=True,
            )
    bad = [one for one in found if one.lost or one.twice or one.differs]
    said = f"not equal: {', '.join(one.name for one in bad)}" if bad else "all equal"
    print(f"{sum(one.kills for one in found)} kills, {said}")
    return bool(bad)


def kill(command: Command, work: Path, kills: int, rng: random.Random) -> None:
    """Kill one command so often, and let it end."""
    work.mkdir()
    ending = ".safetensors" if command.file else ""
    whole, out = work / f"whole{ending}", work / f"killed{ending}"
    started = time.perf_counter()
    run_to_end([*command.words, "--out", str(whole)])
    command.seconds = time.perf_counter() - started
    before: dict[str, bytes] = {}
    ended = False
    while command.kills < kills:
        if ended:  # it came to its end between two kills: begin again in another folder
            compare(command, whole, out)
            out, before, ended = work / f"killed-{command.kills}{ending}", {}, False
        process = start([*command.words, "--out", str(out), *(["--resume"] if begun(out) else [])])
        try:
            ended = process.wait(rng.uniform(0, command.seconds)) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            command.kills += 1
            before = check(command, out, before)
    if not ended:
        run_to_end([*command.words, "--out", str(out), *(["--resume"] if begun(out) else [])])
    check(command, out, before)
    compare(command, whole, out)


def begun(out: Path) -> bool:
    """Whether there is something to go on with."""
    return out.is_file() or (out / "manifest.json").exists()


def check(command: Command, out: Path, before: dict[str, bytes]) -> dict[str, bytes]:
    """What is in the folder after a kill; counts what was lost or is there twice."""
    if command.file:
        if not out.exists():
            command.lost += bool(before)
            return {}
        load_file(out)
        with safe_open(out, "np") as held:
            about = json.loads(held.metadata()["brinell"])["about"]
        spent = sum(about["training_queries"].values())
        command.lost += spent < int(before.get("spent", b"0"))
        return {"spent": str(spent).encode()}
    now = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.parquet")}
    rows = read(out)
    command.twice += sum(len(keys) - len(set(keys)) for keys in map(keys_of, rows.items()))
    # Shards of a stage that is whole go into its part: their rows must be in it, which the end shows.
    lost = [name for name, content in before.items() if "shard-" not in name and now.get(name) != content]
    command.lost += len(lost)
    return now


def read(out: Path) -> dict[str, list[dict[str, object]]]:
    """The rows of each folder, those of the audits of a hardening too."""
    found: dict[str, list[dict[str, object]]] = {}
    for within, name in itertools.product(WITHIN, KEYS):
        files = sorted((out / within).glob(f"{name}/*.parquet"))
        parts = {path.stem.removeprefix("part-") for path in files if path.stem.startswith("part-")}
        kept = [path for path in files if not (path.stem.startswith("shard-") and path.stem.split("-")[1] in parts)]
        found[f"{within}/{name}"] = [row for path in kept for row in pq.read_table(path, partitioning=None).to_pylist()]
    return found


def arrays(out: Path) -> dict[str, np.ndarray]:
    """The stored inputs, and the weights of a hardening."""
    files = [*out.glob("*.safetensors"), *(path for within in WITHIN for path in (out / within).glob("arrays/*"))]
    return {f"{path.relative_to(out)} {name}": array for path in sorted(files) for name, array in load_file(path).items()}


def keys_of(named: tuple[str, list[dict[str, object]]]) -> list[tuple[object, ...]]:
    """What tells the rows of a folder apart."""
    name, rows = named
    if not rows:
        return []
    columns = next(columns for columns in KEYS[name.rpartition("/")[2]] if set(columns) <= rows[0].keys())
    return [tuple(row[column] for column in columns) for row in rows]


def compare(command: Command, whole: Path, out: Path) -> None:
    """Note what differs between a run that was killed and one that was not."""
    if command.file:
        command.differs += sorted(load_file(whole).keys() ^ load_file(out).keys())
        return
    one, other = read(whole), read(out)
    for name, rows in one.items():
        if sorted(map(plain, rows)) != sorted(map(plain, other[name])):
            command.differs.append(f"{name} ({len(rows)} rows and {len(other[name])})")
    a, b = arrays(whole), arrays(out)
    if a.keys() != b.keys() or any(not np.array_equal(a[name], b[name]) for name in a):
        command.differs.append("arrays")


def plain(row: dict[str, object]) -> str:
    """A row as text, without what a clock decides."""
    return json.dumps({key: value for key, value in row.items() if key not in LOOSE}, sort_keys=True, default=repr)


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """The command, in a group of its own that can be killed as a whole."""
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
