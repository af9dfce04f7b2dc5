"""Benchmarks are found by their folder, and each runs."""

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
        "memory",
        "minimal",
        "overhead",
    }
    helpers = {"false_claims", "measure", "run", "simulation", "turns"}
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
    assert references - {"run"} <= find_benchmarks().keys()


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_benchmark_shows_its_help(root):
    lines = [benchmark.command for benchmark in find_benchmarks().values()]
    studies = (root / "benchmarks" / "rlab" / "__main__.py").read_text(encoding="utf-8")
    lines += [
        [str(root / "benchmarks" / "rlab"), "--study", name]
        for name in sorted(set(re.findall(r'"--study ([\w-]+)', studies)))
    ]
    processes = {
        " ".join(line): subprocess.run(
            [sys.executable, *line, "--help"], capture_output=True, cwd=root
        )
        for line in lines
    }
    assert [name for name, process in processes.items() if process.returncode] == []
