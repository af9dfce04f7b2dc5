"""Breaks places of the source at random and lists the breaks that no test notices.

    python scripts/mutate.py --map                  # once: which tests run which line (the tests
                                                    under coverage)
    python scripts/mutate.py --seed 31 -n 60        # sixty places of src/brinell, drawn by the seed
    python scripts/mutate.py --seed 1 -n 20 --only core analysis
    python scripts/mutate.py --seed 1 -n 20 --only core --map --tests tests/core

A place is an expression in the body of a function: a comparison, an operator, a number, a
condition, two arguments, a conversion, a text that is returned. Each break is made in a copy of the
source, and the tests that run its line are run there, the cheap ones first, until one fails. Tests
that take too long count as noticing. Read the survivors: some change nothing that can be seen.
"""

import argparse
import ast
import collections
import copy
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
TEST_SECONDS = 60
"""Processor seconds of tests for one break, the cheap ones first."""
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Break(NamedTuple):
    """A place, and what stands there instead."""

    path: str
    node: Any
    broken: ast.AST

    def apply(self, text: str) -> str:
        """The source with the break."""
        lines = text.encode().split(b"\n")
        node, new = (
            self.node,
            b"(" + ast.unparse(ast.fix_missing_locations(self.broken)).encode() + b")",
        )
        start, end = (
            lines[node.lineno - 1][: node.col_offset],
            lines[node.end_lineno - 1][node.end_col_offset :],
        )
        return b"\n".join(
            [*lines[: node.lineno - 1], start + new + end, *lines[node.end_lineno :]]
        ).decode()


def breaks_of(path: str, text: str) -> list[Break]:
    """Every break of a file."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    nodes = {id(node): node for function in functions for node in _logic(function)}.values()
    breaks = [Break(path, place, broken) for node in nodes for place, broken in _broken(node)]
    return [place for place in breaks if _is_located(place.node, text)]


def _is_located(node: Any, text: str) -> bool:
    """True if the positions of a node are right, which they are not within every f-string."""
    try:
        return ast.dump(
            ast.parse(ast.get_source_segment(text, node) or "", mode="eval").body
        ) == ast.dump(node)
    except (SyntaxError, ValueError):
        return False


def _logic(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a body, without messages of errors, annotations, docstrings and functions
    within.
    """
    stack: list[ast.AST] = list(function.body)
    while stack:
        node = stack.pop()
        if isinstance(
            node,
            ast.Raise | ast.Assert | ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom,
        ):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        yield node
        stack.extend(
            [node.value]
            if isinstance(node, ast.AnnAssign) and node.value
            else ast.iter_child_nodes(node)
        )


def _broken(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Each expression of a node that is replaced, with its replacement."""
    twin: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPS:
            twin.ops = [SWAPS[type(operator)]()]
            yield node, twin
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in SWAPS:
            twin.op = SWAPS[type(operator)]()
            yield node, twin
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, twin.operand
        case ast.Constant(value=bool()):
            yield node, ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield node, ast.Constant(node.value + 1)
        case (
            ast.If(test=test)
            | ast.While(test=test)
            | ast.IfExp(test=test)
            | ast.comprehension(ifs=[test, *_])
        ):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Return(value=ast.JoinedStr() | ast.Constant(value=str())):
            yield node.value, ast.Constant("")
        case ast.Expr(value=ast.Yield(value=ast.JoinedStr() as text)):
            yield text, ast.Constant("")
        case ast.Call(func=ast.Attribute(value=receiver), args=[], keywords=[]):
            yield node, receiver
        case ast.Call(args=[argument], keywords=[]) if not isinstance(
            argument, ast.Starred | ast.GeneratorExp
        ):
            yield node, argument
        case ast.Call(args=[first, second, *_]) if not any(
            isinstance(part, ast.Starred) for part in (first, second)
        ):
            twin.args[:2] = twin.args[1::-1]
            yield node, twin


def draw_breaks(seed: int, number: int, only: list[str]) -> list[Break]:
    """Breaks at places of the source: the kind is drawn first, so that comparisons and signs are as
    frequent as calls.
    """
    breaks: dict[str, list[Break]] = collections.defaultdict(list)
    for path in sorted((SOURCE / "brinell").rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not only or any(name.startswith(f"brinell/{room}") for room in only):
            for place in breaks_of(name, path.read_text(encoding="utf-8")):
                breaks[
                    type(place.node).__name__
                    if type(place.broken) is not ast.UnaryOp
                    else "condition"
                ].append(place)
    rng = random.Random(seed)
    for places in breaks.values():
        rng.shuffle(places)
    drawn: list[Break] = []
    while len(drawn) < number and (
        kinds := sorted(kind for kind, places in breaks.items() if places)
    ):
        drawn.append(breaks[rng.choice(kinds)].pop())
    return drawn


class Recorder:
    """A plugin of pytest that notes which test runs which line, and what it costs.

    What a fixture of the session runs belongs to every test that takes the fixture.
    """

    def __init__(self, folder: Path) -> None:
        import coverage

        self.folder, self.fixtures, self.seconds = (
            folder,
            collections.defaultdict[str, list[str]](list),
            dict[str, float](),
        )
        self.worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self.coverage = coverage.Coverage(
            str(folder / f"coverage.{self.worker}"),
            source=[str(SOURCE / "brinell")],
            config_file=False,
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Lines that run now belong to this test."""
        start = os.times()
        self.coverage.switch_context(item.nodeid)
        for name in getattr(item, "fixturenames", ()):
            self.fixtures[f"fixture {name}"].append(item.nodeid)
        try:
            return (yield)
        finally:
            end = os.times()
            self.seconds[item.nodeid] = sum(end[:4]) - sum(start[:4])

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Any:
        """Lines of a fixture that several tests share belong to all of them."""
        if fixturedef.scope == "function":
            return (yield)
        self.coverage.switch_context(f"fixture {fixturedef.argname}")
        try:
            return (yield)
        finally:
            self.coverage.switch_context(
                request._pyfuncitem.nodeid
            )  # `request.node` would be the module or session

    def pytest_sessionfinish(self) -> None:
        """Keep what was noted."""
        self.coverage.stop()
        self.coverage.save()
        note = {"fixtures": self.fixtures, "seconds": self.seconds}
        (self.folder / f"tests.{self.worker}.json").write_text(json.dumps(note))


def pytest_configure(config: pytest.Config) -> None:
    """Record, where this file is loaded as a plugin by `make_map`."""
    if (folder := os.environ.get("BRINELL_MUTATION_MAP")) and (
        hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    ):
        config.pluginmanager.register(Recorder(Path(folder)))


def make_map(folder: Path, tests: list[str]) -> None:
    """Run the tests, and note which of them runs which line."""
    import coverage

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    environment = environment_of(SOURCE) | {"BRINELL_MUTATION_MAP": str(folder)}
    arguments = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "mutate",
        "-n",
        "2",
        "--dist",
        "worksteal",
        "-m",
        "not slow and not nightly",
    ]
    subprocess.run([*arguments, *tests], cwd=ROOT, env=environment, check=False)
    seconds: dict[str, float] = {}
    fixtures: dict[str, set[str]] = collections.defaultdict(set)
    for file in folder.glob("tests.*.json"):
        note = json.loads(file.read_text())
        seconds |= note["seconds"]
        for name, users in note["fixtures"].items():
            fixtures[name].update(users)
    lines: dict[str, dict[int, set[str]]] = collections.defaultdict(
        lambda: collections.defaultdict(set)
    )
    for file in folder.glob("coverage.*"):
        data = coverage.CoverageData(str(file))
        data.read()
        for path in data.measured_files():
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in filter(None, contexts):
                    lines[str(Path(path).relative_to(SOURCE))][line].update(
                        fixtures.get(context, [context])
                    )
        file.unlink()
    names = sorted(seconds)
    numbers = {name: number for number, name in enumerate(names)}
    table = {
        path: {line: sorted(numbers[test] for test in tests) for line, tests in place.items()}
        for path, place in lines.items()
    }
    (folder / "map.json").write_text(
        json.dumps({"tests": names, "seconds": [seconds[name] for name in names], "lines": table})
    )


def environment_of(source: Path) -> dict[str, str]:
    """The environment of tests of a copy of the source."""
    paths = os.pathsep.join([str(source), str(ROOT / "scripts")])
    return os.environ | {
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def tests_of(table: dict[str, Any], place: Break) -> list[str]:
    """The tests that run the lines of a place, the cheap ones first, within the seconds that a
    break may take.
    """
    lines = table["lines"].get(place.path, {})
    rows = range(place.node.lineno, place.node.end_lineno + 1)
    chosen, spent = [], 0.0
    for test in sorted(
        {test for row in rows for test in lines.get(str(row), [])}, key=table["seconds"].__getitem__
    ):
        spent += table["seconds"][test]
        if chosen and spent > TEST_SECONDS:
            break
        chosen.append(table["tests"][test])
    return chosen


def outcome_of(place: Break, tests: list[str]) -> str:
    """Whether a break is noticed: `killed`, `survived`, or `no test runs it`."""
    if not tests:
        return "no test runs it"
    with tempfile.TemporaryDirectory(prefix="brinell-mutant-") as directory:
        source = Path(directory) / "src"
        shutil.copytree(
            SOURCE, source, ignore=shutil.ignore_patterns(".*")
        )  # with what is compiled, which the times of the files keep valid
        path = source / place.path
        path.write_text(place.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
        (Path(directory) / "tests").write_text("\n".join(tests))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "60",
            f"@{directory}/tests",
        ]
        try:
            result = subprocess.run(
                command,
                cwd=ROOT,
                env=environment_of(source),
                capture_output=True,
                timeout=10 * TEST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return "killed"
    return "survived" if result.returncode == 0 else "killed"


def report_outcome(place: Break, tests: list[str]) -> str:
    """The outcome of a break, which is printed as a difference if nothing notices it."""
    outcome = outcome_of(place, tests)
    if outcome != "killed":
        text = (SOURCE / place.path).read_text(encoding="utf-8")
        difference = difflib.unified_diff(
            text.split("\n"), place.apply(text).split("\n"), n=0, lineterm=""
        )
        print(
            f"\n{outcome}: src/{place.path}:{place.node.lineno}",
            *list(difference)[3:],
            sep="\n",
            flush=True,
        )
    return outcome


def main() -> None:
    """Draw, break, run, and list the survivors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-n", type=int, default=0, help="breaks to draw")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        metavar="ROOM",
        help="beginnings of paths within src/brinell",
    )
    parser.add_argument("--map", action="store_true", help="make the map of lines and tests anew")
    parser.add_argument("--tests", nargs="*", default=[], help="tests of the map; default: all")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutation", help="folder of the map")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.map:
        make_map(options.folder, options.tests)
    if not options.n:
        return
    table = json.loads((options.folder / "map.json").read_text())
    breaks = draw_breaks(options.seed, options.n, options.only)
    with ThreadPoolExecutor(options.workers) as pool:
        outcomes = list(
            pool.map(lambda place: report_outcome(place, tests_of(table, place)), breaks)
        )
    print(f"\n{outcomes.count('killed')} of {len(outcomes)} breaks are noticed")


if __name__ == "__main__":
    main()
