"""All benchmarks, one after another; each can be run by itself, with fewer models or repetitions:
see its --help.

    python benchmarks/run.py [--only NAME ...] [--reference CHECKOUT] [--out FILE] [--quick]

A benchmark is a file, or a folder with a `__main__.py`, that states its `GROUP` and its `RUNS`: the
arguments of each run, with those that make it quick. `--only` takes groups and names. Runs beside
the reference AutoAttack are left out without `--reference`.

All of them take hours on two cores; --quick only shows that each of them runs, in a quarter of an
hour. docs/ holds gathered figures, each with its own command; --out keeps those of this run.
"""

import argparse
import ast
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark, as its source describes it."""

    name: str
    path: Path
    group: str
    runs: dict[str, str]
    """Arguments of each run to those that make it quick."""
    doc: str

    @property
    def command(self) -> list[str]:
        """The words that start it."""
        module = f"benchmarks.{self.name}"
        return ["-m", module] if f"python -m {module}" in self.doc else [str(self.path)]


def find_benchmarks(folder: Path = ROOT / "benchmarks") -> dict[str, Benchmark]:
    """Every benchmark of a folder by name."""
    benchmarks = {}
    for path in sorted([*folder.glob("*.py"), *folder.glob("*/__main__.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        values = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        if "RUNS" in values:
            group, runs = (ast.literal_eval(values[name]) for name in ("GROUP", "RUNS"))
            home = path.parent if path.name == "__main__.py" else path
            benchmarks[home.stem] = Benchmark(
                name=home.stem, path=home, group=group, runs=runs, doc=ast.get_docstring(tree) or ""
            )
    return benchmarks


def run(command: list[str]) -> tuple[int, str]:
    """Run a benchmark in a process of its own, and print its output line by line."""
    line = [sys.executable, "-u", "-W", "ignore", *command]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    lines = []
    for text in process.stdout:
        print(text, end="", flush=True)
        lines.append(text)
    return process.wait(), "".join(lines)


def main() -> int:
    """Run them all; a failing one is reported and the others still run."""
    benchmarks = find_benchmarks()
    names = [*sorted({benchmark.group for benchmark in benchmarks.values()}), *benchmarks]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"of {', '.join(names)}",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a few samples each: whether they run, not what they say",
    )
    parser.add_argument("--reference", default="", help="working tree of the reference AutoAttack")
    parser.add_argument("--out", type=Path, help="write the tables there, too")
    options = parser.parse_args()
    outputs, failed = [], []
    for benchmark in benchmarks.values():
        for words, small in (
            benchmark.runs.items() if {benchmark.group, benchmark.name} & set(options.only) else ()
        ):
            arguments = [
                options.reference if word == "REFERENCE" else word
                for word in shlex.split(f"{words} {small}" if options.quick else words)
            ]
            if "" in arguments:
                print(
                    f"\nLeft out for want of --reference CHECKOUT: {benchmark.name} {words}",
                    flush=True,
                )
                continue
            began = time.perf_counter()
            code, output = run([*benchmark.command, *arguments])
            outputs.append(output)
            print(f"\n{benchmark.name} {words}: {time.perf_counter() - began:.0f} s", flush=True)
            if code:
                failed.append(shlex.join([benchmark.name, *arguments]))
            if options.out:
                options.out.write_text("".join(outputs), encoding="utf-8")
    for line in failed:
        print(f"\nFailed: {line}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
