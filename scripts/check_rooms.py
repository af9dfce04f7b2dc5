"""Counts the lines of each room against its ceiling (DESIGN): `python scripts/check_rooms.py [--list]`.

It fails where a finished room is above its ceiling. Private functions below eight lines with one caller are counted, and with
`--list` named: such a function may read better in its caller.
"""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "brinell"
CEILINGS = {
    (".",): 1_400,
    ("core",): 5_000,
    ("attacks", "bounds", "defences", "detectors", "distances", "distortions", "explainers"): 10_000,
    ("models", "datasets"): 7_500,
    ("rlab",): 3_500,
    ("training",): 1_300,
    ("engine", "runners"): 7_000,
    ("store",): 1_800,
    ("analysis",): 3_000,
    ("reports",): 2_000,
    ("studies",): 15_000,
    ("cli",): 700,
    ("testing",): 1_500,
}
"""Lines of all kinds at most, by the folders of a room."""
WHOLE = 60_000
FORMS = (".py", ".html", ".js", ".css")
"""Endings of the files that count."""
UNFINISHED = frozenset(("reports", "studies", "whole"))
"""Rooms whose lines are shown only, by their first folder."""
SHORT = 8
"""Lines below which a function with one caller is counted."""


def files_of(room: str) -> list[Path]:
    """The modules and templates of a room; `.` is what stands beside the folders."""
    files = SOURCE.glob("*") if room == "." else (SOURCE / room).rglob("*")
    return sorted(path for path in files if path.suffix in FORMS)


def short_functions() -> list[str]:
    """Private functions of a module that are short and are named once besides."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        words = Counter(re.findall(r"\w+", text))
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.decorator_list:
                length = (node.end_lineno or 0) - node.lineno + 1
                if length < SHORT and words[node.name] == 2:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {node.name}, {length} lines")
    return found


def main() -> int:
    """Print the lines by room; returns the exit code."""
    above = total = 0
    for rooms, ceiling in [*CEILINGS.items(), (("whole",), WHOLE)]:
        lines = (
            total
            if rooms == ("whole",)
            else sum(path.read_text(encoding="utf-8").count("\n") for room in rooms for path in files_of(room))
        )
        total += lines
        verdict = "" if lines <= ceiling else "above, not finished" if rooms[0] in UNFINISHED else "ABOVE"
        above += verdict == "ABOVE"
        print(f"{' '.join(rooms):80}{lines:7,} of {ceiling:6,}  {verdict}")
    functions = short_functions()
    print(
        *(functions if "--list" in sys.argv else ()),
        f"{len(functions)} private functions below {SHORT} lines have one caller",
        sep="\n",
    )
    return int(above > 0)


if __name__ == "__main__":
    sys.exit(main())
