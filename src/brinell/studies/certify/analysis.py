"""The result of a certification: rates that proofs and attacks bound from both sides, over all budgets and by class."""

from pathlib import Path

import numpy as np

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.proofs import Band, band_of, rate_of
from brinell.analysis.results import Rate
from brinell.store import rows
from brinell.store.proofs import (
    BROKEN,
    CERTIFIED,
    OPEN,
    PROOF,
    REFUSED,
    TABLE,
    VERDICTS,
    WITNESS,
    WRONG,
    Outcomes,
    fault_lines,
    read_verdicts,
)
from brinell.store.table import Folder


class Counts(Result):
    """Samples by outcome at a budget, in the words of ISO/IEC 24029-2."""

    eps: float
    proof: int
    """Proven robust."""
    counterexample: int
    """A stored input within the budget is misclassified, or the sample is wrong without a change."""
    inconclusive: int
    """Neither."""


class ClassBand(Band):
    """The bounds on one class."""

    class_: int
    name: str
    n: int


class MethodCount(Result):
    """Proofs by a method."""

    method: str
    proofs: int
    """Pairs of sample and budget whose largest proof is the method's."""


class SolverCount(Result):
    """Answers of an outside verifier."""

    tool: str
    asked: int
    """Questions about a sample and a budget."""
    proofs: int
    """Answers that were proofs."""
    counterexamples: int
    """Answers with an input that the model gets wrong."""
    unanswered: int
    """Answers that do not count."""
    refused: bool
    """True if it proved what a stored counterexample contradicts."""
    faults: list[str]
    """A line for each reason why answers do not count."""


class CertifyResult(FolderResult, Band):
    """What `brinell certify --json` prints."""

    model: str
    data: str
    distance: str
    n: int
    clean: Rate
    """Accuracy without a change."""
    eps: list[float]
    """Budgets, 0 first."""
    counts: list[Counts]
    """By budget."""
    per_class: list[ClassBand]
    methods: list[MethodCount]
    solvers: list[SolverCount]
    """Outside verifiers, where the request names any."""
    seconds: float
    """Wall time of the computation."""


def summarise(folder: Folder[Outcomes]) -> CertifyResult:
    """Figures of a folder from its rows."""
    manifest, table = folder.manifest, folder.rows
    names = manifest["data"]["classes"]
    levels = np.unique(table.eps)
    band = band_of(table, levels)
    right = table.eps == 0
    per_class = []
    for number in np.unique(table.label).tolist():
        part = rows.take(table, table.label == number)
        part_band = band_of(part, levels)
        name = names[number] if number < len(names) else str(number)
        per_class.append(ClassBand(class_=number, name=name, n=int((part.eps == 0).sum()), **part_band.model_dump()))
    methods, counts = np.unique(table.method[table.method != ""].astype(str), return_counts=True)
    return CertifyResult(
        folder=str(folder.path),
        model=manifest["models"][0]["name"],
        data=manifest["data"]["name"],
        distance=manifest["request"]["norm"],
        n=int(right.sum()),
        clean=rate_of(table.outcome[right] == CERTIFIED, table.outcome[right], 0.0),
        eps=levels.tolist(),
        counts=[_counts(table, level) for level in levels.tolist()],
        per_class=per_class,
        methods=[MethodCount(method=str(m), proofs=int(c)) for m, c in zip(methods, counts, strict=True)],
        solvers=_solvers(folder.path),
        seconds=float(manifest.get("seconds") or 0.0),
        **band.model_dump(),
    )


def _solvers(folder: Path) -> list[SolverCount]:
    """Answers of each outside verifier."""
    verdicts = [verdict for file in sorted(folder.glob(VERDICTS.format("*"))) for verdict in read_verdicts(file)]
    counts = []
    for tool in dict.fromkeys(verdict.tool for verdict in verdicts):
        of_tool = [verdict for verdict in verdicts if verdict.tool == tool]
        words = [verdict.verdict for verdict in of_tool]
        refused = REFUSED in words
        proofs, witnesses = 0 if refused else words.count(PROOF), words.count(WITNESS)
        counts.append(
            SolverCount(
                tool=tool,
                asked=len(words),
                proofs=proofs,
                counterexamples=witnesses,
                unanswered=len(words) - proofs - witnesses,
                refused=refused,
                faults=fault_lines(of_tool),
            )
        )
    return counts


def _counts(table: Outcomes, level: float) -> Counts:
    """Samples by outcome at a budget."""
    outcome = table.outcome[table.eps == level].astype(str)
    return Counts(
        eps=level,
        proof=int((outcome == CERTIFIED).sum()),
        counterexample=int(np.isin(outcome, (BROKEN, WRONG)).sum()),
        inconclusive=int((outcome == OPEN).sum()),
    )


def warnings(result: CertifyResult) -> list[str]:
    """The notes that a caller must see before the figures."""
    return [line for tool in result.solvers for line in tool.faults]


def gate_rates(result: CertifyResult) -> dict[str, list[Rate]]:
    """Rates for a gate by metric."""
    return {"clean": [result.clean], "certified": result.certified, "robust": result.robust}


def proven_budgets(path: Path) -> dict[int, float]:
    """The largest budget at which each sample of a folder is proven robust, by sample; 0 without a proof."""
    table = TABLE.read(path).rows
    proven = np.where(table.outcome.astype(str) == CERTIFIED, table.eps, 0.0)
    budgets: dict[int, float] = {}
    for sample, eps in zip(table.sample_id.tolist(), proven.tolist(), strict=True):
        budgets[sample] = max(eps, budgets.get(sample, 0.0))
    return budgets


def sentence(result: CertifyResult) -> str:
    """The result at the largest budget in one sentence."""
    low, high, last = result.certified[-1], result.robust[-1], result.eps[-1]
    if low.value is None or high.value is None:
        return "No sample could be valid."
    if low.k == high.k:
        return (
            f"Robust accuracy at {last:g} is {100 * low.value:.1f} %: each of {low.n} samples is proven or has a counterexample."
        )
    return (
        f"Robust accuracy at {last:g} lies between {100 * low.value:.1f} % (proofs) and {100 * high.value:.1f} % (attacks): "
        f"{high.k - low.k} of {low.n} samples are neither proven nor broken."
    )
