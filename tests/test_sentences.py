"""No code decides by how a sentence begins or ends: a separate field states what a line says."""

import ast
from pathlib import Path

import pytest

METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"}
FOREIGN = {
    "datasets/bench.py": "  ",  # the columns of a file of checksums
    "models/hf.py": ". ",  # what the library says of a processor
    "models/_channel.py": "] ",  # what the system says of a failed connection
    "runners/provenance.py": "model name",  # a line of /proc/cpuinfo
}
"""Texts of other programs, by the file that reads them."""


def decisions(source: str) -> list[str]:
    """The literals with a space by which a module takes texts apart."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    methods = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in METHODS]
    literals = [
        node for call in methods for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Constant)
    ]
    return [node.value for node in literals if isinstance(node.value, str) and " " in node.value]


def test_no_module_takes_a_sentence_apart(root):
    source = Path(root) / "src" / "brinell"
    decisions_by_file = {
        path.relative_to(source).as_posix(): decisions(path.read_text(encoding="utf-8")) for path in source.rglob("*.py")
    }
    assert {name: literals for name, literals in decisions_by_file.items() if literals} == {
        name: [text] for name, text in FOREIGN.items()
    }


@pytest.mark.parametrize(
    "line",
    [
        'text.startswith("cannot tell")',
        'text.partition(": ")',
        'text.removeprefix(f"not made: {why}")',
        'a.endswith(("x", "y z"))',
    ],
)
def test_a_planted_decision_is_found(line):
    assert decisions(line)
