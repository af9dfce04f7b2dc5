"""Rates between proofs and attacks, over all budgets and by class; the answer to one query; and
what both say.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from brinell.analysis.folder_result import Result
from brinell.analysis.proofs import Band, band_of, of_tools, rate_of, without_tools
from brinell.analysis.results import OfClass, Rate
from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.manifest import Amount, Facts, Listing
from brinell.reports.numbers import counted, distance, percent
from brinell.reports.steps import floor
from brinell.reports.values import Cell, Curve, Figures, Note, Report, Series, Step, Table
from brinell.store import rows
from brinell.store.proofs import (
    BROKEN,
    CERTIFIED,
    TOOL,
    VERDICTS,
    WRONG,
    Outcomes,
    fault_lines,
    read_verdicts,
)
from brinell.store.table import Folder
from brinell.studies.certify import CertifyRequest
from brinell.studies.result import FolderResult

WITH_TOOLS = "with outside verifiers †"
"""The column of what no verification repeats."""
MOST_SHOWN = 1000
"""Samples above which their table is a CSV file alone."""


class CertifyFacts(Facts):
    """Facts that the request leaves open."""

    eps: Listing[Amount]
    """The budgets, 0 first."""
    eps_text: Listing[str]
    """The same as they were written."""
    run: str | None = None
    """The digest of the manifest of the audit whose attacks count; null where the certification
    attacked."""


class ClassBand(Band, OfClass):
    """The bounds on one class."""

    n: int


class SampleBudgets(OfClass):
    """What is known of one sample, and its class."""

    sample: int
    proven: float | None
    """The largest budget at which it is proven robust; null if it is wrong without a change, or
    its class is not told."""
    with_verifiers: float | None = Field(default=None, exclude_if=lambda eps: eps is None)
    """The same with the proofs of outside verifiers; null without any."""
    broken: float | None
    """The smallest budget at which it is broken; 0 if it is wrong without a change, null if
    nothing broke it."""


class CertifyResult(FolderResult, Band):
    """What `brinell certify --json` prints.

    With smoothing all rates are of the smoothed model, none of the model itself.
    """

    printed: ClassVar[dict[str, str]] = {
        "certify": "result:CertifyResult",
        "certify-query": "result:QueryResult",
    }

    request: CertifyRequest
    facts: CertifyFacts
    n: int
    clean: Rate
    """Accuracy without a change."""
    per_class: list[ClassBand]
    closed: dict[str, int]
    """Pairs of sample and budget by what broke or proved them: attacks, the method of the
    largest proof, or solver:TOOL."""
    faults: list[str]
    """A line for each reason why answers of outside verifiers do not count."""
    vulnerable: list[SampleBudgets]
    """All samples, those first that are broken at the smallest budget, and proven up to the
    smallest."""

    def class_columns(self, model: str) -> Mapping[str, Mapping[str, Cell]]:
        """Proofs at the largest budget."""
        cells = {band.name: band.certified[-1] for band in self.per_class}
        return {f"proven at {self.facts.eps_text[-1]}": cells}

    @property
    def distance(self) -> str:
        """The distance of the budgets."""
        return self.request.norm

    def rates(self) -> dict[str, list[Rate]]:
        """Rates that a gate can judge, by metric."""
        return {
            "clean": [self.clean],
            "certified": self.with_verifiers or self.certified,
            **({"robust": self.robust} if self.robust else {}),
        }

    def cautions(self) -> list[str]:
        """The notes that a caller must see before the figures."""
        return self.faults

    def report(self) -> Report:
        """The report of the page, the terminal and the CSV files."""
        (model,) = self.names
        texts = self.facts.eps_text
        norm = distance(self.distance)
        asked: dict[float | None, Any] = dict(zip(self.facts.eps, texts, strict=True))
        # A gate is proposed up to the budget at which about half is proven.
        middle = min(
            range(1, len(texts)), key=lambda k: abs((self.certified[k].value or 0.0) - 0.5)
        )
        # The column of outside verifiers, where there are any, follows the proofs of our own.
        proven = ("proven", *([WITH_TOOLS] if self.with_verifiers else []))
        names = (*proven, *(["attacked"] if self.robust else []), "open")

        return Report(
            verb="certify",
            title=f"Proofs and attacks on {model}" if self.robust else f"Proofs of {model}",
            subject=f"{self.data}, {counted(self.n, 'sample')}; {norm}, eps up to {texts[-1]}",
            sentences=list(self._sentences()),
            blocks=[
                _curve(self, texts, norm, model),
                Table(
                    title="Between proofs and attacks" if self.robust else "Proven share",
                    columns=("eps", *names),
                    rows=[(text, *_cells(self, k)) for k, text in enumerate(texts)],
                    text="Intervals are of the sample: 95 %, Wilson.",
                    name="certified",
                    terminal=True,
                ),
                Figures(
                    title="The band of each class",
                    figures=[_curve(entry, texts, norm, entry.name) for entry in self.per_class],
                    folded=False,
                ),
                Table(
                    title="Class by class",
                    columns=("class", "samples", "eps", *names),
                    rows=[
                        (entry.name, entry.n, text, *_cells(entry, k))
                        for entry in self.per_class
                        for k, text in enumerate(texts)
                    ],
                    name="per_class",
                    folded=True,
                    filter=True,
                ),
                Table(
                    title="Sample by sample, the vulnerable first",
                    columns=("sample", "class", "proven up to", *proven[1:], "broken at"),
                    rows=[
                        (
                            e.sample,
                            e.name,
                            *(
                                asked.get(eps, eps)
                                for eps in (e.proven, e.with_verifiers)[: len(proven)]
                            ),
                            asked.get(e.broken, e.broken),
                        )
                        for e in self.vulnerable
                    ],
                    name="samples",
                    folded=True,
                    filter=True,
                    page=self.n <= MOST_SHOWN,
                ),
                *self._steps(),
            ],
            notes=[Note("solver", "warn", line) for line in self.cautions()],
            # One gate at most: that of the largest of these budgets at which anything is proven.
            steps=[
                Step(
                    f"Keep later models from falling below today's interval at {texts[k]}.",
                    "brinell gate FOLDER --certified "
                    f"{floor(self.certified[k]):g} --eps {texts[k]}",
                )
                for k in range(1, middle + 1)
                if floor(self.certified[k])
            ][-1:],
        )

    def _steps(self) -> Iterator[Table]:
        """How much of the band between no proof and no attack each step closed."""
        if self.robust:
            tools = [f"{name} {count:,}" for name, count in self.closed.items() if TOOL in name]
            steps = {name: count for name, count in self.closed.items() if TOOL not in name}
            # The first entry is the clean answer. A pair that outside verifiers alone closed is
            # still one of nothing, and the text counts it a second time.
            closed = {**steps, "nothing": sum(rate.k for rate in self.open[1:])}
            total = max(1, sum(closed.values()))

            yield Table(
                title="What closed the band",
                columns=("step", "pairs of sample and budget", "share"),
                rows=[(step, count, percent(count / total)) for step, count in closed.items()],
                text="A sample counts at each budget if it is right without a change. Each method "
                "tries what those before it left open."
                + f" Of the rest, outside verifiers closed † {', '.join(tools)}."
                * bool(tools),
                name="steps",
            )

    def _sentences(self) -> Iterator[str]:
        low = self.certified[-1]
        last = self.facts.eps_text[-1]
        if low.value is None:
            yield "No sample could be judged."
        elif not self.robust:
            (model,) = self.names
            middle = len(self.certified) // 2
            yield (
                f"{model[0].upper()}{model[1:]} is right on "
                f"{percent(self.clean.value)} of {counted(self.n, 'sample')}, and "
                "provably so within an L2 distance of "
                f"{self.facts.eps_text[middle]} on "
                f"{percent(self.certified[middle].value)}."
            )
            untold = self.open[0].k
            yield (
                "The smoothed model answers the most frequent class under "
                "Gaussian noise, which is another model than the one "
                "that was smoothed. Proofs are by randomised smoothing (Cohen et "
                "al. 2019) with exact binomial bounds."
                + f" {counted(untold, 'sample')} without a class that the draws "
                "tell count as wrong." * bool(untold)
            )
            return
        elif low.k == (high := self.robust[-1]).k:
            yield (
                f"Robust accuracy at {last} is {percent(low.value)}: each of "
                f"{low.n} samples is proven or has a counterexample."
            )
        else:
            yield (
                f"Robust accuracy at {last} lies between {percent(low.value)} "
                f"(proofs) and {percent(high.value)} (attacks): "
                f"{high.k - low.k} of {low.n} samples are neither proven nor broken."
            )

        if self.with_verifiers:
            yield f"With the proofs of outside verifiers † it is at least {percent(self.with_verifiers[-1].value)}."
        yield (
            "A proof holds for every input within eps of the sample and within "
            "the bounds of the data, for the network in exact "
            "arithmetic. Each broken sample has a stored counterexample."
        )


def _cells(band: Band, k: int) -> tuple[object, ...]:
    """The cells of a band at a budget: proven, attacked where there were attacks, and the number of
    open samples.
    """
    claimed = [band.with_verifiers[k]] if band.with_verifiers else []
    return (band.certified[k], *claimed, *([band.robust[k]] if band.robust else []), band.open[k].k)


def _curve(band: Band, texts: list[str], norm: str, title: str) -> Curve:
    lines = [
        ("attacked", band.robust),
        ("proven", band.certified),
        (WITH_TOOLS, band.with_verifiers),
    ]

    return Curve(
        title=title,
        series=[
            Series(name=name, points=[(rate.eps, rate) for rate in rates])
            for name, rates in lines
            if rates
        ],
        ticks=[(rate.eps, text) for rate, text in zip(band.certified, texts, strict=True)],
        axis=f"eps ({norm})",
        fill=bool(band.robust),
    )


def summarise(folder: Folder[Outcomes]) -> CertifyResult:
    """Figures of a folder from its rows."""
    table = folder.rows
    head = folder.head()
    levels = np.array(folder.facts.eps)
    has_attacks = not folder.request.is_smoothing
    has_tools = bool(of_tools(table).any())
    methods = folder.request.method if has_attacks else ()
    closed = {"attacks": int((table.outcome == BROKEN).sum())} if has_attacks else {}

    clean = table.outcome[table.eps == 0]
    per_class = []
    for label in np.unique(table.label).tolist():
        group = rows.take(table, table.label == label)
        band = _band(group, levels, has_attacks, has_tools)
        n = int((group.eps == 0).sum())
        name = class_name(head["classes"], label)
        per_class.append(ClassBand(class_=label, name=name, n=n, **band.model_dump()))

    return CertifyResult(
        **head,
        **_band(table, levels, has_attacks, has_tools).model_dump(),
        n=len(clean),
        clean=rate_of(clean == CERTIFIED, clean, 0.0),
        per_class=per_class,
        closed=closed
        | {
            name: int((table.method == name).sum())
            for name in [*methods, *sorted({*table.method} - {*methods, ""})]
        },
        faults=fault_lines(
            [
                line
                for file in sorted(folder.path.glob(VERDICTS.format("*")))
                for line in read_verdicts(file)
            ]
        ),
        vulnerable=sorted(
            _samples(table, head["classes"]),
            key=lambda s: (np.inf if s.broken is None else s.broken, s.proven or 0.0, s.sample),
        ),
    )


def _band(table: Outcomes, levels: Array, has_attacks: bool, has_tools: bool) -> Band:
    band = band_of(without_tools(table), levels)
    stated = band_of(table, levels).certified
    return band.model_copy(
        update={
            "robust": band.robust if has_attacks else [],
            "with_verifiers": stated if has_tools else [],
        }
    )


def _samples(table: Outcomes, names: list[str]) -> Iterator[SampleBudgets]:
    ids, first, index = np.unique(table.sample_id, return_index=True, return_inverse=True)
    # NaN stands for no budget; `fmax` and `fmin` pass it over.
    proven, claimed, broken = np.full((3, len(ids)), np.nan)
    lost = np.isin(table.outcome, (BROKEN, WRONG))
    # Proofs of outside verifiers are claimed, so they have a figure of their own.
    for part, limits in ((without_tools(table), proven), (table, claimed)):
        # A proof may reach beyond the budget of its row.
        held = part.outcome == CERTIFIED
        np.fmax.at(limits, index[held], np.fmax(table.eps, table.proven_at)[held])
    np.fmin.at(broken, index[lost], table.eps[lost])

    has_tools = bool(of_tools(table).any())
    for sample, label, most, stated, least in zip(
        ids.tolist(), table.label[first].tolist(), proven, claimed, broken, strict=True
    ):
        yield SampleBudgets(
            sample=sample,
            class_=label,
            name=class_name(names, label),
            proven=None if np.isnan(most) else float(most),
            with_verifiers=float(stated) if has_tools and not np.isnan(stated) else None,
            broken=None if np.isnan(least) else float(least),
        )


class QueryResult(Result):
    """What `brinell certify QUERY --network MODEL --json` prints."""

    query: str
    network: str
    verdict: Literal["sat", "unsat", "unknown"]
    """sat: an input satisfies the query; unsat: a proof that none does; unknown: neither within
    the time."""
    reason: str
    """How the verdict was reached, in a sentence."""
    x: dict[str, float]
    """Values of the inputs by name, in the type of the network; empty without a counterexample."""
    y: dict[str, float]
    """Values of the outputs by name, as ONNX Runtime answers."""
    slack: float | None
    """By how much the tightest constraint holds at the counterexample; without one at the best
    input that was tried."""
    gradients: bool
    """True if attacks had gradients."""
    forwards: int
    """Inputs that the network answered."""
    seconds: float
    """Wall time."""

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The answer in the form of the VNN competitions, and the reason as a comment."""
        yield self.verdict
        values = [*self.x.items(), *self.y.items()]
        for k, (name, value) in enumerate(values):
            start, end = "((" if k == 0 else " (", "))" if k == len(values) - 1 else ")"
            yield f"{start}{name} {value!r}{end}"
        yield f"; {self.reason}; {counted(self.forwards, 'input')} in {self.seconds:.1f} s"
