"""Makes some samples of a benchmark set: runs the agent, grades the adversarial examples, and
builds the rows.

Pictures are kept in 8 bits: clean inputs are rounded first, and an example or a level is rounded
before the model judges it. So what the model was asked about is what a set holds. One ledger counts
every forward; the costs in a row are exact.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.attacks.rlab import RLAB
from brinell.core import norms
from brinell.core.attack import open_questions
from brinell.core.criterion import MISCLASSIFIED, Criterion
from brinell.core.model import Access, Model
from brinell.core.oracle import Batch
from brinell.core.patches import PatchGrid
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat, extent
from brinell.engine.checks import check_answers
from brinell.engine.progress import Progress
from brinell.engine.tasks import Task
from brinell.models._answers import Converted
from brinell.rlab.distort import CLEAN, Variant
from brinell.rlab.grading import Graded, Path, path
from brinell.rlab.prior import sums
from brinell.studies.benchmark import BenchmarkRequest
from brinell.studies.benchmark.result import BenchmarkFacts
from brinell.studies.benchmark.rows import Form, SearchOutcome
from brinell.studies.kit import Plan

ENLARGEMENTS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Multiples of the distance after clean-up, tried in turn if the rounded input is not
adversarial."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkPlan(Plan):
    """All that determines the content of a benchmark set."""

    request: BenchmarkRequest
    facts: BenchmarkFacts
    attack: RLAB
    grid: PatchGrid
    variants: tuple[Variant, ...]
    names: dict[int, str]
    """Name of each distortion, by the identity of the object."""
    form: Form
    eps: float | None
    """Largest L2 distance of an adversarial example."""
    task: Task | None = None
    """Model and criterion of masks or boxes; None for one class for each input."""
    wrong_class: int | None = None
    """The wrong class that the criterion names."""
    criterion: Callable[[Sequence[int]], Criterion] = lambda samples: MISCLASSIFIED
    """The criterion of some samples, by their positions in the data."""


class Level(NamedTuple):
    """Inputs of one level, and the columns of the answers to them."""

    inputs: Graded
    answers: dict[int, dict[str, Any]]
    """Of each input that there is, by its position."""


class Read(Converted):
    """A model whose answers are kept while the ledger asks it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model, step="", classes=model.classes)  # answers stay as they are
        self.answers: list[Tensor] = []

    def predict(self, x: Tensor) -> Tensor:
        """The answers of the model."""
        self.answers.append(self.model.predict(x).detach())
        return self.answers[-1]


class BenchmarkSearch:
    """Makes the samples `span` of a plan, and counts the passes of the model."""

    def __init__(self, plan: BenchmarkPlan, span: slice, progress: Progress) -> None:
        self.rows: list[dict[str, Any]] = []
        """A row of data/ for each input, with its arrays."""
        self.arrays: dict[str, Array] = {}
        """Inputs and masks, by name."""
        self.ids: Array = plan.ids[span]
        self._plan, domain = plan, plan.dataset.domain
        ids = self.ids.tolist()
        x = self._rounded(plan.dataset.load(ids).to(plan.device))
        device = x.device
        y = torch.as_tensor(plan.labels[span], device=device)
        (model,) = plan.models.values()
        self._model = Read(model)
        criterion = plan.criterion(ids)
        streams = Streams.of(plan.request.seed, torch.as_tensor(self.ids, device=device))
        self._rng = streams.fold("benchmark")

        distance = plugins.build("distance", "l2")
        # Without a cap, every input within the bounds is allowed.
        eps = torch.full((len(x),), plan.eps or extent(distance, domain), device=device)
        # Levels exceed the cap of the adversarial example, so questions beyond it are allowed.
        self._ledger = open_questions(
            self._model,
            Batch.of(x, y),
            Threat(distance=distance, eps=eps, domain=domain, criterion=criterion),
            access=Access.SCORES,
            batch_size=plan.request.batch_size,
            on_pass=progress.count_passes,
        )
        self._oracle = self._ledger.oracle()
        self._batch, self._threat = self._ledger.batch, self._ledger.threat
        self.samples = self._run()
        """The columns of the samples by name."""

    def _rounded(self, x: Tensor) -> Tensor:
        """The inputs (k, *shape) as a set holds them: pictures in 8 bits between the bounds of the
        data.
        """
        return (
            replace(self._plan.dataset.domain.free, levels=256).round(x)
            if self._plan.form.pictures
            else x
        )

    def _ask(self, rows: Tensor, x: Tensor) -> tuple[Tensor, list[dict[str, Any]]]:
        """(k,) margins of inputs of the samples `rows` (k,), positive for an adversarial one; and
        their columns.
        """
        self._model.answers = []
        scores = self._oracle.scores(self._batch.ids[rows], x)
        y = self._batch.y[rows]
        margin = self._threat.criterion.margin(scores, y, self._batch.x[rows])
        if self._plan.task is None:
            probabilities = scores.softmax(1)
            prediction = scores.argmax(1)
            columns = {"label": y, "prediction": prediction, "confidence": probabilities.amax(1)}
            columns["true_probability"] = probabilities.gather(1, y[:, None])[:, 0]
            columns |= {"valid": torch.ones_like(y), "wrong": (prediction != y).long()}
        else:
            columns = self._plan.task.columns(
                torch.cat(self._model.answers), self.ids[rows.cpu().numpy()].tolist()
            )

        columns["adversarial"] = margin > 0
        cells = zip(*(values.tolist() for values in columns.values()), strict=True)
        return margin, [dict(zip(columns, row, strict=True)) for row in cells]

    def _run(self) -> dict[str, Any]:
        """Ask about the clean inputs, search adversarial examples, and build the rows."""
        y, task = self._batch.y, self._plan.task
        everyone = torch.arange(len(self.ids), device=self._batch.x.device)
        margin, self._clean = self._ask(everyone, self._batch.x)
        if task is None:
            check_answers(torch.cat(self._model.answers), self._model)

        # What the clean inputs decide; empty for samples that the agent must distort. Of several
        # reasons the last one counts.
        wrong = np.array([row["wrong"] for row in self._clean])
        outcome = np.full(len(y), "", dtype=object)
        outcome[(margin > 0).cpu().numpy()] = SearchOutcome.ALREADY
        if task is None:
            outcome[wrong > 0] = SearchOutcome.MISCLASSIFIED
        if self._plan.wrong_class is not None:
            outcome[(y == self._plan.wrong_class).cpu().numpy()] = SearchOutcome.OWN_CLASS
        samples: dict[str, Any] = {"sample_id": self.ids, "outcome": outcome, "clean_wrong": wrong}
        # Columns of a sample by their names among the columns of an answer.
        names = {"valid": "valid"} | (
            {} if task else {"label": "label", "clean_prediction": "prediction"}
        )
        samples |= {column: [row[name] for row in self._clean] for column, name in names.items()}

        findings = {
            name: np.ma.MaskedArray(np.zeros(len(self.ids), kind), mask=True)
            for name, kind in (("queries_to_success", int), ("l2", float), ("patch_count", int))
        }
        searched = np.flatnonzero(outcome == "")
        if len(searched):
            outcome[searched] = SearchOutcome.NOT_REACHED
            self._search(torch.as_tensor(searched, device=y.device), outcome, findings)
        return samples | findings | {"queries": self._ledger.costs.forwards.cpu().numpy()}

    def _search(self, rows: Tensor, outcome: Array, findings: Mapping[str, Any]) -> None:
        """Let the agent distort the samples `rows` (k,), and note what it found."""
        results = self._plan.attack.run_episodes(self._oracle, *self._select(rows))
        fooled = results.success.nonzero()[:, 0]
        if not len(fooled):
            return

        successes = rows[fooled]
        paths = path(
            *self._select(successes),
            grid=self._plan.grid,
            variants=self._plan.variants,
            results=results.select(fooled),
        )
        examples = self._grade(successes, paths, self._final_examples(successes, paths))
        for index, steps in zip(successes.tolist(), results.steps[fooled].tolist(), strict=True):
            if index in examples:
                outcome[index] = SearchOutcome.REACHED
                # The first check, the agent's query of the clean input, and its steps.
                findings["queries_to_success"][index] = 2 + steps
                findings["l2"][index] = examples[index]["l2"]
                findings["patch_count"][index] = len(examples[index]["patches"])
        if self._plan.task is None:
            self._store_ways(successes, results.way[fooled], examples)

    def _store_ways(self, rows: Tensor, ways: Tensor, examples: Mapping[int, Any]) -> None:
        """Store how the agent came to each of the examples, whose queries are all that were asked
        of a sample.
        """
        for index, way in zip(rows.tolist(), ways.cpu().numpy(), strict=True):
            if index in examples:
                # The first check is a query too, before those of the agent. Unused rows are NaN.
                way[:, 0] += 1
                self.arrays[f"{self.ids[index]}/way"] = way[~np.isnan(way[:, 0])]

    def _select(self, rows: Tensor) -> tuple[Batch, Threat, Streams]:
        return self._batch.select(rows), self._threat.select(rows), self._rng.select(rows)

    def _final_examples(self, rows: Tensor, paths: Path) -> Level:
        """The adversarial examples (k,) after clean-up, enlarged if they are not adversarial in 8
        bits.
        """
        strength = paths.fraction()[:, None] * (paths.standing != CLEAN)
        x = self._rounded(paths.flip())
        everyone = torch.ones_like(rows, dtype=torch.bool)
        example = Graded(x, everyone, paths.standing.clone(), strength)
        margin, cells = self._ask(rows, x)

        # Rounding to 8 bits may undo what the agent found: then the change is enlarged a little.
        size = norms.l2(paths.flip() - paths.clean)
        for factor in ENLARGEMENTS:
            farther = self._graded(paths, factor * size)
            remaining = (
                (margin <= 0) & farther.reached & (factor * size <= self._threat.eps[rows])
            ).nonzero()[:, 0]
            if not len(remaining):
                break
            later, answers = self._ask(rows[remaining], farther.x[remaining])
            for position, better, answer in zip(
                remaining.tolist(), (later > 0).tolist(), answers, strict=True
            ):
                if better:
                    # Any margin above 0 says that the input is adversarial.
                    cells[position], margin[position] = answer, 1
                    for column, values in zip(example, farther, strict=True):
                        column[position] = values[position]

        # Clean-up may take everything away, and an unchanged input is no adversarial example.
        valid = (margin > 0) & (norms.l2(example.x - paths.clean) > 0)
        return Level(example._replace(reached=valid), dict(enumerate(cells)))

    def _graded(self, paths: Path, distance: Tensor) -> Graded:
        inputs = paths.grade(distance)
        return inputs._replace(x=self._rounded(inputs.x))

    def _grade(self, rows: Tensor, paths: Path, example: Level) -> dict[int, dict[str, Any]]:
        """Add the rows of all levels of the samples (k,) and their arrays; the rows of level 1 by
        position in the batch.
        """
        valid = example.inputs.reached
        size = (example.inputs.x.double() - paths.clean.double()).flatten(1).norm(dim=1)
        examples: dict[int, dict[str, Any]] = {}
        # Level 0 is the clean input, level 1 the adversarial example.
        for number in (0.0, *self._plan.facts.levels):
            level = example if number == 1 else self._evaluate(rows, paths, valid, number, size)
            for position in valid.nonzero()[:, 0].tolist():
                index = int(rows[position])
                sample = int(self.ids[index])
                truth = self._truth(index)
                row: dict[str, Any] = {
                    "sample_id": sample,
                    "level": number,
                    "reached": False,
                    "truth": truth,
                }
                if truth is None:
                    row["label"] = int(self._batch.y[index])
                else:
                    self.arrays[f"{sample}/truth"] = truth
                if bool(level.inputs.reached[position]):
                    row |= (
                        level.answers[position]
                        | {"reached": True}
                        | self._changes(position, index, level.inputs)
                    )
                    self.arrays |= {
                        f"{sample}/{number:g}/{name}": row[name] for name in ("input", "mask")
                    }
                self.rows.append(row)
                if number == 1:
                    examples[index] = row

        self.rows.sort(key=lambda row: (row["sample_id"], row["level"]))
        return examples

    def _truth(self, index: int) -> Array | None:
        """The mask of a sample (h, w) uint8; its objects (k, 6) float64: corners, class, 1 for a
        crowd; None for a class.
        """
        if self._plan.task is None:
            return None
        (truth,) = self._plan.task.truth([int(self.ids[index])])
        if self._plan.task.kind == "segmentation":
            return np.asarray(truth, dtype=np.uint8)
        return np.column_stack((truth.boxes.reshape(-1, 4), truth.labels, truth.crowd)).astype(
            np.float64
        )

    def _evaluate(
        self, rows: Tensor, paths: Path, valid: Tensor, number: float, size: Tensor
    ) -> Level:
        """The inputs of a level and the answers to them.

        `valid` (k,) are the samples with an adversarial example, whose L2 distances are `size`
        (k,); level 0 is the clean input.
        """
        if number == 0:
            clean = torch.full_like(paths.standing, CLEAN)
            inputs = Graded(paths.clean, valid, clean, torch.zeros_like(clean, dtype=torch.float32))
            return Level(inputs, dict(enumerate(self._clean[row] for row in rows.tolist())))

        inputs = self._graded(paths, number * size)
        inputs = inputs._replace(reached=inputs.reached & valid)
        index = inputs.reached.nonzero()[:, 0]
        answers = self._ask(rows[index], inputs.x[index])[1] if len(index) else []
        return Level(inputs, dict(zip(index.tolist(), answers, strict=True)))

    def _changes(self, position: int, index: int, inputs: Graded) -> dict[str, Any]:
        """Columns of the input `position` of a level, which belongs to the sample `index` of the
        batch.
        """
        ids = self._batch.ids[index : index + 1]
        x = self._ledger.full_inputs(ids, inputs.x[position][None])[0].cpu().numpy()
        clean = self._ledger.full_inputs(ids, self._batch.x[index][None])[0].cpu().numpy()
        delta = x.astype(np.float64) - clean

        # What a patch costs is counted over the values that may change.
        grid = self._plan.grid
        squares = self._ledger.movable(torch.from_numpy(delta[None] ** 2))[0]
        energy = sums(squares.reshape(grid.channels, -1).sum(0, keepdim=True), grid)[0].tolist()

        patches = []
        for patch in (inputs.variant[position] != CLEAN).nonzero()[:, 0].tolist():
            placed = self._plan.variants[int(inputs.variant[position, patch])]
            strength = float(inputs.strength[position, patch])
            entry = {
                "distortion": self._plan.names[id(placed.distortion)],
                "severity": placed.severity,
                "draw": placed.draw,
            }
            patches.append({"patch": patch, **entry, "strength": strength, "energy": energy[patch]})

        return {
            "input": x,
            "mask": delta != 0,
            "l2": math.sqrt(float((delta**2).sum())),
            "linf": float(np.abs(delta).max()),
            "l1": float(np.abs(delta).sum()),
            "l0": int((delta != 0).sum()),
            "patches": patches,
        }
