"""Figures of `brinell epsilon`, and the report: recommended eps, reasons and evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import AliasChoices, Field

from brinell.analysis.folder_result import ClaimingResult, Result
from brinell.analysis.robust_accuracy import class_name
from brinell.core.record import Array
from brinell.reports import html
from brinell.reports.numbers import counted, distance, listed, percent, short
from brinell.reports.pictures import picture
from brinell.reports.values import (
    Block,
    Code,
    Curve,
    Detail,
    Example,
    Facts,
    Figures,
    Gallery,
    Note,
    Percent,
    Picture,
    Prose,
    Report,
    Seconds,
    Series,
    Step,
    Table,
)
from brinell.store.folder import PAGE
from brinell.studies.epsilon import EpsilonRequest
from brinell.studies.epsilon.conditions import INTERPOLATION, LABEL, PERCEPTION
from brinell.studies.epsilon.records import load_folder, sample_limits
from brinell.studies.result import ReportedResult

CLASS: Any = Field(serialization_alias="class", validation_alias=AliasChoices("class", "class_"))
REASONS = {LABEL: "label constancy", INTERPOLATION: "interpolation", PERCEPTION: "perceptibility", "": "nothing"}
CURVES = {LABEL: "label may change", INTERPOLATION: "meets its class", PERCEPTION: "noticed"}
LEVELS: dict[str, Literal["warn", "note"]] = {
    **dict.fromkeys(("conflict", "leak", "constant", "single", "one-class"), "warn"),
    **dict.fromkeys(("duplicates", "fixed", "no-perception"), "note"),
}
"""Levels of notes on the data; further notes say how the study measured."""
MOST_CLASSES = 20
"""Largest number of classes whose distances the page shows; the CSV file has all."""
POINTS = 80


class Surprise(Result):
    """A class whose samples are, on average, nearer to those of another class than to each other."""

    norm: str
    """Norm of the distances."""
    class_: int = CLASS
    """The class."""
    nearer_to: int
    """The class that is nearer."""
    mean_within: float
    """Mean distance between two samples of the class."""
    mean_between: float
    """Mean distance to a sample of the nearer class."""


class Heat(Result):
    """Mean distances between classes in one norm."""

    norm: str
    """Norm of the distances."""
    means: list[list[float | None]]
    """Means by class of the row and class of the column; null without a pair."""


class Separation(Result):
    """Distances of the samples of a class to their nearest neighbours; null without such a neighbour."""

    class_: int | None = CLASS
    """The class; null for all samples."""
    n: int
    """Number of samples."""
    other_least: float | None
    """Smallest distance to a sample of another class."""
    other_median: float | None
    """Median distance to the nearest sample of another class."""
    same_median: float | None
    """Median distance to the nearest different sample of the class."""
    nearer_other: float
    """Share of the samples whose nearest neighbour has another label."""
    train_least: float | None = None
    """Smallest distance to a training sample of another class."""
    train_same_median: float | None = None
    """Median distance to the nearest training sample of the class."""


class Recommendation(Result):
    """A recommended eps and the condition that limits it."""

    class_: int | None = CLASS
    """The class; null for all samples."""
    eps: float | None
    """Largest budget that keeps every condition on all but the allowed share of the samples; null without a limit."""
    reason: str
    """The condition that breaks first above it: label, interpolation or perception."""
    sound: float | None
    """Largest sound budget: `eps` without the condition of perception."""
    sound_reason: str
    """The condition that breaks first above the sound budget."""


class Outline(Result):
    """Budget up to which the outline of another class, added to a sample, keeps within the budget that is sound in L2."""

    eps: float
    """The budget."""
    l2: float
    """The budget that is sound in L2."""


class BudgetEffect(Result):
    """Effect of one budget on the samples."""

    eps: float
    """The budget."""
    text: str
    """The budget as text."""
    label: float | None
    """Share of the samples on which it breaks label constancy; null without this condition."""
    interpolation: float | None
    """Share of the samples on which it reaches another sample of the class."""
    perception: float | None
    """Share of the samples on which the change is noticed."""
    any: float
    """Share of the samples on which it breaks any condition."""
    ssim: float | None = None
    """Median structural similarity of a typical change; null for data without visual meaning."""
    psnr: float | None = None
    """Median peak signal-to-noise ratio in dB."""
    background_changed: float | None = None
    """Median share of the background that changes; null without background."""


class NormRecommendation(Result):
    """Recommendations in one norm."""

    norm: str
    """The norm."""
    overall: Recommendation
    """One eps for all samples."""
    unnoticed: float | None
    """Largest eps whose changes go unnoticed on all but the allowed share of the samples; null without this condition."""
    sound: float | None
    """Largest eps that keeps the other conditions, so an error counts against the model; null without a limit."""
    outline: Outline | None
    """Where this norm and L2 disagree about the outline of another class; null if `sound` is below, or if it is not known."""
    audit: float | None
    """Largest eps to audit with: `sound`, or that of `outline`; null without a limit. Page, terminal and advice name it."""
    judged_on: str | None
    """Evidence for perceptibility: people (answers), attacks (stored adversarial examples) or noise (random changes)."""
    sound_budgets: list[str]
    """Usual budgets of publications up to `audit`, ascending."""
    advice: str
    """The recommended range and its reasons, as text."""
    strict: float | None
    """The largest eps that keeps every condition on every sample."""
    explanation: str
    """The reason for `overall.eps`, in one sentence."""
    sound_explanation: str | None
    """The reason for `sound`, in one sentence; null without the condition of perception."""
    per_class: list[Recommendation]
    """One eps for each class."""
    per_sample: list[float | None]
    """Minimum, first quartile, median, third quartile and maximum of the budgets of single samples."""
    reasons: dict[str, int]
    """Number of samples that each condition limits."""
    separation: list[Separation]
    """Separation of all samples, then of each class."""
    usual: list[BudgetEffect]
    """Effects of the recommended budgets and of the usual budgets of publications."""


class NoteResult(Result):
    """A note on the data."""

    code: str
    """Short name of the note."""
    text: str
    """The note, in one line."""


class EpsilonResult(ReportedResult, ClaimingResult):
    """Result of `brinell epsilon`, which `--json` prints."""

    folder: str
    """The folder."""
    request: EpsilonRequest
    data: str
    """Name of the data."""
    n: int
    """Number of samples."""
    classes: list[str]
    """Names of the classes."""
    conditions: list[str]
    """Conditions that the recommendations keep."""
    heat: list[Heat]
    """Mean distances between classes."""
    surprises: list[Surprise]
    """Classes that are nearer to another class than to themselves."""
    norms: list[NormRecommendation]
    """Recommendations by norm."""
    notes: list[NoteResult]
    """Notes on the data."""
    seconds: float
    """Wall time in seconds."""

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The report as a terminal shows it, and the path of the page."""
        for line in super().lines(verbose=verbose):
            yield line.replace("FOLDER", self.folder)
        yield f"page: {self.folder}/{PAGE}"

    def write(self) -> Path:
        """Write the page and its tables into the folder."""
        return html.write(Path(self.folder), self.report())

    def report(self) -> Report:
        """What the page, the terminal and the CSV files say."""
        facts, arrays = load_folder(Path(self.folder))
        data, train = facts["data"], facts["train"]
        shape = " × ".join(map(str, data["domain"]["shape"]))
        neighbours = f"; neighbours in {train['name']} ({counted(train['n'], 'sample')}) too" if train else ""
        curves = [curve(sample_limits(facts, arrays["samples"], norm.norm), norm) for norm in self.norms]
        title = "Share of the samples on which each condition breaks"
        further = Figures(title=f"{title}, other norms", figures=curves[1:])
        blocks: list[Block] = [
            replace(curves[0], title=title),
            self._budgets(),
            Prose(title="Reasons, norm by norm", sentences=[norm.advice for norm in self.norms]),
            *([further] if curves[1:] else []),
            *galleries(facts, arrays["crafted"], self.classes),
            *(self._class_table(norm, number > 0) for number, norm in enumerate(self.norms)),
            *(self._usual_table(norm, facts) for norm in self.norms if norm.usual),
            *(self._distance_table(heat, facts) for heat in sorted(self.heat, key=lambda heat: heat.norm != "l2")),
            *(self._separation_table(norm, train) for norm in self.norms),
            Facts(title="Method", facts=self._method(facts)),
        ]
        return Report(
            verb="epsilon",
            title=f"Which eps for {self.data}",
            subject=f"{counted(self.n, 'sample')}, {counted(len(self.classes), 'class', 'classes')}; {data['domain']['kind']} of "
            f"shape {shape}{neighbours}",
            sentences=self._sentences(),
            blocks=blocks,
            notes=[Note(note.code, LEVELS[note.code], note.text) for note in self.notes if note.code in LEVELS],
            steps=list(self._steps(data["spec"])),
            request=facts["request"],
            provenance=[("data", Code(data["digest"])), ("computed in", Seconds(self.seconds))],
        )

    def _sentences(self) -> list[str]:
        """The range of the first norm, and what a distance cannot tell."""
        best = self.norms[0]
        name, sound, unnoticed, limit = distance(best.norm), best.sound, best.unnoticed, best.audit
        if sound == 0 or (sound is None and not unnoticed):
            return [best.advice]
        bound = "without a limit by distance" if limit is None else f"up to {eps_text(limit)}"
        clause = f"; changes up to {eps_text(unnoticed)} go unnoticed" if unnoticed and (not limit or unnoticed < limit) else ""
        sentences = [f"{name}: audit {bound}{clause}."]
        if sound is not None:
            sentences.append(
                f"By distance alone, {eps_text(sound)} is sound: except on at most {self._allowed()} of the samples, no "
                "change within it leads to another sample of the data."
            )
        if best.outline is not None:
            sentences.append(
                f"Above {eps_text(best.outline.eps)} the norms disagree: the outline of another class, added to a sample, is "
                f"then farther than {eps_text(best.outline.l2)} in L2, the budget that is sound there. The pictures "
                "below show which class one sees."
            )
        return sentences

    def _steps(self, spec: str) -> Iterator[Step]:
        best = self.norms[0]
        budget = best.sound_budgets[-1] if best.sound_budgets else eps_text(best.audit) if best.audit else ""
        audit = f"brinell audit --data {spec} --norm {best.norm} --eps"
        if budget:
            yield Step("audit up to the largest usual budget within the range, or up to its end", f"{audit} 0:{budget}:9")
        if best.audit != 0:
            conditions = "?conditions=label+interpolation" if PERCEPTION in self.conditions else ""
            yield Step(
                "or audit each sample within its own budget" + " that is sound by distance" * bool(conditions),
                f'{audit} "recommended:FOLDER{conditions}"',
            )
        if best.judged_on == "noise":
            yield Step(
                "perceptibility was measured on random changes: ask people, then pass their answers as --evidence",
                f"brinell review {spec} --out answers",
            )

    def _budgets(self) -> Table:
        """Budgets by norm."""
        seen = PERCEPTION in self.conditions
        return Table(
            title="Budgets by norm",
            columns=(
                "norm",
                "audit up to",
                *["unnoticed up to"] * seen,
                "by distance up to",
                "limited by",
                "usual budgets",
            ),
            rows=[
                (
                    distance(norm.norm),
                    limit_cell(norm.audit),
                    *[limit_cell(norm.unnoticed)] * seen,
                    limit_cell(norm.sound),
                    REASONS[norm.overall.sound_reason],
                    ", ".join(norm.sound_budgets) or None,
                )
                for norm in self.norms
            ],
            name="budgets",
            terminal=True,
        )

    def _class_table(self, norm: NormRecommendation, folded: bool) -> Table:
        """Budgets by class."""
        seen = PERCEPTION in self.conditions
        lowest, first, middle, third, highest = map(eps_text, norm.per_sample)
        limited = ", ".join(f"{REASONS[name]} on {count}" for name, count in norm.reasons.items())
        strict = "" if norm.strict is None else f" On every sample: up to {eps_text(norm.strict)}."
        return Table(
            title=f"Eps by class, {distance(norm.norm)}",
            columns=(
                "class",
                f"{'unnoticed and sound' if seen else 'sound by distance'} up to",
                "limited by",
                *["by distance up to", "then limited by"] * seen,
            ),
            rows=[
                (
                    self._name(entry.class_),
                    limit_cell(entry.eps),
                    REASONS[entry.reason],
                    *[limit_cell(entry.sound), REASONS[entry.sound_reason]] * seen,
                )
                for entry in (norm.overall, *norm.per_class)
            ],
            text=f"Largest budget that keeps every condition on all but {self._allowed()} of the samples of the class, "
            f"and the condition that breaks first above it.{strict} Budgets of single samples: from {lowest} to {highest}, "
            f"half of them between {first} and {third}, median {middle}; limited by {limited}.",
            name=f"classes-{norm.norm}",
            folded=folded,
        )

    def _usual_table(self, norm: NormRecommendation, facts: Mapping[str, Any]) -> Table:
        """Effects of usual budgets."""
        seen, background = PERCEPTION in self.conditions, facts["background"]
        ground = ""
        if seen and background is not None:
            ground = (
                f" {percent(facts['background_share'])} of all values are background (exactly {short(background)}): a rule "
                "that examines only the background detects any change there, even if people notice none."
            )
        medians = " Similarity and background are medians over typical changes of that size." if seen else ""
        return Table(
            title=f"Effects of usual budgets, {distance(norm.norm)}",
            columns=(
                "eps",
                "label may change",
                "meets its class",
                *["noticed"] * seen,
                "any",
                *["SSIM", "PSNR, dB"] * seen,
                *["background changed"] * bool(ground),
            ),
            rows=[
                (
                    effect.text,
                    Percent(effect.label),
                    Percent(effect.interpolation),
                    *[Percent(effect.perception)] * seen,
                    Percent(effect.any),
                    *[effect.ssim, effect.psnr] * seen,
                    *[Percent(effect.background_changed)] * bool(ground),
                )
                for effect in norm.usual
            ],
            text=f"Share of the samples on which a budget breaks a condition.{medians}{ground}",
            name=f"usual-{norm.norm}",
            heat=True,
            reverse=True,
            folded=True,
        )

    def _distance_table(self, heat: Heat, facts: Mapping[str, Any]) -> Table:
        """Mean distances between classes."""
        surprises = {(entry.class_, entry.nearer_to): entry for entry in self.surprises if entry.norm == heat.norm}
        pairs = [
            f"{self._name(entry.class_)} to {self._name(entry.nearer_to)} ({short(entry.mean_between)} against "
            f"{short(entry.mean_within)})"
            for entry in surprises.values()
        ]
        nearer = f"Nearer to another class than to themselves: {listed(pairs)}." if pairs else "No class is nearer to another."
        most = f", at most {self.request.pairs} of a class" if self.request.pairs else ""
        source = "all pairs of samples" if heat.norm == "l2" else f"{counted(facts['subset_size'], 'sample')}{most}"
        names = [self._name(label) for label in range(len(heat.means))]
        return Table(
            title=f"Mean distance between classes, {distance(heat.norm)}",
            columns=("class", *names),
            rows=[
                (
                    names[row],
                    *(Detail(value, "nearer") if (row, label) in surprises else value for label, value in enumerate(values)),
                )
                for row, values in enumerate(heat.means)
            ],
            text=f"Over {source}. {nearer}",
            name=f"distances-{heat.norm}",
            folded=True,
            page=len(names) <= MOST_CLASSES,
        )

    def _separation_table(self, norm: NormRecommendation, train: Mapping[str, Any] | None) -> Table:
        """Distances to nearest neighbours."""
        also = bool(train)
        return Table(
            title=f"Separation of the classes, {distance(norm.norm)}",
            columns=(
                "class",
                "samples",
                "other class: least",
                "other class: median",
                "own class: median",
                "other class is nearer",
                *["training, other class: least", "training, own class: median"] * also,
            ),
            rows=[
                (
                    self._name(entry.class_),
                    entry.n,
                    entry.other_least,
                    entry.other_median,
                    entry.same_median,
                    Percent(entry.nearer_other),
                    *[entry.train_least, entry.train_same_median] * also,
                )
                for entry in norm.separation
            ],
            text="Exact distance of every sample to the nearest sample of another class and of its own class.",
            name=f"separation-{norm.norm}",
            folded=True,
        )

    def _method(self, facts: Mapping[str, Any]) -> list[tuple[str, str]]:
        """How each condition is measured."""
        similar = f"keep SSIM at {self.request.ssim:g} and PSNR at {self.request.psnr:g} dB"
        texts = {
            "people": "{n} answers of people in {folder}: people notice half of the changes of this size",
            "attacks": f"the stored adversarial examples of {{n}} samples in {{folder}}, scaled to this size, {similar}",
            "noise": f"random changes of {{n}} samples {similar}",
        }
        seen = [f"{distance(norm)}: {texts[entry['by']].format(**entry)}." for norm, entry in facts.get("perception", {}).items()]
        weak = "SSIM, over the textured windows of the clean picture, and PSNR are weak substitutes for people."
        return [
            (
                "label constancy",
                f"eps is at most {self.request.fraction:g} of the distance to the nearest sample of another class, training data "
                "included. At a half, the balls around samples of different classes never meet, so a classifier can be right on "
                "both. This is a rule of distances between samples: it does not say that a person still sees the class.",
            ),
            (
                "no interpolation",
                "eps is below the distance to the nearest different sample of the class, so an error within it is not an error "
                "on another sample.",
            ),
            ("perceptibility", " ".join([*seen, weak]) if PERCEPTION in self.conditions else "not measured"),
            (
                "common eps",
                f"At most {self._allowed()} of the samples may break each condition; without this allowance, a single "
                "mislabelled sample would decide. The budget of a single sample breaks no condition.",
            ),
            (
                "limits",
                "Samples outside the data may be nearer. In Linf, half of the range of the data makes every picture grey. At a "
                "budget that is sound by distance, an error counts against the model if the picture still shows its class. "
                "Adversaries may have other budgets.",
            ),
            *((note.code, note.text) for note in self.notes if note.code not in LEVELS),
        ]

    def _allowed(self) -> str:
        return f"{100 * self.request.allow:.3g} %"

    def _name(self, label: int | None) -> str:
        return "all samples" if label is None else class_name(self.classes, label)


def eps_text(eps: float | None) -> str:
    """An eps with three significant digits; None means no limit."""
    return "no limit" if eps is None else f"{eps:.3g}"


def limit_cell(eps: float | None) -> float | str:
    """An eps in a table."""
    return "no limit" if eps is None else eps


def curve(limits: Mapping[str, Array], norm: NormRecommendation) -> Curve:
    """Share of the samples on which each condition breaks, over eps."""
    usual = [(effect.eps, effect.text) for effect in norm.usual if "(" not in effect.text]
    finite = np.concatenate([limit[np.isfinite(limit) & (limit > 0)] for limit in limits.values()])
    ends = [*(np.quantile(finite, [0.005, 0.995]).tolist() if len(finite) else []), *(eps for eps, _ in usual)] or [1.0]
    grid = np.geomspace(min(ends) / 1.4, max(ends) * 1.2, POINTS)
    ticks = usual or [(float(eps), short(float(eps))) for eps in np.geomspace(grid[0], grid[-1], 5)]
    return Curve(
        title=distance(norm.norm),
        series=[
            Series(name=CURVES[name], points=[(float(eps), float((limit < eps).mean())) for eps in grid])
            for name, limit in limits.items()
        ],
        ticks=ticks,
        axis=f"eps in {distance(norm.norm)}",
        logarithmic=True,
    )


def galleries(facts: Mapping[str, Any], crafted: Mapping[str, Array], names: Sequence[str]) -> Iterator[Gallery]:
    """Counter-examples by class, and stored adversarial examples by size."""
    domain, model = facts["data"]["domain"], facts["crafted"]["model"]
    low, high = float(np.min(domain["low"])), float(np.max(domain["high"]))
    clean = dict(zip(crafted["ids"].tolist(), crafted["clean"], strict=True))

    def shown(array: Array, caption: str, title: str) -> Picture:
        """One input with its caption."""
        return Picture(picture(array, domain["kind"], low, high, title=title), caption)

    def predicted(record: Mapping[str, Any], label: str) -> str:
        """What the model predicts, if there is one."""
        if label not in record:
            return ""
        wrong = " (wrong)" if record[label] != record["label"] else ""
        return f", predicted {class_name(names, record[label])}{wrong}"

    for kind, title, text in (
        (
            "between",
            "Does the picture still show its class?",
            "The outline of another class is added to a sample: x₀ + eps · sign(x₁). A distance between samples does not see an "
            "outline: if you see the second class at a budget, this budget does not keep the label, even where it is sound by "
            "distance. Then audit up to the budget before it.",
        ),
        (
            "within",
            "Interpolation to a neighbour of the same class",
            "r · x₀ + (1 − r) · x₁. If r is 0, the budget reaches the second sample. An error there is a generalisation error "
            "and not a lack of robustness.",
        ),
    ):
        rows: dict[int, list[Picture]] = {}
        for record, array in zip(facts["crafted"]["pictures"], crafted["pictures"], strict=True):
            if record["kind"] != kind:
                continue
            first, second = (class_name(names, record[key]) for key in ("label", "second_label"))
            if record["label"] not in rows:
                away = f", {short(record['gap'])} away" if "gap" in record else ""
                rows[record["label"]] = [
                    shown(
                        clean[record["sample"]],
                        f"x₀: {first}{predicted(record, 'clean_pred')}",
                        f"sample {record['sample']}, {first}",
                    ),
                    shown(clean[record["second"]], f"x₁: {second}{away}", f"sample {record['second']}, {second}"),
                ]
            share = f", r {short(record['r'])}" if "r" in record else ""
            caption = f"eps {eps_text(record['eps'])}{share}{predicted(record, 'pred')}"
            rows[record["label"]].append(shown(array, caption, f"{first} at eps {eps_text(record['eps'])}"))
        by = f" Predictions are those of {model}." if model else " Add predictions with --model."
        if rows:
            yield Gallery(
                title=title,
                examples=[Example(pictures=pictures, caption=class_name(names, label)) for label, pictures in rows.items()],
                text=f"{text} Budgets in {distance(facts['crafted']['norm'])}.{by}",
                folded=kind == "within",
                open_examples=3,
            )
    stored = []
    for number, example in enumerate(facts.get("stored", [])):
        sample = f"sample {example['sample']}, {class_name(names, example['label'])}"
        noticed = "unnoticed" if example["unnoticed"] else "noticed"
        stored.append(
            Example(
                pictures=[
                    shown(crafted["stored_clean"][number], "clean", f"{sample}, clean"),
                    shown(crafted["stored"][number], "adversarial", f"{sample}, adversarial, size {short(example['size'])}"),
                ],
                caption=f"{short(example['size'])}, {class_name(names, example['label'])}: {noticed} by SSIM "
                f"{short(example['ssim'])} and PSNR {short(example['psnr'])} dB",
            )
        )
    if stored:
        yield Gallery(
            title="Stored adversarial examples",
            examples=stored,
            text="Stored adversarial examples of an audit, by ascending size. Judge by eye at which size you notice the change. "
            "SSIM excludes plain parts of the picture.",
        )
