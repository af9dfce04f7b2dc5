"""Both tables in Markdown."""

import argparse

import benchmarks.inference
from benchmarks.inference.coverage import coverage
from benchmarks.inference.errors import errors


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(benchmarks.inference.__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=4000)
    options = parser.parse_args()
    print("| interval | size | coverage, % | percentile bootstrap, % |\n| --- | --- | --- | --- |")
    for row in coverage(options.repetitions):
        plain = "" if row.percentile is None else f"{row.percentile:.1f}"
        print(f"| {row.what} | {row.size} | {row.percent:.1f} | {plain} |", flush=True)
    print("\n| sentence | size | false claims, % |\n| --- | --- | --- |")
    for row in errors(options.repetitions):
        print(f"| {row.what} | {row.size} | {row.percent:.1f} |", flush=True)


main()
