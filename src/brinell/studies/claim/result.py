"""The content of a claim: figures of a run, what they leave open, and how to repeat them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from markupsafe import escape

from brinell.analysis.folder_result import ClaimingResult
from brinell.analysis.published import PublishedPlace, compare_with_entries
from brinell.analysis.results import ModelResult, Rate
from brinell.analysis.robust_accuracy import with_classes
from brinell.manifest import DataFacts
from brinell.reports.markdown import markdown
from brinell.reports.numbers import counted, distance, full_text, percent
from brinell.reports.published import place_sentence, place_table
from brinell.reports.statements import class_sentence
from brinell.reports.values import (
    Claimed,
    Code,
    Curve,
    Facts,
    Note,
    Prose,
    Report,
    Series,
    Step,
    Table,
)
from brinell.store.files import write_text
from brinell.store.folder import PAGE
from brinell.studies.claim import ClaimRequest
from brinell.studies.result import ReportedResult

JSON, CARD, BADGE = "claim.json", "card.md", "badge.svg"
"""Files beside the page that follow from the run."""
LETTER, LONGEST = 6.6, 40
"""Width in pixels of a letter of the badge, about that of 11 px Verdana, and the most letters of
a text on it."""
TASKS = {
    "image": "image-classification",
    "video": "video-classification",
    "signal": "other",
    "vector": "tabular-classification",
}
"""Names of tasks on the Hugging Face hub, by the kind of the inputs."""
KNOWLEDGE = {
    "gradients": "white-box: the attacker knows the model and its gradients",
    "scores": "black-box: the attacker sees the scores of the model",
    "labels": "black-box: the attacker sees the classes that the model predicts",
}
"""The knowledge of the attacker in the words of NIST AI 100-2, by the access that the model
gave."""


class ClaimResult(ReportedResult, ClaimingResult):
    """What `brinell claim --json` prints."""

    page = PAGE
    claimed_names: ClassVar[frozenset[str]] = frozenset({"date"})

    folder: str
    request: ClaimRequest
    run_digest: str
    """Digest of the run's manifest, which lists the digests of its files."""
    data: DataFacts
    model_digest: str
    knowledge: str
    """The knowledge of the attacker, in the words of NIST AI 100-2."""
    position: int
    """Position of the budget of the claim in the lists of the result."""
    result: ModelResult
    """All figures of the model in the run."""
    not_tested: list[str]
    """Subjects on which the claim is silent."""
    date: str
    """Day on which the run was finished, as it says."""
    repeat: str
    """The command that repeats the run, made from its settings."""
    published: PublishedPlace | None = None
    """The place of the figure among published entries; null if nobody asked."""

    @property
    def robust(self) -> Rate:
        """Share that no attack broke at the budget of the claim: never below the truth for these
        samples.
        """
        return self.result.robust_accuracy[self.position]

    @property
    def certified(self) -> Rate | None:
        """Share that is proven robust there: never above the truth for these samples; None without
        proofs.
        """
        return None if self.result.certified is None else self.result.certified[self.position]

    @property
    def _threat(self) -> str:
        return f"{distance(self.result.distance)} {self.result.eps_text[self.position]}"

    def report(self) -> Report:
        """The report of the page, the terminal, the card and the CSV files."""
        result, k = self.result, self.position
        proven = result.certified
        budgets = [i for i, eps in enumerate(result.eps) if eps > 0]
        lines = [("attacked", result.robust_accuracy), *([("proven", proven)] if proven else [])]

        return Report(
            verb="claim",
            title=f"What was shown of {result.name}, and what was not",
            subject=f"{self.data.name}, {counted(result.n, 'sample')}; {self._threat}",
            sentences=list(self._sentences()),
            notes=list(self._notes()),
            steps=[
                Step("Repeat the run.", self.repeat),
                Step("Verify the run and this claim.", "brinell verify FOLDER"),
            ],
            blocks=[
                Curve(
                    title="Between attacks and proofs"
                    if proven
                    else "Accuracy that the attacks leave",
                    series=[
                        Series(
                            name=name,
                            points=[
                                (0.0, result.clean_accuracy),
                                *((result.eps[i], rates[i]) for i in budgets),
                            ],
                        )
                        for name, rates in lines
                    ],
                    ticks=[(0.0, "0"), *((result.eps[i], result.eps_text[i]) for i in budgets)],
                    axis=f"eps ({distance(result.distance)})",
                    fill=proven is not None,
                ),
                Table(
                    title="Budget by budget",
                    columns=(
                        "eps",
                        "proof",
                        "counterexample",
                        "inconclusive",
                        *(name for name, _ in lines),
                    ),
                    rows=[
                        (result.eps_text[i], *_outcomes(*(rates[i] for _, rates in lines)))
                        for i in budgets
                    ],
                    text="The words are those of ISO/IEC 24029-2. A counterexample is "
                    "a stored input within the budget, or the "
                    "sample itself if it is misclassified. Intervals are of the "
                    "sample: 95 %, Wilson.",
                    name="budgets",
                    terminal=True,
                ),
                Table(
                    title=f"Class by class at {result.eps_text[k]}",
                    columns=("class", "samples", "clean", *(name for name, _ in lines)),
                    rows=[
                        (
                            c.name,
                            c.n,
                            c.clean,
                            c.robust[k],
                            *([c.certified[k]] if c.certified else []),
                        )
                        for c in result.per_class
                    ],
                    name="per_class",
                    heat=True,
                ),
                *self._published_tables(),
                Prose(title="What was not tested", sentences=self.not_tested, folded=False),
                Facts(title="What was tested", facts=list(self._facts()), folded=False),
            ],
        )

    def _published_tables(self) -> Iterator[Table]:
        if self.published is not None:
            result = self.result
            yield place_table(self.published, result.name, result.clean_accuracy, self.robust)

    def _sentences(self) -> Iterator[str]:
        result = self.result
        yield (
            f"{result.name} classifies {percent(result.clean_accuracy.value)} of "
            f"{counted(result.n, 'sample')} of "
            f"{self.data.name} correctly, and at most "
            f"{percent(self.robust.value)} under attack ({result.attacks}) within "
            f"{self._threat}."
        )

        if self.certified is not None:
            yield f"Proofs bound this from below: {full_text(self.certified)} are proven robust."
        if len(result.per_class) > 1:
            yield class_sentence(result.statements)
        if self.published is not None:
            yield place_sentence(self.published, self.robust)

    def _notes(self) -> Iterator[Note]:
        passed = [check.passed for check in self.result.checks]
        if False in passed:
            yield Note(
                "checks",
                "warn",
                f"Checks of the attacks: {self.result.caveat}. The robust accuracy may be lower.",
            )
        elif True not in passed:
            yield Note(
                "checks",
                "warn",
                "No checks were made, so the attacks may have failed for another "
                "reason than robustness.",
            )

        yield Note(
            "verification",
            "note",
            "These figures are those of a run; brinell verify finds out whether they hold.",
        )

    def _facts(self) -> Iterator[tuple[str, Any]]:
        result, domain = self.result, self.data.domain
        low = np.ravel(domain.low)
        high = np.ravel(domain.high)
        passed = [check.passed for check in result.checks]
        failures = [
            f"{check.code}: {check.text}" for check in result.checks if check.passed is False
        ]

        yield (
            "domain",
            f"{domain.kind} inputs of {' x '.join(map(str, domain.shape))} values "
            f"from {min(low):g} to {max(high):g}; "
            f"{self.data.name}, {self.data.total:,} samples",
        )
        budget = f"{result.eps_text[self.position]} in {distance(result.distance)}"
        yield (
            "threat",
            f"evasion (NIST AI 100-2): inputs changed by at most {budget}, inside the bounds",
        )
        yield "a counterexample is", result.criterion
        yield "knowledge", self.knowledge
        yield "attacks", result.attacks
        yield (
            "attacks that ran",
            [stage.label for stage in result.stages if stage.forwards or stage.surrogate_passes],
        )
        yield (
            "checks",
            f"{passed.count(True)} passed, {passed.count(False)} failed, "
            f"{passed.count(None)} not made",
        )
        yield "findings of failed checks", failures or "none"
        yield "model", Code(self.model_digest)
        yield "data", Code(self.data.digest)
        yield "run", Code(self.run_digest)
        yield "folder of the run", Claimed(self.request.run)
        yield "finished", Claimed(self.date)

    def places(self) -> Iterator[str]:
        """The paths of the page and of the model card."""
        yield from super().places()
        yield f"model card: {self.folder}/{CARD}"

    def write(self) -> Path:
        """Write the page, its tables and the files beside it; returns the path of the page."""
        for name, text in self.texts().items():
            write_text(Path(self.folder) / name, text)
        return super().write()

    def texts(self) -> dict[str, str]:
        """The content of the files beside the page."""
        content = self.payload()
        del content["folder"]  # the file says the same wherever it lies
        return {
            JSON: json.dumps(content, indent=1, ensure_ascii=False) + "\n",
            CARD: self._card(),
            BADGE: self._badge(),
        }

    def _card(self) -> str:
        """A model card of the Hugging Face hub: the metrics as YAML, which reads JSON, and the
        report.
        """
        name = f"robust accuracy, {self.result.distance} {self.result.eps_text[self.position]}"
        figures = [
            ("clean accuracy", self.result.clean_accuracy),
            (f"{name}, attacked", self.robust),
        ]
        figures += [(f"{name}, proven", self.certified)] if self.certified else []

        metrics = [
            {
                "type": "accuracy",
                "name": name,
                "value": None if rate.value is None else round(100 * rate.value, 2),
            }
            for name, rate in figures
        ]
        results = {
            "task": {"type": TASKS[self.data.domain.kind]},
            "dataset": {"name": self.data.name, "type": self.data.name},
            "metrics": metrics,
        }
        # JSON within YAML; a page that shows the card must find no tag in it.
        text = json.dumps([{"name": self.result.name, "results": [results]}], indent=1).replace(
            "<", "\\u003c"
        )
        return f"---\nmodel-index: {text}\n---\n\n{markdown(self.report())}"

    def _badge(self) -> str:
        """Figure, budget and date as a small SVG that stands alone."""
        figure = percent(self.robust.value)
        failed = any(check.passed is False for check in self.result.checks)
        span = (
            f"≤ {figure}"
            if self.certified is None
            else f"{percent(self.certified.value)} to {figure}"
        )
        subject = f"robust at {self._threat}"[:LONGEST]
        right = f"{span}, {self.date} †".replace("\u00a0", " ")[:LONGEST]
        checks = self.result.caveat or "all checks that count passed"
        label = escape(f"Brinell: {subject}: {right}; {self.result.n} samples, checks: {checks}")

        # Widths are guessed by the number of letters, with 8 pixels on both sides, and `textLength`
        # makes the text fit them.
        first = round(LETTER * len(subject)) + 16
        second = round(LETTER * len(right)) + 16
        width = first + second
        colour = "#7a5200" if failed else "#3d5166"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="22" '
            f'viewBox="0 0 {width} 22" role="img" '
            f'aria-label="{label}"><title>{label}</title><rect width="{width}" '
            f'height="22" rx="4" fill="{colour}"/>'
            f'<path d="M4 0h{first - 4}v22H4a4 4 0 0 1-4-4V4a4 4 0 0 1 4-4z" fill="#1a1c1f"/>'
            '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" '
            'font-size="11" text-anchor="middle">'
            f'<text x="{first / 2:g}" y="15" textLength="{first - 16}">{escape(subject)}</text>'
            f'<text x="{first + second / 2:g}" y="15" '
            f'textLength="{second - 16}">{escape(right)}</text></g></svg>\n'
        )


def _outcomes(robust: Rate, certified: Rate | None = None) -> tuple[Any, ...]:
    """The samples of a budget by outcome in the words of ISO/IEC 24029-2, and its rates."""
    proofs = certified.k if certified else 0
    return (
        proofs,
        robust.n - robust.k,
        robust.k - proofs,
        robust,
        *([certified] if certified else []),
    )


def summarise(
    folder: str,
    request: ClaimRequest,
    manifest: Mapping[str, Any],
    result: ModelResult,
    position: int,
    digest: str,
    repeat: str,
) -> ClaimResult:
    """The claim about a model of a run.

    Args:
        folder: the folder of the claim.
        request: what was asked for.
        manifest: that of the run.
        result: the figures of the model.
        position: position of the budget of the claim.
        digest: digest of the run's manifest.
        repeat: the command that repeats the run.
    """
    facts = next(entry for entry in manifest["models"] if entry["name"] == result.name)
    data = DataFacts.model_validate(manifest["data"])
    published = None
    if request.against is not None:
        recommended = manifest.get("recommended") is not None
        published = compare_with_entries(result, position, data, recommended=recommended)

    return ClaimResult(
        folder=folder,
        request=request,
        run_digest=digest,
        data=data,
        model_digest=facts["digest"],
        knowledge=KNOWLEDGE[facts["access"]],
        position=position,
        # It says the same wherever it lies.
        result=with_classes(result, position).model_copy(update={"folder": request.run}),
        not_tested=list(_untested(result, data)),
        date=str(manifest["finished"] or "")[:10],
        repeat=repeat,
        published=published,
    )


def _untested(result: ModelResult, data: DataFacts) -> Iterator[str]:
    """The limits of a claim, a sentence each."""
    largest = f"{result.eps_text[-1]} in {distance(result.distance)}"
    yield f"Budgets above {largest}, and changes in other distances (rotation, blur, patches)."
    yield (
        "Attacks stronger than those that ran, which may lower the robust accuracy: "
        "attacks prove nothing by failing."
    )

    if result.certified is None:
        yield "Proofs: samples that no attack broke are inconclusive."
    if missing := data.total - data.n:
        yield f"{missing:,} of {data.total:,} samples of the data."
    if result.classes_without_samples:
        yield (
            f"{result.classes_without_samples} of {len(data.classes)} classes, which "
            "have no sample in the run."
        )

    yield "Inputs from other sources than the test data, and drift in use."
    yield "Poisoning, privacy and extraction (NIST AI 100-2), and the system around the model."
    if not_made := [check.code for check in result.checks if check.passed is None]:
        yield f"Checks that were not made: {', '.join(not_made)}."
