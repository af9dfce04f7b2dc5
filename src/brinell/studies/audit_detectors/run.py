"""Detectors in front of a model: clean inputs, those that a run stored, and those of somebody who
knows the detector.

Detectors learn from clean training inputs and never see an attack. Their alarm threshold is the
quantile of other clean training inputs at which the false-alarm rate is the one asked for. Then
every adversarial input that a run stored is scored, and the run's threat is attacked anew by
`evade`, which knows the detector and looks for a wrong class that raises no alarm.

`evade` is selective projected gradient descent (Bryniarski, Hingun, Pachuca, Wang & Carlini 2022,
Evading adversarial example detection defenses with orthogonal projected gradient descent, section
3.1): each step follows the gradient of the one constraint that is violated, which is the margin of
`core.criterion.Undetected`. The ledger judges what is proposed.

Deviations: steps shrink on a cosine from a quarter of eps; the margin in place of the
cross-entropy, since it ends where the class turns; `free` keeps a part of the values untouched (the
background masked out of the perturbation).
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.core import losses, norms
from brinell.core.attack import open_questions
from brinell.core.bounded import digest
from brinell.core.contracts import Dataset, Detector, Suspicion
from brinell.core.criterion import Undetected
from brinell.core.errors import RequestError, option
from brinell.core.model import Access
from brinell.core.oracle import Batch, Oracle
from brinell.core.record import CLEAN, Array, Outcome
from brinell.core.streams import Streams
from brinell.core.threat import Distance, Threat, is_relative
from brinell.detectors._background import SHARE, most_frequent
from brinell.engine.plan import open_distance
from brinell.engine.sources import open_data
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.folder import MANIFEST
from brinell.store.run import Run
from brinell.studies.audit_detectors import DetectorsRequest
from brinell.studies.audit_detectors.result import EVADING, DetectorsFacts, DetectorsResult, Scores
from brinell.studies.kit import Call, Piece, Plan
from brinell.studies.work import carry_out, check_alike, classes, open_plan

FIRST_STEP, LAST_STEP = 0.25, 1e-3
"""Both in units of eps."""
CHUNK = 256
"""Inputs that are scored or attacked together."""
FIT, MEASURED, STEPS = 2000, 200, 100
"""Clean inputs that detectors are fitted to (as many more determine the threshold), samples of
the run that are measured, counted from the first, and gradient steps of the adaptive attack."""


@dataclass(frozen=True, kw_only=True)
class DetectorsPlan(Plan):
    """The plan of a measurement of detectors."""

    run: Run
    distance: Distance
    train: Dataset
    detectors: dict[str, Detector]
    """By spec."""


def repeat(call: Call, folder: Path) -> DetectorsResult:
    """Carry out the call of a folder again, on the run in which it lies."""
    run = folder.parent if (folder.parent / MANIFEST).is_file() else call.request.run
    result: DetectorsResult = carry_out(
        replace(call, request=call.request.model_copy(update={"run": str(run)}))
    )
    return result


def make_plan(call: Call) -> DetectorsPlan:
    """Open the run, its data and models, the training data and the detectors, and refuse what does
    not fit together.
    """
    request: DetectorsRequest = call.request
    run = Run.open(request.run)
    budgets = run.manifest["eps"]
    distance = open_distance(run.manifest["distance"])
    train = call.dataset("train") or open_data(request.train)
    plan = DetectorsPlan(
        **vars(open_plan(call)), run=run, distance=distance, train=train, detectors={}
    )

    check_alike(train, plan.dataset)
    if train.digest() == plan.dataset.digest():
        raise RequestError(
            f"{train.name} is the data of the audit: detectors need other inputs, "
            "so use the training data"
        )

    detectors = {text: build(text, plan) for text in dict.fromkeys(request.detector)}
    facts = DetectorsFacts(
        eps=budgets[-1], eps_text=run.manifest["eps_text"][-1], distance=distance.name
    )
    identity = {"run": digest(run.path / MANIFEST), "train": train.digest()}
    return replace(plan, detectors=detectors, facts=facts, identity=identity)


def build(text: str, plan: Plan) -> Detector:
    """The detector that a spec names, checked against data and models."""
    spec = plugins.parse(text)
    detector: Detector = plugins.build("detector", spec.name, spec.options)

    if plan.dataset.domain.kind not in detector.domains:
        kinds = ", ".join(sorted(detector.domains))
        raise RequestError(
            f"detector {text} is for {kinds}; the data has {plan.dataset.domain.kind}s"
        )

    for model in plan.models.values():
        if model.access < max(detector.access, Access.GRADIENTS):
            raise RequestError(
                f"detector {text} and the attack that knows it need gradients, "
                f"and {model.name} gives "
                f"{model.access.name.lower()} only: leave out {option('detector')}"
            )
    return detector


def pieces(plan: DetectorsPlan, call: Call) -> list[Piece]:
    """A piece for each model and detector."""
    pairs = [(model, detector) for model in plan.models for detector in plan.detectors]
    files = [f"evading-{number:03d}.safetensors" for number in range(len(pairs))]
    return [
        Piece(
            name=f"{model}: {detector}",
            make=partial(examine, plan, call.request, model, detector, file),
            files=(file,),
        )
        for (model, detector), file in zip(pairs, files, strict=True)
    ]


def examine(
    plan: DetectorsPlan, request: DetectorsRequest, model: str, detector: str, file: str
) -> Scores:
    """The rows of a detector on a model: clean inputs, those that the run stored within its largest
    budget, adaptive attacks.
    """
    records = plan.run.rows
    records = rows.take(records, records.model == model)
    clean = rows.take(records, records.attack == CLEAN)
    order = np.argsort(clean.sample_id)[:MEASURED]
    ids = clean.sample_id[order]
    labels = clean.label[order].astype(np.int64)
    right = clean.outcome[order] == Outcome.CORRECT
    x = plan.dataset.load(ids.tolist()).to(plan.device)
    eps = plan.run.manifest["eps"][-1]
    domain = plan.dataset.domain
    suspicion, threshold = _fit(plan, request.seed, request.fpr, model, detector)
    criterion = Undetected(suspicion, threshold)

    def score(attack: str, position: Array, inputs: Tensor, **columns: Any) -> Scores:
        """Rows of the inputs (n, *shape) that belong to the samples at these positions (n,)."""
        place = {
            "model": model,
            "detector": detector,
            "attack": attack,
            "threshold": threshold,
            "sample_id": ids[position],
        }
        return rows.build(
            Scores, len(position), **place, score=_scores(suspicion, inputs), **columns
        )

    parts = [score(CLEAN, np.arange(len(ids)), x, fooled=~right)]
    # Of the stored examples those within the largest budget, but for its rounding: others are not
    # what was measured.
    broken = np.ma.filled(records.broken, np.inf) <= eps * (1 + 1e-9)
    for stage in [entry["name"] for entry in plan.run.manifest["stages"]]:
        stored = plan.run.adversarial(
            model, stage, records.sample_id[broken & (records.attack == stage)].tolist()
        )
        position = np.flatnonzero(np.isin(ids, list(stored)))
        if len(position):
            inputs = torch.as_tensor(
                np.stack([stored[int(sample)] for sample in ids[position]]), device=plan.device
            )
            parts.append(score(stage, position, inputs, fooled=True))
    arrays: dict[str, Array] = {}
    background, share = most_frequent(x, domain)
    # The second attack keeps the background, where there is one. In a distance that is not a norm,
    # the projection may move any value, including those that a mask fixes.
    keeps_background = share >= SHARE and not is_relative(plan.distance)
    attacks = EVADING[: 2 if keeps_background else 1] if eps > 0 else ()
    attackable = np.flatnonzero(right)
    for attack, start in product(attacks, range(0, len(attackable), CHUNK)):
        position = attackable[start : start + CHUNK]
        index = torch.as_tensor(position, device=plan.device)
        n = len(position)
        batch = Batch.of(x[index], torch.as_tensor(labels[position], device=plan.device))
        budget = torch.full((n,), eps, device=plan.device)
        threat = Threat(distance=plan.distance, eps=budget, domain=domain, criterion=criterion)
        ledger = open_questions(plan.models[model], batch, threat, anywhere=False, batch_size=CHUNK)
        # What differs from the background but for rounding may change, in the first attack all.
        free = (
            None if attack == EVADING[0] else ledger.movable((x[index] - background).abs() > 1e-6)
        )
        rng = Streams.of(request.seed, torch.as_tensor(ids[position], device=plan.device)).fold(
            f"{detector} {attack}"
        )
        proposals = evade(ledger.oracle(), ledger.batch, ledger.threat, rng, steps=STEPS, free=free)
        full = ledger.full_inputs(batch.ids, proposals)
        # The closest input of each success; of a failure what the attack proposed last.
        found = torch.where(norms.per_sample(ledger.fooled, full), ledger.best.closest, full)
        wrong = classes(plan.models[model], found, CHUNK) != labels[position]
        parts.append(
            score(
                attack,
                position,
                found,
                fooled=wrong,
                backwards=ledger.costs.backwards.cpu().numpy(),
            )
        )
        arrays |= {
            f"{attack}/{ids[position][row]}": found[row].cpu().numpy()
            for row in np.flatnonzero(wrong)
        }
    write_arrays(plan.folder / file, arrays)
    return rows.concatenate(parts)


def _fit(
    plan: DetectorsPlan, seed: int, fpr: float, model: str, detector: str
) -> tuple[Suspicion, float]:
    """A detector fitted on one half of at most 2 * FIT clean inputs, and its threshold by the other
    half.
    """
    train = plan.train
    order = np.random.default_rng(seed).permutation(len(train))[: 2 * FIT]
    x = train.load(order.tolist()).to(plan.device)
    y = torch.as_tensor(np.asarray(train.labels())[order], device=plan.device)
    half = len(order) // 2

    # The threshold is of inputs that the detector has not seen: on its own ones it is too sure.
    suspicion = plan.detectors[detector].fit(x[:half], y[:half], plan.models[model])
    return suspicion, float(np.quantile(_scores(suspicion, x[half:]), 1 - fpr, method="higher"))


def _scores(suspicion: Suspicion, x: Tensor) -> Array:
    with torch.no_grad():
        return np.concatenate(
            [suspicion(part).cpu().numpy().astype(np.float64) for part in torch.split(x, CHUNK)]
        )


def evade(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    rng: Streams,
    *,
    steps: int,
    free: Tensor | None = None,
) -> Tensor:
    """Search for misclassified inputs within eps that raise no alarm.

    Args:
        oracle: oracle of a ledger whose threat has the criterion `Undetected`.
        batch: clean, correctly classified inputs, with ids 0 to n-1.
        threat: the budgets, n of them.
        rng: n streams for the random start.
        steps: most gradient steps.
        free: (n, *shape) bool mask of the values that may change; None for all.

    Returns:
        (n, *shape): the misclassified input with the smallest score, or the last input if none is
            misclassified. The ledger judges success.
    """
    best, wrong = batch.x.clone(), torch.zeros_like(batch.ids, dtype=torch.bool)
    largest = torch.full_like(threat.eps, -torch.inf)
    """(n,) threshold minus score of the best input; minus infinity where the model does not err."""

    def keep(batch: Batch, x: Tensor, logits: Tensor, margin: Tensor) -> None:
        """Store misclassified inputs with a smaller score; until a sample has one, its
        last input.
        """
        errs = losses.margin(logits, batch.y) > 0
        # The first misclassified input replaces any other, then only one with a larger margin.
        improved = torch.where(
            errs, ~wrong[batch.ids] | (margin > largest[batch.ids]), ~wrong[batch.ids]
        )
        place = batch.ids[improved]
        best[place], wrong[place] = x[improved], errs[improved]
        largest[place] = torch.where(errs, margin, -torch.inf)[improved]

    def project(x: Tensor, batch: Batch, free: Tensor | None, threat: Threat) -> Tensor:
        """Onto the threat's set, after resetting the fixed values."""
        return threat.project(x if free is None else torch.where(free, x, batch.x), batch.x)

    start = threat.distance.sample(rng, tuple(batch.x.shape[1:])) * norms.per_sample(
        threat.eps, batch.x
    )
    x = project(batch.x + start, batch, free, threat)
    for step in range(steps):
        answer = oracle.gradient(batch.ids, x)
        keep(batch, x, answer.logits, answer.loss)
        active = oracle.active(batch.ids)
        batch, threat, x, gradient = (
            batch.select(active),
            threat.select(active),
            x[active],
            answer.grad[active],
        )
        free = None if free is None else free[active]
        if not len(batch):
            return best
        # From FIRST_STEP + LAST_STEP down to LAST_STEP along half a cosine.
        share = FIRST_STEP * (1 + math.cos(math.pi * step / steps)) / 2 + LAST_STEP
        ascent = threat.distance.ascent(gradient if free is None else gradient * free)
        x = project(x + norms.per_sample(share * threat.eps, x) * ascent, batch, free, threat)
    keep(batch, x, oracle.scores(batch.ids, x), oracle.loss(batch.ids, x))
    return best
