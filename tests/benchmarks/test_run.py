"""Benchmarks are found by their folder, and each runs."""

import json
import re
import subprocess
import sys

import pytest

from benchmarks.run import find_benchmarks


def test_every_benchmark_is_found_by_its_group_and_says_how_it_is_run(root):
    benchmarks = find_benchmarks()
    commands = {
        name: (f"python benchmarks/{benchmark.path.name}", f"python -m benchmarks.{name}")
        for name, benchmark in benchmarks.items()
    }
    assert [
        name
        for name, texts in commands.items()
        if not any(text in benchmarks[name].doc for text in texts)
    ] == []
    assert {benchmark.name for benchmark in benchmarks.values() if benchmark.group == "passes"} == {
        "footprint",
        "kills",
        "memory",
        "minimal",
        "overhead",
    }
    helpers = {"false_claims", "measure", "run", "simulation", "statement_rates", "turns"}
    assert {
        path.stem for path in (root / "benchmarks").glob("*.py")
    } - helpers == benchmarks.keys() - {"rlab"}
    assert all(benchmark.runs for benchmark in benchmarks.values())


def test_pages_name_benchmarks_that_exist(root):
    pages = {
        page: page.read_text(encoding="utf-8")
        for page in [*root.glob("docs/**/*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    }
    references = {
        name
        for text in pages.values()
        for name in re.findall(r"benchmarks[/.](\w+)(?:\.py|\b)", text)
    }
    folders = {path.name for path in (root / "benchmarks").iterdir() if path.is_dir()}
    assert references - {"run"} - folders <= find_benchmarks().keys()


FORKS = """
import contextlib, json, os, runpy, sys
import torch, brinell, benchmarks.measure, benchmarks.zoo
failed = []
for line in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        code = 1
        sys.argv = line + ["--help"]
        with contextlib.suppress(BaseException), open(os.devnull, "w") as sys.stdout:
            try:
                if line[0] == "-m":
                    sys.argv = line[1:] + ["--help"]
                    runpy.run_module(line[1], run_name="__main__", alter_sys=True)
                else:
                    sys.path[:1] = [os.path.dirname(line[0])] * line[0].endswith(".py")
                    runpy.run_path(line[0], run_name="__main__")
            except SystemExit as end:
                code = end.code or 0
        os._exit(bool(code))
    if os.waitpid(child, 0)[1]:
        failed.append(line)
print(json.dumps(failed))
"""
"""Asks each benchmark for its help in a child of one process that has imported what all need."""


@pytest.mark.nightly
def test_every_benchmark_shows_its_help(root):
    lines = [benchmark.command for benchmark in find_benchmarks().values()]
    studies = (root / "benchmarks" / "rlab" / "__main__.py").read_text(encoding="utf-8")
    lines += [
        [str(root / "benchmarks" / "rlab"), "--study", name]
        for name in sorted(set(re.findall(r'"--study ([\w-]+)', studies)))
    ]
    assert all(line for line in lines)
    process = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps([list(map(str, line)) for line in lines])],
        capture_output=True,
        text=True,
        cwd=root,
        check=True,
    )
    assert json.loads(process.stdout) == []
