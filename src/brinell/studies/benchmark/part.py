"""Makes some samples of a benchmark set: runs the agent, grades the adversarial examples, and builds the rows.

One ledger counts every forward of the model. The costs in a row are therefore exact: first check, search, clean-up and the
evaluation of each level.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core import losses, norms
from brinell.core.ledger import Ledger
from brinell.core.model import Access
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.checks import check_answers
from brinell.engine.progress import Progress
from brinell.rlab.cache import CLEAN
from brinell.rlab.grading import Graded, Path, path
from brinell.studies.benchmark.plan import BenchmarkPlan
from brinell.studies.benchmark.readings import Heard, Reading, make_reading
from brinell.studies.benchmark.records import Outcome

ENLARGEMENTS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Multiples of the distance after clean-up, tried in turn if the input in 8 bits is not adversarial."""


class _LevelAnswers(NamedTuple):
    """Inputs of one level, with answers to the exact inputs and to the stored ones.

    Answers are logits (n, classes), or for maps and boxes the margin as two classes, and then the numbers of the reading.
    """

    inputs: Graded
    logits: Tensor
    stored_logits: Tensor


class BenchmarkPart:
    """Makes some samples of a set, and holds the rows that `studies.benchmark.records` writes.

    Args:
        plan: the plan of the set.
        span: the samples, as a slice of those of the plan.
        progress: counts the passes of the model.
    """

    def __init__(self, plan: BenchmarkPlan, span: slice, progress: Progress) -> None:
        self.rows: list[dict[str, Any]] = []
        """COLUMNS of each input."""
        self.samples: list[dict[str, Any]] = []
        """SAMPLES of each sample."""
        self.arrays: dict[str, Array] = {}
        """Exact inputs and masks, by name."""
        self.ids: Array = plan.ids[span]
        x = plan.dataset.load(self.ids.tolist()).to(plan.device)
        device, domain = x.device, plan.dataset.domain
        y = torch.as_tensor(plan.labels[span], device=device)
        low, high = domain.bounds()
        # Without a cap, every input within the bounds is allowed.
        cap = plan.eps or float((high - low).expand(1, *domain.shape).norm())
        self._plan = plan
        criterion = plan.criterion(self.ids.tolist())
        self._reading, self._model = make_reading(criterion), Heard(plan.model)
        batch = Batch(ids=torch.arange(len(x), device=device), x=x, y=y)
        eps = torch.full((len(x),), cap, device=device)
        self._rng = Streams.of(plan.request.seed, torch.as_tensor(self.ids, device=device)).fold("benchmark")
        # minimal: levels exceed the cap of the adversarial example, so queries beyond it are allowed.
        self._ledger = Ledger(
            plan.model if self._reading is None else self._model,
            batch,
            Threat(distance=plugins.build("distance", "l2", {}), eps=eps, domain=domain, criterion=criterion),
            access=Access.SCORES,
            batch_size=plan.request.batch_size,
            minimal=True,
            on_pass=progress.count_passes,
        )
        self._oracle, self._batch, self._threat = self._ledger.oracle(), self._ledger.batch, self._ledger.threat
        self._clean = self._ask(torch.arange(len(x), device=device), self._batch.x)
        if self._reading is None:
            check_answers(self._clean, plan.model)
        self._run()

    def _ask(self, rows: Tensor, x: Tensor) -> Tensor:
        """(k, ...): what the oracle answers to inputs of the samples `rows` (k,), and then the numbers of the reading."""
        if self._reading is None:
            return self._oracle.scores(self._batch.ids[rows], x)
        heard: list[Tensor] = []
        self._model.answers = heard
        view = self._oracle.scores(self._batch.ids[rows], x)
        self._model.answers = None
        return torch.cat((view, self._reading.read(torch.cat(heard), rows)), 1)

    def _run(self) -> None:
        """Search adversarial examples, and build the rows."""
        outcome = self._clean_outcomes()
        played = np.flatnonzero(outcome == "")
        examples: dict[int, dict[str, Any]] = {}
        if len(played):
            rows = torch.as_tensor(played, device=self._batch.x.device)
            outcome[played] = Outcome.NOT_REACHED
            results = self._plan.attack.run_episodes(
                self._oracle, self._batch.select(rows), self._threat.select(rows), self._rng.select(rows)
            )
            fooled = results.success.nonzero()[:, 0]
            if len(fooled):
                paths = path(
                    self._batch.select(rows[fooled]),
                    self._threat.select(rows[fooled]),
                    self._rng.select(rows[fooled]),
                    grid=self._plan.grid,
                    variants=self._plan.variants,
                    results=results.select(fooled),
                )
                example = self._final_examples(rows[fooled], paths)
                refined_queries = self._ledger.costs.forwards.tolist()
                examples = self._grade(rows[fooled], paths, example, refined_queries)
                for index, steps in zip(rows[fooled].tolist(), results.steps[fooled].tolist(), strict=True):
                    if index in examples:
                        outcome[index] = Outcome.REACHED
                        # The first check, the agent's query of the clean input, and its steps.
                        examples[index] = examples[index] | {"queries_to_success": 2 + steps}
        self._write_samples(outcome, examples)

    def _clean_outcomes(self) -> Array:
        """(n,) outcomes that the clean inputs decide; empty for samples that the agent must distort."""
        wrong_class, y = self._plan.criterion_settings["wrong_class"], self._batch.y
        outcome = np.full(len(self.ids), "", dtype=object)
        outcome[(self._margin(torch.arange(len(y), device=y.device), self._clean) > 0).cpu().numpy()] = Outcome.ALREADY
        if self._reading is not None:
            return outcome
        outcome[(self._clean.argmax(1) != y).cpu().numpy()] = Outcome.MISCLASSIFIED
        if wrong_class is not None:
            outcome[(y == wrong_class).cpu().numpy()] = Outcome.OWN_CLASS
        return outcome

    def _final_examples(self, rows: Tensor, paths: Path) -> _LevelAnswers:
        """The adversarial examples after clean-up, enlarged if they are not adversarial in 8 bits.

        Args:
            rows: (k,) positions of the samples in the batch.
            paths: their paths from the clean input through the example.
        """
        strength = paths.fraction()[:, None] * (paths.standing != CLEAN)
        example = Graded(paths.flip(), torch.ones_like(rows, dtype=torch.bool), paths.standing.clone(), strength)
        logits, stored_logits = self._query(rows, example.x)
        size = norms.l2(example.x - paths.clean)
        for factor in ENLARGEMENTS:
            adversarial = torch.minimum(self._margin(rows, logits), self._margin(rows, stored_logits)) > 0
            farther = paths.grade(factor * size)
            within_cap = factor * size <= self._threat.eps[rows]
            remaining = (~adversarial & farther.reached & within_cap).nonzero()[:, 0]
            if not len(remaining):
                break
            answers = self._query(rows[remaining], farther.x[remaining])
            improved = torch.minimum(*(self._margin(rows[remaining], answer) for answer in answers)) > 0
            index = remaining[improved]
            for column, values in zip((*example, logits, stored_logits), (*farther, None, None), strict=True):
                if values is not None:
                    column[index] = values[index].to(column.dtype)
            logits[index], stored_logits[index] = (answer[improved] for answer in answers)
        valid = (self._margin(rows, logits) > 0) & (norms.l2(example.x - paths.clean) > 0)
        return _LevelAnswers(example._replace(reached=valid), logits, stored_logits)

    def _margin(self, rows: Tensor, logits: Tensor) -> Tensor:
        """(k,) margins of the criterion, positive for an adversarial input."""
        view = logits if self._reading is None else logits[:, :2]
        return self._threat.criterion.margin(view, self._batch.y[rows], self._batch.x[rows])

    def _query(self, rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Answers to the inputs, and to the inputs as they are stored."""
        logits = self._ask(rows, x)
        return logits, self._query_stored(rows, x, logits)

    def _query_stored(self, rows: Tensor, x: Tensor, logits: Tensor) -> Tensor:
        """Logits of the inputs as they are stored. Inputs that storage does not change keep the logits given."""
        form, stored = self._plan.form, logits.clone()
        if not form.pictures:
            return stored
        low, high = self._plan.dataset.domain.bounds(x)
        levels = torch.stack([torch.from_numpy(form.to_uint8(picture.cpu().numpy())) for picture in x]).to(x)
        decoded = low + (high - low) * (levels / 255)
        differs = (decoded != x).flatten(1).any(1)
        if bool(differs.any()):
            stored[differs] = self._ask(rows[differs], decoded[differs])
        return stored

    def _grade(self, rows: Tensor, paths: Path, example: _LevelAnswers, refined_queries: list[int]) -> dict[int, dict[str, Any]]:
        """Add the rows of all levels and their arrays; returns the rows of level 1 by position in the batch.

        Args:
            rows: (k,) positions of the samples in the batch.
            paths: their paths from the clean input through the example.
            example: the adversarial examples, which are level 1.
            refined_queries: forwards of each sample of the batch until its final example.
        """
        valid = example.inputs.reached
        size = (example.inputs.x.double() - paths.clean.double()).flatten(1).norm(dim=1)
        farthest = (paths.farthest().double() / size.clamp_min(1e-300)).tolist()
        examples: dict[int, dict[str, Any]] = {}
        nulls = {name: None for name, column in self._plan.form.columns.items() if column.null}
        unreached: dict[str, Any] = {"reached": False, "patches": []} | nulls
        for level in (0.0, *self._plan.levels):
            level_answers = example if level == 1 else self._evaluate_level(rows, paths, valid, level, size)
            answers = self._answer_rows(rows, level_answers)
            for position in valid.nonzero()[:, 0].tolist():
                index = int(rows[position])
                keys = {
                    "sample_id": int(self.ids[index]),
                    "level": level,
                    **self._label_column(index),
                    "farthest": farthest[position],
                    "queries": refined_queries[index],
                }
                reachable = bool(level_answers.inputs.reached[position])
                row = keys | (self._row(position, index, level_answers.inputs, answers[position]) if reachable else unreached)
                self.rows.append(row)
                if reachable:
                    name = f"{row['sample_id']}/{level:g}"
                    self.arrays |= {f"{name}/input": row["input"], f"{name}/mask": row["mask"]}
                if self._reading is not None:
                    self.arrays[f"{row['sample_id']}/truth"] = self._reading.truth(index)
                if level == 1:
                    examples[index] = row
        self.rows.sort(key=lambda row: (row["sample_id"], row["level"]))
        return examples

    def _evaluate_level(self, rows: Tensor, paths: Path, valid: Tensor, level: float, size: Tensor) -> _LevelAnswers:
        """Inputs of a level and their logits; zeros for inputs that the bounds do not allow.

        Args:
            rows: (k,) positions of the samples in the batch.
            paths: their paths from the clean input through the example.
            valid: (k,) bool: samples with an adversarial example.
            level: the multiple of the distance; 0 is the clean input.
            size: (k,) L2 distances of the adversarial examples.
        """
        if level == 0:
            clean_variants = torch.full_like(paths.standing, CLEAN)
            inputs = Graded(paths.clean, valid, clean_variants, torch.zeros_like(clean_variants, dtype=torch.float32))
            logits = self._clean[rows]
        else:
            inputs = paths.grade(level * size)
            inputs = inputs._replace(reached=inputs.reached & valid)
            logits = torch.zeros_like(self._clean[rows])
            if len(index := inputs.reached.nonzero()[:, 0]):
                logits[index] = self._ask(rows[index], inputs.x[index])
        index, stored_logits = inputs.reached.nonzero()[:, 0], logits.clone()
        if len(index):
            stored_logits[index] = self._query_stored(rows[index], inputs.x[index], logits[index])
        return _LevelAnswers(inputs, logits, stored_logits)

    def _answer_rows(self, rows: Tensor, level_answers: _LevelAnswers) -> list[dict[str, Any]]:
        """Columns of the model's answers for each input of a level."""
        if self._reading is not None:
            return self._read_rows(self._reading, rows, level_answers)
        probabilities, stored = level_answers.logits.softmax(1), level_answers.stored_logits.argmax(1).tolist()
        columns = {
            "prediction": level_answers.logits.argmax(1).tolist(),
            "confidence": probabilities.amax(1).tolist(),
            "true_probability": probabilities.gather(1, self._batch.y[rows, None])[:, 0].tolist(),
            "adversarial": (self._margin(rows, level_answers.logits) > 0).tolist(),
            "prediction_quantised": stored if self._plan.form.pictures else [None] * len(rows),
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _read_rows(self, reading: Reading, rows: Tensor, level_answers: _LevelAnswers) -> list[dict[str, Any]]:
        """The same for maps and boxes."""
        columns = reading.columns(level_answers.logits[:, 2:], rows)
        columns["adversarial"] = (self._margin(rows, level_answers.logits) > 0).tolist()
        stored = reading.columns(level_answers.stored_logits[:, 2:], rows)["wrong"]
        columns["wrong_quantised"] = stored if self._plan.form.pictures else [None] * len(rows)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _label_column(self, index: int) -> dict[str, Any]:
        """The true class of a sample; nothing where the truth is a mask or boxes, which the arrays hold."""
        return {"label": int(self._batch.y[index])} if self._reading is None else {}

    def _row(self, position: int, index: int, inputs: Graded, answer: dict[str, Any]) -> dict[str, Any]:
        """COLUMNS of the input `position` of a level, which belongs to the sample `index` of the batch."""
        ids = self._batch.ids[index : index + 1]
        x, clean = (
            self._ledger.full_inputs(ids, value[None])[0].cpu().numpy() for value in (inputs.x[position], self._batch.x[index])
        )
        delta = x.astype(np.float64) - clean
        variant, strength = inputs.variant[position].tolist(), inputs.strength[position].tolist()
        patches = []
        for number, variant_index in enumerate(variant):
            if variant_index != CLEAN:
                placement = self._plan.variants[variant_index]
                name = self._plan.distortions[id(placement.distortion)]
                entry = {"distortion": name, "severity": placement.severity, "draw": placement.draw}
                patches.append({"patch": number, **entry, "strength": strength[number]})
        return answer | {
            "reached": True,
            "input": x,
            "mask": delta != 0,
            "l2": math.sqrt(float((delta**2).sum())),
            "linf": float(np.abs(delta).max()),
            "l1": float(np.abs(delta).sum()),
            "l0": int((delta != 0).sum()),
            "patch_count": len(patches),
            "patches": patches,
        }

    def _write_samples(self, outcome: Array, examples: dict[int, dict[str, Any]]) -> None:
        """Add SAMPLES of each sample; `examples` has the rows of level 1 by position."""
        answers = self._clean_columns()
        forwards = self._ledger.costs.forwards.tolist()
        for index, sample in enumerate(self.ids.tolist()):
            example = examples.get(index, {})
            self.samples.append(
                {
                    "sample_id": sample,
                    **self._label_column(index),
                    "outcome": str(outcome[index]),
                    **{name: values[index] for name, values in answers.items()},
                    "queries": forwards[index],
                    "queries_to_success": example.get("queries_to_success"),
                    "queries_to_refined": example.get("queries"),
                    "queries_levels": forwards[index] - example["queries"] if example else None,
                    "training_queries": self._plan.training_queries,
                    "l2": example.get("l2"),
                    "patch_count": example.get("patch_count"),
                }
            )

    def _clean_columns(self) -> dict[str, list[Any]]:
        if self._reading is None:
            confidence, prediction = (column.tolist() for column in losses.decision(self._clean))
            return {"clean_prediction": prediction, "clean_confidence": confidence}
        columns = self._reading.columns(self._clean[:, 2:], torch.arange(len(self.ids), device=self._clean.device))
        return {"valid": columns["valid"], "clean_wrong": columns["wrong"]}
