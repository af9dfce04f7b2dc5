"""The content of a claim: figures of a run, what they leave open, and how to repeat them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from markupsafe import escape

from brinell.analysis.folder_result import ClaimingResult, Result
from brinell.analysis.results import ModelResult, OfClass, Rate
from brinell.reports.markdown import markdown
from brinell.reports.numbers import counted, distance, full_text, percent
from brinell.reports.values import Code, Curve, Facts, Note, Prose, Report, Series, Step, Table
from brinell.store.folder import PAGE
from brinell.studies.claim import ClaimRequest
from brinell.studies.result import ReportedResult

JSON, CARD, BADGE = "claim.json", "card.md", "badge.svg"
"""Files beside the page that follow from the run."""
LETTER, LONGEST = 6.6, 40
"""Width in pixels of a letter of the badge, about that of 11 px Verdana, and the most letters of a text on it."""
TASKS = {"image": "image-classification", "video": "video-classification", "signal": "other", "vector": "tabular-classification"}
"""Names of tasks on the Hugging Face hub, by the kind of the inputs."""
KNOWLEDGE = {
    "gradients": "white-box: the attacker knows the model and its gradients",
    "scores": "black-box: the attacker sees the scores of the model",
    "labels": "black-box: the attacker sees the classes that the model predicts",
}
"""The knowledge of the attacker in the words of NIST AI 100-2, by the access that the model gave."""


class ClassClaim(OfClass):
    """One class at the budget of the claim."""

    n: int
    """Samples of the class."""
    clean: Rate
    """Accuracy without a change."""
    robust: Rate
    """Share that no attack broke: never below the truth for these samples."""
    certified: Rate | None
    """Share that is proven robust: never above the truth for these samples; null without proofs."""


class Level(Result):
    """One budget of the run, with its samples by outcome in the words of ISO/IEC 24029-2."""

    eps: float
    text: str
    """The budget as it was written."""
    robust: Rate
    """Share that no attack broke."""
    certified: Rate | None
    """Share that is proven robust; null without proofs."""
    proof: int
    """Proven robust."""
    counterexample: int
    """An input within the budget is misclassified, the sample itself included."""
    inconclusive: int
    """Neither."""


class CheckCounts(Result):
    """Checks of whether attacks fail for another reason than robustness."""

    passed: int
    failed: int
    not_made: int
    verdict: str
    """all passed, or what failed and what was not made."""
    failures: list[str]
    """The finding of each failed check."""


class ClaimResult(ReportedResult, ClaimingResult):
    """What `brinell claim --json` prints."""

    words: ClassVar[frozenset[str]] = frozenset({"date"})

    folder: str
    request: ClaimRequest
    run_digest: str
    """Digest of the run's manifest, which lists the digests of its files."""
    model: str
    model_digest: str
    data: str
    data_digest: str
    distance: str
    eps: float
    eps_text: str
    criterion: str
    domain: str
    """The inputs that the claim is about."""
    task: str
    """Name of the task on the Hugging Face hub."""
    n: int
    """Samples."""
    clean: Rate
    robust: Rate
    """Share that no attack broke at `eps`: never below the truth for these samples."""
    certified: Rate | None
    """Share that is proven robust at `eps`; null without proofs."""
    per_class: list[ClassClaim]
    levels: list[Level]
    """All budgets above 0."""
    attacks: str
    """The attacks as they were asked for."""
    stages: list[str]
    """The attacks that ran."""
    knowledge: str
    """The knowledge of the attacker, in the words of NIST AI 100-2."""
    checks: CheckCounts
    date: str
    """Day on which the run was finished, as it says."""
    not_tested: list[str]
    """Subjects on which the claim is silent."""
    repeat: str
    """The command that repeats the run, made from its settings."""

    def report(self) -> Report:
        """The report of the page, the terminal, the card and the CSV files."""
        norm = distance(self.distance)
        proven = self.certified is not None
        lines = [("attacked", [self.clean, *(level.robust for level in self.levels)])]
        lines += [("proven", [self.clean, *(level.certified for level in self.levels if level.certified)])] if proven else []
        return Report(
            verb="claim",
            title=f"What was shown of {self.model}, and what was not",
            subject=f"{self.data}, {counted(self.n, 'sample')}; {norm} {self.eps_text}",
            sentences=list(self._sentences(norm)),
            notes=list(self._notes()),
            steps=[Step("Repeat the run.", self.repeat), Step("Verify the run and this claim.", "brinell verify FOLDER")],
            blocks=[
                Curve(
                    title="Between attacks and proofs" if proven else "Accuracy that the attacks leave",
                    series=[Series(name=name, points=[(rate.eps, rate) for rate in rates]) for name, rates in lines],
                    ticks=[(0.0, "0"), *((level.eps, level.text) for level in self.levels)],
                    axis=f"eps ({norm})",
                    fill=proven,
                ),
                Facts(
                    title=f"At {self.eps_text}",
                    facts=[
                        ("without a change", self.clean),
                        ("at most, by attacks", self.robust),
                        ("at least, by proofs", self.certified or "no proofs"),
                    ],
                    folded=False,
                ),
                Table(
                    title="Budget by budget",
                    columns=("eps", "proof", "counterexample", "inconclusive", "attacked", "proven")[: 6 if proven else 5],
                    rows=[
                        (entry.text, entry.proof, entry.counterexample, entry.inconclusive, entry.robust, entry.certified)[
                            : 6 if proven else 5
                        ]
                        for entry in self.levels
                    ],
                    text="The words are those of ISO/IEC 24029-2. A counterexample is a stored input within the budget, or the "
                    "sample itself if it is misclassified. Intervals are of the sample: 95 %, Wilson.",
                    name="budgets",
                    terminal=True,
                ),
                Table(
                    title=f"Class by class at {self.eps_text}",
                    columns=("class", "samples", "clean", "attacked", "proven")[: 5 if proven else 4],
                    rows=[(e.name, e.n, e.clean, e.robust, e.certified)[: 5 if proven else 4] for e in self.per_class],
                    name="per_class",
                ),
                Prose(title="What was not tested", sentences=self.not_tested, folded=False),
                Facts(title="What was tested", facts=list(self._facts(norm)), folded=False),
            ],
        )

    def _sentences(self, norm: str) -> Iterator[str]:
        yield (
            f"{self.model} classifies {percent(self.clean.value)} of {counted(self.n, 'sample')} of {self.data} correctly, and "
            f"{percent(self.robust.value)} under every attack that was tried within {norm} {self.eps_text}."
        )
        if self.certified is not None:
            yield f"Proofs bound this from below: {full_text(self.certified)} are proven robust."
        classes = [entry for entry in self.per_class if entry.robust.value is not None]
        if len(classes) > 1:
            worst = min(classes, key=lambda entry: (entry.robust.value or 0.0, entry.class_))
            yield f"The weakest class is {worst.name}, with {full_text(worst.robust)}."

    def _notes(self) -> Iterator[Note]:
        if self.checks.failed:
            yield Note("checks", "warn", f"Checks of the attacks: {self.checks.verdict}. The robust accuracy may be lower.")
        elif not self.checks.passed:
            yield Note(
                "checks", "warn", "No checks were made, so the attacks may have failed for another reason than robustness."
            )
        yield Note("verification", "note", "These figures are those of a run; brinell verify finds out whether they hold.")

    def _facts(self, norm: str) -> Iterator[tuple[str, Any]]:
        yield "domain", self.domain
        yield "threat", f"evasion (NIST AI 100-2): inputs changed by at most {self.eps_text} in {norm}, inside the bounds"
        yield "a counterexample is", self.criterion
        yield "knowledge", self.knowledge
        yield "attacks", self.attacks
        yield "attacks that ran", self.stages
        counts = self.checks
        yield "checks", f"{counts.passed} passed, {counts.failed} failed, {counts.not_made} not made"
        yield "findings of failed checks", counts.failures or "none"
        yield "model", Code(self.model_digest)
        yield "data", Code(self.data_digest)
        yield "run", Code(f"{self.request.run}, {self.run_digest}")
        yield "finished", self.date

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The report as a terminal shows it, and where it lies."""
        yield from (line.replace("FOLDER", self.folder) for line in super().lines(verbose=verbose))
        yield f"page: {self.folder}/{PAGE}, model card: {self.folder}/{CARD}"

    def texts(self) -> dict[str, str]:
        """The content of the files beside the page."""
        content = self.payload()
        del content["folder"]  # the file says the same wherever it lies
        return {JSON: json.dumps(content, indent=1, ensure_ascii=False) + "\n", CARD: self._card(), BADGE: self._badge()}

    def _card(self) -> str:
        """A model card of the Hugging Face hub: the metrics as YAML, which reads JSON, and the report."""
        figures = [("clean accuracy", self.clean), (f"robust accuracy, {self.distance} {self.eps_text}, attacked", self.robust)]
        figures += [(f"robust accuracy, {self.distance} {self.eps_text}, proven", self.certified)] if self.certified else []
        metrics = [
            {"type": "accuracy", "name": name, "value": None if rate.value is None else round(100 * rate.value, 2)}
            for name, rate in figures
        ]
        dataset = {"name": self.data, "type": self.data}
        index = [{"name": self.model, "results": [{"task": {"type": self.task}, "dataset": dataset, "metrics": metrics}]}]
        text = json.dumps(index, indent=1).replace("<", "\\u003c")
        return f"---\nmodel-index: {text}\n---\n\n{markdown(self.report())}"

    def _badge(self) -> str:
        """Figure, budget and date as a small SVG that stands alone."""
        subject = f"robust at {distance(self.distance)} {self.eps_text}"[:LONGEST]
        figure = percent(self.robust.value)
        span = f"≤ {figure}" if self.certified is None else f"{percent(self.certified.value)} to {figure}"
        right = f"{span}, {self.date}".replace("\u00a0", " ")[:LONGEST]
        label = escape(f"Brinell: {subject}: {right}; {self.n} samples, checks: {self.checks.verdict}")
        first, second = (round(LETTER * len(text)) + 16 for text in (subject, right))
        width, colour = first + second, "#3d5166" if self.checks.failed == 0 else "#7a5200"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="22" viewBox="0 0 {width} 22" role="img" '
            f'aria-label="{label}"><title>{label}</title><rect width="{width}" height="22" rx="4" fill="{colour}"/>'
            f'<path d="M4 0h{first - 4}v22H4a4 4 0 0 1-4-4V4a4 4 0 0 1 4-4z" fill="#1a1c1f"/>'
            '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
            f'<text x="{first / 2:g}" y="15" textLength="{first - 16}">{escape(subject)}</text>'
            f'<text x="{first + second / 2:g}" y="15" textLength="{second - 16}">{escape(right)}</text></g></svg>\n'
        )


def summarise(
    folder: str, request: ClaimRequest, manifest: Mapping[str, Any], result: ModelResult, position: int, digest: str, repeat: str
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
    facts, data = next(entry for entry in manifest["models"] if entry["name"] == result.model), manifest["data"]
    states = [check.passed for check in result.checks]
    certified = result.certified
    levels = []
    for k, (eps, text, robust) in enumerate(zip(result.eps, result.eps_text, result.robust_accuracy, strict=True)):
        if eps > 0:
            proven = None if certified is None else certified[k]
            proofs = proven.k if proven else 0
            counts = {"proof": proofs, "counterexample": robust.n - robust.k, "inconclusive": robust.k - proofs}
            levels.append(Level(eps=eps, text=text, robust=robust, certified=proven, **counts))
    return ClaimResult(
        folder=folder,
        request=request,
        run_digest=digest,
        model=result.model,
        model_digest=facts["digest"],
        data=data["name"],
        data_digest=data["digest"],
        distance=result.distance,
        eps=result.eps[position],
        eps_text=result.eps_text[position],
        criterion=result.criterion,
        domain=_domain(data),
        task=TASKS[data["domain"]["kind"]],
        n=result.n,
        clean=result.clean_accuracy,
        robust=result.robust_accuracy[position],
        certified=None if certified is None else certified[position],
        per_class=[
            ClassClaim(
                class_=entry.class_,
                name=entry.name,
                n=entry.n,
                clean=entry.clean,
                robust=entry.robust[position],
                certified=None if entry.certified is None else entry.certified[position],
            )
            for entry in result.per_class
        ],
        levels=levels,
        attacks=result.attacks,
        stages=[stage.title for stage in result.stages if stage.forwards or stage.surrogate_passes],
        knowledge=KNOWLEDGE[facts["access"]],
        checks=CheckCounts(
            passed=states.count(True),
            failed=states.count(False),
            not_made=states.count(None),
            verdict=result.caveat or "all checks that count passed",
            failures=[f"{check.code}: {check.text}" for check in result.checks if check.passed is False],
        ),
        date=str(manifest["finished"] or "")[:10],
        not_tested=list(_untested(result, data, levels[-1].text)),
        repeat=repeat,
    )


def _domain(data: Mapping[str, Any]) -> str:
    """The inputs that a claim is about, in a sentence part."""
    domain = data["domain"]
    low, high = (value if isinstance(value, list) else [value] for value in (domain["low"], domain["high"]))
    shape = " x ".join(map(str, domain["shape"]))
    return (
        f"{domain['kind']} inputs of {shape} values from {min(low):g} to {max(high):g}; {data['name']}, {data['total']:,} samples"
    )


def _untested(result: ModelResult, data: Mapping[str, Any], largest: str) -> Iterator[str]:
    """The limits of a claim, a sentence each."""
    yield f"Budgets above {largest} in {distance(result.distance)}, and changes in other distances (rotation, blur, patches)."
    yield "Attacks stronger than those that ran, which may lower the robust accuracy: attacks prove nothing by failing."
    if result.certified is None:
        yield "Proofs: samples that no attack broke are inconclusive."
    if missing := int(data["total"]) - int(data["n"]):
        yield f"{missing:,} of {data['total']:,} samples of the data."
    if result.classes_without_samples:
        yield f"{result.classes_without_samples} of {len(data['classes'])} classes, which have no sample in the run."
    yield "Inputs from other sources than the test data, and drift in use."
    yield "Poisoning, privacy and extraction (NIST AI 100-2), and the system around the model."
    if not_made := [check.code for check in result.checks if check.passed is None]:
        yield f"Checks that were not made: {', '.join(not_made)}."
