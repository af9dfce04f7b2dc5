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
from brinell.analysis.grid import stage_label
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
from brinell.engine.answers import settled
from brinell.engine.eps_grid import parse_eps
from brinell.engine.plan import ModelSource, Plan, make_plan, open_data
from brinell.engine.request import Request
from brinell.engine.shard import predict, session
from brinell.engine.toml import make_request
from brinell.engine.trust import MARK, check
from brinell.store import rows
from brinell.store.files import write_arrays
from brinell.store.run import Run
from brinell.store.table import Folder
from brinell.studies.detection import page
from brinell.studies.detection.analysis import DetectionResult, summarise
from brinell.studies.detection.records import CLEAN, EVADING, LAYOUT, TABLE, Scores
from brinell.studies.detection.request import DetectRequest
from brinell.studies.kit import Call

FIRST_STEP = 0.25
LAST_STEP = 1e-3
"""Both in units of eps."""


def evade(oracle: Oracle, batch: Batch, threat: Threat, rng: Streams, *, steps: int, free: Tensor | None = None) -> Tensor:
    """Look for inputs within eps that are misclassified and raise no alarm.

    Args:
        oracle: of a ledger whose threat has the criterion `Undetected`.
        batch: clean inputs that the model classifies correctly, with ids 0 to n-1.
        threat: the budgets, n of them.
        rng: n streams for the random start.
        steps: gradient steps at most.
        free: (n, *shape) bool, values that may change; None for all.

    Returns:
        (n, *shape): the input with the smallest score among those that the model gets wrong, or the last one that was tried.
        The ledger says what was a success.
    """
    nothing = torch.full_like(threat.eps, -torch.inf)
    best = _Best(batch.x.clone(), torch.zeros_like(batch.ids, dtype=torch.bool), nothing)
    size = norms.per_sample(threat.eps, batch.x)
    start = threat.distance.sample(rng, tuple(batch.x.shape[1:])) * size
    now = _within(batch.x + start, batch.x, free, threat)
    for step in range(steps):
        answer = oracle.gradient(batch.ids, now)
        _keep(best, batch, now, answer.logits, answer.loss)
        active = oracle.active(batch.ids)
        batch, threat, now, gradient = batch.select(active), threat.select(active), now[active], answer.grad[active]
        free = None if free is None else free[active]
        if not len(batch):
            return best.x
        share = FIRST_STEP * (1 + math.cos(math.pi * step / steps)) / 2 + LAST_STEP
        gradient = gradient if free is None else gradient * free
        ahead = now + norms.per_sample(share * threat.eps, now) * threat.distance.ascent(gradient)
        now = _within(ahead, batch.x, free, threat)
    _keep(best, batch, now, oracle.scores(batch.ids, now), oracle.loss(batch.ids, now))
    return best.x


class _Best(NamedTuple):
    """What was best of each sample so far."""

    x: Tensor
    wrong: Tensor
    """(n,) bool: whether the model errs there."""
    margin: Tensor
    """(n,): the threshold minus the score there; minus infinity where the model does not err."""


def _keep(best: _Best, batch: Batch, x: Tensor, logits: Tensor, margin: Tensor) -> None:
    """Keep what the model gets wrong with the smallest score; as long as it errs nowhere, the last input."""
    ids, wrong = batch.ids, losses.margin(logits, batch.y) > 0
    better = torch.where(wrong, ~best.wrong[ids] | (margin > best.margin[ids]), ~best.wrong[ids])
    rows = ids[better]
    best.x[rows], best.wrong[rows] = x[better], wrong[better]
    best.margin[rows] = torch.where(wrong, margin, -torch.inf)[better]


def _within(x: Tensor, x0: Tensor, free: Tensor | None, threat: Threat) -> Tensor:
    """`x` moved into the threat's set around `x0`, with the values that must stay as they were put back."""
    return threat.project(x if free is None else torch.where(free, x, x0), x0)


CHUNK = 256


class _Counted:
    """A model that counts the inputs that it is shown."""

    def __init__(self, model: Model) -> None:
        self.model, self.forwards = model, 0
        self.name, self.domain, self.classes, self.access = model.name, model.domain, model.classes, model.access
        self.digest, features = model.digest, model.info.features
        self.info = replace(model.info, features=features and (lambda x: self._count(features, x)))

    def predict(self, x: Tensor) -> Tensor:
        """(n, *shape) inputs to (n, classes) logits."""
        return self._count(self.model.predict, x)

    def _count(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        self.forwards += len(x)
        return function(x)


@dataclass(frozen=True, kw_only=True)
class _Guard:
    """A detector that has learned, and its threshold."""

    name: str
    suspicion: Suspicion
    threshold: float


def detect(
    request: DetectRequest,
    folder: Path,
    tell: Callable[[str], None] = lambda text: None,
    *,
    train: Dataset | None = None,
    trust: Path | str | None = None,
) -> Folder[Scores]:
    """Score a run with detectors, attack with knowledge of them, and write the folder.

    Args:
        request: what is asked for.
        folder: the folder to write.
        tell: told what goes on.
        train: data already in memory, in place of `request.train`.
        trust: the folder from elsewhere whose models, data and attacks are used as it names them.

    Raises:
        RequestError: a run that is not finished, training data of another domain or the run's own, a detector that these data
            give nothing to go by, a run from elsewhere that names what nobody has trusted, a model without gradients where the
            attack is asked for, a folder that holds a detection.
    """
    LAYOUT.begin(folder)
    run = Run.open(request.run)
    if run.manifest["state"] != "finished":
        raise RequestError(f"{run.path} is not finished: go on with brinell audit --resume --out {run.path} first")
    if run.manifest["recommended"]:
        raise RequestError(
            f"the budgets of {run.path} are each sample's own: detect needs a run whose {option('eps')} are numbers"
        )
    check(run.manifest["request"], Request, run.path, run.manifest.get(MARK), trust=trust)
    plan = make_plan(make_request(run.manifest["request"]))
    if plan.data_digest != run.manifest["data"]["digest"]:
        raise RequestError(f"{plan.dataset.name} is not the data of {run.path}: its digest differs")
    train = open_data(request.train) if train is None else train
    detectors = _build(request, plan)
    inputs, labels = _training(request, plan, train)
    levels = plan.levels if request.eps is None else parse_eps(request.eps).values
    eps = float(levels[-1]) if len(levels) else 0.0
    scores: list[Scores] = []
    models: list[dict[str, Any]] = []
    arrays: dict[str, Array] = {}
    for source in plan.models:
        counted = _Counted(source.open())
        with session(counted.model, plan.device):
            model = settled(counted, plan.dataset, run.manifest, plan.device)
            guards = list(_guards(request, detectors, inputs, labels, model))
            one = _Examination(request=request, run=run, plan=plan, source=source, model=model, eps=eps)
            for guard in guards:
                tell(f"{source.name}: {guard.name}")
                arrays |= one.examine(guard, scores)
        models.append(
            {
                "name": source.name,
                "digest": source.facts["digest"],
                "samples": len(one.ids),
                "right": int(one.right.sum()),
                "robust": one.robust(),
                "forwards": counted.forwards,
                "detectors": [{"name": guard.name, "threshold": guard.threshold} for guard in guards],
            }
        )
    about = {
        "request": request.model_dump(mode="json"),
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
    return TABLE.write(folder, about, rows.concatenate(scores))


def _build(request: DetectRequest, plan: Plan) -> list[tuple[str, Detector]]:
    built = []
    for text in dict.fromkeys(request.detector):
        spec = plugins.parse(text)
        detector: Detector = plugins.build("detector", spec.name, spec.options)
        kind = plan.dataset.domain.kind
        if kind not in detector.domains:
            raise RequestError(f"detector {text} is for {', '.join(sorted(detector.domains))}; the data hold {kind}s")
        built.append((text, detector))
    return built


def _training(request: DetectRequest, plan: Plan, train: Dataset) -> tuple[Tensor, Tensor]:
    """2 * fit clean inputs, evenly spread over the training data, and their labels."""
    if train.domain.shape != plan.dataset.domain.shape or train.domain.kind != plan.dataset.domain.kind:
        raise RequestError(
            f"{train.name} has {train.domain.kind}s of shape {train.domain.shape}; the run's are {plan.dataset.domain.shape}"
        )
    if train.digest() == plan.data_digest:
        raise RequestError(f"{train.name} is the data of the run: detectors must learn from other inputs, name the training part")
    count = min(2 * request.fit, len(train))
    ids = np.random.default_rng(request.seed).permutation(len(train))[:count]
    return train.load(ids.tolist()).to(plan.device), torch.as_tensor(np.asarray(train.labels())[ids], device=plan.device)


def _guards(
    request: DetectRequest, detectors: Sequence[tuple[str, Detector]], x: Tensor, labels: Tensor, model: Model
) -> Iterator[_Guard]:
    half = len(x) // 2
    for name, detector in detectors:
        if model.access < detector.access:
            raise RequestError(
                f"detector {name} needs {detector.access.name.lower()} of the model, which {model.name} does not give"
            )
        suspicion = detector.fit(x[:half], labels[:half], model)
        clean = _scores(suspicion, x[half:])
        yield _Guard(name=name, suspicion=suspicion, threshold=float(np.quantile(clean, 1 - request.fpr, method="higher")))


def _scores(suspicion: Suspicion, x: Tensor) -> Array:
    with torch.no_grad():
        return np.concatenate([suspicion(part).cpu().numpy().astype(np.float64) for part in torch.split(x, CHUNK)])


class _Examination:
    """One model's samples: clean, as the run broke them, and as somebody breaks them who knows the detector."""

    def __init__(self, *, request: DetectRequest, run: Run, plan: Plan, source: ModelSource, model: Model, eps: float) -> None:
        self.request, self.run, self.plan, self.source, self.model, self.eps = request, run, plan, source, model, eps
        records = run.records()
        self.rows = rows.take(records, records.model == source.name)
        clean = rows.take(self.rows, self.rows.attack == "clean")
        order = np.argsort(clean.sample_id)[: request.samples]
        self.ids, self.labels = clean.sample_id[order], clean.label[order].astype(np.int64)
        self.right = clean.outcome[order] == Outcome.CORRECT
        self.x = plan.dataset.load(self.ids.tolist()).to(plan.device)

    def robust(self) -> int:
        """Samples that hold under every attack of the run at its largest budget within eps."""
        return int(self.right.sum()) - len({place for found in self._found().values() for place in found.tolist()})

    def _found(self) -> dict[str, Array]:
        """Per stage the places of the examined samples for which it stored an input within eps."""
        fooled = (self.rows.outcome == Outcome.FOOLED) & (self.rows.eps <= self.eps * (1 + 1e-9))
        broken = {stage.name: self.rows.sample_id[fooled & (self.rows.attack == stage.name)] for stage in self.plan.stages}
        return {name: np.flatnonzero(np.isin(self.ids, samples)) for name, samples in broken.items()}

    def examine(self, guard: _Guard, scores: list[Scores]) -> dict[str, Array]:
        """Adds a row for each input; returns the inputs of the attack that knows."""
        scores.append(self._scored(guard, CLEAN, np.arange(len(self.ids)), self.x, fooled=~self.right))
        for stage, places in self._found().items():
            stored = self.run.adversarial(self.source.name, stage, self.ids[places].tolist())
            there = places[np.isin(self.ids[places], list(stored))]
            if len(there):
                x = torch.as_tensor(np.stack([stored[int(sample)] for sample in self.ids[there]]), device=self.plan.device)
                scores.append(self._scored(guard, stage, there, x, fooled=True))
        return self._evade(guard, scores) if self.request.steps and self.eps > 0 else {}

    def _scored(self, guard: _Guard, attack: str, at: Array, x: Tensor, **more: Any) -> Scores:
        """The rows of inputs (n, *shape) that were made of the samples at these places (n,)."""
        shared = {"model": self.source.name, "detector": guard.name, "attack": attack}
        mine = {"sample_id": self.ids[at], "label": self.labels[at], "score": _scores(guard.suspicion, x)}
        return rows.build(Scores, len(at), **shared, **mine, **more)

    def _evade(self, guard: _Guard, scores: list[Scores]) -> dict[str, Array]:
        if self.model.access < Access.GRADIENTS:
            raise RequestError(
                f"{self.source.name} gives no gradients, which the attack on a detector needs: "
                f"{option('steps', '0')} leaves it out"
            )
        background, share = most_frequent(self.x, self.plan.dataset.domain)
        kept: dict[str, Array] = {}
        # The way into a ball that is no norm's moves any value, also those that a mask would keep.
        masks = share >= SHARE and not is_relative(self.plan.distance)
        for name in EVADING if masks else EVADING[:1]:
            for part in np.array_split(np.flatnonzero(self.right), max(1, -(-int(self.right.sum()) // CHUNK))):
                if not len(part):
                    continue
                rows_of = torch.as_tensor(part, device=self.x.device)
                free = None if name == EVADING[0] else (self.x[rows_of] - background).abs() > 1e-6
                rng = Streams.of(self.request.seed, torch.as_tensor(self.ids[part])).fold(f"{guard.name} {name}")
                x, ledger = self._attacked(guard, rows_of, rng, free)
                wrong = predict(self.model, x, CHUNK).argmax(1).cpu().numpy() != self.labels[part]
                scores.append(self._scored(guard, name, part, x, fooled=wrong, backwards=ledger.costs.backwards.cpu().numpy()))
                for i in np.flatnonzero(wrong):
                    kept[f"{self.source.name}/{guard.name}/{name}/{int(self.ids[part][i])}"] = x[i].cpu().numpy()
        return kept

    def _attacked(self, guard: _Guard, at: Tensor, rng: Streams, free: Tensor | None) -> tuple[Tensor, Ledger]:
        """The inputs (n, *shape) that the adaptive attack came to on these samples (n,), and the ledger that counted it."""
        x = self.x[at]
        batch = Batch(ids=torch.arange(len(x), device=x.device), x=x, y=torch.as_tensor(self.labels, device=x.device)[at])
        threat = Threat(
            distance=self.plan.distance,
            eps=torch.full((len(x),), self.eps, device=x.device),
            domain=self.plan.dataset.domain,
            criterion=Undetected(guard.suspicion, guard.threshold),
        )
        ledger = Ledger(self.model, batch, threat, batch_size=CHUNK)
        mask = None if free is None else ledger.movable(free)
        found = evade(ledger.oracle(), ledger.batch, ledger.threat, rng, steps=self.request.steps, free=mask)
        whole = ledger.whole(batch.ids, found)
        return torch.where(per_sample(ledger.fooled, x), ledger.best.closest, whole), ledger


def carry_out(call: Call) -> DetectionResult:
    """Score a run with detectors, attack with knowledge of them, and write the folder and its page.

    Raises:
        RequestError: what cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    folder = call.folder(call.request.train)
    made = detect(call.request, folder, call.progress.note, train=call.dataset("train"), trust=call.trust)
    page.write(folder)
    return summarise(made)


def open_result(folder: Path) -> DetectionResult:
    """What a detection study's folder says, from its records alone."""
    return summarise(TABLE.read(folder))
