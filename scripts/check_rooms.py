"""Counts the statements of each room and what stops a reader, each against its limit (DESIGN):
`python scripts/check_rooms.py [--list]`.

A docstring is no statement. Formatting changes no count of statements, so a paragraph, a comment or
a name costs nothing. With `--list` each function of a complexity above 10, each long body without a
blank line and each class name that is bound twice is named.
"""

import ast
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "brinell"

CEILINGS = {
    (".",): 870,  # goal 850
    ("core",): 3_080,  # goal 2,700
    (
        "attacks",
        "bounds",
        "defences",
        "detectors",
        "distances",
        "distortions",
        "explainers",
    ): 6_860,  # goal 6,300
    ("models", "datasets"): 5_060,  # goal 4,600
    ("rlab",): 2_460,  # goal 2,100
    ("training",): 890,  # goal 800
    ("engine",): 5_840,  # goal 3,300
    ("store",): 990,  # goal 950
    ("analysis",): 2_490,  # goal 1,900
    ("reports",): 2_000,  # goal 1,900
    ("studies",): 10_680,  # goal 8,200
    ("cli",): 505,  # goal 450
    ("testing",): 1_145,  # goal 950
}
"""Statements at most, by the folders of a room; "." is what stands beside the folders. These only go
down, to the goals of the design."""
WHOLE = 42_833
"""Statements of the whole package at most; the goal is 35,000."""

WIDTH = 100
"""Columns of a line of code."""
LONG_BODY = 15
"""Lines from which a function needs paragraphs."""
DEEP = 5
"""Nested expressions from which an inner part needs a name."""
COMPLEX = 10
VERY_COMPLEX = 15
"""Branches of a function from which it is counted as complex and very complex."""

EXPRESSIONS = (
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.Subscript,
    ast.UnaryOp,
)
BRANCHES = (
    ast.Assert,
    ast.ExceptHandler,
    ast.For,
    ast.If,
    ast.IfExp,
    ast.While,
    ast.With,
    ast.comprehension,
    ast.match_case,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Limit:
    """A reading, its goal, and what it may be until the goal is reached."""

    name: str
    goal: float
    today: float | None = None
    """A limit above the goal, which only goes down."""
    least: bool = False
    """Whether the reading must reach the limit, and not stay below it."""

    def is_kept(self, value: float) -> bool:
        """Whether a reading is within today's limit."""
        limit = self.goal if self.today is None else self.today
        return value >= limit if self.least else value <= limit


LIMITS = (
    Limit("code lines above 100 columns, %", 0.2),
    Limit("functions of 15 lines or more without a blank line in the body, %", 20),
    Limit("lines with a comment, %", 2.5, least=True),
    Limit("assignments of several computed values, per 100 statements", 0.5, 0.54),
    Limit("names unpacked from a generator or comprehension", 10, 17),
    Limit("statements nested five expressions deep or more, %", 2, 2.3),
    Limit("functions of a complexity above 10, %", 4, 5.2),
    Limit("functions of a complexity above 15", 10),
    Limit("class names bound in two modules or more", 10, 14),
    Limit("places that build a Ledger", 3),
)


@dataclass
class Readings:
    """What is counted over all files."""

    statements: Counter[str] = field(default_factory=Counter)
    """By room."""
    counts: Counter[str] = field(default_factory=Counter)
    classes: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Modules that bind a class, by its name."""
    places: list[str] = field(default_factory=list)
    """Functions to look at."""

    def values(self) -> list[float]:
        """The readings in the order of LIMITS."""
        counts = self.counts
        statements = self.statements.total()

        def share(name: str, of: str) -> float:
            return 100 * counts[name] / max(1, counts[of])

        return [
            share("wide", "code"),
            share("unbroken", "long bodies"),
            share("comments", "lines"),
            100 * counts["tuples"] / max(1, statements),
            counts["generators"],
            100 * counts["deep"] / max(1, statements),
            share("complex", "functions"),
            counts["very complex"],
            sum(len(modules) > 1 for modules in self.classes.values()),
            counts["ledgers"],
        ]


def depth(node: ast.AST) -> int:
    """Deepest nesting of expressions in a node, without the statements in it."""
    children = ast.iter_child_nodes(node)
    below = [depth(child) for child in children if not isinstance(child, ast.stmt)]
    return max(below, default=0) + isinstance(node, EXPRESSIONS)


def complexity(function: ast.AST) -> int:
    """Branches and further terms of conditions, plus one; inner functions count by themselves."""
    total = 1
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        total += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        stack.extend(ast.iter_child_nodes(node))
    return total


def is_plain(node: ast.AST) -> bool:
    """Whether a value is a name, an attribute or a constant: nothing is computed."""
    return isinstance(node, (ast.Name, ast.Constant, ast.Attribute))


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a string alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def comment_lines(path: Path) -> set[int]:
    """Numbers of the lines with a comment for people."""
    pragmas = ("# fmt", "# type", "# noqa")
    with path.open("rb") as stream:
        return {
            token.start[0]
            for token in tokenize.tokenize(stream.readline)
            if token.type == tokenize.COMMENT and not token.string.startswith(pragmas)
        }


def count_assignment(node: ast.Assign, readings: Readings) -> None:
    """Count an assignment to several names whose values are computed."""
    if not isinstance(node.targets[0], ast.Tuple):
        return
    if isinstance(node.value, ast.Tuple):
        readings.counts["tuples"] += not all(map(is_plain, node.value.elts))
    readings.counts["generators"] += isinstance(node.value, (ast.GeneratorExp, ast.ListComp))


def count_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str], place: str, readings: Readings
) -> None:
    """Count a function: its branches, and whether a long body has paragraphs."""
    branches = complexity(node)
    readings.counts["functions"] += 1
    readings.counts["complex"] += branches > COMPLEX
    readings.counts["very complex"] += branches > VERY_COMPLEX
    if branches > COMPLEX:
        readings.places.append(f"{place}: {node.name}, complexity {branches}")

    body = node.body[is_docstring(node.body[0]) :]
    last = node.end_lineno or node.lineno
    if last - node.lineno + 1 < LONG_BODY or not body:
        return
    first = body[0].lineno - 1
    unbroken = all(line.strip() for line in lines[first:last])
    readings.counts["long bodies"] += 1
    readings.counts["unbroken"] += unbroken
    if unbroken:
        readings.places.append(f"{place}: {node.name}, {last - node.lineno + 1} lines in one")


def count_file(path: Path, readings: Readings) -> None:
    """Count a module."""
    name = path.relative_to(SOURCE)
    room = name.parts[0] if len(name.parts) > 1 else "."
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    code = [line for line in lines if line.strip()]
    readings.counts["lines"] += len(lines)
    readings.counts["code"] += len(code)
    readings.counts["wide"] += sum(len(line) > WIDTH for line in code)
    readings.counts["comments"] += len(comment_lines(path))

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not is_docstring(node):
            readings.statements[room] += 1
            readings.counts["deep"] += depth(node) >= DEEP
        if isinstance(node, ast.Assign):
            count_assignment(node, readings)
        elif isinstance(node, ast.ClassDef):
            readings.classes[node.name].add(str(name))
        elif isinstance(node, FUNCTIONS):
            count_function(node, lines, f"{name}:{node.lineno}", readings)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            readings.counts["ledgers"] += node.func.id == "Ledger"


def report(readings: Readings) -> Iterator[tuple[bool, str]]:
    """Each line of the table, and whether its limit is kept."""
    weights = {rooms: sum(readings.statements[room] for room in rooms) for rooms in CEILINGS}
    rows = [*((" ".join(rooms), weights[rooms], CEILINGS[rooms]) for rooms in CEILINGS)]
    rows.append(("whole", readings.statements.total(), WHOLE))
    for name, weight, ceiling in rows:
        yield weight <= ceiling, f"{weight:8,} of {ceiling:6,} statements  {name}"
    for limit, value in zip(LIMITS, readings.values(), strict=True):
        bound = "at least" if limit.least else "at most"
        now = "" if limit.today is None else f" (until then {limit.today:g})"
        yield limit.is_kept(value), f"{value:8.1f} {bound} {limit.goal:g}{now}  {limit.name}"


def main() -> int:
    """Print the table; returns the exit code."""
    readings = Readings()
    for path in sorted(SOURCE.rglob("*.py")):
        count_file(path, readings)
    if "--list" in sys.argv:
        twice = {name: modules for name, modules in readings.classes.items() if len(modules) > 1}
        print(*readings.places, sep="\n")
        print(
            *(f"{name}: {', '.join(sorted(modules))}" for name, modules in twice.items()), sep="\n"
        )

    missed = 0
    for kept, line in report(readings):
        missed += not kept
        print("    " if kept else "over", line)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
