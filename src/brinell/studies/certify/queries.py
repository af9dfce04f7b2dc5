"""Open samples as queries: files for outside verifiers, and what those that a request names answer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from brinell.bounds._onnx_file import onnx_bytes
from brinell.bounds._query_files import NETWORK, Version, robustness_query
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.models._onnx_session import session_of
from brinell.store.files import write_atomically, write_text
from brinell.store.proofs import PROOF, REFUSED, WITNESS, Verdict, Word, read_verdicts
from brinell.studies.certify.proofs import Proofs, Prover
from brinell.studies.certify.solvers import Answer, Box, Judge, run_tool, timed, tool_name

NETWORK_FILE = "model.onnx"
INSTANCES = "instances.csv"
"""The list of queries in the form of the competitions: network, query, timeout."""
TOLERANCE = 1e-5
"""Largest difference between the answers of the file and the network, as a share of the largest score."""


def check_queries(norm: str, setting: str) -> None:
    """Refuse what queries cannot say, and files that cannot be written, before anything is computed.

    Raises:
        RequestError: balls other than boxes, or a package that is missing.
    """
    if norm != "linf":
        raise RequestError(
            f"{option(setting)} writes queries in VNN-LIB, whose inputs lie in boxes, and a ball in {norm} is not a box: leave "
            f"{option(setting)} out, or certify in linf"
        )
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise RequestError(f"{option(setting)} needs onnx and onnxruntime: pip install 'brinell[onnx]'") from None


def network_bytes(prover: Prover, x: Tensor) -> bytes:
    """The network as a file of ONNX, whose answers to inputs (n, *shape) by ONNX Runtime are those of the network.

    Raises:
        RequestError: they are not.
    """
    content = onnx_bytes(prover.coarse)
    session = session_of(content)
    rows = x.detach().cpu().float()
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
class Samples:
    """The samples of a piece."""

    ids: Array
    """(n,) positions in the data."""
    x: Tensor
    """(n, *shape)."""
    labels: Array
    """(n,)."""
    levels: tuple[float, ...]
    """Ascending budgets."""
    prover: Prover

    def box(self, sample: int, level: int) -> Box:
        """The inputs that a proof at a budget is about."""
        eps = torch.tensor([self.levels[level]], dtype=torch.float64)
        low, high = self.prover.ball(self.x[sample : sample + 1], eps).box
        return Box(sample=sample, level=level, low=low[0].numpy(), high=high[0].numpy())

    def text(self, box: Box, version: Version) -> str:
        """The query of a box."""
        label = int(self.labels[box.sample])
        comment = (
            f"sample {self.ids[box.sample]} of class {label}, Linf eps {self.levels[box.level]!r}: is there an error in this box?"
        )
        return robustness_query(version, box.low, box.high, label, self.prover.graph.classes, comment)

    def write_network(self, folder: Path) -> None:
        """Write the network into a folder."""
        content = network_bytes(self.prover, self.x)
        write_atomically(folder / NETWORK_FILE, lambda path: path.write_bytes(content))

    def input_names(self) -> list[str]:
        """Names of the inputs in VNN-LIB 2.0."""
        return [f"X[{','.join(map(str, (0, *index)))}]" for index in np.ndindex(*self.x.shape[1:])]


NEAR = 1e-4
"""Share of a budget by which an input that a tool names may lie outside of it, to be moved into it."""


def confirmation(
    samples: Samples, predict: Callable[[Tensor], Tensor], domain: Domain
) -> Callable[[int, int, Array], Array | None]:
    """A function of a sample, a budget and an input (*shape) that a tool names: the counterexample, or None.

    The input is moved into the budget and the bounds of the data, by rounding at most, and the model must get it wrong there.
    """

    def confirm(sample: int, level: int, values: Array) -> Array | None:
        """The counterexample within the budget, as the model answers."""
        x0, eps = samples.x[sample].cpu(), samples.levels[level]
        low, high = domain.bounds(x0[None])
        x = torch.from_numpy(values)
        inside = (x0 + (x - x0).clamp(-eps, eps))[None].clamp(low, high)
        if float((inside[0] - x).abs().max()) > NEAR * eps:
            return None
        return inside[0].numpy() if int(predict(inside).argmax(1)) != int(samples.labels[sample]) else None

    return confirm


Ask = Callable[[str, Box], tuple[Answer, float]]
"""Asks a tool, by its command, about a box: its answer, and the seconds that it took."""


def asking(samples: Samples, folder: Path, seconds: float, commands: dict[str, tuple[str, ...]]) -> Ask:
    """A function that asks tools by files in a folder."""
    samples.write_network(folder)
    names = samples.input_names()

    def ask(tool: str, box: Box) -> tuple[Answer, float]:
        """Write the query and run the tool."""
        query = folder / "query.vnnlib"
        write_text(query, samples.text(box, "2.0"))
        network = f"{NETWORK}={folder / NETWORK_FILE}"
        return timed(lambda: run_tool(commands[tool], query, network, seconds, names))

    return ask


def recorded(samples: Samples, file: Path) -> Ask:
    """A function that gives the answers that a folder holds, for a repetition."""
    answers = {(line.tool, line.sample_id, line.eps): line for line in read_verdicts(file)}

    def ask(tool: str, box: Box) -> tuple[Answer, float]:
        """The recorded answer."""
        line = answers.get((tool_name(tool), int(samples.ids[box.sample]), samples.levels[box.level]))
        if line is None:
            return Answer("unknown", "the folder holds no answer"), 0.0
        verdict: Word = PROOF if line.verdict == REFUSED else line.verdict
        return Answer(verdict, line.reason if verdict == line.verdict else "", tuple(line.x)), line.seconds

    return ask


def ask_tool(
    tool: str,
    ask: Ask,
    judge: Judge,
    samples: Samples,
    proofs: Proofs,
    first: Array,
    examples: dict[int, Array],
) -> list[Verdict]:
    """Ask a tool about open samples by bisection over their budgets, and raise proofs and counterexamples by what counts.

    Args:
        tool: its command.
        ask: asks it.
        judge: decides what counts of its answers.
        samples: the samples.
        proofs: proofs so far; changed in place.
        first: (n,) position of the smallest budget with a counterexample; changed in place.
        examples: the nearest counterexample by sample; changed in place.
    """
    verdicts: list[Verdict] = []
    before = proofs.copy()

    def settle(sample: int, level: int) -> Verdict:
        """Ask about a sample at a budget."""
        box = samples.box(sample, level)
        answer, seconds = ask(tool, box)
        verdicts.append(judge.judge(box, answer, samples.levels[level], seconds, int(samples.ids[sample])))
        return verdicts[-1]

    open_samples = [k for k in range(len(first)) if first[k] - int(proofs.level[k]) > 1]
    broken = [k for k, x in examples.items() if 0 <= first[k] < len(samples.levels) and samples.box(k, first[k]).holds(x)]
    if open_samples and broken:  # a tool is first asked what is known
        settle(broken[0], int(first[broken[0]]))
    for k in open_samples:
        low, high = int(proofs.level[k]), int(first[k])
        while high - low > 1 and not judge.is_refused:
            middle = (low + high) // 2
            verdict = settle(k, middle)
            if verdict.verdict == PROOF:
                low = middle
                proofs.level[k], proofs.method[k], proofs.margin[k] = middle, f"solver:{judge.tool}", torch.nan
                continue
            high = middle
            if verdict.verdict == WITNESS:
                first[k], examples[k] = middle, np.array(verdict.x, np.float32).reshape(samples.x.shape[1:])
    if judge.is_refused:
        proofs.level, proofs.method, proofs.margin = before.level, before.method, before.margin
    return verdicts


def write_verdicts(file: Path, verdicts: Sequence[Verdict]) -> None:
    """Write a line for each answer."""
    write_text(file, "".join(f"{json.dumps(verdict.model_dump())}\n" for verdict in verdicts))


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something already.

    Raises:
        RequestError: it does.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} is not empty, and queries need an empty folder: choose another {option('export')}")


def export(samples: Samples, open_boxes: Sequence[tuple[int, int]], folder: Path, seconds: float) -> None:
    """Write the network, a query for each open sample and budget in both versions of the language, and their list.

    Args:
        samples: the samples.
        open_boxes: positions of sample and budget.
        folder: where to write.
        seconds: the timeout in the list.
    """
    folder.mkdir(parents=True, exist_ok=True)
    samples.write_network(folder)
    versions: tuple[Version, ...] = get_args(Version)
    lines: list[str] = []
    for version in versions:
        (folder / f"vnnlib-{version}").mkdir(exist_ok=True)
        for sample, level in open_boxes:
            name = f"vnnlib-{version}/sample-{samples.ids[sample]:06d}-eps-{samples.levels[level]:g}.vnnlib"
            write_text(folder / name, samples.text(samples.box(sample, level), version))
            lines += [f"{NETWORK_FILE},{name},{seconds:g}\n"] if version == "1.0" else []
    write_text(folder / INSTANCES, "".join(lines))
