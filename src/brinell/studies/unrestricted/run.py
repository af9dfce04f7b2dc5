"""Carries out an unrestricted attack: draws inputs, asks who sees their class, and searches from
those that all see.

The folder also holds, for each piece of PIECE attempts, the file `result.example_file`, with
float32 inputs: "<attempt>/plain", "<attempt>/<model>/<variant>" with ".../latent", the last latent
of the search, and "reference/<position>". Inputs are kept where the model errs, with the plain
sample that they began at and the training samples nearest to them (design/0014-unrestricted.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core.attack import open_questions
from brinell.core.errors import RequestError, option
from brinell.core.losses import decision
from brinell.core.model import Access, Model
from brinell.core.neighbours import Reference
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
    ERRORS,
    PIECE,
    PLAIN,
    AttemptOutcome,
    AttemptRows,
    UnrestrictedFacts,
    example_file,
    example_name,
    variants,
)
from brinell.studies.unrestricted.search import errs, quantise, search, sees
from brinell.studies.work import open_plan

KEPT = (AttemptOutcome.GENERALISATION, *ERRORS)  # outcomes whose inputs are kept


@dataclass(frozen=True, kw_only=True)
class UnrestrictedPlan(Plan):
    """A resolved unrestricted attack. Its further models are the judges."""

    request: UnrestrictedRequest
    generator: GenerativeModel
    intended: Tensor
    """(attempts,) int64: the classes that the generator is asked for."""


def make_plan(call: Call) -> UnrestrictedPlan:
    """Open generator, data, models and judges, which must fit together."""
    request: UnrestrictedRequest = call.request
    if not request.generator:
        raise RequestError(
            "--generator is missing: train one with brinell train generator "
            "--out generator.safetensors"
        )
    generator = load(Path(request.generator))

    opened = open_plan(call, more_models=("judge",))
    # The classes are asked for once it is known that models and generator know them all.
    plan = UnrestrictedPlan(
        **vars(opened), request=request, generator=generator, intended=torch.zeros(0)
    )
    dataset, classes = plan.dataset, plan.dataset.classes
    generator.check(dataset.domain, len(classes))
    if missing := sorted(set(range(len(classes))) - set(plan.labels.tolist())):
        raise RequestError(
            f"class {classes[missing[0]]!r} has no sample in {dataset.name}: use "
            "data with samples of all classes"
        )

    for model in (*plan.models.values(), *plan.more_models.values()):
        if (outputs := count_classes(model)) != len(classes):
            raise RequestError(
                f"model {model.name} tells {outputs} classes apart, but the data has {len(classes)}"
            )
    # Judges give answers alone; a search follows the gradients of the model.
    for model in plan.models.values():
        if model.access < Access.GRADIENTS:
            raise RequestError(
                f"model {model.name} answers {model.access.name.lower()} only, "
                "but a search needs gradients: "
                f"use it as a {option('judge')}"
            )
    return replace(
        plan,
        intended=torch.arange(len(classes)).repeat(request.per_class),
        facts=UnrestrictedFacts(
            judges=[judge.name for judge in plan.more_models.values()],
            generator=generator.digest,
            same_data=generator.header.data_digest == dataset.digest(),
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


class Drawing(NamedTuple):
    """Plain samples of some attempts: attempts (n,), latents (n, latent), intended classes (n,),
    inputs (n, *shape).
    """

    ids: Tensor
    z: Tensor
    y: Tensor
    x: Tensor


class _Attack:
    """Makes the pieces of a plan; the training data are loaded once."""

    def __init__(self, plan: UnrestrictedPlan, call: Call) -> None:
        self.plan, self.call, self.request = plan, call, plan.request
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

    def make_piece(self, start: int) -> AttemptRows:
        """The rows of a piece; stores the inputs on which a model errs."""
        plan = self.plan
        parts: list[AttemptRows] = []
        arrays: dict[str, Array] = {}
        ids = torch.arange(start, min(start + PIECE, len(plan.intended)), device=plan.device)
        y = plan.intended.to(plan.device)[ids]
        z = Streams.of(self.request.seed, ids).fold("latent").normal(self.generator.latent)
        with torch.no_grad():
            drawing = Drawing(ids, z, y, quantise(self.generator(z, y), plan.dataset.domain))

        witnesses, _, clear = self._ask_witnesses(drawing.x, y)
        for model in plan.models.values():
            logits = predict(model, drawing.x, self.request.batch_size)
            # What a model gets wrong without a search shows its generalisation, and no attack.
            right = logits.argmax(1) == y
            outcome = _outcomes(
                ~clear,
                AttemptOutcome.UNCLEAR,
                right,
                AttemptOutcome.CLEAR,
                AttemptOutcome.GENERALISATION,
            )
            parts.append(_rows(drawing, model.name, PLAIN, outcome, logits, witnesses))
            self._keep(arrays, parts[-1], drawing)
            searched = Drawing(*(values[clear & right] for values in drawing))
            for variant, noise in variants(self.request).items() if len(searched.y) else ():
                parts.append(self._search(model, variant, noise, searched, arrays))

        write_arrays(plan.folder / example_file(start), arrays)
        return rows.concatenate(parts)

    def _search(
        self, model: Model, variant: str, noise: float, start: Drawing, arrays: dict[str, Array]
    ) -> AttemptRows:
        """Search from plain samples that are clear and correctly classified, behind a ledger
        without a norm ball.
        """
        y, request, domain = start.y, self.request, self.plan.dataset.domain
        settings: dict[str, Any] = {
            "steps": request.steps,
            "noise": noise,
            "class_probability": request.class_probability,
        }

        low, high = domain.bounds(start.x)
        ledger = open_questions(
            model,
            Batch.of(start.x, y),
            # No norm limits the inputs: the budget is the whole range of the data.
            Threat(
                distance=plugins.build("distance", "linf"),
                eps=(high - low).amax().expand(len(y)),
                domain=domain,
            ),
            batch_size=request.batch_size,
            on_pass=self.call.progress.count_passes,
        )
        x, z = search(
            ledger.oracle(), self.generator, self.classifier, start.z, y, domain, **settings
        )

        logits = predict(model, x, request.batch_size)
        witnesses, aux_agrees, clear = self._ask_witnesses(x, y)
        success = errs(logits, y, x) & aux_agrees
        # The judges decide whether an error counts: one of them may see another class.
        outcome = _outcomes(
            ~success,
            AttemptOutcome.SURVIVED,
            clear,
            AttemptOutcome.FOOLED,
            AttemptOutcome.CONTESTED,
        )
        costs = {
            name: getattr(ledger.costs, name).numpy(force=True)
            for name in ("forwards", "backwards")
        }

        found = _rows(start, model.name, variant, outcome, logits, witnesses | costs)
        self._keep(arrays, found, start)
        for row in np.flatnonzero(np.isin(outcome, KEPT)).tolist():
            name = example_name(int(found.attempt[row]), model.name, variant)
            arrays |= {name: x[row].numpy(force=True), f"{name}/latent": z[row].numpy(force=True)}
        return found

    def _ask_witnesses(self, x: Tensor, y: Tensor) -> tuple[dict[str, Any], Tensor, Tensor]:
        """Columns of who else sees the intended class; (n,) bool whether the auxiliary classifier
        does, and every judge, too.
        """
        with torch.no_grad():
            aux = self.classifier(x)
        judges = [
            predict(judge, x, self.request.batch_size).argmax(1)
            for judge in self.plan.more_models.values()
        ]

        answers = torch.stack(judges, 1) if judges else y.new_zeros(len(y), 0)
        aux_agrees = sees(aux, y, self.request.class_probability)
        nearest = self.reference.nearest("l2", x.flatten(1).numpy(force=True), y.numpy(force=True))

        columns = {
            "aux": aux.argmax(1).numpy(force=True),
            "aux_probability": aux.softmax(1).gather(1, y[:, None])[:, 0].numpy(force=True),
            "judges": [" ".join(map(str, row)) for row in answers.tolist()],
            "l2_same": nearest.same_class,
            "l2_same_at": self.plan.ids[nearest.same_at],
            "l2_other": nearest.other_class,
            "l2_other_at": self.plan.ids[nearest.other_at],
        }
        return columns, aux_agrees, aux_agrees & (answers == y[:, None]).all(1)

    def _keep(self, arrays: dict[str, Array], answers: AttemptRows, drawing: Drawing) -> None:
        """Keep the plain samples of errors of the model, and the training samples nearest to the
        input of the row.
        """
        for row in np.flatnonzero(np.isin(answers.outcome, KEPT)).tolist():
            arrays[example_name(int(answers.attempt[row]))] = drawing.x[row].numpy(force=True)
            for position in (int(answers.l2_same_at[row]), int(answers.l2_other_at[row])):
                index = int(np.searchsorted(self.plan.ids, position))
                arrays[f"reference/{position}"] = self.training[index].numpy(force=True)


def _outcomes(
    first: Tensor,
    if_first: AttemptOutcome,
    second: Tensor,
    if_second: AttemptOutcome,
    otherwise: AttemptOutcome,
) -> Array:
    """(n,) names of outcomes: of inputs for which both conditions hold, that of the first."""
    conditions = [first.numpy(force=True), second.numpy(force=True)]
    return np.select(conditions, [str(if_first), str(if_second)], str(otherwise))


def _rows(
    drawing: Drawing,
    model: str,
    variant: str,
    outcome: Array,
    logits: Tensor,
    columns: Mapping[str, Any],
) -> AttemptRows:
    """The rows of inputs that began at plain samples, with the logits (n, classes) of the model."""
    confidence, predicted = decision(logits)
    return rows.build(
        AttemptRows,
        len(drawing.y),
        attempt=drawing.ids.numpy(force=True),
        model=model,
        variant=variant,
        intended=drawing.y.numpy(force=True),
        outcome=outcome,
        pred=predicted.numpy(force=True),
        confidence=confidence.numpy(force=True),
        **columns,
    )
