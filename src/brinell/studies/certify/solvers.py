"""Outside verifiers, which are asked about open samples by the command line of VNN-LIB 2.0.

    TOOL verify QUERY.vnnlib --network N=MODEL.onnx --timeout SECONDS

A tool is believed in nothing but a proof. Its counterexamples are shown to the model, and a proof is refused where an input that
the model gets wrong lies in the box of the query. A tool that proves what is known to be wrong is not asked again.
"""

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brinell.core.errors import RequestError, one_line, option
from brinell.core.record import Array
from brinell.store.proofs import PROOF, REFUSED, SILENT, WITNESS, Verdict, Word

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
"""The meaning of the first word of an answer."""
VALUE = re.compile(r"\(\s*([A-Za-z_]\w*)\s*(\[[\d,\s]*\])?\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\)")
"""A value of a counterexample: `(X_3 0.5)` or `(X[0,3] 0.5)`."""


@dataclass(frozen=True)
class Answer:
    """The answer of a tool to a query."""

    verdict: Word
    """PROOF, WITNESS or SILENT."""
    reason: str
    """Why it is silent; empty where it is not."""
    x: tuple[float, ...] = ()
    """The input that it names, flattened."""


def find_tool(command: str) -> tuple[str, ...]:
    """The words of the command of a tool.

    Raises:
        RequestError: the program is missing.
    """
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise RequestError(f"{option('solver')} {command!r} is no command ({error}): write one, such as abcrown") from None
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise RequestError(
            f"{option('solver')} names {words[0] if words else command!r}, and there is no such program: install it, or leave "
            f"{option('solver')} out; the methods of brinell need none"
        )
    return (str(Path(program).absolute()), *words[1:])


def tool_name(command: str) -> str:
    """The name of a tool in records: that of its program without folders."""
    words = shlex.split(command)
    return Path(words[0]).name if words else command


def run_tool(command: Sequence[str], query: Path, network: str, seconds: float, inputs: Sequence[str]) -> Answer:
    """Ask a tool about a query.

    Args:
        command: the words of its command.
        query: the query.
        network: NAME=MODEL.onnx.
        seconds: its timeout.
        inputs: names of the inputs of the query, in order.
    """
    words = [*command, "verify", str(query), "--network", network, "--timeout", f"{seconds:g}"]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, cwd=folder, start_new_session=True
            )
        except OSError as error:
            return Answer(SILENT, f"it could not be started ({error.strerror or one_line(error)})")
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
        return Answer(SILENT, f"it did not end within {seconds:g} s and was stopped")
    answer = read_answer(text, inputs)
    if code != 0 and answer.verdict != SILENT:
        return Answer(SILENT, f"it ended with code {code}, so that its answer does not count")
    return Answer(SILENT, f"it ended with code {code}") if code != 0 else answer


def read_answer(text: str, inputs: Sequence[str]) -> Answer:
    """The answer in the output of a tool: the last line that is a verdict, and the values of the inputs."""
    verdicts = [word for line in text.splitlines() if (word := line.strip().lower()) in WORDS]
    if not verdicts:
        return Answer(SILENT, "its answer is none of sat, unsat and unknown")
    if len({WORDS[word] for word in verdicts}) > 1:
        return Answer(SILENT, "it gave several answers")
    verdict = WORDS[verdicts[0]]
    if verdict != WITNESS:
        return Answer(verdict, "" if verdict == PROOF else f"it answered {verdicts[0]}")
    values = {name + re.sub(r"\s", "", index or ""): float(number) for name, index, number in VALUE.findall(text)}
    for names in (inputs, [f"X_{k}" for k in range(len(inputs))]):
        if all(name in values for name in names):
            x = tuple(values[name] for name in names)
            if all(map(math.isfinite, x)):
                return Answer(WITNESS, "", x)
    return Answer(SILENT, "it answered sat without an input")


@dataclass(frozen=True, kw_only=True)
class Box:
    """The question about one sample at one budget."""

    sample: int
    """Position among the samples."""
    level: int
    """Position among the budgets."""
    low: Array
    """(*shape) float64: least values of the inputs."""
    high: Array

    def holds(self, x: Array) -> bool:
        """True if an input lies in the box."""
        values = x.astype(np.float64)
        return bool(((values >= self.low) & (values <= self.high)).all())


@dataclass
class Judge:
    """Decides which answers of a tool count."""

    tool: str
    confirm: Callable[[int, int, Array], Array | None]
    """The counterexample that an input (*shape) is for a sample at a budget, as the model answers; None where it is none."""
    known: Mapping[int, Array]
    """Inputs (*shape) by sample that the model is known to get wrong."""
    is_refused: bool = False
    """True once the tool proved what is known to be wrong."""

    def judge(self, box: Box, answer: Answer, eps: float, seconds: float, sample_id: int) -> Verdict:
        """What counts of an answer."""
        verdict, reason, x = answer.verdict, answer.reason, answer.x
        if verdict == PROOF and box.sample in self.known and box.holds(self.known[box.sample]):
            verdict, reason = (
                REFUSED,
                "it proves what a stored counterexample contradicts, and none of its proofs of these samples counts",
            )
            self.is_refused = True
        elif verdict == WITNESS:
            example = self.confirm(box.sample, box.level, np.array(x, np.float32).reshape(box.low.shape))
            x = () if example is None else tuple(example.flatten().tolist())
            if example is None:
                verdict, reason = SILENT, "the input that it names is no counterexample, as the model answers"
        return Verdict(
            sample_id=sample_id,
            eps=eps,
            tool=self.tool,
            verdict=verdict,
            reason=reason,
            seconds=seconds,
            x=list(x),
        )


def timed(ask: Callable[[], Answer]) -> tuple[Answer, float]:
    """An answer and the seconds that it took."""
    start = time.monotonic()
    return ask(), time.monotonic() - start
