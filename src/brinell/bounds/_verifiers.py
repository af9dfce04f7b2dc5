"""Outside verifiers with the command line of VNN-LIB 2.0: what one is asked, and its answer.

    TOOL verify QUERY.vnnlib --network N=MODEL.onnx --timeout SECONDS

The query asks for an error: an input of a box at which another score is at least as large as that
of the true class. No such input exists where the network is robust.
"""

import math
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, Literal

import numpy as np

from brinell.core.errors import one_line
from brinell.core.record import Array

NETWORK = "N"
"""Name of the network in a query."""
PROOF: Final = "unsat"
WITNESS: Final = "sat"
SILENT: Final = "unknown"
Word = Literal["unsat", "sat", "unknown"]
"""What an answer says: no input satisfies the query, this one does, or neither."""
GRACE = 5.0
"""Seconds beyond its timeout after which a tool is ended."""
MOST_OUTPUT = 1 << 24
"""Bytes of an answer that are read."""
WORDS: dict[str, Word] = {
    "unsat": PROOF,
    "holds": PROOF,
    "sat": WITNESS,
    "violated": WITNESS,
    "unknown": SILENT,
    "timeout": SILENT,
}
"""The meaning of a line of an answer that is one word."""
VALUE = re.compile(
    r"\(\s*([A-Za-z_]\w*)\s*(\[[\d,\s]*\])?\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\)"
)
"""A value of a counterexample: `(X_3 0.5)` or `(X[0,3] 0.5)`."""


@dataclass(frozen=True)
class ToolAnswer:
    """The answer of a verifier to a query."""

    verdict: Word
    reason: str = ""
    """Why it is silent; empty where it is not."""
    x: tuple[float, ...] = ()
    """The input that it names, flattened."""
    seconds: float = 0.0


def robustness_query(low: Array, high: Array, label: int, classes: int, comment: str) -> str:
    """The text of a query about inputs between `low` and `high` (*shape) float64.

    `label` is the true class, `comment` the first line.
    """
    scores = [f"Y{_shape([k], batch=0)}" for k in range(classes)]
    lines = [f"; {' '.join(comment.split())}", "(vnnlib-version <2.0>)"]
    input_port = f"(declare-input X Real {_shape(low.shape)})"
    output_port = f"(declare-output Y Real {_shape([classes])})"
    lines.append(f"(declare-network {NETWORK} {input_port} {output_port})")

    # Bounds of single values, so that every tool reads the box as one.
    for index in product(*map(range, low.shape)):
        name = f"X{_shape(index, batch=0)}"
        lines += [
            f"(assert (>= {name} {_number(low[index])}))",
            f"(assert (<= {name} {_number(high[index])}))",
        ]

    # The query asks for a counterexample: another score that reaches that of the label.
    rivals = " ".join(f"(>= {scores[k]} {scores[label]})" for k in range(classes) if k != label)
    return "\n".join([*lines, f"(assert (or {rivals}))"]) + "\n"


def _shape(sides: Sequence[int], batch: int = 1) -> str:
    """`[batch,side,...]`: a shape of one sample, or with batch 0 an index into the first one."""
    return f"[{','.join(map(str, (batch, *sides)))}]"


def _number(value: float) -> str:
    """A number that is read back exactly, without an exponent, which the language does not have."""
    return np.format_float_positional(value, trim="0")


def run_tool(
    command: Sequence[str], query: Path, network: str, seconds: float, inputs: Sequence[str]
) -> ToolAnswer:
    """Ask a tool about a query on NAME=MODEL.onnx.

    `inputs` are the names of the inputs of the query, in order.
    """
    words = [*command, "verify", str(query), "--network", network, "--timeout", f"{seconds:g}"]
    start = time.monotonic()
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryDirectory(prefix="brinell-") as folder,
    ):
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                start_new_session=True,  # one group of processes, to be ended together
            )
        except OSError as error:
            reason = f"it could not be started ({error.strerror or one_line(error)})"
            return ToolAnswer(SILENT, reason)

        try:
            code = process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):  # what it started ends with it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        output.seek(0)
        text = output.read(MOST_OUTPUT).decode("utf-8", "replace")

    if code is None:
        return ToolAnswer(SILENT, f"it did not end within {seconds:g} s and was stopped")
    verdict, reason, x = read_answer(text, inputs)
    if code != 0:
        reason = f"it ended with code {code}"
        if verdict != SILENT:
            reason += ", so that its answer does not count"
        return ToolAnswer(SILENT, reason)
    return ToolAnswer(verdict, reason, x, time.monotonic() - start)


def read_answer(text: str, inputs: Sequence[str]) -> tuple[Word, str, tuple[float, ...]]:
    """Verdict, reason and input in the output of a tool.

    The verdict is the only line that is one; the input is made of the values of `inputs`.
    """
    lines = [line.strip().lower() for line in text.splitlines()]
    verdicts = [line for line in lines if line in WORDS]
    if not verdicts:
        return SILENT, "its answer is none of sat, unsat and unknown", ()
    # Contradicting answers are no answer: none of them may count as a proof.
    if len({WORDS[word] for word in verdicts}) > 1:
        return SILENT, "it gave several answers", ()

    verdict = WORDS[verdicts[0]]
    if verdict == PROOF:
        return PROOF, "", ()
    if verdict == SILENT:
        return SILENT, f"it answered {verdicts[0]}", ()

    values = {
        name + re.sub(r"\s", "", index or ""): float(number)
        for name, index, number in VALUE.findall(text)
    }

    # Tools name the inputs as the query does, or as VNN-LIB 1.0 does.
    for names in (inputs, [f"X_{k}" for k in range(len(inputs))]):
        x = tuple(values.get(name, math.nan) for name in names)
        if all(map(math.isfinite, x)):
            return WITNESS, "", x
    return SILENT, "it answered sat without an input", ()
