"""All benchmarks, one after another: to standard output, and with --write to docs/performance.md as well.

Each can be run by itself, with fewer models or repetitions; see --help of each.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import measure

BENCHMARKS = ("overhead", "sweep", "memory", "kill", "precision", "distances")
INTRODUCTION = """\
# Performance

Written by `make bench ARGS=--write`. Every figure is a median with the smallest and the largest value in brackets, over the
stated repetitions; what is compared runs in turn, in one process, on the same inputs. Ratios travel between machines better
than seconds do.
"""


def run(name: str, more: list[str]) -> tuple[int, str]:
    """One benchmark in a process of its own, its output shown as it comes."""
    line = [sys.executable, "-u", "-W", "ignore", str(Path(__file__).with_name(f"{name}.py")), *more]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for text in process.stdout:
        print(text, end="", flush=True)
        lines.append(text)
    return process.wait(), "".join(lines)


def main() -> int:
    """Run them all; a failing one is reported and the others still run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/performance.md")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, help="leave the others out")
    parser.add_argument("--reference", help="working tree of the reference AutoAttack: our cascades beside it, too")
    options = parser.parse_args()
    parts, failed = [INTRODUCTION], []
    works = [(name, []) for name in options.only]
    if options.reference:
        works.append(("autoattack", ["--reference", options.reference]))
    for name, more in works:
        code, output = run(name, more)
        parts.append(output)
        if code:
            failed.append(name)
            parts.append(f"\nbenchmarks/{name}.py ended with {code}.\n")
            print(f"\nbenchmarks/{name}.py ended with {code}.", flush=True)
    if options.write:
        (measure.ROOT / "docs" / "performance.md").write_text("".join(parts), encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
