"""Outside verifiers, which are asked about open samples.

A tool is believed in nothing but a proof. Its counterexamples are shown to the model, and a proof
is refused where an input that the model gets wrong lies in the box of the query. A tool that proves
what is known to be wrong is not asked again.
"""

import shlex
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell.bounds import _abcrown
from brinell.bounds._onnx_file import onnx_bytes
from brinell.bounds._proofs import Proofs, Prover
from brinell.bounds._verifiers import (
    NETWORK,
    PROOF,
    SILENT,
    WITNESS,
    ToolAnswer,
    robustness_query,
    run_tool,
)
from brinell.core.errors import RequestError, option
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.models._onnx_session import session_of
from brinell.store.files import write_text
from brinell.store.proofs import REFUSED, TOOL, Verdict, read_verdicts

TOLERANCE = 1e-5
"""Largest difference between the answers of the file and the network, as a share of the largest
score."""
NEAR = 1e-4
"""Share of a budget by which an input that a tool names may lie outside of it, to be moved into
it."""
Ask = Callable[[int, int], ToolAnswer]
"""The answer about a sample at a budget, both by position."""


def is_in_memory(command: str) -> bool:
    """True if a tool is called on the module in memory, and needs no program and no file."""
    return command == _abcrown.PACKAGE and _abcrown.is_installed()


def check_question(prover: Prover, x: Tensor, commands: Sequence[str]) -> None:
    """Refuse balls and networks that the tools cannot be asked about; x (n, *shape) are inputs."""
    if prover.norm != "linf":
        raise RequestError(
            f"{option('solver')} is asked by queries in VNN-LIB, whose inputs lie "
            f"in boxes, and a ball in {prover.norm} is not a "
            f"box: leave {option('solver')} out, or certify in linf"
        )
    if not all(map(is_in_memory, commands)):
        network_bytes(prover, x)


def network_bytes(prover: Prover, x: Tensor) -> bytes:
    """The network as a file of ONNX, whose answers to inputs (n, *shape) by ONNX Runtime are those
    of the network.
    """
    rows = x.detach().cpu().float()
    try:
        content = onnx_bytes(prover.coarse, rows[:1])
        session = session_of(content)
    except ImportError:
        raise RequestError(
            f"{option('solver')} needs onnx and onnxruntime: pip install 'brinell[onnx]'"
        ) from None

    # Both are compared on real samples: a file that answers differently would prove another
    # network.
    answers = np.concatenate([session.run(None, {"X": row[None].numpy()})[0] for row in rows])
    expected = prover.graph.values(rows.double())[-1].numpy()
    difference = float(np.abs(answers - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise RequestError(
            "the network as a file of ONNX answers differently than the model, "
            f"by up to {difference:.3g}: its samples cannot be "
            "written as queries; the methods of brinell need none"
        )
    return content


def find_tool(command: str) -> tuple[str, ...]:
    """The words of the command of a tool."""
    words = []
    with suppress(ValueError):  # quotes that do not end
        words = shlex.split(command)
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise RequestError(
            f"{option('solver')} names {words[0] if words else command!r}, and "
            "there is no such program: install it, or leave "
            f"{option('solver')} out; the methods of brinell need none"
        )
    return (str(Path(program).absolute()), *words[1:])


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
    is_wrong: Callable[[Tensor, int], bool]
    """True if the model gets an input (1, *shape) of a class wrong."""
    model: Model
    device: torch.device
    """The device on which a tool in memory computes."""

    def box(self, sample: int, level: int) -> tuple[Array, Array]:
        """The least and largest values (*shape) float64 of the inputs that a proof is about."""
        eps = torch.tensor([self.levels[level]], dtype=torch.float64)
        low, high = self.prover.ball(self.x[sample : sample + 1], eps).box
        return low[0].numpy(), high[0].numpy()

    def holds(self, sample: int, level: int, x: Array) -> bool:
        """True if an input (*shape) lies in the box."""
        low, high = self.box(sample, level)
        return bool(((x >= low) & (x <= high)).all())

    def inside(self, sample: int, level: int, values: Sequence[float]) -> Tensor | None:
        """The input (1, *shape) that a tool names, moved into budget and bounds by rounding at
        most; None if it lies outside.
        """
        x0, eps = self.x[sample].cpu(), self.levels[level]
        x = torch.tensor(values, dtype=torch.float32).reshape(x0.shape)
        projection = (x0 + (x - x0).clamp(-eps, eps))[None].clamp(
            *self.prover.domain.bounds(x0[None])
        )
        return None if float((projection[0] - x).abs().max()) > NEAR * eps else projection

    def asked(self, command: str, folder: Path, seconds: float) -> Ask:
        """A tool that is asked by files in a folder, or in memory."""
        if is_in_memory(command):
            return self._asked_in_memory(seconds)
        words, network, query = find_tool(command), folder / "model.onnx", folder / "query.vnnlib"
        network.write_bytes(network_bytes(self.prover, self.x))
        # The values of the input in a query, of which the first index is that of the batch.
        names = [f"X[{','.join(map(str, (0, *index)))}]" for index in np.ndindex(*self.x.shape[1:])]

        def ask(sample: int, level: int) -> ToolAnswer:
            label, eps = int(self.labels[sample]), self.levels[level]
            comment = (
                f"sample {self.ids[sample]} of class {label}, Linf eps {eps!r}: is "
                "there an error in this box?"
            )
            text = robustness_query(
                *self.box(sample, level), label, self.prover.graph.classes, comment
            )
            write_text(query, text)
            return run_tool(words, query, f"{NETWORK}={network}", seconds, names)

        return ask

    def _asked_in_memory(self, seconds: float) -> Ask:
        """alpha-beta-CROWN on the module of the model."""
        module = _abcrown.PredictedModule(self.model).to(self.device)
        solver = _abcrown.Solver(module, self.prover.graph.classes, self.device, seconds)

        def ask(sample: int, level: int) -> ToolAnswer:
            return solver.ask(*self.box(sample, level), int(self.labels[sample]))

        return ask

    def recorded(self, tool: str, file: Path) -> Ask:
        """The answers of a tool that a file holds, for a repetition: no program runs."""
        answers = {
            (line.sample_id, line.eps): line for line in read_verdicts(file) if line.tool == tool
        }

        def ask(sample: int, level: int) -> ToolAnswer:
            line = answers.get((int(self.ids[sample]), self.levels[level]))
            if line is None:
                return ToolAnswer(SILENT, "the folder holds no answer")
            # What was refused was a proof: the repetition has to refuse it again.
            return ToolAnswer(
                PROOF if line.verdict == REFUSED else line.verdict,
                line.reason,
                tuple(line.x),
                line.seconds,
            )

        return ask


def consult(
    tool: str,
    ask: Ask,
    questions: Questions,
    proofs: Proofs,
    first: Array,
    examples: dict[int, Array],
) -> list[Verdict]:
    """Ask a tool about open samples by bisection over their budgets, and raise proofs and
    counterexamples by what counts.

    Args:
        tool: name of the tool.
        ask: asks it.
        questions: the samples.
        proofs: proofs so far; changed in place.
        first: (n,) position of the smallest budget with a counterexample; changed in place.
        examples: the nearest counterexample (*shape) by sample; changed in place.
    """
    verdicts: list[Verdict] = []
    raised: dict[int, int] = {}  # by sample the largest level that the tool proved

    def settle(k: int, level: int) -> str:
        """Ask about a sample at a budget; what counts of the answer."""
        answer = ask(k, level)
        verdict: str = answer.verdict
        reason, x = answer.reason, answer.x
        if verdict == PROOF and k in examples and questions.holds(k, level, examples[k]):
            verdict = REFUSED
            reason = (
                "it proves what a stored counterexample contradicts, and none of its "
                "proofs of these samples counts"
            )
        elif verdict == WITNESS:
            example = questions.inside(k, level, x)
            if example is None or not questions.is_wrong(example, int(questions.labels[k])):
                verdict, reason, x = (
                    SILENT,
                    "the input that it names is no counterexample, as the model answers",
                    (),
                )
            else:
                first[k], examples[k] = level, example[0].numpy()
                x = tuple(example.flatten().tolist())
        elif verdict == PROOF:
            raised[k] = level
        verdicts.append(
            Verdict(
                sample_id=int(questions.ids[k]),
                eps=questions.levels[level],
                tool=tool,
                verdict=verdict,  # type: ignore[arg-type]
                reason=reason,
                seconds=answer.seconds,
                x=list(x),
            )
        )
        return verdict

    # Between the level that is proven and the one that is broken there must be another.
    open_samples = [k for k in range(len(first)) if first[k] - int(proofs.level[k]) > 1]
    broken = [
        k
        for k, x in examples.items()
        if 0 <= first[k] < len(questions.levels) and questions.holds(k, int(first[k]), x)
    ]
    # First what is known: a tool that proves what a counterexample contradicts is wrong.
    refusal = False
    if open_samples and broken:
        refusal = settle(broken[0], int(first[broken[0]])) == REFUSED
    for k in open_samples:
        low = int(proofs.level[k])
        high = int(first[k])
        while high - low > 1 and not refusal:
            middle = (low + high) // 2
            verdict = settle(k, middle)
            refusal = verdict == REFUSED
            low, high = (middle, high) if verdict == PROOF else (low, middle)

    # Proofs of a tool that was refused count for nothing.
    for k, level in raised.items() if not refusal else ():
        proofs.level[k] = level
        proofs.method[k] = f"{TOOL}{tool}"
        proofs.margin[k] = torch.nan  # a tool names no bound
    return verdicts
