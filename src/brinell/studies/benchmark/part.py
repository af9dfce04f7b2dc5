"""One part of a benchmark set: its samples played, those with an adversarial example graded, and each of them written down.

Every forward of the model goes through one ledger, so what a row says of its cost is what was counted: the first check, the
search, the clean-up and the look at each level.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core import norms
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
from brinell.rlab.rules import margin_of
from brinell.studies.benchmark.plan import BenchmarkPlan
from brinell.studies.benchmark.records import COLUMNS, Outcome

NUDGES = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Multiples of the distance that clean-up came to, tried in turn where the input in 8 bits is not adversarial any more."""


class _Judged(NamedTuple):
    """Inputs of one level with the model's answers (n, classes), to the exact inputs and to what is stored of them."""

    inputs: Graded
    logits: Tensor
    stored: Tensor


class Part:
    """Makes some samples of a set; afterwards it holds what `studies.benchmark.records` writes of them.

    Args:
        plan: what is made.
        at: which samples, as places among those of the plan.
        progress: told of every pass of the model.
    """

    def __init__(self, plan: BenchmarkPlan, at: slice, progress: Progress) -> None:
        self.rows: list[dict[str, Any]] = []
        """COLUMNS of each input."""
        self.samples: list[dict[str, Any]] = []
        """SAMPLES of each sample."""
        self.arrays: dict[str, Array] = {}
        """Exact inputs and masks, by name."""
        self.ids: Array = plan.ids[at]
        x = plan.dataset.load(self.ids.tolist()).to(plan.device)
        device, domain = x.device, plan.dataset.domain
        y = torch.as_tensor(plan.labels[at], device=device)
        low, high = domain.bounds()
        # Without a cap every input within the bounds is near enough.
        cap = plan.eps or float((high - low).expand(1, *domain.shape).norm())
        self._plan = plan
        batch = Batch(ids=torch.arange(len(x), device=device), x=x, y=y)
        eps = torch.full((len(x),), cap, device=device)
        self._rng = Streams.of(plan.request.seed, torch.as_tensor(self.ids, device=device)).fold("benchmark")
        # Levels lie beyond the cap on the adversarial example: inputs beyond it may be asked about.
        self._ledger = Ledger(
            plan.model,
            batch,
            Threat(distance=plugins.build("distance", "l2", {}), eps=eps, domain=domain, criterion=plan.criterion),
            access=Access.SCORES,
            batch_size=plan.request.batch_size,
            minimal=True,
            on_pass=progress.passes,
        )
        self._oracle, self._batch, self._threat = self._ledger.oracle(), self._ledger.batch, self._ledger.threat
        self._clean = self._oracle.scores(self._batch.ids, self._batch.x)
        check_answers(self._clean, plan.model)
        self._make()

    def _make(self) -> None:
        outcome = self._first()
        played_at = np.flatnonzero(outcome == "")
        examples: dict[int, dict[str, Any]] = {}
        if len(played_at):
            rows = torch.as_tensor(played_at, device=self._batch.x.device)
            outcome[played_at] = Outcome.NOT_REACHED
            results = self._plan.attack.run_episodes(
                self._oracle, self._batch.select(rows), self._threat.select(rows), self._rng.select(rows)
            )
            won = results.success.nonzero()[:, 0]
            if len(won):
                paths = path(
                    self._batch.select(rows[won]),
                    self._threat.select(rows[won]),
                    self._rng.select(rows[won]),
                    grid=self._plan.grid,
                    variants=self._plan.variants,
                    results=results.select(won),
                )
                example = self._settle(rows[won], paths)
                settled = self._ledger.costs.forwards.tolist()
                examples = self._grade(rows[won], paths, example, settled)
                for at, steps in zip(rows[won].tolist(), results.steps[won].tolist(), strict=True):
                    if at in examples:
                        outcome[at] = Outcome.REACHED
                        # The first check, the agent's own look at the clean input, and its steps.
                        examples[at] = examples[at] | {"queries_to_success": 2 + steps}
        self._write_samples(outcome, examples)

    def _first(self) -> Array:
        """(n,) what the clean inputs say of each sample already; empty where it is to be played."""
        wrong_class, y = self._plan.criterion_settings["wrong_class"], self._batch.y
        outcome = np.full(len(self.ids), "", dtype=object)
        outcome[(margin_of(self._plan.criterion, self._clean, y, self._batch.x) > 0).cpu().numpy()] = Outcome.ALREADY
        outcome[(self._clean.argmax(1) != y).cpu().numpy()] = Outcome.MISCLASSIFIED
        if wrong_class is not None:
            outcome[(y == wrong_class).cpu().numpy()] = Outcome.OWN_CLASS
        return outcome

    def _settle(self, rows: Tensor, paths: Path) -> _Judged:
        """The adversarial examples: what clean-up left, or a little further along the path where that is none in 8 bits."""
        strength = paths.fraction()[:, None] * (paths.standing != CLEAN)
        example = Graded(paths.flip(), torch.ones_like(rows, dtype=torch.bool), paths.standing.clone(), strength)
        logits, stored = self._ask(rows, example.x)
        size = norms.l2(example.x - paths.clean)
        for factor in NUDGES:
            there = torch.minimum(self._margin(rows, logits), self._margin(rows, stored)) > 0
            further = paths.at(factor * size)
            near = factor * size <= self._threat.eps[rows]
            open_ = (~there & further.reached & near).nonzero()[:, 0]
            if not len(open_):
                break
            answers = self._ask(rows[open_], further.x[open_])
            better = torch.minimum(*(self._margin(rows[open_], one) for one in answers)) > 0
            at = open_[better]
            for column, values in zip((*example, logits, stored), (*further, None, None), strict=True):
                if values is not None:
                    column[at] = values[at].to(column.dtype)
            logits[at], stored[at] = (one[better] for one in answers)
        sure = (self._margin(rows, logits) > 0) & (norms.l2(example.x - paths.clean) > 0)
        return _Judged(example._replace(reached=sure), logits, stored)

    def _margin(self, rows: Tensor, logits: Tensor) -> Tensor:
        """(n,): margins of the criterion, which is one of the logits alone."""
        return margin_of(self._plan.criterion, logits, self._batch.y[rows], self._batch.x[rows])

    def _ask(self, rows: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """(n, classes) twice: what the model says of the inputs, and of them as they are stored. Nothing is asked twice."""
        logits = self._oracle.scores(self._batch.ids[rows], x)
        return logits, self._ask_stored(rows, x, logits)

    def _ask_stored(self, rows: Tensor, x: Tensor, logits: Tensor) -> Tensor:
        """What the model says of the inputs as they come back from storage in Parquet; those that stay the same are not asked."""
        form, stored = self._plan.form, logits.clone()
        if not form.pictures:
            return stored
        low, high = self._plan.dataset.domain.bounds(x)
        levels = torch.stack([torch.from_numpy(form.bytes8(one.cpu().numpy())) for one in x]).to(x)
        shown = low + (high - low) * (levels / 255)
        differs = (shown != x).flatten(1).any(1)
        if bool(differs.any()):
            stored[differs] = self._oracle.scores(self._batch.ids[rows[differs]], shown[differs])
        return stored

    def _grade(self, rows: Tensor, paths: Path, example: _Judged, settled: list[int]) -> dict[int, dict[str, Any]]:
        """Rows of the clean input, the adversarial example and all levels. Returns those of level 1 by place in the part."""
        sure = example.inputs.reached
        size = (example.inputs.x.double() - paths.clean.double()).flatten(1).norm(dim=1)
        farthest = (paths.farthest().double() / size.clamp_min(1e-300)).tolist()
        examples: dict[int, dict[str, Any]] = {}
        for level in (0.0, *self._plan.levels):
            judged = example if level == 1 else self._judge(rows, paths, sure, level, size)
            answers = self._answers(rows, judged)
            for one in sure.nonzero()[:, 0].tolist():
                at = int(rows[one])
                head = {
                    "sample_id": int(self.ids[at]),
                    "level": level,
                    "label": int(self._batch.y[at]),
                    "farthest": farthest[one],
                    "queries": settled[at],
                }
                there = bool(judged.inputs.reached[one])
                row = head | (self._row(one, at, judged.inputs, answers[one]) if there else _UNREACHED)
                self.rows.append(row)
                if there:
                    name = f"{row['sample_id']}/{level:g}"
                    self.arrays |= {f"{name}/input": row["input"], f"{name}/mask": row["mask"]}
                if level == 1:
                    examples[at] = row
        self.rows.sort(key=lambda row: (row["sample_id"], row["level"]))
        return examples

    def _judge(self, rows: Tensor, paths: Path, sure: Tensor, level: float, size: Tensor) -> _Judged:
        """The inputs of a level, and what the model says of those that can be reached."""
        if level == 0:
            nothing = torch.full_like(paths.standing, CLEAN)
            inputs = Graded(paths.clean, sure, nothing, torch.zeros_like(nothing, dtype=torch.float32))
            logits = self._clean[rows]
        else:
            inputs = paths.at(level * size)
            inputs = inputs._replace(reached=inputs.reached & sure)
            logits = torch.zeros_like(self._clean[rows])
            if len(at := inputs.reached.nonzero()[:, 0]):
                logits[at] = self._oracle.scores(self._batch.ids[rows[at]], inputs.x[at])
        at, stored = inputs.reached.nonzero()[:, 0], logits.clone()
        if len(at):
            stored[at] = self._ask_stored(rows[at], inputs.x[at], logits[at])
        return _Judged(inputs, logits, stored)

    def _answers(self, rows: Tensor, judged: _Judged) -> list[dict[str, Any]]:
        """What the model says of each input of a level, exact and as it is stored."""
        probabilities, stored = judged.logits.softmax(1), judged.stored.argmax(1).tolist()
        columns = {
            "prediction": judged.logits.argmax(1).tolist(),
            "confidence": probabilities.amax(1).tolist(),
            "true_probability": probabilities.gather(1, self._batch.y[rows, None])[:, 0].tolist(),
            "adversarial": (self._margin(rows, judged.logits) > 0).tolist(),
            "prediction_quantised": stored if self._plan.form.pictures else [None] * len(rows),
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _row(self, one: int, at: int, inputs: Graded, answer: dict[str, Any]) -> dict[str, Any]:
        ids = self._batch.ids[at : at + 1]
        x, clean = (self._ledger.whole(ids, value[None])[0].cpu().numpy() for value in (inputs.x[one], self._batch.x[at]))
        delta = x.astype(np.float64) - clean
        variant, strength = inputs.variant[one].tolist(), inputs.strength[one].tolist()
        patches = []
        for number, which in enumerate(variant):
            if which != CLEAN:
                placed = self._plan.variants[which]
                name = self._plan.distortions[id(placed.distortion)]
                said = {"distortion": name, "severity": placed.severity, "draw": placed.draw}
                patches.append({"patch": number, **said, "strength": strength[number]})
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
        confidence, prediction = (column.tolist() for column in self._clean.softmax(1).max(1))
        forwards = self._ledger.costs.forwards.tolist()
        for at, sample in enumerate(self.ids.tolist()):
            example = examples.get(at, {})
            self.samples.append(
                {
                    "sample_id": sample,
                    "label": int(self._batch.y[at]),
                    "outcome": str(outcome[at]),
                    "clean_prediction": prediction[at],
                    "clean_confidence": confidence[at],
                    "queries": forwards[at],
                    "queries_to_success": example.get("queries_to_success"),
                    "queries_to_refined": example.get("queries"),
                    "queries_levels": forwards[at] - example["queries"] if example else None,
                    "training_queries": self._plan.training_queries,
                    "l2": example.get("l2"),
                    "patch_count": example.get("patch_count"),
                }
            )


_UNREACHED: dict[str, Any] = {"reached": False, "patches": []} | {name: None for name, column in COLUMNS.items() if column.null}
"""A level that the bounds of the data do not allow."""
