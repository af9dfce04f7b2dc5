"""Outside verifiers, which are asked about open samples by queries in VNN-LIB 2.0.

    TOOL verify QUERY.vnnlib --network N=MODEL.onnx --timeout SECONDS

A tool is believed in nothing but a proof. Its counterexamples are shown to the model, and a proof is refused where an input that
the model gets wrong lies in the box of the query. A tool that proves what is known to be wrong is not asked again.
"""

import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.bounds._graph import Graph
from brinell.bounds._query_files import NETWORK, robustness_query
from brinell.core.errors import RequestError, one_line, option
from brinell.core.record import Array
from brinell.models._onnx_session import session_of
from brinell.store.files import write_atomically, write_text
from brinell.store.proofs import PROOF, REFUSED, SILENT, WITNESS, Verdict, Word, read_verdicts
from brinell.studies.certify.proofs import Proofs, Prover

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
NETWORK_FILE, OPSET = "model.onnx", 17
TOLERANCE = 1e-5
"""Largest difference between the answers of the file and the network, as a share of the largest score."""
NEAR = 1e-4
"""Share of a budget by which an input that a tool names may lie outside of it, to be moved into it."""


def check_queries(norm: str) -> None:
    """Refuse what queries cannot say, and files that cannot be written, before anything is computed."""
    if norm != "linf":
        raise RequestError(
            f"{option('solver')} is asked by queries in VNN-LIB, whose inputs lie in boxes, and a ball in {norm} is not a box: "
            f"leave {option('solver')} out, or certify in linf"
        )
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise RequestError(f"{option('solver')} needs onnx and onnxruntime: pip install 'brinell[onnx]'") from None


class _Scores(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor) -> Tensor:
        return self.graph.values(x)[-1]


def network_bytes(prover: Prover, x: Tensor) -> bytes:
    """The network as a file of ONNX, whose answers to inputs (n, *shape) by ONNX Runtime are those of the network."""
    rows, file = x.detach().cpu().float(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's age, and of shapes that are constants
        torch.onnx.export(
            _Scores(prover.coarse),
            (rows[:1],),
            file,
            dynamo=False,
            opset_version=OPSET,
            input_names=["X"],
            output_names=["Y"],
        )
    content = file.getvalue()
    session = session_of(content)
    answers = np.concatenate([session.run(None, {"X": row[None].numpy()})[0] for row in rows])
    expected = prover.graph.values(rows.double())[-1].numpy()
    difference = float(np.abs(answers - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise RequestError(
            f"the network as a file of ONNX answers differently than the model, by up to {difference:.3g}: its samples cannot be "
            "written as queries; the methods of brinell need none"
        )
    return content


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Is a sample robust at a budget?"""

    ids: Array
    """(n,) positions in the data."""
    x: Tensor
    """(n, *shape)."""
    labels: Array
    """(n,)."""
    levels: tuple[float, ...]
    """Ascending budgets."""
    prover: Prover

    def box(self, sample: int, level: int) -> tuple[Array, Array]:
        """The least and largest values (*shape) float64 of the inputs that a proof is about."""
        eps = torch.tensor([self.levels[level]], dtype=torch.float64)
        low, high = self.prover.ball(self.x[sample : sample + 1], eps).box
        return low[0].numpy(), high[0].numpy()

    def holds(self, sample: int, level: int, x: Array) -> bool:
        """True if an input (*shape) lies in the box."""
        low, high = self.box(sample, level)
        return bool(((x >= low) & (x <= high)).all())

    def text(self, sample: int, level: int) -> str:
        """The query."""
        label, eps = int(self.labels[sample]), self.levels[level]
        comment = f"sample {self.ids[sample]} of class {label}, Linf eps {eps!r}: is there an error in this box?"
        return robustness_query(*self.box(sample, level), label, self.prover.graph.classes, comment)

    def write_network(self, folder: Path) -> None:
        """Write the network into a folder."""
        content = network_bytes(self.prover, self.x)
        write_atomically(folder / NETWORK_FILE, lambda path: path.write_bytes(content))

    def inside(self, sample: int, level: int, values: Sequence[float]) -> Tensor | None:
        """The input (1, *shape) that a tool names, moved into budget and bounds by rounding at most; None if it lies outside."""
        x0, eps = self.x[sample].cpu(), self.levels[level]
        x = torch.tensor(values, dtype=torch.float32).reshape(x0.shape)
        projection = (x0 + (x - x0).clamp(-eps, eps))[None].clamp(*self.prover.domain.bounds(x0[None]))
        return None if float((projection[0] - x).abs().max()) > NEAR * eps else projection


@dataclass(frozen=True)
class Answer:
    """The answer of a tool to a query."""

    verdict: Word
    """PROOF, WITNESS or SILENT."""
    reason: str = ""
    """Why it is silent; empty where it is not."""
    x: tuple[float, ...] = ()
    """The input that it names, flattened."""
    seconds: float = 0.0


def find_tool(command: str) -> tuple[str, ...]:
    """The words of the command of a tool."""
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


class Tool:
    """An outside verifier, which is asked by files in a folder."""

    def __init__(self, command: str, questions: Questions, folder: Path, seconds: float) -> None:
        self.name = Path(shlex.split(command)[0]).name
        self._words, self._questions, self._folder, self._seconds = find_tool(command), questions, folder, seconds
        self._names = [f"X[{','.join(map(str, (0, *index)))}]" for index in np.ndindex(*questions.x.shape[1:])]
        questions.write_network(folder)

    def ask(self, sample: int, level: int) -> Answer:
        """The answer about a sample at a budget."""
        query = self._folder / "query.vnnlib"
        write_text(query, self._questions.text(sample, level))
        return run_tool(self._words, query, f"{NETWORK}={self._folder / NETWORK_FILE}", self._seconds, self._names)


class RecordedTool(Tool):
    """The answers that a folder holds, for a repetition: no program runs."""

    def __init__(self, command: str, questions: Questions, file: Path) -> None:
        self.name, self._questions = Path(shlex.split(command)[0]).name, questions
        lines = (line for line in read_verdicts(file) if line.tool == self.name)
        self._answers = {(line.sample_id, line.eps): line for line in lines}

    def ask(self, sample: int, level: int) -> Answer:
        """The recorded answer."""
        line = self._answers.get((int(self._questions.ids[sample]), self._questions.levels[level]))
        if line is None:
            return Answer(SILENT, "the folder holds no answer")
        return Answer(PROOF if line.verdict == REFUSED else line.verdict, line.reason, tuple(line.x), line.seconds)


def run_tool(command: Sequence[str], query: Path, network: str, seconds: float, inputs: Sequence[str]) -> Answer:
    """Ask a tool about a query on NAME=MODEL.onnx; `inputs` are the names of the inputs of the query, in order."""
    words, start = [*command, "verify", str(query), "--network", network, "--timeout", f"{seconds:g}"], time.monotonic()
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
    verdict, reason, x = read_answer(text, inputs)
    if code != 0:
        reason = f"it ended with code {code}" + ", so that its answer does not count" * (verdict != SILENT)
        return Answer(SILENT, reason)
    return Answer(verdict, reason, x, time.monotonic() - start)


def read_answer(text: str, inputs: Sequence[str]) -> tuple[Word, str, tuple[float, ...]]:
    """Verdict, reason and input in the output of a tool: the only line that is one verdict, and the values of the inputs."""
    verdicts = [word for line in text.splitlines() if (word := line.strip().lower()) in WORDS]
    if not verdicts:
        return SILENT, "its answer is none of sat, unsat and unknown", ()
    if len({WORDS[word] for word in verdicts}) > 1:
        return SILENT, "it gave several answers", ()
    verdict = WORDS[verdicts[0]]
    if verdict != WITNESS:
        return verdict, "" if verdict == PROOF else f"it answered {verdicts[0]}", ()
    values = {name + re.sub(r"\s", "", index or ""): float(number) for name, index, number in VALUE.findall(text)}
    for names in (inputs, [f"X_{k}" for k in range(len(inputs))]):
        x = tuple(values.get(name, math.nan) for name in names)
        if all(map(math.isfinite, x)):
            return WITNESS, "", x
    return SILENT, "it answered sat without an input", ()


def consult(
    tool: Tool,
    questions: Questions,
    is_wrong: Callable[[Tensor, int], bool],
    proofs: Proofs,
    first: Array,
    examples: dict[int, Array],
) -> list[Verdict]:
    """Ask a tool about open samples by bisection over their budgets, and raise proofs and counterexamples by what counts.

    Args:
        tool: the tool.
        questions: the samples.
        is_wrong: whether the model gets an input (1, *shape) of a class wrong.
        proofs: proofs so far; changed in place.
        first: (n,) position of the smallest budget with a counterexample; changed in place.
        examples: the nearest counterexample (*shape) by sample; changed in place.
    """
    verdicts: list[Verdict] = []
    before = proofs.copy()

    def settle(k: int, level: int) -> Word:
        """Ask about a sample at a budget; what counts of the answer."""
        answer = tool.ask(k, level)
        verdict, reason, x = answer.verdict, answer.reason, answer.x
        if verdict == PROOF and k in examples and questions.holds(k, level, examples[k]):
            verdict = REFUSED
            reason = "it proves what a stored counterexample contradicts, and none of its proofs of these samples counts"
        elif verdict == WITNESS:
            example = questions.inside(k, level, x)
            if example is None or not is_wrong(example, int(questions.labels[k])):
                verdict, reason, x = SILENT, "the input that it names is no counterexample, as the model answers", ()
            else:
                first[k], examples[k] = level, example[0].numpy()
                x = tuple(example.flatten().tolist())
        elif verdict == PROOF:
            proofs.level[k], proofs.method[k], proofs.margin[k] = level, f"solver:{tool.name}", torch.nan
        place: dict[str, Any] = {"sample_id": int(questions.ids[k]), "eps": questions.levels[level], "tool": tool.name}
        verdicts.append(Verdict(**place, verdict=verdict, reason=reason, seconds=answer.seconds, x=list(x)))
        return verdict

    open_samples = [k for k in range(len(first)) if first[k] - int(proofs.level[k]) > 1]
    broken = [k for k, x in examples.items() if 0 <= first[k] < len(questions.levels) and questions.holds(k, int(first[k]), x)]
    refusal = bool(open_samples and broken) and settle(broken[0], int(first[broken[0]])) == REFUSED  # first what is known
    for k in open_samples:
        low, high = int(proofs.level[k]), int(first[k])
        while high - low > 1 and not refusal:
            middle = (low + high) // 2
            verdict = settle(k, middle)
            refusal = verdict == REFUSED
            low, high = (middle, high) if verdict == PROOF else (low, middle)
    if refusal:
        proofs.level, proofs.method, proofs.margin = before.level, before.method, before.margin
    return verdicts


def write_verdicts(file: Path, verdicts: Sequence[Verdict]) -> None:
    """Write a line for each answer."""
    write_text(file, "".join(f"{json.dumps(verdict.model_dump())}\n" for verdict in verdicts))
