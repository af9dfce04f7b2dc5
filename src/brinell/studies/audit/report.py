"""The report of an audit: page, terminal and tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from brinell.analysis.curve import Grid, grid, worst_case
from brinell.analysis.indicators import summary
from brinell.analysis.inference import rank_correlation
from brinell.analysis.judgements import extreme_classes
from brinell.analysis.results import AuditResult, ClassResult, ModelResult
from brinell.analysis.robust_accuracy import compared_budget, mean, standing_of
from brinell.analysis.standing import Standing
from brinell.core.checks import Code
from brinell.core.record import Records
from brinell.reports import values as v
from brinell.reports.class_tables import (
    MOST_CLASSES,
    distance_tables,
    drop_tables,
    step_tables,
)
from brinell.reports.numbers import (
    capital,
    counted,
    distance,
    listed,
    p_value,
    percent,
    region_text,
    short,
    whole,
)
from brinell.reports.samples import where
from brinell.reports.statements import (
    class_sentence,
    detector_sentence,
    lowest_mark,
    model_or_data,
    sentence,
)
from brinell.reports.steps import next_steps
from brinell.reports.way import run_way
from brinell.store.run import Run
from brinell.studies.audit.attack_tables import attack_blocks
from brinell.studies.audit.samples import Maps, samples_block

CORRELATED = 5
"""Number of models from which a correlation over models is stated."""
SELECTIONS = {
    "first": ", the first of the data",
    "stratified": ", drawn stratified by class",
    "random": ", drawn at random",
}
DEFINITIONS = (
    "Rate: the share of all samples that are right and that no attack broke "
    "within the budget; another may break more.",
    "Interval: 95 % Wilson interval for samples of the same source; it does not "
    "cover other data or stronger attacks.",
    "After rounding: an adversarial example counts only if the input, rounded to "
    "the levels of its storage, still succeeds.",
    "Budgets: an input found within one counts at every larger one; one that "
    "failed at a budget failed at every smaller one.",
)


def report(run: Run, records: Records, result: AuditResult, maps: Maps) -> v.Report:
    """The report of a run; `maps` finds saliency maps for the pictures of its samples."""
    audit = AuditReport(run, records, result)
    manifest, first = run.manifest, result.models[0]
    name = f"{len(result.models)} models" if audit.several else first.name
    region = manifest["data"]["domain"].get("region")
    facts = [
        counted(result.n, "sample") + SELECTIONS.get(manifest["data"].get("select", ""), ""),
        f"{distance(first.distance)} up to {first.eps_text[-1]}",
        f"only in {region_text(region)}" if region else "",
        "" if first.criterion == "misclassified" else first.criterion,
        f"{', '.join(manifest['request']['attack']) or 'no attack'} "
        f"({counted(len(manifest['stages']), 'stage')})",
        f"{str(manifest['created'])[:10]} †",
        "" if result.complete else "incomplete",
    ]
    # The next step is about the leading model, or the only one.
    leader = audit.standing.leaders(audit.standing.at)[0] if audit.standing else 0

    return v.Report(
        verb="audit",
        title=f"{name} on {manifest['data']['name']}",
        subject=" · ".join(filter(None, facts)),
        sentences=list(audit.sentences()),
        blocks=[
            audit.curve(),
            audit.models_table() if audit.several else audit.budgets_table(),
            *audit.class_tables(),
            samples_block(run, records, [model.name for model in result.models], maps),
            *run_way(run, records),
            *attack_blocks(result.models, audit.at, audit.quantity),
            audit.checks_table(),
            v.Prose(title="Definitions", sentences=DEFINITIONS),
        ],
        notes=sorted(audit.notes(), key=lambda note: ("stop", "warn", "note").index(note.level)),
        steps=next_steps(manifest, result.models[leader], audit.at),
    )


@dataclass(frozen=True)
class AuditReport:
    """The parts of the report of a run, from its rows and figures."""

    run: Run
    records: Records
    result: AuditResult

    @property
    def first(self) -> ModelResult:
        """The first model, whose budgets and criterion are those of all."""
        return self.result.models[0]

    @property
    def several(self) -> bool:
        """True if the run has several models, whose tables have a column for the model."""
        return len(self.result.models) > 1

    @cached_property
    def above(self) -> list[int]:
        """Positions of the budgets above 0."""
        return [index for index, eps in enumerate(self.first.eps) if eps > 0]

    @cached_property
    def texts(self) -> list[str]:
        """The budgets above 0 as they were asked."""
        return [self.first.eps_text[index] for index in self.above]

    @cached_property
    def cells(self) -> list[Grid]:
        """The states of each model."""
        return [grid(self.records, self.run.manifest, model.name) for model in self.result.models]

    @cached_property
    def robust(self) -> list[Any]:
        """(samples, budgets above 0) of each model: the worst case."""
        return [worst_case(cells)[:, self.above] for cells in self.cells]

    @cached_property
    def standing(self) -> Standing | None:
        """The order of the models at the budgets above 0; None where their samples allow none."""
        return standing_of(self.run.manifest, self.records)

    @property
    def at(self) -> int:
        """Position of the budget at which models and classes are told apart."""
        return compared_budget(self.run.manifest, self.standing)

    @property
    def parameters(self) -> dict[str, int | None]:
        """The number of weights of each model; None if the run does not record it."""
        return {
            str(entry["name"]): entry.get("parameters") for entry in self.run.manifest["models"]
        }

    @property
    def quantity(self) -> str:
        """Name of the rates over budgets."""
        return (
            "robust accuracy"
            if self.first.meaning is None
            else self.first.robust_accuracy[-1].quantity
        )

    def labelled(self, model: ModelResult, *cells: v.Cell) -> list[v.Cell]:
        """A row of a table; it begins with the model where there are several."""
        return [*([model.name] if self.several else []), *cells]

    def columns(self, *names: str) -> list[str]:
        """The columns of a table of such rows."""
        return [*(["model"] if self.several else []), *names]

    def openings(self, model: ModelResult, **choice: Any) -> list[str]:
        """The samples that the cells of a row of a model open: its name, the clean inputs, and each
        budget.
        """
        own = ({"model": model.name} if self.several else {}) | choice
        budgets = [where(**own, eps=text) for text in self.texts]
        name = where(**own)
        return [*[name] * self.several, name, where(**own, outcome="wrong"), *budgets]

    def sentences(self) -> Iterator[str]:
        """The figure and whether to believe it or who leads, the weakest class, and the checks."""
        first, models = self.first, self.result.models
        if not self.several:
            yield first.verdict
        elif self.standing:
            leader, *crossings = map(sentence, self.result.statements)
            yield leader
            if self.result.drops:
                yield model_or_data(self.result.drops, first.eps_text[-1])
            yield from crossings
        else:
            yield from (f"{model.name}: {model.verdict}" for model in models)

        if first.meaning is not None:
            yield f"{first.criterion} means that {first.meaning}."
        if first.certified is not None:
            proven = [
                (rate, text)
                for rate, text in zip(first.certified, first.eps_text, strict=True)
                if rate.eps > 0 and rate.k
            ]
            yield (
                f"{percent(proven[-1][0].value)} are proven at {proven[-1][1]}: "
                "no change within it makes these samples wrong."
                if proven
                else "No sample is proven robust."
            )

        for model in models:
            for entry in model.detectors or ():
                yield detector_sentence(entry, first.eps_text[-1])

        if self.several:
            failing = [
                model for model in models if any(check.passed is False for check in model.checks)
            ]
            yield from [f"{model.name}: {model.caveat}." for model in failing] or [
                "No check failed on any model."
            ]
        else:
            if len(first.per_class) > 1:
                yield class_sentence(first.statements)
            yield f"{summary(first.checks)}."

    def notes(self) -> Iterator[v.Note]:
        """Qualifications."""
        manifest, first = self.run.manifest, self.first
        for model in self.result.models:
            yield from self._notes_on(model, f"{model.name}: " if self.several else "")
        if recommended := manifest.get("recommended"):
            least = short(recommended["least"])
            median = short(recommended["median"])
            most = short(recommended["most"])
            origin = (
                f"{recommended['by']} ({', '.join(recommended['conditions'])}): "
                f"{least} to {most}, median {median}"
            )
            without = (
                f"{counted(recommended['without'], 'sample')} without a sound eps were not attacked"
            )
            yield v.Note(
                "recommended",
                "note",
                f"Budgets are multiples of the eps recommended by {origin}; {without}.",
            )

        if surrogates := manifest.get("surrogates", []):
            passes = sum(
                stage.surrogate_passes for model in self.result.models for stage in model.stages
            )
            own = [
                model["name"]
                for model in manifest["models"]
                if model["digest"] in {entry["digest"] for entry in surrogates}
            ]
            names = listed([entry["name"] for entry in surrogates])
            text = (
                f"Attacks followed gradients of {names} in {whole(passes)} passes, "
                "which are no queries."
            )
            yield v.Note(
                "surrogates",
                "note",
                text + (f" The figures of {listed(own)} are white-box." if own else ""),
            )

        if empty := first.classes_without_samples:
            text = (
                f"{counted(empty, 'class', 'classes')} without a sample: nothing is "
                f"known about {'it' if empty == 1 else 'them'}."
            )
            yield v.Note("no-samples", "warn", text)

    def _notes_on(self, model: ModelResult, name: str) -> Iterator[v.Note]:
        missing = max(rate.missing for rate in [model.clean_accuracy, *model.robust_accuracy])
        if missing:
            text = (
                f"{whole(missing)} of {counted(model.n, 'sample')} could not be "
                "judged and are in no rate."
            )
            yield v.Note("missing", "stop", name + text)

        if model.verdict_notes:
            yield v.Note("checks", "warn", name + " ".join(model.verdict_notes))
        codes = {check.code for check in model.checks}
        yield from (
            v.Note(warning.code, "warn", name + warning.text)
            for warning in model.warnings
            if warning.code not in codes
        )
        for reason in dict.fromkeys(stage.skipped for stage in model.stages if stage.skipped):
            labels = [stage.label for stage in model.stages if stage.skipped == reason]
            yield v.Note("skipped", "note", f"{name}{listed(labels)} skipped: {reason}.")

        titles = {stage.attack: stage.label for stage in model.stages}
        for remark in model.remarks:
            yield v.Note(
                remark.code,
                "note",
                f"{name}{titles.get(remark.attack, remark.attack)}: {remark.text} †",
            )

    def curve(self) -> v.Curve:
        """Rates over the budgets, from the clean inputs; of a certified model with what is proven
        below.
        """
        first, proven = self.first, self.first.certified
        names = ["attacked"] if proven else [model.name for model in self.result.models]
        lines = [(model.clean_accuracy, model.robust_accuracy) for model in self.result.models]
        if proven:
            names, lines = [*names, "proven"], [*lines, (first.clean_accuracy, proven)]

        return v.Curve(
            title=f"{capital(self.quantity)} over eps, with 95 % intervals",
            series=[
                v.Series(
                    name=name,
                    points=[(0.0, clean), *((rates[i].eps, rates[i]) for i in self.above)],
                    band=len(names) < 4,  # more bands would cover each other
                )
                for name, (clean, rates) in zip(names, lines, strict=True)
            ],
            ticks=[
                (0.0, "0"),
                *((first.eps[i], text) for i, text in zip(self.above, self.texts, strict=True)),
            ],
            axis=f"budget eps ({distance(first.distance)})",
            fill=proven is not None,
        )

    def models_table(self) -> v.Table:
        """Rates, place, where half is lost and checks of each model."""
        rows: list[list[v.Cell]] = []
        for number, model in enumerate(self.result.models):
            half = (model.clean_accuracy.value or 0.0) / 2
            rates = [model.robust_accuracy[index] for index in self.above]
            lost = [
                text
                for rate, text in zip(rates, self.texts, strict=True)
                if rate.value is not None and rate.value < half
            ]
            place = self.standing.rank(number) if self.standing else None
            outcomes = [check.passed for check in model.checks]
            rows.append(
                [
                    model.name,
                    model.clean_accuracy,
                    *rates,
                    None
                    if place is None
                    else " to ".join(map(str, sorted({place.low, place.high}))),
                    lost[0] if lost else f"beyond {model.eps_text[-1]}",
                    "/".join(str(outcomes.count(state)) for state in (True, False, None)),
                    self.parameters.get(model.name),
                    v.Seconds(sum(stage.seconds for stage in model.stages)),
                ]
            )

        return v.Table(
            title="The models side by side",
            columns=[
                "model",
                "clean",
                *self.texts,
                "rank",
                "half lost at",
                "checks",
                "parameters",
                "seconds",
            ],
            rows=rows,
            name="robust_accuracy",
            text=f"Ranks at {self.first.eps_text[self.at]} by the paired test; checks "
            f"passed/failed/not made; seconds are those of the attacks.{self.correlation()}",
            heat=True,
            terminal=True,
            # Other tables have a second column before the figures, which opens the same samples.
            opens=[self.openings(model)[1:] for model in self.result.models],
        )

    def correlation(self) -> str:
        """How robust accuracy goes with the number of parameters; empty for fewer than
        `CORRELATED` models.
        """
        pairs = [
            (self.parameters[model.name], model.robust_accuracy[self.at].value)
            for model in self.result.models
        ]
        known = [(size, value) for size, value in pairs if size is not None and value is not None]
        if len(known) < CORRELATED:
            return ""

        found = rank_correlation(*zip(*known, strict=True))
        if found is None:
            return ""

        value, p = found
        return (
            f" Spearman's correlation of robust accuracy at {self.first.eps_text[self.at]} with "
            f"the number of parameters over {len(known)} models: {short(value)} (p {p_value(p)})."
        )

    def budgets_table(self) -> v.Table:
        """Rates at each budget, with the weakest class."""
        (model,) = self.result.models
        columns: dict[str, Sequence[v.Cell]] = {
            "eps": model.eps_text,
            self.quantity: model.robust_accuracy,
        }
        if model.quantised_robust_accuracy is not None:
            columns["after rounding"] = model.quantised_robust_accuracy
        if model.certified is not None:
            columns |= {"proven": model.certified, "neither": model.open or []}
        marks = [
            lowest_mark(extreme_classes(model.per_class, index, text))
            for index, text in enumerate(model.eps_text)
        ]
        columns["lowest of a class"] = [entry and entry.value for entry in marks]
        columns["weakest class"] = [entry and entry.text for entry in marks]
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        if model.eps[0] > 0:
            rows.insert(0, ["clean", model.clean_accuracy, *[None] * (len(columns) - 2)])
        text = (
            "A proof holds for every input within eps and the bounds of the data."
            if model.certified is not None
            else ""
        )

        caveat = ""
        if model.quantised_robust_accuracy is not None:
            caveat = (
                "After rounding: no attack aimed at rounded inputs, so that it is no worst case."
            )
        folded = model.certified is None

        return v.Table(
            title="Budget by budget",
            columns=list(columns),
            rows=rows,
            name="robust_accuracy",
            text=f"{text} {caveat}".strip(),
            caveat=caveat,
            folded=folded,
            terminal=True,
        )

    def class_tables(self) -> Iterator[v.Table]:
        """Classes by budget, the weakest first; of several models also by model, at one budget."""
        models, first = self.result.models, self.first
        by_class: dict[int, dict[int, ClassResult]] = {}
        for number, model in enumerate(models):
            for c in model.per_class:
                by_class.setdefault(c.class_, {})[number] = c
        # Over the models, the mean rate of each class at the compared budget, and of its upper end.
        means = {
            index: [
                mean([getattr(c.robust[self.at], end) for c in entries.values()])
                for end in ("value", "high")
            ]
            for index, entries in by_class.items()
        }
        # By the mean rate of all models, then by its upper end; classes without one come last.
        order = sorted(
            by_class,
            key=lambda index: (*(2.0 if end is None else end for end in means[index]), index),
        )
        weakest = order[:MOST_CLASSES]
        yield from step_tables(models, self.above, order)
        if self.result.drops:
            yield from drop_tables(self.result.drops, models, first.eps_text[-1])
        if any(model.distance_correlation is not None for model in models):
            space = distance(first.distance)
            yield from distance_tables(models, self.result.drops, first.eps_text[-1], space)

        text = (
            f"{capital(self.quantity)} in percent with 95 % intervals, each for its class alone; "
            f"the lowest at {first.eps_text[self.at]} first."
        )
        if weakest != order:
            text += (
                f" Of {len(order)} classes the {MOST_CLASSES} lowest; tables/per_class.csv has all."
            )
        total = [["all", first.clean_accuracy, *(first.robust_accuracy[i] for i in self.above)]]

        def table(classes: Iterable[int], **settings: Any) -> v.Table:
            """The classes at each budget on each model; of one model all samples come first."""
            rows = [] if self.several else list[list[v.Cell]](total)
            opens = [self.openings(first)] * len(rows)
            for index in classes:
                for number, c in by_class[index].items():
                    name = v.Detail(c.name, counted(c.n, "sample"))
                    rates = [c.robust[i] for i in self.above]
                    rows.append(self.labelled(models[number], name, c.clean, *rates))
                    opens.append(self.openings(models[number], **{"class": index}))

            columns = self.columns("class", "clean", *self.texts)
            return v.Table(
                columns=columns,
                rows=rows,
                heat=True,
                text=text,
                total=not self.several,
                opens=opens,
                **settings,
            )

        if self.several:
            names = [model.name for model in models]
            rows = []
            for index in weakest:
                entries = [by_class[index].get(number) for number in range(len(models))]
                rates = [entry.robust[self.at] if entry else None for entry in entries]
                rows.append([next(iter(by_class[index].values())).name, *rates])
            at = first.eps_text[self.at]
            yield v.Table(
                title=f"Class by class at {at}",
                columns=["class", *names],
                rows=rows,
                heat=True,
                text=text,
                opens=[
                    ["", *(where(model=name, **{"class": index}, eps=at) for name in names)]
                    for index in weakest
                ],
            )
            # A longer table is a CSV file alone.
            few = len(order) * len(models) <= 10 * MOST_CLASSES
            yield table(
                order,
                title="Class by class at each budget",
                name="per_class",
                folded=True,
                filter=True,
                page=few,
            )
        else:
            yield table(
                weakest, title="Class by class", name="" if weakest != order else "per_class"
            )
            if weakest != order:
                yield table(order, title="All classes", name="per_class", page=False)

    def checks_table(self) -> v.Table:
        """Every check, the failed ones first."""
        rows: list[list[v.Cell]] = []
        for state, outcome in ((False, "failed"), (None, "not made"), (True, "passed")):
            for model in self.result.models:
                for check in (check for check in model.checks if check.passed is state):
                    kind = float if check.code == Code.MISMATCH else v.Percent
                    figures = [
                        None if value is None else kind(value)
                        for value in (check.figure, check.limit)
                    ]
                    rows.append(
                        self.labelled(
                            model,
                            check.code,
                            outcome,
                            *figures,
                            check.text.removeprefix("not made: "),
                        )
                    )

        probes = sum(
            int(cost.get("forwards", 0)) for cost in self.run.manifest.get("probes", {}).values()
        )
        cost = f"They cost {counted(probes, 'forward')}."
        text = (
            "A failed check does not prove a figure wrong, and passed ones do not "
            f"prove it right. {cost}"
        )
        columns = self.columns("check", "outcome", "measured", "limit", "evidence and remedy")

        return v.Table(
            title="Checks for a figure that is too good",
            columns=columns,
            rows=rows,
            name="checks",
            text=text,
            folded=True,
        )
