"""How much of a robust accuracy is due to changes that a detector sees: clean, attacked, and attacked by somebody who knows.

Detectors learn from clean training inputs and never see an attack. Their alarm threshold is the quantile of other clean training
inputs at which the false-alarm rate is the one asked for. Then every adversarial input that a run stored is scored, and the run's
threat is attacked anew by `evade`, which knows the detector and looks for a wrong class that raises no alarm.

`evade` is selective projected gradient descent (Bryniarski, Hingun, Pachuca, Wang & Carlini 2022, Evading adversarial example
detection defenses with orthogonal projected gradient descent, section 3.1): each step follows the gradient of the one constraint
that is violated, which is the margin of `core.criterion.Undetected`. The ledger judges what is proposed.

Deviations: steps shrink on a cosine from a quarter of eps; the margin in place of the cross-entropy, since it ends where the
class turns; `free` keeps a part of the values untouched (the background masked out of the perturbation).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell import plugins
from brinell.analysis.curve import stage_label
from brinell.core import losses, norms
from brinell.core.contracts import Dataset, Detector, Suspicion
from brinell.core.criterion import Undetected
from brinell.core.errors import RequestError, option
from brinell.core.ledger import Ledger
from brinell.core.model import Access, Model
from brinell.core.norms import per_sample
from brinell.core.oracle import Batch, Oracle
from brinell.core.record import Array, Outcome
from brinell.core.streams import Streams
from brinell.core.threat import Threat, is_relative
from brinell.detectors._background import SHARE, most_frequent
from brinell.engine.answers import with_logits
from brinell.engine.eps_grid import parse_eps
from brinell.engine.group_attack import predict, session
from brinell.engine.plan import ModelSource, Plan, make_plan
from brinell.engine.request import Request, count_samples
from brinell.engine.sources import open_data
from brinell.engine.toml import parse_request
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.run import Run
from brinell.store.table import Folder
from brinell.store.trust import check_manifest
from brinell.studies.detection import page
from brinell.studies.detection.analysis import DetectionResult, summarise
from brinell.studies.detection.records import CLEAN, EVADING, LAYOUT, TABLE, Scores
from brinell.studies.detection.request import DetectRequest
from brinell.studies.kit import Call

FIRST_STEP = 0.25
LAST_STEP = 1e-3
"""Both in units of eps."""


def evade(oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, *, steps: int, free: Tensor | None = None) -> Tensor:
    """Search for misclassified inputs within eps that raise no alarm.

    Args:
        oracle: oracle of a ledger whose threat has the criterion `Undetected`.
        batch: clean, correctly classified inputs, with ids 0 to n-1.
        threat: the budgets, n of them.
        rng: n streams for the random start.
        steps: most gradient steps.
        free: (n, *shape) bool mask of the values that may change; None for all.

    Returns:
        (n, *shape): the misclassified input with the smallest score, or the last input if none is misclassified. The ledger
        judges success.
    """
    margins = torch.full_like(threat.eps, -torch.inf)
    best = _Best(batch.x.clone(), torch.zeros_like(batch.ids, dtype=torch.bool), margins)
    size = norms.per_sample(threat.eps, batch.x)
    start = threat.distance.sample(rng, tuple(batch.x.shape[1:])) * size
    x = _project(batch.x + start, batch.x, free, threat)
    for step in range(steps):
        answer = oracle.gradient(batch.ids, x)
        _update_best(best, batch, x, answer.logits, answer.loss)
        active = oracle.active(batch.ids)
        batch, threat, x, gradient = batch.select(active), threat.select(active), x[active], answer.grad[active]
        free = None if free is None else free[active]
        if not len(batch):
            return best.x
        share = FIRST_STEP * (1 + math.cos(math.pi * step / steps)) / 2 + LAST_STEP
        gradient = gradient if free is None else gradient * free
        proposal = x + norms.per_sample(share * threat.eps, x) * threat.distance.ascent(gradient)
        x = _project(proposal, batch.x, free, threat)
    _update_best(best, batch, x, oracle.scores(batch.ids, x), oracle.loss(batch.ids, x))
    return best.x


class _Best(NamedTuple):
    """The best input of each sample so far."""

    x: Tensor
    wrong: Tensor
    """(n,) bool: True where the model errs."""
    margin: Tensor
    """(n,) threshold minus score; minus infinity where the model does not err."""


def _update_best(best: _Best, batch: Batch, x: Tensor, logits: Tensor, margin: Tensor) -> None:
    """Store misclassified inputs with a smaller score; until a sample has one, store its last input."""
    ids, wrong = batch.ids, losses.margin(logits, batch.y) > 0
    improved = torch.where(wrong, ~best.wrong[ids] | (margin > best.margin[ids]), ~best.wrong[ids])
    rows = ids[improved]
    best.x[rows], best.wrong[rows] = x[improved], wrong[improved]
    best.margin[rows] = torch.where(wrong, margin, -torch.inf)[improved]


def _project(x: Tensor, x0: Tensor, free: Tensor | None, threat: Threat) -> Tensor:
    """Project `x` onto the threat's set around `x0`, after resetting the fixed values."""
    return threat.project(x if free is None else torch.where(free, x, x0), x0)


CHUNK = 256


class _CountingModel:
    """A model that counts its forward evaluations."""

    def __init__(self, model: Model) -> None:
        self.model, self.forwards = model, 0
        self.name, self.domain, self.classes, self.access = model.name, model.domain, model.classes, model.access
        self.digest, features = model.digest, model.info.features
        self.info = replace(model.info, features=features and (lambda x: self._count(features, x)))

    def predict(self, x: Tensor) -> Tensor:
        """Logits (n, classes) of inputs (n, *shape)."""
        return self._count(self.model.predict, x)

    def _count(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Call a function on inputs and count them."""
        self.forwards += len(x)
        return function(x)


@dataclass(frozen=True, kw_only=True)
class _FittedDetector:
    """A fitted detector and its threshold."""

    name: str
    suspicion: Suspicion
    threshold: float


def detect(
    request: DetectRequest,
    folder: Path,
    report: Callable[[str], None] = lambda text: None,
    *,
    train: Dataset | None = None,
    trust: Path | str | None = None,
) -> Folder[Scores]:
    """Score a run with detectors, run the adaptive attacks, and write the folder.

    Args:
        request: the settings of the study.
        folder: the folder to write.
        report: receives progress messages.
        train: data in memory; overrides `request.train`.
        trust: a trusted folder, from which models, data and attacks may be loaded.

    Raises:
        RequestError: the run is not finished or untrusted, the training data has another domain or is the run's own, a
            detector does not fit the data, a model gives no gradients for the adaptive attack, or the folder holds a
            detection.
    """
    LAYOUT.begin(folder)
    run = Run.open(request.run)
    if run.manifest["state"] != "finished":
        raise RequestError(f"{run.path} is not finished: resume it with brinell audit --resume --out {run.path} first")
    if run.manifest["recommended"]:
        raise RequestError(f"the budgets of {run.path} differ by sample: detect needs a run whose {option('eps')} are numbers")
    check_manifest(run.path, run.manifest, trust)
    plan = make_plan(parse_request(Request, run.manifest["request"]))
    if plan.data_digest != run.manifest["data"]["digest"]:
        raise RequestError(f"{plan.dataset.name} is not the data of {run.path}: its digest differs")
    train = open_data(request.train) if train is None else train
    detectors = _build(request, plan)
    inputs, labels = _load_training(request, plan, train)
    levels = plan.levels if request.eps is None else parse_eps(request.eps).values
    eps = float(levels[-1]) if len(levels) else 0.0
    scores: list[Scores] = []
    models: list[dict[str, Any]] = []
    arrays: dict[str, Array] = {}
    for source in plan.models:
        counter = _CountingModel(source.open())
        with session(counter.model, plan.device):
            model = with_logits(counter, plan.dataset, run.manifest, plan.device)
            fitted_detectors = list(_fit_detectors(request, detectors, inputs, labels, model))
            examination = _Examination(request=request, run=run, plan=plan, source=source, model=model, eps=eps)
            for fitted in fitted_detectors:
                report(f"{source.name}: {fitted.name}")
                arrays |= examination.examine(fitted, scores)
        models.append(
            {
                "name": source.name,
                "digest": source.facts["digest"],
                "samples": len(examination.ids),
                "right": int(examination.right.sum()),
                "robust": examination.robust(),
                "forwards": counter.forwards,
                "detectors": [{"name": fitted.name, "threshold": fitted.threshold} for fitted in fitted_detectors],
            }
        )
    settings = request.model_dump(mode="json")
    facts = {
        "request": settings,
        "run": str(run.path),
        "data": run.manifest["data"]["name"],
        "train": train.name,
        "distance": run.manifest["distance"],
        "eps": eps,
        "models": models,
        "attacks": [stage["name"] for stage in run.manifest["stages"]],
        "titles": {stage["name"]: stage_label(stage) for stage in run.manifest["stages"]},
    }
    write_arrays(folder / "evading.safetensors", arrays)
    return TABLE.write(folder, facts, rows.concatenate(scores))


def _build(request: DetectRequest, plan: Plan) -> list[tuple[str, Detector]]:
    """Build the detectors and check that they fit the data."""
    detectors = []
    for text in dict.fromkeys(request.detector):
        spec = plugins.parse(text)
        detector: Detector = plugins.build("detector", spec.name, spec.options)
        kind = plan.dataset.domain.kind
        if kind not in detector.domains:
            raise RequestError(f"detector {text} is for {', '.join(sorted(detector.domains))}; the data has {kind}s")
        detectors.append((text, detector))
    return detectors


def _load_training(request: DetectRequest, plan: Plan, train: Dataset) -> tuple[Tensor, Tensor]:
    """At most 2 * fit clean inputs in random order, and their labels."""
    if train.domain.shape != plan.dataset.domain.shape or train.domain.kind != plan.dataset.domain.kind:
        raise RequestError(
            f"{train.name} has {train.domain.kind}s of shape {train.domain.shape}; the run's are {plan.dataset.domain.shape}"
        )
    if train.digest() == plan.data_digest:
        raise RequestError(f"{train.name} is the data of the run: detectors need other inputs, so use the training data")
    count = min(2 * request.fit, len(train))
    ids = np.random.default_rng(request.seed).permutation(len(train))[:count]
    return train.load(ids.tolist()).to(plan.device), torch.as_tensor(np.asarray(train.labels())[ids], device=plan.device)


def _fit_detectors(
    request: DetectRequest, detectors: Sequence[tuple[str, Detector]], x: Tensor, labels: Tensor, model: Model
) -> Iterator[_FittedDetector]:
    """Fit each detector on one half of the clean samples and set its threshold on the other."""
    half = len(x) // 2
    for name, detector in detectors:
        if model.access < detector.access:
            raise RequestError(
                f"detector {name} needs {detector.access.name.lower()} of the model, but {model.name} does not provide it"
            )
        suspicion = detector.fit(x[:half], labels[:half], model)
        clean = _scores(suspicion, x[half:])
        yield _FittedDetector(
            name=name, suspicion=suspicion, threshold=float(np.quantile(clean, 1 - request.fpr, method="higher"))
        )


def _scores(suspicion: Suspicion, x: Tensor) -> Array:
    """(n,) float64: suspicion of each input."""
    with torch.no_grad():
        return np.concatenate([suspicion(part).cpu().numpy().astype(np.float64) for part in torch.split(x, CHUNK)])


class _Examination:
    """The samples of one model: clean, under the run's attacks, and under the adaptive attacks."""

    def __init__(self, *, request: DetectRequest, run: Run, plan: Plan, source: ModelSource, model: Model, eps: float) -> None:
        self.request, self.run, self.plan, self.source, self.model, self.eps = request, run, plan, source, model, eps
        records = run.records()
        self.rows = rows.take(records, records.model == source.name)
        clean = rows.take(self.rows, self.rows.attack == "clean")
        order = np.argsort(clean.sample_id)[: count_samples(request.samples, len(clean.sample_id))]
        self.ids, self.labels = clean.sample_id[order], clean.label[order].astype(np.int64)
        self.right = clean.outcome[order] == Outcome.CORRECT
        self.x = plan.dataset.load(self.ids.tolist()).to(plan.device)

    def robust(self) -> int:
        """Number of samples that withstand every attack of the run at its largest budget within eps."""
        return int(self.right.sum()) - len(
            {position for positions in self._adversarial_positions().values() for position in positions.tolist()}
        )

    def _adversarial_positions(self) -> dict[str, Array]:
        """By stage, the positions of the samples for which the run stores an adversarial input within eps."""
        fooled = np.ma.filled(self.rows.broken, np.inf) <= self.eps * (1 + 1e-9)
        fooled_ids = {stage.name: self.rows.sample_id[fooled & (self.rows.attack == stage.name)] for stage in self.plan.stages}
        return {name: np.flatnonzero(np.isin(self.ids, samples)) for name, samples in fooled_ids.items()}

    def examine(self, fitted: _FittedDetector, scores: list[Scores]) -> dict[str, Array]:
        """Append a row to `scores` for each input. Returns the inputs of the adaptive attacks."""
        scores.append(self._score_rows(fitted, CLEAN, np.arange(len(self.ids)), self.x, fooled=~self.right))
        for stage, positions in self._adversarial_positions().items():
            stored = self.run.adversarial(self.source.name, stage, self.ids[positions].tolist())
            available = positions[np.isin(self.ids[positions], list(stored))]
            if len(available):
                x = torch.as_tensor(np.stack([stored[int(sample)] for sample in self.ids[available]]), device=self.plan.device)
                scores.append(self._score_rows(fitted, stage, available, x, fooled=True))
        return self._evade(fitted, scores) if self.request.steps and self.eps > 0 else {}

    def _score_rows(self, fitted: _FittedDetector, attack: str, positions: Array, x: Tensor, **columns: Any) -> Scores:
        """Rows of the inputs (n, *shape) that belong to the samples at `positions` (n,)."""
        shared = {"model": self.source.name, "detector": fitted.name, "attack": attack}
        values = {"sample_id": self.ids[positions], "label": self.labels[positions], "score": _scores(fitted.suspicion, x)}
        return rows.build(Scores, len(positions), **shared, **values, **columns)

    def _evade(self, fitted: _FittedDetector, scores: list[Scores]) -> dict[str, Array]:
        """Attack the model and the detector together; returns the adversarial inputs."""
        if self.model.access < Access.GRADIENTS:
            raise RequestError(
                f"{self.source.name} gives no gradients, which the adaptive attack needs: {option('steps', '0')} leaves it out"
            )
        background, share = most_frequent(self.x, self.plan.dataset.domain)
        arrays: dict[str, Array] = {}
        # In a distance that is not a norm, the projection may move any value, including those that a mask fixes.
        masks = share >= SHARE and not is_relative(self.plan.distance)
        for name in EVADING if masks else EVADING[:1]:
            for part in np.array_split(np.flatnonzero(self.right), max(1, -(-int(self.right.sum()) // CHUNK))):
                if not len(part):
                    continue
                rows_of = torch.as_tensor(part, device=self.x.device)
                free = None if name == EVADING[0] else (self.x[rows_of] - background).abs() > 1e-6
                rng = Streams.of(self.request.seed, torch.as_tensor(self.ids[part], device=self.x.device)).fold(
                    f"{fitted.name} {name}"
                )
                x, ledger = self._attack(fitted, rows_of, rng, free)
                wrong = predict(self.model, x, CHUNK).argmax(1).cpu().numpy() != self.labels[part]
                scores.append(
                    self._score_rows(fitted, name, part, x, fooled=wrong, backwards=ledger.costs.backwards.cpu().numpy())
                )
                for i in np.flatnonzero(wrong):
                    arrays[f"{self.source.name}/{fitted.name}/{name}/{int(self.ids[part][i])}"] = x[i].cpu().numpy()
        return arrays

    def _attack(self, fitted: _FittedDetector, index: Tensor, rng: Streams, free: Tensor | None) -> tuple[Tensor, Ledger]:
        """Run the adaptive attack on the samples at `index` (n,). Returns the inputs (n, *shape) and the ledger."""
        x = self.x[index]
        batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=torch.as_tensor(self.labels, device=x.device)[index])
        threat = Threat(
            distance=self.plan.distance,
            eps=torch.full((len(x),), self.eps, device=x.device),
            domain=self.plan.dataset.domain,
            criterion=Undetected(fitted.suspicion, fitted.threshold),
        )
        ledger = Ledger(self.model, batch, threat, batch_size=CHUNK)
        mask = None if free is None else ledger.movable(free)
        proposals = evade(ledger.oracle(), ledger.batch, ledger.threat, rng, steps=self.request.steps, free=mask)
        full = ledger.full_inputs(batch.ids, proposals)
        return torch.where(per_sample(ledger.fooled, x), ledger.best.closest, full), ledger


def carry_out(call: Call) -> DetectionResult:
    """Run `brinell detect`: score a run with detectors, attack it adaptively, and write the folder and its page.

    Raises:
        RequestError: the request cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    folder = call.folder(call.request.train)
    detection = detect(call.request, folder, call.progress.note, train=call.dataset("train"), trust=call.trust)
    page.write(folder)
    return summarise(detection)
