"""Carries out an unrestricted attack: draws inputs, asks who sees their class, and searches from those that all see.

The folder also holds, for each piece of PIECE attempts, the file `result.example_file`, with float32 inputs: "<attempt>/plain",
"<attempt>/<model>/<variant>" with ".../latent", the last latent of the search, and "reference/<position>". Inputs are kept where
the model errs, with the plain sample that they began at and the training samples nearest to them (design/0014-unrestricted.md).
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.losses import decision
from brinell.core.model import Access, Model
from brinell.core.neighbours import Neighbours, Reference
from brinell.core.oracle import Batch
from brinell.core.record import Array
from brinell.core.streams import Streams
from brinell.core.threat import Threat
from brinell.engine.group_attack import predict
from brinell.models._answers import count_classes
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.studies.generator.generator import GenerativeModel, load
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.unrestricted import UnrestrictedRequest
from brinell.studies.unrestricted.result import (
    PIECE,
    PLAIN,
    Answers,
    GeneratorFacts,
    Outcome,
    UnrestrictedFacts,
    example_file,
    example_name,
    variants,
)
from brinell.studies.unrestricted.search import Settings, errs, quantise, search, sees
from brinell.studies.work import open_plan

KEPT = (Outcome.GENERALISATION, Outcome.FOOLED, Outcome.CONTESTED)
"""Outcomes whose inputs are kept."""


@dataclass(frozen=True, kw_only=True)
class UnrestrictedPlan(Plan):
    """A resolved unrestricted attack. Its further models are the judges."""

    request: UnrestrictedRequest
    generator: GenerativeModel
    intended: Tensor
    """(attempts,) int64: the classes that the generator is asked for."""


def make_plan(call: Call) -> UnrestrictedPlan:
    """Open generator, data, models and judges, and check that they fit together.

    Raises:
        RequestError: they do not.
    """
    request: UnrestrictedRequest = call.request
    if not request.generator:
        raise RequestError("--generator is missing: train one with brinell train generator --out generator.safetensors")
    generator = load(Path(request.generator))
    opened = open_plan(call, more_models=("judge",))
    plan = UnrestrictedPlan(**vars(opened), request=request, generator=generator, intended=torch.zeros(0))
    dataset, classes = plan.dataset, plan.dataset.classes
    generator.check(dataset.domain, len(classes))
    if missing := sorted(set(range(len(classes))) - set(plan.labels.tolist())):
        raise RequestError(f"class {classes[missing[0]]!r} has no sample in {dataset.name}: use data with samples of all classes")
    for model in (*plan.models.values(), *plan.more_models.values()):
        if (outputs := count_classes(model)) != len(classes):
            raise RequestError(f"model {model.name} tells {outputs} classes apart, but the data has {len(classes)}")
    for model in plan.models.values():
        if model.access < Access.GRADIENTS:
            raise RequestError(
                f"model {model.name} answers {model.access.name.lower()} only, but a search needs gradients: "
                f"use it as a {option('judge')}"
            )
    return replace(
        plan,
        intended=torch.arange(len(classes)).repeat(request.per_class),
        facts=UnrestrictedFacts(
            judges=[judge.name for judge in plan.more_models.values()],
            generator=GeneratorFacts(digest=generator.digest(), same_data=generator.facts.data_digest == dataset.digest()),
        ),
    )


def pieces(plan: UnrestrictedPlan, call: Call) -> list[Piece]:
    """Some attempts each."""
    attack, attempts = _Attack(plan, call), len(plan.intended)
    return [
        Piece(
            name=f"attempts {start + 1} to {min(start + PIECE, attempts)} of {attempts}",
            make=partial(attack.make_piece, start),
            files=(example_file(start),),
        )
        for start in range(0, attempts, PIECE)
    ]


class Witnesses(NamedTuple):
    """Answers of the auxiliary classifier and the judges to some inputs, and the distances to the training data."""

    aux: Tensor
    """(n, classes) logits of the auxiliary classifier."""
    aux_agrees: Tensor
    """(n,) bool: the auxiliary classifier sees the intended class with at least the required probability."""
    judges: Tensor
    """(n, judges) int64."""
    clear: Tensor
    """(n,) bool: the auxiliary classifier and every judge see the intended class."""
    nearest: Neighbours
    """In L2."""
    anchors: Neighbours
    """Neighbours of the nearest training sample of the intended class."""


class Drawing(NamedTuple):
    """Plain samples of some attempts."""

    ids: Tensor
    """(n,) int64: the attempts."""
    z: Tensor
    """(n, latent)."""
    y: Tensor
    """(n,) int64: the intended classes."""
    x: Tensor
    """(n, *shape)."""

    def take(self, index: Tensor) -> "Drawing":
        """The samples that `index` selects."""
        return Drawing(*(values[index] for values in self))


class _Attack:
    """Makes the pieces of a plan; the training data are loaded once."""

    def __init__(self, plan: UnrestrictedPlan, call: Call) -> None:
        self.plan, self.call = plan, call
        self.generator = plan.generator.generator.to(plan.device)
        self.classifier = plan.generator.classifier.to(plan.device)

    @cached_property
    def training(self) -> Tensor:
        """(n, *shape): the training data."""
        return self.plan.dataset.load(self.plan.ids.tolist()).to(self.plan.device)

    @cached_property
    def reference(self) -> Reference:
        """The training data for the search of neighbours."""
        return Reference(self.training.flatten(1).numpy(force=True), self.plan.labels)

    def make_piece(self, start: int) -> Answers:
        """The rows of a piece; stores the inputs on which a model errs."""
        plan = self.plan
        ids = torch.arange(start, min(start + PIECE, len(plan.intended)), device=plan.device)
        y = plan.intended.to(plan.device)[ids]
        z = Streams.of(plan.request.seed, ids).fold("latent").normal(self.generator.latent)
        with torch.no_grad():
            drawing = Drawing(ids, z, y, quantise(self.generator(z, y), plan.dataset.domain))
        witnesses = self._ask_witnesses(drawing.x, y)
        parts: list[Answers] = []
        arrays: dict[str, Array] = {}
        for model in plan.models.values():
            logits = predict(model, drawing.x, plan.request.batch_size)
            right = logits.argmax(1) == y
            outcome = _outcomes(~witnesses.clear, Outcome.UNCLEAR, right, Outcome.CLEAR, Outcome.GENERALISATION)
            parts.append(_rows(drawing, model.name, PLAIN, outcome, logits, witnesses))
            self._keep(arrays, parts[-1], drawing)
            clear = drawing.take((witnesses.clear & right).nonzero()[:, 0])
            for variant, noise in variants(plan.request).items() if len(clear.y) else ():
                parts.append(self._search(model, variant, noise, clear, arrays))
        write_arrays(plan.folder / example_file(start), arrays)
        return rows.concatenate(parts)

    def _search(self, model: Model, variant: str, noise: float, start: Drawing, arrays: dict[str, Array]) -> Answers:
        """Search from plain samples that are clear and correctly classified, behind a ledger without a norm ball."""
        plan, y = self.plan, start.y
        request, domain = plan.request, plan.dataset.domain
        settings = Settings(steps=request.steps, noise=noise, class_probability=request.class_probability)
        low, high = domain.bounds(start.x)
        full_range = torch.full((len(y),), float((high - low).max()), device=y.device)
        ledger = Ledger(
            model,
            Batch(ids=torch.arange(len(y), device=y.device), x=start.x, y=y),
            Threat(distance=plugins.build("distance", "linf", {}), eps=full_range, domain=domain),
            batch_size=request.batch_size,
            minimal=True,
            on_pass=self.call.progress.count_passes,
        )
        result = search(ledger.oracle(), self.generator, self.classifier, start.z, y, domain, settings)
        logits = predict(model, result.x, request.batch_size)
        witnesses = self._ask_witnesses(result.x, y)
        success = errs(logits, y, result.x) & witnesses.aux_agrees
        outcome = _outcomes(~success, Outcome.SURVIVED, witnesses.clear, Outcome.FOOLED, Outcome.CONTESTED)
        found = _rows(
            start,
            model.name,
            variant,
            outcome,
            logits,
            witnesses,
            forwards=ledger.costs.forwards.numpy(force=True),
            backwards=ledger.costs.backwards.numpy(force=True),
        )
        self._keep(arrays, found, start)
        for row in np.flatnonzero(np.isin(found.outcome, KEPT)).tolist():
            name = example_name(int(found.attempt[row]), model.name, variant)
            arrays |= {name: result.x[row].numpy(force=True), f"{name}/latent": result.z[row].numpy(force=True)}
        return found

    def _ask_witnesses(self, x: Tensor, y: Tensor) -> Witnesses:
        """Answers of the auxiliary classifier and the judges, and the neighbours, of inputs of intended classes."""
        request = self.plan.request
        with torch.no_grad():
            aux = self.classifier(x)
        judges = [predict(judge, x, request.batch_size).argmax(1) for judge in self.plan.more_models.values()]
        answers = torch.stack(judges, 1) if judges else torch.zeros(len(x), 0, dtype=torch.int64, device=x.device)
        aux_agrees = sees(aux, y, request.class_probability)
        values, labels = x.flatten(1).numpy(force=True), y.numpy(force=True)
        nearest = self.reference.nearest("l2", values, labels)
        changed = self.training[torch.from_numpy(nearest.same_at).to(x.device)].flatten(1).numpy(force=True)
        anchors = self.reference.nearest("l2", changed, labels, itself=nearest.same_at)
        nearest = replace(nearest, same_at=self.plan.ids[nearest.same_at], other_at=self.plan.ids[nearest.other_at])
        return Witnesses(aux, aux_agrees, answers, aux_agrees & (answers == y[:, None]).all(1), nearest, anchors)

    def _keep(self, arrays: dict[str, Array], answers: Answers, drawing: Drawing) -> None:
        """Keep the plain samples of errors of the model, and the training samples nearest to the input of the row."""
        for row in np.flatnonzero(np.isin(answers.outcome, KEPT)).tolist():
            arrays[example_name(int(answers.attempt[row]))] = drawing.x[row].numpy(force=True)
            for position in (int(answers.l2_same_at[row]), int(answers.l2_other_at[row])):
                index = int(np.searchsorted(self.plan.ids, position))
                arrays[f"reference/{position}"] = self.training[index].numpy(force=True)


def _outcomes(first: Tensor, if_first: Outcome, second: Tensor, if_second: Outcome, otherwise: Outcome) -> Array:
    """(n,) names of outcomes."""
    conditions = [first.numpy(force=True), second.numpy(force=True)]
    return np.select(conditions, [str(if_first), str(if_second)], str(otherwise))


def _rows(
    drawing: Drawing, model: str, variant: str, outcome: Array, logits: Tensor, witnesses: Witnesses, **columns: Array
) -> Answers:
    """The rows of inputs that began at plain samples, with the logits (n, classes) of the model."""
    confidence, predicted = decision(logits)
    nearest, anchors = witnesses.nearest, witnesses.anchors
    return rows.build(
        Answers,
        len(drawing.y),
        attempt=drawing.ids.numpy(force=True),
        model=model,
        variant=variant,
        intended=drawing.y.numpy(force=True),
        outcome=outcome,
        pred=predicted.numpy(force=True),
        confidence=confidence.numpy(force=True),
        aux=witnesses.aux.argmax(1).numpy(force=True),
        aux_probability=witnesses.aux.softmax(1).gather(1, drawing.y[:, None])[:, 0].numpy(force=True),
        judges=[" ".join(map(str, answers)) for answers in witnesses.judges.tolist()],
        l2_same=nearest.same_class,
        l2_same_at=nearest.same_at,
        l2_other=nearest.other_class,
        l2_other_at=nearest.other_at,
        l2_anchor_same=anchors.same_class,
        l2_anchor_other=anchors.other_class,
        **columns,
    )
